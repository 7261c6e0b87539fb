"""`outpace stream` in process: a small source, fed to a query batch by batch, on the console.

A batch takes what a micro-batch of Spark would take: what came since the last one, up to the limits
of the source. Its events are sorted, and an event before those of an earlier batch is late. As on
Spark, a stream that is stopped has not ended: matches that are still open are not shown.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
from rich.console import Console
from rich.text import Text

from outpace.cli.run_input import DataFormat, TextOptions
from outpace.cli.run_local import BYTES_MAX, TableResult, is_plain, read_table
from outpace.cli.run_query import QueryFiles, SqlText
from outpace.cli.stream_input import EVENTS, LOG, StreamInput, local_files, looked_at
from outpace.cli.stream_output import ConsoleWriter
from outpace.cli.stream_query import Additions, Request
from outpace.cli.stream_status import status_view
from outpace.cli.stream_stop import StopRequest
from outpace.cli.top_view import amount, seconds
from outpace.engine.group_spec import joined_rows, joined_schema
from outpace.engine.order.contract import OrderCounters
from outpace.files.parquet import check_same
from outpace.hosts.clock import clock_time
from outpace.hosts.local.group import Results
from outpace.hosts.local.open import open_query
from outpace.hosts.local.stream import StreamMatcher
from outpace.ingest.event_options import read_options as read_event_options
from outpace.ingest.log.options import check_start, first_offset
from outpace.ingest.log.options import read_options as read_log_options
from outpace.ingest.log.reader import Log
from outpace.pattern.bind.query import bind
from outpace.pattern.disorder import InOrder, Punctuation
from outpace.pattern.group import group
from outpace.pattern.query import Query
from outpace.report.table import counted, counted_bytes

#: Generated events may come so fast.
RATE_MAX: Final = 100_000


def why_spark(
    request: Request, source: StreamInput, additions: Additions, columns: TextOptions
) -> str | None:
    """Say why a query over an input needs Spark; None if it runs in process."""
    if isinstance(request, SqlText):
        return "a statement runs there"
    if additions.sides:
        return "side outputs are written there"
    if additions.sources:
        return "sources are told apart there"
    queries = [request] if isinstance(request, Query) else [query for _, query in request.files]
    if any(one.operator is not None or one.instance_count > 1 or not one.order for one in queries):
        return "the query is divided there"
    if any(isinstance(additions.of(one).order_of_arrival, Punctuation) for one in queries):
        return "the watermark is told there"
    feed = feed_of(source, columns)
    if isinstance(feed, str):
        return feed
    schema = feed.schema

    def output(query: Query) -> pa.Schema:
        return bind(additions.of(query), schema).output

    outputs = [output(request)] if isinstance(request, Query) else request.each(output)
    for field in (*schema, *(field for one in outputs for field in one)):
        if not is_plain(field.type):
            return f"column '{field.name}' is of type {field.type}"
    return None


class RowFeed(Protocol):
    """A source of events that is asked for the next batch."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

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

    def take(self) -> pa.Table:
        """Return the events that became due."""
        now = time.time_ns() // 1000 if self._now_us is None else self._now_us
        paced = self.settings.paced
        stop = self._stream.due(now - self._began_us) if paced else self._stream.events
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


@dataclass
class LocalStatus:
    """How a query in process goes."""

    batch: int | None = None
    rows: int = 0
    events: int = 0
    late: int = 0
    seconds: float = 0.0

    def line(self) -> str:
        """Return how the query goes.

        Examples
        --------
        >>> LocalStatus(3, rows=2, events=50, seconds=0.5).line()
        'batch 3 in 500 ms, 100 events/s, 2 rows'
        """
        if self.batch is None:
            return "waiting for the first events"
        rate = amount(self.events / self.seconds if self.seconds else 0.0)
        rows = counted(self.rows, "row")
        parts = [f"batch {self.batch} in {seconds(self.seconds)}", f"{rate} events/s", rows]
        return ", ".join([*parts, *([f"{self.late:,} late"] if self.late else [])])


def _ordered(query: Query) -> Query:
    return query if query.order_of_arrival is not None else query.disorder(InOrder())


class _Together:
    """Several queries as one, whose rows say which query they are of."""

    def __init__(self, request: QueryFiles, schema: pa.Schema, record: Path | None) -> None:
        outputs = dict(request.each(lambda query: (query.name, bind(query, schema).output)))
        self._columns = joined_schema(outputs)
        queries = group(*(query for _, query in request.files))
        self._group = open_query(queries, schema=schema, record=record)

    @property
    def timer(self) -> int | None:
        return self._group.timer

    @property
    def order(self) -> OrderCounters:
        return self._group.order

    def push(self, rows: pa.Table) -> pa.Table:
        return self._joined(self._group.push(rows))

    def wake(self) -> pa.Table:
        return self._joined(self._group.wake())

    def _joined(self, results: Results) -> pa.Table:
        for error in self._group.failed.values():
            raise error
        return pa.concat_tables(
            joined_rows(name, rows, self._columns) for name, rows in results.items()
        )


def run_in_process(
    request: Query | QueryFiles,
    feed: RowFeed,
    writer: ConsoleWriter,
    timing: Mapping[str, Any],
    stop: StopRequest,
    messages: Console,
    record: Path | None = None,
) -> None:
    """Run a query until it is asked to stop, or as long as there is something where that is meant.

    Parameters
    ----------
    request, feed
        What to find in what.
    writer
        Where rows are shown.
    timing
        When batches run, as Spark is told.
    stop
        Asks to stop.
    messages
        Where it is said how the query goes.
    record
        A new folder for a recording.
    """
    matcher: StreamMatcher | _Together
    if isinstance(request, QueryFiles):
        matcher = _Together(request.changed(_ordered), feed.schema, record)
    else:
        matcher = open_query(_ordered(request), schema=feed.schema, record=record)
    pause = int(timing.get("processingTime", "0 ").split()[0]) / 1000
    if not pause:
        feed.freeze()
    status = LocalStatus()
    with status_view(messages, status) as view:
        while not stop.event.is_set():
            began = time.monotonic()
            events = feed.take()
            found = []
            if matcher.timer is not None and matcher.timer <= clock_time():
                found.append(matcher.wake())
            if events.num_rows:
                found.append(matcher.push(events))
            if found:
                result = TableResult.of(pa.concat_tables(found))
                shown, rows = result.first_rows(writer.limit)
                if rows:
                    writer.show(shown, rows)
                status.batch = 0 if status.batch is None else status.batch + 1
                status.rows += rows
                status.late = matcher.order.late
                status.events, status.seconds = events.num_rows, time.monotonic() - began
            if "once" in timing or ("availableNow" in timing and not events.num_rows):
                break
            view.show()
            if not events.num_rows or pause:
                stop.event.wait(max(0.0, pause - (time.monotonic() - began)))
    messages.print(Text(counted(status.rows, "row")))
