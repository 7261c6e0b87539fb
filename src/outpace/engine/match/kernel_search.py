"""A compiled search over a block, in as many calls as it takes: arrays in, room for matches out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outpace.compiler.kernel import FEWER, Called, integers_at, is_compiled, read_only
from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.kernels import search as kernels
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
from outpace.engine.match.after import barrier_after, skip_variables
from outpace.engine.match.codegen import PathPlan, plan_path
from outpace.engine.match.contract import (
    Block,
    BlockMatches,
    PartialMatches,
    Resume,
    Task,
    Turns,
)
from outpace.engine.match.finality import wait_for_time
from outpace.engine.match.kernel_arrays import Words, fits_bits, program_arrays, rules
from outpace.engine.match.kernel_masks import BlockMasks
from outpace.engine.match.masks import Ask, bound_predicates
from outpace.engine.match.task import take_partial_matches
from outpace.engine.rows.partition import row_type
from outpace.errors import MatchError
from outpace.pattern.bound import Predicate, PredicateClass
from outpace.pattern.query import Selection

#: Rows from which on it pays to wait until a query's own predicates are compiled (about a second),
#: and until the kernels are (many seconds, once per machine).
WORTH_PREDICATES = 20_000
WORTH_KERNELS = 200_000

#: Rows of matches that one call writes at most: 4 GiB of row numbers and positions.
TAKES_MAX: Final = 1 << 28

_INT32_MAX = np.iinfo(np.int32).max


def make_search(task: Task) -> KernelSearch | None:
    """Return the compiled search of a task, or None where only the twin will do."""
    if not fits_bits(task.program):
        return None
    return KernelSearch(task, plan_path(task))


class KernelSearch:
    """What a compiled search needs of a task, and the search itself."""

    def __init__(self, task: Task, plan: PathPlan) -> None:
        self.task = task
        self.plan = plan
        self._program: ProgramArrays = program_arrays(task, plan.variables)
        self.rules: SearchRules = rules(task, plan.variables)
        self._masks = [
            BlockMasks([plan.prefilters[variable] for variable in word])
            for word in Words.of(task.program).variables
        ]

    def ready(self, size: int, kernel: Callable[..., int]) -> bool:
        """Say whether compiled code is to match a block of this size now, rather than the twin.

        Code that is not compiled yet is not worth waiting for unless the block is large.
        """
        return (size >= WORTH_KERNELS or is_compiled(kernel)) and (
            size >= WORTH_PREDICATES or self.plan.compiled
        )

    def rows(self, block: Block) -> SegmentRows:
        """Return the rows of a block as a search sees them."""
        masks = [each(block) for each in self._masks]
        whole = masks[0] if len(masks) == 1 else np.concatenate(masks)
        return _rows(block, whole, self.task.bound.within)

    def run(
        self,
        kernel: Callable[..., int],
        block: Block,
        rows: SegmentRows,
        cursor: Cursor,
        buffers: MatchRoom,
        told: MatchRoom | None = None,
    ) -> bool:
        """Search on from a cursor to the end; False where compiled arithmetic gives up.

        `told` takes partial matches that timed out, where they are wanted.
        """
        step = self.plan.step()
        rules = self.rules._replace(budget=self.task.steps_allowed(block.size))
        asked = self._asked(block)
        path = self.plan.path(block, rows.masks, 0 if asked is None else asked.address)
        if path is None:
            return False
        room = _Room.of(path)
        turns = Turns(self.task, block.size)
        rooms = [buffers]
        if kernel is kernels.search:
            none = MatchRoom.none(block.size)
            rooms += [told or none, MatchRoom.of(block.size) if rules.ruled else none]
        while True:
            given = (each.arrays for each in rooms)
            status = kernel(step, self._program, rules, rows, path, room.stack, cursor, *given)
            if status == kernels.DONE:
                return True
            if status == kernels.PATH_FAILED:
                if asked is not None and not isinstance(asked.error, Exception | None):
                    raise asked.error
                return False
            if status == kernels.FULL:
                buffers.grow()
            elif status == kernels.TOLD_FULL:
                rooms[1].grow()
            elif status == kernels.RUNS_FULL:
                rooms[2].grow()
            elif status == kernels.STACK_FULL:
                room.deepen(path)
            elif status == kernels.MEMO_FULL:
                room.forget()
            elif status == kernels.PAUSED:
                turns.end(int(room.stack.paused[kernels.WORK]), start_row(cursor))
            else:
                self._fail(status, cursor, rules.budget)

    def timed_out(self, block: Block, told: Buffers) -> PartialMatches:
        """Return the partial matches that a search told of, each once."""
        partial = found_matches(told, *settled(block, told))
        awaited = partial.awaited
        found = PartialMatches(
            partial.segment,
            partial.start,
            partial.offsets,
            partial.rows,
            partial.positions,
            partial.settled,
            np.full(len(partial.start), NO_TIME) if awaited is None else awaited,
        )
        if self.rules.tells != kernels.TELL_ALL:
            return found
        return take_partial_matches(found, self._told_once(found, partial.number))

    def _told_once(self, partial: PartialMatches, longer: Integers) -> Integers:
        """Return those that are not the same as one before them, or as one that went on."""
        variables = self.task.variables
        first: dict[tuple[int, bytes, bytes], int] = {}
        for each in range(len(partial.start)):
            low, high = partial.offsets[each : each + 2]
            labels = variables[partial.positions[low:high]]
            key = (int(partial.start[each]), partial.rows[low:high].tobytes(), labels.tobytes())
            if longer[each]:
                first[key] = -1
            else:
                first.setdefault(key, each)
        return np.sort(np.array([place for place in first.values() if place >= 0], np.int64))

    def _asked(self, block: Block) -> Called | None:
        """Return what answers where there is no compiled condition; None where all have one."""
        if not self.plan.asked:
            return None
        # Of the other variables nothing is asked.
        nothing = (Predicate(name, None, PredicateClass.ALWAYS) for name in self.task.program.names)
        conditions = [
            replace(other, expression=self.plan.asked[variable], kind=PredicateClass.PATH)
            if variable in self.plan.asked
            else other
            for variable, other in enumerate(nothing)
        ]
        bound = replace(self.task.bound, predicates=tuple(conditions))
        predicates = bound_predicates(replace(self.task, bound=bound))(block)
        asking: dict[int, Ask] = {}

        def ask(
            variable: int, depth: int, row: int, begin: int, rows: int, labels: int, number: int
        ) -> int:
            if begin not in asking:
                asking.clear()
                segment = int(np.searchsorted(block.segments, begin, "right")) - 1
                asking[begin] = predicates.asking(segment)
            run = [taken - begin for taken in integers_at(rows, depth)]
            return asking[begin](variable, row - begin, run, integers_at(labels, depth), number)

        return Called(ask, 7)

    def _fail(self, status: int, cursor: Cursor, budget: int) -> None:
        if status == kernels.OVER_BUDGET:
            raise MatchError(
                f"the search for a match took more than {budget} steps",
                detail=f"the match would start at row {start_row(cursor)} of the rows looked at",
                hint="add WITHIN, make a quantifier possessive (A++), or let fewer DEFINEs read"
                " the match",
            )
        # A match of one row whose label is no target, or is one, fails as the match found does.
        targets = skip_variables(self.task.bound)
        label = -1 if status == kernels.NO_TARGET else min(targets)
        after = self.task.bound.query.effective_skip
        barrier_after(after, Selection.PREFERRED, targets, 0, [0], [label])
        raise AssertionError("the after-match rule accepts what the kernel refused")


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
        paused=np.zeros(9, np.int64),
    )


@dataclass
class MatchRoom:
    """Room for matches; pages that are not filled cost nothing."""

    arrays: Buffers

    @staticmethod
    def of(size: int) -> MatchRoom:
        """Return room for a block: matches that do not overlap fit, and a little overlap does."""
        return MatchRoom(_room(size, size + size // 4, size))

    @staticmethod
    def none(size: int) -> MatchRoom:
        """Return no room, of the kind that a block needs."""
        return MatchRoom(_room(0, 0, size))

    def grow(self) -> None:
        """Double the room, at least so that the match that did not fit does."""
        old = self.arrays
        matches, takes = int(old.counts[0]), int(old.counts[1])
        if takes > TAKES_MAX:
            raise MatchError(f"the matches have more than {TAKES_MAX} rows", hint=FEWER)
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
        first_ordinal=first_ordinals(block),
        floor=floor,
        within=block.withins(within),
        ended=block.ended,
    )


def first_ordinals(block: Block) -> Integers:
    """Return the ordinal of each segment's first row; of one without rows it has no meaning."""
    begin = np.minimum(block.segments[:-1], max(0, block.size - 1))
    return block.ordinals[begin].astype(np.int64) if block.size else begin


def cursor_at(block: Block, resume: Resume) -> Cursor:
    """Return where the search of a block goes on."""
    begin = block.segments[:-1]
    shift = begin - first_ordinals(block)
    next_row = resume.next_start + shift
    return Cursor(
        segment=np.zeros(1, np.int64),
        # Kernels go where they are sent, and a saved state may say anything.
        next_row=np.minimum(np.maximum(next_row, begin), block.segments[1:]),
        number=resume.number.copy(),
        reach=np.zeros(len(begin), np.int64),
        passed=np.full(len(begin), NO_TIME, np.int64),
        wanted=np.zeros(0, np.uint8),
        looked=np.zeros(0, np.int64),
        consumed=np.zeros(0, np.uint8),
        barrier=resume.barrier + shift,
        completed=resume.completed_to + shift,
    )


def found_matches(out: Buffers, settled: Integers, awaited: Integers | None = None) -> BlockMatches:
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


def settled(block: Block, out: Buffers) -> tuple[Integers, Integers | None]:
    """Return the arrival number of the row that made each match final, and the time awaited."""
    matches = int(out.counts[0])
    if block.size and block.arrivals is block.ordinals:
        # One partition that arrived in order: rows need not be looked at to know their numbers.
        last: Integers = np.minimum(out.reach[:matches] - 1, block.size)
        last += int(block.arrivals[0])
    else:
        last = np.empty(matches, np.int64)
        latest_arrivals(
            block.arrivals,
            block.segments,
            out.segment[:matches],
            out.reach[:matches],
            block.next_arrival,
            last,
        )
    return wait_for_time(block, out.segment[:matches], last, out.passed[:matches])


def start_row(cursor: Cursor) -> int:
    """Return the start that is searched."""
    return int(cursor.next_row[cursor.segment[0]])
