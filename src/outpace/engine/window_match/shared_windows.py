"""Windows that share their searches: every start is searched once, for all windows that get there.

A start is searched as in a stream without windows. Its result holds in every window that has all
the rows that the search looked at. Windows whose searches meet stay together in one group, so the
cost of an event does not grow with the number of open windows; only the matches returned do, where
each window's are asked for. A window that ends before rows that a search looked at searches by
itself from that start on, in its own rows.

    rows       0   1   2   3   4   5   6   7   8
    searches       a───────────b                       start 1 looks at rows 1 to 4
                                   a───────────b       start 5 looks at rows 5 to 8
    window u   [                       ]               u and v come to start 1 and then, behind its
    window v       [                               ]   match, to start 5 as one group; u ends before
                                                       row 8, so it searches from 5 on by itself

Memory: the rows from the first undecided start on, the matches that start in them where each is
wanted once, and some numbers for each open window.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from outpace.compiler.kernel import call
from outpace.engine.arrays import Integers
from outpace.engine.event import Events
from outpace.engine.kernels.chains import (
    NONE,
    ChainWalk,
    Groups,
    Outcomes,
    link_groups,
    walk_chains,
)
from outpace.engine.kernels.grouping import find_pairs
from outpace.engine.match.contract import Block, Resume, Task
from outpace.engine.match.kernel import KernelMatcher, Sweep
from outpace.engine.match.reach import reach_of
from outpace.engine.rows.partition import column_arrays
from outpace.engine.snapshot import Stateful
from outpace.engine.split.windows import OPEN, Split, Windows, joined_windows, take_windows
from outpace.engine.window_match.entrance import Entering, Entrance
from outpace.engine.window_match.repeats import KnownMatches
from outpace.engine.window_match.result import WindowMatches
from outpace.engine.window_match.rows import Segments, joined, kept, places
from outpace.engine.window_match.slots import WindowSlots
from outpace.engine.window_match.spread import WindowRuns, spread
from outpace.engine.window_match.stretches import Stretches, StretchMatcher, part_matches


class GivesUpError(Exception):
    """Compiled arithmetic gave up: the windows must be matched one by one; no event was taken."""


class SharedWindows(Stateful):
    """Matches windows that overlap, for queries that are `sharable`.

    Parameters
    ----------
    task, kernel
        The query, and its matcher.
    nothing
        Events that are none, with the columns of those to come.
    rows_at_once
        Rows of windows that are gathered at once where they end.
    """

    CHANGED = ("_slots", "_known")

    def __init__(
        self, task: Task, kernel: KernelMatcher, nothing: Events, rows_at_once: int
    ) -> None:
        self._task = task
        self._kernel = kernel
        reach = reach_of(task)
        self._back, self._ahead = reach.back, reach.ahead
        self._every = task.bound.query.duplicates
        self._keyed = bool(task.bound.partition_by)
        self._held = nothing
        # Most steps find nothing, and to make an empty table takes long.
        self._no_matches = WindowMatches.none(task.bound.output)
        self._slots = WindowSlots()
        self._known = KnownMatches()
        #: Gets the events of what is found, where somebody asks for them.
        self.matched: list[Integers] | None = None
        # The end of a window makes no match of a chain that waits.
        self._ends = None
        if not kernel.is_chain or self._ahead:
            self._ends = StretchMatcher(task, kernel, rows_at_once=rows_at_once)
        self._entrance = Entrance(task, kernel, rows_at_once)
        # Windows that search by themselves may find what others found.
        self._repeats = self._ends is not None or self._entrance.starts > 0

    @property
    def held(self) -> Events:
        """The rows that undecided matches may still need."""
        return self._held

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        return len(self._slots)

    @property
    def begun_at(self) -> int:
        """The arrival of the first event of all open windows."""
        return self._slots.begun_at

    @property
    def undecided(self) -> tuple[Integers, Integers]:
        """Partitions and ordinals: where the searches of all open windows stand."""
        slots = self._slots
        entering = slots.all_windows.partition[slots.entering]
        return (
            np.concatenate([slots.group_partition, entering]),
            np.concatenate([slots.group_cursor, slots.entering_cursor]),
        )

    def step(self, events: Events, split: Split) -> WindowMatches:
        """Take events and the windows that they open and close; return what became final.

        1. Windows that have just opened search their first starts by themselves, where PREV or `^`
           sees other rows there than in the stream (`Entrance`). Behind these they join the groups.
        2. Each start that a group of windows has come to is searched once, and so is each that such
           a search leads to (`sweep`).
        3. Every group goes from start to start along what was found: behind a match, or to the next
           row after a failure; groups that meet are one from there on (`walk_chains`). Where rows
           are missing a group waits.
        4. A window that closed before rows which its next search looks at leaves its group, and
           matches the rest of its own rows (`_ends_of`).
        5. What a window found by itself may be what others found: each match comes out once.
        """
        held = joined(self._held, events, keyed=self._keyed)
        slots = self._slots
        waiting = joined_windows(slots.waiting, split.opened)
        entering = self._entering(held, waiting, split.closed)
        begun_row = entering.row
        entered = self._entrance.search(held, entering) if self._entrance.starts else []
        if entered is None:
            raise GivesUpError
        inside = entering.cursor >= waiting.first + self._entrance.starts
        partition = np.concatenate([slots.group_partition, waiting.partition[inside]])
        cursor = np.concatenate([slots.group_cursor, entering.cursor[inside]])
        segments = Segments.of(held, np.concatenate([partition, waiting.partition]))
        block = self._block(held, segments)
        row = places(held, partition, cursor)
        wanted = np.zeros(block.size + 1, np.uint8)
        wanted[row] = 1
        swept = self._kernel.sweep(block, wanted)
        if swept is None:
            raise GivesUpError
        if self.matched is not None:
            self.matched.append(block.arrivals[swept.found.rows])
        begun = begun_row[len(slots.entering) :]
        # To make room for windows that open, those that are there may get other slots.
        added = slots.add(split.opened, held.arrival[begun])
        here = np.concatenate([slots.entering, added])
        slots.end(split.closed, places(held, split.closed.partition, split.closed.stop))
        reach = np.concatenate([np.zeros_like(slots.group_first), entering.reach[inside]])
        windows = (
            np.concatenate([slots.group_first, here[inside]]),
            np.concatenate([slots.group_last, here[inside]]),
        )
        walked = self._walk(block, segments.of_partition(partition), row, windows, reach, swept)
        match, reach, ends = walked.found
        runs = WindowRuns(match, block.arrivals[reach - 1 + self._ahead], ends, walked.windows)
        matches = self._no_matches
        if len(runs.window):
            matches = spread(self._task, block, swept.found, runs, slots.all_windows)
        apart = [spread(self._task, part.block, part.found, part.runs, waiting) for part in entered]
        undecided = np.flatnonzero(~inside)
        closed = slots.chained.stop[here[undecided]] != OPEN
        left = np.stack([here[undecided][closed], entering.row[undecided][closed]])
        ends = self._ends_of(held, np.concatenate([walked.left, left], axis=1))
        slots.entering = here[undecided][~closed]
        slots.entering_cursor = entering.cursor[undecided][~closed]
        self._park(held, segments, walked, partition, cursor, swept.starts)
        return self._once(apart, matches, ends)

    def _entering(self, held: Events, waiting: Windows, closed: Windows) -> Entering:
        """Return the windows whose first starts are not decided, as far as their rows have come."""
        stop = np.full(len(waiting), OPEN, np.int64)
        if self._entrance.starts and len(closed):
            order = np.lexsort((closed.number, closed.partition))
            names = closed.partition[order], closed.number[order]
            at = np.empty(len(waiting), np.int64)
            find_pairs(*names, waiting.partition, waiting.number, at)
            at = order[np.minimum(at, len(order) - 1)]
            ends = (closed.partition[at] == waiting.partition) & (
                closed.number[at] == waiting.number
            )
            stop[ends] = closed.stop[at[ends]]
        old = len(self._slots.entering)
        cursor = np.concatenate([self._slots.entering_cursor, waiting.first[old:]])
        low = places(held, waiting.partition, np.maximum(cursor - self._back, waiting.first))
        high = places(held, waiting.partition, stop)
        nothing = np.zeros(len(waiting), np.int64)
        return Entering(low, high, held.ordinal[low], waiting.first, cursor, nothing)

    def tables(self) -> list[pa.Table]:
        """Return all that is kept but the rows, for a saved state."""
        return [self._slots.table(), self._known.table()]

    def restore(self, tables: list[pa.Table], held: Events) -> None:
        """Go on from what `tables` returned, and the rows."""
        windows, repeats = tables
        self._slots = WindowSlots()
        self._slots.restore(windows, self._entrance.starts)
        self._known = KnownMatches.from_table(repeats)
        self._held = held

    def _block(self, held: Events, segments: Segments) -> Block:
        return Block(
            columns=column_arrays(held.rows),
            segments=segments.bounds,
            visible=np.maximum(segments.bounds[1:] - self._ahead, segments.bounds[:-1]),
            ordinals=held.ordinal,
            arrivals=held.arrival,
            times=held.times if self._task.bound.within is not None else held.times[:0],
            ended=False,
        )

    def _walk(
        self,
        block: Block,
        segment: Integers,
        row: Integers,
        windows: tuple[Integers, Integers],
        reach: Integers,
        swept: Sweep,
    ) -> ChainWalk:
        """Lead the groups of windows, by their first and last one, through what was searched."""
        at = np.full(block.size + len(block.segments), NONE, np.int32)
        following = np.full(len(row), NONE, np.int64)
        link_groups(row + segment, at, following)
        groups = Groups(at, *windows, reach, following)
        found = swept.found
        outcomes = Outcomes(
            block.segments[:-1],
            block.segments[1:],
            swept.limit,
            found.segment,
            found.start,
            found.number,
            found.settled,
            swept.looked,
        )
        walked = call(walk_chains, outcomes, groups, self._slots.chained, self._ahead, self._every)
        return ChainWalk(*walked)

    def _ends_of(self, held: Events, left: Integers) -> list[WindowMatches]:
        """Return what windows find in their last rows by themselves."""
        if self._ends is None:
            return []
        slot, row = left
        stop = self._slots.chained.stop[slot]
        cut = row < stop
        windows = take_windows(self._slots.all_windows, slot[cut])
        begin = np.maximum(row[cut] - self._back, places(held, windows.partition, windows.first))
        stretches = Stretches(begin, stop[cut], windows.first, windows.closed_at)
        resume = Resume.fresh(len(windows))
        resume.next_start[:] = held.ordinal[row[cut]] - windows.first
        return [
            part_matches(self._task, part, windows)
            for part in self._ends.match(held, stretches, resume, ended=True)
        ]

    def _once(
        self, before: list[WindowMatches], matches: WindowMatches, after: list[WindowMatches]
    ) -> WindowMatches:
        """Return matches that windows share and those of single windows before and after them.

        Each comes once unless duplicates are wanted.
        """
        single = any(len(part) for part in (*before, *after))
        if single:
            # In a window, its first starts come first and its end last.
            parts = [part for part in (*before, matches, *after) if len(part)]
            matches = WindowMatches.joined(self._task.bound.output, parts).ordered()
        if self._every or not self._repeats:
            return matches
        if single or len(self._known):
            matches = self._known.new(matches)
        partition, first = np.unique(self._held.partition, return_index=True)
        self._known.remember(matches, partition, self._held.arrival[first])
        return matches

    def _park(
        self,
        held: Events,
        segments: Segments,
        walked: ChainWalk,
        partition: Integers,
        cursor: Integers,
        starts: Callable[[int], Integers] | None,
    ) -> None:
        """Note where groups wait, and keep the rows from there on."""
        segment, row, *windows = walked.parked
        high = segments.bounds[1:][segment]
        if starts is not None and len(row):
            # Rows that were not searched and that no match may start with are decided all the same.
            limit, possible = np.maximum(high - self._ahead, row), starts(int(row.min()))
            row = np.minimum(np.append(possible, OPEN)[np.searchsorted(possible, row)], limit)
        # Behind the last row, or where a partition has none, it is the next event that is awaited.
        awaited = np.zeros(len(segments.partition), np.int64)
        np.maximum.at(awaited, segments.of_partition(partition), cursor)
        filled = np.flatnonzero(np.diff(segments.bounds))
        awaited[filled] = held.ordinal[segments.bounds[1:][filled] - 1] + 1
        slots = self._slots
        slots.group_partition = segments.partition[segment]
        slots.group_first, slots.group_last = (window.copy() for window in windows)
        inside = row < high
        slots.group_cursor = awaited[segment]
        slots.group_cursor[inside] = held.ordinal[row[inside]]
        # A partition without windows needs no rows.
        first = segments.bounds[1:].copy()
        waiting = slots.waiting
        entering = places(held, waiting.partition, slots.entering_cursor)
        if self._back:
            # PREV needs those before, as far as they lie in a window.
            begun = slots.all_windows.first[slots.group_first]
            row = np.maximum(row - self._back, places(held, slots.group_partition, begun))
            begun_row = places(held, waiting.partition, waiting.first)
            entering = np.maximum(entering - self._back, begun_row)
        np.minimum.at(first, segment, row)
        np.minimum.at(first, segments.of_partition(waiting.partition), entering)
        self._held = kept(held, first, segments.bounds[1:])
