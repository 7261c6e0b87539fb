"""Splitters over one table of partitions, which kernels read and write.

An event costs the same however many windows are open. Memory: eight integers for each partition
ever seen, three for each window that was open at once (none for count windows that show no times),
and room for the windows that one push opened and closed at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.event import Events
from outpace.engine.kernels import windows as kernels
from outpace.engine.kernels.windows import Integers, Matrix
from outpace.engine.split.splitter import Splitter
from outpace.engine.split.windows import OPEN, Linear, LinearWindows, Split, Windows
from outpace.engine.state import ANY, integers
from outpace.errors import StateError
from outpace.pattern.bind.windows import BoundWindows

_Value = TypeVar("_Value", bound=np.generic)

NO_EVENTS = np.zeros(0, np.int64)

#: A loop over the rows from `fill` on: it writes the windows that open, and those that close.
Loop: TypeAlias = Callable[[Matrix, Matrix, Integers], None]

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
    def seen(self) -> Integers:
        """How many events each partition has had, by its number."""
        return self._table[1 : self._lines, kernels.EVENTS]

    def _without_windows(self, partitions: Integers) -> Integers:
        """Return those of some partitions that have no open window."""
        idle: Integers = partitions[self._table[partitions + 1, kernels.OPEN_COUNT] == 0]
        return idle

    def _rest(self) -> Split:
        def loop(opened: Matrix, closed: Matrix, fill: Integers) -> None:
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

    def _in_order(self, closed: Matrix) -> Windows:
        """Return closed windows by the event that closed them, number and partition."""
        order = closed[kernels.CLOSED_AT], closed[kernels.WINDOW], closed[kernels.PARTITION]
        if kernels.in_order_of_closing(*order):
            return self._windows(closed.copy())
        return self._windows(closed[:, np.lexsort(order[::-1])])

    def _windows(self, lines: Matrix) -> Windows:
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


def enlarged(windows: Matrix, share: float) -> Matrix:
    """Return windows with more room, `share` times as much or so."""
    lines, room = windows.shape
    # Lines a power of two apart would all fall on the same few places of the processor's cache.
    more = int(room * min(max(2.0, 1.1 * share), _GROWTH_MAX)) + 24
    larger = np.empty((lines, more), np.int64)
    larger[:, :room] = windows
    return larger


def _as_table(matrix: Matrix) -> pa.Table:
    return pa.table({str(column): matrix[:, column].copy() for column in range(matrix.shape[1])})


def _as_matrix(table: pa.Table, size: int) -> Matrix:
    return np.stack(integers(table, **{str(column): ANY for column in range(size)}), axis=1)
