"""Matching files in cores: any cut of the row groups gives what one table gives."""

from __future__ import annotations

import pickle
import re
import sys
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.files import blocks
from outpace.files.match import match_core, match_in_order
from outpace.files.parquet import list_files, parquet
from outpace.files.plan import FileDivision, Way, for_tasks, plan_files
from outpace.pattern.query import OrderItem, Query
from outpace.plan.division import Cut
from outpace.plan.plan import Plan


def chain(**definitions: str) -> Query:
    names = {"A": "kind = 0", "B": "kind = 1", **definitions}
    return (
        Query("chain")
        .order_by("ts")
        .pattern("A -> B")
        .define(names)
        .measures(s="FIRST(ts)", e="LAST(ts)")
        .within(10)
    )


def events(kinds: list[int], times: list[int] | None = None) -> pa.Table:
    ts = np.arange(len(kinds)) if times is None else np.array(times)
    return pa.table({"ts": ts.astype(np.int64), "kind": np.array(kinds, np.int64)})


def plan_of(table: pa.Table, rows: int, query: Query, folder: Path) -> Plan[FileDivision]:
    pq.write_table(table, folder / "f.parquet", row_group_size=rows)
    return plan_files(list_files(parquet(folder)), query)


def in_any_order(tables: list[pa.Table]) -> list[str]:
    return sorted(repr(row) for table in tables for row in table.to_pylist())


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads each row group on its own, though they are small."""
    monkeypatch.setattr(blocks, "UNIT_ROWS", 1)


QUERIES = (
    chain(),
    chain().no_skip(),
    chain().skip_to_last("B"),
    chain(B="kind = 1 AND kind > PREV(kind)").all_rows_per_match(),
    chain(A="kind <= NEXT(kind, 2)").pattern("A+ B").measures(n="COUNT(*)", p="PREV(FIRST(ts))"),
    chain().pattern("A ->> B"),
    chain(A="kind = 2"),
    chain().pattern("A B").skip_to_first("B"),
)


@examples(60)
@given(data=st.data())
def test_any_cut_of_row_groups_gives_what_one_table_gives(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 60), label="size")
    kinds = data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size), label="kinds")
    steps = data.draw(st.lists(st.sampled_from((0, 1, 1, 3)), min_size=size, max_size=size))
    query = data.draw(st.sampled_from(QUERIES))
    query = query.measures(id="MATCH_ID()") if data.draw(st.booleans(), label="ids") else query
    table = events(kinds, np.cumsum(steps).tolist())
    rows = data.draw(st.integers(1, 20), label="rows in a group")
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(blocks, "UNIT_ROWS", data.draw(st.sampled_from((1, 15)), label="unit"))
        plan = plan_of(table, rows, query, Path(folder))
        assert plan.division.cut is Cut.RANGE
        units = len(plan.division.units)
        inner = data.draw(st.sets(st.integers(0, units), max_size=4), label="cuts")
        edges = sorted({0, units, *inner})
        found = [part for low, high in pairwise(edges) for part in match_core(plan, low, high)]
    assert in_any_order(found) == in_any_order([op.match(table, query)])


@pytest.mark.usefixtures("small_units")
def test_rows_inside_row_groups_are_sorted_and_row_groups_are_put_in_order(tmp_path: Path) -> None:
    table = events([0, 1, 1, 0, 0, 1, 0, 1], [6, 7, 5, 4, 1, 0, 3, 2])
    plan = plan_of(table, 2, chain(), tmp_path)
    assert [group.number for group in plan.division.files.groups] == [2, 3, 1, 0]
    expected = in_any_order([op.match(table, chain())])
    assert expected
    assert in_any_order([*match_core(plan, 0, 2), *match_core(plan, 2, 4)]) == expected
    limited = chain().limit(2)
    plan = plan_of(table, 2, limited, tmp_path)
    assert (plan.division.cut, plan.division.reason) == (Cut.NONE, "there is a limit")
    assert in_any_order(list(match_in_order(plan))) == in_any_order(
        [op.match(table, chain().limit(2))]
    )


@pytest.mark.usefixtures("small_units")
def test_a_row_group_without_a_start_is_read_only_for_windows_that_reach_into_it(
    tmp_path: Path,
) -> None:
    query = chain().within(1000).pattern("A B")
    kinds = [1] * 10 + [1] * 10 + [1] * 9 + [0] + [1] * 10
    plan = plan_of(events(kinds), 10, query, tmp_path)
    assert [unit.searched for unit in plan.division.units] == [False, False, True, False]
    assert plan.division.pruned == 0
    assert "  row groups: 4, 0 not read, 3 not searched" in plan.lines()
    (tmp_path / "f.parquet").rename(tmp_path / "gone")
    assert list(match_core(plan, 0, 2)) == []
    (tmp_path / "gone").rename(tmp_path / "f.parquet")
    assert in_any_order(list(match_core(plan, 0, 4))) == ["{'s': 29, 'e': 30}"]


def test_a_keyed_query_is_packed_by_key_also_with_a_time_bound(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"key": ["a", "b"], "ts": [1, 2]}), file)
    query = Query("q").partition_by("key").order_by("ts").pattern("A B").within(10)
    plan = plan_files(list_files(parquet(file)), query.define(A="ts > 5"))
    assert plan.division.cut is Cut.KEY
    assert "  row groups: 1, 0 not read, 0 not searched" in plan.lines()


@pytest.mark.usefixtures("small_units")
def test_what_footers_say_is_not_sent_to_tasks(tmp_path: Path) -> None:
    plan = plan_of(events([0, 1] * 10), 2, chain(), tmp_path)
    sent = for_tasks(plan)
    assert b"Statistics" in pickle.dumps(plan)
    assert b"Statistics" not in pickle.dumps(sent)
    found = [in_any_order(list(match_core(one, 0, 10))) for one in (plan, sent)]
    assert found[0] == found[1]


@pytest.mark.usefixtures("small_units")
def test_only_the_columns_that_are_used_are_read(tmp_path: Path) -> None:
    table = events([0, 2, 1, 0, 1, 1])
    plan = plan_of(table.append_column("more", pa.array(range(6))), 3, chain(), tmp_path)
    assert plan.crossing.columns == ("ts", "kind")
    path = tmp_path / "f.parquet"
    content = bytearray(path.read_bytes())
    for number in range(2):
        column = pq.read_metadata(path).row_group(number).column(2)
        first = column.dictionary_page_offset or column.data_page_offset
        content[first : first + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(content)
    with pytest.raises(OSError):
        pq.read_table(path)
    assert in_any_order(list(match_core(plan, 0, 2))) == in_any_order([op.match(table, chain())])


@pytest.mark.usefixtures("small_units")
def test_a_row_group_that_no_step_can_use_is_not_read(tmp_path: Path) -> None:
    kinds = [0, 2, 2, 2, 2, 2, 1, 2]
    plan = plan_of(events(kinds), 2, chain(), tmp_path)
    assert (plan.division.pruned, len(plan.division.units), plan.division.files.rows) == (2, 2, 4)
    found = [*match_core(plan, 0, 1), *match_core(plan, 1, 2)]
    assert in_any_order(found) == ["{'s': 0, 'e': 6}"]
    strict = plan_of(events(kinds), 2, chain().pattern("A B"), tmp_path)
    assert strict.division.pruned == 0


def test_a_start_that_only_looking_back_tries_does_not_fail_the_query(tmp_path: Path) -> None:
    """The overflow is in a match that the search never tries, as an earlier match rules it out."""
    size = 200
    v = [sys.maxsize if row % 4 == 2 else 0 for row in range(size)]
    table = pa.table({"ts": range(size), "v": v, "kind": [row % 4 for row in range(size)]})
    query = (
        Query("sum")
        .order_by("ts")
        .pattern("A B C")
        .define(A="kind IN (0, 2)", B="SUM(v) + B.v + 1 > 0", C="kind IN (2, 0)")
        .measures(s="FIRST(ts)")
        .skip_to_last("C")
        .within(8)
    )
    query = query.skip_past_last_row().pattern("A B C D").define(D="kind = 3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "UNIT_ROWS", 1)
        plan = plan_of(table, 50, query, tmp_path)
    expected = in_any_order([op.match(table, query)])
    assert expected
    found = [part for unit in range(4) for part in match_core(plan, unit, unit + 1)]
    assert in_any_order(found) == expected


def test_rows_of_which_nothing_is_read_are_counted(tmp_path: Path) -> None:
    query = Query("pairs").pattern("A B").measures(n="COUNT(*)")
    plan = plan_of(events([0] * 7), 2, query, tmp_path)
    assert in_any_order(list(match_in_order(plan))) == ["{'n': 2}"] * 3


def ordered_by(*columns: str | OrderItem) -> Query:
    return chain().order_by(*columns)


@pytest.mark.parametrize(
    ("query", "reason", "sorts"),
    [
        (ordered_by("ts"), "statistics of ts", False),
        (ordered_by("ts", "kind"), "row group 0 of .* and row group 1 of .* overlap in ts", True),
        (replace(ordered_by(OrderItem("ts", True)), bound=None), "ts is descending", True),
        (ordered_by("missing"), "missing is NULL in row group 1", True),
        (ordered_by("bare"), "row group 0 of .* has no statistics of bare", True),
        (Query("any").pattern("A").measures(n="COUNT(*)"), "the order of the files", False),
    ],
)
def test_the_order_is_taken_from_statistics(
    query: Query, reason: str, sorts: bool, tmp_path: Path
) -> None:
    table = events([0, 1, 0, 1], [1, 2, 2, 3])
    table = table.append_column("missing", pa.array([1, 2, None, 4]))
    table = table.append_column("bare", pa.array([1, 2, 3, 4]))
    known = ["ts", "kind", "missing"]
    pq.write_table(table, tmp_path / "f", row_group_size=2, write_statistics=known)
    plan = plan_files(list_files(parquet(tmp_path)), query)
    assert plan.division.order is not None
    assert re.search(reason, plan.division.order.reason)
    assert (plan.division.way is Way.ROWS) == sorts
    assert any("Spark sorts" in line for line in plan.lines()) == sorts


def test_rows_that_spark_sorts_are_not_cut_where_their_neighbours_count(tmp_path: Path) -> None:
    query = chain(B="kind > PREV(kind)")
    plan = plan_of(events([0, 1, 0, 1], [1, 2, 3, 4]), 2, query, tmp_path)
    assert plan.division.cut is Cut.RANGE
    plan = plan_of(events([0, 1, 0, 1], [1, 3, 2, 4]), 2, query, tmp_path)
    assert plan.division.way is Way.ROWS
    assert plan.lines()[-1].startswith("  divided not at all: PREV or NEXT may reach")
