"""Streams on Spark of which savepoints alone are saved: the log is read again where need be."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest
from chaos.processes import workers
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from support import partitioned_log
from support.partitioned_log import PartitionedLog, stream_of
from support.streamed import (
    CHAINED,
    END,
    events,
    kinds,
    ordered,
    read_pieces,
    rows_of,
    run,
    write_pieces,
)

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


class Input(NamedTuple):
    """Where events lie: appends some, makes a stream of them that is matched, trims them."""

    append: Callable[[pa.Table], None]
    found: Callable[[], DataFrame]
    trim: Callable[[dict[str, int]], object]


def blocks(spark: SparkSession, folder: Path, schema: pa.Schema) -> Input:
    log = op.log.create(folder, schema, segment_bytes=2_000)
    return Input(
        partial(append, log),
        lambda: from_log(spark, folder, recovery="replay"),
        lambda first: log.trim(first[""]),
    )


def rows(spark: SparkSession, folder: Path, schema: pa.Schema) -> Input:
    source = spark.readStream.format("outpace.log").option("maxEventsPerTrigger", 200)
    source = source.option("offsetColumn", "at")

    def found() -> DataFrame:
        # What is left out leaves gaps.
        left = source.load(str(folder)).where("kind <> 'd'")
        return op.match(left, QUERY, recovery="replay")

    return blocks(spark, folder, schema)._replace(found=found)


def files(spark: SparkSession, folder: Path, schema: pa.Schema) -> Input:
    folder = folder / "key 1%=ä"

    def append(table: pa.Table) -> None:
        parts = [table.slice(low, 100) for low in range(0, table.num_rows, 100)]
        write_pieces(parts, folder, 10 * table["id"][0].as_py())

    def trim(first: dict[str, int]) -> None:
        needed = {unquote(urlsplit(address).path) for address in first}
        for file in folder.glob("*.parquet"):
            if str(file) not in needed:
                file.unlink()

    found = partial(read_pieces, spark, folder)
    return Input(append, lambda: op.match(found(), QUERY, recovery="replay"), trim)


def partitions(spark: SparkSession, folder: Path, schema: pa.Schema) -> Input:
    log = PartitionedLog(str(folder), schema)

    def found() -> DataFrame:
        return op.match(stream_of(spark, log), QUERY, recovery="replay", log=log)

    def trim(first: dict[str, int]) -> None:
        offsets = {json.loads(part)["partition"]: offset for part, offset in first.items()}
        partitioned_log.trim(log, offsets)

    return Input(partial(partitioned_log.append, log, partitions=2), found, trim)


@pytest.mark.parametrize(
    "make",
    [
        files,
        partitions,
        pytest.param(blocks, marks=pytest.mark.soak),
        pytest.param(rows, marks=pytest.mark.soak),
    ],
)
def test_a_stream_that_lost_its_workers_reads_the_log_again(
    streaming: SparkSession, tmp_path: Path, make: Callable[[SparkSession, Path, pa.Schema], Input]
) -> None:
    table = events(700, 3)
    # Partitions are read one after the other, so that no two events may be at one time.
    times = [*range(0, 1400, 2), END]
    table = table.set_column(1, "ts", pa.array(times))
    source = make(streaming, tmp_path / "log", table.schema)
    source.append(table.slice(0, 400))
    assert max(told(source.found(), tmp_path, "state_bytes")) < 10_000
    kill_workers(streaming)
    first = op.spark.needed(streaming, tmp_path / "checkpoint")
    assert first
    source.trim(first)
    source.append(table.slice(400))
    assert sum(told(source.found(), tmp_path, "replays")) > 0
    expected = op.match(table, QUERY).to_pylist()
    assert ordered(rows_of(streaming, tmp_path)) == ordered(expected)
    assert expected


def test_rows_that_the_log_does_not_give_are_refused(
    streaming: SparkSession, tmp_path: Path
) -> None:
    write_pieces([events(50, 4)], tmp_path / "in")
    computed = read_pieces(streaming, tmp_path / "in").withColumn("id", sf.expr("id + 1"))
    with pytest.raises(StreamingQueryException, match="does not give the events that came"):
        run(op.match(computed, QUERY, recovery="replay"), tmp_path)


def test_what_cannot_be_read_again_is_refused(streaming: SparkSession, tmp_path: Path) -> None:
    table = events(50, 4)
    write_pieces([table], tmp_path / "in")
    files = read_pieces(streaming, tmp_path / "in")
    log = op.log.create(tmp_path / "log", table.schema)
    append(log, table)
    stream = streaming.readStream.format("outpace.log")
    for frame in (files.union(files), stream.load(str(tmp_path / "log"))):
        with pytest.raises(op.UnsupportedError, match="a log that can be read again"):
            op.match(frame, QUERY, recovery="replay")
    lines = PartitionedLog(str(tmp_path / "log"), table.schema)
    with pytest.raises(op.BindError, match="goes by a column 'topic', which the stream has not"):
        op.match(files, QUERY, recovery="replay", log=lines)
    with pytest.raises(op.UnsupportedError, match="a log is read again by a replay alone"):
        op.match(files, QUERY, log=lines)
    with pytest.raises(op.UnsupportedError, match="the matches of another query are no log"):
        op.match(op.match(files, QUERY), CHAINED, recovery="replay")
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
