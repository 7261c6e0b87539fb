"""The data source `outpace.log`: what is appended comes out once, within the limits."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import outpace as op
from outpace.engine.codec.block import read_block
from outpace.hosts.spark.log_source import SCHEMA_KEY, TIME_KEY, LogStreamReader, behind, log_schema
from outpace.ingest.log.options import read_options

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("source", pa.string()),
        ("seq", pa.int64()),
        ("price", pa.float64()),
    ]
)


def events(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "ts": pa.array(1_700_000_000_000_000 + 1000 * numbers, pa.timestamp("us", "UTC")),
            "source": pa.array([f"s{number % 3}" for number in numbers]),
            "seq": pa.array(numbers),
            "price": pa.array(numbers / 4),
        }
    )


@pytest.fixture
def log(tmp_path: Path) -> op.log.Log:
    """A log of 1000 events in frames of 100, in several segments."""
    made = op.log.create(tmp_path / "ticks", SCHEMA, segment_bytes=8000)
    append(made, 0, 1000)
    assert len(made.folder.bases()) > 2
    made.refresh()
    return made


def append(log: op.log.Log, first: int, count: int) -> None:
    with log.writer() as writer:
        for start in range(first, first + count, 100):
            writer.append(events(start, min(100, first + count - start)))


def stream(spark: SparkSession, log: op.log.Log, **options: object) -> DataFrame:
    reader = spark.readStream.format("outpace.log")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(log.folder.path))


def run(frame: DataFrame, folder: Path) -> list[dict[str, Any]]:
    """Run what there is into Parquet files and return the progress of each micro-batch."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "out"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [json.loads(progress.json) for progress in query.recentProgress]


def sequence(spark: SparkSession, folder: Path) -> list[int]:
    return [row.seq for row in spark.read.parquet(str(folder / "out")).orderBy("seq").collect()]


def test_a_stream_of_rows_goes_on_where_it_stopped(
    spark: SparkSession, log: op.log.Log, tmp_path: Path
) -> None:
    frame = stream(spark, log, maxEventsPerTrigger=300)
    done = run(frame, tmp_path)
    taken = [progress["numInputRows"] for progress in done if progress["numInputRows"]]
    assert taken == [300, 300, 300, 100]
    assert sequence(spark, tmp_path) == list(range(1000))
    append(log, 1000, 250)
    run(stream(spark, log), tmp_path)
    assert sequence(spark, tmp_path) == list(range(1250))
    written = spark.read.parquet(str(tmp_path / "out")).orderBy("seq").toArrow()
    assert written.cast(SCHEMA).equals(events(0, 1250))
    source = done[0]["sources"][0]
    lag = behind(source["endOffset"], source["latestOffset"])
    assert lag.events == 700
    assert lag.bytes > 0
    assert lag.seconds > 0
    last = done[-1]["sources"][0]
    assert behind(last["endOffset"], last["latestOffset"]).events == 0


def test_a_stream_of_blocks_has_all_events_and_their_schema(
    spark: SparkSession, log: op.log.Log, tmp_path: Path
) -> None:
    frame = stream(spark, log, form="blocks", maxEventsPerTrigger=450)
    about = frame.schema["block"].metadata
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(about[SCHEMA_KEY])))
    assert schema.equals(SCHEMA)
    assert about[TIME_KEY] == "ts"
    run(frame, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("first").collect()
    assert [(row.first, row.events) for row in rows] == [(0, 400), (400, 400), (800, 200)]
    tables = [pa.table(read_block(pa.py_buffer(bytes(row.block)), schema)) for row in rows]
    assert pa.concat_tables(tables).equals(events(0, 1000))
    for row, table in zip(rows, tables, strict=True):
        times = table["ts"].cast(pa.int64()).to_numpy()
        assert (row.least, row.greatest) == (times.min(), times.max())
        assert row.arrival > 1_600_000_000_000_000


def test_a_table_is_the_log_as_it_is(spark: SparkSession, log: op.log.Log) -> None:
    reader = spark.read.format("outpace.log").option("startingOffset", 150)
    found = reader.option("endingOffset", 950).load(str(log.folder.path))
    assert found.orderBy("seq").toArrow().cast(SCHEMA).equals(events(150, 800))
    blocks = spark.read.format("outpace.log").option("form", "blocks").load(str(log.folder.path))
    assert sum(row.events for row in blocks.select("events").collect()) == 1000


def test_damage_stops_a_stream_or_is_skipped_and_counted(
    spark: SparkSession, log: op.log.Log, tmp_path: Path
) -> None:
    path = log.folder.events_file(log.folder.bases()[1])
    first = log.folder.bases()[1]
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises(StreamingQueryException, match=r"the event log is damaged"):
        run(stream(spark, log), tmp_path)
    append(log, 1000, 100)
    done = run(stream(spark, log, onDamage="skip"), tmp_path)
    lost = range(first, first + 100)
    assert sequence(spark, tmp_path) == [n for n in range(1100) if n not in lost]
    assert done[-1]["sources"][0]["latestOffset"]["lost"] == 100


# Without Spark: the reader itself.


def reader(log: op.log.Log, **options: object) -> LogStreamReader:
    given = {"path": str(log.folder.path)} | {name: str(value) for name, value in options.items()}
    return LogStreamReader(given, StructType(log_schema(given).fields))


def offsets(log: op.log.Log, **options: object) -> list[int]:
    """Return where the micro-batches end."""
    followed = reader(log, **options)
    at = followed.initialOffset()
    ends = [at["offset"]]
    while (after := followed.latestOffset(at, followed.getDefaultReadLimit())) != at:
        at = after
        ends.append(at["offset"])
    return ends


def test_limits_of_events_and_bytes(log: op.log.Log) -> None:
    assert offsets(log) == [0, 1000]
    assert offsets(log, maxEventsPerTrigger=600) == [0, 600, 1000]
    assert offsets(log, maxEventsPerTrigger=60)[:4] == [0, 60, 100, 160]
    assert offsets(log, startingOffset=950, maxEventsPerTrigger=1) == list(range(950, 1001))
    assert offsets(log, startingOffset="latest") == [1000]
    frame = int(next(log.segments()).headers[0]["length"])
    assert offsets(log, maxBytesPerTrigger=4 * frame)[-1] == 1000
    assert max(np.diff(offsets(log, maxBytesPerTrigger=4 * frame))) <= 500
    assert max(np.diff(offsets(log, maxBytesPerTrigger=1))) == 1


def test_available_now_does_not_follow(log: op.log.Log) -> None:
    followed = reader(log, maxEventsPerTrigger=700)
    followed.prepareForTriggerAvailableNow()
    append(log, 1000, 100)
    at, limit = followed.initialOffset(), followed.getDefaultReadLimit()
    ends = []
    for _ in range(4):
        at = followed.latestOffset(at, limit)
        ends.append(at["offset"])
    assert ends == [700, 1000, 1000, 1000]


def test_tasks_share_a_range_without_overlap(log: op.log.Log) -> None:
    followed = reader(log, form="blocks", partitions=3)
    tasks = followed.partitions({"offset": 30}, {"offset": 970})
    assert [(task.start, task.stop) for task in tasks] == [(30, 970)]
    assert followed.partitions({"offset": 30}, {"offset": 30}) == []
    rows = [batch.to_pylist()[0] for task in tasks for batch in followed.read(task)]
    assert [(row["first"], row["events"]) for row in rows] == [(30, 940)]


def test_a_log_that_was_made_anew_is_noticed(log: op.log.Log) -> None:
    with pytest.raises(op.DataError, match="ends at offset 1000, before offset 1001"):
        reader(log).latestOffset({"offset": 1001}, reader(log).getDefaultReadLimit())


@pytest.mark.parametrize("form", ["rows", "blocks"])
def test_a_task_misses_what_was_cut_off_after_its_batch_was_planned(
    log: op.log.Log, form: str
) -> None:
    followed = reader(log, form=form)
    [task] = followed.partitions({"offset": 0}, {"offset": 1000})
    last = log.folder.events_file(log.folder.bases()[-1])
    os.truncate(last, last.stat().st_size - 10)
    with pytest.raises(op.DataError, match="the event log is damaged"):
        list(followed.read(task))


def test_errors_reach_the_user(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="is no event log"):
        spark.read.format("outpace.log").load(str(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a path"),
        ({"path": "x", "from": "rows"}, "did you mean 'form'"),
        ({"path": "x", "form": "row"}, "did you mean 'rows'"),
        ({"path": "x", "maxEventsPerTrigger": "0"}, "from 1 on, not '0'"),
        ({"path": "x", "maxEventsPerTrigger": "9" * 20}, r"below 2\^62"),
        ({"path": "x", "startingOffset": "first"}, "an integer from 0 on, not 'first'"),
        ({"path": "x", "onDamage": "ignore"}, "does not know 'ignore'"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(op.OutpaceError, match=message):
        read_options(options)
