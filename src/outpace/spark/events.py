"""The data source `outpace.events`: generated events, as a batch or as a stream at a rate.

    spark.readStream.format("outpace.events").option("kind", "stock").option("rate", 10000).load()

An offset is a number of ticks, see `outpace.ingest.delay`, and when the stream began. It tells
which events lie before it, so a batch that is read again after a crash is the same. A stream offers
events by the clock from its first start on, also while it is not running.

A task holds the events of one batch of its share, and of the longest delay.
"""

from __future__ import annotations

import base64
import datetime
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final

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

from outpace.engine.block import block_cells, narrow_rows
from outpace.errors import BindError, DataError, did_you_mean
from outpace.ingest.event_stream import EventStream, stream_of
from outpace.ingest.source import BATCH_ROWS
from outpace.pattern.duration import parse_duration
from outpace.spark.log_source import EVENTS_PER_TRIGGER, SCHEMA_KEY, TIME_KEY

#: How many events a block has: enough that what a block costs does not count.
BLOCK_EVENTS: Final = 4 * BATCH_ROWS

#: What goes with a block: its place in the stream, how many events it has, their least and greatest
#: time, and when the last of them came, in microseconds.
BLOCK_COLUMNS: Final = ("first", "events", "least", "greatest", "arrival")


@dataclass(frozen=True)
class Settings:
    """What the options say.

    Parameters
    ----------
    stream
        The events.
    partitions
        How many tasks make them.
    events_max
        The most events of one micro-batch.
    blocks
        Whether a row is a block of events.
    paced
        Whether events are offered by the clock; else all of them are there from the beginning.
    from_now
        Whether the first event has the time at which the stream began.
    """

    stream: EventStream
    partitions: int = 1
    events_max: int = EVENTS_PER_TRIGGER
    blocks: bool = False
    paced: bool = True
    from_now: bool = True

    @property
    def schema(self) -> StructType:
        """The columns that Spark sees."""
        rows = self.stream.schema
        if not self.blocks:
            return from_arrow_schema(rows)
        written = base64.b64encode(rows.serialize().to_pybytes()).decode("ascii")
        about = {SCHEMA_KEY: written, TIME_KEY: self.stream.source.time}
        block = StructField("block", BinaryType(), False, about)
        return StructType(
            [block, *(StructField(name, LongType(), False) for name in BLOCK_COLUMNS)]
        )

    @property
    def identity(self) -> int:
        """A number that tells streams of other events apart."""
        told = asdict(self.stream)
        if self.from_now:
            del told["beginning_us"]
        return zlib.crc32(json.dumps(told, sort_keys=True).encode())


@dataclass
class Share(InputPartition):
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
        self._clock: Callable[[], int] = lambda: time.time_ns() // 1000
        self._began_us: int | None = None
        self._now_us: int | None = None
        self._planned = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # the names are Spark's
        """Return where the stream begins, and when that is: at the first call."""
        if self._began_us is None:
            self._began_us = self._clock()
        return self._offset(self._began_us, 0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a micro-batch reads at most."""
        return ReadMaxRows(self._settings.events_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let time stand still."""
        self._now_us = self._clock()

    def latestOffset(  # noqa: N802
        self, start: dict[str, int], limit: ReadLimit
    ) -> dict[str, int]:
        """Return up to where the next micro-batch reads."""
        first, began = self._place(start)
        stop = max(first, self._due(began))
        if isinstance(limit, ReadMaxRows) and stop > first:
            stop = self._settings.stream.delays.cut(first, stop, limit.max_rows)
        self._planned = stop
        return self._offset(began, stop)

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
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


def read_options(options: Mapping[str, str]) -> Settings:
    """Return what options say.

    Examples
    --------
    >>> read_options({"kind": "stock", "rate": "50", "disorder": "2 s"}).stream.delay_us
    2000000
    """
    given = {name.lower(): value for name, value in options.items() if name.lower() != "path"}
    for name in given:
        if name not in _OPTIONS:
            raise BindError(
                f"outpace.events has no option '{name}'",
                hint=did_you_mean(name, _OPTIONS) or f"it has {', '.join(_OPTIONS)}",
            )
    read = {_OPTIONS[name][0]: _value(name, text) for name, text in given.items()}
    own = {name: read.pop(name) for name in _OWN if name in read}
    settings = Settings(stream_of(read), **own, from_now="beginning_us" not in read)
    if not settings.paced and settings.stream.limit is None:
        raise BindError(
            "events that are all there at once need an end", hint='set the option "limit"'
        )
    return settings


def _value(name: str, text: str) -> Any:
    try:
        return _OPTIONS[name][1](text)
    except ValueError as error:
        raise BindError(f"the option '{name}' is {_OPTIONS[name][2]}, not '{text}'") from error


def _natural(text: str) -> int:
    number = int(text)
    if not 1 <= number < 1 << 53:
        raise ValueError(text)
    return number


def _seed(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 32:
        raise ValueError(text)
    return number


def _duration_us(text: str) -> int:
    return parse_duration(text, where="option disorder") // datetime.timedelta(microseconds=1)


def _moment_us(text: str) -> int:
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (moment - epoch) // datetime.timedelta(microseconds=1)


def _one_of(*choices: str) -> Callable[[str], bool]:
    """Return what reads one of two words as whether it is the second."""

    def read(text: str) -> bool:
        if text.lower() not in choices:
            raise ValueError(text)
        return choices.index(text.lower()) == 1

    return read


#: For each option: the setting, what reads it, and what it is.
_OPTIONS: Final[dict[str, tuple[str, Callable[[str], Any], str]]] = {
    "kind": ("kind", str, "a kind of events"),
    "rate": ("rate", _natural, "a whole number of events a second"),
    "burst": ("burst", str, 'written as "10x 5 s every 60 s"'),
    "seed": ("seed", _seed, "a whole number from 0 on"),
    "disorder": ("delay_us", _duration_us, "a duration"),
    "delayed": ("delayed", float, "a share from 0 to 1"),
    "keys": ("keys", _natural, "a whole number"),
    "types": ("types", str, "characters"),
    "limit": ("limit", _natural, "a whole number of events"),
    "start": ("beginning_us", _moment_us, "a time such as 2024-01-02T09:30:00"),
    "partitions": ("partitions", _natural, "a whole number"),
    "maxeventspertrigger": ("events_max", _natural, "a whole number of events"),
    "form": ("blocks", _one_of("rows", "blocks"), "rows or blocks"),
    "paced": ("paced", _one_of("false", "true"), "true or false"),
}
_OWN: Final = ("partitions", "events_max", "blocks", "paced")


def _shares(first: int, stop: int, began_us: int, partitions: int) -> list[InputPartition]:
    count = max(1, min(partitions, stop - first))
    edges = [first + (stop - first) * number // count for number in range(count + 1)]
    return [Share(begin, end, began_us) for begin, end in pairwise(edges) if begin < end]


def _read(settings: Settings, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, Share):
        return  # there are no events, so there is no task of ours
    stream = settings.stream
    if settings.from_now:
        stream = replace(stream, beginning_us=partition.began_us)
    wanted = to_arrow_schema(settings.schema, timezone="UTC")
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


def _arrival(settings: Settings, began_us: int, tick: int) -> int:
    """Return when the last event before a tick came."""
    if not settings.paced or not tick:
        return began_us
    return began_us + settings.stream.elapsed_us(tick - 1)
