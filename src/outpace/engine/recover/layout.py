"""The windows that matches may still come of, by the numbers of their events.

A window is of no more use when it has closed, and every match of it comes before the first one that
is not acknowledged. Numbers of events stay what they are when others between them are skipped, so
a replay is told which windows there were, and opens and closes them at the same events.

Memory: eight integers for each window.
Paper: Lima et al., section III-B2 and, for windows that count events, III-B5.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.event import Events
from outpace.engine.kernels.grouping import find_pairs
from outpace.engine.savepoint import MatchPlace, is_behind
from outpace.engine.snapshot import Stateful
from outpace.engine.split.windows import OPEN, Split, Windows
from outpace.engine.state import ANY, NATURAL, State, integer, integers, require
from outpace.engine.window_match.result import CLOSING, COMPLETING

#: What is known of a window: `first` and `last` are the numbers of its events among all.
_COLUMNS: Final = (
    *("partition", "number", "first", "last"),
    *("start_time", "end_time", "closed_at", "turn"),
)


class WindowLayout(Stateful):
    """Windows, by partition and number.

    Parameters
    ----------
    keyed
        Whether there are partitions.
    every
        Whether each window gives its matches, also those that another window has given. Where it
        does not, windows that share events with those of use are kept, as they may have given them.
    by_time
        Whether matches of windows that close together are in the order of the windows' ends, not of
        their numbers.
    """

    def __init__(self, *, keyed: bool, every: bool, by_time: bool = False) -> None:
        self._keyed, self._every, self._by_time = keyed, every, by_time
        self._windows = np.zeros((len(_COLUMNS), 0), np.int64)
        #: The first event that has closed a window; `OPEN` where none has.
        self._closed_at = OPEN

    def __len__(self) -> int:
        return self._windows.shape[1]

    def take(self, events: Events, split: Split, turn: int) -> Integers:
        """Take the windows that open and close, and return the events that make them do so.

        The turn is that of what closes, see `MatchPlace`.
        """
        opened, closed = split.opened, split.closed
        begun = _numbers_of(events, opened.partition, opened.first, keyed=self._keyed)
        if len(opened) or len(closed):
            # Snapshots share what was there.
            added = _opened(opened, begun, keyed=self._keyed)
            self._windows = np.concatenate([self._windows, added], axis=1)
            if self._keyed and len(opened):
                order = np.lexsort((self._windows[1], self._windows[0]))
                self._windows = self._windows[:, order]
        if len(closed):
            at = self._find(closed.partition, closed.number)
            self._windows[3, at] = _last_of(events, closed, keyed=self._keyed)
            self._windows[5, at] = closed.end_time
            self._windows[6, at] = closed.closed_at
            self._windows[7, at] = turn
            self._closed_at = min(self._closed_at, int(closed.closed_at[0]))
        return np.concatenate([begun, closed.closed_at])

    def drop(self, settled: MatchPlace) -> bool:
        """Drop the windows whose last match could not come behind a place; say whether any was."""
        if self._closed_at > settled.event:
            return False
        partition, _, _, last, _, _, closed_at, _ = self._windows
        closed = last != OPEN
        dead = closed & (closed_at < settled.event)
        tied = closed_at == settled.event
        if tied.any():
            at = np.flatnonzero(tied & closed)
            dead[at] = ~is_behind(self._ends(at), settled)
        if not self._every and dead.any():
            dead &= last < self._first_of(~dead)[partition]
        if not dead.any():
            return False
        self._windows = self._windows.take(np.flatnonzero(~dead), axis=1)
        self._note_closed()
        return True

    @property
    def floor(self) -> int:
        """The first event that any window has; `OPEN` where there is none."""
        if self._keyed:
            return int(self._windows[2].min(initial=OPEN))
        return int(self._windows[2, 0]) if len(self) else OPEN

    @property
    def first(self) -> Integers:
        """For each partition the first event that a window has; `OPEN` where there is none."""
        return self._first_of(np.ones(len(self), np.bool_))

    @property
    def start_open(self) -> int | None:
        """When the first window started that is open; None where none is."""
        start: Integers = self._windows[4, self._windows[3] == OPEN]
        return int(start.min()) if len(start) else None

    def turns(self, partition: Integers, number: Integers) -> Integers:
        """Return the turns that windows, which are there, were closed in."""
        turns: Integers = self._windows[7, self._find(partition, number)]
        return turns

    def holds(self, partition: Integers, number: Integers) -> Booleans:
        """Say which of some windows are there."""
        known = self._windows
        if not len(self):
            there: Booleans = np.zeros(len(number), np.bool_)
        elif not self._keyed and self._is_gapless:
            there = (number >= known[1, 0]) & (number <= known[1, -1])
        else:
            at = np.minimum(self._find(partition, number), len(self) - 1)
            there = (known[0, at] == partition) & (known[1, at] == number)
        return there

    def state(self) -> State:
        """Return all windows, for a savepoint; events are told by their distance to the first."""
        base = int(self._windows[2].min(initial=OPEN)) if len(self) else 0
        columns = self._windows.copy()
        columns[2] -= base
        columns[3] = np.where(columns[3] == OPEN, -1, columns[3] - base)
        columns[5] -= columns[4]
        columns[6] = np.where(columns[6] < 0, -1, columns[6] - base)
        # Of most columns all differences are the same, or small.
        columns[:, 1:] -= columns[:, :-1].copy()
        return State({"base": base}, [pa.table({"windows": columns.ravel()})])

    def restore(self, state: State) -> None:
        """Take the windows that `state` returned."""
        header, (table,) = state.content(1)
        base, far = integer(header, "base", NATURAL), range(-1, NATURAL.stop)
        (flat,) = integers(table, windows=ANY)
        require(len(flat) % len(_COLUMNS) == 0, "windows are cut short")
        bounds = (NATURAL, ANY, NATURAL, far, ANY, ANY, far, NATURAL)
        columns = np.cumsum(flat.reshape(len(_COLUMNS), -1), axis=1)
        read = integers(
            pa.table(dict(zip(_COLUMNS, columns, strict=True))),
            **dict(zip(_COLUMNS, bounds, strict=True)),
        )
        read[2] += base
        read[3] = np.where(read[3] < 0, OPEN, read[3] + base)
        read[5] += read[4]
        read[6] = np.where(read[6] < 0, -1, read[6] + base)
        self._windows = np.stack(read)
        order = np.lexsort((self._windows[1], self._windows[0]))
        require((np.diff(order) > 0).all(), "windows are out of order")
        require((self._windows[2] <= self._windows[3]).all(), "a window ends before it begins")
        self._note_closed()

    def split(self, events: Events, taken: Integers) -> Split:
        """Return the windows as those that open and close with events that are there of all.

        Partitions have had so many; those that are left out do not count.
        """
        partition, number, first, last, start_time, end_time, closed_at, _ = self._windows
        require((partition < len(taken)).all(), "a window has no partition")
        order = np.lexsort((events.arrival, events.partition))
        names = events.partition[order], events.arrival[order]
        ends = np.searchsorted(names[0], partition, "right")
        low, high = np.empty_like(first), np.empty_like(first)
        find_pairs(*names, partition, first, low)
        find_pairs(*names, partition, np.minimum(last, OPEN - 1) + 1, high)
        there = low < ends
        there[there] = names[1][low[there]] == first[there]
        require(there.all(), "the first event of a window is missing")
        ordinal = events.ordinal[order]
        stop = np.where(last == OPEN, OPEN, ordinal[np.maximum(high, 1) - 1] + 1)
        begun = ordinal[low]
        opening = np.lexsort((number, first))
        closing = np.flatnonzero(last != OPEN)
        closing = closing[np.lexsort((number[closing], closed_at[closing]))]
        still_open = np.full(len(self), OPEN)
        opened = (partition, number, begun, still_open, start_time, end_time, still_open * 0 - 1)
        closed = (partition, number, begun, stop, start_time, end_time, closed_at)
        return Split(
            Windows(*(column[opening] for column in opened)),
            Windows(*(column[closing] for column in closed)),
        )

    @property
    def borders(self) -> Integers:
        """The events that open and close the windows."""
        closed_at = self._windows[6]
        return np.concatenate([self._windows[2], closed_at[closed_at >= 0]])

    def _note_closed(self) -> None:
        """Note which event was the first to close a window."""
        self._closed_at = int(self._windows[6, self._windows[3] != OPEN].min(initial=OPEN))

    def _ends(self, at: Integers) -> list[Integers]:
        """Return the last place that matches of windows can have, of windows that have closed."""
        partition, number, _, last, _, end_time, closed_at, turn = self._windows[:, at]
        # What came behind the last event closed the window, or that event did.
        phase = np.where(last < closed_at, CLOSING, COMPLETING)
        turn = np.where(phase == CLOSING, turn, 0)
        # Which of several partitions comes first is known of matches alone.
        start = np.full(len(at), OPEN if self._keyed else 0)
        order = end_time if self._by_time else number
        return [closed_at, phase, turn, order, start, number, partition]

    def _first_of(self, chosen: Booleans) -> Integers:
        partition = self._windows[0]
        floors = np.full(int(partition.max(initial=0)) + 1, OPEN)
        np.minimum.at(floors, partition[chosen], self._windows[2, chosen])
        return floors

    @property
    def _is_gapless(self) -> bool:
        """Whether the windows, which are of one partition, have numbers that follow each other."""
        number = self._windows[1]
        return len(number) > 0 and bool(number[-1] - number[0] == len(number) - 1)

    def _find(self, partition: Integers, number: Integers) -> Integers:
        """Return where windows are, and any place or the end for others."""
        known = self._windows[1]
        if not self._keyed:
            found: Integers = number - known[0] if self._is_gapless else known.searchsorted(number)
            return found
        at = np.empty(len(number), np.int64)
        find_pairs(self._windows[0], known, partition, number, at)
        return at


def _opened(windows: Windows, begun: Integers, *, keyed: bool) -> Integers:
    """Return what is known of windows that have opened, whose first events have these numbers."""
    known = np.empty((len(_COLUMNS), len(windows)), np.int64)
    known[0] = windows.partition if keyed else 0
    known[1], known[2], known[3] = windows.number, begun, OPEN
    known[4], known[5], known[6], known[7] = windows.start_time, windows.end_time, -1, 0
    return known


def _numbers_of(events: Events, partition: Integers, ordinal: Integers, *, keyed: bool) -> Integers:
    """Return the numbers among all of events that are known by partition and ordinal."""
    if not len(ordinal):
        return ordinal
    if not keyed:
        numbers: Integers = events.arrival[ordinal - events.ordinal[0]]
        return numbers
    order = np.lexsort((events.ordinal, events.partition))
    at = np.empty(len(ordinal), np.int64)
    find_pairs(events.partition[order], events.ordinal[order], partition, ordinal, at)
    return events.arrival[order[at]]


def _last_of(events: Events, closed: Windows, *, keyed: bool) -> Integers:
    """Return the last event that windows may hold: that which closed them, or the one before."""
    if not keyed:
        # The one partition has numbered its events as all are, since they were new.
        last: Integers = closed.closed_at - (closed.stop <= closed.closed_at)
        return last
    arrival = events.arrival
    at = closed.closed_at - (arrival[0] if len(arrival) else OPEN)
    inside = (at >= 0) & (at < len(arrival))
    own = np.zeros(len(closed), np.bool_)
    place = at[inside]
    own[inside] = events.ordinal[place] == closed.stop[inside] - 1
    own[inside] &= events.partition[place] == closed.partition[inside]
    return np.where(own, closed.closed_at, closed.closed_at - 1)
