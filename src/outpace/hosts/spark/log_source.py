"""The data source `outpace.log`: an event log as a stream or as a table, in rows or in blocks.

    spark.readStream.format("outpace.log").option("form", "blocks").load("ticks.log")

Options: `path`; `form`, "rows" (a row for each event, as the log has it) or "blocks" (a row for
each block, for `op.match`); `offsetColumn`, a column of rows for their offsets;
`maxEventsPerTrigger` and `maxBytesPerTrigger`, how much a micro-batch takes at most;
`startingOffset`, "earliest", "latest" or an offset, where a new query begins; `endingOffset`, where
a table ends; `partitions`, how many tasks read at most; `onDamage`, "fail" or "skip".

The offset of a stream is the number of events before it, with the time at which the last of them
came: the same log gives the same offsets, and the same range the same blocks. A task holds one
block; a micro-batch takes no more than its limits, however much the log has.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from outpace.errors import BindError
from outpace.hosts.clock import clock_time
from outpace.ingest.log.blocks import block_starts, read_blocks
from outpace.ingest.log.options import Form, check_start, first_offset, read_options
from outpace.ingest.log.reader import Log, OnDamage
from outpace.ingest.log.segment import Damage

#: The key of the metadata of the column `block` that has the schema of its events.
SCHEMA_KEY: Final = "outpace.schema"
#: And the one that has the name of their time column.
TIME_KEY: Final = "outpace.time"
#: And the one, also of the column with offsets, that says where they can be read again.
LOG_KEY: Final = "outpace.log"
_NUMBERS: Final = ("first", "stop", "events", "least", "greatest", "arrival")


@dataclass
class LogTask(InputPartition):
    """The offsets that one task reads."""

    start: int
    stop: int


def log_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns that the options ask for."""
    settings = read_options(options)
    log = Log.open(settings.path)
    place = {"path": str(log.folder.path), "log": log.folder.salt}
    written = json.dumps({**place, "on_damage": settings.on_damage.value})
    if settings.form is Form.ROWS:
        rows, column = from_arrow_schema(log.schema), settings.offset_column
        if column is None:
            return rows
        if column in log.schema.names:
            raise BindError(
                f"the log has a column '{column}', so offsets need another name",
                where="offsetColumn",
            )
        return rows.add(column, LongType(), False, {LOG_KEY: written})
    about = {
        LOG_KEY: written,
        SCHEMA_KEY: base64.b64encode(log.schema.serialize()).decode(),
        TIME_KEY: log.time,
    }
    block = StructField("block", BinaryType(), nullable=False, metadata=about)
    return StructType([block, *(StructField(name, LongType(), False) for name in _NUMBERS)])


class _LogRanges:
    """What a stream and a table have in common: ranges of offsets, and the rows of each."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = read_options(options)
        self._schema = schema

    def _cut(self, log: Log, start: int, stop: int) -> list[InputPartition]:
        """Cut a range into tasks of about the same size, between blocks."""
        if start >= stop:
            return []
        starts = np.array(block_starts(log, start, stop))
        wanted = np.linspace(start, stop, min(self._options.partitions, len(starts)) + 1)[1:-1]
        edges = {start, stop, *(int(starts[np.abs(starts - place).argmin()]) for place in wanted)}
        return [LogTask(low, high) for low, high in pairwise(sorted(edges))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        if not isinstance(partition, LogTask):
            return  # there are no events, so there is no task of ours
        log = Log.open(self._options.path)
        # What was whole when the batch was planned may be cut by now: then nothing may be left out.
        check_start(log, partition.stop)
        wanted, offsets = to_arrow_schema(self._schema, timezone="UTC"), self._options.offset_column
        skip = self._options.on_damage
        if self._options.form is Form.BLOCKS:
            for block in read_blocks(log, partition.start, partition.stop, on_damage=skip):
                offsets = pa.py_buffer(np.array([0, len(block.data)], np.int32))
                cell = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, block.data])
                numbers = [pa.array([getattr(block, name)], pa.int64()) for name in _NUMBERS]
                yield pa.RecordBatch.from_arrays([cell, *numbers], schema=wanted)
            return
        for first, batch in log.placed(partition.start, partition.stop, on_damage=skip):
            if offsets is not None:
                own = pa.array(np.arange(first, first + batch.num_rows))
                batch = batch.append_column(offsets, own)
            columns = [
                # Spark has no nanoseconds.
                column.cast(field.type, safe=not pa.types.is_timestamp(field.type))
                for column, field in zip(batch.columns, wanted, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)


class LogReader(_LogRanges, DataSourceReader):
    """A log as a table: the events that it has when the reading is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        log = Log.open(self._options.path)
        stop = log.stop if self._options.stop is None else min(self._options.stop, log.stop)
        return self._cut(log, first_offset(log, self._options), stop)


class LogStreamReader(_LogRanges, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A log as a stream."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._log: Log | None = None
        self._target: int | None = None
        self._planned = 0
        self._lost = self._counted = 0

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins."""
        log = self._opened()
        return _offset(log, first_offset(log, self._options))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much a micro-batch takes at most."""
        if self._options.events_max is not None:
            return ReadMaxRows(self._options.events_max)
        assert self._options.bytes_max is not None
        return ReadMaxBytes(self._options.bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is there now for all that there is."""
        self._target = self._opened().refresh()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends; where it begins, if there is nothing new."""
        log = self._opened()
        log.refresh()
        begin = int(start["offset"])
        check_start(log, begin)
        if isinstance(limit, ReadAllAvailable):
            end = log.stop
        else:
            # Spark knows one limit at a time, and this source has two.
            settings = self._options
            end = log.end_of(begin, events=settings.events_max, bytes=settings.bytes_max)
        if self._target is not None:
            end = min(end, max(self._target, begin))
        self._planned = end
        self._count_lost(log, begin, end)
        return start if end == begin else _offset(log, end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return how far the log has come, and how far behind it the query is (`behind`)."""
        log = self._opened()
        log.refresh()
        left = log.behind(self._planned)
        return {
            **_offset(log, log.stop),
            "oldest": left.arrival_us or 0,
            "bytes": left.bytes,
            "lost": self._lost,
            "now": clock_time(),
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch."""
        log = self._opened()
        low, high = int(start["offset"]), int(end["offset"])
        if log.stop < high:
            log.refresh()
        check_start(log, high)
        self._count_lost(log, low, high)
        return self._cut(log, low, high)

    def _count_lost(self, log: Log, start: int, stop: int) -> None:
        """Count what a range has lost: what a task goes on behind, nobody hears of."""
        if stop > self._counted:
            lost: list[Damage] = []
            if self._options.on_damage is OnDamage.SKIP:
                for _ in log.payloads(start, stop, on_damage=OnDamage.SKIP, lost=lost):
                    pass
            else:
                lost = log.crashed(start, stop)
            self._lost += sum(min(part.stop, stop) - max(part.first, start) for part in lost)
            self._counted = stop

    def _opened(self) -> Log:
        # The reader is made in several processes, and only one of them follows the log.
        if self._log is None:
            self._log = Log.open(self._options.path)
        return self._log


@dataclass(frozen=True)
class Lag:
    """How far a query is behind its log.

    Parameters
    ----------
    events, bytes
        What it has not taken yet.
    seconds
        How long the oldest event of that has been waiting; 0 if there is none.
    """

    events: int
    bytes: int
    seconds: float


def behind(end_offset: str | Mapping[str, Any], latest_offset: str | Mapping[str, Any]) -> Lag:
    """Say how far behind a query is, from what a StreamingQueryProgress says of a source.

    Parameters
    ----------
    end_offset, latest_offset
        `sources[i].endOffset` and `sources[i].latestOffset`, as text or read from JSON.

    Examples
    --------
    >>> behind('{"offset": 70, "arrival": 5}', '{"offset": 100, "arrival": 9, "oldest": 1000000, '
    ...        '"bytes": 240, "lost": 0, "now": 3500000}')
    Lag(events=30, bytes=240, seconds=2.5)
    """
    end, latest = _parsed(end_offset), _parsed(latest_offset)
    events = max(0, int(latest["offset"]) - int(end["offset"]))
    if not events:
        return Lag(0, 0, 0.0)
    waited_us = int(latest.get("now", 0)) - int(latest.get("oldest", 0))
    return Lag(events, int(latest.get("bytes", 0)), max(0, waited_us) / 1e6)


def _parsed(offset: str | Mapping[str, Any]) -> Mapping[str, Any]:
    read: Mapping[str, Any] = json.loads(offset) if isinstance(offset, str) else offset
    return read


def _offset(log: Log, offset: int) -> dict[str, Any]:
    return {"offset": offset, "arrival": log.arrival_before(offset)}
