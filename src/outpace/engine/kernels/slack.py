"""How far time has come, event by event: the greatest time, the slack K, and the watermark.

One loop for all rules that choose K. They agree in this: an event before the watermark is late; one
too far ahead of all others is invalid and changes nothing; any other may raise the greatest time;
the watermark stays K behind that and never goes back. They differ in what an event does to K:

    FIXED           K stays.
    GREATEST_DELAY  K is the greatest delay: when time goes on, that of each event behind time which
                    came since it last did.
    QUANTILE        K is a quantile of the delays of all events.
    DISTANCE        K is the average delay of the events behind time, times a factor.
    COVERAGE        K is a part α of the greatest delay; a controller moves α so that windows have
                    as many of their events in time as an aggregate over them needs.

Delays are kept in bins: one for each up to 64, then 64 for each power of two, so a quantile is at
most 1/64 too large. When a million are counted, all count half: delays of long ago are forgotten.

The memory of a clock lies in arrays, at the places that are named here. A delay that does not fit
into 64 bits with a sign counts as the greatest that does.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from outpace.compiler.kernel import compiled_when_worth, compiled_within
from outpace.engine.arrays import Bytes, Floats, Integers

#: The rules.
FIXED, GREATEST_DELAY, QUANTILE, DISTANCE, COVERAGE = range(5)

#: What becomes of an event.
IN_TIME, LATE, INVALID = range(3)

#: Time: the greatest one, the watermark, and K; the least of the events behind since time last went
#: on, and the greatest delay.
GREATEST, WATERMARK, SLACK, PENDING, DELAY = range(5)
#: The bin that has the quantile; how many delays are in lower ones, and in all.
BIN, BELOW, TOTAL = range(5, 8)
#: Windows by number: the first one measured, the first without a result, the one behind the last;
#: the least integer before there is any.
FIRST, OPEN, END = range(8, 11)
#: The stretch of time whose distance is measured, and events behind in it and in the one before.
CELL, NOW, BEFORE = range(11, 14)
NUMBERS: Final = 14

#: α, and the error that the controller saw last; sums of delays in the two stretches of time.
ALPHA, ERROR, SUM_NOW, SUM_BEFORE = range(4)
FRACTIONS: Final = 4

#: Settings that are whole numbers: the bounds of K, how far ahead an event may be (or -1), the
#: length of a window or stretch of time, and the aggregate.
AT_LEAST, AT_MOST, AHEAD, LENGTH, AGGREGATE = range(5)
#: Settings that are fractions: which quantile; error and how often it may be exceeded, as a
#: quantile of the normal distribution; the gains of the controller; bounds of the factor.
SHARE, BOUND, NORMAL, PROPORTIONAL, DERIVATIVE, LOW, HIGH = range(7)

#: What a window has that is measured: its events, those in time, the sum and the sum of squares of
#: their values, and the greatest time when its result came out.
EVENTS, COUNTED, SUM, SQUARES, RESULT = range(5)
FIELDS: Final = 5
#: So many windows are measured at the same time; beyond that the oldest counts as it is.
WINDOWS: Final = 1024

#: Aggregates by their models of errors.
COUNT_OF, SUM_OF, AVERAGE_OF, EXTREME_OF = range(4)

#: Values have a size within these bounds, or are 0, so that no square is infinite or lost.
SMALLEST, LARGEST = 1e-100, 1e100
#: Where the square of a sum is such a part of the sum of squares, rounding alone makes it not 0.
_CANCELLED: Final = 1e-30

_STEPS: Final = 64
BINS: Final = 59 * _STEPS
#: So many delays are counted before all of them count half.
_REMEMBERED: Final = 1 << 20

_LAST: Final = int(np.iinfo(np.int64).max)
_NEVER: Final = int(np.iinfo(np.int64).min)


@compiled_when_worth
def follow_times(
    times: Integers,
    values: Floats,
    fates: Bytes,
    met: Integers,
    at_once: bool,
    rule: int,
    bounds: Integers,
    settings: Floats,
    numbers: Integers,
    fractions: Floats,
    delays: Integers,
    windows: Floats,
) -> None:
    """Take the times of events, one after the other, and say what becomes of each.

    Parameters
    ----------
    times, values
        The times in the order of arrival, and what an aggregate reads, within the bounds of values;
        nothing where none does.
    fates, met
        Are filled: the latter with the watermark that each event met.
    at_once
        Whether all of them arrive at the same time, so that none makes another one late.
    rule, bounds, settings
        How K is chosen.
    numbers, fractions, delays, windows
        What the clock remembers, which is changed.
    """
    greatest, watermark, slack = numbers[GREATEST], numbers[WATERMARK], numbers[SLACK]
    pending, longest = numbers[PENDING], numbers[DELAY]
    least, most, allowed = bounds[AT_LEAST], bounds[AT_MOST], bounds[AHEAD]
    first = watermark
    for row in range(len(times)):
        time = times[row]
        raised = time > greatest
        if raised and allowed >= 0 and greatest != _NEVER and _later(greatest, time) > allowed:
            fates[row] = INVALID
            continue
        met[row] = first if at_once else watermark
        late = time < met[row]
        fates[row] = LATE if late else IN_TIME
        delay = 0 if raised else _later(time, greatest)
        if delay:
            pending = min(pending, time)
        elif raised:
            # What lay ahead of a clock that one source moves may do so still.
            if pending < time:
                longest = max(longest, _later(pending, time))
            pending = _LAST
            greatest = time
        if rule == GREATEST_DELAY:
            slack = longest
        elif rule == QUANTILE:
            _count_delay(delay, settings[SHARE], numbers, delays)
            slack = _largest_in(numbers[BIN])
        elif rule == DISTANCE:
            slack = _distance(greatest, delay, bounds, settings, numbers, fractions)
        elif rule == COVERAGE:
            if delay:
                _count_delay(delay, settings[SHARE], numbers, delays)
            value = values[row] if len(values) else 1.0
            _count_in_window(time, value, late, bounds[LENGTH], numbers, windows)
            _measure(greatest, watermark, bounds, settings, numbers, fractions, windows)
            slack = int(fractions[ALPHA] * longest)
        slack = min(max(slack, least), most)
        behind = greatest - slack if greatest >= _NEVER + slack else _NEVER
        watermark = max(watermark, behind)
    numbers[GREATEST], numbers[WATERMARK], numbers[SLACK] = greatest, watermark, slack
    numbers[PENDING], numbers[DELAY] = pending, longest


@compiled_within
def _later(low: int, high: int) -> int:
    """Return how much later a time is than another that is not above it."""
    if low < 0 and high > _LAST + low:
        return _LAST
    return high - low


@compiled_within
def _count_delay(delay: int, share: float, numbers: Any, delays: Any) -> None:
    """Count a delay, and move to the bin that has the quantile."""
    place = delay
    if delay >= _STEPS:
        power = 0
        while delay >> power >= 2 * _STEPS:
            power += 1
        place = _STEPS * (power + 1) + (delay >> power) - _STEPS
    delays[place] += 1
    numbers[TOTAL] += 1
    if place < numbers[BIN]:
        numbers[BELOW] += 1
    if numbers[TOTAL] == _REMEMBERED:
        _forget(numbers, delays)
    wanted = share * numbers[TOTAL]
    at, below = numbers[BIN], numbers[BELOW]
    while at and below >= wanted:
        at -= 1
        below -= delays[at]
    while below + delays[at] < wanted:
        below += delays[at]
        at += 1
    numbers[BIN], numbers[BELOW] = at, below


@compiled_within
def _forget(numbers: Any, delays: Any) -> None:
    """Let all delays count half."""
    total, below = 0, 0
    for place in range(len(delays)):
        if place == numbers[BIN]:
            below = total
        delays[place] >>= 1
        total += delays[place]
    numbers[TOTAL], numbers[BELOW] = total, below


@compiled_within
def _largest_in(place: int) -> int:
    """Return the largest delay in a bin."""
    if place < _STEPS:
        return place
    power = place // _STEPS - 1
    return ((place % _STEPS + _STEPS + 1) << power) - 1


@compiled_within
def _distance(
    greatest: int, delay: int, bounds: Any, settings: Any, numbers: Any, fractions: Any
) -> int:
    """Count a delay, and return the slack: the average of late events, times the factor.

    It is that of the stretch of time so far and of the one before. The factor of a stretch is
    drawn by its number, so whoever runs the events again draws the same.
    """
    cell = greatest // bounds[LENGTH]
    if cell != numbers[CELL]:
        follows = cell == numbers[CELL] + 1
        numbers[BEFORE] = numbers[NOW] if follows else 0
        fractions[SUM_BEFORE] = fractions[SUM_NOW] if follows else 0.0
        numbers[CELL], numbers[NOW], fractions[SUM_NOW] = cell, 0, 0.0
    if delay:
        numbers[NOW] += 1
        fractions[SUM_NOW] += delay
    count = numbers[NOW] + numbers[BEFORE]
    if not count:
        return 0
    average = (fractions[SUM_NOW] + fractions[SUM_BEFORE]) / count
    drawn = ((cell % 1_000_003) * 7_919 % 1_000_003) / 1_000_003
    factor = settings[LOW] + (settings[HIGH] - settings[LOW]) * drawn
    slack: int = math.ceil(min(factor * average, 2.0**62))
    return slack


@compiled_within
def _count_in_window(
    time: int, value: float, late: bool, length: int, numbers: Any, windows: Any
) -> None:
    """Count an event in its window, unless that is no longer measured."""
    number = time // length
    if numbers[END] == _NEVER:
        numbers[FIRST] = numbers[OPEN] = numbers[END] = number
    if number < numbers[FIRST]:
        return
    if number >= numbers[END]:
        numbers[FIRST] = max(numbers[FIRST], number + 1 - WINDOWS)
        numbers[OPEN] = max(numbers[OPEN], numbers[FIRST])
        for new in range(max(numbers[END], numbers[FIRST]), number + 1):
            windows[new % WINDOWS] = 0.0
        numbers[END] = number + 1
    window = windows[number % WINDOWS]
    window[EVENTS] += 1.0
    if not late:
        window[COUNTED] += 1.0
    window[SUM] += value
    window[SQUARES] += value * value


@compiled_within
def _measure(
    greatest: int,
    watermark: int,
    bounds: Any,
    settings: Any,
    numbers: Any,
    fractions: Any,
    windows: Any,
) -> None:
    """Let the controller see the windows whose late events have mostly come.

    Those of a window are awaited, from its result on, for as long as the quantile of delays says.
    """
    while numbers[OPEN] < numbers[END] and watermark // bounds[LENGTH] > numbers[OPEN]:
        windows[numbers[OPEN] % WINDOWS, RESULT] = greatest
        numbers[OPEN] += 1
    wait = _largest_in(numbers[BIN])
    while numbers[FIRST] < numbers[OPEN]:
        window = windows[numbers[FIRST] % WINDOWS]
        if greatest - window[RESULT] < wait:
            break
        numbers[FIRST] += 1
        if not window[EVENTS]:
            continue
        wanted = _needed_coverage(window, bounds[AGGREGATE], settings)
        error = wanted - window[COUNTED] / window[EVENTS]
        change = settings[PROPORTIONAL] * error
        change += settings[DERIVATIVE] * (error - fractions[ERROR])
        fractions[ALPHA] = min(max(fractions[ALPHA] + change, 0.0), 1.0)
        fractions[ERROR] = error


@compiled_within
def _needed_coverage(window: Any, aggregate: int, settings: Any) -> float:
    """Return the share of a window's events that keeps the error of its aggregate small enough.

    The events in time are taken for a sample, each in it with the same probability p. Then a sum is
    off by 1 - p on average, with a standard deviation of sqrt(p (1 - p) squares) / sum; a count is
    a sum of ones; an average is off by nothing on average, with a standard deviation of
    sqrt((1 - p) / (p n)) times that of the values. An extreme is right if its event is in time.
    """
    bound, normal = settings[BOUND], settings[NORMAL]
    if aggregate == EXTREME_OF:
        return float(normal)
    events, total, squares = window[EVENTS], window[SUM], window[SQUARES]
    if aggregate == AVERAGE_OF:
        mean = total / events
        spread = max(squares / events - mean * mean, 0.0)
        if spread == 0.0:
            return 0.0
        ratio = bound * mean / normal
        return float(1.0 / (1.0 + events * ratio * ratio / spread))
    if aggregate == COUNT_OF:
        total = squares = events
    if total * total <= _CANCELLED * squares:
        return 1.0
    wide = normal * normal * squares / (total * total)
    twice = 2.0 * bound + wide
    missing = twice - math.sqrt(max(twice * twice - 4.0 * (1.0 + wide) * bound * bound, 0.0))
    return float(1.0 - missing / (2.0 * (1.0 + wide)))
