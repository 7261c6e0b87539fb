"""Vectorised measures equal the row evaluator, for one row and for all rows per match."""

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from support.properties import examples

from outpace.engine.evaluate.row import RowContext, compile_row
from outpace.engine.match.contract import BlockMatches
from outpace.engine.match.measures import evaluate_measures
from outpace.engine.match.task import prepare, whole_block
from outpace.errors import DataError
from outpace.pattern.query import Query, RowsPerMatch
from outpace.pattern.values import column_values

MEASURES = {
    "first_x": "FIRST(x)",
    "last_a": "LAST(A.x)",
    "last_but_one": "LAST(B.x, 1)",
    "second": "FIRST(A.f, 1)",
    "before": "PREV(FIRST(x))",
    "after": "NEXT(LAST(A.x), 2)",
    "running_last": "RUNNING LAST(B.x)",
    "final_last": "FINAL LAST(U.x)",
    "label": "CLASSIFIER()",
    "label_of": "CLASSIFIER(U)",
    "label_before": "PREV(CLASSIFIER())",
    "number": "MATCH_NUMBER()",
    "rows": "COUNT(*)",
    "rows_of_a": "COUNT(A.*)",
    "known": "COUNT(B.x)",
    "total": "SUM(x)",
    "total_final": "FINAL SUM(A.f)",
    "mean": "AVG(x)",
    "mean_f": "RUNNING AVG(B.f)",
    "least": "MIN(f)",
    "greatest": "MAX(U.x)",
    "latest": "MAX(at)",
    "texts": "ARRAY_AGG(s)",
    "differing": "COUNT(DISTINCT x)",
    "greatest_text": "FINAL MAX(s)",
    "amount": "SUM(m)",
    "amount_of_a": "RUNNING SUM(A.m * 3)",
    "mean_amount": "AVG(m)",
    "least_amount": "MIN(B.m)",
    "waited": "SUM(w)",
    "mean_wait": "AVG(w)",
    "longest": "MAX(A.w)",
    "least_text": "MIN(A.s)",
    "latest_day": "MAX(d)",
    "any_flag": "MAX(x > 0)",
    "deviation": "STDDEV(f)",
    "deviation_pop": "RUNNING STDDEV_POP(A.x)",
    "variance": "VARIANCE(B.f)",
    "positive": "COUNT_IF(x > 0)",
    "positive_a": "RUNNING COUNT_IF(A.f > 0)",
    "chosen": "SUM(x) FILTER (WHERE f > 0)",
    "chosen_rows": "COUNT(B.*) FILTER (WHERE B.x > 0)",
    "sorted_texts": "ARRAY_AGG(s ORDER BY f DESC NULLS FIRST, ts) FILTER (WHERE x > 0)",
    "said_of_all": "FINAL (x + COUNT(*))",
    "running": "RUNNING x",
    "listed": "COLLECT_LIST(A.f)",
    "days": "RUNNING ARRAY_AGG(U.d)",
    "all_flags": "BOOL_AND(B.x > 0)",
    "some_flag": "FINAL BOOL_OR(f > 0)",
    "any_text": "ANY_VALUE(A.s)",
    "different_text": "COUNT(DISTINCT s)",
    "sum_of_different": "RUNNING SUM(DISTINCT f)",
    "different_amounts": "AVG(DISTINCT U.m)",
    "sorted_days": "ARRAY_AGG(d ORDER BY x DESC, f NULLS FIRST)",
    "sorted_different": "ARRAY_AGG(DISTINCT s ORDER BY s DESC)",
    "top": "MAX_BY(s, f)",
    "lowest": "FINAL MIN_BY(A.x, A.s)",
    "said": "LISTAGG(s, '-')",
    "said_in_order": "LISTAGG(B.s) WITHIN GROUP (ORDER BY B.ts DESC)",
    "computed": "SUM(A.x * 2) + COALESCE(LAST(B.x), 0)",
}


def _task(measures, rows):
    query = (
        Query()
        .partition_by("key")
        .order_by("ts")
        .pattern("(A | B | {- C -})*")
        .define(A="x = 0", B="x = 1")
        .subset(U=("A", "C"))
        .measures(measures)
    )
    shapes = {
        RowsPerMatch.ONE: query,
        RowsPerMatch.ALL_SHOW_EMPTY: query.all_rows_per_match(),
        RowsPerMatch.ALL_OMIT_EMPTY: query.all_rows_per_match(empty="omit"),
    }
    return shapes[rows]


SCHEMA = pa.schema(
    {
        "ts": pa.int64(),
        "key": pa.int8(),
        "x": pa.int32(),
        "f": pa.float64(),
        "s": pa.string(),
        "at": pa.timestamp("us"),
        "m": pa.decimal128(6, 2),
        "w": pa.duration("s"),
        "d": pa.date32(),
    }
)


@st.composite
def matches(draw):
    """Draw a table of two partitions and any matches in it, whether or not a pattern finds them."""
    sizes = [draw(st.integers(1, 6)), draw(st.integers(1, 6))]
    size = sum(sizes)

    def column(values):
        return draw(st.lists(values | st.none(), min_size=size, max_size=size))

    table = pa.table(
        {
            "ts": list(range(size)),
            "key": [0] * sizes[0] + [1] * sizes[1],
            "x": column(st.integers(-3, 3)),
            "f": column(st.sampled_from([0.5, -1.25, 3.0, math.nan])),
            "s": column(st.sampled_from(["", "p", "q"])),
            "at": column(st.integers(0, 5)),
            "m": column(st.decimals("-9", "9", places=2)),
            "w": column(st.integers(-3, 3)),
            "d": column(st.integers(0, 5)),
        },
        schema=SCHEMA,
    )
    found = []
    for segment, (low, count) in enumerate(((0, sizes[0]), (sizes[0], sizes[1]))):
        for _ in range(draw(st.integers(0, 3))):
            taken = sorted(draw(st.sets(st.integers(low, low + count - 1))))
            start = taken[0] if taken else draw(st.integers(low, low + count - 1))
            positions = [draw(st.integers(0, 2)) for _ in taken]
            found.append((segment, start, taken, positions))
    return table, found


def _found(matches):
    offsets = np.cumsum([0, *(len(taken) for _, _, taken, _ in matches)])
    integers = [
        [segment for segment, *_ in matches],
        [start for _, start, *_ in matches],
        list(range(1, len(matches) + 1)),
        offsets,
        [row for _, _, taken, _ in matches for row in taken],
        [position for *_, positions in matches for position in positions],
        [0] * len(matches),
    ]
    return BlockMatches(*(np.array(values, np.int64) for values in integers))


def _expected(task, table, found, rows):
    """Evaluate measure by measure and row by row."""
    bounds = [0, table.column("key").to_pylist().count(0), table.num_rows]
    variables = [position.variable for position in task.program.positions]
    output = []
    for number, (segment, start, taken, positions) in enumerate(found):
        low, high = bounds[segment], bounds[segment + 1]
        context = RowContext(
            {name: column_values(table[name][low:high]) for name in table.column_names},
            high - low,
            task.program.names,
            rows=[row - low for row in taken],
            labels=[variables[position] for position in positions],
            match_number=number + 1,
        )
        shown = [len(taken) - 1]
        if rows is not RowsPerMatch.ONE:
            shown = [i for i, p in enumerate(positions) if not task.program.positions[p].excluded]
            if not taken and rows is not RowsPerMatch.ALL_OMIT_EMPTY:
                shown = [-1]
        for current in shown:
            context.current = current
            row = taken[current] if taken and rows is not RowsPerMatch.ONE else start
            values = [compile_row(m.expression)(context) for m in task.bound.measures]
            output.append((row, number, values))
    return output


@examples(60)
@given(
    matches(),
    st.sampled_from([RowsPerMatch.ONE, RowsPerMatch.ALL_SHOW_EMPTY, RowsPerMatch.ALL_OMIT_EMPTY]),
)
def test_measures_equal_the_row_evaluator(drawn, rows):
    table, matches = drawn
    note(repr(matches))
    task = prepare(_task(MEASURES, rows), table.schema)
    block = whole_block(task, table)
    row, match, columns = evaluate_measures(task, block, _found(matches), rows)
    expected = _expected(task, table, matches, rows)
    assert row.tolist() == [row for row, _, _ in expected]
    assert match.tolist() == [match for _, match, _ in expected]
    for index, (name, column) in enumerate(columns.items()):
        assert column.type == task.bound.measures[index].expression.type
        values = [repr(value) for value in column_values(column)]
        assert values == [repr(values[index]) for _, _, values in expected], name


def test_a_sum_that_does_not_fit_is_an_error():
    table = pa.table({"ts": [0, 1], "x": [2**62, 2**62]})
    query = Query().order_by("ts").pattern("A A").measures(total="SUM(x)")
    task = prepare(query, table.schema)
    block = whole_block(task, table)
    found = _found([(0, 0, [0, 1], [0, 1])])
    with pytest.raises(DataError):
        evaluate_measures(task, block, found, RowsPerMatch.ONE)


def test_decimals_beyond_64_bits_are_added_up_exactly():
    amounts = [Decimal("123456789012345678901234.5"), Decimal("0.1")]
    table = pa.table({"ts": [0, 1], "m": pa.array(amounts, pa.decimal128(30, 1))})
    query = Query().order_by("ts").pattern("A A").measures(total="SUM(m)", least="MIN(m)")
    task = prepare(query, table.schema)
    found = _found([(0, 0, [0, 1], [0, 1])])
    _, _, columns = evaluate_measures(task, whole_block(task, table), found, RowsPerMatch.ONE)
    assert columns["total"].to_pylist() == [sum(amounts)]
    assert columns["least"].to_pylist() == [min(amounts)]


def test_a_mean_beyond_53_bits_is_exact():
    values = [2**61 + 1, 2**61 + 1]
    table = pa.table({"ts": [0, 1], "x": values})
    task = prepare(Query().order_by("ts").pattern("A A").measures(mean="AVG(x)"), table.schema)
    found = _found([(0, 0, [0, 1], [0, 1])])
    _, _, columns = evaluate_measures(task, whole_block(task, table), found, RowsPerMatch.ONE)
    assert columns["mean"].to_pylist() == [sum(values) / 2]
