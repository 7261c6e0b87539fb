"""The matcher for all matches of a pattern whose conditions read the match: each start's runs.

Every start is searched by the kernel, which notes each run that ends (`engine/kernels/search.py`).
Where a match may rule out another, it also says which of them are matches. Else these runs become
matches here, as `TwinMatcher` says: by the event that completes them, up to the first whose end
needs rows that have not come.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from outpace.engine.arrays import NO_TIME, Booleans, Integers
from outpace.engine.kernels import search as kernels
from outpace.engine.kernels.search import REACHED_END, Buffers, Cursor
from outpace.engine.match.contract import (
    Block,
    BlockMatches,
    Outcome,
    Resume,
    Task,
    empty_block,
)
from outpace.engine.match.finality import known_from, wait_for_time
from outpace.engine.match.kernel import consumed_rows, outcome_at
from outpace.engine.match.kernel_search import (
    KernelSearch,
    MatchRoom,
    cursor_at,
    first_ordinals,
    make_search,
)
from outpace.engine.match.task import take_partial_matches
from outpace.engine.match.twin import TwinMatcher
from outpace.pattern.query import Selection

#: More matches of a start than it can have.
_UNLIMITED: Final = 1 << 62


def make_candidate_matcher(task: Task) -> CandidateMatcher | None:
    """Return the compiled matcher of a task, or None where only the twin will do."""
    if task.bound.query.effective_selection is not Selection.ALL:
        return None
    search = make_search(task)
    return None if search is None else CandidateMatcher(task, search)


class CandidateMatcher:
    """A matcher that runs compiled code; see `make_candidate_matcher`."""

    def __init__(self, task: Task, search: KernelSearch) -> None:
        self.search = search
        self._task = task
        self._twin = TwinMatcher(task)
        self._variables = np.array([p.variable for p in task.program.positions], np.int64)
        per_start = search.rules.per_start
        self._per_start = _UNLIMITED if per_start < 0 else per_start

    def __call__(self, block: Block, resume: Resume) -> Outcome:
        """Match a block from where an earlier call stopped."""
        if not block.size:
            return self._twin(block, resume)
        if outcome := self._twin.stand_in(block, resume, self.ready):
            return outcome
        # Compiled arithmetic may give up (an overflow, say): the twin words the error, or has none.
        return self._run(block, resume) or self._twin(block, resume)

    def ready(self, size: int) -> bool:
        """Say whether compiled code is to match a block of this size now, rather than the twin."""
        return self.search.ready(size, kernels.search)

    def compile_now(self) -> None:
        """Compile all that this matcher runs, so that small blocks need not go to the twin."""
        self._run(empty_block(self._task), Resume.fresh(0))

    def _run(self, block: Block, resume: Resume) -> Outcome | None:
        cursor = cursor_at(block, resume)._replace(looked=np.zeros(block.size, np.int64))
        begin = cursor.next_row.copy()
        rules = self.search.rules
        if rules.consume != kernels.CONSUME_NONE:
            cursor = cursor._replace(consumed=consumed_rows(block, resume))
        room, told = MatchRoom.of(block.size), MatchRoom.none(block.size)
        rows = self.search.rows(block)
        if not self.search.run(kernels.search, block, rows, cursor, room, told):
            return None
        out = room.arrays
        if rules.ruled:
            outcome = outcome_at(block, resume, cursor, out)
            if not self._task.timeouts:
                return outcome
            return replace(outcome, timed_out=self.search.timed_out(block, told.arrays))
        runs = _Runs.of(block, out, self._repeated(out) if rules.repeats else None)
        outcome, full = _outcome(block, resume, runs, self._per_start, cursor, begin)
        if not self._task.timeouts:
            return outcome
        partial = self.search.timed_out(block, told.arrays)
        done = partial.start < outcome.keep_from[partial.segment]
        done[np.isin(partial.start, full)] = False
        return replace(outcome, timed_out=take_partial_matches(partial, np.flatnonzero(done)))

    def _repeated(self, out: Buffers) -> Booleans:
        """Mark the runs that are the same match as one before them."""
        marks = np.zeros(int(out.counts[0]), np.bool_)
        found: set[tuple[int, bytes, bytes]] = set()
        start = -1
        for run in range(len(marks)):
            if out.start[run] != start:
                start = int(out.start[run])
                found.clear()
            low, high = out.ends[run], out.ends[run + 1]
            labels = self._variables[out.positions[low:high]]
            key = (start, out.rows[low:high].tobytes(), labels.tobytes())
            marks[run] = key in found
            if out.number[run] == kernels.MATCHED:
                found.add(key)
        return marks


@dataclass(frozen=True)
class _Runs:
    """Runs that ended, by segment, completing event, start and preference.

    Parameters
    ----------
    out
        What the search wrote.
    source
        For each run its number there.
    segment, start, last
        Where a run is, and its first and last row.
    ended
        What became of it: FAILED, MATCHED or PENDING.
    group
        The number of its group: the runs of a start with the same last row.
    """

    out: Buffers
    source: Integers
    segment: Integers
    start: Integers
    last: Integers
    ended: Integers
    group: Integers

    @staticmethod
    def of(block: Block, out: Buffers, dropped: Booleans | None) -> _Runs:
        count = int(out.counts[0])
        start = out.start[:count].astype(np.int64)
        last = out.rows[out.ends[1 : count + 1] - 1].astype(np.int64)
        # Rows of one segment are in one piece, so its runs are, too.
        order = np.lexsort((start, last))
        if dropped is not None:
            order = order[~dropped[order]]
        start, last = start[order], last[order]
        changes = np.diff(start) != 0
        changes |= np.diff(last) != 0
        group = np.zeros(len(order), np.int64)
        np.cumsum(changes, out=group[1:])
        segment, ended = out.segment[order].astype(np.int64), out.number[order]
        return _Runs(out, order, segment, start, last, ended, group)

    def __len__(self) -> int:
        return len(self.source)

    def taken(self, chosen: Booleans) -> _Runs:
        """Return some of the runs."""
        arrays = (self.source, self.segment, self.start, self.last, self.ended, self.group)
        return _Runs(self.out, *(array[chosen] for array in arrays))

    @cached_property
    def matched(self) -> Booleans:
        """Which runs are candidates."""
        found: Booleans = self.ended == kernels.MATCHED
        return found

    def rank(self) -> tuple[Integers, Integers]:
        """Return for each run how many candidates of its start come before its group, and it."""
        by_start = np.lexsort((np.arange(len(self)), self.start))
        matched = self.matched[by_start]
        before: Integers = np.cumsum(matched) - matched
        inside: Integers = before - before[_first_of(self.start[by_start])]
        group: Integers = inside[_first_of(self.group[by_start])]
        found, of_group = np.empty(len(self), np.int64), np.empty(len(self), np.int64)
        found[by_start], of_group[by_start] = inside, group
        return of_group, found


def _first_of(keys: Integers) -> Integers:
    """Return for each place the first of those next to it with the same key."""
    places = np.arange(len(keys))
    places[1:][keys[1:] == keys[:-1]] = 0
    return np.maximum.accumulate(places)


def _outcome(
    block: Block, resume: Resume, runs: _Runs, per_start: int, cursor: Cursor, begin: Integers
) -> tuple[Outcome, Integers]:
    """Emit what is final, say where the segments go on, and which starts have all their matches."""
    low, base = block.segments[:-1], first_ordinals(block)
    base = np.where(low < block.segments[1:], base, resume.next_start)
    group_rank, rank = runs.rank()
    of_interest = group_rank < per_start
    # The first group of a segment that waits for rows; what comes behind it waits, too.
    waiting = np.flatnonzero(of_interest & (runs.ended == kernels.PENDING))
    stops, at = np.unique(runs.segment[waiting], return_index=True)
    stop_group = np.full(len(low), len(runs))
    stop_group[stops] = runs.group[waiting[at]]
    completed, barrier = block.visible - low, -1 - base
    for segment, run in zip(stops, waiting[at], strict=True):
        completed[segment] = runs.last[run] - low[segment]
        barrier[segment] = runs.start[run] - low[segment] - 1
    before = runs.group < stop_group[runs.segment]
    decided = runs.taken(of_interest & before)
    settled, awaited = _settled(block, decided)
    done = resume.completed_to - base, resume.barrier - base
    emitted = decided.matched & (rank[of_interest & before] < per_start)
    emitted &= _behind(decided, low, *done)
    found = _matches(decided.taken(emitted), resume, settled[emitted], awaited[emitted])
    # A start is done with when it has all its matches, or nothing of it waits.
    open_starts = cursor.looked != 0
    late = runs.taken(_behind(runs, low, completed, barrier))
    open_starts[late.start] = True
    full = runs.taken(runs.matched & before & (rank == per_start - 1))
    open_starts[full.start] = False
    following = block.visible.copy()
    for segment, (first, end) in enumerate(zip(begin, block.visible, strict=True)):
        waits = np.flatnonzero(open_starts[first:end])
        if len(waits):
            following[segment] = first + waits[0]
    sizes = np.bincount(found.segment, minlength=len(low))
    after = Resume(
        next_start=following - low + base,
        barrier=np.maximum(barrier + base, -1),
        number=resume.number + sizes,
        completed_to=np.maximum(completed + base, 0),
        consumed=[np.zeros(0, np.int64)] * len(low),
    )
    return Outcome(found, after, np.minimum(following, block.segments[1:])), full.start


def _behind(runs: _Runs, low: Integers, completed: Integers, barrier: Integers) -> Booleans:
    """Mark the runs that come behind a row that completes runs, and a start of that row."""
    last, start = runs.last - low[runs.segment], runs.start - low[runs.segment]
    row = completed[runs.segment]
    marks: Booleans = (last > row) | ((last == row) & (start > barrier[runs.segment]))
    return marks


def _settled(block: Block, runs: _Runs) -> tuple[Integers, Integers]:
    """Return for each run when it and all before it were final: the row, and the time awaited."""
    reach, passed = runs.out.reach[runs.source], runs.out.passed[runs.source]
    known = known_from(block)
    end = reach == REACHED_END
    settled = np.where(end, block.next_arrival, known[np.where(end, 1, reach) - 1])
    settled, awaited = wait_for_time(block, runs.segment, settled, passed)
    if awaited is None:
        awaited = np.full(len(settled), NO_TIME)
    by_decision = np.lexsort((awaited, awaited == NO_TIME, settled))
    place = np.empty(len(runs), np.int64)
    place[by_decision] = np.arange(len(runs))
    # A later segment starts anew, and a group is decided when all its runs are.
    place += runs.segment * len(runs)
    latest = np.maximum.accumulate(place)
    latest = latest[len(runs) - 1 - _first_of(runs.group[::-1])[::-1]]
    decision = by_decision[latest - runs.segment * len(runs)]
    return settled[decision], awaited[decision]


def _matches(runs: _Runs, resume: Resume, settled: Integers, awaited: Integers) -> BlockMatches:
    out = runs.out
    sizes = np.diff(out.ends)[runs.source]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    source = np.repeat(out.ends[runs.source] - offsets[:-1], sizes) + np.arange(offsets[-1])
    counts = np.bincount(runs.segment, minlength=len(resume.number))
    before = np.cumsum(counts) - counts
    number = np.arange(len(runs)) - (before - resume.number)[runs.segment] + 1
    timeless = bool((awaited == NO_TIME).all())
    return BlockMatches(
        segment=runs.segment,
        start=runs.start,
        number=number,
        offsets=offsets,
        rows=out.rows[source],
        positions=out.positions[source],
        settled=settled,
        awaited=None if timeless else awaited,
    )
