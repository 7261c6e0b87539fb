"""Windows divided among tasks give what one table gives, in every division."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.operators import match_windows
from support.properties import examples
from support.window_queries import DRIFTS, KINDS, PATTERNS, rows, tables

from outpace.engine.divide.groups import SortedGroups
from outpace.engine.match.bits import bit_columns
from outpace.engine.rows.partition import one_array
from outpace.pattern.query import Query
from outpace.pattern.schedulers import Batches
from outpace.pattern.windows import CountWindows
from outpace.plan.division import Cut
from outpace.plan.plan import Plan
from outpace.plan.row_plan import RowDivision, plan_query
from outpace.plan.window_task import NUMBERED, WindowTask


def crossing(plan: Plan[RowDivision], table: pa.Table) -> pa.Table:
    """What Catalyst would send of a table."""
    assert plan.crossing.bits is not None
    columns = {name: one_array(table.column(name)) for name in table.column_names}
    bits = bit_columns(plan.crossing.bits.predicates, columns, table.num_rows)
    rows = pa.table({**{name: columns[name] for name in plan.crossing.columns}, **bits})
    if not plan.crossing.drop_unused:
        return rows
    used = np.any([column.to_numpy() != 0 for column in bits.values()], axis=0)
    return rows.filter(pa.array(used))


def divided(table: pa.Table, query: Query, pieces: int) -> list[str]:
    """Do all that Catalyst and tasks would do, one after the other."""
    plan = plan_query(query, table.schema)
    plan = replace(plan, division=replace(plan.division, batch_rows=5))
    task = WindowTask(plan)
    table = crossing(plan, table)
    size = max(1, -(-table.num_rows // pieces))
    parts = [table.slice(first, size) for first in range(0, table.num_rows, size)]
    found: list[pa.Table] = []
    if plan.division.cut is Cut.TIME:
        found = by_time(task, parts)
    elif plan.division.cut is Cut.SPLIT:
        packed = [task.pack(part, number) for number, part in enumerate(parts)]
        blocks = (task.unpack([one["block"][0].as_buffer()]) for one in packed)
        found = list(task.match_split(task.split(blocks)))
    elif plan.division.cut is Cut.NUMBERED:
        found = by_number(task, parts)
    else:
        keys = [(name, "ascending") for name in task.work().keys]
        ordered = pa.concat_tables(parts).sort_by([*keys, ("ts", "ascending")]) if parts else table
        groups = SortedGroups(task.work(), rows_at_once=6)
        for first in range(0, ordered.num_rows, 4):
            found += groups.push(ordered.slice(first, 4))
        found += groups.finish()
    return rows(pa.concat_tables([plan.bound.output.empty_table(), *found]))


def by_number(task: WindowTask, parts: list[pa.Table]) -> list[pa.Table]:
    """Number in order, and match by bucket."""
    cells = pa.Table.from_batches(list(task.number(iter(parts), 2)), NUMBERED)
    return list(task.match_numbered(cells.sort_by("bucket").to_batches(1)))


def by_time(task: WindowTask, parts: list[pa.Table]) -> list[pa.Table]:
    """Pack, count and match; rows come in any order."""
    cells: dict[int, list[pa.Buffer]] = defaultdict(list)
    counts: dict[int, int] = defaultdict(int)
    for position, part in enumerate(parts):
        for _, number, _, block in zip(*task.pack_times(part, position).columns, strict=True):
            cells[number.as_py()].append(block.as_buffer())
        for number, count in zip(*task.count_times(part).columns, strict=True):
            counts[number.as_py()] += count.as_py()
    assert set(cells) <= set(counts), "batches with blocks are counted"
    packed = []
    for number in sorted(cells, key=lambda number: (number % 2, number)):
        before = sum(count for other, count in counts.items() if other < number)
        packed.append((number, before if task.bound.query.numbered else None, cells[number]))
    return list(task.match_times(packed))


@pytest.mark.parametrize("kind", KINDS)
@examples(12)
@given(
    table=tables(),
    pattern=st.sampled_from(sorted(PATTERNS)),
    keyed=st.booleans(),
    duplicates=st.booleans(),
    numbered=st.booleans(),
    size=st.none() | st.integers(1, 3),
    pieces=st.integers(1, 3),
)
def test_divided_windows_give_what_a_table_gives(
    kind: str,
    table: pa.Table,
    pattern: str,
    keyed: bool,
    duplicates: bool,
    numbered: bool,
    size: int | None,
    pieces: int,
) -> None:
    query = PATTERNS[pattern].over(KINDS[kind], duplicates=duplicates, numbered=numbered)
    query = query.partition_by("key") if keyed else query
    query = query.instances(2, Batches(size)) if size else query
    assert divided(table, query, pieces) == rows(match_windows(query, table))


@pytest.mark.parametrize("kind", DRIFTS)
@examples(5)
@given(table=tables(), keyed=st.booleans(), numbered=st.booleans(), pieces=st.integers(1, 3))
def test_divided_windows_with_a_drift_give_what_a_table_gives(
    kind: str, table: pa.Table, keyed: bool, numbered: bool, pieces: int
) -> None:
    query = replace(DRIFTS[kind], numbered=numbered).partition_by(*["key"] * keyed)
    assert divided(table, query, pieces) == rows(match_windows(query, table))


def test_rows_of_which_nothing_is_read_are_counted() -> None:
    query = Query("q").pattern("A B").measures(n="COUNT(*)").over(CountWindows(2, 2))
    plan = plan_query(query, pa.schema([("x", pa.int64())]))
    assert plan.crossing.columns == ()
    task = WindowTask(plan)
    sent = pa.table([pa.array([0] * 5, pa.int8())], schema=plan.crossing.row_schema)
    rows = task.unpack([task.pack(sent, 0)["block"][0].as_buffer()])
    found = task.match_split(task.split([rows]))
    assert pa.concat_tables(found).to_pylist() == [{"n": 2}, {"n": 2}]
