"""Sequences in events whose order is not certain: every match that some order allows.

The steps are taken one after the other, each among the rows that may be behind the last ones.
Whether what is taken matches is told by `uncertain_worlds`.
"""

from __future__ import annotations

from outpace.compiler.kernel import compiled_in_line, compiled_when_worth
from outpace.engine.arrays import Booleans, Numbers
from outpace.engine.kernels.uncertain_worlds import (
    BEGIN,
    BEHIND,
    BETWEEN,
    CHOSEN,
    CURSOR,
    ENDING,
    GAP,
    HIGH,
    LAST,
    LATEST,
    LEAST,
    LEAST_TAKEN,
    LOW,
    MOST_TAKEN,
    OPEN,
    POSITION,
    POSITIONS,
    STEP,
    WAY,
    SearchedRows,
    SearchedSteps,
    certain,
    confirms,
    first_at,
    is_chosen,
    matches_as_seen,
    meets,
    possible,
    precedes,
)

#: What a turn comes to: all is done, the tables are full, or Python is to have the floor.
DONE, FULL, PAUSED = 0, 1, 2

#: Where a turn goes on: the start, how many events are taken, and what is written: matches, rows.
START, DEPTH, FOUND, WRITTEN = range(4)

#: Where the search goes on: with the next step, or with one more event of this one.
_LEAVE, _STAY = 0, 1


@compiled_in_line
def _open(
    events: SearchedRows,
    steps: SearchedSteps,
    level: Numbers,
    size: int,
    way: int,
    low: int,
    high: int,
    end: int,
) -> None:
    """Note the rows that may come next: behind a sure row that must not be between none is left."""
    times, bound = events.times, steps.bound
    before, step = level[CHOSEN, size - 1], level[STEP, size - 1]
    level[WAY, size - 1] = way
    if way == _LEAVE:
        level[STEP, size], level[GAP, size] = step + 1, steps.steps[BEHIND, step]
        steps.steps[BEGIN, step + 1] = size
        row = events.earliest[level[LATEST, size - 1]]
    else:
        level[STEP, size], level[GAP, size] = step, steps.steps[BETWEEN, step]
        row = before + 1
    level[CURSOR, size] = events.next_fitting[level[STEP, size], row]
    gap = level[GAP, size]
    latest = level[LEAST, size - 1] + steps.within + bound
    row = events.next_forbidden[gap, events.behind[before]]
    if (steps.varying >> gap) & 1:
        while row < high and times[row] < latest and not confirms(events, steps, level, gap, row):
            row = events.next_forbidden[gap, row + 1]
    last = high
    if row < high:
        last = events.behind[row]
    if last == high or times[last - 1] >= latest:
        last = first_at(times, low, last, before, latest)
    level[LAST, size] = min(last, end) - 1


@compiled_when_worth
def find_reach(
    times: Numbers, segments: Numbers, bound: int, earliest: Numbers, behind: Numbers
) -> None:
    """Find for each row the first at most a bound before it, and the first further behind it."""
    for segment in range(len(segments) - 1):
        first = further = segments[segment]
        for row in range(segments[segment], segments[segment + 1]):
            while times[first] < times[row] - bound:
                first += 1
            while further < segments[segment + 1] and times[further] <= times[row] + bound:
                further += 1
            earliest[row], behind[row] = first, further


@compiled_when_worth
def find_next(
    fits: Booleans,
    steps: SearchedSteps,
    every: Booleans,
    forbidden: Numbers,
    next_forbidden: Numbers,
    next_any: Numbers,
    next_fitting: Numbers,
) -> None:
    """Find the rows that must not be in gaps, and the next such row of each gap, and of each step.

    `every` says of which gaps all rows are. What is found is described with `SearchedRows`.
    """
    size = len(forbidden)
    forbidden[:] = 0
    for gap in range(len(next_forbidden)):
        found = next_forbidden[gap, size] = size
        first, stop = steps.gaps[gap], steps.gaps[gap + 1]
        for row in range(size - 1, -1, -1):
            there = every[gap]
            for place in range(first, stop):
                there |= fits[steps.gap_variables[place], row]
            found = row if there else found
            forbidden[row] |= there << gap
            next_forbidden[gap, row] = found
    found = next_any[size] = size
    for row in range(size - 1 if steps.sourced else -1, -1, -1):
        found = row if forbidden[row] else found
        next_any[row] = found
    for step in range(len(steps.variables)):
        found = next_fitting[step, size] = size
        variable = steps.variables[step]
        for row in range(size - 1, -1, -1):
            found = row if fits[variable, row] else found
            next_fitting[step, row] = found


@compiled_when_worth
def order_found(
    rows: Numbers,
    ends: Numbers,
    counts: Numbers,
    order: Numbers,
    offsets: Numbers,
    latest: Numbers,
    sure: Booleans,
    taken: Numbers,
    positions: Numbers,
) -> None:
    """Order matches by their latest row, and as they were found where that is the same.

    Parameters
    ----------
    rows, ends
        What was found.
    counts
        Zeros, one for each row and one more; then how many matches end before a row.
    order, offsets, latest, sure
        For each match in its place its number as it was found, where its rows begin, the latest of
        them, and whether every order has it.
    taken, positions
        The rows of all matches, and their positions in the program.
    """
    for match in range(len(ends)):
        counts[ends[match, 1] + 1] += 1
    for row in range(1, len(counts)):
        counts[row] += counts[row - 1]
    for match in range(len(ends)):
        place = counts[ends[match, 1]]
        order[place] = match
        counts[ends[match, 1]] = place + 1
    written = offsets[0] = 0
    for place in range(len(ends)):
        match = order[place]
        for number in range(ends[match - 1, 0] if match else 0, ends[match, 0]):
            taken[written], positions[written] = rows[number, 0], rows[number, 1]
            written += 1
        offsets[place + 1] = written
        latest[place], sure[place] = ends[match, 1], ends[match, 2] == 1


@compiled_when_worth
def find_settled(
    awaited: Numbers,
    clock: Numbers,
    numbers: Numbers,
    otherwise: int,
    settled: Numbers,
) -> None:
    """Find for each time the number of the first tick of a clock that is later.

    Most times rise, which makes it fast.
    """
    tick = 0
    for place in range(len(awaited)):
        tick = first_at(clock, 0, len(clock), tick, awaited[place] + 1)
        settled[place] = numbers[tick] if tick < len(clock) else otherwise


@compiled_when_worth
def find_uncertain(
    events: SearchedRows,
    steps: SearchedSteps,
    bounds: Numbers,
    place: Numbers,
    level: Numbers,
    rows: Numbers,
    ends: Numbers,
    work_at_once: int,
) -> int:
    """Find the matches of a partition.

    Parameters
    ----------
    events, steps
        The rows, and the pattern.
    bounds
        What is known of the partition.
    place, level
        Where to go on, and what is known of each event that is chosen.
    rows, ends
        What is found: the rows of all matches with their positions in the program; and for each
        match where its rows end, the last of them, and how sure it is.
    work_at_once
        After so many rows Python has the floor.
    """
    low, high, begin, end = bounds[LOW], bounds[HIGH], bounds[ENDING], bounds[OPEN]
    times, last_step = events.times, steps.steps.shape[1] - 1
    start, size, found, written = place[START], place[DEPTH], place[FOUND], place[WRITTEN]
    status, work = PAUSED, 0
    while work < work_at_once:
        work += 1
        if size == 0:
            if start >= end:
                status = DONE
                break
            row, step = events.next_fitting[0, start], 0
            start = row + 1
            if row >= end:
                continue
            level[STEP, 0] = 0
            level[LEAST, 0], level[LATEST, 0] = times[row], row
        else:
            row, step = level[CURSOR, size], level[STEP, size]
            if row > level[LAST, size]:
                step = level[STEP, size - 1]
                taken = size - steps.steps[BEGIN, step]
                if level[WAY, size - 1] == _LEAVE and taken < steps.steps[MOST_TAKEN, step]:
                    _open(events, steps, level, size, _STAY, low, high, end)
                else:
                    size -= 1
                continue
            level[CURSOR, size] = events.next_fitting[step, row + 1]
            if is_chosen(level, size, row):
                continue
            if steps.sourced and precedes(events.sources, level, size, row):
                continue
            variable = steps.variables[step]
            varies = steps.conditions[variable] < steps.conditions[variable + 1]
            if varies and not meets(events, steps, level, variable, row):
                continue
            level[LEAST, size] = min(level[LEAST, size - 1], times[row])
            level[LATEST, size] = max(level[LATEST, size - 1], row)
        level[CHOSEN, size] = row
        size += 1
        taken = size - steps.steps[BEGIN, step]
        if step < last_step and taken >= steps.steps[LEAST_TAKEN, step]:
            _open(events, steps, level, size, _LEAVE, low, high, end)
            continue
        if taken >= steps.steps[LEAST_TAKEN, step] and level[LATEST, size - 1] >= begin:
            sure = certain(events, steps, level, size, bounds)
            if (
                sure
                or matches_as_seen(events, steps, level, size, bounds)
                or possible(events, steps, level, size, bounds)
            ):
                if found == len(ends) or written + size > len(rows):
                    # The last row is looked at again.
                    size -= 1
                    if size == 0:
                        start -= 1
                    else:
                        level[CURSOR, size] = row
                    status = FULL
                    break
                for number in range(size):
                    own = level[STEP, number]
                    nth = number - steps.steps[BEGIN, own]
                    nth = min(nth, steps.steps[POSITIONS, own] - 1)
                    rows[written + number, 0] = level[CHOSEN, number]
                    rows[written + number, 1] = steps.steps[POSITION, own] + nth
                written += size
                ends[found, 0], ends[found, 1] = written, level[LATEST, size - 1]
                ends[found, 2] = sure
                found += 1
        if taken < steps.steps[MOST_TAKEN, step]:
            _open(events, steps, level, size, _STAY, low, high, end)
        else:
            size -= 1
    place[START], place[DEPTH], place[FOUND], place[WRITTEN] = start, size, found, written
    return status
