"""Pruning by statistics: what is left out holds no row that could count."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from outpace.engine.evaluate.columns import predicate_mask
from outpace.engine.match.contract import Task
from outpace.engine.match.task import prepare
from outpace.files.parquet import RowGroup, Statistics, list_files, parquet
from outpace.files.prune import may_start, may_use
from outpace.pattern.query import Query

SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("i", pa.int8()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("d", pa.decimal128(6, 2)),
        ("day", pa.date32()),
        ("b", pa.bool_()),
    ]
)

DAY = datetime.date(2024, 1, 1)

VALUES = {
    "i": st.integers(-3, 3),
    "s": st.sampled_from(("", "a", "ab", "b", "é", "\U0001f600")),
    "f": st.sampled_from((-1.5, 0.0, -0.0, 1.0, 2.5, math.nan, math.inf)),
    "g": st.sampled_from((-1.5, 0.0, 1.0, 2.5, math.nan)),
    "d": st.integers(-300, 300).map(lambda cents: Decimal(cents).scaleb(-2)),
    "day": st.integers(0, 4).map(lambda days: DAY + datetime.timedelta(days=days)),
    "b": st.booleans(),
}


def written(column: str, value: object) -> str:
    if column == "s":
        return f"'{value}'"
    return f"DATE '{value}'" if column == "day" else str(value).upper()


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(("i", "s", "f", "g", "d", "day")))
    values = VALUES[column].filter(lambda value: value == value)
    finite = values.filter(lambda value: not (isinstance(value, float) and math.isinf(value)))
    one, two = (written(column, draw(finite)) for _ in range(2))
    if column == "i" and draw(st.booleans()):
        one = f"{one}.5"
    operator = draw(st.sampled_from(("=", "<>", "<", "<=", ">", ">=")))
    forms = (
        f"{column} {operator} {one}",
        f"{one} {operator} {column}",
        f"{column} BETWEEN {one} AND {two}",
        f"{column} NOT BETWEEN {one} AND {two}",
        f"{column} IN ({one}, {two})",
        f"{column} NOT IN ({one}, NULL)",
        f"{column} IS NULL",
        f"{column} IS NOT NULL",
        f"NOT ({column} {operator} {one})",
        f"{column} {operator} NULL",
    )
    return draw(st.sampled_from(forms))


@st.composite
def conditions(draw: st.DrawFn) -> str:
    parts = draw(st.lists(comparisons(), min_size=1, max_size=3))
    joined = draw(st.sampled_from((" AND ", " OR "))).join(f"({part})" for part in parts)
    return draw(st.sampled_from(("{}", "NOT ({})"))).format(joined)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    size = draw(st.integers(1, 4))
    columns: dict[str, object] = {"ts": list(range(size))}
    for name, values in VALUES.items():
        columns[name] = draw(st.lists(values | st.none(), min_size=size, max_size=size))
    return pa.table(columns, schema=SCHEMA)


def task_of(condition: str, pattern: str = "A") -> Task:
    query = Query("q").order_by("ts").pattern(pattern).define(A=condition).measures(n="COUNT(*)")
    return prepare(query, SCHEMA)


def holds_somewhere(task: Task, table: pa.Table) -> bool:
    columns = {name: table.column(name).combine_chunks() for name in SCHEMA.names}
    bounds = np.array([0, table.num_rows], np.int64)
    return bool(predicate_mask(task.bound.predicates[0], columns, bounds).any())


def footer(table: pa.Table, folder: Path) -> RowGroup:
    pq.write_table(table, folder / "f.parquet")
    (group,) = list_files(parquet(folder / "f.parquet")).groups
    return group


@examples(150)
@given(table=tables(), condition=conditions())
def test_a_row_group_with_a_row_that_counts_is_never_left_out(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table, condition: str
) -> None:
    group = footer(table, tmp_path_factory.getbasetemp())
    task = task_of(condition)
    if holds_somewhere(task, table):
        assert may_use(task.bound.predicates, group)
        assert may_start(task, group)


LOW = pa.table(
    {
        "ts": [0, 1, 2],
        "i": [1, None, 3],
        "s": ["b", "c", "d"],
        "f": [0.5, 1.0, None],
        "g": [None, None, None],
        "d": [Decimal("1.00"), Decimal("2.50"), None],
        "day": [DAY, DAY, None],
        "b": [True, None, None],
    },
    schema=SCHEMA,
)


@pytest.mark.parametrize(
    "condition",
    [
        "i > 3", "4 <= i", "i = 0", "i IN (0, 7)", "i BETWEEN 4 AND 9", "NOT (i < 5)", "i > 3.5",
        "s = 'a'", "s IS NULL", "s < 'b' OR i = 9", "s >= 'e' AND i = 2", "f < 0.5", "f <= 0.2E0",
        "f > 1", "9 <= f", "g = 1", "g IS NOT NULL", "d > 2.5", "day <> DATE '2024-01-01'",
        "i <> NULL",
    ],
)  # fmt: skip
def test_what_no_row_can_satisfy_is_left_out(condition: str, tmp_path: Path) -> None:
    assert not may_use(task_of(condition).bound.predicates, footer(LOW, tmp_path))


@pytest.mark.parametrize(
    "condition",
    [
        "i = 2", "NOT (f < 9)", "f <> 0.5", "s LIKE 'z%'", "i + 1 = 99", "PREV(i) = 99",
        "SUM(i) = 99", "b", "i IS NULL", "i > LAST(A.i, 1)",
    ],
)  # fmt: skip
def test_what_is_not_understood_may_be_true(condition: str, tmp_path: Path) -> None:
    assert may_use(task_of(condition).bound.predicates, footer(LOW, tmp_path))


def test_only_variables_that_come_first_decide_whether_a_match_may_start(tmp_path: Path) -> None:
    group = footer(LOW, tmp_path)
    assert may_start(task_of("i > 3", "B -> A"), group)
    assert not may_start(task_of("i > 3", "A -> B"), group)
    assert may_start(task_of("i > 3", "A? B"), group)
    assert may_start(task_of("i > 3", "A?"), group)


@pytest.mark.parametrize("bounds", [(math.nan, 1.0), (0.0, math.nan), (math.nan, math.nan)])
def test_nan_in_a_footer_bounds_nothing(bounds: tuple[float, float]) -> None:
    group = RowGroup("f", 0, 9, {}, {"f": Statistics(*bounds, 0)}, {})
    for condition in ("f < 0.5", "f > 0.5", "f = 7", "f BETWEEN 2 AND 3"):
        assert may_use(task_of(condition).bound.predicates, group)
