"""A scenario made from a query: the parts of its operator, and what comes out of them."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import outpace as op
from outpace.errors import BindError, ScenarioError
from outpace.simulate import from_query, parse_scenario, plan, scenario_text, simulate
from outpace.simulate.plan_target import LatencyTarget

ROWS = 3_000
DATA = pa.table({"ts": range(ROWS), "x": [number % 7 for number in range(ROWS)]})
RISE = op.Query("rise").order_by("ts").pattern("A B").define(B="x > A.x").measures(x="B.x")


def vertices_of(query: op.Query, data: pa.Table = DATA) -> list[str]:
    scenario = from_query(query, data, seconds=0.01)
    return [vertex.id for vertex in scenario.queries[0].vertices]


def test_there_is_a_vertex_for_each_part_that_explain_does_not_leave_out() -> None:
    def left_out(query: op.Query) -> str:
        text = str(query.explain(DATA.schema))
        return text.partition("left out: ")[2].partition("\n")[0]

    assert {"reorderer", "splitter", "merger"} <= set(left_out(RISE).replace(",", "").split())
    assert vertices_of(RISE) == ["events", "match", "matches"]
    windowed = RISE.over(op.windows.count(50))
    assert vertices_of(windowed) == ["events", "splitter", "match", "merger", "matches"]
    late = windowed.disorder(op.KSlack(10))
    assert vertices_of(late)[1] == "reorderer"
    assert "reorderer" in vertices_of(RISE.disorder(op.KSlack(10)))


def test_what_comes_out_is_what_the_query_finds() -> None:
    scenario = from_query(RISE, DATA, seconds=0.01)
    (*_, last) = scenario.queries[0].edges
    assert last.selectivity == pytest.approx(len(op.match(DATA, RISE)) / ROWS, abs=2 / ROWS)
    assert all(vertex.instructions > 0 for vertex in scenario.queries[0].vertices[1:-1])
    assert simulate(scenario).vms()["utilisation"][0].as_py() == pytest.approx(0.5, rel=0.05)
    rated = from_query(RISE, DATA, rate=123, seconds=0.01)
    assert simulate(rated).throughput("matches") == pytest.approx(123, rel=0.05)


def test_events_out_of_order_are_sorted_unless_the_query_says_how_they_come() -> None:
    mixed = DATA.take(random.Random(3).sample(range(ROWS), ROWS))
    scenario = from_query(RISE, mixed, seconds=0.01)
    found = scenario.queries[0].edges[-1].selectivity
    assert found == pytest.approx(len(op.match(DATA, RISE)) / ROWS, abs=2 / ROWS)


def test_what_is_made_can_be_written_and_planned_with() -> None:
    scenario = from_query(RISE, DATA, rate=1000, seconds=0.01)
    assert parse_scenario(scenario_text(scenario)) == scenario
    found = plan(scenario, 1000, LatencyTarget(1.0))
    assert found.instances == 1


def test_overlapping_windows_let_the_matcher_see_events_again() -> None:
    sliding = RISE.over(op.windows.count(100, slide=20))
    scenario = from_query(sliding, DATA, seconds=0.01)
    ids = [vertex.id for vertex in scenario.queries[0].vertices]
    assert ids == ["events", "splitter", "match", "merger", "matches"]
    selectivities = {(e.source, e.target): e.selectivity for e in scenario.queries[0].edges}
    assert selectivities["splitter", "match"] >= 0.9
    assert scenario.vertices()["match"].state_bytes > 0


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ScenarioError, match="no events"):
        from_query(RISE, DATA.slice(0, 0))
    with pytest.raises(ScenarioError, match="found nothing in 3,000 events"):
        from_query(RISE.define(B="x > 100"), DATA, seconds=0.01)
    for wrong in ({"piece": 0}, {"rate": -1}, {"mips": 0}, {"seconds": "long"}):
        with pytest.raises(ScenarioError):
            from_query(RISE, DATA, **wrong)
    with pytest.raises(BindError):
        from_query(RISE, pa.table({"ts": [1]}))
