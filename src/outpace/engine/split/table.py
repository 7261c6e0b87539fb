"""Splitters over one table of partitions, which kernels read and write.

An event costs the same however many windows are open. Memory: eight integers for each partition
ever seen, three for each window that was open at once (none for count windows that show no times),
and room for the windows that one push opened and closed at most.

Time closes time windows and sessions: a stream is ordered by time over all partitions, so an event
of one of them, or a watermark, tells of all that no more events come for a window. The content of
events opens and closes others, by bits for whole columns; of count windows numbers alone decide.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.arrays import END_OF_TIME, Booleans, Integers
from outpace.engine.evaluate.columns import predicate_mask
from outpace.engine.event import Events
from outpace.engine.kernels import window_table as kernels
from outpace.engine.kernels.window_table import split_by_bits, split_by_session, split_by_time
from outpace.engine.split.splitter import Splitter
from outpace.engine.split.windows import OPEN, Linear, LinearWindows, Split, Windows
from outpace.engine.state import ANY, NATURAL, integers, require
from outpace.errors import StateError
from outpace.pattern.bind.window_kinds import (
    BoundWindows,
    ByContent,
    ByCount,
    ByLandmark,
    BySession,
    ByTime,
)
from outpace.pattern.bound import Predicate

_Value = TypeVar("_Value", bound=np.generic)

NO_EVENTS = np.zeros(0, np.int64)

#: A loop over the rows from `fill` on: it writes the windows that open, and those that close.
Loop: TypeAlias = Callable[[Integers, Integers, Integers], None]

#: Windows that there is room for at first.
ROOM = 64

#: Room grows by this factor at most at once; what is not filled takes no memory.
_GROWTH_MAX = 16.0


#: Where loops write the columns of windows, and what is true of those that are open.
_LINES = {
    "partition": kernels.PARTITION,
    "first": kernels.FROM,
    "stop": kernels.STOP,
    "start_time": kernels.START_TIME,
    "end_time": kernels.END_TIME,
    "closed_at": kernels.CLOSED_AT,
}
_WHILE_OPEN = {"stop": Linear(OPEN), "end_time": Linear(0), "closed_at": Linear(-1)}


class TableSplitter(Splitter):
    """A splitter whose state is a table of partitions and a pool of open windows."""

    CHANGED = ("_table", "_pool")

    #: Whether partitions with open windows wait for time in the ring.
    _in_ring = False

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        self._table = np.zeros((2, kernels.TABLE_COLUMNS), np.int64)
        self._pool = np.zeros((16, kernels.POOL_COLUMNS), np.int64)
        # Windows are written here before they are returned.
        self._opened = np.empty((kernels.OPENED_LINES, ROOM), np.int64)
        self._closed = np.empty((kernels.CLOSED_LINES, ROOM), np.int64)
        #: Columns that follow from the numbers of windows.
        self._known: dict[str, Linear] = {}
        #: Partitions have the lines 1 up to this, exclusively.
        self._lines = 1

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        return int(self._table[1 : self._lines, kernels.OPEN_COUNT].sum())

    @property
    def _queued(self) -> bool:
        """Whether open windows are queued."""
        return True

    @property
    def event_counts(self) -> Integers:
        """How many events each partition has had, by its number."""
        return self._table[1 : self._lines, kernels.EVENTS]

    def _without_windows(self, partitions: Integers) -> Integers:
        """Return those of some partitions that have no open window."""
        idle: Integers = partitions[self._table[partitions + 1, kernels.OPEN_COUNT] == 0]
        return idle

    def _rest(self) -> Split:
        def loop(opened: Integers, closed: Integers, fill: Integers) -> None:
            kernels.close_rest(self._lines, self._arrived, self._table, self._pool, closed, fill)

        return self._split(loop, self._lines)

    def _split(self, loop: Loop, rows: int) -> Split:
        """Run a loop over so many rows; return windows in the order of the contract."""
        opened, closed = self._opened, self._closed
        fill = np.zeros(3, np.int64)
        loop(opened, closed, fill)
        while fill[kernels.ROW] < rows:
            # The rows so far tell how much room all of them may take.
            share = rows / (1 + int(fill[kernels.ROW]))
            if fill[kernels.OPENED] == opened.shape[1]:
                opened = self._opened = enlarged(opened, share)
            elif not kernels.has_room(self._pool):
                self._pool = np.concatenate([self._pool, np.zeros_like(self._pool)])
            else:
                closed = self._closed = enlarged(closed, share)
            loop(opened, closed, fill)
        _, opened_count, closed_count = fill.tolist()
        return Split(
            self._windows(opened[:, :opened_count].copy()),
            self._in_order(closed[:, :closed_count]),
        )

    def _in_order(self, closed: Integers) -> Windows:
        """Return closed windows by the event that closed them, number and partition."""
        order = closed[kernels.CLOSED_AT], closed[kernels.WINDOW], closed[kernels.PARTITION]
        if kernels.in_order_of_closing(*order):
            return self._windows(closed.copy())
        return self._windows(closed[:, np.lexsort(order[::-1])])

    def _windows(self, lines: Integers) -> Windows:
        """Return windows that a loop has written, as many lines of them as there are."""
        numbers = lines[kernels.WINDOW]
        if not len(numbers):
            return Windows.none()
        written = {name: lines[line] for name, line in _LINES.items() if line < len(lines)}
        return LinearWindows(numbers, **{**_WHILE_OPEN, **written, **self._known})

    def _columns(self, events: Events) -> tuple[Integers, Integers, Integers, Integers]:
        """Return partitions, ordinals, arrivals, and the times or nothing where none is shown."""
        times = NO_EVENTS if self.windows.time is None else events.times
        partition, ordinal, arrival = events.partition, events.ordinal, events.arrival
        self._make_lines(partition)
        return as_read(partition), as_read(ordinal), as_read(arrival), as_read(times)

    def _make_lines(self, partition: Integers) -> None:
        """Make room for partitions that were not seen before."""
        highest = int(partition.max()) if self.windows.keyed else 0
        self._lines = max(self._lines, highest + 2)
        if self._lines > len(self._table):
            larger = np.zeros((2 * self._lines, kernels.TABLE_COLUMNS), np.int64)
            larger[: len(self._table)] = self._table
            self._table = larger

    def _tables(self) -> list[pa.Table]:
        """Return what is kept: a line for each partition, and one for each queued window."""
        used = int(self._pool[0, kernels.USED]) + 1
        return [_as_table(self._table[: self._lines]), _as_table(self._pool[:used])]

    def _set_tables(self, tables: Sequence[pa.Table]) -> None:
        """Take over what `_tables` returned."""
        saved_table, saved_pool = tables
        table = _as_matrix(saved_table, kernels.TABLE_COLUMNS)
        pool = _as_matrix(saved_pool, kernels.POOL_COLUMNS)
        links = (table[:, [kernels.HEAD, kernels.TAIL]], pool[:, [kernels.NEXT]])
        ring = table[:, [kernels.BEFORE, kernels.AFTER]]
        if (
            not len(table)
            or not len(pool)
            or any(((link < 0) | (link >= len(pool))).any() for link in links)
            or ((ring < 0) | (ring >= len(table))).any()
            or not kernels.is_consistent(table, pool, self._queued, self._in_ring)
        ):
            raise StateError("the saved state of the windows contradicts itself")
        self._lines = len(table)
        self._table, self._pool = table, pool


def as_read(values: npt.NDArray[_Value]) -> npt.NDArray[_Value]:
    """Return values to read only, one behind the other, whatever they were made from.

    A loop is compiled for each layout that it meets, and waits for that: so it meets one alone.
    """
    whole = np.ascontiguousarray(values).view()
    whole.flags.writeable = False
    return whole


def enlarged(windows: Integers, share: float) -> Integers:
    """Return windows with more room, `share` times as much or so."""
    lines, room = windows.shape
    # Lines a power of two apart would all fall on the same few places of the processor's cache.
    more = int(room * min(max(2.0, 1.1 * share), _GROWTH_MAX)) + 24
    larger = np.empty((lines, more), np.int64)
    larger[:, :room] = windows
    return larger


def _as_table(matrix: Integers) -> pa.Table:
    return pa.table({str(column): matrix[:, column].copy() for column in range(matrix.shape[1])})


def _as_matrix(table: pa.Table, size: int) -> Integers:
    return np.stack(integers(table, **{str(column): ANY for column in range(size)}), axis=1)


class ClockedSplitter(TableSplitter):
    """Windows that time closes, where an event, a watermark or the end of the input tells it."""

    _in_ring = True

    def idle(self, partitions: Integers) -> Integers:
        """Return those of some partitions that have no open window."""
        return self._without_windows(partitions)

    def _push(self, events: Events) -> Split:
        return self._run(*self._columns(events))

    def _pass(self, watermark: int) -> Split:
        # A time without an event: it closes windows, and opens none.
        none = as_read(NO_EVENTS)
        arrival, times = np.array([[self._arrived], [watermark]], np.int64)
        return self._run(none, none, as_read(arrival), as_read(times))

    def _rest(self) -> Split:
        return self._pass(END_OF_TIME)

    @abstractmethod
    def _run(
        self, partition: Integers, ordinal: Integers, arrival: Integers, times: Integers
    ) -> Split:
        """Say what events open and close, and what a time behind them closes."""


class TimeSplitter(ClockedSplitter):
    """Windows `[start, start + size)`."""

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, ByTime)
        self._kind = windows.kind
        start = self._kind.offset
        self._known["start_time"] = Linear(start, self._kind.slide)
        self._known["end_time"] = Linear(start + self._kind.size, self._kind.slide)

    def _run(
        self, partition: Integers, ordinal: Integers, arrival: Integers, times: Integers
    ) -> Split:
        kind = self._kind

        def loop(opened: Integers, closed: Integers, fill: Integers) -> None:
            split_by_time(
                partition,
                ordinal,
                arrival,
                times,
                kind.size,
                kind.slide,
                kind.offset,
                self._table,
                self._pool,
                opened,
                closed,
                fill,
            )

        return self._split(loop, len(times))


class SessionSplitter(ClockedSplitter):
    """Windows that last until `gap` passes without an event of their partition."""

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, BySession)
        self._gap = windows.kind.gap

    def _run(
        self, partition: Integers, ordinal: Integers, arrival: Integers, times: Integers
    ) -> Split:
        def loop(opened: Integers, closed: Integers, fill: Integers) -> None:
            split_by_session(
                partition,
                ordinal,
                arrival,
                times,
                self._gap,
                self._table,
                self._pool,
                opened,
                closed,
                fill,
            )

        return self._split(loop, len(times))


class BitSplitter(TableSplitter):
    """Windows that bits open and close; an event that closes does so for all open ones.

    Memory: three integers for each window opened since the last event that closes.
    """

    def _by_bits(self, events: Events, opens: Booleans, closes: Booleans, *, inside: bool) -> Split:
        """Split events; `inside` says whether a window holds the event that closes it."""
        columns = self._columns(events)
        opens, closes = as_read(opens), as_read(closes)

        def loop(opened: Integers, closed: Integers, fill: Integers) -> None:
            split_by_bits(
                *columns,
                opens,
                closes,
                inside,
                self._table,
                self._pool,
                opened,
                closed,
                fill,
            )

        return self._split(loop, len(events.arrival))


class ContentSplitter(BitSplitter):
    """Windows between an event that opens and one that closes, which is the last event of all."""

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, ByContent)
        self._kind = windows.kind

    def idle(self, partitions: Integers) -> Integers:
        """Return those of some partitions that have no open window."""
        return self._without_windows(partitions)

    def _push(self, events: Events) -> Split:
        opens, closes = bits(self._kind.open, events), bits(self._kind.close, events)
        return self._by_bits(events, opens, closes, inside=True)


class LandmarkSplitter(BitSplitter):
    """Windows from one landmark to the next, which closes the one before and opens its own."""

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, ByLandmark)
        self._at = windows.kind.at

    def idle(self, partitions: Integers) -> Integers:
        """Return those that have no open window; the first event of a partition may count alone."""
        return partitions[:0] if self._at is None else self._without_windows(partitions)

    def _push(self, events: Events) -> Split:
        marks = events.ordinal == 0 if self._at is None else bits(self._at, events)
        return self._by_bits(events, marks, marks, inside=False)


def bits(predicate: Predicate, events: Events) -> Booleans:
    """Return for each event whether it satisfies a predicate on it alone."""
    columns = {name: events.rows.column(name) for name in events.rows.column_names}
    return predicate_mask(predicate, columns, np.array([0, len(events.arrival)]))


class CountSplitter(TableSplitter):
    """Windows of `size` events; one closes with its last event.

    Where no times are asked for, open windows are a range of numbers, and nothing is kept of each.
    """

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, ByCount)
        self._kind = windows.kind
        #: With a negative offset, earlier windows end before the first event.
        self._lowest = max(0, (-self._kind.offset - self._kind.size) // self._kind.slide + 1)
        self._known["first"] = Linear(self._kind.offset, self._kind.slide, least=0)
        if windows.time is None:
            self._known.update(start_time=Linear(0), end_time=Linear(0))

    def _push(self, events: Events) -> Split:
        columns = self._columns(events)
        kind = self._kind

        def loop(opened: Integers, closed: Integers, fill: Integers) -> None:
            kernels.split_by_count(
                *columns,
                kind.size,
                kind.slide,
                kind.offset,
                self._lowest,
                self._table,
                self._pool,
                opened,
                closed,
                fill,
            )

        return self._split(loop, len(events.arrival))

    @property
    def _queued(self) -> bool:
        return self.windows.time is not None

    def _set_tables(self, tables: Sequence[pa.Table]) -> None:
        super()._set_tables(tables)
        lines = self._table[1 : self._lines]
        events, numbers = lines[:, kernels.EVENTS], lines[:, kernels.NUMBER]
        kind = self._kind
        begun = np.maximum((events - 1 - kind.offset) // kind.slide + 1, self._lowest)
        ended = np.maximum((events - kind.offset - kind.size) // kind.slide + 1, 0)
        nonempty = events > 0
        require(((events >= 0) & (events < NATURAL.stop)).all(), "events were not counted")
        require((numbers == np.where(nonempty, begun, 0)).all(), "windows do not fit their events")
        still = np.where(nonempty, begun - np.maximum(ended, self._lowest), 0)
        require((lines[:, kernels.OPEN_COUNT] == still).all(), "windows do not fit their events")

    def _rest(self) -> Split:
        if self.windows.time is not None:
            return super()._rest()
        lines = self._table[1 : self._lines]
        counts = lines[:, kernels.OPEN_COUNT]
        closed = np.empty((kernels.CLOSED_LINES, int(counts.sum())), np.int64)
        partition = np.repeat(np.arange(len(lines)), counts)
        places = np.arange(len(partition)) - np.repeat(np.cumsum(counts) - counts, counts)
        closed[kernels.PARTITION] = partition
        closed[kernels.WINDOW] = (lines[:, kernels.NUMBER] - counts)[partition] + places
        closed[kernels.STOP] = lines[:, kernels.EVENTS][partition]
        closed[kernels.CLOSED_AT] = self._arrived
        return Split(Windows.none(), self._in_order(closed))
