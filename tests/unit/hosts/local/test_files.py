"""Parquet files matched in process give what a table with their rows gives."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outpace as op
from outpace.explanation.explain import explain
from outpace.files import blocks
from outpace.files.plan import Way
from outpace.hosts.local import files as local_files
from outpace.hosts.local.files import plan_files_here

SIZE = 2000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read each row group on its own, and make several buckets of keys."""
    monkeypatch.setattr(blocks, "UNIT_ROWS", 1)
    monkeypatch.setattr(blocks, "BUCKET_ROWS", 300)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    random = np.random.default_rng(5)
    return pa.table(
        {
            "ts": np.cumsum(random.integers(0, 3, SIZE)),
            "kind": random.integers(0, 3, SIZE),
            "key": [f"k{number}" for number in random.integers(0, 40, SIZE)],
            "x": random.random(SIZE),
        }
    )


def query() -> op.Query:
    found = op.Query("q").order_by("ts").pattern("A -> B+ -> C").within(12)
    found = found.define(A="kind = 0", B="kind = 1 AND x > A.x", C="kind = 2")
    return found.measures(first="FIRST(ts)", last="LAST(ts)", n="COUNT(*)", mean="AVG(B.x)")


QUERIES: dict[str, tuple[Way, Callable[[], op.Query]]] = {
    "ranges": (Way.SHARES, query),
    "next row": (Way.SHARES, lambda: query().skip_to_next_row()),
    "all": (Way.SHARES, lambda: query().pattern("A ->> B ->> C")),
    "numbered": (Way.IN_ORDER, lambda: query().measures(number="MATCH_NUMBER()")),
    "no within": (
        Way.IN_ORDER,
        lambda: op.Query("q").order_by("ts").pattern("A B C").define(A="kind = 0").measures(n="1"),
    ),
    "keys": (Way.PACKED, lambda: query().partition_by("key").within(400)),
    "keys, all rows": (
        Way.PACKED,
        lambda: query().partition_by("key").within(400).all_rows_per_match(),
    ),
    "windows of time": (Way.SHARES, lambda: query().over(op.windows.time(40, slide=15))),
    "windows by count": (Way.SHARES, lambda: query().over(op.windows.count(50, slide=20))),
    "windows of keys": (
        Way.PACKED,
        lambda: query().partition_by("key").within(400).over(op.windows.count(9, slide=4)),
    ),
    "sessions": (Way.IN_ORDER, lambda: query().over(op.windows.session(1))),
    "unsorted": (Way.ROWS, query),
}


def rows_of(found: pa.Table) -> list[str]:
    return sorted(map(repr, found.to_pylist()))


@pytest.mark.parametrize("held", [0, 1 << 28])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_files_have_the_matches_of_their_rows(
    name: str, count: int, held: int, table: pa.Table, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(local_files, "HELD_BYTES", held)
    way, make = QUERIES[name]
    asked = make()
    if way is Way.ROWS:
        table = table.sort_by([("kind", "ascending"), ("ts", "ascending")])
    for part in range(2):
        rows = table.slice(part * SIZE // 2, SIZE // 2)
        pq.write_table(rows, tmp_path / f"{part}.parquet", row_group_size=90)
    files = op.parquet(tmp_path)
    assert plan_files_here(files, asked).division.way is way
    found = op.match(files, asked, spark=False, threads=count)
    expected = op.match(table, asked)
    assert expected.num_rows > 3
    assert found.schema == expected.schema
    assert rows_of(found) == rows_of(expected)
    if name in ("ranges", "next row", "numbered", "no within", "sessions"):
        assert found.equals(expected)


def test_without_a_session_files_are_matched_here(table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "f.parquet")
    found = op.match(op.parquet(tmp_path), query(), spark=False)
    assert isinstance(found, pa.Table)
    text = str(explain(query(), plan_files_here(op.parquet(tmp_path), query())))
    assert "each task reads its share of the row groups" in text


def test_declared_order_is_measured_where_no_footer_tells(table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=90, write_statistics=False)
    assert plan_files_here(op.parquet(tmp_path), query()).division.way is Way.ROWS
    ordered = op.parquet(tmp_path, ordered=True)
    assert plan_files_here(ordered, query()).division.way is Way.SHARES
    assert op.match(ordered, query(), spark=False).equals(op.match(table, query()))


@pytest.mark.parametrize("count", [1, 2])
def test_progress_counts_rows(count: int, table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=90)
    told: list[tuple[int, int]] = []
    op.match(
        op.parquet(tmp_path), query(), spark=False, threads=count,
        progress=lambda *given: told.append(given),
    )  # fmt: skip
    assert told == sorted(told)
    assert all(done <= total == SIZE for done, total in told)
    assert count > 1 or told[-1] == (SIZE, SIZE)


def test_nothing_to_read_is_nothing_found(table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table.slice(0, 0), tmp_path / "f.parquet")
    for asked in (query(), query().partition_by("key")):
        assert op.match(op.parquet(tmp_path), asked, spark=False).num_rows == 0


def test_a_full_disk_is_said_so(table: pa.Table, tmp_path: Path, monkeypatch: Any) -> None:
    class Full(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(28, "No space left on device")

    pq.write_table(table, tmp_path / "f.parquet")
    monkeypatch.setattr(local_files, "HELD_BYTES", 0)
    monkeypatch.setattr(local_files.tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(op.DataError, match="cannot be packed by key into a temporary") as caught:
        op.match(op.parquet(tmp_path), query().partition_by("key"), spark=False)
    assert "No space left" in str(caught.value.detail)
    assert "TMPDIR" in str(caught.value.hint)


def test_only_files_say_where_they_are_matched(table: pa.Table, tmp_path: Path) -> None:
    with pytest.raises(op.UnsupportedError, match="only Parquet files may be matched on Spark or"):
        op.match(table, query(), spark=False)
    with pytest.raises(op.BindError, match="spark is a session of Spark or False, not 'yes'"):
        op.match(op.parquet(tmp_path), query(), spark="yes")
