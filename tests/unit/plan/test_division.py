"""How windows are divided on Spark, and what the plan says of it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from support.window_queries import KINDS, PATTERNS, pattern

from outpace.explanation.explain import explain
from outpace.pattern.operator import EventOperator
from outpace.pattern.query import Query
from outpace.pattern.schedulers import Batches, RoundRobin
from outpace.pattern.windows import CountWindows, TimeWindows
from outpace.plan.division import (
    BATCH_FACTOR,
    BATCH_ROWS,
    DISJOINT_WINDOWS,
    LARGE_BATCH_ROWS,
    Cut,
)
from outpace.plan.row_plan import plan_query

SCHEMA = pa.schema(
    [("ts", pa.int64()), ("id", pa.int64()), ("kind", pa.string()), ("key", pa.int64())]
)


class Nothing(EventOperator):
    """Gives nothing."""

    output = pa.schema([("x", pa.int64())])

    def on_event(self, event: dict[str, object]) -> list[dict[str, object]]:
        return []


@pytest.mark.parametrize("kind", KINDS)
def test_the_division_of_each_kind(kind: str) -> None:
    query = PATTERNS["next"].over(KINDS[kind])
    timed = kind.startswith("time")
    whole = Cut.TIME if timed else Cut.SPLIT
    assert plan_query(query, SCHEMA).division.cut is whole
    keyed = query.partition_by("key")
    plan = plan_query(keyed, SCHEMA)
    assert plan.division.cut is (Cut.TIME if timed else Cut.KEY)
    assert not plan.keys_together
    numbered = plan_query(keyed.over(KINDS[kind], numbered=True), SCHEMA)
    assert numbered.division.cut is (Cut.TIME if timed else Cut.NUMBERED)
    assert numbered.keys_together
    said = (
        "all keys together: numbers count" if timed else "has numbered the events of all keys: key"
    )
    assert said in "\n".join(numbered.lines())


@pytest.mark.parametrize("name", ["numbered matches", "looks around", "rows"])
def test_keys_are_divided_though_a_match_looks_different_in_other_windows(name: str) -> None:
    query = PATTERNS[name].partition_by("key")
    assert plan_query(query.over(CountWindows(4, 2)), SCHEMA).division.cut is Cut.KEY
    assert not plan_query(query.over(TimeWindows(4, 2)), SCHEMA).keys_together


def test_batches_are_long_beside_what_overlaps_them() -> None:
    query = PATTERNS["next"]
    sliding = plan_query(query.over(TimeWindows(10, 2)), SCHEMA).division.batches
    assert sliding is not None
    assert (sliding.count, sliding.margin) == (BATCH_FACTOR * 4, 4)
    tumbling = plan_query(query.over(TimeWindows(10, 10)), SCHEMA).division.batches
    assert tumbling is not None
    assert (tumbling.count, tumbling.margin, tumbling.duplication) == (DISJOINT_WINDOWS, 0, 1.0)
    chosen = query.over(TimeWindows(10, 2), duplicates=True).instances(2, Batches(7))
    batches = plan_query(chosen, SCHEMA).division.batches
    assert batches is not None
    # The formula of the paper's schedulers: 1 + (size - slide) / (batch * slide).
    assert batches.duplication == 1 + (10 - 2) / (7 * 2)
    assert plan_query(query.over(CountWindows(5, 1)), SCHEMA).division.batch_rows == BATCH_ROWS
    large = plan_query(query.over(CountWindows(1_000_000, 10)), SCHEMA)
    assert large.division.batch_rows == BATCH_FACTOR * 999_990
    larger = plan_query(query.over(CountWindows(10_000_000, 10)), SCHEMA)
    assert larger.division.batch_rows == LARGE_BATCH_ROWS
    assert plan_query(chosen.over(CountWindows(5, 1)), SCHEMA).division.batch_windows == 7


def test_instances_are_tasks() -> None:
    query = PATTERNS["next"].over(CountWindows(5, 2))
    assert plan_query(query, SCHEMA).division.tasks is None
    plan = plan_query(query.instances(6, RoundRobin()), SCHEMA)
    assert plan.division.tasks == 6
    text = explain(query.instances(6, RoundRobin()), plan).text
    assert "tasks that match: 6" in text
    # What the host says of instances and of merging is not said a second time, otherwise.
    assert "splitter: over(op.windows.count(5, slide=2))" in text
    assert "RoundRobin" not in text
    assert "merger" not in text


def test_rows_stay_behind_only_where_no_window_and_no_number_counts_them() -> None:
    query = PATTERNS["next"]
    time = TimeWindows(10, 2)
    assert plan_query(query.over(time), SCHEMA).crossing.used_sql is not None
    for other in (
        query.over(time, numbered=True),
        query.over(CountWindows(5, 1)),
        query.over(KINDS["session"]),
        PATTERNS["numbered matches"].over(time),
        pattern("A B").over(time),
    ):
        assert plan_query(other, SCHEMA).crossing.used_sql is None


def test_columns_that_open_and_close_windows_cross() -> None:
    query = PATTERNS["next"].over(KINDS["between"])
    assert plan_query(query, SCHEMA).crossing.columns == ("ts", "id", "kind")
    assert plan_query(query.over(KINDS["count"]), SCHEMA).crossing.columns == ("ts", "id")


def test_operators_are_divided_like_patterns() -> None:
    query = Query("q").order_by("ts").apply(Nothing)
    alone = plan_query(query, SCHEMA)
    assert (alone.division.cut, alone.crossing.columns) == (Cut.NONE, tuple(SCHEMA.names))
    assert "divided not at all: one operator takes all events" in "\n".join(alone.lines())
    assert plan_query(query.partition_by("key"), SCHEMA).division.cut is Cut.KEY
    windowed = plan_query(query.over(CountWindows(5, 1)), SCHEMA)
    # Every window gives rows of its own, so there are no duplicates.
    assert (windowed.division.cut, windowed.division.neighbours) == (Cut.SPLIT, False)
