"""A DataFrame gives what the same table gives in process, however its rows are divided."""

from __future__ import annotations

import datetime
import math
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import outpace as op
from outpace.plan.crossing import catalyst_text
from outpace.plan.division import Cut
from outpace.plan.row_plan import plan_query

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
            "name": pa.array(rng.choice(["x", "y", None], SIZE)),
            "level": pa.array(rng.choice([math.nan, 0.0, -0.0, 1.5, None], SIZE), pa.float64()),
            "v": pa.array(rng.random(SIZE), mask=rng.random(SIZE) < 0.1),
        }
    )


BASE = (
    op.Query("q")
    .order_by("ts", "id")
    .define(A="kind = 'a'", B="kind = 'b'", C="kind = 'c' AND v > A.v")
    .measures(first="FIRST(id)", last="LAST(id)", n="COUNT(*)", mean="AVG(v)")
    .within(12)
)

QUERIES = {
    "next, past last": BASE.pattern("A -> B -> C").skip_past_last_row(),
    "next, every start": BASE.pattern("A -> B -> C").no_skip(),
    "next, to last B": BASE.pattern("A -> B -> C").skip_to_last("B"),
    "strict": BASE.pattern("A B C").skip_past_last_row(),
    "loop": BASE.pattern("A -> B+ -> C").skip_past_last_row(),
    "absence": BASE.pattern("A -> !B -> C").no_skip(),
    "any": BASE.pattern("A ->> B -> C").no_skip(),
    "any order": BASE.pattern("A -> PERMUTE(B, C)").no_skip(),
    "timestamps": BASE.order_by("at", "id").within("12 s").pattern("A -> B -> C"),
    "ties": BASE.order_by("ts").pattern("A -> B -> C"),
    "more than a byte of bits": (
        op.Query("q")
        .order_by("ts", "id")
        .pattern("A -> (B | C | D | E | F | G | H | I)")
        .define({name: f"kind = 'b' AND key = {key}" for key, name in enumerate("BCDEFGH")})
        .define(A="kind = 'a'", I="kind = 'e'")
        .measures(first="FIRST(id)", last="LAST(id)", n="COUNT(*)", mean="AVG(v)")
        .within(12)
    ),
}


def rows(result: pa.Table) -> list[str]:
    """Return the rows in one order; zero equals negative zero, so either may stand for a key."""
    return sorted(repr(row).replace("-0.0,", "0.0,") for row in result.to_pylist())


def union(frames: dict[str, DataFrame]) -> dict[str, pa.Table]:
    """Collect DataFrames of the same columns in one job."""
    labelled = [frame.withColumn("label", sf.lit(label)) for label, frame in frames.items()]
    found = reduce(DataFrame.unionByName, labelled).toArrow()
    return {
        label: found.filter(pc.field("label") == label).drop_columns("label") for label in frames
    }


@pytest.mark.parametrize("keys", [(), ("level", "name")], ids=str)
def test_spark_gives_what_in_process_gives(spark: SparkSession, keys: tuple[str, ...]) -> None:
    table = events()
    frame = spark.createDataFrame(table).coalesce(1)
    names = ("next, past last", "next, to last B", "any", "any order") if keys else tuple(QUERIES)
    queries = {name: QUERIES[name].partition_by(*keys) for name in names}
    divisions = {plan_query(query, table.schema).division.cut for query in queries.values()}
    assert divisions == {Cut.KEY_AND_RANGE if keys else Cut.RANGE}
    found = union({name: op.match(frame, query) for name, query in queries.items()})
    for name, query in queries.items():
        expected = op.match(table, query)
        assert expected.num_rows > 3, name
        assert rows(found[name]) == rows(expected), name


def test_rows_of_matches_and_queries_without_ranges(spark: SparkSession) -> None:
    table = events()
    frame = spark.createDataFrame(table)
    pattern = BASE.pattern("A -> B -> C").partition_by("key").measures(c="CLASSIFIER()")
    queries = {
        "by range": pattern.all_rows_per_match().skip_to_last("B"),
        "by key": pattern.all_rows_per_match().measures(m="MATCH_NUMBER()"),
        "one task": pattern.partition_by().all_rows_per_match().measures(m="MATCH_NUMBER()"),
        "no measures": replace(BASE, outputs=()).pattern("A -> B -> C"),
    }
    divisions = [plan_query(query, table.schema).division.cut for query in queries.values()]
    assert divisions == [Cut.KEY_AND_RANGE, Cut.KEY, Cut.NONE, Cut.NONE]
    for query in queries.values():
        found = op.match(frame, query)
        expected = op.match(table, query)
        assert found.columns == expected.column_names
        assert rows(found.toArrow()) == rows(expected)


def test_one_hot_key_is_matched_in_many_tasks(spark: SparkSession) -> None:
    table = events()
    hot = pa.array(np.where(np.arange(SIZE) % 10 == 0, np.arange(SIZE) % 7, 99))
    table = table.set_column(table.column_names.index("key"), "key", hot)
    query = BASE.pattern("A -> B -> C").partition_by("key").no_skip().within(2)
    adaptive = "spark.sql.adaptive.coalescePartitions.enabled"
    spark.conf.set(adaptive, "false")
    try:
        found = op.match(spark.createDataFrame(table), query).withColumn(
            "task", sf.spark_partition_id()
        )
        matches = found.toArrow()
    finally:
        spark.conf.unset(adaptive)
    hot_tasks = matches.filter(pc.field("key") == 99).column("task")
    assert len(hot_tasks.unique()) == 3
    assert rows(matches.drop_columns("task")) == rows(op.match(table, query))


def test_only_bits_and_used_columns_cross(spark: SparkSession, tmp_path: Path) -> None:
    query = (
        op.Query("q")
        .partition_by("key")
        .order_by("id")
        .within(20)
        .pattern("A -> B")
        .define(A="kind = 'a' AND v < 0.9", B="kind = 'b' AND v > 0.1 AND ts > A.ts")
        .measures(first="FIRST(id)")
    )
    pq.write_table(events(), tmp_path / "events.parquet")
    frame = spark.read.parquet(str(tmp_path))
    found = op.match(frame, query)
    # Only the classic class has `_jdf`.
    physical = found._jdf.queryExecution().executedPlan().toString()  # type: ignore[union-attr]
    steps = [line for line in physical.splitlines() if line.strip()]
    crossing = max(place for place, line in enumerate(steps) if "MapInArrow" in line)
    below = steps[crossing + 1 :]
    # Nothing moves before the first crossing: the project with the bits stands on the scan.
    assert not any("Exchange" in line or "Sort" in line for line in below)
    project = next(line for line in below if "Project" in line)
    assert "__outpace_bits_0" in project
    assert "isnan" in project
    assert project.split("CASE")[0].count("#") == 3  # ts, id and key cross as they are
    assert any("Filter" in line for line in below)
    assert "ReadSchema: struct<ts:bigint,id:bigint,kind:string,key:bigint,v:double>" in physical
    # What is shuffled are blocks.
    shuffles = [line for line in steps[:crossing] if "hashpartitioning" in line]
    assert any("hashpartitioning(bucket" in line and "range" in line for line in shuffles)
    assert rows(found.toArrow()) == rows(op.match(events(), query))
    assert "\n".join(query.explain(frame).text.split("\n\n")[5].splitlines()) == (
        "on Spark\n"
        "  computed by Catalyst: 2 conditions\n"
        "    A: ((`kind` = 'a') AND (`v` < 0.9D))\n"
        "    B: ((`kind` = 'b') AND (`v` > 0.1D AND NOT isnan(`v`)))\n"
        "  columns that cross to Python: ts, id, key, and 1 byte of bits\n"
        "  rows that cross: those that fit a condition above\n"
        "  divided by key and time range: key; ranges of 640, each with the next 20 as well\n"
        "  then: a task goes over the matches of each key and drops those that an earlier one rules"
        " out\n"
        "  ties: rows that are equal in id keep the DataFrame's order, which Spark may not fix"
    )


NUMBERS = [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.5, -2.5]
COMPARISONS = [f"x {sign} {y}" for sign in ("=", "<>", "<", "<=", ">", ">=") for y in ("y", "0.0")]
CONDITIONS = [
    *COMPARISONS,
    *(f"NOT ({comparison})" for comparison in COMPARISONS),
    "0 = x", "1.5 > x", "1.5 < x", "x BETWEEN 0 AND 1", "x NOT BETWEEN y AND 1", "x IN (0, 1.5)",
    "x NOT IN (0, 1.5)", "CASE WHEN x > y THEN y ELSE x END > 0", "coalesce(x, y) < 1",
    "x + y > 0", "x - y < 1", "-x >= y", "abs(x) > 1", "f > x", "f = 1.5", "i < x", "i > 2",
    "i IN (1, 3)", "i > -2147483648", "big >= -1", "t = -2",
    "t > -128", "i > d", "d = 1.50", "d <> i", "big > 9007199254740992.0",
    "s < 'b'",
    "s LIKE 'a%'", "s || 'z' = 'az'", "length(s) = 1", "x IS NULL OR s IS NULL", "b", "NOT b",
    "day > DATE '2026-01-01'", "s IN ('a', 'é')",
]  # fmt: skip


def numbers() -> pa.Table:
    """Every pair of floats, and some of each other type beside them."""
    pairs = [(x, y) for x in NUMBERS for y in NUMBERS]
    size = len(pairs)
    cycle = [
        ("f", [1.5, math.nan, None, -0.0], pa.float32()),
        ("i", [None, 1, 2, 3, -4], pa.int32()),
        ("t", [-128, -2, 5, None], pa.int8()),
        ("big", [None, 2**53, 2**53 + 1, -1], pa.int64()),
        ("s", ["a", "ab", "b", "é", "", None], pa.string()),
        ("b", [True, False, None], pa.bool_()),
        ("day", [datetime.date(2026, 1, 1), None, datetime.date(2027, 1, 1)], pa.date32()),
    ]
    return pa.table(
        {
            "id": pa.array(range(size)),
            "x": pa.array([x for x, _ in pairs], pa.float64()),
            "y": pa.array([y for _, y in pairs], pa.float64()),
            "d": pa.array([Decimal(n % 5) / 2 for n in range(size)], pa.decimal128(21, 2)),
            **{
                name: pa.array([some[n % len(some)] for n in range(size)], kind)
                for name, some, kind in cycle
            },
        }
    )


def test_conditions_mean_the_same_in_catalyst(spark: SparkSession) -> None:
    table = numbers()
    base = op.Query().order_by("id").pattern("A").measures(id="A.id").no_skip()
    columns = []
    for number, condition in enumerate(CONDITIONS):
        ((_, sql),) = plan_query(base.define(A=condition), table.schema).crossing.computed
        columns.append(sf.expr(sql).alias(f"c{number}"))
    found = spark.createDataFrame(table).select("id", *columns).toArrow().sort_by("id")
    for number, condition in enumerate(CONDITIONS):
        expected = op.match(table, base.define(A=condition)).column("id").to_pylist()
        holds = found.filter(found.column(f"c{number}")).column("id").to_pylist()
        assert holds == expected, condition
        assert 0 < len(expected) < table.num_rows, condition


@pytest.mark.parametrize(
    "condition",
    [
        "i + i > 2", "-i > 2", "i * 2 > 3", "d + d > 1", "x / y > 1", "i / 2 = 1", "i % 2 = 1",
        "upper(s) = 'A'", "s = 'it''s'", "s LIKE 'a\\%'", "at > TIMESTAMP '2026-01-01 00:00:00'",
        "CAST(s AS INTEGER) = 1", "x IS DISTINCT FROM y", "r.x > 1",
    ],
)  # fmt: skip
def test_what_spark_might_do_otherwise_stays_in_python(condition: str) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("i", pa.int32()), ("x", pa.float64()), ("y", pa.float64()),
         ("d", pa.decimal128(10, 2)), ("s", pa.string()), ("at", pa.timestamp("us")),
         ("r", pa.struct([("x", pa.int64())]))]
    )  # fmt: skip
    query = op.Query().order_by("id").pattern("A").define(A=condition).measures(id="A.id")
    assert plan_query(query, schema).crossing.computed == ()
    predicate = plan_query(query, schema).bound.predicates[0].expression
    assert predicate is not None
    assert catalyst_text(predicate) is None


def test_text_compares_by_bytes_whatever_its_collation(spark: SparkSession) -> None:
    table = pa.table({"ts": [1, 2, 3], "kind": ["a", "A", "b"], "key": ["k", "K", "k"]})
    frame = spark.createDataFrame(table).selectExpr(
        "ts", "kind COLLATE UTF8_LCASE AS kind", "key COLLATE UTF8_LCASE AS key"
    )
    query = (
        op.Query().partition_by("key").order_by("ts").pattern("A -> B").within(9)
        .define(A="kind = 'a'", B="kind <> 'a'").measures(at="B.ts")
    )  # fmt: skip
    found = [row.asDict() for row in op.match(frame, query).collect()]
    assert found == op.match(table, query).to_pylist() == [{"key": "k", "at": 3}]


def test_matches_are_events_of_another_query(spark: SparkSession) -> None:
    table = events()
    low = (
        op.Query("low").partition_by("key").order_by("ts", "id").pattern("A -> B").within(5)
        .define(A="kind = 'a'", B="kind = 'b'")
        .measures(first="FIRST(id)", last="LAST(id)", n="COUNT(*)")
    )  # fmt: skip
    high = (
        op.Query("high").order_by("first").pattern("SHORT -> LONG").within(30)
        .define(SHORT="last - first < 8", LONG="n = 2 AND key <> SHORT.key")
        .measures(a="SHORT.first", b="LONG.first", key="LONG.key")
    )  # fmt: skip
    expected = op.match(op.match(table, low), high)
    assert expected.num_rows > 5
    frame = spark.createDataFrame(table)
    found = op.match(op.match(frame, low), high)
    again = frame.transform(op.match, low).transform(op.match, high)
    both = union({"nested": found, "transform": again})
    assert rows(both["nested"]) == rows(both["transform"]) == rows(expected)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (op.Query("q").order_by("ts").pattern("A B").measures(n="COUNT(*)"), "no WITHIN"),
        (BASE.pattern("A B C").measures(n="MATCH_NUMBER()"), "numbered"),
        (BASE.pattern("A B C").measures(p="PREV(A.v)"), "PREV or NEXT"),
        (BASE.pattern("A B C").limit(3), "limit"),
        (BASE.pattern("A B C").all_rows_per_match(unmatched=True), "unmatched"),
        (BASE.pattern("A? B? C?"), "match nothing"),
        (BASE.pattern("^ A B C"), "^ or $"),
    ],
)
def test_what_cannot_be_cut_says_why(query: op.Query, reason: str) -> None:
    schema = events().schema
    plan = plan_query(query, schema)
    assert (plan.division.cut, reason in plan.division.reason) == (Cut.NONE, True)
    assert f"  divided not at all: {plan.division.reason}" in plan.lines()
    keyed = plan_query(query.partition_by("key"), schema)
    assert (keyed.division.cut, reason in keyed.division.reason) == (Cut.KEY, True)
    assert reason in "\n".join(keyed.lines())


def test_a_pattern_that_can_match_nothing_needs_every_row(spark: SparkSession) -> None:
    table = pa.table({"ts": [1, 2, 3], "kind": ["x", "a", "x"]})
    query = op.Query().order_by("ts").pattern("A?").define(A="kind = 'a'").measures(n="COUNT(*)")
    found = op.match(spark.createDataFrame(table), query)
    assert [row.n for row in found.collect()] == [0, 1, 0]
    assert found.rdd.getNumPartitions() == 1


def test_rows_count_also_where_no_column_is_used(spark: SparkSession) -> None:
    query = op.Query().pattern("A B").measures(n="COUNT(*)")
    found = op.match(spark.range(4), query)
    assert [row.n for row in found.collect()] == [2, 2]


def test_nothing_runs_before_the_result_is_used(spark: SparkSession) -> None:
    boom = spark.range(10).selectExpr("id AS ts", "raise_error('ran') AS kind")
    query = op.Query("q").order_by("ts").pattern("A").measures(kind="A.kind")
    found = op.match(boom, query)
    assert found.columns == ["kind"]
    with pytest.raises(PySparkException, match="ran"):
        found.collect()
