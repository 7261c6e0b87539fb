"""What studies share: rows, their order, the JSON file, the table and the page."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from outpace.studies.page import page_of, plot_of
from outpace.studies.report import Figure, PlotKind, Row, Study, print_table, write_rows

STEPS = Figure(
    "1", "slides", "slide", "rate", "events/s", PlotKind.STEPS, "it <fell>", "it does not"
)
BARS = Figure("2", "sizes", "event", "size", "bytes", PlotKind.BARS, "large", "small")
TIME = Figure("3", "over time", "time (s)", "rate", "events/s", PlotKind.TIME, "declines", "stays")

ROWS = [
    Row("1", "slide 10", 2e7, "events/s", "falls severely", curve="here", at=10),
    Row("1", "slide 1,000,000", 3e7, "events/s", 330_000.0, curve="here", at=1_000_000),
    Row("2", "SimpleEvent, block", 11.5, "bytes", 16, curve="block", at="SimpleEvent"),
    Row("2", "StockEvent, block", 28.0, "bytes", 38, curve="block", at="StockEvent"),
    Row("3", "after 0.5 s", 1e6, "events/s", curve="rate", at=0.5),
    Row("3", "least in any second", 9e5, "events/s", "declines"),
]


def study(*, rows: list[Row] = ROWS) -> Study:
    experiments = (("first", lambda: iter(rows[:2])), ("second", lambda: rows[2:]))
    return Study("sample", "A sample", "Someone, 1999", (STEPS, BARS, TIME), experiments)


def table_of(rows: list[Row], width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_table(study(), rows, console)
    return console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO


def test_a_study_runs_its_experiments_in_order_and_says_which_begins() -> None:
    begun: list[tuple[str, int]] = []
    seen: list[Row] = []
    for row in study().run(lambda words: begun.append((words, len(seen)))):
        seen.append(row)
    assert seen == ROWS
    assert begun == [("first", 0), ("second", 2)]


def test_rows_are_put_in_the_order_of_the_figures() -> None:
    mixed = [ROWS[4], ROWS[2], ROWS[0], ROWS[3], ROWS[1], ROWS[5]]
    assert study().in_order(mixed) == [ROWS[0], ROWS[1], ROWS[2], ROWS[3], ROWS[4], ROWS[5]]


def test_the_file_is_a_list_of_rows_with_five_fields(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.json", ROWS)
    found = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))
    assert [list(row) for row in found] == [["figure", "setting", "value", "unit", "paper"]] * 6
    assert [row["paper"] for row in found] == ["falls severely", 330_000, 16, 38, None, "declines"]
    assert [row["value"] for row in found] == [row.value for row in ROWS]


def test_no_rows_are_an_empty_list(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.json", [])
    assert json.loads((tmp_path / "rows.json").read_text(encoding="utf-8")) == []


def test_the_table_puts_the_paper_beside_the_value() -> None:
    lines = table_of(ROWS).splitlines()
    assert re.split(r"\s{2,}", lines[1].strip()) == ["figure", "setting", "paper", "here", "unit"]
    assert re.split(r"\s{2,}", lines[2].strip())[1:] == [
        "slide 10",
        "falls severely",
        "20 M",
        "events/s",
    ]
    assert re.split(r"\s{2,}", lines[3].strip())[1] == "330,000"


def test_the_table_names_a_figure_once_and_leaves_out_what_changes_over_time() -> None:
    text = table_of(ROWS)
    assert len(re.findall(r"^1 ", text, re.MULTILINE)) == 1
    assert "after 0.5 s" not in text
    assert "least in any second" in text


def test_square_brackets_in_a_setting_are_text() -> None:
    assert "[bold]" in table_of([Row("1", "[bold]", 1.0, "s")])


def test_the_page_needs_no_network_and_names_the_figures() -> None:
    page = page_of(study(), ROWS, "on two cores")
    for name in ("1", "2", "3"):
        assert f"<h2>Figure {name}: " in page
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r'(src|href)="', outside)
    assert not re.search(r'<script[^>]*src="', page)
    assert page.count("plotly.js v") == 1, "the script is in the page once"


def test_the_page_escapes_what_it_is_told() -> None:
    page = page_of(study(), [Row("1", "a < b", 1.0, "s", "<i>")], "x < y")
    assert "it &lt;fell&gt;" in page
    assert "a &lt; b" in page
    assert "&lt;i&gt;" in page
    assert "x &lt; y" in page


def test_a_plot_shows_the_rows_that_have_a_place_and_the_papers_numbers() -> None:
    here, paper = plot_of(STEPS, ROWS[:2]).data
    assert (list(here.x), list(here.y)) == ([10, 1_000_000], [2e7, 3e7])
    assert (list(paper.x), list(paper.y)) == ([1_000_000], [330_000])
    assert paper.marker.color == here.line.color, "the mark is that of its curve"


@pytest.mark.parametrize(
    ("places", "kind", "direction"),
    [
        ((1, 16, 256), "log", None),
        ((1_000_000, 10), "log", "reversed"),
        ((1, 2, 4), "linear", None),
        ((0, 1000), "linear", None),
        (("SimpleEvent", 10), "category", None),
    ],
)
def test_numbers_are_on_an_axis_of_numbers(
    places: tuple[float | str, ...], kind: str, direction: str | None
) -> None:
    rows = [Row("1", f"{at}", 1.0, "events/s", None, "first", at) for at in places]
    axis = plot_of(STEPS, rows).layout.xaxis
    assert (axis.type, axis.autorange) == (kind, direction)
    assert axis.categoryarray is None


def test_axes_have_quantities_and_units_and_curves_differ() -> None:
    rows = [
        Row("1", f"{curve} {at}", 1.0, "events/s", None, f"curve {curve}", at)
        for curve in range(12)
        for at in (1, 2)
    ]
    plot = plot_of(STEPS, rows)
    assert plot.layout.yaxis.title.text == "rate (events/s)"
    looks = {(one.line.color, one.line.dash, one.marker.symbol) for one in plot.data}
    assert len(looks) == 12
    assert plot.layout.legend.y < 0, "above the plot, its buttons would cover the legend"


def test_a_page_says_that_the_study_was_stopped() -> None:
    assert '<p class="stopped">' not in page_of(study(), ROWS, "here")
    page = page_of(study(), ROWS, "here", stopped="stopped after 1 < 2")
    assert '<p class="stopped">stopped after 1 &lt; 2</p>' in page


def test_a_plot_over_time_has_numbers_on_its_axis() -> None:
    (curve,) = plot_of(TIME, ROWS[4:]).data
    assert (list(curve.x), list(curve.y)) == ([0.5], [1e6])


@pytest.mark.parametrize("figure", [STEPS, BARS, TIME])
def test_a_figure_without_rows_is_an_empty_plot(figure: Figure) -> None:
    assert not plot_of(figure, []).data
