"""Open windows in slots, with the groups that share their searches.

Slots are given in the order in which windows open. Windows of a partition close in the order of
their numbers, so what closes is found without looking, and no step looks at every open window.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final, Self

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.kernels.chains import NONE, Slots, add_windows, end_windows
from outpace.engine.snapshot import Stateful
from outpace.engine.split.windows import OPEN, Windows
from outpace.engine.state import NATURAL, integers, require
from outpace.engine.window_match.open_windows import saved_windows

#: Slots of windows that have closed are given again once they are so many and the larger part.
_CLOSED_MAX = 1024


@dataclass
class _WindowStates:
    """The state of each window; `queue` is the next window of its partition.

    A slot is filled once, and others behind it. Steps then change the neighbours of a window in its
    group, `before` and `after`. The queue of a partition only grows behind its last window, and
    `stop` and `closed_at` are of use in the step that closes the window alone.
    """

    partition: Integers
    number: Integers
    first: Integers
    start_time: Integers
    end_time: Integers
    begun_at: Integers
    stop: Integers
    closed_at: Integers
    before: Integers
    after: Integers
    queue: Integers

    @staticmethod
    def of(size: int) -> _WindowStates:
        return _WindowStates(*(np.zeros(size, np.int64) for _ in fields(_WindowStates)))

    def frozen(self, count: int) -> _WindowStates:
        """Return the first slots as they are now, to be read; `kept` makes some to write to."""
        nothing = np.zeros(0, np.int64)
        after = self.after[:count].copy()
        return replace(self, stop=nothing, closed_at=nothing, before=nothing, after=after)

    def kept(self, slots: Integers, places: Integers, size: int) -> _WindowStates:
        """Return the windows of some slots, all of them open, with room for more.

        Their new slots are the `places` of the old ones.
        """
        larger, count = _WindowStates.of(size), len(slots)
        for name in _FILLED:
            getattr(larger, name)[:count] = getattr(self, name)[slots]
        larger.stop[:count] = OPEN
        after = places[self.after[slots]]
        larger.after[:count] = after
        follows = np.flatnonzero(after != NONE)
        larger.before[after[follows]] = follows
        return larger


#: What of a slot is the same as long as it is filled.
_FILLED: Final = ("partition", "number", "first", "start_time", "end_time", "begun_at")


class WindowSlots(Stateful):
    """The windows of an instance, and where the search of each group of them stands.

    Of each group, `group_cursor` is the ordinal that its search has come to, `group_first` and
    `group_last` are the slots of its windows with the least and the largest number. `entering` are
    windows whose first starts are not decided, with their `entering_cursor`.
    """

    CHANGED = ("_heads", "_tails")

    def __init__(self) -> None:
        self._slots = _WindowStates.of(16)
        self._used = 0
        self._live = 0
        self._heads = np.full(1, NONE, np.int64)
        self._tails = np.full(1, NONE, np.int64)
        nothing = np.zeros(0, np.int64)
        self.group_partition, self.group_cursor = nothing, nothing
        self.group_first, self.group_last = nothing, nothing
        self.entering, self.entering_cursor = nothing, nothing

    def __len__(self) -> int:
        return self._live

    def snapshot(self) -> Self:
        """Return these windows as they are now."""
        twin = super().snapshot()
        twin._slots = self._slots.frozen(self._used)
        return twin

    @property
    def copied_bytes(self) -> int:
        """How many bytes a snapshot copies."""
        return super().copied_bytes + self._slots.after[: self._used].nbytes

    @property
    def chained(self) -> Slots:
        """The windows as kernels see them."""
        return Slots(self._slots.before, self._slots.after, self._slots.stop)

    @property
    def all_windows(self) -> Windows:
        """The windows by slot; `stop` is a row."""
        held = self._slots
        return Windows(
            held.partition,
            held.number,
            held.first,
            held.stop,
            held.start_time,
            held.end_time,
            held.closed_at,
        )

    @property
    def waiting(self) -> Windows:
        """The windows that have not joined a group; none of them is closed."""
        held, at = self._slots, self.entering
        return Windows(
            held.partition[at],
            held.number[at],
            held.first[at],
            np.full(len(at), OPEN),
            held.start_time[at],
            held.end_time[at],
            np.full(len(at), -1),
        )

    @property
    def begun_at(self) -> int:
        """The arrival of the first event of all open windows; `OPEN` without any."""
        heads = self._heads[self._heads != NONE]
        return int(self._slots.begun_at[heads].min(initial=OPEN))

    def add(self, opened: Windows, begun_at: Integers) -> Integers:
        """Take windows that opened and return their slots."""
        count = len(opened)
        self._make_room(count)
        first = self._used
        self._used += count
        self._live += count
        held = self._slots
        added = slice(first, self._used)
        held.partition[added] = opened.partition
        held.number[added] = opened.number
        held.first[added] = opened.first
        held.start_time[added] = opened.start_time
        held.end_time[added] = opened.end_time
        held.begun_at[added] = begun_at
        held.stop[added] = OPEN
        held.before[added] = NONE
        held.after[added] = NONE
        missing = int(opened.partition.max(initial=-1)) + 1 - len(self._heads)
        if missing > 0:
            more = np.full(max(missing, len(self._heads)), NONE, np.int64)
            self._heads = np.concatenate([self._heads, more])
            self._tails = np.concatenate([self._tails, more])
        add_windows(opened.partition, first, held.queue, self._heads, self._tails)
        return np.arange(first, self._used)

    def end(self, closed: Windows, stop_row: Integers) -> Integers:
        """Note where windows end, as rows, and return their slots."""
        slots = np.empty(len(closed), np.int64)
        require(int(closed.partition.max(initial=-1)) < len(self._heads), "windows are missing")
        end_windows(closed.partition, self._slots.queue, self._heads, self._tails, slots)
        in_turn = (slots != NONE) & (self._slots.number[slots] == closed.number)
        require(in_turn.all(), "windows do not close in the order of their numbers")
        self._slots.stop[slots] = stop_row
        self._slots.closed_at[slots] = closed.closed_at
        self._live -= len(closed)
        return slots

    def table(self) -> pa.Table:
        """Return the open windows and where their searches stand, for a saved state."""
        slots, cursor = self._members()
        held = self._slots
        order = np.lexsort((held.number[slots], held.partition[slots]))
        slots, cursor = slots[order], cursor[order]
        columns = {name: getattr(held, name)[slots] for name in _FILLED}
        return pa.table({**columns, "cursor": cursor})

    def restore(self, table: pa.Table, starts: int) -> None:
        """Take what `table` returned, at first; so many starts of a window are searched apart."""
        windows = saved_windows(table)
        begun_at, cursor = integers(table, begun_at=NATURAL, cursor=NATURAL)
        require((cursor >= windows.first).all(), "a search is before its window")
        slots = self.add(windows, begun_at)
        apart = cursor < windows.first + starts
        self.entering, self.entering_cursor = slots[apart], cursor[apart]
        self.group_first = self.group_last = slots[~apart]
        self.group_partition, self.group_cursor = windows.partition[~apart], cursor[~apart]

    def _members(self) -> tuple[Integers, Integers]:
        """Return all open windows and the cursor of each, in the order of slots."""
        slots: list[int] = []
        cursors: list[int] = []
        groups = (self.group_first.tolist(), self.group_last.tolist(), self.group_cursor.tolist())
        for first, last, cursor in zip(*groups, strict=True):
            slots.append(first)
            while slots[-1] != last:
                slots.append(int(self._slots.after[slots[-1]]))
            cursors += [cursor] * (len(slots) - len(cursors))
        slots += self.entering.tolist()
        cursors += self.entering_cursor.tolist()
        order = np.argsort(np.array(slots, np.int64))
        return np.array(slots, np.int64)[order], np.array(cursors, np.int64)[order]

    def _make_room(self, count: int) -> None:
        """See that there are so many free slots, and that closed windows take few of the others."""
        closed, room = self._used - self._live, len(self._slots.stop) - self._used
        if closed <= max(_CLOSED_MAX, self._live) and count <= room:
            return
        # Windows of a partition open and close in the order of their slots.
        heads = self._heads[self._slots.partition[: self._used]]
        kept = np.flatnonzero((heads != NONE) & (np.arange(self._used) >= heads))
        places = np.full(self._used + 1, NONE, np.int64)
        places[kept] = np.arange(len(kept))
        queue = self._slots.queue[: self._used].copy()
        # Who went on after a snapshot has put other windows behind the last ones.
        queue[self._tails[self._tails != NONE]] = NONE
        self._slots = self._slots.kept(kept, places, max(16, 2 * (len(kept) + count)))
        self._used = len(kept)
        self._slots.queue[: self._used] = places[queue[kept]]
        self._heads, self._tails = places[self._heads], places[self._tails]
        self.group_first, self.group_last = places[self.group_first], places[self.group_last]
        self.entering = places[self.entering]
