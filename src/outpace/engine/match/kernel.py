"""The fast matcher for preferred matches: masks for whole columns, then one compiled search.

It gives exactly what the twin gives, for the queries that `make_kernel` accepts: sets that fit into
bits, and predicates over the match that compile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from outpace.compiler.kernel import is_compiled
from outpace.engine.arrays import Integers
from outpace.engine.kernels import search as kernels
from outpace.engine.kernels.chain import search_chain
from outpace.engine.kernels.chains import sweep_chain, walk_chains
from outpace.engine.kernels.search import Buffers, Cursor, SegmentRows
from outpace.engine.kernels.strict import search_strict
from outpace.engine.match.contract import (
    Block,
    BlockMatches,
    Outcome,
    Resume,
    Task,
    Turns,
    empty_block,
)
from outpace.engine.match.kernel_arrays import is_wide, rules
from outpace.engine.match.kernel_search import (
    KernelSearch,
    MatchRoom,
    cursor_at,
    first_ordinals,
    found_matches,
    make_search,
    settled,
    start_row,
)
from outpace.engine.match.program import ACCEPT, Program
from outpace.engine.match.twin import TwinMatcher
from outpace.pattern.ast import Link
from outpace.pattern.bound import PredicateClass
from outpace.pattern.query import Consume, Selection, Skip, WithinKind


def make_kernel(task: Task) -> KernelMatcher | None:
    """Return the compiled matcher of a task, or None where only the twin will do."""
    if task.bound.query.effective_selection is not Selection.PREFERRED:
        return None
    search = make_search(task)
    return None if search is None else KernelMatcher(task, search)


@dataclass(frozen=True)
class Sweep:
    """The results of the starts that many windows search from; see `KernelMatcher.sweep`.

    Parameters
    ----------
    found
        The matches; `number` is the row where the search goes on, `settled` the row behind the last
        that the search from this start looked at.
    limit
        For each segment the row from which on nothing was searched.
    looked
        As in `Outcomes`.
    starts
        Returns from a row on the rows that a match may still start with, where the pattern is a
        chain: from a start that waits on no other one is searched.
    """

    found: BlockMatches
    limit: Integers
    looked: Integers
    starts: Callable[[int], Integers] | None = None


class KernelMatcher:
    """A matcher that runs compiled code; see `make_kernel`."""

    def __init__(self, task: Task, search: KernelSearch) -> None:
        self.search = search
        self._task = task
        self._twin = TwinMatcher(task)
        # Partial matches that time out are told of by the search for patterns of every kind.
        self._chain = None if task.timeouts else chain_steps(task)
        strict = is_strict(task) and not task.timeouts
        self._kernel = search_strict if strict else kernels.search

    def __call__(self, block: Block, resume: Resume) -> Outcome:
        """Match a block from where an earlier call stopped."""
        if not block.size:
            return self._twin(block, resume)
        if outcome := self._twin.stand_in(block, resume, self.ready):
            return outcome
        # Compiled arithmetic may give up (an overflow, say): the twin words the error, or has none.
        return self._run(block, resume) or self._twin(block, resume)

    def _run(self, block: Block, resume: Resume) -> Outcome | None:
        rows = self.search.rows(block)
        cursor = cursor_at(block, resume)
        if self.search.rules.consume != kernels.CONSUME_NONE:
            cursor = cursor._replace(consumed=consumed_rows(block, resume))
        buffers, told = MatchRoom.of(block.size), MatchRoom.none(block.size)
        if self._chain is not None:
            past_last = self.search.rules.skip == kernels.SKIP_PAST_LAST
            self._run_chain(
                partial(search_chain, self._chain, past_last, self.search.rules, rows),
                block,
                cursor,
                buffers,
            )
        elif not self.search.run(self._kernel, block, rows, cursor, buffers, told):
            return None
        outcome = outcome_at(block, resume, cursor, buffers.arrays)
        if not self._task.timeouts:
            return outcome
        return replace(outcome, timed_out=self.search.timed_out(block, told.arrays))

    @property
    def is_chain(self) -> bool:
        """Whether the pattern is a chain of plain steps, see `chain_steps`.

        Then a start that waits for a row keeps all later ones waiting, and no end of the input
        makes a match of it.
        """
        return self._chain is not None

    @property
    def sweep_is_compiled(self) -> bool:
        """Whether `sweep` need not wait for a compiler."""
        search = kernels.search if self._chain is None else sweep_chain
        return is_compiled(search) and is_compiled(walk_chains) and self.search.plan.compiled

    def sweep(self, block: Block, wanted: npt.NDArray[np.uint8]) -> Sweep | None:
        """Search every start that a search from a wanted row comes to, each for itself.

        Parameters
        ----------
        block
            Rows of a stream that goes on.
        wanted
            A flag for each row, which is changed.

        Returns
        -------
        Sweep, or None
            None where compiled arithmetic gives up, and only the twin can tell whether it must.
        """
        rows = self.search.rows(block)
        cursor = cursor_at(block, Resume.fresh(len(block.segments) - 1))
        cursor.next_row[:] = block.segments[:-1]
        buffers = MatchRoom.of(block.size)
        if self._chain is not None:
            past_last = self.search.rules.skip == kernels.SKIP_PAST_LAST
            self._run_chain(
                partial(sweep_chain, self._chain, past_last, self.search.rules, rows, wanted),
                block,
                cursor,
                buffers,
            )
        else:
            cursor = cursor._replace(wanted=wanted, looked=np.zeros(block.size, np.int64))
            if not self.search.run(kernels.search, block, rows, cursor, buffers):
                return None
        out = buffers.arrays
        found = found_matches(out, out.reach[: int(out.counts[0])])
        starts = None if self._chain is None else partial(self._starts, rows)
        return Sweep(found, cursor.next_row, cursor.looked, starts)

    def _starts(self, rows: SegmentRows, low: int) -> Integers:
        """Return the rows from one on that a chain may start with, unless WITHIN has passed."""
        assert self._chain is not None
        starts = np.flatnonzero(rows.masks[low:] & self._chain[0]) + low
        if self.search.rules.within_kind != kernels.WITHIN_FIRST:
            return starts
        segment = np.searchsorted(rows.begin, starts, "right") - 1
        return starts[rows.floor[segment] - rows.times[starts] < rows.within[segment]]

    def ready(self, size: int) -> bool:
        """Say whether compiled code is to match a block of this size now, rather than the twin."""
        return self.search.ready(size, self._kernel if self._chain is None else search_chain)

    def compile_now(self) -> None:
        """Compile all that this matcher runs, so that small blocks need not go to the twin."""
        block = empty_block(self._task)
        self._run(block, Resume.fresh(0))

    def _run_chain(
        self, search: Callable[..., int], block: Block, cursor: Cursor, buffers: MatchRoom
    ) -> None:
        assert self._chain is not None
        taken = np.full(len(self._chain), -1, np.int64)
        turns = Turns(self._task, block.size)
        while True:
            status = search(taken, cursor, buffers.arrays)
            if status == kernels.DONE:
                return
            if status == kernels.FULL:
                buffers.grow()
            else:
                # A chain is linear: no budget is needed.
                turns.end(0, start_row(cursor))


def chain_steps(task: Task) -> Integers | None:
    """Return the bits of a chain `A -> B -> C` of plain steps, or None for other patterns."""
    program, query = task.program, task.bound.query
    skips = (Skip.NONE, Skip.TO_NEXT_ROW, Skip.PAST_LAST_ROW)
    kinds = (kernels.WITHIN_NONE, kernels.WITHIN_FIRST)
    task_rules = rules(task, ())
    if task_rules.within_kind not in kinds or query.effective_skip.skip not in skips:
        return None
    if query.consumption is not Consume.NONE or not is_chain(program) or _reads_run(task):
        return None
    if task_rules.words > 1:
        return None
    return np.array([1 << position.variable for position in program.positions], np.int64)


def is_strict(task: Task) -> bool:
    """Say whether a pattern is one for the strict kernel: strict links, no guards but anchors."""
    program, query = task.program, task.bound.query
    if query.bound is not None and query.bound.kind is not WithinKind.FIRST_TO_LAST:
        return False
    if query.consumption is not Consume.NONE or is_wide(len(program.names)):
        return False
    if any(program.ends) or any(move.untils or move.holds for move in program.initial):
        return False
    return all(
        (move.target == ACCEPT or move.link is Link.STRICT)
        and not (move.untils or move.holds or move.negations)
        for moves in program.follow
        for move in moves
    )


def is_chain(program: Program) -> bool:
    """Say whether a pattern is a chain `A -> B -> C` of plain steps."""
    size = len(program.positions)
    by_state = (program.initial, *program.follow)
    if size < 2 or any(program.ends) or any(len(moves) != 1 for moves in by_state):
        return False
    for state, (move,) in enumerate(by_state):
        plain = not (move.at_start or move.at_end or move.untils or move.holds or move.negations)
        linked = move.link is Link.NEXT or state in (0, size)
        expected = ACCEPT if state == size else state
        if not plain or not linked or move.target != expected:
            return False
    return True


def _reads_run(task: Task) -> bool:
    return any(predicate.kind is PredicateClass.PATH for predicate in task.bound.predicates)


def outcome_at(block: Block, resume: Resume, cursor: Cursor, out: Buffers) -> Outcome:
    """Return what a search wrote that emits start by start, and where it stopped."""
    begin = block.segments[:-1]
    found = found_matches(out, *settled(block, out))
    shift = np.where(begin < block.segments[1:], first_ordinals(block), resume.next_start) - begin
    after = Resume(
        next_start=cursor.next_row + shift,
        barrier=np.maximum(cursor.barrier + shift, -1),
        number=cursor.number,
        completed_to=np.maximum(cursor.completed + shift, 0),
        consumed=_consumed_from(block, cursor) if len(cursor.consumed) else list(resume.consumed),
    )
    return Outcome(found, after, cursor.next_row)


def consumed_rows(block: Block, resume: Resume) -> npt.NDArray[np.uint8]:
    """Return a flag for each row that matches have consumed."""
    marks = np.zeros(block.size, np.uint8)
    shift = block.segments[:-1] - first_ordinals(block)
    for rows, by, end in zip(resume.consumed, shift, block.segments[1:], strict=True):
        marks[rows[rows + by < end] + by] = 1
    return marks


def _consumed_from(block: Block, cursor: Cursor) -> list[Integers]:
    """Return the ordinals of the consumed rows that later starts may come to."""
    return [
        block.ordinals[low:high][cursor.consumed[low:high] != 0].astype(np.int64)
        for low, high in zip(cursor.next_row, block.segments[1:], strict=True)
    ]
