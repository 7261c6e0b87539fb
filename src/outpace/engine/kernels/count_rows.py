"""Counting the matches that each row completes, for all segments in one pass.

Runs are kept apart by lanes: one lane for all without WITHIN, one per start where WITHIN measures
from the first event or starts must lie in a window, one per last take where WITHIN measures from
the previous one. A lane whose row is too old is dropped from the front. Numbers stay below 2^63 or
the kernel says that they did not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outpace.engine.kernels.compiled import compiled
from outpace.engine.match.count_machine import (
    ACCEPTED,
    ACCEPTED_END,
    AT_ONCE,
    BOTH,
    BOTH_END,
    SKIPS,
    SKIPS_END,
    SOURCES,
    SOURCES_END,
    STARTED,
    STARTED_END,
    STATE,
    TAKES,
    TAKES_END,
    Machine,
)

Integers = npt.NDArray[np.int64]
Lanes = npt.NDArray[np.int64]

# How lanes keep runs apart.
ONE_LANE, BY_START, BY_TAKE = range(3)


@compiled
def apply_sums(
    machine: Machine, first: int, last: int, lanes: Lanes, low: int, high: int, scratch: Lanes
) -> int:
    """Change the numbers in some lanes by some sums; a negative result says they overflowed."""
    seen = 0
    for index in range(first, last):
        target = scratch[index - first]
        target[low:high] = 0
        for place in range(machine.sums[index, SOURCES], machine.sums[index, SOURCES_END]):
            source = lanes[machine.flat[place]]
            for lane in range(low, high):
                added = target[lane] + source[lane]
                target[lane] = added
                seen |= added
    for index in range(first, last):
        lanes[machine.sums[index, STATE], low:high] = scratch[index - first, low:high]
    return seen


@compiled
def add_takes(machine: Machine, first: int, last: int, lanes: Lanes, low: int, high: int) -> int:
    """Add up what takes bring, over all lanes, into the lane after the last; result as above."""
    seen = 0
    for index in range(first, last):
        total = 0
        for place in range(machine.sums[index, SOURCES], machine.sums[index, SOURCES_END]):
            source = lanes[machine.flat[place]]
            for lane in range(low, high):
                total += source[lane]
                seen |= total
        lanes[machine.sums[index, STATE], high] = total
    return seen


@compiled
def make_room(lanes: Lanes, lane_rows: Integers, low: int, high: int) -> tuple[Lanes, Integers]:
    """Move the lanes in use to the front, of larger tables where they fill more than half."""
    size = len(lane_rows)
    used = high - low
    larger = size if 2 * used <= size else 2 * size
    moved = np.zeros((len(lanes), larger), np.int64)
    moved_rows = np.zeros(larger, np.int64)
    moved[:, :used] = lanes[:, low:high]
    moved_rows[:used] = lane_rows[low:high]
    return moved, moved_rows


@compiled
def count_rows(
    machine: Machine,
    symbols: Integers,
    times: Integers,
    mode: int,
    within: int,
    floors: Integers,
    bounds: Lanes,
    counts: Integers,
) -> bool:
    """Fill in how many matches each row completes; False says that a number did not fit.

    `bounds` has for each segment the first row and the end. `within` is 0 where time ends no lane,
    `floors` empty where no row does; it never falls within a segment.
    """
    size = 64 if mode else 1
    lanes = np.zeros((machine.states, size), np.int64)
    scratch = np.zeros((machine.states, size), np.int64)
    lane_rows = np.zeros(size, np.int64)
    seen = 0
    for segment in range(len(bounds)):
        low, high = 0, 0 if mode else 1
        lanes[:] = 0
        for row in range(bounds[segment, 0], bounds[segment, 1]):
            line = machine.symbols[symbols[row]]
            if mode:
                while within and low < high and times[row] - times[lane_rows[low]] >= within:
                    low += 1
                while len(floors) and low < high and lane_rows[low] < floors[row]:
                    low += 1
                if high == len(lane_rows):
                    lanes, lane_rows = make_room(lanes, lane_rows, low, high)
                    high -= low
                    low = 0
                    if scratch.shape[1] < len(lane_rows):
                        scratch = np.zeros((machine.states, len(lane_rows)), np.int64)
            completed = line[AT_ONCE]
            for place in range(line[ACCEPTED], line[ACCEPTED_END]):
                source = lanes[machine.flat[place]]
                for lane in range(low, high):
                    completed += source[lane]
                    seen |= completed
            counts[row] = completed
            begins = line[STARTED] < line[STARTED_END]
            if mode == BY_TAKE:
                begins = begins or line[TAKES] < line[TAKES_END]
                if begins:
                    lanes[:, high] = 0
                    seen |= add_takes(machine, line[TAKES], line[TAKES_END], lanes, low, high)
                seen |= apply_sums(machine, line[SKIPS], line[SKIPS_END], lanes, low, high, scratch)
            else:
                seen |= apply_sums(machine, line[BOTH], line[BOTH_END], lanes, low, high, scratch)
                if mode and begins:
                    lanes[:, high] = 0
            if begins:
                lane = high if mode else 0
                for place in range(line[STARTED], line[STARTED_END]):
                    lanes[machine.flat[place], lane] += 1
                    seen |= lanes[machine.flat[place], lane]
                if mode:
                    lane_rows[high] = row
                    high += 1
            if seen < 0:
                return False
    return True
