"""What a study reports: rows that put a measured value beside the paper's, as JSON and as a table.

A row has a figure of the paper, a setting, a value with its unit, and what the paper says of the
same setting: a number in the same unit, a sentence where the paper has only a curve or words, or
nothing. `outpace.studies.page` draws the same rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from outpace.report.table import FittedTable

#: What a paper says of a setting.
Paper: TypeAlias = "float | str | None"

#: A place on the axis of a plot; a row without one is not drawn.
AxisPlace: TypeAlias = "float | str | None"


@dataclass(frozen=True, slots=True)
class Row:
    """One measured value.

    Parameters
    ----------
    figure
        The figure or table of the paper: "5.3".
    setting
        What was set, in words that tell the row from all others of the figure.
    value, unit
        The measurement.
    paper
        What the paper says: a number in the same unit, a sentence, or None where it says nothing.
    curve, at
        Where the figure's plot shows the value: on which curve, and at which place of its axis. A
        row without a place is only listed.

    Examples
    --------
    >>> Row("5.3", "slide 10", 2e7, "events/s", "falls", curve="here", at=10).fields()
    {'figure': '5.3', 'setting': 'slide 10', 'value': 20000000.0, 'unit': 'events/s',
     'paper': 'falls'}
    """

    figure: str
    setting: str
    value: float
    unit: str
    paper: Paper = None
    curve: str = ""
    at: AxisPlace = None

    def fields(self, place: str = "figure") -> dict[str, Paper]:
        """Return the row as the JSON file has it, which calls the part of the paper a place."""
        return {
            place: self.figure,
            "setting": self.setting,
            "value": self.value,
            "unit": self.unit,
            "paper": self.paper,
        }


class PlotKind(Enum):
    """How a plot shows its rows."""

    BARS = "bars"
    """A group of bars for each place, one bar for each curve."""
    STEPS = "steps"
    """Curves over a setting: numbers stand where they belong, words at equal distances."""
    TIME = "time"
    """The axis is time. The table leaves these rows out: there are too many of them."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot of the page, named after the paper's.

    Parameters
    ----------
    name
        As rows name it: "5.3"; a table of the paper is a word and a number, "Table 4".
    title
        The quantity that it shows.
    axis
        What was set, with its unit where it has one.
    quantity, unit
        What was measured, and in what.
    kind
        How rows are shown.
    said
        What the paper did and found there.
    here
        How the experiment runs here, and the differences.
    log
        Whether values are drawn on a logarithmic axis.
    """

    name: str
    title: str
    axis: str
    quantity: str
    unit: str
    kind: PlotKind
    said: str
    here: str
    log: bool = False


#: Measures something and yields rows as soon as they are there.
Experiment: TypeAlias = Callable[[], Iterable[Row]]


@dataclass(frozen=True, slots=True)
class Study:
    """A paper's experiments.

    Parameters
    ----------
    name
        The word behind `outpace study`; the files of the study have it too.
    title
        The heading of the page and the table.
    source
        The paper.
    figures
        The plots, in the order of the page.
    experiments
        What to run, in this order, each with the words that a progress bar shows.
    place
        What the JSON file calls the part of the paper that a row belongs to.
    """

    name: str
    title: str
    source: str
    figures: tuple[Figure, ...]
    experiments: tuple[tuple[str, Experiment], ...]
    place: str = "figure"

    def run(self, on_start: Callable[[str], None] = lambda _: None) -> Iterator[Row]:
        """Run the experiments one after the other.

        Parameters
        ----------
        on_start
            Called with an experiment's words before it runs.
        """
        for words, experiment in self.experiments:
            on_start(words)
            yield from experiment()

    def in_order(self, rows: Iterable[Row]) -> list[Row]:
        """Return rows in the order of the figures, those of a figure as they came."""
        places = {figure.name: place for place, figure in enumerate(self.figures)}
        return sorted(rows, key=lambda row: places[row.figure])


def write_rows(
    path: Path, rows: Sequence[Row], place: str = "figure", *, quick: bool = False
) -> None:
    """Write rows as a JSON list of objects, one in a line; for `place` see `Study`.

    Those of smaller settings, which are not to be compared with others, say so: `quick`.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "space.json"
    >>> write_rows(path, [Row("5.2", "SimpleEvent", 1.5, "M events/s")])
    >>> json.loads(path.read_text())[0]["value"]
    1.5
    """
    said = {"quick": True} if quick else {}
    lines = ",\n".join(json.dumps(row.fields(place) | said, ensure_ascii=False) for row in rows)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def print_table(study: Study, rows: Sequence[Row], console: Console) -> None:
    """Print a table "paper / here", a section for each figure."""
    over_time = {figure.name for figure in study.figures if figure.kind is PlotKind.TIME}
    table = Table(title=study.title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("figure", no_wrap=True)
    table.add_column("setting")
    table.add_column("paper", justify="right")
    table.add_column("here", justify="right", no_wrap=True)
    table.add_column("unit")
    before = None
    for row in rows:
        if row.figure in over_time and row.at is not None:
            continue
        figure = "" if row.figure == before else row.figure
        before = row.figure
        cells = (figure, row.setting, paper_text(row.paper), number_text(row.value), row.unit)
        table.add_row(*map(Text, cells))
    console.print(FittedTable(table))


def paper_text(paper: Paper) -> str:
    """Return what the paper says as the table shows it.

    Examples
    --------
    >>> paper_text(330_000.0), paper_text("falls"), paper_text(None)
    ('330,000', 'falls', 'not given')
    """
    if paper is None:
        return "not given"
    return paper if isinstance(paper, str) else number_text(paper)


def number_text(value: float) -> str:
    """Return a number with three digits that count, large ones in millions.

    One just below 100 has two decimals, never rounded up: almost all is not all.

    Examples
    --------
    >>> [number_text(value) for value in (25_340_000, 35_000, 141_465, 11.234, 0.3333, 38, 0)]
    ['25.3 M', '35,000', '141,465', '11.2', '0.333', '38', '0']
    >>> number_text(999.99), number_text(99.978)
    ('1,000', '99.97')
    """
    if 99 < value < 100:
        return f"{math.floor(value * 100) / 100:.2f}"
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.3g} M" if abs(value) < 1e9 else f"{value / 1e6:,.0f} M"
    if abs(value) >= 999.5 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"
