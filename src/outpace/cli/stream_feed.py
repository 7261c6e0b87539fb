"""Inputs of `outpace stream` that are read in process: each is asked for the next batch.

A batch takes what a micro-batch of Spark would take: what came since the last one, up to the limits
of the source.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from outpace.cli.run_input import DataFormat, TextOptions
from outpace.cli.run_local import BYTES_MAX, read_table
from outpace.cli.stream_input import EVENTS, LOG, StreamInput, local_files, looked_at
from outpace.files.parquet import check_same
from outpace.ingest.event_options import read_options as read_event_options
from outpace.ingest.log.options import check_start, first_offset
from outpace.ingest.log.options import read_options as read_log_options
from outpace.ingest.log.reader import Log
from outpace.report.table import counted_bytes

#: Generated events may come so fast.
RATE_MAX: Final = 100_000


class RowFeed(Protocol):
    """A source of events that is asked for the next batch."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    @property
    def ended(self) -> bool:
        """Whether nothing comes any more."""

    def freeze(self) -> None:
        """Take what is there now for all that there is."""

    def take(self) -> pa.Table:
        """Return the events since the last call, up to the limit of a batch."""


@dataclass
class EventsFeed:
    """Generated events, by the clock."""

    options: Mapping[str, str]

    def __post_init__(self) -> None:
        self.settings = read_event_options(self.options)
        self._began_us = time.time_ns() // 1000
        self._now_us: int | None = None
        self._tick = 0
        self._stream = self.settings.stream
        if self.settings.from_now:
            self._stream = replace(self._stream, beginning_us=self._began_us)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._stream.schema

    def freeze(self) -> None:
        """Let time stand still."""
        self._now_us = time.time_ns() // 1000

    @property
    def ended(self) -> bool:
        """Whether all events came that there are, or that were there when time stood still."""
        return self._tick >= (self._stream.events if self._now_us is None else self._due())

    def _due(self) -> int:
        now = time.time_ns() // 1000 if self._now_us is None else self._now_us
        return (
            self._stream.due(now - self._began_us) if self.settings.paced else self._stream.events
        )

    def take(self) -> pa.Table:
        """Return the events that became due."""
        stop = self._due()
        if stop > self._tick:
            stop = self._stream.delays.cut(self._tick, stop, self.settings.events_max)
        pieces = [self._stream.read(*cut) for cut in self._stream.cuts(self._tick, stop)]
        self._tick = max(self._tick, stop)
        return pa.Table.from_batches(pieces, self.schema)


@dataclass
class LogFeed:
    """An event log, as it grows."""

    path: str
    options: Mapping[str, str]

    def __post_init__(self) -> None:
        self._settings = read_log_options({**self.options, "path": self.path})
        self.log = Log.open(self.path)
        self._next = first_offset(self.log, self._settings)
        self._target: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.log.schema

    @property
    def waiting_bytes(self) -> int:
        """How much the log has that was not taken."""
        return self.log.behind(self._next).bytes

    @property
    def ended(self) -> bool:
        """Whether all was taken that was there."""
        return self._target is not None and self._next >= self._target

    def freeze(self) -> None:
        """Take what is there now for all that there is."""
        self._target = self.log.refresh()

    def take(self) -> pa.Table:
        """Return the next events."""
        self.log.refresh()
        check_start(self.log, self._next)
        settings = self._settings
        stop = self.log.end_of(self._next, events=settings.events_max, bytes=settings.bytes_max)
        if self._target is not None:
            stop = min(stop, max(self._target, self._next))
        found = self.log.read(self._next, stop, on_damage=settings.on_damage)
        self._next = stop
        return found


@dataclass
class FilesFeed:
    """The files of a folder or a glob; new ones are taken as they appear."""

    path: Path
    kind: DataFormat
    columns: TextOptions
    schema: pa.Schema

    def __post_init__(self) -> None:
        self._known_files: set[Path] = set()
        self._frozen: list[Path] | None = None

    @property
    def ended(self) -> bool:
        """Whether all files were taken that were there."""
        return self._frozen is not None and self._known_files.issuperset(self._frozen)

    def freeze(self) -> None:
        """Take what is there now for all that there is."""
        self._frozen = local_files(self.path)

    def take(self) -> pa.Table:
        """Return the rows of new files, the oldest first."""
        found = local_files(self.path) if self._frozen is None else self._frozen
        new = [file for file in found if file not in self._known_files]
        self._known_files.update(new)
        tables = [self.schema.empty_table()]
        for file in sorted(new, key=lambda one: (one.stat().st_mtime_ns, str(one))):
            table = read_table(looked_at(file, self.kind, self.columns, self.schema))
            check_same("the files before it", self.schema, f"'{file}'", table.schema)
            tables.append(table.select(self.schema.names))
        return pa.concat_tables(tables)


def feed_of(source: StreamInput, columns: TextOptions) -> RowFeed | str:
    """Return what reads an input in process, or why it is read on Spark."""
    if source.format == EVENTS:
        events = EventsFeed(source.options)
        if events.settings.blocks:
            return "blocks are read there"
        if events.settings.stream.rate > RATE_MAX:
            return f"there are more than {RATE_MAX:,} events a second"
        return events
    if source.format == LOG:
        assert source.path is not None
        log = LogFeed(source.path, source.options)
        waiting = log.waiting_bytes
        return log if waiting <= BYTES_MAX else f"the log has {counted_bytes(waiting)} to read"
    if source.place is None or not (files := local_files(source.place)):
        return "its files are looked for there"
    if any(one.is_dir() for one in files):
        return "the folder has folders"
    if (size := sum(one.stat().st_size for one in files)) > BYTES_MAX:
        return f"the files have {counted_bytes(size)}"
    kind = DataFormat(source.format)
    schema = looked_at(files[0], kind, columns, source.schema).schema
    return FilesFeed(source.place, kind, columns, schema)
