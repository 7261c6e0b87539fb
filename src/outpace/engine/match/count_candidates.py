"""How many candidates each row completes, without enumerating them.

The kernel counts in 64 bits and notices when that is not enough; then plain Python integers count
again. So a count is exact or an error, never wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from outpace.engine.kernels.count_rows import BY_START, BY_TAKE, ONE_LANE, count_rows
from outpace.engine.match.contract import Block, Booleans, Integers, Resume, Task
from outpace.engine.match.count_machine import Machine, Sums, build_machine
from outpace.engine.match.count_truth import truth_table
from outpace.engine.match.graph_layout import covered
from outpace.pattern.bound import PredicateClass
from outpace.pattern.query import WithinKind

#: Python integers, one per lane.
Exact = npt.NDArray[np.object_]


def count_candidates(
    task: Task, block: Block, resume: Resume, truth: Booleans | None = None
) -> Integers | Exact | None:
    """Return for each row of a block how many candidates it completes.

    Rows that an earlier call has counted have 0. None says that the query is not covered: a
    predicate reads the match, ACCEPT depends on later rows, or the machine would be too large.
    `truth` is the table of the predicates' answers, computed here where it is not given.
    """
    bound = task.bound
    descending = bound.within is not None and any(bound.descending[:1])
    reads_match = any(p.kind is PredicateClass.PATH for p in bound.predicates)
    if reads_match or descending or not covered(task.program):
        return None
    shift = block.segments[:-1] - _first_ordinals(block)
    low = np.clip(resume.next_start + shift, block.segments[:-1], block.visible)
    answers = truth_table(task, block) if truth is None else truth
    symbols, kinds = number_symbols(answers, block)
    machine = build_machine(task.program, kinds)
    if machine is None:
        return None
    bounds = np.stack([low, block.visible], axis=1)
    counts = _count(machine, symbols, block.times, lane_mode(task), bound.within or 0, bounds)
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
    machine: Machine, symbols: Integers, times: Integers, mode: int, within: int, bounds: Integers
) -> Integers | Exact:
    counts = np.zeros(len(symbols), np.int64)
    if count_rows(machine, symbols, times, mode, within, bounds, counts):
        return counts
    return count_rows_exactly(machine, symbols, times, mode, within, bounds)


def count_rows_exactly(
    machine: Machine, symbols: Integers, times: Integers, mode: int, within: int, bounds: Integers
) -> Exact:
    """Count as the kernel `count_rows` does, in integers without a bound: its twin."""
    counts: Exact = np.zeros(len(symbols), object)
    for first, end in bounds.tolist():
        lanes: Exact = np.zeros((machine.states, 0 if mode else 1), object)
        lane_rows: list[int] = []
        for row in range(first, end):
            symbol = int(symbols[row])
            expired = 0
            while expired < len(lane_rows) and times[row] - times[lane_rows[expired]] >= within:
                expired += 1
            lanes, lane_rows = lanes[:, expired:], lane_rows[expired:]
            accepted = _part(machine.accepted_at, machine.accepted, symbol)
            counts[row] = int(machine.at_once[symbol]) + sum(_total(lanes[s]) for s in accepted)
            new: list[Any] = [0] * machine.states
            if mode == BY_TAKE:
                for state, sources in _changes(machine.takes, symbol):
                    new[state] += sum(_total(lanes[source]) for source in sources)
            lanes = _changed(lanes, machine.skips if mode == BY_TAKE else machine.both, symbol)
            for state in _part(machine.started_at, machine.started, symbol):
                new[state] += 1
            if not any(new):
                continue
            added = np.array(new, object)[:, None]
            if mode:
                lanes = np.concatenate([lanes, added], axis=1)
                lane_rows = [*lane_rows, row]
            else:
                lanes = lanes + added
    return counts


def _changed(lanes: Exact, sums: Sums, symbol: int) -> Exact:
    changed = lanes.copy()
    for state, sources in _changes(sums, symbol):
        changed[state] = lanes[sources].sum(axis=0) if sources else 0
    return changed


def _changes(sums: Sums, symbol: int) -> list[tuple[int, list[int]]]:
    return [
        (int(sums.state[k]), sums.source[sums.source_at[k] : sums.source_at[k + 1]].tolist())
        for k in range(int(sums.at[symbol]), int(sums.at[symbol + 1]))
    ]


def _part(at: Integers, values: Integers, symbol: int) -> list[int]:
    part: list[int] = values[at[symbol] : at[symbol + 1]].tolist()
    return part


def _total(lane: Exact) -> int:
    return int(sum(lane.tolist()))


def _first_ordinals(block: Block) -> Integers:
    first = block.segments[:-1]
    if not block.size:
        return np.zeros_like(first)
    return np.where(
        first < block.segments[1:], block.ordinals[np.minimum(first, block.size - 1)], 0
    )
