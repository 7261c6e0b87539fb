"""The twin matcher: every query, in plain Python, obviously right rather than fast.

Kernels are tested against it, and it answers where no kernel does. It emits a match as soon as no
later row can change it: the search reports what it had to know, and an answer that needs rows that
have not come stops the partition there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from outpace.compiler.kernel import FEWER, head_start
from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.match.after import barrier_after, skip_variables
from outpace.engine.match.contract import (
    Block,
    BlockMatches,
    Outcome,
    PartialMatches,
    Resume,
    Task,
    Turns,
)
from outpace.engine.match.finality import NOTHING, Decision, Decisions
from outpace.engine.match.masks import Predicates, bound_predicates
from outpace.engine.match.twin_search import (
    SearchPlan,
    SearchReach,
    SearchSegment,
    Signal,
    StepBudget,
    TooManyStepsError,
    Walk,
)
from outpace.errors import MatchError
from outpace.pattern.bound import PredicateClass
from outpace.pattern.query import Consume, Per, Selection, Skip, WithinKind

#: So many steps take a few seconds, about as long as kernels take to be compiled.
_PATIENCE: Final = 500_000
#: Matches that one call finds at most where all are wanted: 4 GiB of Python's objects.
MATCHES_MAX: Final = 1 << 23
#: Steps between two looks at how many there are, some hundredths of a second.
_STEPS_AT_ONCE: Final = 1 << 14
#: A step of the search takes as long as so many of compiled code, or longer.
STEP_COST: Final = 100
#: A step of the search takes as long as so many elements in a plain loop.
_STEP: Final = 40
#: How many steps a row takes, usually not more.
_STEPS_EACH: Final = 2


class TwinMatcher:
    """The twin matcher of a task.

    Parameters
    ----------
    task
        The query.
    predicates
        What answers for the predicates over a block; by default the bound ones.
    turns
        What counts the steps of several calls, and refuses too many; by default those of each call.
    """

    def __init__(
        self,
        task: Task,
        predicates: Callable[[Block], Predicates] | None = None,
        *,
        turns: Turns | None = None,
    ) -> None:
        within = task.bound.query.bound
        self.task = task
        self._predicates = bound_predicates(task) if predicates is None else predicates
        self._turns = turns
        self._plan = SearchPlan.of(
            task.program,
            [p.kind is PredicateClass.PATH for p in task.bound.predicates],
            task.bound.within is not None,
            WithinKind.FIRST_TO_LAST if within is None else within.kind,
            step_budget=task.step_budget,
            remember=not task.timeouts,
        )
        self._rules = _MatchRules.of(task)

    def __call__(self, block: Block, resume: Resume, steps: StepBudget | None = None) -> Outcome:
        """Match a block from where an earlier call stopped.

        Where `steps` are given, they are counted instead, and end it with a TooManyStepsError.
        """
        truth, decisions, emitted = self._predicates(block), Decisions(block), _EmittedMatches()
        parts: list[_SegmentMatcher] = []
        taken = self._turns or Turns(self.task, block.size, STEP_COST)

        def more() -> float:
            taken.end(int(counted.work - counted.most) + _STEPS_AT_ONCE, parts[-1].row)
            return counted.work + _STEPS_AT_ONCE

        counted = steps or StepBudget(_STEPS_AT_ONCE, more)
        plan, rules = self._plan, self._rules
        for index, within in enumerate(block.withins(self.task.bound.within).tolist()):
            part = _SegmentMatcher(
                plan, rules, block, resume, index, truth, decisions, emitted, counted, within
            )
            parts.append(part)
            part.run()
        taken.before += block.size
        return Outcome(
            emitted.found(),
            _resume(parts),
            np.array([part.keep_from for part in parts], np.int64),
            emitted.timed_out() if self.task.timeouts else None,
        )

    def stand_in(
        self, block: Block, resume: Resume, ready: Callable[[int], bool]
    ) -> Outcome | None:
        """Match a block as long as no kernel does.

        A small block is matched before Numba is loaded, and any that the kernel is not `ready` for
        before it is compiled. None says that the kernel is ready or worth its wait.
        """
        early = head_start.left // _STEP
        if early < _STEPS_EACH * block.size:
            early = 0
            if ready(block.size):
                return None
        most = min(_PATIENCE, self.task.step_budget)

        def more() -> float:
            return 0 if early and ready(block.size) else most

        steps = StepBudget(min(early, most), more)
        try:
            return self(block, resume, steps)
        except TooManyStepsError:
            return None
        finally:
            head_start.left -= _STEP * steps.work


@dataclass(frozen=True)
class _MatchRules:
    """The rules by which candidates become matches."""

    task: Task
    selection: Selection
    consume: Consume
    targets: frozenset[int]
    per_start: int | None
    per_partition: int | None

    @staticmethod
    def of(task: Task) -> _MatchRules:
        query = task.bound.query
        limits = {limit.per: limit.count for limit in query.limits}
        return _MatchRules(
            task,
            query.effective_selection,
            query.consumption,
            skip_variables(task.bound),
            limits.get(Per.START),
            limits.get(Per.PARTITION),
        )

    @property
    def free(self) -> bool:
        """Whether no match can rule out a candidate of another start."""
        return (
            self.selection is Selection.ALL
            and self.task.bound.query.effective_skip.skip is Skip.NONE
            and self.consume is Consume.NONE
            and self.per_partition is None
        )


@dataclass
class _EmittedMatches:
    """Matches and timed-out runs, gathered over the segments of a block."""

    segment: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    number: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=lambda: [0])
    rows: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    decided: list[Decision] = field(default_factory=list)
    partial: list[tuple[int, int, list[int], tuple[int, ...], Decision]] = field(
        default_factory=list
    )

    def found(self) -> BlockMatches:
        settled, awaited = _decided(self.decided)
        numbers = self.segment, self.start, self.number, self.offsets, self.rows, self.positions
        segment, start, number, offsets, rows, positions = (
            np.array(values, np.int64) for values in numbers
        )
        return BlockMatches(
            segment, start, number, offsets, rows, positions, settled, awaited=awaited
        )

    def timed_out(self) -> PartialMatches:
        return PartialMatches(
            np.array([segment for segment, *_ in self.partial], np.int64),
            np.array([start for _, start, *_ in self.partial], np.int64),
            np.cumsum([0, *(len(rows) for _, _, rows, _, _ in self.partial)]).astype(np.int64),
            np.array([row for _, _, rows, _, _ in self.partial for row in rows], np.int64),
            np.array([p for _, _, _, positions, _ in self.partial for p in positions], np.int64),
            *_decided([decision for *_, decision in self.partial]),
        )


class _FinishedRun(NamedTuple):
    """A run that ended in ACCEPT, or may have; `signal` says which."""

    rows: tuple[int, ...]
    labels: tuple[int, ...]
    positions: tuple[int, ...]
    signal: Signal
    reach: SearchReach

    @property
    def last(self) -> int:
        return self.rows[-1]


@dataclass(frozen=True)
class _Start:
    """All candidates of a start by last row and then preference, and whether more may come."""

    start: int
    groups: list[list[_FinishedRun]]
    open: bool
    reach: SearchReach
    timed_out: list[tuple[list[int], tuple[int, ...]]]


class _SegmentMatcher:
    """Matches one segment; afterwards its attributes say where it stopped, by ordinal."""

    def __init__(
        self,
        plan: SearchPlan,
        rules: _MatchRules,
        block: Block,
        resume: Resume,
        index: int,
        predicates: Predicates,
        decisions: Decisions,
        emitted: _EmittedMatches,
        steps: StepBudget,
        within: int,
    ) -> None:
        self._rules, self._index, self._emitted = rules, index, emitted
        self._low, self._high = int(block.segments[index]), int(block.segments[index + 1])
        self._size = int(block.visible[index]) - self._low
        #: The ordinal of the segment's first row; without rows, everything is still to come.
        self._base = (
            int(block.ordinals[self._low])
            if self._low < self._high
            else int(resume.next_start[index])
        )
        times = block.times[self._low : self._high].tolist() if len(block.times) else []
        newest = times[self._size - 1] if times and self._size else NO_TIME
        masks = predicates.masks(index)
        self._masks = masks
        self._plan = plan
        self._walk = Walk(
            plan,
            SearchSegment(
                self._size,
                block.ended,
                self._base == 0,
                times,
                max(newest, block.watermark),
                within,
                masks,
                predicates.asking(index),
            ),
            steps,
        )
        self._walk.consumed = {int(c) - self._base for c in resume.consumed[index]}
        self._decide = decisions.of_segment(index)
        self._decided = NOTHING
        self._next = max(int(resume.next_start[index]) - self._base, 0)
        self._barrier = int(resume.barrier[index]) - self._base
        self._completed = int(resume.completed_to[index]) - self._base
        self.number = int(resume.number[index])

    @property
    def row(self) -> int:
        """The row of the block that it searches from."""
        return self._low + self._walk.start

    @property
    def next_start(self) -> int:
        return self._next + self._base

    @property
    def barrier(self) -> int:
        return max(self._barrier + self._base, -1)

    @property
    def completed_to(self) -> int:
        return max(self._completed + self._base, 0)

    @property
    def consumed(self) -> Integers:
        kept = sorted(row + self._base for row in self._walk.consumed if row >= self._next)
        return np.array(kept, np.int64)

    @property
    def keep_from(self) -> int:
        return min(self._low + self._next, self._high)

    def run(self) -> None:
        """Emit all that is final."""
        if self._rules.selection is Selection.PREFERRED:
            self._run_preferred()
        elif self._rules.free:
            self._run_free()
        else:
            self._run_ruled()

    @property
    def _full(self) -> bool:
        limit = self._rules.per_partition
        return limit is not None and self.number >= limit

    def _run_preferred(self) -> None:
        possible = self._possible_starts()
        while self._next < self._size:
            if self._full:
                self._next = self._size
                return
            if possible is not None:
                at = bisect_left(possible, self._next)
                self._next = possible[at] if at < len(possible) else self._size
                if self._next == self._size:
                    return
            start = self._next
            signal = next(
                (s for s in self._walk.search(start, self.number + 1) if s is not Signal.REJECTED),
                None,
            )
            if signal in (Signal.OPEN, Signal.PENDING):
                return
            self._settle(self._walk.reach)
            if signal is None:
                self._report_timed_out(start, self._timed_out_runs())
                self._next += 1
                continue
            rows = tuple(self._walk.rows)
            labels = tuple(self._walk.labels)
            self._emit(start, rows, tuple(self._walk.positions))
            self._next = self._rule_out(start, rows, labels) + 1

    def _possible_starts(self) -> list[int] | None:
        """Return the rows that can be a match's first, or None where that takes a search to say."""
        program = self._plan.program
        if program.matches_empty:
            return None
        masks = [self._masks[program.positions[m.target].variable] for m in self._plan.initial]
        found = np.zeros(self._size, np.bool_)
        for mask in masks:
            if mask is None:
                return None
            found |= np.frombuffer(mask, np.bool_)[: self._size]
        return [int(row) for row in np.flatnonzero(found)]

    def _run_ruled(self) -> None:
        """Emit start by start, each match ruling out later candidates."""
        while self._next < self._size:
            if self._full:
                self._next = self._size
                return
            if self._next > self._barrier and not self._emit_start(self._next):
                return
            self._next += 1
            self._completed = 0

    def _emit_start(self, start: int) -> bool:
        """Emit what is final of a start, and return whether the start is settled."""
        found = self._candidates(start)
        count = 0
        for group in found.groups:
            last = group[0].last
            if any(candidate.signal is Signal.PENDING for candidate in group):
                self._completed = last
                return False
            for candidate in group:
                self._settle(candidate.reach)
            for candidate in group:
                if candidate.signal is Signal.REJECTED:
                    continue
                count += 1
                if last >= self._completed:
                    self._emit(start, candidate.rows, candidate.positions)
                    self._rule_out(start, candidate.rows, candidate.labels)
                if self._barrier >= start or self._full or count == self._rules.per_start:
                    return True
                if start in self._walk.consumed:
                    return True
        if found.open:
            self._completed = self._size
            return False
        self._settle(found.reach)
        self._report_timed_out(start, found.timed_out)
        return True

    def _run_free(self) -> None:
        """Emit the candidates of all starts by their last row, then start."""
        starts: list[_Start] = []
        matches = len(self._emitted.start)
        for start in range(self._next, self._size):
            starts.append(self._candidates(start))
            matches += sum(map(len, starts[-1].groups))
            if matches > MATCHES_MAX:
                raise MatchError(
                    f"there are more than {MATCHES_MAX} matches",
                    detail=f"it got to row {start} of the rows looked at",
                    hint=FEWER,
                )
        counts = dict.fromkeys(range(self._next, self._size), 0)
        groups = sorted(
            ((group[0].last, found.start, group) for found in starts for group in found.groups),
            key=lambda item: item[:2],
        )
        limit = self._rules.per_start
        # No skip needs the barrier here: it says which starts of row `completed` are done.
        done = self._completed, self._barrier
        self._completed, self._barrier = self._size, -1 - self._base
        for last, start, group in groups:
            if limit is not None and counts[start] >= limit:
                continue
            if any(candidate.signal is Signal.PENDING for candidate in group):
                self._completed, self._barrier = last, start - 1
                break
            for candidate in group:
                self._settle(candidate.reach)
            for candidate in group:
                if candidate.signal is Signal.FOUND and counts[start] != limit:
                    counts[start] += 1
                    if (last, start) > done:
                        self._emit(start, candidate.rows, candidate.positions)
        self._pass_settled_starts(starts, counts)

    def _pass_settled_starts(self, starts: list[_Start], counts: dict[int, int]) -> None:
        """Go to the first start that may still have a candidate."""
        done = self._completed, self._barrier
        self._decided = NOTHING
        for found in starts:
            full = (
                self._rules.per_start is not None and counts[found.start] >= self._rules.per_start
            )
            waits = any((group[0].last, found.start) > done for group in found.groups)
            if not full and (found.open or waits):
                return
            self._settle(found.reach)
            if not full:
                self._report_timed_out(found.start, found.timed_out)
            self._next = found.start + 1

    def _candidates(self, start: int) -> _Start:
        """Search everything that begins at a start."""
        found: list[_FinishedRun] = []
        visits: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        is_open = False
        walk = self._walk
        for signal in walk.search(start, self.number + 1):
            if signal is Signal.OPEN:
                is_open = True
            elif walk.rows:
                rows, labels = tuple(walk.rows), tuple(walk.labels)
                if (rows, labels) in visits:
                    continue  # Whatever becomes of another way to the same match, it is found.
                if signal is Signal.FOUND:
                    visits.add((rows, labels))
                found.append(
                    _FinishedRun(rows, labels, tuple(walk.positions), signal, walk.verdict_reach)
                )
        found.sort(key=lambda candidate: candidate.last)
        groups = [list(group) for _, group in groupby(found, key=lambda c: c.last)]
        return _Start(start, groups, is_open, walk.reach, self._timed_out_runs())

    def _timed_out_runs(self) -> list[tuple[list[int], tuple[int, ...]]]:
        return [
            ([row for row, _ in run], positions) for run, positions in self._walk.timed_out.items()
        ]

    def _settle(self, reach: SearchReach) -> None:
        self._decided = max(self._decided, self._decide(reach))

    def _emit(self, start: int, rows: tuple[int, ...], positions: tuple[int, ...]) -> None:
        self.number += 1
        out = self._emitted
        out.segment.append(self._index)
        out.start.append(start + self._low)
        out.number.append(self.number)
        out.rows.extend(row + self._low for row in rows)
        out.positions.extend(positions)
        out.offsets.append(len(out.rows))
        out.decided.append(self._decided)

    def _report_timed_out(self, start: int, runs: list[tuple[list[int], tuple[int, ...]]]) -> None:
        for rows, positions in runs:
            here = [row + self._low for row in rows]
            partial = (self._index, start + self._low, here, positions, self._decided)
            self._emitted.partial.append(partial)

    def _rule_out(self, start: int, rows: tuple[int, ...], labels: tuple[int, ...]) -> int:
        """Apply the after-match rules of an emitted match and return the barrier."""
        rules = self._rules
        after = rules.task.bound.query.effective_skip
        barrier = barrier_after(after, rules.selection, rules.targets, start, rows, labels)
        self._barrier = max(self._barrier, barrier)
        if rows and rules.consume is Consume.SELECTED:
            self._walk.consumed.update(rows)
        elif rows and rules.consume is Consume.ALL:
            self._walk.consumed.update(range(start, rows[-1] + 1))
        return barrier


def _decided(decisions: list[Decision]) -> tuple[Integers, Integers]:
    """Return which rows settled matches, and which times these awaited."""
    return (
        np.array([one.settled for one in decisions], np.int64),
        np.array([one.awaited for one in decisions], np.int64),
    )


def _resume(parts: list[_SegmentMatcher]) -> Resume:
    def integers(values: Iterator[int]) -> Integers:
        return np.fromiter(values, np.int64, len(parts))

    return Resume(
        integers(part.next_start for part in parts),
        integers(part.barrier for part in parts),
        integers(part.number for part in parts),
        integers(part.completed_to for part in parts),
        [part.consumed for part in parts],
    )
