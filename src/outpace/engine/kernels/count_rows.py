"""Counting the matches that each row completes, for all segments in one pass.

Runs are kept apart by lanes: one lane for all without WITHIN, one per start where WITHIN measures
from the first event, one per last take where it measures from the previous one. In windows that
open and close in the same order, starts that the same windows hold share a lane. A lane whose row
is too old is dropped from the front. Numbers stay below 2^63 or the kernel says that they did not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from outpace.compiler.kernel import compiled, compiled_within
from outpace.engine.arrays import Integers

# Columns of the symbols table: the sums that skipping an event, taking it, and both together ask
# for; the states whose runs are completed, once for each way; the states where runs begin; the
# matches that the event alone makes. Sums are lines of the sums table, the rest is in `flat`.
SKIPS, SKIPS_END, TAKES, TAKES_END, BOTH, BOTH_END = range(6)
ACCEPTED, ACCEPTED_END, STARTED, STARTED_END, AT_ONCE = range(6, 11)

# Columns of the sums table: the state whose number changes, and the states that are added up.
STATE, SOURCES, SOURCES_END = range(3)


class CountMachine(NamedTuple):
    """A counting machine in tables; the constants of this module name their columns."""

    states: int
    symbols: Integers
    sums: Integers
    flat: Integers


# How lanes keep runs apart.
ONE_LANE, BY_START, BY_TAKE, BY_WINDOWS = range(4)

#: How a call ends: all is counted, a number did not fit, or there is more to do.
COUNTED, OVERFLOWED, PAUSED = range(3)

# Where a call paused: the segment, the row to go on with (-1: at the segment's beginning), the
# first lane in use and the end of them, the work of the call.
SEGMENT, NEXT_ROW, FIRST_LANE, END_LANE, WORK = range(5)


class Spans(NamedTuple):
    """The windows that matches must lie in; empty arrays where there are none.

    Parameters
    ----------
    opened, closed
        For each row how many windows opened up to it, and how many closed before it; neither falls.
        A match that starts at row s and ends at row e lies in `opened[s] - closed[e]` of them.
    most
        0 where a match counts once, else the largest number that fits when a match counts once for
        each window that it lies in.
    """

    opened: Integers
    closed: Integers
    most: int


class Lanes(NamedTuple):
    """The arrays of the kernel, handed back, as a plain tuple, so that a later call can go on."""

    numbers: Integers
    scratch: Integers
    rows: Integers
    place: Integers


def new_lanes(states: int, mode: int) -> Lanes:
    """Return lanes before the first call."""
    size = 64 if mode else 1
    numbers, scratch = (np.zeros((states, size), np.int64) for _ in range(2))
    place = np.zeros(5, np.int64)
    place[NEXT_ROW] = -1
    return Lanes(numbers, scratch, np.zeros(size, np.int64), place)


@compiled_within
def apply_sums(
    machine: CountMachine,
    first: int,
    last: int,
    lanes: Integers,
    low: int,
    high: int,
    scratch: Integers,
) -> int:
    """Change the numbers in some lanes by some sums; a negative result says they overflowed."""
    signs = 0
    for index in range(first, last):
        target = scratch[index - first]
        target[low:high] = 0
        for place in range(machine.sums[index, SOURCES], machine.sums[index, SOURCES_END]):
            source = lanes[machine.flat[place]]
            for lane in range(low, high):
                added = target[lane] + source[lane]
                target[lane] = added
                signs |= added
    for index in range(first, last):
        changed, source = lanes[machine.sums[index, STATE]], scratch[index - first]
        for lane in range(low, high):
            changed[lane] = source[lane]
    return signs


@compiled_within
def add_takes(
    machine: CountMachine, first: int, last: int, lanes: Integers, low: int, high: int
) -> int:
    """Add up what takes bring, over all lanes, into the lane after the last; result as above."""
    signs = 0
    for index in range(first, last):
        total = 0
        for place in range(machine.sums[index, SOURCES], machine.sums[index, SOURCES_END]):
            source = lanes[machine.flat[place]]
            for lane in range(low, high):
                total += source[lane]
                signs |= total
        lanes[machine.sums[index, STATE], high] = total
    return signs


@compiled_within
def add_each(
    source: Integers, lane_rows: Integers, low: int, high: int, spans: Spans, closed: int
) -> int:
    """Add up numbers, each once for each window that holds it; negative if they overflowed."""
    total = signs = 0
    for lane in range(low, high):
        if source[lane] > spans.most:
            return -1
        total += source[lane] * (spans.opened[lane_rows[lane]] - closed)
        signs |= total
    return -1 if signs < 0 else total


@compiled
def make_room(
    lanes: Integers, lane_rows: Integers, low: int, high: int
) -> tuple[Integers, Integers]:
    """Move the lanes in use to the front, of larger tables where they fill more than half."""
    size = len(lane_rows)
    used = high - low
    larger = size if 2 * used <= size else 2 * size
    moved = np.zeros((len(lanes), larger), np.int64)
    moved_rows = np.zeros(larger, np.int64)
    # One by one: a slice would compile the words of NumPy's errors along.
    for lane in range(used):
        moved_rows[lane] = lane_rows[low + lane]
    for state in range(len(lanes)):
        for lane in range(used):
            moved[state, lane] = lanes[state, low + lane]
    return moved, moved_rows


@compiled
def count_rows(
    machine: CountMachine,
    symbols: Integers,
    times: Integers,
    mode: int,
    within: int,
    spans: Spans,
    bounds: Integers,
    work: int,
    counts: Integers,
    held: Lanes,
) -> tuple[tuple[Integers, ...], int]:
    """Fill in how many matches each row completes; return the lanes and how the call ended.

    `bounds` has for each segment the first row and the end. `within` is 0 where time ends no lane.
    After about as much work as given the call pauses, to be made again with the lanes.
    """
    lanes, scratch, lane_rows, place = held
    opened, closed, most = spans
    signs = spent = 0
    for segment in range(place[SEGMENT], len(bounds)):
        place[SEGMENT] = segment
        first = place[NEXT_ROW]
        if first < 0:
            first = bounds[segment, 0]
            low, high = 0, 0 if mode else 1
            lanes[:] = 0
        else:
            low, high = place[FIRST_LANE], place[END_LANE]
            place[NEXT_ROW] = -1
        for row in range(first, bounds[segment, 1]):
            if spent > work:
                place[NEXT_ROW] = row
                place[FIRST_LANE] = low
                place[END_LANE] = high
                place[WORK] = spent
                return (lanes, scratch, lane_rows, place), PAUSED
            line = machine.symbols[symbols[row]]
            spent += 1 + (high - low) * (1 + line[BOTH_END] - line[BOTH])
            if mode:
                while within and low < high and times[row] - times[lane_rows[low]] >= within:
                    low += 1
                while len(opened) and low < high and opened[lane_rows[low]] <= closed[row]:
                    low += 1
                if high == len(lane_rows):
                    lanes, lane_rows = make_room(lanes, lane_rows, low, high)
                    high -= low
                    low = 0
                    if scratch.shape[1] < len(lane_rows):
                        scratch = np.zeros((machine.states, len(lane_rows)), np.int64)
            completed = line[AT_ONCE]
            if len(opened):
                windows = max(opened[row] - closed[row], 0)
                completed *= windows if most else min(windows, 1)
            for index in range(line[ACCEPTED], line[ACCEPTED_END]):
                source = lanes[machine.flat[index]]
                if most:
                    added = add_each(source, lane_rows, low, high, spans, closed[row])
                    completed += added
                    signs |= added | completed
                    continue
                for lane in range(low, high):
                    completed += source[lane]
                    signs |= completed
            counts[row] = completed
            begins = line[STARTED] < line[STARTED_END]
            adds = mode != ONE_LANE
            if mode == BY_WINDOWS and low < high:
                adds = opened[lane_rows[high - 1]] != opened[row]
            if mode == BY_TAKE:
                begins = begins or line[TAKES] < line[TAKES_END]
                if begins:
                    lanes[:, high] = 0
                    signs |= add_takes(machine, line[TAKES], line[TAKES_END], lanes, low, high)
                signs |= apply_sums(
                    machine, line[SKIPS], line[SKIPS_END], lanes, low, high, scratch
                )
            else:
                signs |= apply_sums(machine, line[BOTH], line[BOTH_END], lanes, low, high, scratch)
                if adds and begins:
                    lanes[:, high] = 0
            if begins:
                lane = high if adds else high - 1
                for index in range(line[STARTED], line[STARTED_END]):
                    lanes[machine.flat[index], lane] += 1
                    signs |= lanes[machine.flat[index], lane]
                if adds:
                    lane_rows[high] = row
                    high += 1
            if signs < 0:
                return (lanes, scratch, lane_rows, place), OVERFLOWED
    return (lanes, scratch, lane_rows, place), COUNTED
