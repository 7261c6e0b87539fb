"""All matches in windows that overlap: each is found once, and belongs to the windows around it.

Where every candidate is a match, whatever others there are, a match of a window is one of the
stream whose events the window holds. So the stream is matched once, as far back as a window
reaches, and windows are found by arithmetic: those that start no later than the match and end
behind it have numbers that follow each other.

Memory: the rows of open windows that a match may still start with, and the open windows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import Events
from outpace.engine.kernels.grouping import find_pairs
from outpace.engine.match.contract import Block, Matcher, Resume, Task
from outpace.engine.rows.partition import column_arrays
from outpace.engine.split.windows import OPEN, Split
from outpace.engine.window_match.open_windows import ListedWindows, OpenWindows
from outpace.engine.window_match.result import WindowMatches
from outpace.engine.window_match.rows import Segments, joined, kept, places
from outpace.engine.window_match.spread import WindowRuns, spread


class CoveredWindows(ListedWindows):
    """Matches windows of queries that want all matches.

    Parameters
    ----------
    task, matcher
        The query, and its matcher.
    nothing
        Events that are none, with the columns of those to come.
    """

    def __init__(self, task: Task, matcher: Matcher, nothing: Events) -> None:
        self._task = task
        self._matcher = matcher
        self._every = task.bound.query.duplicates
        self._held = nothing
        self._open = OpenWindows.none()

    def step(self, events: Events, split: Split) -> WindowMatches:
        """Take events and the windows that they open and close; return what became final."""
        held, open_windows = self._joined(events, split)
        windows = open_windows.windows
        segments = Segments.of(held, windows.partition)
        segment = segments.of_partition(windows.partition)
        first = places(held, windows.partition, windows.first)
        stop = places(held, windows.partition, windows.stop)
        block = covered_block(self._task, held, segments, _floors(first, stop, len(held.ordinal)))
        outcome = self._matcher(block, self._resume(segments))
        found = outcome.found
        # The windows of a match: from the first that ends behind it to the last that has its start.
        low, high = np.empty(len(found.start), np.int64), np.empty(len(found.start), np.int64)
        last = found.rows[found.offsets[1:] - 1].astype(np.int64)
        starts = found.start.astype(np.int64)
        find_pairs(segment, stop, found.segment, last + 1, low)
        find_pairs(segment, first, found.segment, starts + 1, high)
        count = np.maximum(high - low, 0)
        if not self._every:
            count = np.minimum(count, 1)
        match = np.flatnonzero(count)
        low, count = low[match], count[match]
        ends = np.cumsum(count)
        window = np.repeat(low - ends + count, count) + np.arange(count.sum())
        runs = WindowRuns(match, found.settled[match], ends, window)
        matches = spread(self._task, block, found, runs, windows)
        self._retain(held, segments, open_windows, outcome.keep_from)
        return matches

    def tables(self) -> list[pa.Table]:
        """Return all that is kept but the rows, for a saved state."""
        return [self._open.table()]

    def restore(self, tables: list[pa.Table], held: Events) -> None:
        """Go on from what `tables` returned, and the rows."""
        (windows,) = tables
        self._open = OpenWindows.from_table(windows)
        self._held = held

    def _joined(self, events: Events, split: Split) -> tuple[Events, OpenWindows]:
        """Return all rows that count, and all windows."""
        held = joined(self._held, events, keyed=bool(self._task.bound.partition_by))
        at = places(held, split.opened.partition, split.opened.first)
        added = OpenWindows.fresh(split.opened, held.arrival[at])
        return held, self._open.updated(added, split.closed)

    def _resume(self, segments: Segments) -> Resume:
        """Return that all starts held are open, and what rows held before completed is known."""
        resume = Resume.fresh(len(segments.partition))
        known = np.searchsorted(self._held.partition, segments.partition, side="right")
        known -= np.searchsorted(self._held.partition, segments.partition)
        resume.next_start += 1
        resume.completed_to = known.astype(np.int64) + 1
        return resume

    def _retain(
        self, held: Events, segments: Segments, windows: OpenWindows, keep_from: Integers
    ) -> None:
        """Keep the open windows, and the rows that matches in them may still start with."""
        self._open = windows.take(np.flatnonzero(windows.windows.stop == OPEN))
        still = self._open.windows
        low = segments.bounds[1:].copy()
        first = places(held, still.partition, still.first)
        np.minimum.at(low, segments.of_partition(still.partition), first)
        self._held = kept(held, np.maximum(low, keep_from), segments.bounds[1:])


def covered_block(
    task: Task, held: Events, segments: Segments, floors: Integers | None = None
) -> Block:
    """Return the rows held as a block, in which no row is the first of its partition."""
    bounds = segments.bounds
    return Block(
        columns=column_arrays(held.rows),
        segments=bounds,
        visible=bounds[1:],
        # Rows are counted from the first one held.
        ordinals=np.arange(1, 1 + len(held.ordinal)) - np.repeat(bounds[:-1], np.diff(bounds)),
        arrivals=held.arrival,
        times=held.times if task.bound.within is not None else held.times[:0],
        ended=False,
        floors=held.ordinal[:0] if floors is None else floors,
    )


def spans_of(first: Integers, stop: Integers, size: int) -> tuple[Integers, Integers]:
    """Return for each row how many windows opened up to it, and how many closed before it."""
    rows = np.arange(size)
    return np.searchsorted(first, rows, "right"), np.searchsorted(stop, rows, "right")


def _floors(first: Integers, stop: Integers, size: int) -> Integers:
    """Return for each row the first one of the oldest window that holds it, the next if none."""
    opened, closed = spans_of(first, stop, size)
    return np.where(closed < opened, np.append(first, 0)[closed], np.arange(1, size + 1))
