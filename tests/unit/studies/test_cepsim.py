"""The study `cepsim`: what the paper's text says of its experiments is true of ours."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outpace.cli.main import app
from outpace.errors import OutpaceError
from outpace.simulate import simulate
from outpace.studies import cepsim_figures as figures
from outpace.studies import cepsim_validation
from outpace.studies.cepsim import (
    QUICK,
    WHOLE,
    cepsim_study,
    cost_of,
    many_vms,
    one_vm,
    strategies,
    ticks,
)
from outpace.studies.cepsim_queries import QUEUE, average_query, convert_query
from outpace.studies.page import page_of
from outpace.studies.report import Figure, PlotKind, Row

SECONDS = 90.0


def values(rows: list[Row]) -> dict[tuple[str, str], float]:
    found = {(row.figure, row.setting): row.value for row in rows}
    assert len(found) == len(rows), "a setting tells its row from all others"
    assert all(value >= 0 for value in found.values())
    return found


def test_q1_comes_to_the_papers_highest_throughput() -> None:
    rows = list(
        cepsim_validation.by_rate(
            average_query,
            (100, 20_000, 22_500, 25_000),
            SECONDS,
            figures.Q1_LATENCY,
            figures.Q1_THROUGHPUT,
        )
    )
    found = values(rows)
    assert found["11b", "20,000 events/s"] == pytest.approx(20_000, rel=0.01)
    assert found["11b", "the highest of all"] == pytest.approx(21_000, rel=0.03)
    assert found["11b", "22,500 events/s"] < 21_500
    assert found["11b", "25,000 events/s"] < found["11b", "22,500 events/s"]
    assert found["11a", "100 events/s"] < found["11a", "20,000 events/s"]
    # Beside our numbers stand numbers alone, and of rates the text has none.
    assert [row.paper for row in rows if row.figure == "11b"] == [None] * 4 + [21_000.0]


def test_q2_spans_orders_of_magnitude_up_to_the_papers_highest_throughput() -> None:
    found = values(
        list(
            cepsim_validation.by_rate(
                convert_query, (10, 22_500), 30.0, figures.Q2_LATENCY, figures.Q2_THROUGHPUT
            )
        )
    )
    assert found["12b", "the highest of all"] == pytest.approx(21_000, rel=0.05)
    assert found["12a", "22,500 events/s"] > 1000 * found["12a", "10 events/s"]


def test_two_vms_come_to_what_the_queues_let_through_and_the_latency_levels_off() -> None:
    found = values(list(cepsim_validation.networked((20_000, 22_500, 27_500), SECONDS)))
    assert found["13b", "20,000 events/s"] == pytest.approx(20_000, rel=0.01)
    for rate in ("22,500", "27,500"):
        assert found["13b", f"{rate} events/s"] == pytest.approx(21_500, rel=0.04)
    levels = [found["13a", f"{rate} events/s"] for rate in ("22,500", "27,500")]
    assert levels[1] == pytest.approx(levels[0], rel=0.02)


def test_no_queue_of_q1_is_longer_than_its_bound_in_overload() -> None:
    scenario = replace(cepsim_validation.on_one_vm(average_query(2500), SECONDS), sample=1.0)
    # A tick brings 2500 to the producer; the window keeps at most all of its results.
    most = {"spout": 2500, "average": QUEUE + 2500}
    for row in simulate(scenario).vertices().to_pylist():
        assert row["queue_max"] <= most.get(row["vertex"], QUEUE) * (1 + 1e-9)


def test_all_placements_come_to_the_papers_throughput() -> None:
    rows = list(cepsim_validation.placements(SECONDS))
    found = values(rows)
    for number in (1, 2, 3, 4):
        throughput = found["Table 4", f"placement {number}, throughput of a query"]
        assert throughput == pytest.approx(10_000, rel=0.01)
    assert [row.paper for row in rows if row.unit == "events/s"] == [10_000.0] * 4


def test_the_order_of_placements_is_the_papers() -> None:
    found = values(list(cepsim_validation.placements(SECONDS)))
    latency = {n: found["Table 4", f"placement {n}, latency"] for n in (1, 2, 3, 4)}
    # Two queries on a VM are hardly slower than one.
    assert latency[4] < latency[2] < 1.05 * latency[4]
    assert 1.1 * latency[2] < latency[3] < latency[1]


def test_all_placements_have_the_same_machines() -> None:
    for number, used in ((1, 0.8), (2, 0.4), (4, 0.2)):
        scenario = cepsim_validation.placed_copies(number, SECONDS)
        assert {(vm.mips, vm.processors) for vm in scenario.vms} == {(2400, 2)}
        utilisation = simulate(scenario).vms()["utilisation"].to_pylist()
        assert utilisation == pytest.approx([used] * len(scenario.vms), rel=0.03)


def test_simple_scheduling_loses_throughput_and_weighted_allocation_more() -> None:
    found = values(list(strategies((10_000,), SECONDS)))
    throughput = [
        found["16b", f"{name}, 10,000 events/s"]
        for name in ("simple, weighted", "simple, uniform", "dynamic, uniform")
    ]
    assert throughput == sorted(throughput)
    assert throughput[1] < 9_000
    assert throughput[2] == pytest.approx(10_000, rel=0.01)
    dynamic = [
        found["16a", f"dynamic, {name}, 10,000 events/s"] for name in ("weighted", "uniform")
    ]
    assert dynamic[0] < dynamic[1]


def test_latencies_by_tick_are_those_of_the_papers_table() -> None:
    rows = list(ticks((0.01, 0.1), 1, 150.0))
    latencies = [row for row in rows if row.figure == "Table 5"]
    assert len(latencies) == 4
    for row in latencies:
        assert row.value == pytest.approx(row.paper, rel=0.01)
    assert [row.paper for row in rows if row.figure == "Table 5, time"] == [None] * 4


def test_a_longer_tick_is_less_exact_above_all_with_a_network() -> None:
    rows = list(ticks((0.1, 1.0), 1, 60.0))
    found = values(rows)
    errors = [
        found["Table 5", f"{kind}, ticks of 1000 ms"] - found["Table 5", f"{kind}, ticks of 100 ms"]
        for kind in ("one VM", "two VMs")
    ]
    assert 0 < errors[0] < errors[1]
    assert {row.figure for row in rows} == {"Table 5", "Table 5, time"}


def test_times_are_compared_where_they_are_of_the_same_size() -> None:
    times = [row for row in ticks((1.0,), 100, 300.0) if row.figure == "Table 5, time"]
    assert [row.paper for row in times] == [2.81164, 3.1069]


def test_scale_is_measured_in_a_process_of_its_own() -> None:
    rows = [*one_vm((1, 100), repeat=1), *many_vms(2, (2,), repeat=1)]
    found = values(rows)
    assert found["14a", "1 queries"] < found["14a", "100 queries"]
    assert ("15b", "4 queries, 2 on each VM") in found
    said = {(row.figure, row.setting): row.paper for row in rows if row.paper is not None}
    assert said == {("14a", "100 queries"): 7.0, ("14b", "100 queries"): 40.0}


def test_a_process_that_fails_says_why() -> None:
    with pytest.raises(OutpaceError, match="failed") as caught:
        cost_of(0, 1, repeat=1)
    assert "no queries" in str(caught.value.detail)


def test_the_whole_study_has_the_settings_of_which_the_paper_gives_numbers() -> None:
    assert 100 in WHOLE.queries
    assert {10 * WHOLE.vms_of_10[-1], 100 * WHOLE.vms_of_100[-1]} == {10_000}
    assert (WHOLE.tick_queries, WHOLE.tick_seconds) == (100, 300.0)
    assert {100, 500, 10_000} == set(WHOLE.strategy_rates)
    assert len(cepsim_study(QUICK).experiments) == 8


def test_a_table_of_the_paper_is_called_so_and_axes_may_be_logarithmic() -> None:
    table = Figure(
        "Table 4", "a table", "x", "latency", "ms", PlotKind.STEPS, "slow", "fast", log=True
    )
    row = Row("Table 4", "one", 2.0, "ms", 1.0, "here", 1)
    study = cepsim_study(QUICK)
    page = page_of(type(study)("s", "S", "P", (table,), ()), [row], "here")
    assert "<h2>Table 4: a table</h2>" in page
    assert '"type":"log"' in page


@pytest.mark.soak
def test_the_quick_study_has_rows_for_every_figure(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["study", "cepsim", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "cepsim.json").read_text(encoding="utf-8"))
    assert {row["figure"] for row in rows} == {figure.name for figure in figures.FIGURES}
    assert all(set(row) == {"figure", "setting", "value", "unit", "paper"} for row in rows)
    assert all(row["paper"] is None or row["paper"] for row in rows)
    assert len([row for row in rows if isinstance(row["paper"], float)]) > 12
    settings = [(row["figure"], row["setting"]) for row in rows]
    assert len(set(settings)) == len(settings), "a setting tells its row from all others"
    page = (tmp_path / "cepsim.html").read_text(encoding="utf-8")
    for figure in figures.FIGURES:
        assert f'id="figure-{figure.name}"' in page
