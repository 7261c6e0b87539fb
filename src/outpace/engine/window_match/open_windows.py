"""The open windows of an instance: the bounds of each, and where its matching stopped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import Events
from outpace.engine.kernels.grouping import find_pairs
from outpace.engine.match.contract import Resume
from outpace.engine.snapshot import Stateful
from outpace.engine.split.windows import OPEN, Windows, take_windows
from outpace.engine.state import ANY, NATURAL, integers, lists, require
from outpace.engine.window_match.stretches import taken


@dataclass
class OpenWindows:
    """Windows by partition and number, one per place.

    Parameters
    ----------
    windows, resume
        The windows, and where matching stopped in each, with ordinals counted from its first event.
    begun_at
        The arrival number of the first event.
    keep
        The ordinal of the first row that is still needed.
    """

    windows: Windows
    resume: Resume
    begun_at: Integers
    keep: Integers

    def __len__(self) -> int:
        return len(self.windows)

    @staticmethod
    def none() -> OpenWindows:
        """Return no windows."""
        return OpenWindows.fresh(Windows.none(), np.zeros(0, np.int64))

    @staticmethod
    def fresh(windows: Windows, begun_at: Integers) -> OpenWindows:
        """Return windows that nothing was matched in yet."""
        return OpenWindows(windows, Resume.fresh(len(windows)), begun_at, windows.first.copy())

    def updated(self, added: OpenWindows, closed: Windows) -> OpenWindows:
        """Return these windows and those that opened, with the ends of those that closed."""
        joined = _joined(self, added)
        order = np.lexsort((joined.windows.number, joined.windows.partition))
        if joined is self or bool((np.diff(order) < 0).any()):
            # What comes back is written to, and these windows may be those of a snapshot.
            joined = joined.take(order)
        stop = np.full(len(joined), OPEN, np.int64)
        closed_at = np.full(len(joined), -1, np.int64)
        end_time = joined.windows.end_time.copy()
        if len(closed):
            at = np.empty(len(closed), np.int64)
            names = joined.windows.partition, joined.windows.number
            find_pairs(*names, closed.partition, closed.number, at)
            stop[at], closed_at[at], end_time[at] = closed.stop, closed.closed_at, closed.end_time
        w = joined.windows
        windows = Windows(w.partition, w.number, w.first, stop, w.start_time, end_time, closed_at)
        return OpenWindows(windows, joined.resume, joined.begun_at, joined.keep)

    @property
    def overlap(self) -> bool:
        """Whether any two windows of a partition have rows in common."""
        windows = self.windows
        same = windows.partition[1:] == windows.partition[:-1]
        return bool((same & (windows.first[1:] < windows.stop[:-1])).any())

    def take(self, at: Integers) -> OpenWindows:
        """Return some of the windows."""
        return OpenWindows(
            take_windows(self.windows, at),
            taken(self.resume, at),
            self.begun_at[at],
            self.keep[at],
        )

    def table(self) -> pa.Table:
        """Return all that is kept, for a saved state."""
        w, r = self.windows, self.resume.normal()
        consumed = pa.array([part.tolist() for part in r.consumed], pa.list_(pa.int64()))
        return pa.table(
            {
                "partition": w.partition,
                "number": w.number,
                "first": w.first,
                "start_time": w.start_time,
                "end_time": w.end_time,
                "begun_at": self.begun_at,
                "keep": self.keep,
                "next_start": r.next_start,
                "barrier": r.barrier,
                "matches": r.number,
                "completed_to": r.completed_to,
                "consumed": consumed,
            }
        )

    def cursors(self) -> pa.Table:
        """Return what is kept of windows whose searches stand somewhere, and nothing else counts.

        So windows are saved that share their searches.
        """
        cursor = self.windows.first + np.maximum(self.resume.next_start, self.resume.barrier + 1)
        columns = ["partition", "number", "first", "start_time", "end_time", "begun_at"]
        return self.table().select(columns).append_column("cursor", pa.array(cursor))

    @staticmethod
    def at_cursors(table: pa.Table) -> OpenWindows:
        """Return windows whose searches stand at the ordinals in `cursor`."""
        windows = saved_windows(table)
        begun_at, cursor = integers(table, begun_at=NATURAL, cursor=NATURAL)
        resume = Resume.fresh(len(windows))
        resume.next_start[:] = cursor - windows.first
        return OpenWindows(windows, resume, begun_at, cursor)

    @staticmethod
    def from_table(table: pa.Table) -> OpenWindows:
        """Return what `table` wrote."""
        windows = saved_windows(table)
        low = range(-1, NATURAL.stop)
        next_start, barrier, matches, completed_to = integers(
            table, next_start=NATURAL, barrier=low, matches=NATURAL, completed_to=NATURAL
        )
        consumed = lists(table, "consumed", NATURAL)
        resume = Resume(next_start, barrier, matches, completed_to, consumed)
        begun_at, keep = integers(table, begun_at=NATURAL, keep=NATURAL)
        require((keep >= windows.first).all(), "rows before a window are kept")
        return OpenWindows(windows, resume, begun_at, keep)

    def require_rows(self, held: Events, back: int) -> None:
        """Refuse windows of a saved state that need rows which are not held."""
        windows, resume = self.windows, self.resume
        partition, begin = np.unique(held.partition, return_index=True)
        ends = np.append(begin[1:], len(held.partition))
        if not len(partition):
            require(not any(map(len, resume.consumed)), "consumed rows are missing")
            return
        at = np.minimum(np.searchsorted(partition, windows.partition), len(partition) - 1)
        there = partition[at] == windows.partition
        low, high = held.ordinal[begin[at]], held.ordinal[ends[at] - 1] + 1
        start = windows.first + resume.next_start
        first = np.maximum(self.keep - back, windows.first)
        fits = (first >= low) & (self.keep <= high) & (start <= high) & (windows.first <= high)
        require((fits | ~there).all(), "rows of a window are missing")
        for place in np.flatnonzero(np.fromiter(map(len, resume.consumed), np.int64)).tolist():
            rows = windows.first[place] + resume.consumed[place]
            known = there[place] and low[place] <= rows[0] and rows[-1] < high[place]
            require(known and (np.diff(rows) > 0).all(), "consumed rows are missing")


def saved_windows(table: pa.Table) -> Windows:
    """Return the open windows of a saved state."""
    partition, number, first, start_time, end_time = integers(
        table, partition=NATURAL, number=ANY, first=NATURAL, start_time=ANY, end_time=ANY
    )
    still_open, not_closed = (np.full(table.num_rows, value, np.int64) for value in (OPEN, -1))
    return Windows(partition, number, first, still_open, start_time, end_time, not_closed)


def require_same(
    opened: Windows | None, partition: Integers, number: Integers, first: Integers
) -> None:
    """Refuse windows of a saved state that do not begin one after the other, or are not open.

    Which are open need not be known.
    """
    order = np.lexsort((number, partition))
    named = partition[order], number[order], first[order]
    rises = (np.diff(named[1]) > 0) & (np.diff(named[2]) >= 0)
    require((rises | (np.diff(named[0]) > 0)).all(), "windows are out of order")
    if opened is not None:
        require(len(opened) == len(number), "windows are missing")
        order = np.lexsort((opened.number, opened.partition))
        known = opened.partition, opened.number, opened.first
        same = all((ours == theirs[order]).all() for ours, theirs in zip(named, known, strict=True))
        require(same, "other windows are open")


class ListedWindows(Stateful):
    """The common part of strategies that know their open windows one by one."""

    _held: Events
    _open: OpenWindows

    @property
    def held(self) -> Events:
        """The rows that undecided matches may still need."""
        return self._held

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        return len(self._open)

    @property
    def begun_at(self) -> int:
        """The arrival of the first event of all open windows; `OPEN` without any."""
        return int(self._open.begun_at.min(initial=OPEN))

    @property
    def undecided(self) -> tuple[Integers, Integers]:
        """Partitions and ordinals: where the searches of all open windows stand."""
        windows = self._open.windows
        return windows.partition, windows.first + self._open.resume.next_start


def _joined(left: OpenWindows, right: OpenWindows) -> OpenWindows:
    if not len(left) or not len(right):
        return left if len(left) else right
    w, v, r, s = left.windows, right.windows, left.resume, right.resume

    def both(one: Integers, other: Integers) -> Integers:
        return np.concatenate([one, other])

    windows = Windows(
        both(w.partition, v.partition),
        both(w.number, v.number),
        both(w.first, v.first),
        both(w.stop, v.stop),
        both(w.start_time, v.start_time),
        both(w.end_time, v.end_time),
        both(w.closed_at, v.closed_at),
    )
    resume = Resume(
        both(r.next_start, s.next_start),
        both(r.barrier, s.barrier),
        both(r.number, s.number),
        both(r.completed_to, s.completed_to),
        [*r.consumed, *s.consumed],
    )
    begun_at, keep = both(left.begun_at, right.begun_at), both(left.keep, right.keep)
    return OpenWindows(windows, resume, begun_at, keep)
