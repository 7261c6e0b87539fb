"""Sequences in events whose order is not certain: every match that some order allows.

The steps are taken one after the other, each among the rows that may be behind the last ones.
Whether what is taken matches is told by `uncertain_worlds`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from outpace.compiler.kernel import compiled_in_line, compiled_when_worth
from outpace.engine.arrays import Booleans, Numbers
from outpace.engine.kernels.uncertain_worlds import (
    BEGIN,
    BEHIND,
    BETWEEN,
    CHOSEN,
    CURSOR,
    EARLIEST,
    ENDING,
    FITTING,
    GAP,
    HIGH,
    LATEST,
    LEAST,
    LEAST_TAKEN,
    LIMIT,
    LOW,
    MOST_TAKEN,
    OPEN,
    PLAIN,
    POSITION,
    POSITIONS,
    STEP,
    SURE,
    WAY,
    SearchedRows,
    SearchedSteps,
    confirms,
    ends_plainly,
    first_at,
    follows_plainly,
    is_chosen,
    is_sure,
    meets,
    possible,
    precedes,
    surely_ends,
)

#: What a turn comes to: all is done, the tables are full, or Python is to have the floor.
DONE, FULL, PAUSED = 0, 1, 2

#: Where a turn goes on: the start, how many events are taken, and what is written: matches, rows.
START, DEPTH, FOUND, WRITTEN = range(4)

#: So many ticks are looked at one by one.
_NEAR: Final = 16

#: Where the search goes on: with the next step, or with one more event of this one.
_LEAVE, _STAY = 0, 1


@compiled_in_line
def _open(
    events: SearchedRows,
    steps: SearchedSteps,
    level: Numbers,
    size: int,
    way: int,
    bounds: Numbers,
) -> None:
    """Note where the next event may be: up to a row that must surely not be before it, and some."""
    times, next_rows, bound = events.times, events.next_rows, steps.bound
    low, high = bounds[LOW], bounds[HIGH]
    before, step = level[CHOSEN, size - 1], level[STEP, size - 1]
    earliest = first_at(times, low, high, before, times[before] - bound)
    level[WAY, size - 1], level[EARLIEST, size - 1] = way, earliest
    if way == _LEAVE:
        level[STEP, size], level[GAP, size] = step + 1, steps.steps[BEHIND, step]
        steps.steps[BEGIN, step + 1] = size
        row = earliest
        if before < level[LATEST, size - 1]:
            for place in range(size - 1):
                row = max(row, level[EARLIEST, place])
    else:
        level[STEP, size], level[GAP, size] = step, steps.steps[BETWEEN, step]
        row = before + 1
    level[CURSOR, size] = next_rows[steps.steps[FITTING, level[STEP, size]], row]
    gap, sure = level[GAP, size], times[before] + bound + 1
    latest = level[LEAST, size - 1] + steps.within + bound
    row = next_rows[gap, before + 1]
    if row < high and times[row] < sure:
        row = next_rows[gap, first_at(times, low, high, before, sure)]
    if steps.varying[gap]:
        while row < high and times[row] < latest and not confirms(events, steps, level, gap, row):
            row = next_rows[gap, row + 1]
    level[LIMIT, size] = min(latest - 1, times[row] + bound) if row < high else latest - 1


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
def find_next(fits: Booleans, steps: SearchedSteps, next_rows: Numbers, next_any: Numbers) -> None:
    """Find the next row of each set; described with `SearchedRows`."""
    size = fits.shape[1]
    for number in range(len(next_rows)):
        found = next_rows[number, size] = size
        first, stop = steps.sets[number], steps.sets[number + 1]
        if stop - first == 1 and not steps.every[number]:
            own = fits[steps.set_variables[first]]
            for row in range(size - 1, -1, -1):
                found = row if own[row] else found
                next_rows[number, row] = found
            continue
        for row in range(size - 1, -1, -1):
            there = steps.every[number]
            for place in range(first, stop):
                there |= fits[steps.set_variables[place], row]
            found = row if there else found
            next_rows[number, row] = found
    if not steps.sourced:
        return
    next_any[:] = size
    for step in range(steps.steps.shape[1]):
        for line in (BETWEEN, BEHIND):
            number = steps.steps[line, step]
            if number >= 0:
                for row in range(size):
                    next_any[row] = min(next_any[row], next_rows[number, row])


class OrderedMatches(NamedTuple):
    """The matches of a block by their latest rows, and as they were found where that is the same.

    Parameters
    ----------
    segment, start, number
        For each match its segment, its first row, and its number.
    offsets, taken, positions
        Where the rows of each match begin, these, and their positions in the program.
    times, sure
        For each match the time of its latest row, and whether every order has it.
    """

    segment: Numbers
    start: Numbers
    number: Numbers
    offsets: Numbers
    taken: Numbers
    positions: Numbers
    times: Numbers
    sure: Booleans


@compiled_when_worth
def order_found(
    rows: Numbers,
    ends: Numbers,
    times: Numbers,
    segments: Numbers,
    numbers: Numbers,
    counts: Numbers,
    order: Numbers,
    ordered: OrderedMatches,
) -> None:
    """Order matches.

    Parameters
    ----------
    rows, ends
        What was found.
    times, segments, numbers
        The times of rows, where segments begin, and how many matches each has had; gets how many it
        has now.
    counts, order
        Room for a number of each row, and one more, and for one of each match.
    ordered
        Gets the matches.
    """
    counts[:] = 0
    for match in range(len(ends)):
        counts[ends[match, 1] + 1] += 1
    for row in range(1, len(counts)):
        counts[row] += counts[row - 1]
    for segment in range(len(segments) - 1):
        for place in range(counts[segments[segment]], counts[segments[segment + 1]]):
            numbers[segment] += 1
            ordered.segment[place], ordered.number[place] = segment, numbers[segment]
    for match in range(len(ends)):
        place = counts[ends[match, 1]]
        order[place] = match
        counts[ends[match, 1]] = place + 1
    written = ordered.offsets[0] = 0
    for place in range(len(ends)):
        match = order[place]
        begin = ends[match - 1, 0] if match else 0
        for number in range(begin, ends[match, 0]):
            ordered.taken[written], ordered.positions[written] = rows[number, 0], rows[number, 1]
            written += 1
        ordered.offsets[place + 1], ordered.start[place] = written, rows[begin, 0]
        ordered.times[place], ordered.sure[place] = times[ends[match, 1]], ends[match, 2] == 1


@compiled_when_worth
def find_settled(
    awaited: Numbers,
    clock: Numbers,
    numbers: Numbers,
    otherwise: int,
    settled: Numbers,
) -> None:
    """Find for each time the number of the first tick of a clock that is later.

    Most times rise, and by little, which makes it fast.
    """
    tick = 0
    for place in range(len(awaited)):
        time = awaited[place]
        near = min(tick + _NEAR, len(clock))
        while tick < near and clock[tick] <= time:
            tick += 1
        if tick == near or (tick > 0 and clock[tick - 1] > time):
            tick = first_at(clock, 0, len(clock), tick, time + 1)
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
    begin, end = bounds[ENDING], bounds[OPEN]
    times, next_rows, last_step = events.times, events.next_rows, steps.steps.shape[1] - 1
    start, size, found, written = place[START], place[DEPTH], place[FOUND], place[WRITTEN]
    status, work = PAUSED, 0
    while work < work_at_once:
        work += 1
        if size == 0:
            if start >= end:
                status = DONE
                break
            row, step = next_rows[steps.steps[FITTING, 0], start], 0
            start = row + 1
            if row >= end:
                continue
            level[STEP, 0] = 0
            level[LEAST, 0], level[LATEST, 0] = times[row], row
        else:
            row, step = level[CURSOR, size], level[STEP, size]
            if row >= end or times[row] > level[LIMIT, size]:
                step = level[STEP, size - 1]
                taken = size - steps.steps[BEGIN, step]
                if level[WAY, size - 1] == _LEAVE and taken < steps.steps[MOST_TAKEN, step]:
                    _open(events, steps, level, size, _STAY, bounds)
                else:
                    size -= 1
                continue
            level[CURSOR, size] = next_rows[steps.steps[FITTING, step], row + 1]
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
        level[PLAIN, size] = follows_plainly(events, steps, level, size, row)
        size += 1
        taken = size - steps.steps[BEGIN, step]
        if step < last_step and taken >= steps.steps[LEAST_TAKEN, step]:
            level[SURE, size - 1] = is_sure(events, steps, level, size, bounds)
            _open(events, steps, level, size, _LEAVE, bounds)
            continue
        if taken >= steps.steps[LEAST_TAKEN, step] and level[LATEST, size - 1] >= begin:
            if steps.trailing >= 0:
                earliest = first_at(times, bounds[LOW], bounds[HIGH], row, times[row] - steps.bound)
                level[EARLIEST, size - 1] = earliest
            sure = is_sure(events, steps, level, size, bounds) and surely_ends(
                events, steps, level, size, bounds
            )
            if (
                sure
                or ends_plainly(events, steps, level, size, bounds)
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
            _open(events, steps, level, size, _STAY, bounds)
        else:
            size -= 1
    place[START], place[DEPTH], place[FOUND], place[WRITTEN] = start, size, found, written
    return status
