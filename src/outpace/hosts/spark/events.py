"""The data source `outpace.events`: generated events, as a batch or as a stream at a rate.

    spark.readStream.format("outpace.events").option("kind", "stock").option("rate", 10000).load()

An offset is a number of ticks (`outpace.ingest.event_stream`), and when the stream began. It tells
which events lie before it, so a batch that is read again after a crash is the same. A stream offers
events by the clock from its first start on, also while it is not running.

A task holds the events of one batch of its share, and of the longest delay.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from outpace.engine.codec.block import block_cells, narrow_rows
from outpace.errors import BindError, DataError
from outpace.hosts.clock import clock_time
from outpace.hosts.spark.log_source import SCHEMA_KEY, TIME_KEY
from outpace.ingest.event_options import EventSettings, read_options
from outpace.ingest.source import BATCH_ROWS

#: How many events a block has: enough that what a block costs does not count.
BLOCK_EVENTS: Final = 4 * BATCH_ROWS

#: What goes with a block: its place in the stream, how many events it has, their least and greatest
#: time, and when the last of them came, in microseconds.
BLOCK_COLUMNS: Final = ("first", "events", "least", "greatest", "arrival")


def events_schema(settings: EventSettings) -> StructType:
    """Return the columns that Spark sees."""
    rows = settings.stream.schema
    if not settings.blocks:
        return from_arrow_schema(rows)
    written = base64.b64encode(rows.serialize().to_pybytes()).decode("ascii")
    about = {SCHEMA_KEY: written, TIME_KEY: settings.stream.source.time}
    block = StructField("block", BinaryType(), False, about)
    return StructType([block, *(StructField(name, LongType(), False) for name in BLOCK_COLUMNS)])


@dataclass
class EventShare(InputPartition):
    """The ticks of a task, and when the stream began."""

    first: int
    stop: int
    began_us: int


class EventsReader(DataSourceReader):
    """Makes all events of a stream that ends."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._settings = read_options(options)
        if self._settings.stream.limit is None:
            raise BindError(
                "outpace.events without an end cannot be read as a batch",
                hint='set the option "limit", or use spark.readStream',
            )

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        stream = self._settings.stream
        return _shares(0, stream.events, stream.beginning_us, self._settings.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of a task."""
        return _read(self._settings, partition)


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Makes the events of a stream as they become due."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._settings = read_options(options)
        self._clock: Callable[[], int] = clock_time
        self._began_us: int | None = None
        self._now_us: int | None = None
        self._planned = 0

    def initialOffset(self) -> dict[str, int]:
        """Return where the stream begins, and when that is: at the first call."""
        if self._began_us is None:
            self._began_us = self._clock()
        return self._offset(self._began_us, 0)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much a micro-batch reads at most."""
        return ReadMaxRows(self._settings.events_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let time stand still."""
        self._now_us = self._clock()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return up to where the next micro-batch reads."""
        first, began = self._place(start)
        stop = max(first, self._due(began))
        if isinstance(limit, ReadMaxRows) and stop > first:
            stop = self._settings.stream.delays.cut(first, stop, limit.max_rows)
        self._planned = stop
        return self._offset(began, stop)

    def reportLatestOffset(self) -> dict[str, int] | None:
        """Return up to where events are due, and since when those wait that are not planned yet."""
        if self._began_us is None:
            return None
        oldest = _arrival(self._settings, self._began_us, self._planned + 1)
        due = self._offset(self._began_us, self._due(self._began_us))
        return {**due, "oldest": oldest, "now": self._clock()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch.

        When the stream began is what the end says: Spark writes that down before the first batch,
        but asks for the beginning again after a crash in it.
        """
        stop, began = self._place(end)
        return _shares(start["offset"], stop, began, self._settings.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of a task."""
        return _read(self._settings, partition)

    def _due(self, began_us: int) -> int:
        if not self._settings.paced:
            return self._settings.stream.events
        now = self._clock() if self._now_us is None else self._now_us
        return self._settings.stream.due(now - began_us)

    def _offset(self, began_us: int, tick: int) -> dict[str, int]:
        arrival = _arrival(self._settings, began_us, tick)
        of = self._settings.identity
        return {"offset": tick, "arrival": arrival, "began": began_us, "of": of}

    def _place(self, offset: dict[str, int]) -> tuple[int, int]:
        if offset["of"] != self._settings.identity:
            raise DataError(
                "the stream was started with other options of outpace.events",
                hint="go on with those, or start with a new checkpoint folder",
            )
        self._began_us = offset["began"]
        return offset["offset"], offset["began"]


def _shares(first: int, stop: int, began_us: int, partitions: int) -> list[InputPartition]:
    count = max(1, min(partitions, stop - first))
    edges = [first + (stop - first) * number // count for number in range(count + 1)]
    return [EventShare(begin, end, began_us) for begin, end in pairwise(edges) if begin < end]


def _read(settings: EventSettings, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, EventShare):
        return  # there are no events, so there is no task of ours
    stream = settings.stream
    if settings.from_now:
        stream = replace(stream, beginning_us=partition.began_us)
    wanted = to_arrow_schema(events_schema(settings), timezone="UTC")
    ticks = BLOCK_EVENTS if settings.blocks else BATCH_ROWS
    for first, stop in stream.cuts(partition.first, partition.stop, ticks):
        rows = stream.read(first, stop)
        if settings.blocks and rows.num_rows:
            rows = _block(rows, first, _arrival(settings, partition.began_us, stop))
        if rows.num_rows:
            yield rows.cast(wanted)


def _block(rows: pa.RecordBatch, first: int, arrival_us: int) -> pa.RecordBatch:
    times = rows.column("ts").cast(pa.int64())
    ends = pc.min_max(times).as_py()
    narrow = narrow_rows(dict(zip(rows.schema.names, rows.columns, strict=True)))
    numbers = (first, rows.num_rows, ends["min"], ends["max"], arrival_us)
    columns = {
        name: pa.array([n], pa.int64()) for name, n in zip(BLOCK_COLUMNS, numbers, strict=True)
    }
    return pa.RecordBatch.from_pydict({"block": block_cells([narrow]), **columns})


def _arrival(settings: EventSettings, began_us: int, tick: int) -> int:
    """Return when the last event before a tick came."""
    if not settings.paced or not tick:
        return began_us
    return began_us + settings.stream.elapsed_us(tick - 1)
