"""The data source `outpace.events`: a range of offsets is always the same, whoever reads it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import outpace as op
from outpace.engine.codec.block import read_block
from outpace.hosts.spark.events import EventsReader, EventsStreamReader
from outpace.hosts.spark.log_source import behind
from outpace.ingest.event_options import read_options
from outpace.ingest.event_stream import EventStream

OPTIONS = {"rate": "100", "disorder": "2 s", "delayed": "0.4", "limit": "600"}


def events(reader: EventsReader | EventsStreamReader, tasks: Iterator[object]) -> pa.Table:
    return pa.Table.from_batches(
        [batch for task in tasks for batch in reader.read(task)]  # type: ignore[arg-type]
    )


def at(reader: EventsStreamReader, now_us: int) -> EventsStreamReader:
    reader._clock = lambda: now_us
    return reader


@pytest.mark.parametrize("partitions", ["1", "3"])
def test_a_batch_has_all_events_in_the_order_in_which_they_come(partitions: str) -> None:
    reader = EventsReader(OPTIONS | {"partitions": partitions})
    assert len(reader.partitions()) == int(partitions)
    stream = EventStream(rate=100, delay_us=2_000_000, delayed=0.4, limit=600)
    expected = pa.Table.from_batches([stream.read(0, 600)]).combine_chunks()
    found = events(reader, iter(reader.partitions())).combine_chunks()
    assert found.cast(expected.schema) == expected


def test_micro_batches_keep_to_the_limit_and_cover_the_stream() -> None:
    began = 1_700_000_000_000_000
    reader = at(EventsStreamReader(OPTIONS | {"maxEventsPerTrigger": "70"}), began)
    assert reader.getDefaultReadLimit() == ReadMaxRows(70)
    place, found = reader.initialOffset(), []
    at(reader, began + 60_000_000)
    while (end := reader.latestOffset(place, ReadMaxRows(70))) != place:
        part = events(reader, iter(reader.partitions(place, end)))
        assert 0 < part.num_rows <= 70
        found.append(part)
        place = end
    whole = pa.concat_tables(found)
    assert sorted(whole["seq"].to_pylist()) == list(range(600))
    assert min(whole["ts"].cast(pa.int64()).to_pylist()) == began
    once = at(EventsStreamReader(OPTIONS), began)
    start = once.initialOffset()
    at(once, began + 60_000_000)
    all_of_it = once.latestOffset(start, ReadAllAvailable())
    assert events(once, iter(once.partitions(start, all_of_it))).combine_chunks() == (
        whole.combine_chunks()
    )


def test_the_first_batch_is_the_same_after_a_crash_in_it() -> None:
    first = at(EventsStreamReader(OPTIONS), 1_000_000)
    start = first.initialOffset()
    end = at(first, 4_000_000).latestOffset(start, ReadAllAvailable())
    expected = events(first, iter(first.partitions(start, end)))
    assert expected.num_rows > 200
    again = at(EventsStreamReader(OPTIONS), 9_000_000)
    assert events(again, iter(again.partitions(again.initialOffset(), end))) == expected


def test_the_clock_says_what_is_due_and_how_far_behind_a_query_is() -> None:
    reader = at(EventsStreamReader({"rate": "10", "maxEventsPerTrigger": "5"}), 0)
    assert reader.reportLatestOffset() is None
    start = reader.initialOffset()
    assert at(reader, 50_000).latestOffset(start, ReadAllAvailable())["offset"] == 1
    end = at(reader, 2_950_000).latestOffset(start, ReadMaxRows(5))
    assert end["offset"] == 5
    left = behind(end, reader.reportLatestOffset() or {})
    assert (left.events, left.seconds) == (25, 2.45)
    reader.prepareForTriggerAvailableNow()
    assert at(reader, 60_000_000).latestOffset(end, ReadAllAvailable())["offset"] == 30


def test_a_burst_is_taken_in_bounded_batches_and_the_delay_is_told() -> None:
    # A query that manages 3000 events a second meets ten times the usual thousand for two seconds.
    options = {"rate": "1000", "burst": "10x 2 s every 30 s", "disorder": "500 ms"}
    reader = at(EventsStreamReader(options | {"maxEventsPerTrigger": "3000"}), 0)
    place, now, taken = reader.initialOffset(), 0, 0
    waited = []
    while now < 60_000_000:
        end = at(reader, now).latestOffset(place, reader.getDefaultReadLimit())
        left = behind(end, reader.reportLatestOffset() or {})
        events_in_batch = sum(
            len(reader._settings.stream.delays.arriving(task.first, task.stop))
            for task in reader.partitions(place, end)
        )
        assert events_in_batch <= 3000
        waited.append((now, left.seconds))
        taken, place = taken + events_in_batch, end
        now += max(250_000, events_in_batch * 1_000_000 // 3000)
    calm = [seconds for at_us, seconds in waited if 5_000_000 < at_us < 28_000_000]
    burst = [seconds for at_us, seconds in waited if 30_000_000 < at_us < 40_000_000]
    after = [seconds for at_us, seconds in waited if 45_000_000 < at_us < 58_000_000]
    assert max(calm) == 0
    assert 3 < max(burst) < 5
    assert max(after) == 0
    delays = reader._settings.stream.delays
    assert taken == len(delays.arriving(0, place["offset"]))
    assert taken > 80_000


def test_other_options_than_those_of_the_first_start_are_refused() -> None:
    place = EventsStreamReader(OPTIONS).initialOffset()
    more = EventsStreamReader(OPTIONS | {"partitions": "4", "maxEventsPerTrigger": "9"})
    more.latestOffset(place, ReadAllAvailable())
    with pytest.raises(op.DataError, match="was started with other options"):
        EventsStreamReader(OPTIONS | {"seed": "2"}).latestOffset(place, ReadAllAvailable())


def test_blocks_hold_the_rows_and_say_what_they_hold() -> None:
    asked = OPTIONS | {"start": "2024-05-01T00:00:00"}
    rows = EventsReader(asked)
    blocks = EventsReader(asked | {"form": "blocks", "partitions": "2"})
    schema = read_options(asked).stream.schema
    found = events(blocks, iter(blocks.partitions()))
    unpacked = [pa.table(read_block(cell.as_buffer(), schema)) for cell in found["block"]]
    expected = events(rows, iter(rows.partitions()))
    assert pa.concat_tables(unpacked).combine_chunks() == expected.cast(schema).combine_chunks()
    assert found["first"].to_pylist() == [0, 300]
    assert found["events"].to_pylist() == [part.num_rows for part in unpacked]
    for row, part in zip(found.to_pylist(), unpacked, strict=True):
        times = part["ts"].cast(pa.int64()).to_pylist()
        assert (row["least"], row["greatest"]) == (min(times), max(times))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rat": "1"}, r"no option 'rat'(.|\n)*did you mean 'rate'"),
        ({"rate": "many"}, "'rate' is a whole number of events a second, not 'many'"),
        ({"limit": "0"}, "'limit' is a whole number of events, not '0'"),
        ({"seed": "-1"}, "'seed' is a whole number from 0 on"),
        ({"disorder": "2"}, "a duration needs a unit"),
        ({"delayed": "x"}, "a share from 0 to 1, not 'x'"),
        ({"form": "row"}, "'form' is rows or blocks, not 'row'"),
        ({"start": "today"}, "a time such as 2024-01-02T09:30:00, not 'today'"),
        ({"paced": "false"}, "need an end"),
        ({"kind": "stok"}, "did you mean 'stock'"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(op.OutpaceError, match=message):
        read_options(options)


def test_without_an_end_it_is_no_batch() -> None:
    with pytest.raises(op.BindError, match="cannot be read as a batch"):
        EventsReader({})


def test_spark_reads_a_batch(spark: SparkSession) -> None:
    frame = spark.read.format("outpace.events").options(**OPTIONS, kind="stock", keys=3).load()
    source = read_options(OPTIONS | {"kind": "stock", "keys": "3"}).stream.source
    assert frame.schema == from_arrow_schema(source.table().schema)
    expected = source.table().combine_chunks()
    assert frame.orderBy("seq").toArrow().cast(expected.schema).combine_chunks() == expected
    with pytest.raises(AnalysisException, match="did you mean 'stock'"):
        spark.read.format("outpace.events").option("kind", "stok").load()


def test_a_stream_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    stream = (
        spark.readStream.format("outpace.events")
        .options(**OPTIONS, paced="false", maxEventsPerTrigger="250", partitions="2")
        .load()
    )
    folder = str(tmp_path / "rows")
    writer = (
        stream.writeStream.format("parquet")
        .option("path", folder)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    query = writer.start()
    deadline = time.monotonic() + 120
    while not query.recentProgress and time.monotonic() < deadline:
        time.sleep(0.05)
    query.stop()
    assert spark.read.parquet(folder).count() > 0
    writer.trigger(availableNow=True).start().awaitTermination(120)
    numbers = [row.seq for row in spark.read.parquet(folder).select("seq").collect()]
    assert sorted(numbers) == list(range(600))
