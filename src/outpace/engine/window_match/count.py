"""How many matches complete windows have, without a list of them wherever that can be done.

Where a match of the stream is one of every window that holds its events, the stream is counted
once, with numbers for each set of open windows. Else each window is counted; where a match counts
once, whatever two windows have in common is taken off again, also where each start has a limit.
Matches that neither can count are listed.

Memory: the rows, and numbers for the windows that are open at once. A list has the matches that
start in windows that are open at once, of which there may be so many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from outpace.compiler.kernel import is_compiled
from outpace.engine.arrays import Booleans, Integers
from outpace.engine.event import Events
from outpace.engine.kernels.count_rows import Spans, count_rows
from outpace.engine.match.contract import Block, Matcher, Outcome, Resume, Task, Turns
from outpace.engine.match.count_ambiguity import is_ambiguous
from outpace.engine.match.count_candidates import (
    Exact,
    count_candidates,
    exact_sum,
    truth_table,
)
from outpace.engine.match.graph import GraphMatcher
from outpace.engine.match.identity import MatchIds, match_ids
from outpace.engine.match.partitions import SMALL, count_matches
from outpace.engine.match.program import ACCEPT, Program
from outpace.engine.match.twin import STEP_COST, TwinMatcher
from outpace.engine.split.windows import Windows, take_windows
from outpace.engine.window_match.covered_windows import covered_block, spans_of
from outpace.engine.window_match.rows import Segments, joined, places
from outpace.engine.window_match.sharing import everywhere, everywhere_by_start, is_unruled
from outpace.engine.window_match.stretches import (
    ROWS_AT_ONCE,
    Stretches,
    StretchMatcher,
    chunks,
)
from outpace.errors import MatchError
from outpace.pattern.ast import Link
from outpace.pattern.query import Per

#: Matches that are kept or listed at once to be told apart, some gigabytes; and those that windows
#: are listed together for.
LISTED_MAX: Final = 1 << 23
LISTED: Final = 1 << 20

#: Rows of windows that are listed at once where nobody knows how many matches they have.
ROWS_LISTED: Final = 1 << 10

_HINT: Final = (
    "count them in each window, with over(..., duplicates=True), or shorten WITHIN or the windows"
)


def count_in_windows(task: Task, matcher: Matcher, events: Events, windows: Windows) -> int:
    """Return how many matches windows have.

    Parameters
    ----------
    task, matcher
        The query, and how one window is matched.
    events, windows
        All events, in order, and the windows, which are closed.
    """
    # What is shown of a match makes no other match of it.
    bare = replace(task, bound=replace(task.bound, measures=()))
    return _WindowCounter(bare, matcher, events, windows).count()


class _WindowCounter:
    """The matches of windows, which are sorted and have rows from `low` up to `high`."""

    def __init__(self, task: Task, matcher: Matcher, events: Events, windows: Windows) -> None:
        self._task = task
        self._every = task.bound.query.duplicates
        held = joined(events.slice(0, 0), events, keyed=bool(task.bound.partition_by))
        self._held = held
        windows = take_windows(windows, np.lexsort((windows.number, windows.partition)))
        stop = places(held, windows.partition, windows.stop)
        if everywhere(task) and not self._every:
            # What a window has that lies in an earlier one, that one has, too.
            beyond = np.flatnonzero(np.diff(np.maximum.accumulate(stop), prepend=0))
            windows, stop = take_windows(windows, beyond), stop[beyond]
        self._windows = windows
        self._low, self._high = places(held, windows.partition, windows.first), stop
        if isinstance(matcher, GraphMatcher):
            # A match without repetitions takes no more rows than this.
            takes_max = LISTED_MAX * max(1, len(task.program.positions))
            matcher = replace(matcher, takes_max=min(matcher.takes_max, takes_max), hint=_HINT)
        else:
            # All windows together may take as many steps as one block with their rows.
            turns = Turns(task, int((self._high - self._low).sum()), STEP_COST)
            matcher = TwinMatcher(task, turns=turns)
        self._matcher = matcher
        self._stretched = StretchMatcher(task, matcher)

    def count(self) -> int:
        if len(self._held.arrival) <= SMALL:
            twin = TwinMatcher(self._task)
            early = partial(twin.stand_in, ready=lambda _: is_compiled(count_rows))
            if (total := self._listed(early, self._parts(ROWS_AT_ONCE))) is not None:
                return total
        in_order = bool((np.diff(self._high) >= 0).all())
        total = self._at_once() if in_order and everywhere(self._task) else None
        if total is not None:
            return total
        if self._every or not (self._low[1:] < self._high[:-1]).any():
            return self._one_by_one(self._stretches)
        if in_order and everywhere_by_start(self._task):
            return self._by_start()
        total = self._less_shared() if in_order and is_unruled(self._task) else None
        if total is None:
            total = self._listed(self._matcher, self._lots())
        assert total is not None
        return total

    def _at_once(self) -> int | None:
        """Count in the stream; None where that takes a list."""
        segments = Segments.of(self._held, self._windows.partition)
        opened, closed = spans_of(self._low, self._high, len(self._held.arrival))
        most = 0
        if self._every:
            most = np.iinfo(np.int64).max // max(1, int((opened - closed).max(initial=1)))
        block = covered_block(self._task, self._held, segments)
        resume = Resume.fresh(len(segments.partition))
        return _total(
            count_candidates(self._task, block, resume, spans=Spans(opened, closed, most))
        )

    def _one_by_one(self, stretches: Stretches) -> int:
        """Count in each window, or other stretch."""
        # What only the twin finds is listed.
        rows = ROWS_AT_ONCE if isinstance(self._matcher, GraphMatcher) else ROWS_LISTED
        total = 0
        for begin, end in chunks(stretches.high - stretches.low, rows):
            at = np.arange(begin, end)
            block = self._stretched.block(self._held, stretches, at, ended=True)
            total += count_matches(self._task, block, Resume.fresh(len(at)), self._matcher)
        return total

    def _by_start(self) -> int:
        """Count in each window the starts that no later one has.

        A later window has the other starts with the same matches, and maybe more.
        """
        low, high = self._low[1:], self._high[:-1]
        pairs = np.flatnonzero(low < high)
        low, high = low[pairs], high[pairs]
        shared = Stretches(low, high, self._windows.first[pairs + 1], high)
        return self._one_by_one(self._stretches) - self._one_by_one(shared)

    def _less_shared(self) -> int | None:
        """Count in each window less what it shares with the next; None where that takes a list.

        A match that is one of windows that follow each other is in one pair of neighbours less than
        in windows. Windows differ in what holds of the rows at their ends: what two have in common
        is what holds in both, as long as no row that is not taken decides.
        """
        task, low, high = self._task, self._low, self._high
        ruling = _ruling(task.program)
        flipped = np.zeros(len(task.program.names), np.bool_) if ruling is None else ruling
        differ = any(move.at_start for move in task.program.initial)
        # Of each row and variable the number of runs of windows in which it allows a match.
        runs = np.zeros((len(self._held.arrival), len(flipped)), np.int64)
        total = 0
        for at in self._parts(ROWS_AT_ONCE):
            block = self._block(at)
            truth = truth_table(task, block)
            counted = _total(count_candidates(task, block, Resume.fresh(len(at)), truth))
            if counted is None:
                return None
            total += counted
            _add(runs, _ranges(low[at], high[at]), truth ^ flipped, 1)
            pairs = at[at + 1 < len(low)]
            pairs = pairs[low[pairs + 1] < high[pairs]]
            if not len(pairs):
                continue
            rows = _ranges(low[pairs + 1], high[pairs])
            sizes = high[pairs] - low[pairs + 1]
            left = truth[rows + np.repeat(block.segments[pairs - at[0]] - low[pairs], sizes)]
            block = self._block(pairs + 1)
            right = truth_table(task, block)
            right = right[rows + np.repeat(block.segments[:-1] - low[pairs + 1], sizes)]
            differ = differ or bool((left != right).any())
            if differ and ruling is None:
                return None
            both = (left ^ flipped) & (right ^ flipped)
            _add(runs, rows, both, -1)
            # The first row of both is the first of a window where it is that of the earlier one.
            shared = Stretches(low[1:], high[:-1], self._windows.first[:-1], high[:-1])
            block = self._stretched.block(self._held, shared, pairs, ended=True)
            resume = Resume.fresh(len(pairs))
            counted = _total(count_candidates(task, block, resume, both ^ flipped))
            if counted is None:
                return None
            total -= counted
        return None if differ and runs.max(initial=0) > 1 else total

    def _listed(
        self, match: Callable[[Block, Resume], Outcome | None], parts: Iterator[Integers]
    ) -> int | None:
        """Count the matches of a list, which is kept as long as a window may find them again."""
        total = 0
        start, ids = _NONE, MatchIds.joined([])
        for at in parts:
            block = self._block(at)
            outcome = match(block, Resume.fresh(len(at)))
            if outcome is None:
                return None
            found = outcome.found
            if self._every:
                total += len(found.start)
                continue
            places_of = found.start + (self._low[at] - block.segments[:-1])[found.segment]
            before = len(ids)
            start = np.concatenate([start, places_of])
            ids = MatchIds.joined([ids, match_ids(self._task, block, found)])
            codes = ids.array.dictionary_encode().indices.to_numpy()
            # Codes are given in the order of first appearance.
            once = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))
            total += len(once) - before
            behind = int(at[-1]) + 1
            if behind < len(self._low):
                once = once[start[once] >= self._low[behind]]
            start, ids = start[once], ids.take(once)
            _refuse(len(ids))
        return total

    def _lots(self) -> Iterator[Integers]:
        """Yield some windows at a time that have not too many matches for a list."""
        for at in self._parts(ROWS_AT_ONCE):
            sizes, most = self._most(at), LISTED
            if is_unruled(self._task):
                block = self._block(at)
                counts = count_candidates(self._task, block, Resume.fresh(len(at)))
                sizes, most = (self._high - self._low)[at], ROWS_LISTED
                if counts is not None:
                    few = np.minimum(counts, LISTED_MAX + 1).astype(np.int64)
                    sizes, most = np.add.reduceat(few, block.segments[:-1]), LISTED
                    _refuse(int(sizes.max()))
            for begin, end in chunks(sizes, most):
                yield at[begin:end]

    def _parts(self, rows: int) -> Iterator[Integers]:
        """Yield some windows at a time, with so many rows or one of them."""
        for begin, end in chunks(self._high - self._low, rows):
            yield np.arange(begin, end)

    def _most(self, at: Integers) -> Integers:
        """Return how many matches windows have at most where matches rule each other out."""
        sizes = (self._high - self._low)[at]
        limits = {limit.per: limit.count for limit in self._task.bound.query.limits}
        if limits:
            sizes = sizes * min(LISTED_MAX, limits.get(Per.START, LISTED_MAX))
            sizes = np.minimum(sizes, limits.get(Per.PARTITION, LISTED_MAX))
        return sizes

    @property
    def _stretches(self) -> Stretches:
        return Stretches(self._low, self._high, self._windows.first, self._windows.closed_at)

    def _block(self, at: Integers) -> Block:
        return self._stretched.block(self._held, self._stretches, at, ended=True)


def _refuse(matches: int) -> None:
    """Refuse a list that would not fit into memory."""
    if matches > LISTED_MAX:
        raise MatchError(
            f"more than {LISTED_MAX} matches would have to be listed at once to count each once",
            hint=_HINT,
        )


def _ruling(program: Program) -> Booleans | None:
    """Say which variables rule matches out by rows that are not taken.

    None where one does that is taken as well, or where a match has several ways to come about: then
    what two windows have in common is not what holds in both.
    """
    moves = [move for follow in program.follow for move in follow]
    if any(move.untils or move.holds for move in (*program.initial, *moves)) or any(
        move.link is not Link.ANY for move in moves if move.target != ACCEPT
    ):
        return None
    ruling = np.zeros(len(program.names), np.bool_)
    ended = [negation for ends in program.ends for negation in ends]
    for negation in (*ended, *(n for move in moves for n in move.negations)):
        ruling[negation.variable] = True
    taken = ruling[[position.variable for position in program.positions]].any()
    return None if taken or (ruling.any() and is_ambiguous(program)) else ruling


def _add(runs: Integers, rows: Integers, holds: Booleans, sign: int) -> None:
    """Count rows in which variables hold; `rows` never lie far from each other."""
    least, end = int(rows.min()), int(rows.max()) + 1
    for variable in range(runs.shape[1]):
        counted = np.bincount(rows[holds[:, variable]] - least, minlength=end - least)
        runs[least:end, variable] += sign * counted


def _ranges(low: Integers, high: Integers) -> Integers:
    """Return the numbers from each of `low` up to `high`, one range behind the other."""
    sizes = high - low
    ends = np.cumsum(sizes)
    return np.repeat(low - ends + sizes, sizes) + np.arange(sizes.sum())


def _total(counts: Integers | Exact | None) -> int | None:
    return None if counts is None else exact_sum(counts)


_NONE = np.zeros(0, np.int64)
