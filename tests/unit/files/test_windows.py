"""Windows over files give what one table gives, however tasks come to their rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.operators import match_windows
from support.properties import examples
from support.window_queries import DRIFTS, KINDS, PATTERNS, rows, tables

from outpace.files import blocks
from outpace.files import plan as files_plan
from outpace.files.match import FileWindows, match_in_order, read_unit
from outpace.files.parquet import list_files, parquet
from outpace.files.plan import Way, for_tasks, packer_of, plan_files, split_columns
from outpace.pattern.query import Query
from outpace.pattern.schedulers import Batches
from outpace.pattern.windows import CountWindows
from outpace.plan.window_task import NUMBERED
from outpace.windows import landmark


@pytest.fixture(scope="module", autouse=True)
def small_units() -> Iterator[None]:
    """Units and shares as if there were many rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "UNIT_ROWS", 6)
        patch.setattr(files_plan, "BATCH_FACTOR", 1)
        yield


def from_files(query: Query, table: pa.Table, group: int) -> tuple[Way, int, list[str]]:
    """Do all that tasks would do; return the way, how many shares there are, and what is found."""
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(table, Path(folder, "events.parquet"), row_group_size=group)
        plan = plan_files(list_files(parquet(folder)), query)
        sent = for_tasks(plan)
        files = FileWindows(sent)
        found: list[pa.Table] = []
        if plan.division.way is Way.SHARES:
            found = [files.match_share(share) for share in range(len(plan.division.shares))]
        elif plan.division.way is Way.DESCRIBED:
            found = list(files.match_described(files.split()))
        elif plan.division.way is Way.NUMBERED:
            cells = pa.Table.from_batches(list(files.number()), NUMBERED).sort_by("bucket")
            found = list(files.task.match_numbered(cells.to_batches(1)))
        elif plan.division.way is Way.IN_ORDER:
            found = list(match_in_order(sent))
        elif plan.division.way is Way.PACKED:
            parts = [
                packer_of(plan).select(read_unit(sent, n)) for n in range(len(sent.division.units))
            ]
            found = [files.task.work().whole(pa.concat_tables(parts))] if parts else []
        given = pa.concat_tables([plan.bound.output.empty_table(), *found])
        return plan.division.way, len(plan.division.shares), rows(given)


@pytest.mark.parametrize("kind", KINDS)
@examples(10)
@given(
    table=tables(),
    pattern=st.sampled_from(sorted(PATTERNS)),
    keyed=st.booleans(),
    duplicates=st.booleans(),
    numbered=st.booleans(),
    group=st.integers(2, 9),
)
def test_files_give_what_a_table_gives(
    kind: str,
    table: pa.Table,
    pattern: str,
    keyed: bool,
    duplicates: bool,
    numbered: bool,
    group: int,
) -> None:
    query = PATTERNS[pattern].over(KINDS[kind], duplicates=duplicates, numbered=numbered)
    query = query.instances(3, Batches(2)).partition_by(*["key"] * keyed)
    if not duplicates:
        query = query.measures(mine="MATCH_ID()")
    way, _, found = from_files(query, table, group)
    assert way is not Way.ROWS
    assert found == rows(match_windows(query, table))


@pytest.mark.parametrize("kind", DRIFTS)
@examples(4)
@given(table=tables(), keyed=st.booleans(), numbered=st.booleans(), group=st.integers(2, 9))
def test_files_give_what_a_table_gives_where_windows_have_a_drift(
    kind: str, table: pa.Table, keyed: bool, numbered: bool, group: int
) -> None:
    query = replace(DRIFTS[kind], numbered=numbered).partition_by(*["key"] * keyed)
    assert from_files(query, table, group)[2] == rows(match_windows(query, table))


def test_shares_follow_row_groups_and_are_longer_than_what_overlaps_them() -> None:
    table = pa.table({"ts": np.arange(60), "kind": ["a"] * 60})
    query = PATTERNS["next"].measures(first="FIRST(ts)", last="LAST(ts)")
    for windows, shares in ((CountWindows(5, 5), 10), (CountWindows(20, 5), 4)):
        way, count, _ = from_files(query.over(windows), table, 6)
        assert (way, count) == (Way.SHARES, shares)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files_plan, "LARGE_BATCH_ROWS", 12)
        assert from_files(query.over(CountWindows(20, 5)), table, 6)[1] == 5


def test_rows_in_no_order_become_a_frame() -> None:
    table = pa.table({"ts": [9, 1, 8, 2, 5, 6], "id": range(6), "kind": ["a"] * 6, "key": [1] * 6})
    query = PATTERNS["next"].over(KINDS["count"])
    assert from_files(query, table, 2)[0] is Way.ROWS
    assert from_files(query.partition_by("key"), table, 2)[0] is Way.PACKED


def test_only_what_opens_and_closes_windows_is_read_to_split(tmp_path: Path) -> None:
    table = pa.table({"ts": [1, 2], "id": [0, 1], "kind": ["a", "b"], "key": [1, 1]})
    pq.write_table(table, tmp_path / "events.parquet")
    for kind, columns in (("session", ("ts",)), ("between", ("ts", "kind"))):
        query = PATTERNS["next"].over(KINDS[kind])
        plan = plan_files(list_files(parquet(tmp_path)), query)
        assert split_columns(plan) == columns
        assert f"columns read to split: {', '.join(columns)}" in "\n".join(plan.lines())


def test_rows_of_which_nothing_is_read_are_counted() -> None:
    table = pa.table({"x": range(9)})
    query = Query("q").pattern("A B").measures(n="COUNT(*)")
    for windows in (CountWindows(4, 2), landmark()):
        found = from_files(query.over(windows), table, 2)[2]
        assert found == rows(match_windows(query.over(windows), table))
        assert len(found) > 3
