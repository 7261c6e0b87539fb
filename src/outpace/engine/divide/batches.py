"""Batches of windows for hosts that cannot send an event to several places as it comes.

A batch is a run of consecutive windows that one task matches. It comes with its neighbours: all
windows that share events with its own. A match that several windows find is found by windows that
share its events, so a task that matches the neighbours too knows which window a match counts for,
and gives it only where that is one of its own. So batches are matched side by side, their results
are put together as they are, and each match is there once.

`BatchCutter` cuts the windows that a splitter opens and closes; it holds the windows that are open,
those of the batch being cut and their neighbours. `TimeBatches` tells by arithmetic which batches
an event belongs to, without a splitter and in any order of events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers, rising
from outpace.engine.event import Events
from outpace.engine.message import Deliver
from outpace.engine.rows.times import valid_times
from outpace.engine.split.windows import OPEN, Split, Windows, joined_windows
from outpace.pattern.bind.window_kinds import ByCount

#: How many windows are looked at to find the end of a batch, at first.
_LOOKED_AT: Final = 256


@dataclass(frozen=True)
class WindowBatch:
    """Windows that are matched together.

    Parameters
    ----------
    windows
        The batch's own windows and their neighbours, closed, of one partition.
    first, stop
        The numbers of its own: `first` up to `stop`.
    """

    windows: Windows
    first: int
    stop: int

    @property
    def rows(self) -> tuple[int, int]:
        """The ordinals of the first event that it needs, and of the one behind the last."""
        return int(self.windows.first.min()), int(self.windows.stop.max())

    def delivery(self, rows: pa.Table, time: str | None = None) -> Deliver:
        """Return what an instance is to take: the windows, and their events, which are in order.

        Times are read from a column, where it is given.
        """
        low, high = self.rows
        numbers = rising(low, rows.num_rows)
        only = np.zeros(len(numbers), np.int32), np.zeros(1, np.int64)
        times = numbers[:0] if time is None else valid_times(time, rows.column(time))
        events = Events.of_codes(rows, only, numbers, numbers, times)
        return Deliver(0, events, None, Split(self.windows, self.windows), high, ended=True)


class BatchCutter:
    """Cuts the windows of a stream without keys into batches, in their order.

    Parameters
    ----------
    rows
        A batch ends with the window that makes it so many events long.
    windows
        Or with so many windows, where this is given.
    neighbours
        Whether batches come with their neighbours; without them every window of every batch gives
        its matches.

    Examples
    --------
    >>> first = np.arange(0, 12, 2)
    >>> zeros = np.zeros(6, np.int64)
    >>> pairs = Windows(zeros, np.arange(6), first, first + 3, zeros, zeros, first + 2)
    >>> batches = list(BatchCutter(rows=4).push(Split(pairs, pairs), ended=True))
    >>> [(batch.first, batch.stop, batch.windows.number.tolist()) for batch in batches]
    [(0, 2, [0, 1, 2]), (2, 4, [1, 2, 3, 4]), (4, 6, [3, 4, 5])]
    """

    def __init__(self, rows: int, windows: int | None = None, *, neighbours: bool = True) -> None:
        self._rows = rows
        self._count = windows
        self._neighbours = neighbours
        self._windows = Windows.none()
        #: Windows before this one have been in a batch and are kept as neighbours.
        self._next = 0

    def push(self, split: Split, *, ended: bool = False) -> Iterator[WindowBatch]:
        """Take what a splitter says and yield the batches that are complete.

        Parameters
        ----------
        split
            What opened and closed.
        ended
            Whether that was all, and every window is closed.
        """
        self._windows = joined_windows(self._windows, split.opened)
        self._windows = _with_ends(self._windows, split.closed)
        while (batch := self._cut(ended=ended)) is not None:
            yield batch

    def needed_from(self, arrived: int) -> int:
        """Return the ordinal of the first event that a later batch may need, of those seen."""
        return int(self._windows.first.min()) if len(self._windows) else arrived

    def _cut(self, *, ended: bool) -> WindowBatch | None:
        windows, begin = self._windows, self._next
        size, reach = self._size(ended=ended)
        if not size:
            return None
        low, high = begin, begin + size
        if self._neighbours:
            high = max(high, int(np.searchsorted(windows.first, reach)))
            if (windows.stop[begin:high] == OPEN).any():
                return None
            overlapping = np.flatnonzero(windows.stop[:begin] > windows.first[begin])
            low = int(overlapping[0]) if len(overlapping) else begin
        own = windows.number[begin : begin + size]
        batch = WindowBatch(_slice(windows, low, high), int(own[0]), int(own[-1]) + 1)
        self._forget(begin + size)
        return batch

    def _size(self, *, ended: bool) -> tuple[int, int]:
        """Return how many windows the next batch has, 0 while it is not complete, and its end."""
        windows, begin = self._windows, self._next
        left = len(windows) - begin
        if not left:
            return 0, 0
        end = int(windows.first[begin]) + self._rows
        looked = min(left, self._count or _LOOKED_AT)
        while True:
            reach = np.maximum.accumulate(windows.stop[begin : begin + looked])
            closed = int(np.searchsorted(reach, OPEN))
            size = self._count or int(np.searchsorted(reach[:closed], end)) + 1
            if size <= closed:
                return size, int(reach[size - 1])
            if closed < looked or looked == left:
                return (closed, int(reach[-1])) if ended and closed else (0, 0)
            looked = min(left, 2 * looked)

    def _forget(self, begin: int) -> None:
        """Drop the windows before `begin` that can overlap none from there on."""
        windows = self._windows
        low = begin
        if self._neighbours:
            # A window that is yet to open begins with a later event than all that have.
            following = windows.first[min(begin, len(windows) - 1)]
            overlapping = np.flatnonzero(windows.stop[:begin] > following)
            low = int(overlapping[0]) if len(overlapping) else begin
        self._windows = _slice(windows, low, len(windows))
        self._next = begin - low


@dataclass(frozen=True)
class TimeBatches:
    """Windows of time in batches of equal length; all in units of the time column.

    Batch k has the windows `k * count` up to `(k + 1) * count` for its own.

    Parameters
    ----------
    size, slide, offset
        The windows.
    count
        How many windows of its own a batch has.
    neighbours
        Whether batches come with their neighbours.

    Examples
    --------
    >>> batches = TimeBatches(size=10, slide=5, offset=0, count=2)
    >>> batches.windows(3)
    (5, 9)
    >>> [(number, first, stop) for number, first, stop in batches.slices(np.arange(0, 40, 5))]
    [(-1, 0, 2), (0, 0, 4), (1, 1, 6), (2, 3, 8), (3, 5, 8), (4, 7, 8)]
    """

    size: int
    slide: int
    offset: int
    count: int
    neighbours: bool = True

    @property
    def margin(self) -> int:
        """How many windows before and after its own a batch comes with."""
        return -(-self.size // self.slide) - 1 if self.neighbours else 0

    @property
    def duplication(self) -> float:
        """In how many batches an event is, on average."""
        held = self.size + (self.count - 1 + 2 * self.margin) * self.slide
        return held / (self.count * self.slide)

    def windows(self, batch: int) -> tuple[int, int]:
        """Return the numbers of the first window that a batch comes with, and behind the last."""
        first = batch * self.count
        return first - self.margin, first + self.count + self.margin

    def start(self, batch: int) -> int:
        """Return the first time at which a batch may have events."""
        return self.offset + self.windows(batch)[0] * self.slide

    def end(self, batch: int) -> int:
        """Return the first time behind all events that a batch may have."""
        return self.offset + (self.windows(batch)[1] - 1) * self.slide + self.size

    def slices(self, times: Integers) -> Iterator[tuple[int, int, int]]:
        """Yield the batches that sorted times belong to, and the places of the events of each."""
        if not len(times):
            return
        latest = self.latest(times)
        earliest = (self._first_window(times) - self.margin) // self.count
        numbers = _covered(earliest, latest)
        firsts = np.searchsorted(latest, numbers)
        stops = np.searchsorted(earliest, numbers, side="right")
        for number, first, stop in zip(numbers, firsts, stops, strict=True):
            if first < stop:
                yield int(number), int(first), int(stop)

    def latest(self, times: Integers) -> Integers:
        """Return for each time the last batch that starts at or before it."""
        started = _shifted(times, self.offset) // self.slide
        latest: Integers = (started + self.margin) // self.count
        return latest

    def counts(self, times: Integers) -> tuple[Integers, Integers]:
        """Count sorted times by the last batch that starts at or before each.

        Returns
        -------
        batches
            Their numbers, and those of all batches that the times belong to.
        counts
            How many times; 0 for some of the others.
        """
        latest, counts = np.unique(self.latest(times), return_counts=True)
        held = np.array([number for number, _, _ in self.slices(times)], np.int64)
        others = np.setdiff1d(held, latest)
        return np.concatenate([latest, others]), np.concatenate([counts, np.zeros_like(others)])

    def _first_window(self, times: Integers) -> Integers:
        """Return the first window that ends after each time."""
        return _shifted(times, self.offset + self.size) // self.slide + 1


def count_windows(kind: ByCount, numbers: tuple[int, int], total: int) -> Windows:
    """Return windows of a table by arithmetic, closed, without times.

    Parameters
    ----------
    kind
        The windows.
    numbers
        The number of the first, and the one behind the last, of those that have events.
    total
        How many events the table has.

    Examples
    --------
    >>> windows = count_windows(ByCount(size=4, slide=2, offset=-3), (-9, 9), total=6)
    >>> windows.number.tolist(), windows.first.tolist(), windows.stop.tolist()
    ([0, 1, 2, 3, 4], [0, 0, 1, 3, 5], [1, 3, 5, 6, 6])
    >>> windows.closed_at.tolist()
    [0, 2, 4, 6, 6]
    """
    lowest = max(0, -(kind.offset + kind.size) // kind.slide + 1)
    behind = -(-(total - kind.offset) // kind.slide)
    number = np.arange(max(numbers[0], lowest), min(numbers[1], behind), dtype=np.int64)
    start = kind.offset + number * kind.slide
    end = start + kind.size
    stop = np.minimum(end, total)
    zeros = np.zeros(len(number), np.int64)
    closed_at = np.where(end <= total, stop - 1, total)
    return Windows(zeros, number, np.maximum(start, 0), stop, zeros, zeros, closed_at)


def _slice(windows: Windows, low: int, high: int) -> Windows:
    return Windows(*(column[low:high] for column in windows.columns))


def _with_ends(windows: Windows, closed: Windows) -> Windows:
    """Return windows with what is known of them since some closed."""
    if not len(closed):
        return windows
    places = np.searchsorted(windows.number, closed.number)
    changed = {}
    for name in ("stop", "start_time", "end_time", "closed_at"):
        # Those that came in a message are not ours to change.
        changed[name] = getattr(windows, name).copy()
        changed[name][places] = getattr(closed, name)
    return replace(windows, **changed)


def _shifted(times: Integers, distance: int) -> Integers:
    """Return earlier times; what would be before all times is the first of them."""
    limits = np.iinfo(np.int64)
    low, high = limits.min + max(distance, 0), limits.max + min(distance, 0)
    shifted: Integers = np.clip(times, low, high) - distance
    return shifted


def _covered(lows: Integers, highs: Integers) -> Integers:
    """Return the numbers in intervals whose bounds never fall, both included, each once."""
    some = lows <= highs
    lows, highs = lows[some], highs[some]
    if not len(lows):
        return lows
    begins = np.flatnonzero(np.concatenate([[True], lows[1:] > highs[:-1] + 1]))
    ends = np.append(begins[1:], len(lows)) - 1
    runs = zip(lows[begins].tolist(), highs[ends].tolist(), strict=True)
    return np.concatenate([np.arange(low, high + 1) for low, high in runs])
