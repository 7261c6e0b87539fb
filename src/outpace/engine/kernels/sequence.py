"""Events of a source in the order of their sequence numbers, and how long gaps may stay.

An event with the number that the source is to send next is let in; one with a higher number is held
until those before it are there, or its time is up; one with a lower number is late, and so is one
whose number is held already. When the time of an event is up, all that are held before it go with
it, and those that follow without a gap.

    held: 4 5 7   expected: 3      3 comes      -> 3 4 5 let in, expected: 6
                                   5's time up  -> 4 5   let in, expected: 6

How long an event may be held follows how often events come and how long gaps took to close, within
the bounds that the user sets (Rajendran 2019, equations 3.1 to 3.11). The paper leaves some of it
open. It was read so that delays as they usually are do not make events late:

- A gap counts once, as long as it was open. The paper has the time of each event that was held, and
  also that it counts when the buffer is cleared; those held last would make the average too small.
- The deviation is that from the average before, as in the paper's first one (3.5, 3.10) and in TCP,
  whose timeout it follows (RFC 6298). The first is half of the first value, as there.

And it deviates in this. In the paper only gaps count that were closed in time, so longer ones are
never learnt: here a late event counts as if it had been waited for, up to the longest wait. Until
the first gap is over nobody knows how long one takes, and the longest wait holds. Events that
arrive at one moment, as those of a micro-batch do, say nothing of the time between.

Numbers of a type with less than 64 bits begin anew where it ends (RFC 1982): of the numbers that an
event may mean, the one nearest to the number to come counts. So one that lies back by more than
half of the range goes on, and one that is ahead by more is late. Numbers of 64 bits come to an end:
no number follows the greatest one, so whatever comes behind it is late.

The number to come is at first the one with which sources are said to begin, or else that of the
event that arrives first: then nobody knows what was sent before it, and that is late.

The state of the source lies in two arrays, whole numbers and fractions, at the places named here.
Times are by the clock of the host, in microseconds.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from outpace.compiler.kernel import compiled_when_worth, compiled_within
from outpace.engine.arrays import Bytes, Floats, Integers

#: What becomes of an event: it is held, let in, late, or let in as its time was up, or that of one
#: that it waited with.
HELD, ADMITTED, LATE, TIMED = range(4)

#: The number to come, the arrival of the last event with such a one, when the time of a held event
#: is up at the earliest, when the first event came that was held at the last gap that stayed, and
#: the greatest number of all once it was let in: then none is to come.
EXPECTED, ARRIVED, DUE, PASSED, LAST = range(5)
WHOLE: Final = 5

#: Average and mean deviation of the time between arrivals, and of the time that events are held.
BETWEEN, BETWEEN_OFF, HOLDING, HOLDING_OFF = range(4)
FRACTIONS: Final = 4

#: How much of the old averages stays, of times between arrivals and of those held; how many
#: deviations are added to them; the shortest and the longest time that an event may be held; how
#: many numbers there are before they begin anew, or 0.
ALPHA, BETA, DEVIATIONS, SHORTEST, LONGEST, RANGE = range(6)

NEVER: Final = int(np.iinfo(np.int64).max)
NOTHING: Final = int(np.iinfo(np.int64).min)
GREATEST: Final = int(np.iinfo(np.int64).max)


@compiled_when_worth
def order_sequences(
    bounds: Integers,
    numbers: Integers,
    arrivals: Integers,
    due: Integers,
    held: Integers,
    now: Integers,
    settings: Floats,
    whole: Integers,
    fractions: Floats,
    fates: Bytes,
    order: Integers,
    entered: Integers,
) -> None:
    """Take the events of sources as they arrive, then let the clock come to a time.

    Parameters
    ----------
    bounds
        Where the events of each source begin, and where the last ones end.
    numbers, arrivals
        Of events that were held, by number, then of those that come, as they arrive.
    due
        When their time is up, for those that were held; it is filled for those that are, and for
        late ones with how many were let in before they came.
    held
        How many were held, of each source.
    now
        Time by the clock at the end, for each source; it is not before the last arrival.
    settings
        See above.
    whole, fractions
        What is known of each source, which is changed.
    fates, order, entered
        Are filled: what becomes of each event; those of each source that are let in, in turn, and
        behind them those that stay held, by number; how many of each are let in.
    """
    links = np.empty((2, len(numbers) + 1), np.int64)
    own = numbers.copy()
    for source in range(len(bounds) - 1):
        low, high = bounds[source], bounds[source + 1]
        links[:, : high - low + 1] = -1
        entered[source] = _order_one(
            links[0, : high - low + 1],
            links[1, : high - low + 1],
            own[low:high],
            arrivals[low:high],
            due[low:high],
            held[source],
            now[source],
            settings,
            whole[source],
            fractions[source],
            fates[low:high],
            order[low:high],
        )
        order[low:high] += low


@compiled_within
def _order_one(
    after: Any,
    before: Any,
    numbers: Any,
    arrivals: Any,
    due: Any,
    held: int,
    now: int,
    settings: Any,
    whole: Any,
    fractions: Any,
    fates: Any,
    order: Any,
) -> int:
    """Take the events of one source; return how many are let in."""
    count, entered, wrap = len(numbers), 0, int(settings[RANGE])
    # The last place of both arrays links the first and the last event that is held.
    for row in range(held):
        fates[row] = HELD
        if wrap:
            numbers[row] = whole[EXPECTED] + (numbers[row] - whole[EXPECTED]) % wrap
        _hold(row, numbers, after, before)
    for row in range(held, count):
        clock = arrivals[row]
        if clock >= whole[DUE]:
            entered = _pass_time(
                clock, numbers, arrivals, due, after, before, whole, fates, order, entered
            )
        if whole[EXPECTED] == NOTHING:
            whole[EXPECTED] = numbers[row]
        if wrap:
            # The nearest of those that it may be, above or below.
            off = (numbers[row] - whole[EXPECTED] + wrap // 2) % wrap - wrap // 2
            numbers[row] = whole[EXPECTED] + off
        if numbers[row] > whole[EXPECTED]:
            if _hold(row, numbers, after, before):
                fates[row] = HELD
                due[row] = clock + patience(whole, fractions, settings)
                whole[DUE] = min(whole[DUE], due[row])
            else:
                fates[row], due[row] = LATE, entered
            continue
        if numbers[row] < whole[EXPECTED] or whole[LAST] != NOTHING:
            fates[row], due[row] = LATE, entered
            if whole[PASSED] != NOTHING:
                missed = min(float(clock - whole[PASSED]), settings[LONGEST])
                _smooth(missed, settings[BETA], fractions, HOLDING)
            continue
        if whole[ARRIVED] != NOTHING:
            _smooth(clock - whole[ARRIVED], settings[ALPHA], fractions, BETWEEN)
        whole[ARRIVED] = clock
        fates[row] = ADMITTED
        order[entered] = row
        entered += 1
        _expect_behind(numbers[row], whole)
        first, longest = after[count], 0
        while first >= 0 and numbers[first] == whole[EXPECTED]:
            longest = max(longest, clock - arrivals[first])
            order[entered] = first
            entered += 1
            first = _let_in(first, numbers, after, before, whole, fates)
        _smooth(longest, settings[BETA], fractions, HOLDING)
    if now >= whole[DUE]:
        entered = _pass_time(
            now, numbers, arrivals, due, after, before, whole, fates, order, entered
        )
    behind, row = entered, after[count]
    whole[DUE] = NEVER
    while row >= 0:
        whole[DUE] = min(whole[DUE], due[row])
        order[behind] = row
        behind += 1
        row = after[row]
    return entered


@compiled_within
def _pass_time(
    clock: int,
    numbers: Any,
    arrivals: Any,
    due: Any,
    after: Any,
    before: Any,
    whole: Any,
    fates: Any,
    order: Any,
    entered: int,
) -> int:
    """Let in events whose time is up, with those before them; return how many are in.

    Times that are up one after the other are so by themselves, whenever one looks: for each event
    that goes, `due` becomes the time when it does.
    """
    ends = len(numbers)
    through, up, row = NOTHING, NEVER, before[ends]
    while row >= 0:
        if due[row] <= clock:
            through = max(through, numbers[row])
            up = min(up, due[row])
            due[row] = up
        elif through != NOTHING:
            due[row] = up
        row = before[row]
    row, up = after[ends], NOTHING
    while row >= 0 and (numbers[row] <= through or numbers[row] == whole[EXPECTED]):
        if numbers[row] != whole[EXPECTED] and due[row] > up:
            whole[PASSED], up = arrivals[row], due[row]
        whole[PASSED] = min(whole[PASSED], arrivals[row])
        order[entered] = row
        entered += 1
        behind = _let_in(row, numbers, after, before, whole, fates)
        fates[row] = TIMED
        row = behind
    whole[DUE] = NEVER
    while row >= 0:
        whole[DUE] = min(whole[DUE], due[row])
        row = after[row]
    return entered


@compiled_within
def _hold(row: int, numbers: Any, after: Any, before: Any) -> bool:
    """Hold an event among the others, by number; say whether there was none like it."""
    ends = len(numbers)
    low = before[ends]
    while low >= 0 and numbers[low] > numbers[row]:
        low = before[low]
    if low >= 0 and numbers[low] == numbers[row]:
        return False
    # Below the first and above the last one is the place that links both ends.
    left = low if low >= 0 else ends
    right = after[left]
    before[row], after[row] = low, right
    after[left] = row
    before[right if right >= 0 else ends] = row
    return True


@compiled_within
def _let_in(row: int, numbers: Any, after: Any, before: Any, whole: Any, fates: Any) -> int:
    """Let in the first event that is held; return the one behind it, or -1."""
    ends = len(numbers)
    fates[row] = ADMITTED
    _expect_behind(numbers[row], whole)
    first = after[row]
    after[ends] = first
    before[first if first >= 0 else ends] = -1
    return int(first)


@compiled_within
def _expect_behind(number: int, whole: Any) -> None:
    """Expect the number behind that of an event that was let in, if there is one."""
    if number == GREATEST:
        whole[EXPECTED], whole[LAST] = number, number
    else:
        whole[EXPECTED] = number + 1


@compiled_within
def patience(whole: Any, fractions: Any, settings: Any) -> int:
    """Return how long an event is held: equation 3.11; the longest until the first gap is over."""
    holding, unknown = 0.0, math.isnan(fractions[HOLDING])
    if math.isnan(fractions[BETWEEN]) or (unknown and whole[PASSED] == NOTHING):
        return int(settings[LONGEST])
    between = fractions[BETWEEN] + settings[DEVIATIONS] * fractions[BETWEEN_OFF]
    if not unknown:
        holding = fractions[HOLDING] + settings[DEVIATIONS] * fractions[HOLDING_OFF]
    return int(min(settings[LONGEST], max(settings[SHORTEST], between, holding)))


@compiled_within
def _smooth(value: float, kept: float, fractions: Any, place: int) -> None:
    """Let a value count in a mean deviation and in its average: equations 3.2 to 3.10."""
    if value <= 0.0:
        return  # What comes at once says nothing of time.
    if math.isnan(fractions[place]):
        fractions[place], fractions[place + 1] = value, 0.5 * value
        return
    off = abs(value - fractions[place])
    fractions[place + 1] = kept * fractions[place + 1] + (1.0 - kept) * off
    fractions[place] = kept * fractions[place] + (1.0 - kept) * value
