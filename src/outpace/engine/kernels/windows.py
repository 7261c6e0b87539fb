"""Telling windows apart, event by event: one loop for each kind, over one table of partitions.

The open windows of a partition have consecutive numbers, so all that is kept of each is what cannot
be computed: its first event and that event's time, in a queue by partition. Opening and closing
touch the ends of that queue, so an event costs the same however many windows are open. Each loop
writes windows in the order in which they open and close.

Layout: partition p has line p + 1 of `table`; line 0 is both ends of a ring of the partitions that
wait for time to pass. Line 0 of `pool` holds the first free line and how many were ever used; line
0 stands for "none" in all links, so arrays of zeros are a valid beginning.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from outpace.engine.kernels.compiled import compiled_when_worth

Integers = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]

# Columns of the table of partitions: events seen, the number of the next window, the ends of the
# queue of open windows and their count, the time of the last event, neighbours in the ring.
EVENTS, NUMBER, HEAD, TAIL, OPEN_COUNT, LAST, BEFORE, AFTER = range(8)
TABLE_COLUMNS = 8

# Columns of the pool of open windows; of line 0 the free list and the number of lines used.
FIRST, START, NEXT = range(3)
POOL_COLUMNS = 3
USED = 0

# Lines of the arrays of windows that are returned.
PARTITION, WINDOW, FROM, STOP, START_TIME, END_TIME, CLOSED_AT = range(7)
WINDOW_LINES = 7

#: The `stop` of a window that is still open.
STILL_OPEN = np.iinfo(np.int64).max

#: Windows that there is room for at first.
_ROOM = 64


@register_jitable
def with_room(windows: Matrix, used: int) -> Matrix:
    """Return the windows, or a larger copy if no further one fits."""
    if used < windows.shape[1]:
        return windows
    larger = np.empty((windows.shape[0], 2 * windows.shape[1]), np.int64)
    larger[:, :used] = windows
    return larger


@register_jitable
def queued(table: Matrix, pool: Matrix, line: int, first: int, start: int) -> Matrix:
    """Put a window at the end of a partition's queue; return the pool, which may have grown."""
    node = pool[0, NEXT]
    if node:
        pool[0, NEXT] = pool[node, NEXT]
    else:
        pool[0, USED] += 1
        node = pool[0, USED]
        if node == len(pool):
            larger = np.zeros((2 * len(pool), POOL_COLUMNS), np.int64)
            larger[: len(pool)] = pool
            pool = larger
    pool[node, FIRST] = first
    pool[node, START] = start
    pool[node, NEXT] = 0
    if table[line, HEAD]:
        pool[table[line, TAIL], NEXT] = node
    else:
        table[line, HEAD] = node
    table[line, TAIL] = node
    return pool


@register_jitable
def dequeued(table: Matrix, pool: Matrix, line: int) -> tuple[int, int]:
    """Take the oldest window from a partition's queue; return its first event and the time."""
    node = table[line, HEAD]
    table[line, HEAD] = pool[node, NEXT]
    pool[node, NEXT] = pool[0, NEXT]
    pool[0, NEXT] = node
    return pool[node, FIRST], pool[node, START]


@register_jitable
def write_opened(
    windows: Matrix, place: int, line: int, number: int, first: int, start: int, end: int
) -> None:
    """Write a window that opens."""
    windows[PARTITION, place] = line - 1
    windows[WINDOW, place] = number
    windows[FROM, place] = first
    windows[STOP, place] = STILL_OPEN
    windows[START_TIME, place] = start
    windows[END_TIME, place] = end
    windows[CLOSED_AT, place] = -1


@register_jitable
def close_oldest(
    windows: Matrix, place: int, table: Matrix, pool: Matrix, line: int, closed_at: int
) -> None:
    """Close the oldest window of a partition behind the last event seen, and write it."""
    first, start = dequeued(table, pool, line)
    windows[PARTITION, place] = line - 1
    windows[WINDOW, place] = table[line, NUMBER] - table[line, OPEN_COUNT]
    windows[FROM, place] = first
    windows[STOP, place] = table[line, EVENTS]
    windows[START_TIME, place] = start
    windows[END_TIME, place] = table[line, LAST]
    windows[CLOSED_AT, place] = closed_at
    table[line, OPEN_COUNT] -= 1


@register_jitable
def link_last(table: Matrix, line: int) -> None:
    """Put a partition at the end of the ring."""
    last = table[0, BEFORE]
    table[last, AFTER] = line
    table[line, BEFORE] = last
    table[line, AFTER] = 0
    table[0, BEFORE] = line


@register_jitable
def unlink(table: Matrix, line: int) -> None:
    """Take a partition out of the ring."""
    table[table[line, BEFORE], AFTER] = table[line, AFTER]
    table[table[line, AFTER], BEFORE] = table[line, BEFORE]


@compiled_when_worth
def split_by_count(
    partition: Integers,
    ordinal: Integers,
    arrival: Integers,
    times: Integers,
    size: int,
    slide: int,
    offset: int,
    lowest: int,
    table: Matrix,
    pool: Matrix,
) -> tuple[Matrix, Matrix, Matrix]:
    """Open and close windows of `size` events; `lowest` is the first window that has any.

    Without times nothing is queued: what is left is computed from the number.
    """
    timed = len(times) > 0
    opened = np.empty((WINDOW_LINES, _ROOM), np.int64)
    closed = np.empty((WINDOW_LINES, _ROOM), np.int64)
    opened_count = closed_count = 0
    for row in range(len(partition)):
        line = partition[row] + 1
        event = ordinal[row]
        time = times[row] if timed else 0
        if table[line, EVENTS] == 0:
            table[line, NUMBER] = lowest
        table[line, EVENTS] = event + 1
        table[line, LAST] = time
        while offset + table[line, NUMBER] * slide <= event:
            opened = with_room(opened, opened_count)
            write_opened(opened, opened_count, line, table[line, NUMBER], event, time, 0)
            opened_count += 1
            if timed:
                pool = queued(table, pool, line, event, time)
            table[line, NUMBER] += 1
            table[line, OPEN_COUNT] += 1
        while table[line, OPEN_COUNT]:
            number = table[line, NUMBER] - table[line, OPEN_COUNT]
            if offset + number * slide + size > event + 1:
                break
            closed = with_room(closed, closed_count)
            if timed:
                close_oldest(closed, closed_count, table, pool, line, arrival[row])
            else:
                first = max(0, offset + number * slide)
                write_opened(closed, closed_count, line, number, first, 0, 0)
                closed[STOP, closed_count] = event + 1
                closed[CLOSED_AT, closed_count] = arrival[row]
                table[line, OPEN_COUNT] -= 1
            closed_count += 1
    return opened[:, :opened_count], closed[:, :closed_count], pool


@compiled_when_worth
def split_by_time(
    partition: Integers,
    ordinal: Integers,
    arrival: Integers,
    times: Integers,
    watermark: int,
    arrived: int,
    size: int,
    slide: int,
    offset: int,
    table: Matrix,
    pool: Matrix,
) -> tuple[Matrix, Matrix, Matrix]:
    """Open and close windows of event time; after the events time goes on to the watermark.

    The ring holds the partitions with open windows. Time is the same for all, so all of them have
    the same oldest window: each that is looked at when a window ends has one to close.
    """
    opened = np.empty((WINDOW_LINES, _ROOM), np.int64)
    closed = np.empty((WINDOW_LINES, _ROOM), np.int64)
    opened_count = closed_count = 0
    for row in range(len(partition) + 1):
        passes = row == len(partition)
        time = watermark if passes else times[row]
        closed_at = arrived if passes else arrival[row]
        line = table[0, AFTER]
        while line:
            oldest = table[line, NUMBER] - table[line, OPEN_COUNT]
            start = offset + oldest * slide
            if start + size > time:
                break
            while line:
                following = table[line, AFTER]
                closed = with_room(closed, closed_count)
                close_oldest(closed, closed_count, table, pool, line, closed_at)
                closed[START_TIME, closed_count] = start
                closed[END_TIME, closed_count] = start + size
                closed_count += 1
                if not table[line, OPEN_COUNT]:
                    unlink(table, line)
                line = following
            line = table[0, AFTER]
        if passes:
            break
        line = partition[row] + 1
        event = ordinal[row]
        if table[line, EVENTS] == 0 or offset + table[line, NUMBER] * slide <= time:
            low = (time - offset - size) // slide + 1
            if table[line, EVENTS] == 0 or table[line, NUMBER] < low:
                table[line, NUMBER] = low
            if not table[line, OPEN_COUNT] and offset + table[line, NUMBER] * slide <= time:
                link_last(table, line)
            while offset + table[line, NUMBER] * slide <= time:
                start = offset + table[line, NUMBER] * slide
                opened = with_room(opened, opened_count)
                write_opened(
                    opened, opened_count, line, table[line, NUMBER], event, start, start + size
                )
                opened_count += 1
                pool = queued(table, pool, line, event, start)
                table[line, NUMBER] += 1
                table[line, OPEN_COUNT] += 1
        table[line, EVENTS] = event + 1
    return opened[:, :opened_count], closed[:, :closed_count], pool


@compiled_when_worth
def split_by_session(
    partition: Integers,
    ordinal: Integers,
    arrival: Integers,
    times: Integers,
    watermark: int,
    arrived: int,
    gap: int,
    table: Matrix,
    pool: Matrix,
) -> tuple[Matrix, Matrix, Matrix]:
    """Open and close windows that last until `gap` passes without an event of their partition.

    The ring holds the partitions with an open window, the one that waits longest first.
    """
    opened = np.empty((WINDOW_LINES, _ROOM), np.int64)
    closed = np.empty((WINDOW_LINES, _ROOM), np.int64)
    opened_count = closed_count = 0
    for row in range(len(partition) + 1):
        passes = row == len(partition)
        time = watermark if passes else times[row]
        closed_at = arrived if passes else arrival[row]
        line = table[0, AFTER]
        while line and table[line, LAST] + gap <= time:
            closed = with_room(closed, closed_count)
            close_oldest(closed, closed_count, table, pool, line, closed_at)
            closed_count += 1
            unlink(table, line)
            line = table[0, AFTER]
        if passes:
            break
        line = partition[row] + 1
        event = ordinal[row]
        if table[line, OPEN_COUNT]:
            unlink(table, line)
        else:
            opened = with_room(opened, opened_count)
            write_opened(opened, opened_count, line, table[line, NUMBER], event, time, 0)
            opened_count += 1
            pool = queued(table, pool, line, event, time)
            table[line, NUMBER] += 1
            table[line, OPEN_COUNT] = 1
        link_last(table, line)
        table[line, EVENTS] = event + 1
        table[line, LAST] = time
    return opened[:, :opened_count], closed[:, :closed_count], pool


@compiled_when_worth
def split_by_bits(
    partition: Integers,
    ordinal: Integers,
    arrival: Integers,
    times: Integers,
    opens: Bits,
    closes: Bits,
    inside: bool,
    table: Matrix,
    pool: Matrix,
) -> tuple[Matrix, Matrix, Matrix]:
    """Open and close windows by bits: an event that closes does so for all that are open.

    `inside` says whether the event that closes a window is its last one or comes after it.
    """
    timed = len(times) > 0
    opened = np.empty((WINDOW_LINES, _ROOM), np.int64)
    closed = np.empty((WINDOW_LINES, _ROOM), np.int64)
    opened_count = closed_count = 0
    for row in range(len(partition)):
        line = partition[row] + 1
        event = ordinal[row]
        time = times[row] if timed else 0
        if inside:
            table[line, EVENTS] = event + 1
            table[line, LAST] = time
        if closes[row]:
            while table[line, OPEN_COUNT]:
                closed = with_room(closed, closed_count)
                close_oldest(closed, closed_count, table, pool, line, arrival[row])
                closed_count += 1
        table[line, EVENTS] = event + 1
        table[line, LAST] = time
        if opens[row]:
            opened = with_room(opened, opened_count)
            write_opened(opened, opened_count, line, table[line, NUMBER], event, time, 0)
            opened_count += 1
            pool = queued(table, pool, line, event, time)
            table[line, NUMBER] += 1
            table[line, OPEN_COUNT] += 1
    return opened[:, :opened_count], closed[:, :closed_count], pool


@compiled_when_worth
def close_rest(table: Matrix, pool: Matrix, lines: int, arrived: int) -> Matrix:
    """Close all windows of the first `lines` lines at the end of the input."""
    closed = np.empty((WINDOW_LINES, _ROOM), np.int64)
    closed_count = 0
    for line in range(1, lines):
        while table[line, OPEN_COUNT]:
            closed = with_room(closed, closed_count)
            close_oldest(closed, closed_count, table, pool, line, arrived)
            closed_count += 1
    return closed[:, :closed_count]


@compiled_when_worth
def count_events(partition: npt.NDArray[Any], counts: Integers, ordinal: Integers) -> None:
    """Fill in the number of each event in its partition; `counts` are those seen before."""
    for row in range(len(partition)):
        number = partition[row]
        ordinal[row] = counts[number]
        counts[number] += 1
