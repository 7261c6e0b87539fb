"""Splitters of count and time windows of a stream without keys.

The open windows are a range of numbers. Bounds that follow from the numbers are given as such: of
count windows all but times, so a push costs the same however many windows are open, open and close.
Of time windows, each is told the event that it starts with and the one that closes it.

Memory: one integer for each open window (none for count windows that show no times), twice for a
while, and room for the windows that one push opened and closed at most. A queue of integers keeps
arrays as they come, as to fill fresh memory costs more than all else; short ones are put together.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import END_OF_TIME, Integers
from outpace.engine.event import Events
from outpace.engine.kernels import time_windows as kernel
from outpace.engine.snapshot import Stateful
from outpace.engine.split.splitter import Splitter
from outpace.engine.split.table import ROOM, as_read, enlarged
from outpace.engine.split.windows import OPEN, Linear, LinearWindows, Split, Windows
from outpace.engine.state import ANY, integers
from outpace.errors import StateError
from outpace.pattern.bind.window_kinds import BoundWindows, ByCount, ByTime
from outpace.pattern.values import TIME_LIMIT
from outpace.pattern.windows import LARGEST_SPAN

#: Arrays are put together up to so many integers.
_SHORT: Final = 1024


class Queue(Stateful):
    """Integers in the order in which they came.

    Examples
    --------
    >>> queue = Queue()
    >>> queue.add(np.arange(3))
    >>> queue.add(np.array([7, 8]))
    >>> queue.pop(4).tolist(), queue.values.tolist()
    ([0, 1, 2, 7], [8])
    """

    CHANGED = ("_parts",)

    def __init__(self) -> None:
        self._parts: deque[Integers] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> Integers:
        """All that is in it, the oldest first."""
        return np.concatenate([_NOTHING, *self._parts])

    def add(self, values: Integers) -> None:
        """Add integers at the end, which nobody changes any more."""
        if not len(values):
            return
        self._size += len(values)
        if self._parts and len(self._parts[-1]) + len(values) <= _SHORT:
            values = np.concatenate([self._parts.pop(), values])
        self._parts.append(values)

    def pop(self, count: int) -> Integers:
        """Take the oldest `count` integers out."""
        self._size -= count
        taken = [] if count else [_NOTHING]
        while count:
            part = self._parts.popleft()
            taken.append(part[:count])
            if len(part) > count:
                self._parts.appendleft(part[count:])
            count -= len(taken[-1])
        return taken[0] if len(taken) == 1 else np.concatenate(taken)


_NOTHING = np.zeros(0, np.int64)


#: Times, and the numbers of windows, which an offset and a size take further away.
_FAR: Final = range(-TIME_LIMIT - 2 * LARGEST_SPAN, TIME_LIMIT + 2 * LARGEST_SPAN)

_ZERO, _STILL_OPEN, _NOT_CLOSED = Linear(0), Linear(OPEN), Linear(-1)


class UnkeyedSplitter(Splitter):
    """Windows whose open ones are a range of numbers.

    `_numbers` are a few integers that tell how far the stream has come, and `_kept` is one for each
    open window, where numbers do not tell all.
    """

    CHANGED = ("_kept", "_numbers")

    _numbers: Integers

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        self._kept = Queue()

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        return len(self._open(self._numbers))

    @property
    def event_counts(self) -> Integers:
        """How many events each partition has had, by its number."""
        return self._numbers[:1]

    @abstractmethod
    def _open(self, numbers: Integers) -> range:
        """Return the windows that are open when the stream has come so far."""

    def _tables(self) -> list[pa.Table]:
        return [pa.table({"numbers": self._numbers}), pa.table({"kept": self._kept.values})]

    def _set_tables(self, tables: Sequence[pa.Table]) -> None:
        names = [table.column_names for table in tables]
        if names == [["numbers"], ["kept"]] and tables[0].num_rows == len(self._numbers):
            (numbers,), (kept,) = integers(tables[0], numbers=_FAR), integers(tables[1], kept=ANY)
            if len(kept) == (0 if self.windows.time is None else len(self._open(numbers))):
                self._numbers, self._kept = numbers, Queue()
                self._kept.add(kept)
                return
        raise StateError("the saved state of the windows contradicts itself")


class UnkeyedCountSplitter(UnkeyedSplitter):
    """Windows of `size` events; one closes with its last event.

    Where times are shown, the time of the first event of each open window is kept.
    """

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, ByCount)
        self._kind = windows.kind
        #: How many events there were, and the time of the last one.
        self._numbers = np.zeros(2, np.int64)
        self._first = Linear(self._kind.offset, self._kind.slide, least=0)
        self._stop = Linear(self._kind.offset + self._kind.size, self._kind.slide)

    def _open(self, numbers: Integers) -> range:
        events = int(numbers[0])
        return range(self._ended(events), self._begun(events))

    def _begun(self, events: int) -> int:
        """Return how many windows have begun with so many events, by the next one's number."""
        # With a negative offset, some windows begin with the first event.
        begun = (events - 1 - self._kind.offset) // self._kind.slide + 1 if events else 0
        return max(begun, self._ended(0))

    def _ended(self, events: int) -> int:
        """Return how many windows have no event but these, by the next one's number."""
        return max(0, (events - self._kind.offset - self._kind.size) // self._kind.slide + 1)

    def _push(self, events: Events) -> Split:
        before = int(self._numbers[0])
        after = before + len(events.arrival)
        begun = range(self._begun(before), self._begun(after))
        ended = range(self._ended(before), self._ended(after))
        starts: Integers | Linear = _ZERO
        started: Integers | Linear = _ZERO
        ends: Integers | Linear = _ZERO
        self._numbers[0] = after
        if self.windows.time is not None:
            starts = events.times[self._first.of(np.arange(begun.start, begun.stop)) - before]
            ends = events.times[self._stop.of(np.arange(ended.start, ended.stop)) - 1 - before]
            self._kept.add(starts)
            started = self._kept.pop(len(ended))
            self._numbers[1] = events.times[-1]
        stop, last = self._stop, Linear(self._stop.base - 1, self._stop.step)
        return Split(
            self._windows(begun, _STILL_OPEN, starts, _ZERO, _NOT_CLOSED),
            self._windows(ended, stop, started, ends, last),
        )

    def _rest(self) -> Split:
        rest = self._open(self._numbers)
        events, last = (Linear(int(number)) for number in self._numbers)
        timed = self.windows.time is not None
        starts = self._kept.pop(len(rest)) if timed else _ZERO
        return Split(Windows.none(), self._windows(rest, events, starts, last, events))

    def _windows(
        self,
        numbers: range,
        stop: Linear,
        start_time: Integers | Linear,
        end_time: Integers | Linear,
        closed_at: Linear,
    ) -> Windows:
        if not len(numbers):
            return Windows.none()
        return LinearWindows(
            numbers,
            partition=_ZERO,
            first=self._first,
            stop=stop,
            start_time=start_time,
            end_time=end_time,
            closed_at=closed_at,
        )


class UnkeyedTimeSplitter(UnkeyedSplitter):
    """Windows `[start, start + size)`; the first event of each open one is kept."""

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, ByTime)
        self._kind = windows.kind
        self._numbers = np.zeros(3, np.int64)
        self._start = Linear(self._kind.offset, self._kind.slide)
        self._end = Linear(self._kind.offset + self._kind.size, self._kind.slide)
        #: How many windows the last events opened and closed.
        self._room = 0, 0
        # Leaps in the numbers are written here, to be read once.
        self._leaps = np.empty((2, ROOM), np.int64)

    def _open(self, numbers: Integers) -> range:
        _, following, count = numbers.tolist()
        return range(following - count, following)

    def _push(self, events: Events) -> Split:
        waiting = self._open(self._numbers)
        opened, closed, leaps = self._told(events)
        self._kept.add(opened)
        numbers = _rising(waiting.start, len(waiting) + len(opened), len(waiting), leaps)
        first = self._kept.pop(closed.shape[1])
        return Split(
            self._windows(numbers[len(waiting) :], opened, _STILL_OPEN, _NOT_CLOSED),
            self._windows(numbers[: closed.shape[1]], first, *closed),
        )

    def _told(self, events: Events) -> tuple[Integers, Integers, Integers]:
        """Return what events say of windows that open, of those that close, and leaps."""
        columns = as_read(events.ordinal), as_read(events.arrival), as_read(events.times)
        spans = self._kind.size, self._kind.slide, self._kind.offset
        rows = len(events.times)
        # What is returned is not copied, so it has little more room than it needs.
        opened, closed = (
            np.empty((lines, ROOM + last + last // 8), np.int64)
            for lines, last in zip((1, 2), self._room, strict=True)
        )
        fill = np.zeros(4, np.int64)
        while True:
            values = opened[0], closed, self._leaps
            kernel.split_times(*columns, *spans, self._numbers, *values, fill)
            row, opened_count, closed_count, leap_count = fill.tolist()
            if row == rows:
                break
            # The rows so far tell how much room all of them may take.
            share = rows / (1 + row)
            if opened_count == opened.shape[1]:
                opened = enlarged(opened, share)
            elif closed_count == closed.shape[1]:
                closed = enlarged(closed, share)
            else:
                self._leaps = enlarged(self._leaps, share)
        self._room = opened_count, closed_count
        return (
            opened[0, :opened_count],
            closed[:, :closed_count],
            self._leaps[:, :leap_count],
        )

    def _pass(self, watermark: int) -> Split:
        kind, waiting = self._kind, self._open(self._numbers)
        ended = (watermark - kind.offset - kind.size) // kind.slide + 1 - waiting.start
        passed = waiting[: max(0, ended)]
        self._numbers[kernel.COUNT] -= len(passed)
        stop, closed_at = Linear(int(self._numbers[kernel.SEEN])), Linear(self._arrived)
        closed = self._windows(passed, self._kept.pop(len(passed)), stop, closed_at)
        return Split(Windows.none(), closed)

    def _rest(self) -> Split:
        return self._pass(END_OF_TIME)

    def _windows(
        self,
        numbers: Integers | range,
        first: Integers,
        stop: Integers | Linear,
        closed_at: Integers | Linear,
    ) -> Windows:
        if not len(numbers):
            return Windows.none()
        return LinearWindows(
            numbers,
            partition=_ZERO,
            first=first,
            stop=stop,
            start_time=self._start,
            end_time=self._end,
            closed_at=closed_at,
        )


def _rising(begin: int, count: int, waiting: int, leaps: Integers) -> Integers | range:
    """Return so many numbers from `begin` on, with leaps behind those that wait."""
    if leaps.shape[1] and not waiting + leaps[kernel.AFTER, -1]:
        # The first number leaps alone.
        begin, leaps = int(leaps[kernel.NUMBER, -1]), leaps[:, :0]
    if not leaps.shape[1]:
        return range(begin, begin + count)
    after, numbers = leaps
    after = after + waiting
    places = np.arange(count)
    bases = np.concatenate([[begin], numbers - after])
    rising: Integers = places + bases[np.searchsorted(after, places, side="right")]
    return rising
