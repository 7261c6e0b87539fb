"""Stretches of windows, each a partition of its own in the matcher's eyes.

So all that a query may ask holds inside a window as it does in a table: anchors, PREV and NEXT,
consumption, limits, MATCH_NUMBER.

Memory: at most `rows_at_once` rows of windows, or those of one window, are gathered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.event import Events
from outpace.engine.kernels.grouping import find_pairs
from outpace.engine.match.contract import Block, BlockMatches, Matcher, Resume, Task
from outpace.engine.match.identity import MatchIds, identified
from outpace.engine.match.output import match_rows
from outpace.engine.match.reach import reach_of
from outpace.engine.rows.partition import gather
from outpace.engine.split.windows import Windows, take_windows
from outpace.engine.window_match.result import (
    CLOSING,
    COMPLETING,
    WindowMatches,
    rows_of_matches,
    turns_of,
    with_numbers,
)

#: Rows of windows that are matched in one call.
ROWS_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True)
class Stretches:
    """Rows of windows to be matched now, one entry per window.

    Parameters
    ----------
    low, high
        The rows, among those held.
    first
        The ordinal of the window's first event.
    closed_at
        As in `Windows`; of no meaning for windows that stay open.
    spans
        As in `Block`, for each window.
    """

    low: Integers
    high: Integers
    first: Integers
    closed_at: Integers
    spans: Integers | None = None


@dataclass(frozen=True)
class StretchMatches:
    """The matches of one call: `window` numbers stretches, `event` and `phase` are x and its phase.

    `keep` has for each stretch in `at` the ordinal of the first row that it still needs.
    """

    block: Block
    found: BlockMatches
    window: Integers
    event: Integers
    phase: Integers
    at: Integers
    resume: Resume
    keep: Integers


class StretchMatcher:
    """Matches stretches of windows, each where an earlier call stopped."""

    def __init__(self, task: Task, matcher: Matcher, *, rows_at_once: int = ROWS_AT_ONCE) -> None:
        self._task = task
        self._matcher = matcher
        self._reach = reach_of(task)
        self._rows_at_once = rows_at_once
        self._timed = task.bound.within is not None or task.bound.uncertainty is not None

    def match(
        self, held: Events, stretches: Stretches, resume: Resume, *, ended: bool
    ) -> Iterator[StretchMatches]:
        """Match windows that all stay open, or all close."""
        filled = np.flatnonzero(stretches.high > stretches.low)
        sizes = (stretches.high - stretches.low)[filled]
        for begin, end in chunks(sizes, self._rows_at_once):
            at = filled[begin:end]
            block = self.block(held, stretches, at, ended=ended)
            outcome = self._matcher(block, taken(resume, at))
            event, phase = self._numbers(block, outcome.found, stretches.closed_at[at])
            first = stretches.first[at]
            keep = first + block.ordinals[block.segments[:-1]]
            keep += outcome.keep_from - block.segments[:-1]
            window = at[outcome.found.segment]
            yield StretchMatches(
                block, outcome.found, window, event, phase, at, outcome.resume, keep
            )

    def block(self, held: Events, stretches: Stretches, at: Integers, *, ended: bool) -> Block:
        """Return some stretches as a block, one segment for each."""
        low, sizes = stretches.low[at], (stretches.high - stretches.low)[at]
        segments = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        first = stretches.first[at]
        rows: slice | Integers
        if (low[1:] == stretches.high[at][:-1]).all():
            # Windows that lie one behind the other need not be copied.
            rows = slice(int(low[0]), int(low[0] + segments[-1]))
            table, chosen = held.rows.slice(rows.start, int(segments[-1])), None
        else:
            rows = chosen = np.repeat(low - segments[:-1], sizes) + np.arange(segments[-1])
            table = held.rows
        ahead = 0 if ended else self._reach.ahead
        return Block(
            columns={name: gather(table.column(name), chosen) for name in table.column_names},
            segments=segments,
            visible=np.maximum(segments[1:] - ahead, segments[:-1]),
            ordinals=held.ordinal[rows] - (first if len(at) == 1 else np.repeat(first, sizes)),
            arrivals=held.arrival[rows],
            times=held.times[rows] if self._timed else held.times[:0],
            ended=ended,
            spans=None if stretches.spans is None else stretches.spans[at],
        )

    def _numbers(
        self, block: Block, found: BlockMatches, closed_at: Integers
    ) -> tuple[Integers, Integers]:
        """Return x and the phase of each match."""
        last = block.arrivals[block.segments[1:] - 1]
        event, decided = found.settled.astype(np.int64), np.zeros(len(found.start), np.bool_)
        if block.ended:
            decided = event > last[found.segment]
        if self._reach.ahead:
            event, decided = self._shown(block, found, decided)
        phase = np.full(len(event), COMPLETING, np.int64)
        if block.ended:
            event = np.where(decided, closed_at[found.segment], event)
            outside = (closed_at > last)[found.segment]
            phase[decided & outside] = CLOSING
        return event, phase

    def _shown(
        self, block: Block, found: BlockMatches, decided: Booleans
    ) -> tuple[Integers, Booleans]:
        """Return when the rows are there that NEXT looks ahead to, and what the end decided."""
        segment = np.repeat(np.arange(len(block.segments) - 1), np.diff(block.segments))
        rows = np.empty(len(found.start), np.int64)
        find_pairs(segment, block.arrivals, found.segment, found.settled, rows)
        rows += self._reach.ahead
        stop = block.segments[1:][found.segment]
        decided = decided | (rows >= stop)
        return block.arrivals[np.minimum(rows, stop - 1)], decided


def taken(resume: Resume, at: Integers) -> Resume:
    """Return where some windows stopped."""
    return Resume(
        resume.next_start[at],
        resume.barrier[at],
        resume.number[at],
        resume.completed_to[at],
        [resume.consumed[window] for window in at],
    )


def chunks(sizes: Integers, most: int) -> Iterator[tuple[int, int]]:
    """Cut a list into runs whose sizes add up to at most `most`, or of one entry."""
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield begin, end
        begin = end


def part_matches(task: Task, part: StretchMatches, windows: Windows) -> WindowMatches:
    """Return the matches of a part as rows of the result, with their numbers."""
    table, match_of = match_rows(task, part.block, part.found)
    of = take_windows(windows, part.window)
    counts = np.bincount(match_of, minlength=len(of))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    numbers = rows_of_matches(offsets, part.event, of.number, of.start_time, of.end_time)
    table = with_numbers(task.bound, table, *numbers)
    return WindowMatches(
        table,
        offsets,
        part.event,
        part.phase,
        of.number,
        of.partition,
        _identified(task, part, of),
        turn=turns_of(task.bound.query, of.end_time),
    )


def _identified(task: Task, part: StretchMatches, windows: Windows) -> Callable[[], MatchIds]:
    """Return what makes the ids of matches, in these windows."""
    make, query = identified(task, part.block, part.found), task.bound.query
    if not query.duplicates:
        return make
    return lambda: make().in_windows(query, windows.start_time, windows.number)
