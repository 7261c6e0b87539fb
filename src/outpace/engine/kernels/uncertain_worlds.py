"""Sequences in events whose order is not certain: every match that some order allows.

Times are whole numbers, and the true time of an event lies within half of its width of its own.
`possible` looks for true times with which the steps follow each other, no forbidden event lies
between two of them, and WITHIN holds. Events of one step may follow each other in any order. If
some order of theirs will do, the one by their own times does: equal bounds let two of them change
places. So a match has the events of a step in that order, and is looked at once. The order of
sources may not let them: where a step has several events, it is left out of account for others, and
all events of a match have the greatest width. Then more is possible than is.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from outpace.compiler.kernel import compiled_in_line, compiled_within
from outpace.engine.arrays import Booleans, Numbers

#: What is known of a partition: its rows from LOW up to HIGH, those from ENDING up to OPEN that may
#: be the last of a match, and the true times from SINCE up to UNTIL, where it is a window.
LOW, HIGH, ENDING, OPEN, SINCE, UNTIL = range(6)

#: What comes of giving other events a place: all have one, one has none, or one drew a step down.
PLACED, NOWHERE, DRAWN = range(3)

#: What is known of each event of a match that is looked for: its row and the first one that may lie
#: before that; where the next one is looked for, from the cursor up to a time; the least time and
#: the last row so far; whether it may plainly follow, and whether every order has the steps up to
#: it; when it happened and its width; its step, the gap before it, and where the search goes on.
CHOSEN, EARLIEST, CURSOR, LIMIT, LEAST, LATEST, PLAIN, SURE, AT, WIDTH, STEP, GAP, WAY = range(13)
LINES: Final = 13

#: What is known of each step: how many events it takes; the sets of rows that fit it, that must not
#: be between its events, and behind them; its first position in the program and how many it has;
#: and where its events begin in what is chosen.
LEAST_TAKEN, MOST_TAKEN, FITTING, BETWEEN, BEHIND, POSITION, POSITIONS, BEGIN = range(8)
STEP_LINES: Final = 8

#: The parts of a comparison: what compares, and for both sides the column of values and the step.
#: TOGETHER has for an event of the step where those begin and end in `pairs` that it holds with.
SIGN, LEFT, LEFT_STEP, RIGHT, RIGHT_STEP = range(5)
HOLDS, TOGETHER, EQUAL, DIFFERENT, LESS, AT_MOST, GREATER, AT_LEAST = range(8)

#: Codes of no value, for which nothing holds, and of NaN, which differs from everything.
NOTHING: Final = -(1 << 63)
NAN: Final = NOTHING + 1


class SearchedRows(NamedTuple):
    """The rows that are searched.

    Parameters
    ----------
    times, widths, sources, slots
        The time of each row, how far true ones may lie apart, and its source by number; room for a
        number of each source. Without sources that count the last two are empty.
    fits
        For each variable the rows that may be it, as far as their own values tell.
    next_rows, next_any
        For each set the first row of it from each row on; and, with sources, the first one that
        must not be in some gap.
    codes, pairs
        Values that are compared, by column and row; rows that a row goes together with.
    free
        Whether all have the greatest width, only steps and gaps tell where in a match they are, and
        none must be out of two gaps next to each other.
    """

    times: Numbers
    widths: Numbers
    sources: Numbers
    slots: Numbers
    fits: Booleans
    next_rows: Numbers
    next_any: Numbers
    codes: Numbers
    pairs: Numbers
    free: bool


class SearchedSteps(NamedTuple):
    """The pattern.

    Parameters
    ----------
    steps, variables
        What is known of each step, and its variable.
    sets, set_variables
        The sets of rows that fit a step or must not be in a gap: where the variables of each begin,
        and the variables, one of which a row has to fit.
    every, varying
        The sets that all rows are in, and those that comparisons decide about, too.
    conditions, comparisons
        Where the comparisons of each variable begin; the comparisons.
    trailing
        The set that must not be behind the last event until WITHIN ends, or -1.
    sourced
        Whether there are sources of several events.
    windowed
        Whether the true times of a match lie in a window.
    bound, within
        The greatest width, and how far the true times of a match may lie apart, exclusively.
    """

    steps: Numbers
    variables: Numbers
    sets: Numbers
    set_variables: Numbers
    every: Booleans
    varying: Booleans
    conditions: Numbers
    comparisons: Numbers
    trailing: int
    sourced: bool
    windowed: bool
    bound: int
    within: int


@compiled_in_line
def first_at(times: Numbers, low: int, high: int, row: int, time: int) -> int:
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


@compiled_in_line
def is_chosen(level: Numbers, size: int, row: int) -> bool:
    """Say whether a row is one of those chosen so far."""
    chosen = False
    for place in range(size):
        chosen |= level[CHOSEN, place] == row
    return chosen


@compiled_in_line
def precedes(sources: Numbers, level: Numbers, size: int, row: int) -> bool:
    """Say whether a row comes before one of those chosen so far, of the same source."""
    for place in range(size):
        chosen = level[CHOSEN, place]
        if chosen > row and sources[chosen] == sources[row]:
            return True
    return False


@compiled_within
def _compares(sign: int, left: int, right: int) -> bool:
    """Say whether two values, by their codes, compare so."""
    if left == NOTHING or right == NOTHING:
        return False
    if left == NAN or right == NAN:
        return sign == DIFFERENT
    if sign == EQUAL:
        return left == right
    if sign == DIFFERENT:
        return left != right
    if sign == LESS:
        return left < right
    if sign == AT_MOST:
        return left <= right
    return left > right if sign == GREATER else left >= right


@compiled_within
def meets(
    events: SearchedRows, steps: SearchedSteps, level: Numbers, variable: int, row: int
) -> bool:
    """Say whether a row that may be a variable by itself is one beside the events before it."""
    for number in range(steps.conditions[variable], steps.conditions[variable + 1]):
        sign = steps.comparisons[number, SIGN]
        step = steps.comparisons[number, LEFT_STEP]
        at = row if step < 0 else level[CHOSEN, steps.steps[BEGIN, step]]
        left = events.codes[steps.comparisons[number, LEFT], at]
        if sign == HOLDS:
            if left != 1:
                return False
            continue
        if sign == TOGETHER:
            end = events.codes[steps.comparisons[number, RIGHT], at]
            place = first_at(events.pairs, left, end, left, row)
            if place == end or events.pairs[place] != row:
                return False
            continue
        step = steps.comparisons[number, RIGHT_STEP]
        at = row if step < 0 else level[CHOSEN, steps.steps[BEGIN, step]]
        if not _compares(sign, left, events.codes[steps.comparisons[number, RIGHT], at]):
            return False
    return True


@compiled_within
def confirms(
    events: SearchedRows, steps: SearchedSteps, level: Numbers, gap: int, row: int
) -> bool:
    """Say whether a row that may be forbidden in a gap is, beside the events before it."""
    for place in range(steps.sets[gap], steps.sets[gap + 1]):
        variable = steps.set_variables[place]
        if events.fits[variable, row] and meets(events, steps, level, variable, row):
            return True
    return False


@compiled_in_line
def _first_slot(sources: Numbers, level: Numbers, size: int, row: int, slot: int) -> int:
    """Return the first place that the order of its source leaves to an event."""
    for place in range(size):
        chosen = level[CHOSEN, place]
        if chosen < row and sources[chosen] == sources[row]:
            slot = max(slot, place + 1)
    return slot


@compiled_in_line
def _last_slot(sources: Numbers, level: Numbers, size: int, row: int) -> int:
    """Return the last place that the order of its source leaves to an event."""
    for place in range(size):
        chosen = level[CHOSEN, place]
        if chosen > row and sources[chosen] == sources[row]:
            return place
    return size + 1


@compiled_in_line
def follows_plainly(
    events: SearchedRows, steps: SearchedSteps, level: Numbers, size: int, row: int
) -> bool:
    """Say whether a row may follow, for a reason that is quickly seen.

    Either all events are as late as they can be, where none that is forbidden surely lies between
    two of them; or all have their own times. Gaps that comparisons decide about may say no where it
    is so.
    """
    if size == 0:
        return True
    if not level[PLAIN, size - 1] or events.times[row] > level[LIMIT, size] - steps.bound:
        return False
    before = level[CHOSEN, size - 1]
    return events.free or before < row <= events.next_rows[level[GAP, size], before + 1]


@compiled_in_line
def ends_plainly(
    events: SearchedRows, steps: SearchedSteps, level: Numbers, size: int, bounds: Numbers
) -> bool:
    """Say whether events that may plainly follow each other match, for a reason quickly seen."""
    if not level[PLAIN, size - 1]:
        return False
    times, first, last = events.times, level[CHOSEN, 0], level[CHOSEN, size - 1]
    if steps.windowed and (times[first] < bounds[SINCE] or times[last] >= bounds[UNTIL]):
        return False
    if steps.trailing < 0:
        return True
    row = events.next_rows[steps.trailing, last + 1]
    if row >= bounds[HIGH] or (steps.windowed and times[row] >= bounds[UNTIL]):
        return True
    return bool(times[row] - times[first] >= steps.within)


@compiled_in_line
def _is_forbidden(
    events: SearchedRows, steps: SearchedSteps, level: Numbers, gap: int, row: int
) -> bool:
    """Say whether a row must not be in a gap."""
    there = events.next_rows[gap, row] == row
    return there and (not steps.varying[gap] or confirms(events, steps, level, gap, row))


@compiled_in_line
def _slot_of(
    events: SearchedRows,
    steps: SearchedSteps,
    level: Numbers,
    ends: int,
    base: int,
    row: int,
    slot: int,
) -> int:
    """Return the first place, from one on, that is not too early for an event, nor forbidden.

    Place p is behind p events; a trailing gap has one more, behind the end of WITHIN.
    """
    earliest = 4 * (events.times[row] - base) - 2 * events.widths[row]
    while slot < ends and (
        earliest > level[AT, slot]
        or (slot > 0 and _is_forbidden(events, steps, level, level[GAP, slot], row))
    ):
        slot += 1
    return slot


@compiled_in_line
def _place_by_gap(
    events: SearchedRows,
    steps: SearchedSteps,
    level: Numbers,
    size: int,
    base: int,
    high: int,
) -> int:
    """Give a place to each event that may lie in a gap that it must not be in.

    Those that may be before or behind the gap have one.
    """
    times, widths, settled = events.times, events.widths, PLACED
    ends = size + (steps.trailing >= 0)
    for place in range(1, ends):
        next_rows = events.next_rows[level[GAP, place]]
        row = next_rows[level[EARLIEST, place - 1]]
        while row < high and 4 * (times[row] - base) < level[AT, place]:
            latest = 4 * (times[row] - base) + 2 * widths[row]
            if latest < level[AT, place] and not is_chosen(level, size, row):
                slot = _slot_of(events, steps, level, ends, base, row, 0)
                if slot > 0 and latest < level[AT, slot - 1]:
                    level[AT, slot - 1] = latest
                    settled = DRAWN
            row = next_rows[row + 1]
    return settled


@compiled_in_line
def _place_by_source(
    events: SearchedRows,
    steps: SearchedSteps,
    level: Numbers,
    size: int,
    base: int,
    until: int,
    low: int,
    high: int,
) -> int:
    """Give a place to each event that must not be in some gap, in the order of its source."""
    times, sources, slots, next_any = events.times, events.sources, events.slots, events.next_any
    lowest = level[CHOSEN, 0]
    for place in range(1, size):
        lowest = min(lowest, level[CHOSEN, place])
    first = row = next_any[first_at(times, low, high, lowest, times[lowest] - steps.bound)]
    while row < high and times[row] <= until + steps.bound:
        slots[sources[row]] = 0
        row = next_any[row + 1]
    settled, row = PLACED, first
    while row < high and times[row] <= until + steps.bound:
        if not is_chosen(level, size, row):
            slot = _first_slot(sources, level, size, row, slots[sources[row]])
            ends = size + (steps.trailing >= 0)
            slot = _slot_of(events, steps, level, ends, base, row, slot)
            if slot > _last_slot(sources, level, size, row):
                return NOWHERE
            slots[sources[row]] = slot
            latest = 4 * (times[row] - base) + 2 * events.widths[row]
            if slot > 0 and latest < level[AT, slot - 1]:
                level[AT, slot - 1] = latest
                settled = DRAWN
        row = next_any[row + 1]
    return settled


@compiled_in_line
def possible(
    events: SearchedRows, steps: SearchedSteps, level: Numbers, size: int, bounds: Numbers
) -> bool:
    """Say whether there are true times with which the chosen events match.

    They begin with their latest. An event that must not be between two of them, and can only be
    behind them, draws them down to the latest time that it can have; till all have a place. The
    end of WITHIN is one more of them where something must not be before it, or that of the window.
    Times are quarters of units: WITHIN and windows are exclusive, and nothing else lies on an odd
    quarter.
    """
    times, widths, high = events.times, events.widths, bounds[HIGH]
    bound, within = steps.bound, steps.within
    single = size == steps.steps.shape[1]
    ordered = steps.sourced and single
    base, until = times[level[CHOSEN, 0]], times[level[LATEST, size - 1]]
    since, stop = -(1 << 62), 1 << 62
    if steps.windowed:
        since, stop = 4 * (bounds[SINCE] - base), 4 * (bounds[UNTIL] - base)
    for place in range(size):
        own = times[level[CHOSEN, place]]
        level[WIDTH, place] = widths[level[CHOSEN, place]] if single else bound
        level[AT, place] = min(4 * (own - base) + 2 * level[WIDTH, place], stop - 1)
    if steps.trailing >= 0:
        until = max(until, base + within)
        level[AT, size] = min(level[AT, 0] + 4 * within, stop)
        level[GAP, size] = steps.trailing
    while True:
        if steps.trailing >= 0 and level[AT, size] < stop:
            level[AT, 0] = min(level[AT, 0], level[AT, size] - 4 * within)
        for place in range(size - 2, -1, -1):
            level[AT, place] = min(level[AT, place], level[AT, place + 1])
        latest = level[AT, 0] + 4 * within - 1
        for place in range(size):
            level[AT, place] = min(level[AT, place], latest)
            earliest = 4 * (times[level[CHOSEN, place]] - base) - 2 * level[WIDTH, place]
            if level[AT, place] < max(earliest, since):
                return False
        if steps.trailing >= 0:
            level[AT, size] = min(latest + 1, stop)
        if ordered:
            settled = _place_by_source(events, steps, level, size, base, until, bounds[LOW], high)
        else:
            settled = _place_by_gap(events, steps, level, size, base, high)
        if settled != DRAWN:
            return settled == PLACED


@compiled_in_line
def _may_precede(events: SearchedRows, steps: SearchedSteps, one: int, other: int) -> bool:
    """Say whether an event may have happened before another."""
    if steps.sourced and events.sources[one] == events.sources[other]:
        return one < other
    apart = events.times[one] - events.times[other]
    return bool(2 * apart <= events.widths[one] + events.widths[other])


@compiled_in_line
def _may_divide(
    events: SearchedRows, steps: SearchedSteps, level: Numbers, begin: int, end: int, row: int
) -> bool:
    """Say whether a row may lie between two events of a step."""
    for place in range(begin, end):
        one = level[CHOSEN, place]
        if not _may_precede(events, steps, one, row):
            continue
        for behind in range(begin, end):
            other = level[CHOSEN, behind]
            if (
                one != other
                and _may_precede(events, steps, row, other)
                and _may_precede(events, steps, one, other)
            ):
                return True
    return False


@compiled_in_line
def _may_lie(
    events: SearchedRows,
    steps: SearchedSteps,
    level: Numbers,
    begin: int,
    end: int,
    after: int,
    row: int,
) -> bool:
    """Say whether a row may lie behind all events of a step, and before all of the next."""
    for place in range(begin, end):
        if not _may_precede(events, steps, level[CHOSEN, place], row):
            return False
    for place in range(end, after):
        if not _may_precede(events, steps, row, level[CHOSEN, place]):
            return False
    return True


@compiled_in_line
def is_sure(
    events: SearchedRows, steps: SearchedSteps, level: Numbers, size: int, bounds: Numbers
) -> bool:
    """Say whether every order has all steps up to the last event."""
    end = steps.steps[BEGIN, level[STEP, size - 1]]
    if end > 0 and not level[SURE, end - 1]:
        return False
    return _surely_follows(events, steps, level, size, bounds)


@compiled_in_line
def _surely_follows(
    events: SearchedRows, steps: SearchedSteps, level: Numbers, size: int, bounds: Numbers
) -> bool:
    """Say whether the events of the last step follow those of the one before in every order."""
    times, widths, bound, high = events.times, events.widths, steps.bound, bounds[HIGH]
    step = level[STEP, size - 1]
    end = steps.steps[BEGIN, step]
    if steps.windowed:
        for place in range(end, size):
            row = level[CHOSEN, place]
            if 2 * (times[row] - bounds[SINCE]) < widths[row]:
                return False
            if 2 * (bounds[UNTIL] - times[row]) <= widths[row]:
                return False
    if size - end > 1:
        gap = steps.steps[BETWEEN, step]
        row = events.next_rows[gap, level[EARLIEST, end]]
        while row < high and times[row] <= times[level[CHOSEN, size - 1]] + bound:
            if (
                _may_divide(events, steps, level, end, size, row)
                and not is_chosen(level, size, row)
                and _is_forbidden(events, steps, level, gap, row)
            ):
                return False
            row = events.next_rows[gap, row + 1]
    if step == 0:
        return True
    begin = steps.steps[BEGIN, step - 1]
    for before in range(begin, end):
        for behind in range(end, size):
            if _may_precede(events, steps, level[CHOSEN, behind], level[CHOSEN, before]):
                return False
    gap, until = level[GAP, end], times[level[CHOSEN, end]] + bound
    row = events.next_rows[gap, level[EARLIEST, end - 1]]
    while row < high and times[row] <= until:
        if (
            _may_lie(events, steps, level, begin, end, size, row)
            and not is_chosen(level, size, row)
            and _is_forbidden(events, steps, level, gap, row)
        ):
            return False
        row = events.next_rows[gap, row + 1]
    return True


@compiled_in_line
def surely_ends(
    events: SearchedRows, steps: SearchedSteps, level: Numbers, size: int, bounds: Numbers
) -> bool:
    """Say whether WITHIN holds in every order, and nothing forbidden is behind the last event."""
    times, widths, within, high = events.times, events.widths, steps.within, bounds[HIGH]
    count = steps.steps.shape[1]
    # The latest time that the first event may have, doubled, behind that of the first one chosen.
    base, start = times[level[CHOSEN, 0]], widths[level[CHOSEN, 0]]
    begin = steps.steps[BEGIN, count - 1]
    for place in range(steps.steps[BEGIN, 1] if count > 1 else size):
        first = level[CHOSEN, place]
        start = min(start, 2 * (times[first] - base) + widths[first])
        for other in range(begin, size):
            last = level[CHOSEN, other]
            if 2 * (times[last] - times[first]) + widths[first] + widths[last] >= 2 * within:
                return False
    if steps.trailing < 0:
        return True
    until = base + start // 2 + within + steps.bound
    row = events.next_rows[steps.trailing, level[EARLIEST, size - 1]]
    while row < high and times[row] <= until:
        if (
            _may_lie(events, steps, level, begin, size, size, row)
            and 2 * (times[row] - base) - widths[row] < start + 2 * within
            and (not steps.windowed or 2 * (times[row] - bounds[UNTIL]) < widths[row])
            and not is_chosen(level, size, row)
            and _is_forbidden(events, steps, level, steps.trailing, row)
        ):
            return False
        row = events.next_rows[steps.trailing, row + 1]
    return True
