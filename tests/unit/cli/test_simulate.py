"""`outpace simulate`: tables, JSON, pages, and errors that name the file and the line."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from outpace.cli.main import app
from outpace.cli.simulate import plan_plot
from outpace.simulate import read_scenario, simulate
from outpace.simulate.plan import plan
from outpace.simulate.plan_target import LatencyTarget

SCENARIO = """\
duration = 30
warm_up = 10
queue = 2048
overflow = "discard"

[[vms]]
id = "worker"
mips = 1000

[[queries]]
name = "alarms"
vertices = [
    { kind = "producer", id = "sensors", generator = { kind = "uniform", rate = 100 } },
    { kind = "operator", id = "filter", instructions = 5e6 },
    { kind = "consumer", id = "pager" },
]
edges = [
    { source = "sensors", target = "filter" },
    { source = "filter", target = "pager", selectivity = 0.05 },
]
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "alarms.toml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def outpace(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


def printed_json(*arguments: object) -> Any:
    done = outpace(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_run_prints_tables_of_queries_consumers_vertices_and_machines(scenario: Path) -> None:
    done = outpace("run", scenario)
    assert done.exit_code == 0
    for word in ("alarms", "pager", "filter", "worker", "p99", "50 %", "100"):
        assert word in done.stdout
    assert not done.stderr


def test_run_prints_the_numbers_of_the_result_as_json(scenario: Path) -> None:
    found = printed_json("run", scenario)
    result = simulate(read_scenario(scenario))
    assert found["queries"] == result.queries().to_pylist()
    assert found["consumers"][0]["throughput"] == pytest.approx(100)
    assert found["vms"] == [{"vm": "worker", "utilisation": 0.5, "memory_max": 0.0}]
    filtered = next(row for row in found["vertices"] if row["vertex"] == "filter")
    assert filtered["vm"] == "worker"
    assert filtered["processed"] == pytest.approx(2000)


def test_a_number_that_is_none_is_null(scenario: Path) -> None:
    scenario.write_text(SCENARIO.replace("rate = 100", "rate = 0"), encoding="utf-8")
    assert printed_json("run", scenario)["queries"][0]["p99"] is None


def test_a_long_table_shows_the_rows_that_matter(scenario: Path) -> None:
    done = outpace("run", scenario, "--rows", 1)
    assert "the 1 of 3 with the greatest utilisation" in done.stdout
    assert "filter" in done.stdout
    assert "sensors" not in done.stdout


def test_a_page_has_tables_and_plots_and_needs_no_network(scenario: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = outpace("run", scenario, "--html", page)
    assert done.exit_code == 0
    assert str(page) in done.stdout.replace("\n", "")
    text = page.read_text(encoding="utf-8")
    for heading in ("Latency by consumer", "Throughput by", "Queue by vertex", "Utilisation by VM"):
        assert heading in text
    assert not re.search(r'<(script|link)[^>]+(src|href)="http', text)
    assert text.count("<table>") == 4


HOSTILE = """</script><img src=x onerror=alert(1)><a href='https://evil.example'>"""


def test_names_stay_text_in_a_page(scenario: Path, tmp_path: Path) -> None:
    text = re.sub(r'"(sensors|filter|alarms|worker)"', f'"{HOSTILE}\\1"', scenario.read_text())
    assert text.count(HOSTILE) > 3
    scenario.write_text(text)
    page = tmp_path / "report.html"
    assert outpace("run", scenario, "--html", page).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert "onerror" in text
    assert "<img src=x" not in text
    assert "</script>&lt;" not in text
    # Plots take their names for markup, in which entities are text.
    assert "\\u003cimg" not in text
    assert "\\u003ca href" not in text


def test_a_page_that_cannot_be_written_fails_at_once(scenario: Path, tmp_path: Path) -> None:
    done = outpace("run", scenario, "--html", tmp_path / "nowhere" / "report.html")
    assert done.exit_code == 2
    assert "nowhere" in done.stderr


HOSTS = """[[clouds]]
id = "own"
datacentres = [{ id = "cellar", hosts = [{ id = "rack", mips = 500 }] }]

[[queries]]"""

CYCLE = """target = "pager", selectivity = 0.05 },
    { source = "filter", target = "again" },
    { source = "again", target = "filter" },"""

AGAIN = """{ kind = "operator", id = "again" },
    { kind = "consumer", id = "pager" }"""

WINDOW = 'kind = "window", window = 10, advance = 3, id = "filter"'


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        ('target = "pager"', 'target = "paper"', ["paper", "line 19", "did you mean 'pager'"]),
        ("instructions = 5e6", "instructions = -1", ["'filter'", "line 14", "-1"]),
        ("instructions = 5e6", "instructions = nan", ["'filter'", "line 14", "nan"]),
        ("selectivity = 0.05", "selectivity = -0.05", ["'filter' -> 'pager'", "line 19"]),
        ("selectivity = 0.05", "selectivity = nan", ["'filter' -> 'pager'", "line 19"]),
        ("rate = 100", "rate = -100", ["line 13", "rate is not a number from 0 on: -100"]),
        ("rate = 100", "rate = nan", ["line 13", "rate is not a number from 0 on: nan"]),
        ("rate = 100", "rate = 1e300", ["line 13", "above 1e+12 events a second"]),
        ("duration = 30", "duration = ", ["not TOML"]),
        ("duration = 30", "duration = nan", ["line 1", "duration is not a number of seconds"]),
        ("duration = 30", "duration = 1e12", ["line 1", "more than 20,000,000 ticks"]),
        ("duration = 30", "duration = 30\ntick = 1e-9", ["line 1", "20,000,000 ticks"]),
        ("duration = 30", "duration = 2e6\nsample = 0.1", ["line 2", "history of 20,000,000 ste"]),
        ("duration = 30", "durration = 30", ["line 1", "did you mean 'duration'?"]),
        ("mips = 1000", 'mips = "fast"', ["line 8", "number"]),
        ("mips = 1000", 'mips = 1\n[[vms]]\nid = "b"\nmips = 1', ["on no VM", "'sensors'"]),
        ("[[queries]]", HOSTS, ["the VM fits on no host", "vm 'worker'", "line 6"]),
        (
            'kind = "operator", id = "filter", instructions = 5e6',
            WINDOW,
            ["'filter'", "line 14", "of 10 s is no multiple of its advance of 3 s"],
        ),
        (
            '"discard"',
            '"discrad"',
            ["line 4", "the overflow of Scenario is 'accumulate' or 'discard'", "accumulate"],
        ),
    ],
)
def test_what_is_wrong_is_shown_with_file_and_line(
    scenario: Path, written: str, instead: str, said: list[str]
) -> None:
    assert written in SCENARIO
    scenario.write_text(SCENARIO.replace(written, instead, 1), encoding="utf-8")
    refused(scenario, said)


def test_a_cycle_is_shown_with_its_vertices(scenario: Path) -> None:
    cyclic = SCENARIO.replace('target = "pager", selectivity = 0.05 },', CYCLE)
    cyclic = cyclic.replace('{ kind = "consumer", id = "pager" }', AGAIN)
    scenario.write_text(cyclic, encoding="utf-8")
    refused(scenario, ["the vertices form a cycle", "again -> filter", "filter -> again", "line 2"])


def refused(scenario: Path, said: list[str]) -> None:
    """Every command refuses the file with exit code 2, says why, and writes nothing."""
    page = scenario.with_name("page.html")
    for command in (("run",), ("plan", "--rate", 10, "--p99", "1 s")):
        done = outpace(*command, scenario, "--html", page)
        assert done.exit_code == 2
        assert not done.stdout
        for words in ("alarms.toml", *said):
            assert words in done.stderr
    assert [path.name for path in scenario.parent.iterdir()] == ["alarms.toml"]


def test_a_run_that_fails_leaves_no_page(scenario: Path) -> None:
    page = scenario.with_name("page.html")
    done = outpace("plan", scenario, "--rate", -1, "--p99", "1 s", "--html", page)
    assert done.exit_code == 2
    assert not page.exists()


TWO_VMS = SCENARIO.replace("[[queries]]", '[[vms]]\nid = "other"\nmips = 1000\n\n[[queries]]')
BUSY = TWO_VMS.replace('id = "pager" }', 'id = "pager", instructions = 9e7 }')


@pytest.mark.parametrize(
    ("placement", "homes"),
    [
        (("first-fit",), {"worker"}),
        (("balanced",), {"worker", "other"}),
        (("network-aware",), {"worker"}),
        (("optimised", "--p99", "900 ms"), {"worker"}),
    ],
)
def test_vertices_are_placed_by_a_strategy(
    scenario: Path, placement: tuple[str, ...], homes: set[str]
) -> None:
    scenario.write_text(BUSY, encoding="utf-8")
    found = printed_json("run", scenario, "--placement", *placement)
    assert {row["vm"] for row in found["vertices"]} == homes
    # A machine that nothing runs on has no utilisation.
    used = [row["utilisation"] for row in found["vms"] if row["vm"] in homes]
    assert sum(used) == pytest.approx(0.95, rel=0.02)


@pytest.mark.parametrize(
    ("placement", "said"),
    [
        (("nearest",), "network-aware"),
        (("optimised",), "needs a latency to meet"),
        (("balanced", "--p99", "1 s"), "--placement optimised is to meet"),
        (("optimised", "--p99", "1 ms"), "no placement was found with a p99 of 0.001 s"),
        (("optimised", "--p99", "soon"), "--p99"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(
    scenario: Path, placement: tuple[str, ...], said: str
) -> None:
    scenario.write_text(BUSY, encoding="utf-8")
    done = outpace("run", scenario, "--placement", *placement)
    assert done.exit_code == 2
    assert said in done.stderr.replace("\n", "")


def test_a_file_that_is_not_there_and_an_engine_that_is_unknown(scenario: Path) -> None:
    missing = outpace("run", scenario.with_name("no.toml"))
    assert missing.exit_code == 2
    assert "no.toml" in missing.stderr
    unknown = outpace("run", scenario, "--engine", "steam")
    assert unknown.exit_code == 2
    assert "steam" in unknown.stderr
    assert "twin" in unknown.stderr


def test_engines_give_the_same_numbers(scenario: Path) -> None:
    auto = printed_json("run", scenario)
    assert auto == printed_json("run", scenario, "--engine", "fast")
    assert auto == printed_json("run", scenario, "--engine", "twin")


def test_a_terminal_shows_that_it_works(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # to the console this is a terminal
    assert "simulating 30 s" in outpace("run", scenario).stderr
    planned = outpace("plan", scenario, "--rate", 100, "--p99", "2 s")
    assert "simulating rates and numbers of instances" in planned.stderr


def test_plan_answers_in_a_table_and_a_sentence(scenario: Path, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    done = outpace("plan", scenario, "--rate", 550, "--p99", "500 ms", "--html", page)
    assert done.exit_code == 0, done.output
    answer = "550 events/s with a p99 of 500 ms need 3 instances (3 VMs, 3 cores)"
    assert answer in done.stdout
    assert "(the knee)" in done.stdout
    text = page.read_text(encoding="utf-8")
    assert answer in text
    assert "knee of 3" in text
    assert not re.search(r'<(script|link)[^>]+(src|href)="http', text)


def test_plan_prints_an_object_with_all_that_was_simulated(scenario: Path) -> None:
    found = printed_json("plan", scenario, "--rate", 150, "--p99", "2 s")
    assert found["instances"] == 1
    assert found["knee"] == pytest.approx(200, rel=0.03)
    assert found["target"] == {"seconds": 2.0, "percentile": 99.0}
    assert [load["instances"] for load in found["choices"]] == [1, 2]
    assert found["choices"][0]["meets_target"] is True
    assert "needs 1 instance (1 VM, 1 core)" in found["answer"]


def test_a_plan_is_what_arithmetic_says(scenario: Path) -> None:
    # 1000 instructions an event on 1000 MIPS are a million events a second.
    cheap = SCENARIO.replace("instructions = 5e6", "instructions = 1000")
    scenario.write_text(cheap.replace("queue = 2048", "").replace("discard", "accumulate"))
    found = printed_json("plan", scenario, "--rate", 3_500_000, "--p99", "200 ms")
    assert found["knee"] == pytest.approx(1_000_000, rel=0.02)
    assert found["instances"] == 4
    meets = [(load["instances"], load["meets_target"]) for load in found["choices"]]
    assert meets == [(1, False), (2, False), (3, False), (4, True), (5, True)]
    needed = found["choices"][3]
    assert needed["utilisation"] == pytest.approx(3.5 / 4)
    assert needed["throughput"] == pytest.approx(3_500_000, rel=0.01)
    # Overloaded, an instance does what it can.
    assert found["choices"][0]["throughput"] == pytest.approx(1_000_000, rel=0.01)


def test_a_plan_that_no_number_of_instances_meets_says_so(scenario: Path) -> None:
    done = outpace("plan", scenario, "--rate", 150, "--p99", "1 ms")
    assert done.exit_code == 1
    assert "No number of instances gives 150 events/s with a p99 of 1 ms" in done.stdout


@pytest.mark.parametrize(
    ("rate", "p99", "said"),
    [
        ("100", "soon", "--p99"),
        ("-5", "1 s", "rate to plan for"),
        ("100", "0 s", "latency to meet"),
    ],
)
def test_a_plan_for_nonsense_is_refused(scenario: Path, rate: str, p99: str, said: str) -> None:
    done = outpace("plan", scenario, "--rate", rate, "--p99", p99)
    assert done.exit_code == 2
    assert said in done.stderr


def test_the_plot_of_a_plan_has_a_curve_for_each_number_of_instances_and_marks_knees(
    scenario: Path,
) -> None:
    found = plan(read_scenario(scenario), 500, LatencyTarget(0.5))
    plot = plan_plot(found)
    assert [curve.name for curve in plot.data] == ["1 instance", "3 instances", "4 instances"]
    lines = [shape.x0 for shape in plot.layout.shapes]
    for count in (1, 3, 4):
        assert pytest.approx(count * found.knee) in lines
    assert 500 in lines
    texts = [note.text for note in plot.layout.annotations]
    [target] = [note for note in plot.layout.annotations if note.text == "target"]
    assert target.y == pytest.approx(math.log10(500)), "on a logarithmic axis"
    assert {"knee of 1", "knee of 3", "knee of 4", "target", "asked for"} == set(texts)


CATALOGUE = """\
currency = "EUR"
[[machines]]
name = "small"
mips = 1000
price = 0.5
failures_per_hour = 0.1
repair = "6 min"
[[machines]]
name = "large"
mips = 4000
price = 1.8
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    path = tmp_path / "machines.toml"
    path.write_text(CATALOGUE, encoding="utf-8")
    return path


def test_a_plan_in_money_says_machines_and_price(scenario: Path, catalogue: Path) -> None:
    page = scenario.with_name("mix.html")
    options = ("--rate", 1000, "--p99", "2 s", "--catalogue", catalogue)
    done = outpace("plan", scenario, *options, "--html", page)
    assert done.exit_code == 0, done.output
    assert "1 × small and 1 × large, for 2.3 EUR an hour" in done.stdout.replace("\n", " ")
    text = page.read_text(encoding="utf-8")
    assert "Frontier" in text
    assert "1 × small and 1 × large" in text
    assert 'src="http' not in text
    found = printed_json("plan", scenario, *options, "--availability", 99.99)
    assert found["best"]["availability"] >= 0.9999
    assert found["best"]["price"] > 2.3
    assert {one["machine"] for one in found["types"]} == {"small", "large"}


def test_a_plan_in_money_that_cannot_be_met_ends_with_1(scenario: Path, catalogue: Path) -> None:
    done = outpace("plan", scenario, "--rate", 1000, "--p99", "1 us", "--catalogue", catalogue)
    assert done.exit_code == 1
    assert "No machines of the catalogue give 1,000 events/s" in done.stdout


def test_what_if_is_a_table_and_a_heat_map(scenario: Path, catalogue: Path) -> None:
    page = scenario.with_name("map.html")
    options = ("--rates", "100,300", "--instances", "1,2", "--catalogue", catalogue)
    done = outpace("what-if", scenario, *options, "--html", page, "--p99", "1 s")
    assert done.exit_code == 0, done.output
    assert "large" in done.stdout
    text = page.read_text(encoding="utf-8")
    assert text.count('"heatmap"') >= 2
    rows = printed_json("what-if", scenario, *options)["rows"]
    assert len(rows) == 8
    assert [row["keeps_up"] for row in rows] == [True, False] + 6 * [True]
    own = printed_json("what-if", scenario, "--rates", 100)["rows"]
    assert [(row["machine"], row["keeps_up"]) for row in own] == [("", True)]


def test_two_scenarios_are_compared_side_by_side(scenario: Path) -> None:
    other = scenario.with_name("twice.toml")
    other.write_text(SCENARIO.replace("mips = 1000", "mips = 2000"), encoding="utf-8")
    page = scenario.with_name("compared.html")
    done = outpace("compare", scenario, other, "--html", page)
    assert done.exit_code == 0, done.output
    assert "−50 %" in done.stdout.replace("-50 %", "−50 %")
    assert "twice.toml" in page.read_text(encoding="utf-8")
    found = printed_json("compare", scenario, other)
    whole = {row["quantity"]: row for row in found["whole"]}
    used = whole["utilisation"]
    assert used["second"]["mean"] == pytest.approx(used["first"]["mean"] / 2, rel=1e-6)
    assert used["difference"]["mean"] == pytest.approx(-used["second"]["mean"], rel=1e-6)
    assert [row["query"] for row in found["queries"]] == 4 * ["alarms"]


def test_seeds_give_means_with_intervals(scenario: Path) -> None:
    done = outpace("run", scenario, "--seeds", 3)
    assert done.exit_code == 2
    assert "nothing in the scenario is random" in done.output
    text = SCENARIO.replace('"uniform", rate = 100', '"poisson", rate = 100, seed = 1')
    scenario.write_text(text, encoding="utf-8")
    rows = {row["quantity"]: row for row in printed_json("run", scenario, "--seeds", 3)["seeds"]}
    assert rows["throughput"]["mean"] == pytest.approx(100, rel=0.1)
    assert rows["throughput"]["half"] > 0
    same = printed_json("compare", scenario, scenario, "--seeds", 3)["whole"]
    # The same seeds on both sides, so that what differs is what was changed.
    assert all(not row["difference"]["mean"] for row in same)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("what-if", "{}", "--rates", "x"), "not a list of numbers"),
        (("what-if", "{}", "--rates", "-1"), "not numbers above 0"),
        (
            ("what-if", "{}", "--rates", "1", "--machines", "small"),
            "there are no types of machines",
        ),
        (("plan", "{}", "--rate", "1", "--p99", "1 s", "--availability", "101"), "no types"),
        (("compare", "{}", "none.toml"), "cannot be read"),
    ],
)
def test_what_is_wrong_with_such_options_ends_with_2(
    scenario: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = outpace(*(argument.format(scenario) for argument in arguments))
    assert done.exit_code == 2
    assert said in done.output
