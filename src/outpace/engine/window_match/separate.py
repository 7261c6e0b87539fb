"""Windows matched one by one: whatever a query asks for, and where windows hardly overlap.

An open window keeps where its matcher stopped; rows that several windows share are read by each.

Memory: the rows of open windows that an undecided match may still need, the open windows, the
matches that start in them where each is wanted once, and what one step gathers.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.event import Events
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.match.reach import reach_of
from outpace.engine.split.windows import OPEN, Split
from outpace.engine.window_match.open_windows import ListedWindows, OpenWindows
from outpace.engine.window_match.repeats import KnownMatches
from outpace.engine.window_match.result import WindowMatches
from outpace.engine.window_match.rows import joined, kept, places
from outpace.engine.window_match.stretches import (
    Stretches,
    StretchMatcher,
    StretchMatches,
    part_matches,
)


class SeparateWindows(ListedWindows):
    """Matches windows one by one.

    Parameters
    ----------
    task, matcher
        The query, and how one window is matched.
    nothing
        Events that are none, with the columns of those to come.
    rows_at_once
        Rows of windows that are gathered at once.
    """

    CHANGED = ("_known",)

    def __init__(self, task: Task, matcher: Matcher, nothing: Events, rows_at_once: int) -> None:
        self._task = task
        self._matcher = StretchMatcher(task, matcher, rows_at_once=rows_at_once)
        self._back = reach_of(task).back
        self._held = nothing
        self._open = OpenWindows.none()
        self._known = KnownMatches()
        #: Gets the events of what is found, where somebody asks for them.
        self.matched: list[Integers] | None = None

    def step(self, events: Events, split: Split) -> WindowMatches:
        """Take events and the windows that they open and close; return what became final."""
        held = joined(self._held, events, keyed=bool(self._task.bound.partition_by))
        at = places(held, split.opened.partition, split.opened.first)
        added = OpenWindows.fresh(split.opened, held.arrival[at])
        windows = self._open.updated(added, split.closed)
        fresh = np.isin(windows.windows.partition, events.partition)
        parts = self._match(held, windows, fresh)
        matches = WindowMatches.joined(self._task.bound.output, parts).ordered()
        once = not self._task.bound.query.duplicates and (len(self._known) or windows.overlap)
        if once and len(matches):
            matches = self._known.new(matches)
        self._retain(held, windows)
        if once:
            self._known.remember(matches, *self._begun())
        return matches

    def tables(self) -> list[pa.Table]:
        """Return all that is kept but the rows, for a saved state."""
        return [self._open.table(), self._known.table()]

    def restore(self, tables: list[pa.Table], held: Events) -> None:
        """Go on from what `tables` returned, and the rows."""
        windows, repeats = tables
        self._open = OpenWindows.from_table(windows)
        self._known = KnownMatches.from_table(repeats)
        self._held = held

    def _match(self, held: Events, windows: OpenWindows, fresh: Booleans) -> list[WindowMatches]:
        closing = windows.windows.stop != OPEN
        parts = []
        for chosen, ended in ((closing, True), (fresh & ~closing, False)):
            at = np.flatnonzero(chosen)
            if not len(at):
                continue
            some = windows.take(at)
            stretches = self._stretches(held, some)
            for part in self._matcher.match(held, stretches, some.resume, ended=ended):
                parts.append(part_matches(self._task, part, some.windows))
                if self.matched is not None:
                    self.matched.append(part.block.arrivals[part.found.rows])
                _store(windows, at[part.at], part)
        return parts

    def _stretches(self, held: Events, some: OpenWindows) -> Stretches:
        """Return the rows that windows still need, as far as they have come."""
        windows = some.windows
        begin = np.maximum(some.keep - self._back, windows.first)
        return Stretches(
            places(held, windows.partition, begin),
            places(held, windows.partition, windows.stop),
            windows.first,
            windows.closed_at,
        )

    def _retain(self, held: Events, windows: OpenWindows) -> None:
        """Keep the open windows and the rows that they need."""
        self._open = windows.take(np.flatnonzero(windows.windows.stop == OPEN))
        still = self._open.windows
        begin = np.maximum(self._open.keep - self._back, still.first)
        low = places(held, still.partition, begin)
        high = places(held, still.partition, np.full(len(still), OPEN))
        # Windows come by partition; the rows of one are needed from its first need on.
        ends, first = np.unique(high, return_index=True)
        self._held = kept(held, np.minimum.reduceat(low, first) if len(first) else low, ends)

    def _begun(self) -> tuple[Integers, Integers]:
        """Return partitions, and the arrival of the first event of each in an open window."""
        partitions, first = np.unique(self._open.windows.partition, return_index=True)
        begun = np.minimum.reduceat(self._open.begun_at, first) if len(first) else first
        return partitions, begun


def _store(windows: OpenWindows, at: Integers, part: StretchMatches) -> None:
    """Note where matching stopped."""
    resume, after = windows.resume, part.resume
    resume.next_start[at] = after.next_start
    resume.barrier[at] = after.barrier
    resume.number[at] = after.number
    resume.completed_to[at] = after.completed_to
    for index, window in enumerate(at.tolist()):
        resume.consumed[window] = after.consumed[index]
    windows.keep[at] = part.keep
