"""Streams on Spark of which savepoints alone are saved: the log is read again where need be."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from chaos.processes import workers
from pyspark.sql import DataFrame, SparkSession
from support.streamed import events, kinds, ordered, read_pieces, rows_of, run, write_pieces

import outpace as op
from outpace.engine.codec.cell import COUNTERS

QUERY = kinds("A -> B -> C").partition_by("key").within(40)


def append(log: op.log.Log, table: pa.Table) -> None:
    with log.writer() as writer:
        for start in range(0, table.num_rows, 50):
            writer.append(table.slice(start, 50))


def from_log(spark: SparkSession, path: Path, **asked: str) -> DataFrame:
    stream = spark.readStream.format("outpace.log").option("maxEventsPerTrigger", 200)
    return op.match(stream.option("form", "blocks").load(str(path)), QUERY, **asked)


def told(frame: DataFrame, folder: Path, counter: str) -> list[int]:
    """Run a stream, and return what its stage counted in each batch."""
    place = 1 + COUNTERS.index(counter)
    progress = [json.loads(one.json) for one in run(frame, folder).recentProgress]
    reports = [
        report
        for one in progress
        for chain in one["observedMetrics"].values()
        for found in chain.values()
        for report in found
    ]
    return [report[place] for report in reports if report[0] == 1]


def kill_workers(spark: SparkSession) -> None:
    """End all Python processes that wait for tasks, and delete what they have left to others."""

    def own(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"session": [os.getsid(0)]})

    # More of them may wait than two cores let work at once.
    (row,) = spark.range(0, 1, 1, 1).mapInArrow(own, "session long").collect()
    waiting = workers(row.session)
    assert waiting
    for worker in waiting:
        worker.kill()
    for file in Path(tempfile.gettempdir(), f"outpace-soft-{os.getuid()}").iterdir():
        file.unlink(missing_ok=True)


def test_a_stream_that_lost_its_workers_reads_the_log_again(
    streaming: SparkSession, tmp_path: Path
) -> None:
    table = events(700, 3)
    log = op.log.create(tmp_path / "log", table.schema)
    append(log, table.slice(0, 400))
    frame = from_log(streaming, tmp_path / "log", recovery="replay")
    assert max(told(frame, tmp_path, "state_bytes")) < 10_000
    kill_workers(streaming)
    append(log, table.slice(400))
    frame = from_log(streaming, tmp_path / "log", recovery="replay")
    assert sum(told(frame, tmp_path, "replays")) > 0
    expected = op.match(table, QUERY).to_pylist()
    assert ordered(rows_of(streaming, tmp_path)) == ordered(expected)
    assert expected


def test_what_cannot_be_read_again_is_refused(streaming: SparkSession, tmp_path: Path) -> None:
    table = events(50, 4)
    write_pieces([table], tmp_path / "in")
    rows = read_pieces(streaming, tmp_path / "in")
    log = op.log.create(tmp_path / "log", table.schema)
    append(log, table)
    stream = streaming.readStream.format("outpace.log")
    for frame in (rows, stream.load(str(tmp_path / "log"))):
        with pytest.raises(op.UnsupportedError, match="a log that can be read again"):
            op.match(frame, QUERY, recovery="replay")
    blocks = stream.option("form", "blocks").load(str(tmp_path / "log"))
    group = op.group(QUERY, replace(QUERY, name="other"))
    with pytest.raises(op.UnsupportedError, match="several queries together"):
        op.match(blocks, group, recovery="replay")  # type: ignore[call-overload]  # refused
    with pytest.raises(op.UnsupportedError, match="only a stream"):
        op.match(table, QUERY, recovery="replay")
    with pytest.raises(op.UnsupportedError, match="there is no recovery 'again'"):
        op.match(blocks, QUERY, recovery="again")  # type: ignore[call-overload]  # refused
    found = op.search(blocks, QUERY, recovery="replay")
    with pytest.raises(op.UnsupportedError, match="time out have no numbers"):
        found.timed_out()
    lines = str(op.explain(QUERY, blocks, recovery="replay"))
    assert "no state is saved but savepoints" in lines
