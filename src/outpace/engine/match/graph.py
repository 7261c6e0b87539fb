"""The matcher for all matches of a pattern: one shared graph, read out in order.

Covered are queries with `Selection.ALL` whose predicates do not read the match and whose matches
are complete with their last event. Not covered are a trailing `!B`, `$`, partial matches that timed
out, and a step that leaves possessive repetitions with different `until`s. The graph is rebuilt in
each call from the rows that WITHIN keeps, so a stream needs no state but those rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from outpace.compiler.kernel import FEWER, fitting, is_compiled, read_only
from outpace.engine.arrays import Booleans, Integers
from outpace.engine.kernels.graph_build import GraphLayout
from outpace.engine.kernels.graph_enumerate import (
    BAD_SKIP,
    DEADLINE,
    DONE_WORK,
    FULL,
    LAST_ROW,
    MATCHES,
    PAUSED,
    SETTLED,
    SKIP_FIRST,
    SKIP_LAST,
    SKIP_NEXT_ROW,
    SKIP_NONE,
    SKIP_PAST_LAST,
    START_ROW,
    TAKEN_POSITION,
    TAKEN_ROW,
    TAKES,
    TAKES_END,
    TOO_MANY,
)
from outpace.engine.kernels.graph_match import (
    AT_START,
    FIRST_NODE,
    FIRST_TO_LAST,
    NEXT_ROW,
    NO_WITHIN,
    NODES_KEPT,
    PREVIOUS_TO_CURRENT,
    ROW_MATCHES,
    ROW_TAKES,
    UNLIMITED,
    Tables,
    match_by_completion,
    match_by_start,
    new_tables,
    with_room,
)
from outpace.engine.match.after import barrier_after, skip_variables
from outpace.engine.match.contract import (
    Block,
    BlockMatches,
    Outcome,
    Resume,
    Task,
    Turns,
    empty_block,
)
from outpace.engine.match.count_candidates import count_candidates, exact_sum, truth_table
from outpace.engine.match.finality import known_from, wait_for_time
from outpace.engine.match.graph_layout import graph_layout
from outpace.engine.match.kernel_search import TAKES_MAX
from outpace.engine.match.twin import TwinMatcher
from outpace.errors import MatchError
from outpace.pattern.bound import PredicateClass
from outpace.pattern.query import Consume, Per, Selection, Skip, WithinKind

#: From so many on, the matches are counted first, so that too many are refused at once.
TAKES_UNCOUNTED: Final = 1 << 22

#: Blocks up to this size go to the twin as long as the kernels are not compiled on this machine.
_SMALL: Final = 2_000

_SKIPS = {
    Skip.NONE: SKIP_NONE,
    Skip.TO_NEXT_ROW: SKIP_NEXT_ROW,
    Skip.PAST_LAST_ROW: SKIP_PAST_LAST,
    Skip.TO_FIRST: SKIP_FIRST,
    Skip.TO_LAST: SKIP_LAST,
}


def make_graph_matcher(
    task: Task,
    truth: Callable[[Block], Booleans] | None = None,
    *,
    takes_max: int = TAKES_MAX,
    nodes_kept: int = NODES_KEPT,
) -> GraphMatcher | None:
    """Return the graph matcher of a task, or None if the graph does not cover it.

    Parameters
    ----------
    task
        The query.
    truth
        What answers for the predicates over a block, see `truth_table`; by default the bound ones.
    takes_max
        Rows of matches that one call writes at most; more are refused with the exact count.
    nodes_kept
        How many nodes may pile up before those that WITHIN has passed are given up.
    """
    bound = task.bound
    if (
        bound.query.effective_selection is not Selection.ALL
        or task.timeouts
        or any(predicate.kind is PredicateClass.PATH for predicate in bound.predicates)
    ):
        return None
    layout = graph_layout(task.program, len(bound.predicates))
    if layout is None:
        return None
    truth_of = truth or partial(truth_table, task)
    rules, twin = _GraphRules.of(task), TwinMatcher(task)
    return GraphMatcher(task, layout, rules, truth_of, takes_max, nodes_kept, twin)


@dataclass(frozen=True)
class _GraphRules:
    """The rules by which candidates become matches, as kernels see them."""

    kind: int
    skip: int
    strict: bool
    targets: Booleans
    consume: Consume
    per_start: int
    per_partition: int

    @staticmethod
    def of(task: Task) -> _GraphRules:
        query = task.bound.query
        limits = {limit.per: limit.count for limit in query.limits}
        variables = skip_variables(task.bound)
        return _GraphRules(
            kind=within_kind(task),
            skip=_SKIPS[query.effective_skip.skip],
            strict=query.effective_skip.strict,
            targets=np.array([p.variable in variables for p in task.program.positions], np.bool_),
            consume=query.consumption,
            per_start=limits.get(Per.START, UNLIMITED),
            per_partition=limits.get(Per.PARTITION, UNLIMITED),
        )

    @property
    def waits(self) -> bool:
        """Whether a match can rule out a candidate of another start."""
        return (
            self.skip != SKIP_NONE
            or self.consume is not Consume.NONE
            or self.per_partition != UNLIMITED
        )


class _KernelOutput(NamedTuple):
    """The arrays that a kernel has written, cut to size, behind matches that were given up."""

    found: Integers
    taken: Integers
    ends: Integers
    keep: Integers
    numbers: Integers
    barriers: Integers
    consumed: Booleans
    given_up: int


@dataclass(frozen=True)
class GraphMatcher:
    """A matcher that runs compiled code; see `make_graph_matcher`."""

    task: Task
    layout: GraphLayout
    rules: _GraphRules
    truth: Callable[[Block], Booleans]
    takes_max: int
    nodes_kept: int
    twin: TwinMatcher
    #: What to do about too many matches.
    hint: str = f"count them with .count(), {FEWER}"

    def __call__(self, block: Block, resume: Resume) -> Outcome:
        """Match a block from where an earlier call stopped."""
        if outcome := self.twin.stand_in(block, resume, self.ready):
            return outcome
        with fitting(self.hint):
            truth = self.truth(block)
            takes_max = min(self.takes_max, TAKES_UNCOUNTED)
            read = self._read(block, resume, truth, takes_max)
            if read is None:
                self._refuse_too_many(block, resume, truth)
                read = self._read(block, resume, truth, self.takes_max)
                if read is None:
                    raise self._too_many(None)
            return self._outcome(block, resume, read)

    def count(self, block: Block, resume: Resume) -> int:
        """Return how many matches a call has, which are given up as soon as they are counted."""
        if outcome := self.twin.stand_in(block, resume, self.ready):
            return len(outcome.found.start)
        with fitting():
            read = self._read(block, resume, self.truth(block), self.takes_max, listed=False)
        if read is None:
            raise replace(self, hint=FEWER)._too_many(None)
        return read.given_up + len(read.found)

    def ready(self, size: int) -> bool:
        """Say whether compiled code is to match a block of this size now, rather than the twin."""
        return size > _SMALL or is_compiled(
            match_by_start if self._by_start else match_by_completion
        )

    def compile_now(self) -> None:
        """Compile all that this matcher runs, so that small blocks need not go to the twin."""
        block = empty_block(self.task)
        self._read(block, Resume.fresh(0), self.truth(block), self.takes_max)

    @property
    def _by_start(self) -> bool:
        return self.rules.waits or self.rules.per_start != UNLIMITED

    def _read(
        self,
        block: Block,
        resume: Resume,
        truth: Booleans,
        takes_max: int,
        *,
        listed: bool = True,
    ) -> _KernelOutput | None:
        """Run the kernel; None says that it found more than `takes_max` rows of matches.

        Unless they are to be listed, matches are given up after each turn.
        """
        rules = self.rules
        shift = row_shift(block)
        barriers = resume.barrier + shift
        numbers = resume.number.copy()
        consumed = np.zeros(block.size, np.bool_)
        for segment, ordinals in enumerate(resume.consumed):
            consumed[ordinals + shift[segment]] = True
        origin, end = block.segments[:-1], block.visible
        low = np.clip(resume.next_start + shift, origin, end)
        completed = np.clip(resume.completed_to + shift, origin, end)
        bounds = np.stack([origin, low, completed, end], axis=1)
        settled = known_from(block)
        common = (
            self.layout, truth, read_only(block.times), rules.kind,
            block.withins(self.task.bound.within), block.watermark,
            bounds, origin - shift, settled, block.ended,
            takes_max, self.task.pace.work, rules.targets,
        )  # fmt: skip
        if self._by_start:
            turn = partial(
                match_by_start,
                *common, barriers, numbers, consumed, block.next_arrival,
                rules.waits, rules.per_start, rules.per_partition, rules.skip, rules.strict,
                rules.consume is Consume.SELECTED, rules.consume is Consume.ALL,
            )  # fmt: skip
        else:
            turn = partial(match_by_completion, *common, block.floors, self.nodes_kept)
        tables = new_tables(self.layout, block.size if rules.kind else 0, len(bounds))
        turns = Turns(self.task, block.size)
        work = given_up = 0
        while (status := turn(tables)) in (PAUSED, FULL):
            if status == FULL:
                tables = with_room(tables)
            else:
                done = int(tables.filled[DONE_WORK])
                turns.end(done - work, int(tables.place[AT_START if self._by_start else NEXT_ROW]))
                work = done
                if not listed:
                    given_up += self._give_up(tables)
        filled, ends, keep = tables.filled, tables.ends, tables.keep
        found, taken = tables.found[: filled[MATCHES]], tables.taken[: filled[TAKES]]
        if status == TOO_MANY:
            return None
        if status == BAD_SKIP:
            self._raise_bad_skip(found, taken)
        return _KernelOutput(found, taken, ends, keep, numbers, barriers, consumed, given_up)

    def _give_up(self, tables: Tables) -> int:
        """Take out the matches that the kernel does not look at again; return how many it were."""
        filled, place = tables.filled, tables.place
        matches, takes = int(filled[MATCHES]), int(filled[TAKES])
        if self._by_start and place[FIRST_NODE] >= 0:
            # Of the row that it goes on with it needs them to rule others out.
            matches, takes = int(place[ROW_MATCHES]), int(place[ROW_TAKES])
            place[ROW_MATCHES] = place[ROW_TAKES] = 0
        for table, level, gone in ((tables.found, MATCHES, matches), (tables.taken, TAKES, takes)):
            kept = table[gone : filled[level]].copy()
            table[: len(kept)] = kept
            filled[level] = len(kept)
        tables.found[: filled[MATCHES], TAKES_END] -= takes
        return matches

    def _outcome(self, block: Block, resume: Resume, read: _KernelOutput) -> Outcome:
        shift = row_shift(block)
        segment = np.repeat(np.arange(len(read.ends)), np.diff(read.ends, prepend=0))
        found, taken = read.found, read.taken
        if not self.rules.waits and self.rules.per_start != UNLIMITED:
            found, taken = _by_completion(found, taken)
        sizes = np.bincount(segment, minlength=len(read.ends))
        before = np.cumsum(sizes) - sizes
        number = np.arange(len(segment)) - before[segment] + resume.number[segment] + 1
        settled, awaited = found[:, SETTLED].copy(), None
        if self.rules.waits:
            settled, awaited = wait_for_time(block, segment, settled, found[:, DEADLINE])
        keep = np.minimum(read.keep, block.visible)
        # A partition without rows in this block stays where it was.
        present = block.segments[:-1] < block.segments[1:]
        kept = [np.zeros(0, np.int64)] * len(keep)
        if self.rules.consume is not Consume.NONE:
            kept = [
                np.flatnonzero(read.consumed[low:high]) + low - offset
                for low, high, offset in zip(keep, block.segments[1:], shift, strict=True)
            ]
        return Outcome(
            BlockMatches(
                segment=segment.astype(np.int64),
                start=found[:, START_ROW].copy(),
                number=number.astype(np.int64),
                offsets=np.concatenate([[0], found[:, TAKES_END]]).astype(np.int64),
                rows=taken[:, TAKEN_ROW].copy(),
                positions=taken[:, TAKEN_POSITION].copy(),
                settled=settled,
                awaited=awaited,
            ),
            Resume(
                next_start=np.where(present, keep - shift, resume.next_start),
                barrier=np.maximum(read.barriers - shift, -1),
                number=resume.number + sizes,
                completed_to=np.where(present, block.visible - shift, resume.completed_to),
                consumed=kept,
            ),
            keep_from=keep,
        )

    def _raise_bad_skip(self, found: Integers, taken: Integers) -> None:
        low = int(found[-2, TAKES_END]) if len(found) > 1 else 0
        query = self.task.bound.query
        positions = self.task.program.positions
        barrier_after(
            query.effective_skip,
            Selection.ALL,
            skip_variables(self.task.bound),
            int(found[-1, START_ROW]),
            taken[low:, TAKEN_ROW].tolist(),
            [positions[place].variable for place in taken[low:, TAKEN_POSITION]],
        )

    def _refuse_too_many(self, block: Block, resume: Resume, truth: Booleans) -> None:
        """Raise if the matches are surely too many to be written."""
        if self.rules.waits or self.rules.per_start != UNLIMITED:
            return
        counts = count_candidates(self.task, block, resume, truth)
        if counts is not None and exact_sum(counts) > self.takes_max:
            raise self._too_many(exact_sum(counts))

    def _too_many(self, count: int | None) -> MatchError:
        matches = "the matches have" if count is None else f"there are {count} matches, with"
        return MatchError(
            f"{matches} more than {self.takes_max} rows",
            hint=self.hint,
        )


def within_kind(task: Task) -> int:
    """Return what WITHIN measures, as kernels see it."""
    if task.bound.within is None:
        return NO_WITHIN
    within = task.bound.query.bound
    by_step = within is not None and within.kind is WithinKind.PREVIOUS_TO_CURRENT
    return PREVIOUS_TO_CURRENT if by_step else FIRST_TO_LAST


def row_shift(block: Block) -> Integers:
    """Return for each segment what added to an ordinal gives the block row."""
    first = block.segments[:-1]
    if not block.size:
        return first.copy()
    filled = first < block.segments[1:]
    return np.where(filled, first - block.ordinals[np.minimum(first, block.size - 1)], first)


def _by_completion(found: Integers, taken: Integers) -> tuple[Integers, Integers]:
    """Order matches that were found start by start by the events that complete them."""
    order = np.argsort(found[:, LAST_ROW], kind="stable")
    ends = found[:, TAKES_END]
    sizes = np.diff(ends, prepend=0)[order]
    ordered = found[order]
    ordered[:, TAKES_END] = np.cumsum(sizes)
    source = np.repeat(ends[order] - ordered[:, TAKES_END], sizes) + np.arange(len(taken))
    return ordered, taken[source]
