"""The plan of a keyed query over files: columns, buckets, and keys that are too large for one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outpace as op
from outpace.engine.codec.pack import unpack
from outpace.files import blocks
from outpace.files.blocks import bucket_count, pack_units, rows_of_largest_key
from outpace.files.match import read_unit
from outpace.files.parquet import FileList, list_files, parquet
from outpace.files.plan import Way, for_tasks, packer_of, plan_files
from outpace.pattern.query import Query
from outpace.plan.division import Cut
from outpace.plan.window_task import WindowTask

SIZE = 20_000

QUERY = (
    Query("q")
    .partition_by("key")
    .order_by("ts")
    .pattern("A -> B")
    .define(A="kind = 'a'", B="kind = 'b' AND v > A.v")
    .measures(at="LAST(ts)")
)


@pytest.fixture
def files(tmp_path: Path) -> FileList:
    """Half of all rows have the key 0, most others one of their own."""
    numbers = np.random.default_rng(1)
    key = np.where(numbers.random(SIZE) < 0.5, 0, numbers.integers(1, SIZE, SIZE))
    table = pa.table(
        {
            "ts": np.arange(SIZE),
            "key": key,
            "kind": numbers.choice(list("abcd"), SIZE),
            "v": numbers.random(SIZE),
            "unused": np.zeros(SIZE),
        }
    )
    pq.write_table(table, tmp_path / "events.parquet", row_group_size=1500)
    return list_files(parquet(tmp_path))


def test_the_plan_names_what_is_read_and_what_travels(files: FileList) -> None:
    plan = plan_files(files, QUERY)
    assert plan.crossing.columns == ("ts", "key", "kind", "v")
    assert plan.crossing.drop_unused
    assert [(unit.first, unit.stop) for unit in plan.division.units] == [(0, 14)]
    assert plan.lines() == [
        "on Parquet files",
        "  row groups: 14, 0 not read, 0 not searched",
        "  rows: 20000",
        "  columns read: ts, key, kind, v",
        "  tasks pack the rows of row groups by key",
        "  computed where rows are read: A, B",
        "  packed: ts, key, v, __outpace_bits_0; rows that fit no variable stay behind",
        "  divided by key: key; 1 bucket; not by time range: there is no WITHIN",
    ]


def test_what_is_read_and_packed_is_enough_to_match(
    files: FileList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "UNIT_ROWS", 4000)
    monkeypatch.setattr(blocks, "_SPREAD_ROWS", 5000)
    plan = for_tasks(plan_files(files, QUERY))
    assert (plan.division.way, plan.division.buckets) == (Way.PACKED, 4)
    cells = [packer_of(plan).pack(read_unit(plan, n), n) for n in range(len(plan.division.units))]
    stored: dict[int, list[tuple[int, pa.Buffer]]] = {}
    for row in pa.Table.from_batches(cells).to_pylist():
        stored.setdefault(row["bucket"], []).append((row["position"], pa.py_buffer(row["block"])))
    task = WindowTask(plan)
    found = [task.work().whole(unpack(part, task.rows)) for part in stored.values()]
    table = pa.concat_tables([files.read(group, files.schema.names) for group in files.groups])
    expected = sorted(op.match(table, QUERY).to_pylist(), key=repr)
    assert len(expected) > 400
    assert sorted(pa.concat_tables(found).to_pylist(), key=repr) == expected


def test_a_sample_tells_the_rows_of_the_largest_key(files: FileList) -> None:
    assert abs(rows_of_largest_key(files, ["key"]) - SIZE / 2) < SIZE / 20
    assert rows_of_largest_key(files, ["key", "ts"]) < SIZE / 100


def test_a_large_key_is_cut_where_the_query_allows_it(
    files: FileList, monkeypatch: pytest.MonkeyPatch
) -> None:
    within = QUERY.within(10)
    assert plan_files(files, within).division.reason == "there are few rows"
    monkeypatch.setattr(blocks, "BUCKET_ROWS", SIZE // 4)
    assert plan_files(files, within).division.cut is Cut.KEY_AND_RANGE
    assert plan_files(files, within).division.width >= 10
    for query, shuffles in (
        (within, False),
        (within.partition_by("key", "v"), True),
        (QUERY, True),
    ):
        assert plan_files(files, query, shuffles=shuffles).division.cut is Cut.KEY
    numbered = plan_files(files, within.measures(number="MATCH_NUMBER()")).division
    assert (numbered.cut, numbered.reason) == (Cut.KEY, "matches are numbered")


def test_buckets_are_bounded_by_rows_and_by_bytes() -> None:
    assert bucket_count(10**9, 0) == 10**9 // blocks.BUCKET_ROWS
    assert bucket_count(1000, 100 * blocks.BUCKET_BYTES) == 100


def test_units_hold_every_row_group_once() -> None:
    units = pack_units([10] * 5, [blocks.UNIT_BYTES // 2] * 5)
    assert units == ((0, 2), (2, 4), (4, 5))
    assert pack_units([], []) == ()
