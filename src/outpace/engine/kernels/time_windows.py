"""Telling windows of time apart in a stream without keys.

The open windows have consecutive numbers: those that open are added at one end, those that close
leave at the other. An event that does neither costs a comparison, and no event looks at the windows
that are open. Only what data decides is written: which windows, and at which events.
"""

from __future__ import annotations

import numpy as np

from outpace.compiler.kernel import compiled_when_worth
from outpace.engine.arrays import Integers

# What is known of the stream: the ordinal behind the last event, 0 before the first one; the number
# of the next window, and how many windows before it are open.
SEEN, NEXT, COUNT = range(3)

# Lines of the windows that closed: the ordinal behind the last event, and the arrival of the event
# that closed them.
STOP, CLOSED_AT = range(2)

# Lines of the leaps in the numbers: how many windows were opened before, and the number then.
AFTER, NUMBER = range(2)

# Where a loop stands: the row to go on at, and how much was written so far.
ROW, OPENED, CLOSED, LEAPS = range(4)


@compiled_when_worth
def split_times(
    ordinal: Integers,
    arrival: Integers,
    times: Integers,
    size: int,
    slide: int,
    offset: int,
    state: Integers,
    opened: Integers,
    closed: Integers,
    leaps: Integers,
    fill: Integers,
) -> None:
    """Open and close windows `[offset + number * slide, ... + size)` over ascending times.

    Of windows that open, the ordinal of the first event is written. Windows open and close in the
    order of their numbers, which follow each other but for `leaps`, as windows without events do
    not exist. It stops where there is no room left for what it writes, and goes on when it is
    called again with larger arrays.
    """
    row, opened_count, closed_count, leap_count = fill
    position, number, count = state
    # The start of the next window, and the end of the oldest one that is open, or of that one.
    start = offset + number * slide
    end = start - count * slide + size
    while row < len(times):
        awaited = min(start, end) if count else start
        # Where an index cannot be negative, no time is lost to find that out.
        while position and row < len(times) and times[np.uint64(row)] < awaited:
            row += 1
        if row:
            position = ordinal[row - 1] + 1
        if row == len(times):
            break
        time = times[row]
        while count and end <= time and closed_count < closed.shape[1]:
            closed[STOP, closed_count] = position
            closed[CLOSED_AT, closed_count] = arrival[row]
            closed_count += 1
            count -= 1
            end += slide
        if count and end <= time:
            break
        if position == 0 or start + size <= time:
            if leap_count == leaps.shape[1]:
                break
            number = (time - offset - size) // slide + 1
            start = offset + number * slide
            end = start + size
            leaps[AFTER, leap_count] = opened_count
            leaps[NUMBER, leap_count] = number
            leap_count += 1
        position = ordinal[row] + 1
        while start <= time and opened_count < len(opened):
            opened[opened_count] = ordinal[row]
            opened_count += 1
            count += 1
            number += 1
            start += slide
        if start <= time:
            break
        row += 1
    state[SEEN], state[NEXT], state[COUNT] = position, number, count
    fill[ROW], fill[OPENED], fill[CLOSED], fill[LEAPS] = row, opened_count, closed_count, leap_count
