"""Sequences in events whose order is not certain: every match that some order allows.

Times are whole numbers, and the true time of an event lies within half of the bound of its own.
`_possible` looks for true times with which the steps follow each other, no forbidden event lies
between two of them, and WITHIN holds.
"""

from __future__ import annotations

from typing import Any, Final

import numpy.typing as npt

from outpace.compiler.kernel import compiled_when_worth, compiled_within

Integers = npt.NDArray[Any]
Truth = npt.NDArray[Any]

#: What a turn comes to: all is done, the tables are full, or Python is to have the floor.
DONE, FULL, PAUSED = 0, 1, 2

#: Where a turn goes on: the start, how many steps have an event, and how many matches are written.
START, DEPTH, FOUND = range(3)

#: What is known of the step at each place of a match that is looked for.
CHOSEN, CURSOR, LAST, LEAST, MOST, AT = range(6)
LINES: Final = 6


@compiled_within
def _first_at(times: Integers, low: int, high: int, row: int, time: int) -> int:
    """Return the first row from `low` to `high` at or behind a time, not far from `row`."""
    step = 1
    if row < high and times[row] < time:
        low = row + 1
        while low + step < high and times[low + step] < time:
            low += step + 1
            step *= 2
        high = min(high, low + step + 1)
    else:
        high = min(row, high)
        while high - step > low and times[high - step] >= time:
            high -= step
            step *= 2
        low = max(low, high - step)
    while low < high:
        middle = (low + high) // 2
        if times[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


@compiled_within
def _is_chosen(level: Integers, steps: int, row: int) -> bool:
    chosen = False
    for step in range(steps):
        chosen |= level[CHOSEN, step] == row
    return chosen


@compiled_within
def _precedes(sources: Integers, level: Integers, behind: int, row: int) -> bool:
    """Say whether a row comes before one of the steps up to `behind`, of the same source."""
    for step in range(behind):
        chosen = level[CHOSEN, step]
        if sources[chosen] == sources[row] and chosen > row:
            return True
    return False


@compiled_within
def _slot(
    forbidden: Integers,
    sources: Integers,
    slots: Integers,
    level: Integers,
    steps: int,
    row: int,
    earliest: int,
) -> int:
    """Return the first place between the steps that an event can have, or -1.

    Place p is behind p steps. It lies behind that of the event before it of the same source.
    """
    slot, most = slots[sources[row]], steps
    for step in range(steps):
        chosen = level[CHOSEN, step]
        if sources[chosen] == sources[row]:
            if chosen < row:
                slot = max(slot, step + 1)
            else:
                most = min(most, step)
    while slot < steps and (
        earliest > level[AT, slot] or (slot > 0 and (forbidden[row] >> (slot - 1)) & 1)
    ):
        slot += 1
    return slot if slot <= most else -1


@compiled_within
def _possible(
    times: Integers,
    forbidden: Integers,
    next_any: Integers,
    sources: Integers,
    slots: Integers,
    level: Integers,
    steps: int,
    low: int,
    high: int,
    bound: int,
    within: int,
) -> bool:
    """Say whether there are true times with which the chosen events match.

    They begin as late as may be. An event that must not be between two steps, and can only be
    behind them, draws them down to the latest time that it can have; till all have a place.
    Times are quarters of units: WITHIN is exclusive, and nothing else lies on an odd quarter.
    """
    base = times[level[CHOSEN, 0]]
    since = until = base
    for step in range(steps):
        own = times[level[CHOSEN, step]]
        since, until = min(since, own), max(until, own)
        level[AT, step] = 4 * (own - base) + 2 * bound
    first = next_any[_first_at(times, low, high, level[CHOSEN, 0], since - bound)]
    while True:
        for step in range(steps - 2, -1, -1):
            level[AT, step] = min(level[AT, step], level[AT, step + 1])
        latest = level[AT, 0] + 4 * within - 1
        for step in range(steps):
            level[AT, step] = min(level[AT, step], latest)
            if level[AT, step] < 4 * (times[level[CHOSEN, step]] - base) - 2 * bound:
                return False
        row = first
        while row < high and times[row] <= until + bound:
            slots[sources[row]] = 0
            row = next_any[row + 1]
        settled, row = True, first
        while row < high and times[row] <= until + bound:
            if not _is_chosen(level, steps, row):
                time = 4 * (times[row] - base)
                slot = _slot(forbidden, sources, slots, level, steps, row, time - 2 * bound)
                if slot < 0:
                    return False
                slots[sources[row]] = slot
                if slot > 0 and time + 2 * bound < level[AT, slot - 1]:
                    level[AT, slot - 1] = time + 2 * bound
                    settled = False
            row = next_any[row + 1]
        if settled:
            return True


@compiled_within
def _certain(
    times: Integers,
    next_forbidden: Integers,
    sources: Integers,
    level: Integers,
    steps: int,
    low: int,
    high: int,
    bound: int,
    within: int,
) -> bool:
    """Say whether the chosen events match with all true times."""
    first, last = level[CHOSEN, 0], level[CHOSEN, steps - 1]
    if times[last] - times[first] + bound >= within:
        return False
    for gap in range(steps - 1):
        before, behind = level[CHOSEN, gap], level[CHOSEN, gap + 1]
        ordered = sources[before] == sources[behind] and before < behind
        if times[behind] - times[before] <= bound and not ordered:
            return False
        row = _first_at(times, low, high, before, times[before] - bound)
        row = next_forbidden[gap, row]
        while row < high and times[row] <= times[behind] + bound:
            earlier = sources[row] == sources[before] and row < before
            later = sources[row] == sources[behind] and row > behind
            if not (earlier or later or _is_chosen(level, steps, row)):
                return False
            row = next_forbidden[gap, row + 1]
    return True


@compiled_within
def _open_step(
    times: Integers,
    next_forbidden: Integers,
    level: Integers,
    step: int,
    low: int,
    high: int,
    end: int,
    bound: int,
    within: int,
) -> None:
    """Note the rows that the next step may have: behind a certain row between them none is left."""
    before = level[CHOSEN, step - 1]
    level[CURSOR, step] = _first_at(times, low, high, before, level[MOST, step - 1] - bound)
    behind = _first_at(times, low, high, before, times[before] + bound + 1)
    row = next_forbidden[step - 1, behind]
    last = high
    if row < high:
        last = _first_at(times, low, high, row, times[row] + bound + 1)
    latest = level[LEAST, step - 1] + within + bound
    if last == high or times[last - 1] >= latest:
        last = _first_at(times, low, last, before, latest)
    level[LAST, step] = min(last, end) - 1


@compiled_when_worth
def find_uncertain(
    times: Integers,
    fits: Truth,
    forbidden: Integers,
    next_forbidden: Integers,
    next_any: Integers,
    sources: Integers,
    slots: Integers,
    bounds: Integers,
    bound: int,
    within: int,
    place: Integers,
    level: Integers,
    rows: Integers,
    work_at_once: int,
) -> int:
    """Find the matches of a partition.

    Parameters
    ----------
    times, fits, sources, slots
        The time of each row, which steps it may be, and its source by number; room for a number of
        each source.
    forbidden, next_forbidden
        For each row the gaps between steps that it must not be in, as bits; and for each gap the
        first such row from each row on.
    next_any
        The first row from each row on that must not be in some gap.
    bounds
        The partition's rows; then the rows from one up to another that may be the last of a match.
    bound, within
        How far true times of events may be apart from each other in another way than their own, and
        how far those of a match may lie apart, exclusively.
    place, level
        Where to go on, and what is known of each step.
    rows
        What is found: for each match the row of each step, and how sure it is.
    work_at_once
        After so many rows Python has the floor.
    """
    low, high, begin, end = bounds[0], bounds[1], bounds[2], bounds[3]
    steps = fits.shape[1]
    start, depth, found = place[START], place[DEPTH], place[FOUND]
    work = 0
    while work < work_at_once:
        work += 1
        if depth == 0:
            if start >= end:
                place[START], place[DEPTH], place[FOUND] = start, depth, found
                return DONE
            row = start
            start += 1
            if not fits[row, 0]:
                continue
            level[LEAST, 0] = level[MOST, 0] = times[row]
        else:
            row = level[CURSOR, depth]
            if row > level[LAST, depth]:
                depth -= 1
                continue
            level[CURSOR, depth] = row + 1
            if not fits[row, depth] or _is_chosen(level, depth, row):
                continue
            if _precedes(sources, level, depth, row):
                continue
            level[LEAST, depth] = min(level[LEAST, depth - 1], times[row])
            level[MOST, depth] = max(level[MOST, depth - 1], times[row])
        level[CHOSEN, depth] = row
        if depth + 1 < steps:
            depth += 1
            _open_step(times, next_forbidden, level, depth, low, high, end, bound, within)
            continue
        last = row
        for step in range(depth):
            last = max(last, level[CHOSEN, step])
        if last < begin or not _possible(
            times, forbidden, next_any, sources, slots, level, steps, low, high, bound, within
        ):
            continue
        if found == len(rows):
            # The last row is looked at again.
            if depth == 0:
                start -= 1
            else:
                level[CURSOR, depth] = row
            place[START], place[DEPTH], place[FOUND] = start, depth, found
            return FULL
        for step in range(steps):
            rows[found, step] = level[CHOSEN, step]
        rows[found, steps] = _certain(
            times, next_forbidden, sources, level, steps, low, high, bound, within
        )
        found += 1
    place[START], place[DEPTH], place[FOUND] = start, depth, found
    return PAUSED
