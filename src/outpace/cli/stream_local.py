"""`outpace stream` in process: small sources, fed to a query batch by batch, on the console.

The events of a batch are sorted, and an event before those of an earlier batch is late. As on
Spark, a stream that is stopped has not ended: matches that are still open are not shown. Where
nothing more can come, it has: what waits and what is still open is decided.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.text import Text

from outpace.cli.run_input import TextOptions
from outpace.cli.run_local import TableResult, is_plain
from outpace.cli.run_query import QueryFiles, SqlText
from outpace.cli.stream_feed import RowFeed, feed_of
from outpace.cli.stream_input import StreamInput
from outpace.cli.stream_join import StreamJoin, join_of
from outpace.cli.stream_output import ConsoleWriter
from outpace.cli.stream_query import Additions, Request
from outpace.cli.stream_status import status_view
from outpace.cli.stream_stop import StopRequest
from outpace.cli.top_view import amount, seconds
from outpace.engine.group_spec import joined_rows, joined_schema
from outpace.engine.order.contract import OrderCounters
from outpace.hosts.clock import clock_time
from outpace.hosts.local.group import Results
from outpace.hosts.local.open import open_query
from outpace.hosts.local.stream import StreamMatcher
from outpace.pattern.bind.disorder import SOURCE
from outpace.pattern.bind.query import bind
from outpace.pattern.disorder import InOrder, Speculative
from outpace.pattern.group import group
from outpace.pattern.join import SIDES, Join
from outpace.pattern.query import Query
from outpace.report.table import counted


def why_spark(
    request: Request, inputs: Sequence[StreamInput], additions: Additions, columns: TextOptions
) -> str | None:
    """Say why a query over its inputs needs Spark; None if it runs in process."""
    if additions.sides:
        return "side outputs are written there"
    if isinstance(request, SqlText | Join):
        return _why_join_on_spark(_joined(request, inputs, additions), columns)
    if additions.recovery is not None:
        return "savepoints are kept there"
    if additions.sources:
        return "sources are told apart there"
    if additions.heartbeats is not None:
        return "rows are heartbeats there"
    queries = [request] if isinstance(request, Query) else [query for _, query in request.files]
    if any(one.operator is not None or one.instance_count > 1 or not one.order for one in queries):
        return "the query is divided there"
    feed = feed_of(inputs[0], columns)
    if isinstance(feed, str):
        return feed
    schema = feed.schema

    def output(query: Query) -> pa.Schema:
        return bind(additions.of(query), schema).output

    outputs = [output(request)] if isinstance(request, Query) else request.each(output)
    return _why_not_plain([schema, *outputs])


def _joined(
    request: SqlText | Join, inputs: Sequence[StreamInput], additions: Additions
) -> StreamJoin | None:
    return join_of(additions.of_join(request) if isinstance(request, Join) else request, inputs)


def _why_join_on_spark(joined: StreamJoin | None, columns: TextOptions) -> str | None:
    if joined is None:
        return "a statement runs there"
    feeds = joined.feeds(columns)
    if isinstance(feeds, str):
        return feeds
    return _why_not_plain([joined.output(*(feed.schema for feed in feeds))])


def _why_not_plain(schemas: Iterable[pa.Schema]) -> str | None:
    for field in (field for schema in schemas for field in schema):
        if not is_plain(field.type):
            return f"column '{field.name}' is of type {field.type}"
    return None


@dataclass
class LocalStatus:
    """How a query in process goes."""

    batch: int | None = None
    rows: int = 0
    events: int = 0
    late: int = 0
    unclocked: int = 0
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
        return f"batch {self.batch} in {seconds(self.seconds)}, {rate} events/s, {self.total()}"

    def total(self) -> str:
        """Return what came of all events."""
        late = f", {self.late:,} late" if self.late else ""
        waited = f", {self.unclocked:,} without a clock" if self.unclocked else ""
        return f"{counted(self.rows, 'row')}{late}{waited}"


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

    def push(self, rows: pa.Table, source: str | None = None) -> pa.Table:
        return self._joined(self._group.push(rows, source))

    def wake(self) -> pa.Table:
        return self._joined(self._group.wake())

    def finish(self, source: str | None = None) -> pa.Table:
        return self._joined(self._group.finish(source))

    def _joined(self, results: Results) -> pa.Table:
        for error in self._group.failed.values():
            raise error
        return joined_rows(results, self._columns)


def in_process(
    request: Request, inputs: Sequence[StreamInput], additions: Additions, columns: TextOptions
) -> tuple[Query | QueryFiles | Join, Sequence[RowFeed]]:
    """Return what `run_in_process` runs, and over what, where nothing needs Spark."""
    if isinstance(request, SqlText | Join):
        joined = _joined(request, inputs, additions)
        assert joined is not None
        feeds = joined.feeds(columns)
        assert not isinstance(feeds, str)
        return joined.join, feeds
    feed = feed_of(inputs[0], columns)
    assert not isinstance(feed, str)
    if isinstance(request, QueryFiles):
        return request.changed(additions.of), [feed]
    return additions.of(request), [feed]


def _opened(
    request: Query | QueryFiles | Join, feeds: Sequence[RowFeed], record: Path | None
) -> StreamMatcher | _Together:
    if isinstance(request, Join):
        left, right = (feed.schema for feed in feeds)
        return open_query(request, schema=(left, right), record=record)
    (feed,) = feeds
    if isinstance(request, QueryFiles):
        return _Together(request.changed(_ordered), feed.schema, record)
    return open_query(_ordered(request), schema=feed.schema, record=record)


def run_in_process(
    request: Query | QueryFiles | Join,
    feeds: Sequence[RowFeed],
    writer: ConsoleWriter,
    timing: Mapping[str, Any],
    stop: StopRequest,
    messages: Console,
    record: Path | None = None,
) -> None:
    """Run a query until it is asked to stop, or until nothing more can come.

    Parameters
    ----------
    request, feeds
        What to find in what: one input, or the two sides of a join.
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
    matcher = _opened(request, feeds, record)
    sources = SIDES if isinstance(request, Join) else (None,)
    pause = int(timing.get("processingTime", "0 ").split()[0]) / 1000
    if not pause:
        for feed in feeds:
            feed.freeze()
    going = dict(zip(sources, feeds, strict=True))
    status, awaited = LocalStatus(), _clock_sources(request)
    told = False
    with status_view(messages, status) as view:
        while going and not stop.event.is_set():
            began = time.monotonic()
            pieces = {source: _next(feed, "once" in timing) for source, feed in going.items()}
            found = []
            if matcher.timer is not None and matcher.timer <= clock_time():
                found.append(matcher.wake())
            for source, piece in pieces.items():
                if piece.num_rows:
                    found.append(matcher.push(piece, source))
            for source in [source for source, feed in going.items() if feed.ended]:
                del going[source]
                found.append(matcher.finish(source if going else None))
            if found:
                result = TableResult.of(pa.concat_tables(found))
                shown, rows = result.first_rows(writer.limit)
                if rows:
                    writer.show(shown, rows)
                status.batch = 0 if status.batch is None else status.batch + 1
                status.rows += rows
                status.late = matcher.order.late
                status.events = sum(piece.num_rows for piece in pieces.values())
                status.seconds = time.monotonic() - began
            awaited -= _senders(pieces.values(), awaited)
            came = sum(piece.num_rows for piece in pieces.values())
            status.unclocked = status.unclocked + came if awaited else 0
            if awaited and not told and matcher.order.buffered:
                told = True
                messages.print(Text(_awaiting(awaited, matcher.order.buffered)))
            view.show()
            if going and pause:
                stop.event.wait(max(0.0, pause - (time.monotonic() - began)))
    messages.print(Text(status.total()))


def _clock_sources(request: Query | QueryFiles | Join) -> set[str]:
    """Return the sources whose events move the clock of a query."""
    if isinstance(request, Join):
        return set()
    queries = [request] if isinstance(request, Query) else [query for _, query in request.files]
    disorders = [query.order_of_arrival for query in queries]
    clocks = (one.clock for one in disorders if isinstance(one, Speculative))
    return {clock for clock in clocks if clock is not None}


def _senders(pieces: Iterable[pa.Table], names: set[str]) -> set[str]:
    """Return those of some sources that sent rows of these pieces."""
    if not names:
        return set()
    columns = [piece.column(SOURCE).cast(pa.string()).unique().to_pylist() for piece in pieces]
    return names & {name for column in columns for name in column}


def _awaiting(clocks: set[str], waiting: int) -> str:
    named = " and ".join(f"'{name}'" for name in sorted(clocks))
    return f"{counted(waiting, 'event')} wait: none of {named} has come, which moves the clock"


def _next(feed: RowFeed, whole: bool) -> pa.Table:
    """Return the next batch, or all that there is as one."""
    pieces = [feed.take()]
    while whole and not feed.ended:
        pieces.append(feed.take())
    return pa.concat_tables(pieces)
