"""The fast matcher for preferred matches: masks for whole columns, then one compiled search.

It gives exactly what the twin gives, for the queries that `make_kernel` accepts: no consumption, no
timed-out partial matches, sets that fit into bits, and predicates over the match that compile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from outpace.compiler.kernel import is_compiled, read_only
from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.kernels import search as kernels
from outpace.engine.kernels.chain import search_chain
from outpace.engine.kernels.chains import sweep_chain, walk_chains
from outpace.engine.kernels.results import latest_arrivals
from outpace.engine.kernels.search import (
    Buffers,
    Cursor,
    PathInput,
    ProgramArrays,
    SearchRules,
    SegmentRows,
    Stack,
)
from outpace.engine.kernels.strict import search_strict
from outpace.engine.match.after import barrier_after, skip_variables
from outpace.engine.match.codegen import PathPlan, plan_path
from outpace.engine.match.contract import (
    Block,
    BlockMatches,
    Matcher,
    Outcome,
    Resume,
    Task,
    Turns,
    empty_block,
)
from outpace.engine.match.finality import wait_for_time
from outpace.engine.match.kernel_arrays import fits_bits, program_arrays, rules
from outpace.engine.match.kernel_masks import BlockMasks
from outpace.engine.match.program import ACCEPT, Program
from outpace.engine.match.twin import TwinMatcher
from outpace.engine.rows.partition import row_type
from outpace.errors import MatchError
from outpace.pattern.ast import Link
from outpace.pattern.bound import PredicateClass
from outpace.pattern.query import Consume, Selection, Skip, WithinKind

#: Rows from which on it pays to wait until a query's own predicates are compiled (about a second),
#: and until the kernels are (many seconds, once per machine).
WORTH_PREDICATES = 20_000
WORTH_KERNELS = 200_000

_INT32_MAX = np.iinfo(np.int32).max


def make_kernel(task: Task) -> Matcher | None:
    """Return the compiled matcher of a task, or None where only the twin will do."""
    bound = task.bound
    query = bound.query
    if (
        task.timeouts
        or query.effective_selection is not Selection.PREFERRED
        or query.consumption is not Consume.NONE
        or not fits_bits(task.program)
    ):
        return None
    if bound.within is not None and bound.descending[0]:
        # Time then runs backwards, and no event ends the wait.
        return None
    plan = plan_path(task)
    return None if plan is None else KernelMatcher(task, plan)


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

    def __init__(self, task: Task, plan: PathPlan) -> None:
        self._task = task
        self._plan = plan
        self._twin = TwinMatcher(task)
        self._program: ProgramArrays = program_arrays(task.program)
        self._rules: SearchRules = rules(task, plan.variables)
        self._masks = BlockMasks(plan.prefilters)
        self._chain = chain_steps(task)
        self._search = search_strict if is_strict(task) else kernels.search

    def __call__(self, block: Block, resume: Resume) -> Outcome:
        """Match a block from where an earlier call stopped."""
        if not block.size:
            return self._twin(block, resume)
        if outcome := self._twin.stand_in(block, resume, self.ready):
            return outcome
        # Compiled arithmetic may give up (an overflow, say): the twin words the error, or has none.
        return self._run(block, resume) or self._twin(block, resume)

    def _run(self, block: Block, resume: Resume) -> Outcome | None:
        rows = self._rows(block)
        cursor = _cursor(block, resume)
        buffers = _MatchRoom.of(block.size)
        if self._chain is not None:
            past_last = self._rules.skip == kernels.SKIP_PAST_LAST
            self._run_chain(
                partial(search_chain, self._chain, past_last, self._rules, rows),
                block,
                cursor,
                buffers,
            )
        elif not self._run_search(self._search, block, rows, cursor, buffers):
            return None
        return _outcome(block, resume, cursor, buffers.arrays)

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
        return is_compiled(search) and is_compiled(walk_chains) and self._plan.compiled

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
        rows = self._rows(block)
        cursor = _cursor(block, Resume.fresh(len(block.segments) - 1))
        cursor.next_row[:] = block.segments[:-1]
        buffers = _MatchRoom.of(block.size)
        if self._chain is not None:
            past_last = self._rules.skip == kernels.SKIP_PAST_LAST
            self._run_chain(
                partial(sweep_chain, self._chain, past_last, self._rules, rows, wanted),
                block,
                cursor,
                buffers,
            )
        else:
            cursor = cursor._replace(wanted=wanted, looked=np.zeros(block.size, np.int64))
            if not self._run_search(kernels.search, block, rows, cursor, buffers):
                return None
        out = buffers.arrays
        found = _found(out, out.reach[: int(out.counts[0])])
        starts = None if self._chain is None else partial(self._starts, rows)
        return Sweep(found, cursor.next_row, cursor.looked, starts)

    def _rows(self, block: Block) -> SegmentRows:
        return _rows(block, self._masks(block), self._task.bound.within)

    def _starts(self, rows: SegmentRows, low: int) -> Integers:
        """Return the rows from one on that a chain may start with, unless WITHIN has passed."""
        assert self._chain is not None
        starts = np.flatnonzero(rows.masks[low:] & self._chain[0]) + low
        if self._rules.within_kind != kernels.WITHIN_FIRST:
            return starts
        segment = np.searchsorted(rows.begin, starts, "right") - 1
        return starts[rows.floor[segment] - rows.times[starts] < rows.within[segment]]

    def ready(self, size: int) -> bool:
        """Say whether compiled code is to match a block of this size now, rather than the twin.

        Code that is not compiled yet is not worth waiting for unless the block is large.
        """
        kernel = self._search if self._chain is None else search_chain
        return (size >= WORTH_KERNELS or is_compiled(kernel)) and (
            size >= WORTH_PREDICATES or self._plan.compiled
        )

    def compile_now(self) -> None:
        """Compile all that this matcher runs, so that small blocks need not go to the twin."""
        block = empty_block(self._task)
        self._run(block, Resume.fresh(0))

    def _run_search(
        self,
        search: Callable[..., int],
        block: Block,
        rows: SegmentRows,
        cursor: Cursor,
        buffers: _MatchRoom,
    ) -> bool:
        step = self._plan.step()
        rules = self._rules._replace(budget=self._task.steps_allowed(block.size))
        path = self._plan.path(block)
        if path is None:
            return False
        room = _Room.of(path)
        turns = Turns(self._task, block.size)
        while True:
            status = search(
                step, self._program, rules, rows, path, room.stack, cursor, buffers.arrays
            )
            if status == kernels.DONE:
                return True
            if status == kernels.PATH_FAILED:
                return False
            if status == kernels.FULL:
                buffers.grow()
            elif status == kernels.STACK_FULL:
                room.deepen(path)
            elif status == kernels.MEMO_FULL:
                room.forget()
            elif status == kernels.PAUSED:
                turns.end(int(room.stack.paused[kernels.WORK]), _row(cursor))
            else:
                self._fail(status, cursor, rules.budget)

    def _run_chain(
        self, search: Callable[..., int], block: Block, cursor: Cursor, buffers: _MatchRoom
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
                turns.end(0, _row(cursor))

    def _fail(self, status: int, cursor: Cursor, budget: int) -> None:
        if status == kernels.OVER_BUDGET:
            raise MatchError(
                f"the search for a match took more than {budget} steps",
                detail=f"the match would start at row {_row(cursor)} of the rows looked at",
                hint="add WITHIN, make a quantifier possessive (A++), or let fewer DEFINEs read"
                " the match",
            )
        # A match of one row whose label is no target, or is one, fails as the match found does.
        targets = skip_variables(self._task.bound)
        label = -1 if status == kernels.NO_TARGET else min(targets)
        after = self._task.bound.query.effective_skip
        barrier_after(after, Selection.PREFERRED, targets, 0, [0], [label])
        raise AssertionError("the after-match rule accepts what the kernel refused")


def _row(cursor: Cursor) -> int:
    """Return the start that is searched."""
    return int(cursor.next_row[cursor.segment[0]])


def chain_steps(task: Task) -> Integers | None:
    """Return the bits of a chain `A -> B -> C` of plain steps, or None for other patterns."""
    program, query = task.program, task.bound.query
    skips = (Skip.NONE, Skip.TO_NEXT_ROW, Skip.PAST_LAST_ROW)
    kinds = (kernels.WITHIN_NONE, kernels.WITHIN_FIRST)
    task_rules = rules(task, ())
    if task_rules.within_kind not in kinds or query.effective_skip.skip not in skips:
        return None
    if not is_chain(program) or _reads_run(task):
        return None
    return np.array([1 << position.variable for position in program.positions], np.int64)


def is_strict(task: Task) -> bool:
    """Say whether a pattern is one for the strict kernel: strict links, no guards but anchors."""
    program, bound = task.program, task.bound.query.bound
    if bound is not None and bound.kind is not WithinKind.FIRST_TO_LAST:
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


@dataclass
class _Room:
    """The arrays of a search; they grow when a run is longer, or fails more often, than before."""

    stack: Stack

    @staticmethod
    def of(path: PathInput) -> _Room:
        return _Room(_stack(64, 256, path))

    def deepen(self, path: PathInput) -> None:
        """Make room for longer runs; the memo stays."""
        old = self.stack
        new = _stack(4 * len(old.state), len(old.memo_keys), path)
        self.stack = new._replace(
            memo_keys=old.memo_keys, memo_stamps=old.memo_stamps, memo_state=old.memo_state
        )

    def forget(self) -> None:
        """Empty the memo, and enlarge it if the last start filled it by itself."""
        old = self.stack
        entries, _, _, before = (int(value) for value in old.memo_state)
        size = len(old.memo_keys)
        if 4 * (entries - before) >= size:
            size *= 4
        old.memo_state[0] = 0
        self.stack = old._replace(
            memo_keys=np.zeros(size, np.int64), memo_stamps=np.zeros(size, np.int64)
        )


def _stack(frames: int, memo: int, path: PathInput) -> Stack:
    integers = np.zeros((frames + 1) * len(path.first_integers), np.int64)
    floats = np.zeros((frames + 1) * len(path.first_floats), np.float64)
    integers[: len(path.first_integers)] = path.first_integers
    floats[: len(path.first_floats)] = path.first_floats
    state, row, event, move, group, alive, released, timed_out, run_rows, run_labels = (
        np.zeros(frames, np.int64) for _ in range(10)
    )
    return Stack(
        state,
        row,
        event,
        move,
        group,
        alive,
        released,
        timed_out,
        run_rows,
        run_labels,
        integers,
        floats,
        memo_keys=np.zeros(memo, np.int64),
        memo_stamps=np.zeros(memo, np.int64),
        memo_state=np.zeros(4, np.int64),
        paused=np.zeros(3, np.int64),
    )


@dataclass
class _MatchRoom:
    """Room for matches; pages that are not filled cost nothing."""

    arrays: Buffers

    @staticmethod
    def of(size: int) -> _MatchRoom:
        # Matches that do not overlap fit at once, and a little overlap does too.
        return _MatchRoom(_room(size, size + size // 4, size))

    def grow(self) -> None:
        """Double the room, at least so that the match that did not fit does."""
        old = self.arrays
        matches, takes = int(old.counts[0]), int(old.counts[1])
        wanted = max(2 * len(old.rows), takes + int(old.counts[2]))
        size = _INT32_MAX + 1 if old.rows.itemsize == 8 else 0
        new = _room(2 * len(old.start) + 16, wanted, size)
        used = (3, *[matches] * 3, matches + 1, *[matches] * 2, *[takes] * 2)
        for count, source, target in zip(used, old, new, strict=True):
            target[:count] = source[:count]
        self.arrays = new


def _room(matches: int, takes: int, size: int) -> Buffers:
    kind = row_type(size)
    return Buffers(
        counts=np.zeros(3, np.int64),
        segment=np.empty(matches, kind),
        start=np.empty(matches, kind),
        number=np.empty(matches, np.int64),
        ends=_from_zero(matches + 1),
        reach=np.empty(matches, np.int64),
        passed=np.empty(matches, np.int64),
        rows=np.empty(takes, kind),
        positions=np.empty(takes, np.int16),
    )


def _from_zero(size: int) -> Integers:
    values = np.empty(size, np.int64)
    values[0] = 0
    return values


def _rows(block: Block, masks: npt.NDArray[Any], within: int | None) -> SegmentRows:
    begin, stop = block.segments[:-1].copy(), block.segments[1:].copy()
    visible = block.visible.copy()
    floor = np.full(len(begin), block.watermark, np.int64)
    if len(block.times):
        some = visible > begin
        newest = block.times[np.maximum(visible - 1, 0)]
        floor = np.where(some, np.maximum(newest, floor), floor)
    return SegmentRows(
        masks=masks,
        times=read_only(block.times),
        begin=begin,
        visible=visible,
        stop=stop,
        first_ordinal=_first_ordinals(block),
        floor=floor,
        within=block.withins(within),
        ended=block.ended,
    )


def _first_ordinals(block: Block) -> Integers:
    """Return the ordinal of each segment's first row; of one without rows it has no meaning."""
    begin = np.minimum(block.segments[:-1], max(0, block.size - 1))
    return block.ordinals[begin].astype(np.int64) if block.size else begin


def _cursor(block: Block, resume: Resume) -> Cursor:
    begin = block.segments[:-1]
    next_row = begin + (resume.next_start - _first_ordinals(block))
    return Cursor(
        segment=np.zeros(1, np.int64),
        # Kernels go where they are sent, and a saved state may say anything.
        next_row=np.minimum(np.maximum(next_row, begin), block.segments[1:]),
        number=resume.number.copy(),
        reach=np.zeros(len(begin), np.int64),
        passed=np.full(len(begin), NO_TIME, np.int64),
        wanted=np.zeros(0, np.uint8),
        looked=np.zeros(0, np.int64),
    )


def _found(out: Buffers, settled: Integers, awaited: Integers | None = None) -> BlockMatches:
    """Return what a search wrote, and when each match became final."""
    matches, takes = int(out.counts[0]), int(out.counts[1])
    return BlockMatches(
        segment=out.segment[:matches],
        start=out.start[:matches],
        number=out.number[:matches],
        offsets=out.ends[: matches + 1],
        rows=out.rows[:takes],
        positions=out.positions[:takes],
        settled=settled,
        awaited=awaited,
    )


def _outcome(block: Block, resume: Resume, cursor: Cursor, out: Buffers) -> Outcome:
    begin = block.segments[:-1]
    found = _found(out, *_settled(block, out, int(out.counts[0])))
    after = Resume(
        next_start=(block.ordinals[begin] + (cursor.next_row - begin)).astype(np.int64),
        barrier=resume.barrier.copy(),
        number=cursor.number,
        completed_to=resume.completed_to.copy(),
        consumed=list(resume.consumed),
    )
    return Outcome(found, after, cursor.next_row)


def _settled(block: Block, out: Buffers, matches: int) -> tuple[Integers, Integers | None]:
    """Return the arrival number of the row that made each match final, and the time awaited."""
    if block.size and block.arrivals is block.ordinals:
        # One partition that arrived in order: rows need not be looked at to know their numbers.
        settled: Integers = np.minimum(out.reach[:matches] - 1, block.size)
        settled += int(block.arrivals[0])
    else:
        settled = np.empty(matches, np.int64)
        latest_arrivals(
            block.arrivals,
            block.segments,
            out.segment[:matches],
            out.reach[:matches],
            block.next_arrival,
            settled,
        )
    return wait_for_time(block, out.segment[:matches], settled, out.passed[:matches])
