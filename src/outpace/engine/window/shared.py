"""Windows that share their searches: every start is searched once, for all windows that get there.

A start is searched as in a stream without windows. What it comes to holds in every window that has
all the rows that the search looked at. Windows whose searches meet stay together in one group, so
the cost of an event does not grow with the number of open windows; only the matches returned do,
where each window's are asked for. A window that ends before rows that a search looked at searches
by itself from that start on, in its own rows.

Memory: the rows from the first undecided start on, the matches that start in them where each is
wanted once, and some numbers for each open window.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from outpace.engine.kernels.chains import (
    NONE,
    Groups,
    Outcomes,
    Walked,
    link_groups,
    walk_chains,
)
from outpace.engine.match.contract import Block, Integers, Resume, Task
from outpace.engine.match.kernel import KernelMatcher, Swept
from outpace.engine.match.reach import reach_of
from outpace.engine.partition import one_array
from outpace.engine.window.contract import Events, Split
from outpace.engine.window.result import WindowMatches
from outpace.engine.window.rows import Segments, joined, kept, places
from outpace.engine.window.seen import Seen
from outpace.engine.window.slots import WindowSlots
from outpace.engine.window.spread import spread
from outpace.engine.window.stretches import (
    Stretches,
    StretchMatcher,
    part_matches,
    take_windows,
)


class GivesUpError(Exception):
    """Compiled arithmetic gave up: the windows must be matched one by one; no event was taken."""


class SharedWindows:
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

    def __init__(
        self, task: Task, kernel: KernelMatcher, nothing: Events, rows_at_once: int
    ) -> None:
        self._task = task
        self._kernel = kernel
        self._ahead = reach_of(task).ahead
        self._every = task.bound.query.duplicates
        self._keyed = bool(task.bound.partition_by)
        self._held = nothing
        self._slots = WindowSlots()
        self._seen = Seen()
        # The end of a window makes no match of a chain that waits.
        self._ends = None
        if not kernel.is_chain or self._ahead:
            self._ends = StretchMatcher(task, kernel, rows_at_once=rows_at_once)

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

    def step(self, events: Events, split: Split) -> WindowMatches:
        """Take events and the windows that they open and close; return what became final."""
        held = joined(self._held, events, keyed=self._keyed)
        slots, opened = self._slots, split.opened
        partition = np.concatenate([slots.group_partition, opened.partition])
        cursor = np.concatenate([slots.group_cursor, opened.first])
        segments = Segments.of(held, partition)
        block = self._block(held, segments)
        row = places(held, partition, cursor)
        wanted = np.zeros(block.size + 1, np.uint8)
        wanted[row] = 1
        swept = self._kernel.sweep(block, wanted)
        if swept is None:
            raise GivesUpError
        fresh = slots.add(opened, held.arrival[row[len(row) - len(opened) :]])
        slots.end(split.closed, places(held, split.closed.partition, split.closed.stop))
        windows = (
            np.concatenate([slots.group_first, fresh]),
            np.concatenate([slots.group_last, fresh]),
        )
        walked = self._walk(block, segments.of_partition(partition), row, windows, swept)
        match, window, reach = walked.found
        event = block.arrivals[reach - 1 + self._ahead]
        known = slots.all_windows
        matches = spread(self._task, block, swept.found, match, event, known, window)
        if self._ends is not None:
            matches = self._with_ends(self._ends, matches, held, walked.left)
        self._park(held, segments, walked, partition, cursor)
        if self._ends is not None and not self._every:
            self._seen.remember(matches, self._undecided())
        return matches

    def tables(self) -> list[pa.Table]:
        """Return all that is kept but the rows, for a saved state."""
        return [self._slots.table(), self._seen.table()]

    def restore(self, tables: list[pa.Table], held: Events) -> None:
        """Go on from what `tables` returned, and the rows."""
        windows, seen = tables
        self._slots.restore(windows)
        self._seen = Seen.from_table(seen)
        self._held = held

    def _block(self, held: Events, segments: Segments) -> Block:
        return Block(
            columns={name: one_array(held.rows.column(name)) for name in held.rows.column_names},
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
        swept: Swept,
    ) -> Walked:
        """Lead the groups of windows, by their first and last one, through what was searched."""
        at = np.full(block.size + len(block.segments), NONE, np.int32)
        following = np.full(len(row), NONE, np.int64)
        link_groups(row + segment, at, following)
        groups = Groups(at, *windows, np.zeros(len(row), np.int64), following)
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
        return walk_chains(outcomes, groups, self._slots.chained, self._ahead, self._every)

    def _with_ends(
        self, matcher: StretchMatcher, matches: WindowMatches, held: Events, left: Integers
    ) -> WindowMatches:
        """Add what windows find in their last rows by themselves."""
        slot, row = left
        stop = self._slots.chained.stop[slot]
        cut = row < stop
        windows = take_windows(self._slots.all_windows, slot[cut])
        stretches = Stretches(row[cut], stop[cut], windows.first, windows.closed_at)
        resume = Resume.fresh(len(windows))
        resume.next_start[:] = held.ordinal[row[cut]] - windows.first
        parts = [
            part_matches(self._task, part, windows)
            for part in matcher.match(held, stretches, resume, ended=True)
        ]
        joined_parts = WindowMatches.joined(self._task.bound.output, [matches, *parts])
        ordered = joined_parts.ordered() if parts else matches
        # Where nothing ends and nothing was seen, every start was searched for the first time.
        anew = self._every or not (parts or len(self._seen))
        return ordered if anew else self._seen.new(ordered)

    def _undecided(self) -> dict[int, int]:
        """Return for each partition the arrival of its first row that is kept."""
        partitions, first = np.unique(self._held.partition, return_index=True)
        return dict(zip(partitions.tolist(), self._held.arrival[first].tolist(), strict=True))

    def _park(
        self,
        held: Events,
        segments: Segments,
        walked: Walked,
        partition: Integers,
        cursor: Integers,
    ) -> None:
        """Note where groups wait, and keep the rows from there on."""
        segment, row, *windows = walked.parked
        high = segments.bounds[1:][segment]
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
        first = segments.bounds[1:].copy()
        np.minimum.at(first, segment, row)
        self._held = kept(held, first, segments.bounds[1:])
