"""Sinks that follow changes: a table of PostgreSQL and a folder have the matches that are there."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import sql
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from support.streamed import read_pieces, write_pieces

import outpace as op

COUNTER = itertools.count()
Sink = Callable[[DataFrame, int], None]

RISE = (
    op.Query("rise")
    .partition_by("key")
    .order_by("ts")
    .pattern("A B")
    .define(B="v > A.v")
    .measures(low="A.v", high="B.v", number="MATCH_NUMBER()")
    .skip_to_next_row()
)


@pytest.fixture
def table() -> str:
    """The name of a table that no other test has."""
    return f"Present {next(COUNTER)}"


def in_table(dsn: str, table: str, columns: str = "*") -> list[dict[str, Any]]:
    with psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as connection:
        asked = sql.SQL(f"SELECT {columns} FROM {{}} ORDER BY match_id")
        return list(connection.execute(asked.format(sql.Identifier(table))))


def in_folder(folder: Path) -> list[dict[str, Any]]:
    return sorted(pq.read_table(folder).to_pylist(), key=lambda row: str(row["match_id"]))


def changes(spark: SparkSession, *rows: tuple[str, int, int, bool]) -> DataFrame:
    schema = "match_id string, x int, diff bigint, confirmed boolean"
    return spark.createDataFrame(list(rows), schema).coalesce(1)


STEPS: tuple[tuple[tuple[str, int, int, bool], ...], ...] = (
    (("a", 1, 1, False), ("b", 2, 1, False), ("c", 3, 1, True)),
    # In one batch a match may go, come again as another one, and be confirmed.
    (("a", 1, -1, False), ("a", 5, 1, False), ("a", 5, 0, True), ("d", 4, 1, False)),
    (),
    (("b", 2, -1, False), ("d", 4, 0, True), ("e", 6, 1, False), ("e", 6, -1, False)),
)
VERSIONS = (
    [("a", 1, False), ("b", 2, False), ("c", 3, True)],
    [("a", 5, True), ("b", 2, False), ("c", 3, True), ("d", 4, False)],
    [("a", 5, True), ("c", 3, True), ("d", 4, True)],
)
PRESENT = VERSIONS[-1]


def read_on(folder: Path, read: set[frozenset[Any]], done: threading.Event) -> None:
    """Note what a reader finds in a folder, again and again."""
    while not done.wait(0.01):
        if folder.exists():
            rows = in_folder(folder.resolve())
            read.add(frozenset(tuple(row.values()) for row in rows))


def test_both_have_what_all_changes_leave_and_take_a_batch_once(
    spark: SparkSession, postgres: str, table: str, tmp_path: Path
) -> None:
    folder = tmp_path / "present"
    sinks: list[Sink] = [
        op.spark.postgres.writer(postgres, f'"{table}"', stream="s", current=True),
        op.spark.current.writer(folder, stream="s"),
    ]
    read, done = set[frozenset[Any]](), threading.Event()
    reader = threading.Thread(target=read_on, args=(folder, read, done))
    reader.start()
    for batch, step in enumerate(STEPS):
        for sink in sinks:
            sink(changes(spark, *step), batch)
            sink(changes(spark, *step), batch)
        if batch == 0:
            with psycopg.connect(postgres, autocommit=True) as connection:
                added = sql.SQL("ALTER TABLE {} ADD COLUMN note text DEFAULT 'mine'")
                connection.execute(added.format(sql.Identifier(table)))
    done.set()
    reader.join()
    assert len(read) > 1
    assert read <= {frozenset(one) for one in VERSIONS}, "a reader sees a batch, and all of it"
    found = in_table(postgres, table)
    assert [tuple(row.values()) for row in found] == [(*row, "mine") for row in PRESENT]
    assert [tuple(row.values()) for row in in_folder(folder)] == PRESENT
    assert spark.read.parquet(str(folder)).count() == len(PRESENT)
    versions = sorted(one.name for one in (tmp_path / ".present.versions").iterdir())
    assert versions == ["000000000001", "000000000003"], "the last one stays for its readers"
    with pytest.raises(op.StateError, match="batch 1 cannot be written after batch 3"):
        sinks[1](changes(spark), 1)
    with pytest.raises(op.StateError, match="the folder is that of the stream 's'"):
        op.spark.current.writer(folder, stream="other")(changes(spark), 4)


def test_rows_that_do_not_tell_changes_are_refused(
    spark: SparkSession, postgres: str, table: str, tmp_path: Path
) -> None:
    to_table = op.spark.postgres.writer(postgres, f'"{table}"', stream="s", current=True)
    to_folder = op.spark.current.writer(tmp_path / "present", stream="s")
    for sink in (to_table, to_folder):
        with pytest.raises(op.DataError, match="no column 'diff'"):
            sink(changes(spark).drop("diff"), 0)
    several = changes(spark, ("a", 1, 1, False), ("a", 2, 1, False))
    with pytest.raises(op.DataError, match="the match a has several rows"):
        to_table(several, 0)
    to_folder(several, 0)
    to_folder(changes(spark, ("a", 1, 0, True), ("a", 2, 0, True), ("b", 1, 1, False)), 1)
    assert [(row["x"], row["confirmed"]) for row in in_folder(tmp_path / "present")] == [
        (1, True),
        (2, True),
        (1, False),
    ]
    with pytest.raises(op.DataError, match="holds something else"):
        op.spark.current.writer(tmp_path, stream="s")(changes(spark), 0)
    (tmp_path / "present" / "_outpace.json").write_text("{")
    with pytest.raises(op.StateError, match=r"(?s)is not whole.*name a new folder and"):
        to_folder(changes(spark), 2)
    with pytest.raises(op.DataError, match="has no links"):
        op.spark.current.writer("s3://bucket/present")


def drawn() -> list[pa.Table]:
    """Events of which some come late, in pieces."""
    rows = [
        {"ts": n, "key": "ab"[n % 2], "v": n * 7 % 10, "at": n + (9 if n % 5 == 0 else 0)}
        for n in range(60)
    ]
    rows.sort(key=lambda row: row["at"])
    return [pa.Table.from_pylist(rows[low : low + 15]) for low in range(0, 60, 15)]


@pytest.mark.parametrize("emission", ["changes", pytest.param("latest", marks=pytest.mark.soak)])
def test_a_stream_that_crashes_leaves_the_present_matches(
    streaming: SparkSession, postgres: str, table: str, tmp_path: Path, emission: str
) -> None:
    query = RISE.disorder(op.Speculative(12, alpha=0)).emit(emission)
    to_table = op.spark.postgres.writer(postgres, f'"{table}"', current=True)
    to_folder = op.spark.current.writer(tmp_path / "present")
    pieces = drawn()

    def run(crash: bool) -> None:
        def both(frame: DataFrame, batch: int) -> None:
            to_table(frame, batch)
            to_folder(frame, batch)
            if crash:
                raise RuntimeError("killed here")

        found = op.match(read_pieces(streaming, tmp_path / "in"), query)
        going = (
            found.writeStream.foreachBatch(both)
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        going.awaitTermination()

    write_pieces(pieces, tmp_path / "in")
    with pytest.raises(StreamingQueryException, match="killed here"):
        run(crash=True)
    run(crash=False)
    stream, present = op.open(query), op.CurrentMatches()
    told = [stream.push(piece) for piece in pieces]
    for one in told:
        present.apply(one)
    assert any(-1 in one["diff"].to_pylist() for one in told)
    expected = sorted(present.table.to_pylist(), key=lambda row: str(row["match_id"]))
    assert in_table(postgres, table) == expected
    assert in_folder(tmp_path / "present") == expected
