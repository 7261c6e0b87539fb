"""Parquet files on Spark: what tasks read and match equals what one table gives in process."""

from __future__ import annotations

import datetime
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from support.file_parity import from_files, in_process, write_files

import outpace as op
from outpace.files import blocks
from outpace.files.parquet import list_files, parquet
from outpace.files.plan import Way
from outpace.hosts.spark.files import plan_session_files, rows_frame
from outpace.pattern.query import Query
from outpace.plan.division import Cut

pytestmark = pytest.mark.usefixtures("spark")


def events(size: int = 3000, least_step: int = 0) -> pa.Table:
    numbers = np.random.default_rng(7)
    start = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)
    seconds = np.cumsum(numbers.integers(least_step, 3, size)).tolist()
    times = [start + datetime.timedelta(seconds=second) for second in seconds]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "kind": numbers.integers(0, 6, size).astype(np.int8),
            "user.name": numbers.integers(0, 5, size),
            "day": np.arange(size) // 1000,
        }
    )


def chain(b: str = "kind = 1") -> Query:
    return (
        Query("chain")
        .order_by("ts")
        .pattern("A -> B -> C")
        .define(A="kind = 0", B=b, C="kind = 2")
        .measures(start="FIRST(ts)", end="LAST(ts)", user='LAST("user.name")')
        .within("40 s")
    )


def in_any_order(table: pa.Table) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in table.to_pylist())


def found(frame: DataFrame) -> list[str]:
    return in_any_order(frame.toArrow())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files of several row groups, each read on its own though they are small."""
    monkeypatch.setattr(blocks, "UNIT_ROWS", 200)
    table = events()
    for number in range(3):
        part = table.slice(1000 * number, 1000)
        pq.write_table(part, tmp_path / f"{number}.parquet", row_group_size=170)
    return tmp_path


@pytest.mark.parametrize(
    "query",
    [
        chain(),
        chain("kind < PREV(kind) + 3").pattern("A B C").all_rows_per_match(),
        replace(chain().skip_to_last("B").limit(50), outputs=()),
        chain().partition_by("user.name"),
    ],
    ids=["by range", "rows of matches", "one task", "by key"],
)
def test_files_give_what_a_table_gives(folder: Path, query: Query) -> None:
    expected = in_any_order(op.match(events(), query))
    assert expected
    assert found(op.match(op.parquet(folder), query)) == expected


def test_parity_of_classic(spark: SparkSession, tmp_path: Path) -> None:
    expected = in_process()
    assert all(len(matches) > 5 for matches in expected.values())
    write_files(tmp_path)
    assert from_files(spark, tmp_path) == expected


def test_an_address_and_columns_from_folders(spark: SparkSession, tmp_path: Path) -> None:
    table = events()
    for day in range(3):
        path = tmp_path / f"day={day}"
        path.mkdir()
        part = table.slice(1000 * day, 1000).drop_columns(["day"])
        pq.write_table(part, path / "part.parquet")
    query = chain("kind = 1 AND day > 0")
    files = op.parquet(f"file://{tmp_path}")
    assert found(op.match(files, query)) == in_any_order(op.match(table, query))
    listing = list_files(files)
    rows = rows_frame(spark, listing, ["day", "user.name"]).toArrow()
    assert rows.num_rows == 3000
    assert sum(rows.column("day").to_pylist()) == 3000


def test_files_on_spark_have_no_threads(spark: SparkSession, folder: Path) -> None:
    query = Query().order_by("ts").pattern("A").measures(n="COUNT(*)")
    with pytest.raises(op.UnsupportedError, match="threads match a table in process"):
        op.match(op.parquet(str(folder)), query, threads=2, spark=spark)


def test_spark_sorts_what_overlaps(spark: SparkSession, folder: Path) -> None:
    table = events(least_step=1)
    shuffled = table.take(np.random.default_rng(3).permutation(3000))
    pq.write_table(shuffled, folder / "0.parquet", row_group_size=300)
    files = op.parquet(str(folder / "0.parquet"))
    plan = plan_session_files(spark, files, chain())
    assert plan.division.way is Way.ROWS
    assert plan.division.cut is Cut.RANGE
    assert found(op.match(files, chain())) == in_any_order(op.match(table, chain()))


def test_a_declared_order_is_measured_where_footers_do_not_tell_it(
    spark: SparkSession, folder: Path
) -> None:
    table = events()
    path = folder / "0.parquet"
    pq.write_table(table, path, row_group_size=300, write_statistics=["kind"])
    assert plan_session_files(spark, parquet(path), chain()).division.way is Way.ROWS
    files = op.parquet(path, ordered=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = plan_session_files(spark, files, chain())
        assert plan.division.way is not Way.ROWS
        assert found(op.match(files, chain())) == in_any_order(op.match(table, chain()))


def test_a_declared_order_that_does_not_hold_is_named(spark: SparkSession, folder: Path) -> None:
    table = events(least_step=1)
    path = folder / "0.parquet"
    parts = [table.slice(0, 700), table.slice(1400, 1600), table.slice(700, 700)]
    moved = pa.concat_tables(parts)
    pq.write_table(moved, path, row_group_size=300, write_statistics=False)
    with pytest.warns(UserWarning, match=r"row group 7 of .*0\.parquet comes before .* sorts"):
        frame = op.match(op.parquet(path, ordered=True), chain())
    assert found(frame) == in_any_order(op.match(moved, chain()))


def test_errors_in_tasks_name_the_row_group(folder: Path) -> None:
    frame = op.match(op.parquet(folder), chain())
    path = folder / "1.parquet"
    data = bytearray(path.read_bytes())
    data[4:2000] = b"\xff" * 1996
    path.write_bytes(data)
    with pytest.raises(Exception, match=r"cannot read row group \d of '.*1\.parquet'"):
        frame.collect()
