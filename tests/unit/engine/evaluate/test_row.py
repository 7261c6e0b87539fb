"""The row evaluator: places word for word, aggregates as DuckDB has them, NULLs as SQL has them."""

import datetime
import math
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.evaluate.row import (
    RowContext,
    compile_row,
    locate,
)
from outpace.errors import DataError
from outpace.pattern.bind.query import bind
from outpace.pattern.bound import BoundExpression, ReadPlace
from outpace.pattern.functions.aggregate import AGGREGATES, aggregate_names, find_aggregate
from outpace.pattern.query import Query
from outpace.pattern.values import column_values

TABLE = pa.table(
    {
        "i": pa.array([3, 1, None, 7, 1, 4], pa.int32()),
        "k": pa.array([1, 2, 3, None, 5, 6], pa.int64()),
        "x": pa.array([0.5, -1.25, 2.0, 8.5, None, 3.0], pa.float64()),
        "m": pa.array([Decimal(v) for v in ("1.10", "2.25", "0.00", "9.99", "1.10")] + [None]),
        "s": pa.array(["b", "a", None, "c", "a", "d"], pa.string()),
        "b": pa.array([True, True, None, False, True, True], pa.bool_()),
        "ts": pa.array([datetime.datetime(2024, 1, day) for day in range(1, 7)]),
    }
)
NAMES = ["A", "B"]


def bound(text: str) -> BoundExpression:
    query = Query().pattern("A B").subset(U=("A", "B")).all_rows_per_match().measures(v=text)
    return bind(query, TABLE.schema).measures[0].expression


def context(rows: list[int], labels: str, current: int | None = None) -> RowContext:
    return RowContext(
        {name: column_values(TABLE[name]) for name in TABLE.column_names},
        TABLE.num_rows,
        NAMES,
        rows,
        [NAMES.index(label) for label in labels],
        len(rows) - 1 if current is None else current,
        match_number=4,
    )


def value(text: str, rows: list[int], labels: str, current: int | None = None) -> object:
    return compile_row(bound(text))(context(rows, labels, current))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k", 5),
        ("A.k", 2),
        ("B.k", 5),
        ("U.k", 5),
        ("LAST(k, 1)", 3),
        ("LAST(k, 3)", None),
        ("FIRST(k)", 2),
        ("FIRST(B.k)", 3),
        ("FIRST(B.k, 1)", 5),
        ("FIRST(B.k, 2)", None),
        ("PREV(k)", None),
        ("PREV(k, 2)", 3),
        ("NEXT(k)", 6),
        ("NEXT(k, 2)", None),
        ("PREV(FIRST(k))", 1),
        ("PREV(FIRST(k), 2)", None),
        ("NEXT(LAST(B.k, 1), 3)", 6),
        ("CLASSIFIER()", "B"),
        ("FIRST(CLASSIFIER())", "A"),
        ("PREV(CLASSIFIER())", None),
        ("PREV(CLASSIFIER(), 2)", "B"),
        ("CLASSIFIER(A)", "A"),
        ("MATCH_NUMBER()", 4),
        ("FINAL LAST(k)", 6),
        ("FINAL (k)", 6),
        ("FINAL (PREV(k))", 5),
        ("FINAL (LAST(k) - FIRST(k))", 4),
        ("FINAL FIRST(B.k, 2)", 6),
        ("NEXT(CLASSIFIER())", "B"),
    ],
)
def test_navigation(text: str, expected: object) -> None:
    """Rows 1, 2, 4 and 5 of the partition are the match; row 4 is being looked at."""
    assert value(text, [1, 2, 4, 5], "ABBB", current=2) == expected


def test_empty_match_has_no_rows() -> None:
    for text in ("k", "A.k", "PREV(k)", "FIRST(k)", "CLASSIFIER()", "sum(k)", "array_agg(k)"):
        assert value(text, [], "") is None
    assert value("count(*)", [], "") == 0
    assert value("MATCH_NUMBER()", [], "") == 4


@given(
    st.lists(st.integers(0, 5), unique=True, max_size=6).map(sorted),
    st.data(),
)
def test_locate_is_the_definition(rows: list[int], data: st.DataObject) -> None:
    labels = "".join(data.draw(st.sampled_from("AB")) for _ in rows)
    current = data.draw(st.integers(-1, len(rows) - 1))
    place = ReadPlace(
        data.draw(st.sampled_from(["first", "last"])),
        data.draw(st.sampled_from([None, frozenset({0}), frozenset({1}), frozenset({0, 1})])),
        data.draw(st.integers(0, 3)),
        data.draw(st.integers(-2, 2)),
        data.draw(st.booleans()),
    )
    seen = list(zip(rows, labels, strict=True))
    seen = seen if place.final else seen[: current + 1]
    numbers = frozenset({0, 1}) if place.variables is None else place.variables
    kept = [row for row, label in seen if NAMES.index(label) in numbers]
    ordered = kept if place.origin == "first" else kept[::-1]
    found = ordered[place.steps] + place.shift if place.steps < len(ordered) else None
    expected = found if found is not None and 0 <= found < TABLE.num_rows else None
    assert locate(place, context(rows, labels, current)) == expected


def test_running_aggregates_see_rows_up_to_the_current_one() -> None:
    everything = [0, 1, 2, 3, 4, 5]
    expected = [3, 4, 4, 11, 12, 16]
    assert [value("sum(i)", everything, "AABBBB", row) for row in everything] == expected
    assert [value("FINAL sum(i)", everything, "AABBBB", row) for row in everything] == [16] * 6
    assert [value("count(B.*)", everything, "AABBBB", row) for row in everything] == [
        0,
        0,
        1,
        2,
        3,
        4,
    ]


def test_aggregates_over_labels() -> None:
    assert value("array_agg(CLASSIFIER(U))", [0, 2], "AB") == ["A", "B"]
    assert value("array_agg(s || CLASSIFIER())", [0, 2, 3], "ABB") == ["bA", None, "cB"]
    assert value("array_agg(CLASSIFIER(B))", [0, 2, 3], "ABB") == ["B", "B"]
    assert value("max_by(k, CLASSIFIER())", [0, 1, 2], "ABA") == 2


SAME_IN_DUCKDB = [
    "count(*)", "count(i)", "count(distinct i)", "sum(i)", "sum(x)", "sum(m)", "sum(distinct i)",
    "min(i)",
    "max(s)", "avg(i)", "avg(x)", "min(ts)", "any_value(i)", "min_by(s, i)", "max_by(s, x)",
    "min(k, 2)",
    "max(k, 2)", "bool_and(b)", "bool_or(b)", "count_if(b)", "variance(x)", "var_pop(x)",
    "stddev(x)",
    "stddev_pop(i)", "string_agg(s, '-')", "bit_and(k)", "bit_or(k)", "bit_xor(k)",
    "product(i)", "corr(x, k)", "covar_samp(x, k)", "covar_pop(x, k)", "regr_slope(x, k)",
    "regr_intercept(x, k)", "geomean(abs(x))", "array_agg(i)", "kurtosis(x)", "sum(i + k * 2)",
    "max(case when b then i end)", "approx_percentile(i, 0.5)",
    "sum(i) filter (where k > 1)", "count(*) filter (where b)",
    "count(distinct i) filter (where k > 1)", "array_agg(k) filter (where i > 1)",
    "max_by(s, x) filter (where b)", "array_agg(s order by i, k desc)",
    "array_agg(i order by s desc nulls first, x)", "array_agg(distinct i order by i desc)",
    "string_agg(s, '-' order by x) filter (where k > 1)", "array_agg(i order by x desc, i)",
    "max(i order by x)",
]  # fmt: skip
SPELLED_OTHERWISE = {"approx_percentile(i, 0.5)": "quantile_disc(i, 0.5)"}


# Where it has too few rows, DuckDB gives NaN (SQL: NULL), or NULL for a count (SQL: 0).
OTHERWISE_IN_DUCKDB = {
    ("corr(x, k)", 1): None,
    ("regr_slope(x, k)", 1): None,
    ("count_if(b)", 0): 0,
}


@pytest.mark.parametrize("text", SAME_IN_DUCKDB)
@pytest.mark.parametrize("size", [0, 1, 2, 6])
def test_duckdb_agrees(text: str, size: int) -> None:
    connection = duckdb.connect()
    connection.register("rows", TABLE.slice(0, size))
    there = SPELLED_OTHERWISE.get(text, text)
    ((theirs,),) = connection.sql(f"select {there} from rows").fetchall()
    theirs = OTHERWISE_IN_DUCKDB.get((text, size), theirs)
    ours = value(text, list(range(size)), "A" * size)
    if isinstance(ours, float):
        assert isinstance(theirs, float | Decimal), text
        assert math.isclose(ours, theirs, rel_tol=1e-9)
    else:
        assert ours == theirs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("avg(m)", Decimal("2.89")),
        ("array_agg(distinct i)", [3, 1, None, 7, 4]),
        ("set_agg(s)", ["b", "a", None, "c", "d"]),
        ("collect_list(s)", ["b", "a", "c", "a", "d"]),
        ("map_agg(s, k)", {"b": 1, "a": 2, "c": None, "d": 6}),
        ("multimap_agg(s, k)", {"b": [1], "a": [2, 5], "c": [None], "d": [6]}),
        ("histogram(i)", {3: 1, 1: 2, 7: 1, 4: 1}),
        ("approx_most_frequent(1, i, 10)", {1: 2}),
        ("approx_most_frequent(2, s, 1)", {"a": 2, "b": 1}),
        ("approx_most_frequent(3, A.k, 10)", {1: 1, 2: 1, 3: 1}),
        ("approx_most_frequent(3, nullif(k, k), 10)", None),
        ("count(try(cast(s as integer)))", 0),
        ("listagg(s)", "bacad"),
        ("approx_distinct(i)", 4),
        ("entropy(i)", 1.9746017527),
        ("skewness(x)", 0.8163076619618),
        ("max_by(s, k, 2)", ["d", "a"]),
        ("min_by(s, i, 2)", ["a", "a"]),
        ("sum(i) + count(*)", 22),
        ("listagg(s, '-') WITHIN GROUP (ORDER BY s DESC)", "d-c-b-a-a"),
        ("RUNNING i + 1", 5),
    ],
)
def test_aggregate(text: str, expected: object) -> None:
    found = value(text, list(range(6)), "A" * 6)
    if isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9)
    else:
        assert found == expected


def test_map_union_keeps_the_first_value_of_a_key() -> None:
    text = "map_union(map(array[CLASSIFIER()], array[k]))"
    assert value(text, [0, 1, 2], "ABA") == {"A": 1, "B": 2}


def test_sum_out_of_range_is_an_error() -> None:
    with pytest.raises(DataError, match="out of range for bigint"):
        value("sum(9223372036854775807 - k + k)", [0, 1], "AA")


def test_not_a_number_is_the_greatest() -> None:
    table = pa.table({"x": [1.0, math.nan, 2.0]})
    query = Query().pattern("A").measures(low="min(x)", high="max(x)")
    low, high = (m.expression for m in bind(query, table.schema).measures)
    rows = RowContext({"x": column_values(table["x"])}, 3, ["A"], [0, 1, 2], [0, 0, 0], 2)
    assert compile_row(low)(rows) == 1.0
    assert math.isnan(compile_row(high)(rows))


def test_lazy_evaluation_skips_errors() -> None:
    assert value("i is null or cast('x' as integer) = i", [2], "A") is True
    assert value("coalesce(k, cast('x' as integer))", [0], "A") == 1
    assert (
        value("case when k = 1 then 'one' else cast(cast(s as date) as varchar) end", [0], "A")
        == "one"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LAST(coalesce(B.i, 0))", None),
        ("FIRST(B.i < 0 or true)", None),
        ("FIRST(A.i < 0 or true)", True),
        ("LAST(A.i is null)", True),
        ("LAST(A.i is null, 5)", None),
        ("LAST(case when A.i > 0 then 1 else 2 end, 1)", 1),
        ("PREV(FIRST(coalesce(A.i, 0)), 1)", None),
        ("NEXT(FIRST(coalesce(A.i, 0)), 2)", 0),
        ("NEXT(LAST(concat_ws('-', A.s, 'x')), 4)", None),
        ("NEXT(coalesce(CLASSIFIER(), 'outside'))", "outside"),
        ("PREV(coalesce(CLASSIFIER(), 'outside'), 3)", None),
        ("PREV(array[i], 3)", None),
        ("PREV(array[i], 1)", [1]),
        ("PREV(i + match_number(), 3)", None),
        ("coalesce(PREV(i, 3), 0)", 0),
    ],
)
def test_a_navigation_is_null_where_there_is_no_row(text: str, expected: object) -> None:
    assert value(text, [0, 1, 2], "AAA") == expected


def test_all_not_a_numbers_are_one_key() -> None:
    nan = [float("nan"), float("nan"), 1.0]
    for name, expected in (("histogram", 2), ("approx_most_frequent", 2)):
        aggregate = find_aggregate(name)
        assert aggregate is not None
        rows = [(x,) if name == "histogram" else (5, x, 9) for x in nan]
        counts = aggregate.python(None)(rows)  # type: ignore[arg-type]
        assert sorted(counts.values()) == [1, expected]


def test_compiled_expressions_can_be_used_again() -> None:
    compute = compile_row(bound("sum(A.k) + k"))
    assert compute(context([0, 1], "AB")) == 3
    assert compute(context([0, 1, 4], "AAB")) == 8


def test_names_are_unique_over_all_aggregates() -> None:
    names = [name for a in AGGREGATES for name in (a.name, *a.aliases)]
    assert len(names) == len(set(names))
    assert all(find_aggregate(name) is not None for name in aggregate_names())
