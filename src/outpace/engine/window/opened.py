"""The open windows of an instance: what is known of each, and where its matching stopped."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from outpace.engine.kernels.find import find_pairs
from outpace.engine.match.contract import Integers, Resume
from outpace.engine.window.contract import OPEN, Events, Windows
from outpace.engine.window.stretches import take_windows, taken
from outpace.errors import StateError


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
        joined = joined.take(order) if bool((np.diff(order) < 0).any()) else joined
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
        w, r = self.windows, self.resume
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

    @staticmethod
    def at_cursors(table: pa.Table) -> OpenWindows:
        """Return windows whose searches stand at the ordinals in `cursor`."""
        windows = _windows(table)
        cursor = _column(table, "cursor")
        resume = Resume.fresh(len(windows))
        resume.next_start[:] = cursor - windows.first
        return OpenWindows(windows, resume, _column(table, "begun_at"), cursor)

    @staticmethod
    def from_table(table: pa.Table) -> OpenWindows:
        """Return what `table` wrote."""
        column = partial(_column, table)
        windows = _windows(table)
        resume = Resume(
            column("next_start"),
            column("barrier"),
            column("matches"),
            column("completed_to"),
            [np.asarray(part, np.int64) for part in table.column("consumed").to_pylist()],
        )
        return OpenWindows(windows, resume, column("begun_at"), column("keep"))


def _column(table: pa.Table, name: str) -> Integers:
    if name not in table.column_names:
        raise StateError(f"the saved windows have no '{name}'")
    return np.array(table.column(name).to_numpy(), np.int64)


def _windows(table: pa.Table) -> Windows:
    return Windows(
        _column(table, "partition"),
        _column(table, "number"),
        _column(table, "first"),
        np.full(table.num_rows, OPEN, np.int64),
        _column(table, "start_time"),
        _column(table, "end_time"),
        np.full(table.num_rows, -1, np.int64),
    )


class OpenedWindows:
    """What strategies have in common that know their open windows one by one."""

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
