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
from outpace.engine.kernels.find import find_pairs
from outpace.engine.match.contract import Block, Matcher, Resume, Task
from outpace.engine.match.count_candidates import count_candidates, exact_sum
from outpace.engine.rows.partition import column_arrays
from outpace.engine.split.windows import OPEN, Split, Windows
from outpace.engine.window_match.open_windows import OpenedWindows, OpenWindows
from outpace.engine.window_match.result import WindowMatches
from outpace.engine.window_match.rows import Segments, joined, kept, places
from outpace.engine.window_match.spread import WindowRuns, spread


class CoveredWindows(OpenedWindows):
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
        segment, first, stop = _places(held, segments, windows)
        block = self._block(held, segments, _floors(segments, segment, first, stop))
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

    def count(self, events: Events, split: Split) -> int | None:
        """Return how many matches a step would give, each once; None where that takes a list."""
        held, open_windows = self._joined(events, split)
        segments = Segments.of(held, open_windows.windows.partition)
        floors = _floors(segments, *_places(held, segments, open_windows.windows))
        block = self._block(held, segments, floors)
        counts = count_candidates(self._task, block, self._resume(segments))
        return None if counts is None else exact_sum(counts)

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

    def _block(self, held: Events, segments: Segments, floors: Integers) -> Block:
        bounds = segments.bounds
        return Block(
            columns=column_arrays(held.rows),
            segments=bounds,
            visible=bounds[1:],
            # Rows are counted from the first one held, and no row is the first of its partition.
            ordinals=np.arange(1, 1 + len(held.ordinal)) - np.repeat(bounds[:-1], np.diff(bounds)),
            arrivals=held.arrival,
            times=held.times if self._task.bound.within is not None else held.times[:0],
            ended=False,
            floors=floors,
        )

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


def _places(
    held: Events, segments: Segments, windows: Windows
) -> tuple[Integers, Integers, Integers]:
    """Return of each window the segment, the first row and the one behind the last."""
    return (
        segments.of_partition(windows.partition),
        places(held, windows.partition, windows.first),
        places(held, windows.partition, windows.stop),
    )


def _floors(segments: Segments, segment: Integers, first: Integers, stop: Integers) -> Integers:
    """Return for each row the first one of the oldest window that holds it, the next if none."""
    size = int(segments.bounds[-1])
    row = np.arange(size)
    of_row = np.repeat(np.arange(len(segments.partition)), np.diff(segments.bounds))
    oldest = np.empty(size, np.int64)
    find_pairs(segment, stop, of_row, row + 1, oldest)
    inside = oldest < len(first)
    at = np.minimum(oldest, max(0, len(first) - 1))
    if not len(first):
        return row + 1
    holds = inside & (segment[at] == of_row) & (first[at] <= row)
    return np.where(holds, first[at], row + 1)
