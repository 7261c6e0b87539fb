"""The windowed operator in one process: numbering, splitter and one instance, step by step.

Any cut of the input into pushes gives the same matches in the same order. Time that passes without
events closes windows; it decides nothing inside of them. What it closes step by step comes out in
that order: windows of several keys with the same x need not come in the order of y then.

Memory: that of its parts, see there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from outpace.engine.event import Events, no_events
from outpace.engine.match.contract import Progress
from outpace.engine.match.operator import Emitted, kept_columns, prepare
from outpace.engine.split.choose import make_splitter
from outpace.engine.split.feed import Feed, in_order, may_forget
from outpace.engine.split.windows import Split, Windows, joined_windows
from outpace.engine.state import pack, parts, unpack
from outpace.engine.window_match.apply import WindowedApply
from outpace.engine.window_match.matcher import ROWS_IN_STEP, WindowMatcher
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import DataError, StateError, other_type
from outpace.pattern.bind.windows import BoundWindows, bind_windows
from outpace.pattern.bound import BoundQuery
from outpace.pattern.query import Query


class Instance(Protocol):
    """What finds the matches of windows: a pattern's, or a user-defined operator's."""

    def step(
        self, events: Events, split: Split, *, arrived: int | None = None, ended: bool = False
    ) -> WindowMatches:
        """Take events with the windows that they open and close, and return what is final."""
        ...

    def steps(
        self, events: Events, split: Split, *, arrived: int | None = None, ended: bool = False
    ) -> Iterator[WindowMatches]:
        """Take events as `step` does, and yield what is final in parts."""
        ...

    @property
    def horizon(self) -> int:
        """No later match starts before this event."""
        ...

    @property
    def rows_kept(self) -> int:
        """How many rows undecided matches may still need."""
        ...

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        ...

    @property
    def partitions_kept(self) -> int:
        """How many partitions have open windows."""
        ...

    def starts_kept(self) -> int:
        """Count the rows kept that an undecided match may start with."""
        ...

    def earliest(self, time: str) -> int:
        """Return a time, of the column of that name, that no event of open windows is before.

        Only events that later matches may have count. It is the largest integer without any.
        """
        ...

    def state(self) -> bytes:
        """Return all that is kept, as bytes for `restore`."""
        ...

    def restore(self, data: bytes, opened: Windows | None = None) -> None:
        """Go on from bytes that `state` returned; these windows are open, where that is known."""
        ...


class WindowedOperator:
    """A query over windows of a stream that comes piece by piece.

    Parameters
    ----------
    bound, windows
        The query, and its windows.
    instance
        What finds the matches.
    columns
        The columns that the instance reads.
    forgets
        Whether partitions without open windows are forgotten, where nothing that is shown counts
        their events or windows. Then what different keys have at the same time comes in any order.
    """

    def __init__(
        self,
        bound: BoundQuery,
        windows: BoundWindows,
        instance: Instance,
        columns: tuple[str, ...],
        *,
        forgets: bool = False,
    ) -> None:
        self.bound = bound
        self._feed = Feed(bound, windows)
        self._splitter = make_splitter(windows)
        self._instance = instance
        time = () if windows.time is None else (windows.time,)
        wanted = {*columns, *windows.columns, *time}
        self._schema = pa.schema([field for field in bound.schema if field.name in wanted])
        self._forgets = forgets and may_forget(bound, windows)
        self._closed_because = ""

    @property
    def rows_kept(self) -> int:
        """How many rows undecided matches may still need."""
        return self._instance.rows_kept

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        return self._instance.open_windows

    @property
    def partitions_kept(self) -> int:
        """How many partitions have open windows."""
        return self._instance.partitions_kept

    def starts_kept(self) -> int:
        """Count the rows kept that an undecided match may start with; linear in the rows kept."""
        return self._instance.starts_kept()

    def push(self, table: pa.Table) -> Emitted:
        """Take the next rows and return what they make final.

        After an error in the rows nothing is taken; after one in their match, no more rows are.
        """
        self._check_open()
        events = self._feed.number(_fitting(table, self._schema))
        split = self._splitter.push(events)
        self._feed.take(events)
        return self._step(events, split)

    def advance(self, watermark: int) -> Emitted:
        """Promise that no later row has a time before `watermark`; return what became final."""
        self._check_open()
        return self._step(no_events(self._schema), self._splitter.advance(watermark))

    def finish(self) -> Emitted:
        """Say that no more rows come, and return the rest."""
        self._check_open()
        emitted = self._step(no_events(self._schema), self._splitter.finish(), ended=True)
        self._closed_because = "the matcher is finished"
        return emitted

    def state(self) -> bytes:
        """Return all that is kept, as bytes for `restore`."""
        self._check_open()
        states = [self._feed.state(), self._splitter.state(), self._instance.state()]
        rows = self.bound.schema.empty_table()
        return pack({"windows": True}, [pa.table({"part": states}), rows])

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned, maybe in another process."""
        header, tables = unpack(data)
        if not header.get("windows"):
            raise StateError(
                "the saved state belongs to a query without windows",
                hint="resume it with the query that it was saved from, or start from the input",
            )
        saved, _ = tables
        feed, splitter, instance = parts(saved, 3)
        self._feed.restore(feed)
        self._splitter.restore(splitter)
        opened = self._splitter.opened()
        self._feed.require_same(self._splitter, opened)
        self._instance.restore(instance, opened)

    def _step(self, events: Events, split: Split, *, ended: bool = False) -> Emitted:
        self._closed_because = "an earlier push failed"
        matches = self._instance.step(events, split, arrived=self._feed.arrived, ended=ended)
        self._closed_because = ""
        if self._forgets:
            touched = np.union1d(events.partition, split.closed.partition)
            self._feed.forget(self._splitter.idle(touched))
        return Emitted(matches.table, pa.table({}))

    def _check_open(self) -> None:
        if self._closed_because:
            raise DataError(self._closed_because, hint="open a new one for more input")


def windowed_operator(
    query: Query, schema: pa.Schema, *, forgets: bool = False
) -> WindowedOperator:
    """Fit a query over windows to a schema."""
    bound, instance, columns = make_instance(query, schema)
    windows = bind_windows(query, schema)
    return WindowedOperator(bound, windows, instance, columns, forgets=forgets)


class WholeResult(NamedTuple):
    """The matches of a complete table, in their order, and how many there are."""

    table: pa.Table
    matches: int


def match_windows(query: Query, table: pa.Table, progress: Progress | None = None) -> WholeResult:
    """Return the matches of a query in the windows of a complete table."""
    bound, instance, _ = make_instance(query, table.schema)
    windows = bind_windows(query, table.schema)
    return match_whole(bound, windows, instance, table, progress)


def make_instance(query: Query, schema: pa.Schema) -> tuple[BoundQuery, Instance, tuple[str, ...]]:
    """Return the bound query, what finds its matches in windows, and the columns that it reads."""
    if query.operator is not None:
        applied = WindowedApply(query, schema)
        return applied.bound, applied, tuple(schema.names)
    task = prepare(query, schema)
    return task.bound, WindowMatcher(task), kept_columns(task, schema)


def match_whole(
    bound: BoundQuery,
    windows: BoundWindows,
    instance: Instance,
    table: pa.Table,
    progress: Progress | None = None,
) -> WholeResult:
    """Let an instance match all windows of a table at once; `progress` is told of its events."""
    # The table is put in order here, so nobody need look again.
    feed, splitter = Feed(bound, windows, checked=False), make_splitter(windows)
    events = feed.number(in_order(bound, table, windows))
    split = splitter.push(events)
    closed = joined_windows(split.closed, splitter.finish().closed)
    parts = instance.steps(events, Split(split.opened, closed), ended=True)
    # Only the rows are wanted: what else tells matches apart is not put together.
    found = []
    for number, part in enumerate(parts, start=1):
        found.append(WholeResult(part.table, len(part)))
        done = number * ROWS_IN_STEP
        if progress is not None and done < table.num_rows:
            progress(done, table.num_rows)
    if progress is not None:
        progress(table.num_rows, table.num_rows)
    nothing = bound.output.empty_table()
    return WholeResult(
        pa.concat_tables([nothing, *(part.table for part in found)]),
        sum(part.matches for part in found),
    )


def _fitting(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns that are needed; refuse tables that have them not, or otherwise."""
    for field in schema:
        index = table.schema.get_field_index(field.name)
        if index < 0:
            raise DataError(f"the pushed table has no column '{field.name}'")
        found = table.schema.field(index).type
        if found != field.type:
            raise other_type(field.name, found, field.type)
    return table.select(schema.names)
