"""A DataFrame gives what the same table gives in process, keyed and cut by time range."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import outpace as op
from outpace.plan.batch import Cut, plan_batch

SIZE = 4000


def events() -> pa.Table:
    rng = np.random.default_rng(5)
    seconds = np.sort(rng.integers(0, SIZE // 3, SIZE))
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return pa.table(
        {
            "ts": pa.array(seconds),
            "at": pa.array([start + datetime.timedelta(seconds=int(s)) for s in seconds]),
            "id": pa.array(np.arange(SIZE)),
            "kind": pa.array(rng.choice(list("abcde"), SIZE)),
            "key": pa.array(rng.integers(0, 7, SIZE)),
            "v": pa.array(rng.random(SIZE), mask=rng.random(SIZE) < 0.1),
        }
    )


BASE = (
    op.Query("q")
    .order_by("ts", "id")
    .define(A="kind = 'a'", B="kind = 'b'", C="kind = 'c' AND v > A.v")
    .measures(first="FIRST(id)", last="LAST(id)", n="COUNT(*)", v="AVG(v)")
    .within(20)
)

QUERIES = {
    "next, past last": BASE.pattern("A -> B -> C").skip_past_last_row(),
    "next, every start": BASE.pattern("A -> B -> C").no_skip(),
    "next, to last B": BASE.pattern("A -> B -> C").skip_to_last("B"),
    "strict": BASE.pattern("A B C").skip_past_last_row(),
    "loop": BASE.pattern("A -> B+ -> C").skip_past_last_row(),
    "absence": BASE.pattern("A -> !B -> C").no_skip(),
    "any": BASE.pattern("A ->> B -> C").no_skip(),
}


def rows(result: list[dict[str, object]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in result)


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
@pytest.mark.parametrize("name", QUERIES)
def test_spark_gives_what_in_process_gives(spark: SparkSession, name: str, keyed: bool) -> None:
    query = QUERIES[name].partition_by("key") if keyed else QUERIES[name]
    table = events()
    assert plan_batch(query, table.schema).cut is (Cut.KEY if keyed else Cut.RANGE)
    found = op.match(spark.createDataFrame(table), query)
    expected = op.match(table, query)
    assert expected.num_rows > 5
    assert found.columns == expected.column_names
    assert rows([row.asDict() for row in found.collect()]) == rows(expected.to_pylist())


def test_time_ranges_of_timestamps(spark: SparkSession) -> None:
    query = QUERIES["next, past last"].order_by("at", "id").within("20 s")
    table = events()
    found = [row.asDict() for row in op.match(spark.createDataFrame(table), query).collect()]
    assert rows(found) == rows(op.match(table, query).to_pylist())


def test_only_bits_and_used_columns_cross(spark: SparkSession, tmp_path: Path) -> None:
    query = (
        op.Query("q")
        .order_by("id")
        .within(20)
        .pattern("A -> B")
        .define(A="kind = 'a'", B="kind = 'b' AND key > 3")
        .measures(first="FIRST(id)")
    )
    pq.write_table(events(), tmp_path / "events.parquet")
    frame = spark.read.parquet(str(tmp_path))
    plan = plan_batch(query, events().schema)
    assert plan.columns == ("id",)
    assert [name for name, _ in plan.bits] == ["A", "B"]
    found = op.match(frame, query)
    physical = found._jdf.queryExecution().executedPlan().toString()  # type: ignore[union-attr]
    steps = [line for line in physical.splitlines() if line.strip()]
    crossing = max(i for i, line in enumerate(steps) if "MapInArrow" in line)
    shuffle = next(i for i, line in enumerate(steps) if i > crossing and "Exchange" in line)
    dropped = next(i for i, line in enumerate(steps) if i > shuffle and "Filter" in line)
    # Unused rows are dropped before the shuffle; what is shuffled is the time and the bits.
    assert all("kind" not in line and " key#" not in line for line in steps[: shuffle + 1])
    assert dropped > shuffle
    assert "hashpartitioning(__outpace_range" in steps[shuffle]
    assert "ReadSchema: struct<id:bigint,kind:string,key:bigint>" in physical
    assert rows([r.asDict() for r in found.collect()]) == rows(
        op.match(events(), query).to_pylist()
    )


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (BASE.pattern("A B").define(C="true").no_skip(), None),
        (op.Query("q").order_by("ts").pattern("A B").measures(n="COUNT(*)"), "no WITHIN"),
        (BASE.pattern("A B C").measures(n="MATCH_NUMBER()"), "numbered"),
        (BASE.pattern("A B C").measures(p="PREV(A.v)"), "PREV or NEXT"),
        (BASE.pattern("A B C").limit(3), "limit"),
    ],
)
def test_what_cannot_be_cut_says_why(
    spark: SparkSession, query: op.Query, reason: str | None
) -> None:
    if reason is None:
        with pytest.raises(op.BindError, match="variable 'C' is not in the pattern"):
            plan_batch(query, events().schema)
        return
    plan = plan_batch(query, events().schema)
    assert plan.cut is Cut.NONE
    assert reason in plan.reason
    found = op.match(spark.createDataFrame(events()), query)
    assert found.rdd.getNumPartitions() == 1
    assert found.count() == op.match(events(), query).num_rows


def test_not_a_number_fits_no_comparison(spark: SparkSession) -> None:
    """Spark itself takes NaN for the largest number, so such predicates are not left to it."""
    table = pa.table({"ts": [1, 2, 3], "v": [1.0, float("nan"), 9.0]})
    query = (
        op.Query("q").order_by("ts").within(5).pattern("A").define(A="v > 5.0").measures(at="A.ts")
    )
    assert plan_batch(query, table.schema).bits == ()
    found = [row.asDict() for row in op.match(spark.createDataFrame(table), query).collect()]
    assert found == op.match(table, query).to_pylist() == [{"at": 3}]


def test_nothing_runs_before_the_result_is_used(spark: SparkSession) -> None:
    boom = spark.range(10).selectExpr("id AS ts", "raise_error('ran') AS kind")
    op.match(boom, op.Query("q").order_by("ts").pattern("A").measures(n="COUNT(*)"))
