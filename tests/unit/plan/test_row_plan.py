"""The plan of a batch on Spark: bits, used rows and columns, and how rows are divided."""

from __future__ import annotations

import pyarrow as pa
import pytest

from outpace.pattern.query import Query
from outpace.plan.division import Cut
from outpace.plan.row_plan import plan_query

SCHEMA = pa.schema(
    [("ts", pa.int64()), ("key", pa.string()), ("kind", pa.string()), ("price", pa.float64())]
)
BASE = (
    Query("q")
    .order_by("ts")
    .pattern("A -> B")
    .define(A="kind = 'a'", B="kind = 'b' AND price > A.price")
    .measures(at="B.ts")
)
HIDDEN = BASE.within(5).all_rows_per_match().measures({"at": "B.ts"})


def test_the_own_part_of_a_condition_is_computed_by_catalyst() -> None:
    plan = plan_query(BASE, SCHEMA)
    assert plan.crossing.computed == (("A", "(`kind` = 'a')"), ("B", "(`kind` = 'b')"))
    assert plan.crossing.columns == ("ts", "price")
    assert plan.crossing.used_sql == "(`kind` = 'a') OR (`kind` = 'b')"


@pytest.mark.parametrize("condition", ["kind = '${env:HOME}'", '"${spark.app.name}" = 1'])
def test_spark_has_no_variables_to_put_into_a_condition(condition: str) -> None:
    schema = SCHEMA.append(pa.field("${spark.app.name}", pa.int64()))
    assert "A" not in dict(plan_query(BASE.define(A=condition), schema).crossing.computed)


@pytest.mark.parametrize("pattern", ["A B", "^ A -> B", "A?"])
def test_all_rows_cross_where_others_than_used_ones_count(pattern: str) -> None:
    query = BASE.pattern(pattern)
    if pattern == "A?":
        query = Query("q").order_by("ts").pattern("A?").define(A="kind = 'a'")
    assert plan_query(query.measures(n="COUNT(*)"), SCHEMA).crossing.used_sql is None


def test_the_eighth_bit_of_a_byte_counts_below_zero() -> None:
    names = "ABCDEFGHI"
    query = (
        Query("q")
        .order_by("ts")
        .pattern(" -> ".join(names))
        .define({name: f"kind = '{name}'" for name in names})
        .measures(n="COUNT(*)")
    )
    plan = plan_query(query, SCHEMA)
    first, second = plan.crossing.bit_columns.values()
    assert "THEN -128 ELSE" in first
    assert first.count("CASE") == 8
    assert second == "CAST(CASE WHEN (`kind` = 'I') THEN 1 ELSE 0 END AS TINYINT)"
    assert plan.crossing.row_schema.names == ["ts", *plan.crossing.bit_columns]


@pytest.mark.parametrize(
    ("query", "cut"),
    [
        (BASE, Cut.NONE),
        (BASE.within(5), Cut.RANGE),
        (BASE.within(1 << 60), Cut.NONE),
        (BASE.partition_by("key"), Cut.KEY),
        (BASE.partition_by("key").within(5), Cut.KEY_AND_RANGE),
        (BASE.partition_by("key").within(5).limit(2), Cut.KEY),
        (BASE.within(5).all_rows_per_match().measures({"at": "B.ts"}), Cut.RANGE),
        (BASE.within(5).select("all").skip_past_last_row(), Cut.NONE),
        (HIDDEN.pattern("{- A -} -> {- B -} | B"), Cut.NONE),
        (HIDDEN.pattern("{- A+ -} B | {- A+ -> B? -}"), Cut.NONE),
        (HIDDEN.pattern("{- A+ -} -> {- B? -}").no_skip(), Cut.RANGE),
        (HIDDEN.pattern("{- A -} -> B"), Cut.RANGE),
        (BASE.within(5).pattern("{- A -> B -}"), Cut.RANGE),
    ],
)
def test_how_rows_are_divided(query: Query, cut: Cut) -> None:
    plan = plan_query(query, SCHEMA)
    assert plan.division.cut is cut
    assert bool(plan.division.reason) is not cut.by_range
    assert f"  divided {cut.value}: " in "\n".join(plan.lines())


def test_only_what_rules_out_later_matches_is_merged() -> None:
    ranged = BASE.within(5)
    assert plan_query(ranged, SCHEMA).division.merges
    assert not plan_query(ranged.no_skip(), SCHEMA).division.merges
    assert not plan_query(ranged.skip_to_next_row(), SCHEMA).division.merges
    assert not plan_query(BASE.partition_by("key"), SCHEMA).division.merges
