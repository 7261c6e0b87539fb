"""How many candidates each row completes, without enumerating them.

The kernel counts in 64 bits and notices when that is not enough; then plain Python integers count
again. So a count is exact or an error, never wrong.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from outpace.compiler.kernel import call
from outpace.engine.arrays import Booleans, Integers
from outpace.engine.evaluate.columns import predicate_mask
from outpace.engine.kernels.count_rows import (
    ACCEPTED,
    ACCEPTED_END,
    AT_ONCE,
    BOTH,
    BY_START,
    BY_TAKE,
    BY_WINDOWS,
    COUNTED,
    NEXT_ROW,
    ONE_LANE,
    PAUSED,
    SKIPS,
    STARTED,
    STARTED_END,
    TAKES,
    TAKES_END,
    WORK,
    CountMachine,
    Lanes,
    Spans,
    count_rows,
    new_lanes,
)
from outpace.engine.match.contract import Block, Resume, Task, Turns
from outpace.engine.match.count_machine import build_machine
from outpace.engine.match.graph_layout import covered
from outpace.pattern.bound import PredicateClass
from outpace.pattern.query import WithinKind

#: Python integers, one per lane.
Exact = npt.NDArray[np.object_]


#: The windows of a block without any.
NO_SPANS: Final = Spans(np.zeros(0, np.int64), np.zeros(0, np.int64), 0)


def count_candidates(
    task: Task,
    block: Block,
    resume: Resume,
    truth: Booleans | None = None,
    spans: Spans = NO_SPANS,
) -> Integers | Exact | None:
    """Return for each row of a block how many candidates it completes.

    Rows that an earlier call has counted have 0, and so do candidates that start before the floor
    of the row. None says that the query is not covered: a predicate reads the match, ACCEPT depends
    on later rows, candidates must lie in windows and WITHIN goes from event to event, or the
    machine would be too large.

    Parameters
    ----------
    task, block, resume
        As for a matcher.
    truth
        The table of the predicates' answers, computed here where it is not given.
    spans
        The windows that candidates must lie in; by default as the floors of the block say.
    """
    reads_match = any(p.kind is PredicateClass.PATH for p in task.bound.predicates)
    mode = lane_mode(task)
    if len(block.floors) and not len(spans.opened):
        # As if a window opened with each row.
        spans = Spans(np.arange(1, len(block.floors) + 1), block.floors, 0)
    if len(spans.opened) and mode == ONE_LANE:
        mode = BY_WINDOWS
    by_take = mode == BY_TAKE and len(spans.opened)
    if reads_match or by_take or not covered(task.program):
        return None
    shift = block.segments[:-1] - _first_ordinals(block)
    low = np.clip(resume.next_start + shift, block.segments[:-1], block.visible)
    answers = truth_table(task, block) if truth is None else truth
    symbols, kinds = number_symbols(answers, block)
    machine = build_machine(task.program, kinds)
    if machine is None:
        return None
    bounds = np.stack([low, block.visible], axis=1)
    counts = _count(task, machine, symbols, block.times, mode, spans, bounds)
    for segment, completed in enumerate(resume.completed_to + shift):
        counts[block.segments[segment] : max(int(completed), int(block.segments[segment]))] = 0
    return counts


def exact_sum(counts: Integers | Exact) -> int:
    """Add up counts without overflow.

    Examples
    --------
    >>> exact_sum(np.array([2**62, 2**62, 2**62, 1]))
    13835058055282163713
    """
    if counts.dtype == object:
        return int(sum(counts.tolist()))
    high = int((counts >> 32).sum())
    return (high << 32) + int((counts & 0xFFFFFFFF).sum())


def lane_mode(task: Task) -> int:
    """Return how the kernel keeps runs apart."""
    if task.bound.within is None:
        return ONE_LANE
    within = task.bound.query.bound
    by_step = within is not None and within.kind is WithinKind.PREVIOUS_TO_CURRENT
    return BY_TAKE if by_step else BY_START


def number_symbols(truth: Booleans, block: Block) -> tuple[Integers, Booleans]:
    """Number the different rows of bits: each row's symbol, and each symbol's bits.

    The last bit says whether the row is the first of its partition.
    """
    bits = np.concatenate([truth, (block.ordinals == 0)[:, None]], axis=1)
    width = bits.shape[1]
    if width > 16:
        kinds, symbols = np.unique(bits, axis=0, return_inverse=True)
        return symbols.reshape(-1).astype(np.int64), kinds
    packed = np.zeros(len(bits), np.int64)
    for bit in range(width):
        packed |= bits[:, bit].astype(np.int64) << bit
    numbers = np.full(1 << width, -1, np.int64)
    present = np.flatnonzero(np.bincount(packed, minlength=1 << width))
    numbers[present] = np.arange(len(present))
    kinds = (present[:, None] >> np.arange(width) & 1).astype(np.bool_)
    return numbers[packed], kinds


def _count(
    task: Task,
    machine: CountMachine,
    symbols: Integers,
    times: Integers,
    mode: int,
    spans: Spans,
    bounds: Integers,
) -> Integers | Exact:
    counts = np.zeros(len(symbols), np.int64)
    within = task.bound.within or 0
    lanes, status = new_lanes(machine.states, mode), PAUSED
    turns = Turns(task, len(symbols))
    while status == PAUSED:
        held, status = call(
            count_rows,
            *(machine, symbols, times, mode, within, spans, bounds),
            *(task.pace.work, counts, lanes),
        )
        lanes = Lanes(*held)
        if status == PAUSED:
            turns.end(int(lanes.place[WORK]), int(lanes.place[NEXT_ROW]))
    if status == COUNTED:
        return counts
    return count_rows_exactly(machine, symbols, times, mode, within, spans, bounds)


def count_rows_exactly(
    machine: CountMachine,
    symbols: Integers,
    times: Integers,
    mode: int,
    within: int,
    spans: Spans,
    bounds: Integers,
) -> Exact:
    """Count as the kernel `count_rows` does, in integers without a bound: its twin."""
    counts: Exact = np.zeros(len(symbols), object)
    opened, closed, every = spans.opened.tolist(), spans.closed.tolist(), spans.most > 0

    def windows(start: int, row: int) -> int:
        number = max(opened[start] - closed[row], 0) if opened else 1
        return number if every else min(number, 1)

    for first, end in bounds.tolist():
        lanes: Exact = np.zeros((machine.states, 0 if mode else 1), object)
        lane_rows: list[int] = []
        for row in range(first, end):
            symbol = symbols[row]
            expired = 0
            while expired < len(lane_rows) and (
                (within and times[row] - times[lane_rows[expired]] >= within)
                or not windows(lane_rows[expired], row)
            ):
                expired += 1
            lanes, lane_rows = lanes[:, expired:], lane_rows[expired:]
            line = machine.symbols[symbol]
            accepted = machine.flat[line[ACCEPTED] : line[ACCEPTED_END]]
            times_each = [windows(start, row) for start in lane_rows] if mode else [1]
            counts[row] = int(line[AT_ONCE]) * windows(row, row) + sum(
                _total(lanes[state] * times_each) for state in accepted
            )
            new: list[int] = [0] * machine.states
            if mode == BY_TAKE:
                for state, sources in _sums(machine, line[TAKES], line[TAKES_END]):
                    new[state] += sum(_total(lanes[source]) for source in sources)
            kept = SKIPS if mode == BY_TAKE else BOTH
            changed = lanes.copy()
            for state, sources in _sums(machine, line[kept], line[kept + 1]):
                changed[state] = lanes[sources].sum(axis=0) if sources else 0
            lanes = changed
            for state in machine.flat[line[STARTED] : line[STARTED_END]]:
                new[state] += 1
            if not any(new):
                continue
            added = np.array(new, object)[:, None]
            if mode == ONE_LANE:
                lanes = lanes + added
            elif mode == BY_WINDOWS and lane_rows and opened[lane_rows[-1]] == opened[row]:
                lanes[:, -1:] += added
            else:
                lanes = np.concatenate([lanes, added], axis=1)
                lane_rows = [*lane_rows, row]
    return counts


def _sums(machine: CountMachine, low: int, high: int) -> list[tuple[int, list[int]]]:
    """Return some lines of the sums table: each state and the states to add up."""
    return [
        (state, machine.flat[first:last].tolist())
        for state, first, last in machine.sums[low:high].tolist()
    ]


def _total(lane: Exact) -> int:
    return int(sum(lane.tolist()))


def _first_ordinals(block: Block) -> Integers:
    first = block.segments[:-1]
    if not block.size:
        return np.zeros_like(first)
    return np.where(
        first < block.segments[1:], block.ordinals[np.minimum(first, block.size - 1)], 0
    )


def truth_table(task: Task, block: Block) -> Booleans:
    """Return for each row and variable whether the row satisfies the variable's predicate.

    No predicate may read the match. NULL counts as not satisfied.
    """
    predicates = task.bound.predicates
    columns = {name: block.columns[name] for name in task.bound.columns}
    truth = np.empty((block.size, len(predicates)), np.bool_)
    for number, predicate in enumerate(predicates):
        truth[:, number] = predicate_mask(predicate, columns, block.segments)
    return truth
