"""Telling windows apart, event by event: one loop for each kind, over one table of partitions.

The open windows of a partition have consecutive numbers, so all that is kept of each is what cannot
be computed: its first event and that event's time, in a queue by partition. Opening and closing
touch the ends of that queue, so an event costs the same however many windows are open. Each loop
writes windows in the order in which they open and close.

A loop stops where there is no room left for what it writes, and goes on when it is called again
with larger arrays: arrays that change inside of a loop would cost more than all that it does.

Layout: partition p has line p + 1 of `table`; line 0 is both ends of a ring of the partitions that
wait for time to pass. Line 0 of `pool` holds the first free line and how many were ever used; line
0 stands for "none" in all links, so arrays of zeros are a valid beginning.
"""

from __future__ import annotations

import numpy as np

from outpace.compiler.kernel import compiled_when_worth, compiled_within
from outpace.engine.arrays import Booleans, Integers

# Columns of the table of partitions: events seen, the number of the next window, the ends of the
# queue of open windows and their count, the time of the last event, neighbours in the ring.
EVENTS, NUMBER, HEAD, TAIL, OPEN_COUNT, LAST, BEFORE, AFTER = range(8)
TABLE_COLUMNS = 8
# Of line 0, how many partitions are in the ring.
RING = EVENTS

# Columns of the pool of open windows; of line 0 the free list and the number of lines used.
FIRST, START, NEXT = range(3)
POOL_COLUMNS = 3
USED = 0

# Lines of the arrays of windows that are returned: the first ones of windows that open, all of
# windows that close. What follows from the numbers of a kind of windows is not written.
PARTITION, WINDOW, FROM, START_TIME, STOP, END_TIME, CLOSED_AT = range(7)
OPENED_LINES = 4
CLOSED_LINES = 7

# What a loop returns through `fill`: the row to go on at, and the windows written so far.
ROW, OPENED, CLOSED = range(3)


@compiled_within
def has_room(pool: Integers) -> bool:
    """Say whether a further window can be queued."""
    return bool(pool[0, NEXT] != 0 or pool[0, USED] + 1 < len(pool))


@compiled_within
def enqueue(table: Integers, pool: Integers, line: int, first: int, start: int) -> None:
    """Put a window at the end of a partition's queue."""
    node = pool[0, NEXT]
    if node:
        pool[0, NEXT] = pool[node, NEXT]
    else:
        pool[0, USED] += 1
        node = pool[0, USED]
    pool[node, FIRST] = first
    pool[node, START] = start
    pool[node, NEXT] = 0
    if table[line, HEAD]:
        pool[table[line, TAIL], NEXT] = node
    else:
        table[line, HEAD] = node
    table[line, TAIL] = node


@compiled_within
def dequeue(table: Integers, pool: Integers, line: int) -> int:
    """Take the oldest window from a partition's queue; return its line, which is free now."""
    node = table[line, HEAD]
    table[line, HEAD] = pool[node, NEXT]
    pool[node, NEXT] = pool[0, NEXT]
    pool[0, NEXT] = node
    return int(node)


@compiled_within
def open_next(windows: Integers, place: int, table: Integers, line: int) -> None:
    """Open the next window of a partition, and write which it is."""
    windows[PARTITION, place] = line - 1
    windows[WINDOW, place] = table[line, NUMBER]
    table[line, NUMBER] += 1
    table[line, OPEN_COUNT] += 1


@compiled_within
def close_oldest(windows: Integers, place: int, table: Integers, line: int, closed_at: int) -> None:
    """Close the oldest window of a partition behind the last event seen, and write that."""
    windows[PARTITION, place] = line - 1
    windows[WINDOW, place] = table[line, NUMBER] - table[line, OPEN_COUNT]
    windows[STOP, place] = table[line, EVENTS]
    windows[CLOSED_AT, place] = closed_at
    table[line, OPEN_COUNT] -= 1


@compiled_within
def open_queued(
    windows: Integers,
    place: int,
    table: Integers,
    pool: Integers,
    line: int,
    first: int,
    start: int,
) -> None:
    """Open the next window of a partition, write and queue where it starts."""
    enqueue(table, pool, line, first, start)
    open_next(windows, place, table, line)
    windows[FROM, place] = first
    windows[START_TIME, place] = start


@compiled_within
def close_queued(
    windows: Integers, place: int, table: Integers, pool: Integers, line: int, closed_at: int
) -> None:
    """Close the oldest window of a partition, with the times of its first and last event."""
    node = dequeue(table, pool, line)
    windows[FROM, place] = pool[node, FIRST]
    windows[START_TIME, place] = pool[node, START]
    windows[END_TIME, place] = table[line, LAST]
    close_oldest(windows, place, table, line, closed_at)


@compiled_within
def link_last(table: Integers, line: int) -> None:
    """Put a partition at the end of the ring."""
    last = table[0, BEFORE]
    table[last, AFTER] = line
    table[line, BEFORE] = last
    table[line, AFTER] = 0
    table[0, BEFORE] = line
    table[0, RING] += 1


@compiled_within
def unlink(table: Integers, line: int) -> None:
    """Take a partition out of the ring."""
    table[table[line, BEFORE], AFTER] = table[line, AFTER]
    table[table[line, AFTER], BEFORE] = table[line, BEFORE]
    table[0, RING] -= 1


@compiled_within
def stop_at(fill: Integers, row: int, opened: int, closed: int) -> None:
    """Note where a loop stopped."""
    fill[ROW] = row
    fill[OPENED] = opened
    fill[CLOSED] = closed


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
    table: Integers,
    pool: Integers,
    opened: Integers,
    closed: Integers,
    fill: Integers,
) -> None:
    """Open and close windows of `size` events; `lowest` is the first window that has any.

    Without times nothing is queued: all else follows from the numbers, as first events always do.
    """
    timed = len(times) > 0
    opened_count, closed_count = fill[OPENED], fill[CLOSED]
    for row in range(fill[ROW], len(partition)):
        line = partition[row] + 1
        event = ordinal[row]
        if table[line, EVENTS] == 0:
            table[line, NUMBER] = lowest
        table[line, EVENTS] = event + 1
        if timed:
            table[line, LAST] = times[row]
        while offset + table[line, NUMBER] * slide <= event:
            if opened_count == opened.shape[1] or (timed and not has_room(pool)):
                stop_at(fill, row, opened_count, closed_count)
                return
            if timed:
                open_queued(opened, opened_count, table, pool, line, event, times[row])
            else:
                open_next(opened, opened_count, table, line)
            opened_count += 1
        while table[line, OPEN_COUNT]:
            first = offset + (table[line, NUMBER] - table[line, OPEN_COUNT]) * slide
            if first + size > event + 1:
                break
            if closed_count == closed.shape[1]:
                stop_at(fill, row, opened_count, closed_count)
                return
            if timed:
                close_queued(closed, closed_count, table, pool, line, arrival[row])
            else:
                close_oldest(closed, closed_count, table, line, arrival[row])
            closed_count += 1
    stop_at(fill, len(partition), opened_count, closed_count)


@compiled_when_worth
def split_by_time(
    partition: Integers,
    ordinal: Integers,
    arrival: Integers,
    times: Integers,
    size: int,
    slide: int,
    offset: int,
    table: Integers,
    pool: Integers,
    opened: Integers,
    closed: Integers,
    fill: Integers,
) -> None:
    """Open and close windows of event time; a last time without an event only passes.

    The ring holds the partitions with open windows. Time is the same for all, so all of them have
    the same oldest window: each that is looked at when a window ends has one to close. Bounds
    follow from the numbers.
    """
    opened_count, closed_count = fill[OPENED], fill[CLOSED]
    for row in range(fill[ROW], len(times)):
        time = times[row]
        line = table[0, AFTER]
        while line:
            oldest = table[line, NUMBER] - table[line, OPEN_COUNT]
            if offset + oldest * slide + size > time:
                break
            if closed_count + table[0, RING] > closed.shape[1]:
                stop_at(fill, row, opened_count, closed_count)
                return
            while line:
                following = table[line, AFTER]
                closed[FROM, closed_count] = pool[dequeue(table, pool, line), FIRST]
                close_oldest(closed, closed_count, table, line, arrival[row])
                closed_count += 1
                if not table[line, OPEN_COUNT]:
                    unlink(table, line)
                line = following
            line = table[0, AFTER]
        if row == len(partition):
            break
        line = partition[row] + 1
        event = ordinal[row]
        new = table[line, EVENTS] == 0
        table[line, EVENTS] = event + 1
        if new or offset + table[line, NUMBER] * slide <= time:
            low = (time - offset - size) // slide + 1
            if new or table[line, NUMBER] < low:
                table[line, NUMBER] = low
            while offset + table[line, NUMBER] * slide <= time:
                if opened_count == opened.shape[1] or not has_room(pool):
                    stop_at(fill, row, opened_count, closed_count)
                    return
                if not table[line, OPEN_COUNT]:
                    link_last(table, line)
                enqueue(table, pool, line, event, 0)
                open_next(opened, opened_count, table, line)
                opened[FROM, opened_count] = event
                opened_count += 1
    stop_at(fill, len(times), opened_count, closed_count)


@compiled_when_worth
def split_by_session(
    partition: Integers,
    ordinal: Integers,
    arrival: Integers,
    times: Integers,
    gap: int,
    table: Integers,
    pool: Integers,
    opened: Integers,
    closed: Integers,
    fill: Integers,
) -> None:
    """Open and close windows that last until `gap` passes without an event of their partition.

    The ring holds the partitions with an open window, the one that waits longest first.
    """
    opened_count, closed_count = fill[OPENED], fill[CLOSED]
    for row in range(fill[ROW], len(times)):
        time = times[row]
        line = table[0, AFTER]
        while line and time - gap >= table[line, LAST]:
            if closed_count == closed.shape[1]:
                stop_at(fill, row, opened_count, closed_count)
                return
            close_queued(closed, closed_count, table, pool, line, arrival[row])
            closed_count += 1
            unlink(table, line)
            line = table[0, AFTER]
        if row == len(partition):
            break
        line = partition[row] + 1
        event = ordinal[row]
        if not table[line, OPEN_COUNT]:
            if opened_count == opened.shape[1] or not has_room(pool):
                stop_at(fill, row, opened_count, closed_count)
                return
            open_queued(opened, opened_count, table, pool, line, event, time)
            opened_count += 1
            link_last(table, line)
        elif table[line, AFTER]:
            unlink(table, line)
            link_last(table, line)
        table[line, EVENTS] = event + 1
        table[line, LAST] = time
    stop_at(fill, len(times), opened_count, closed_count)


@compiled_when_worth
def split_by_bits(
    partition: Integers,
    ordinal: Integers,
    arrival: Integers,
    times: Integers,
    opens: Booleans,
    closes: Booleans,
    inside: bool,
    table: Integers,
    pool: Integers,
    opened: Integers,
    closed: Integers,
    fill: Integers,
) -> None:
    """Open and close windows by bits: an event that closes does so for all that are open.

    `inside` says whether the event that closes a window is its last one or comes after it.
    """
    timed = len(times) > 0
    opened_count, closed_count = fill[OPENED], fill[CLOSED]
    for row in range(fill[ROW], len(partition)):
        line = partition[row] + 1
        event = ordinal[row]
        time = times[row] if timed else 0
        if inside:
            table[line, EVENTS] = event + 1
            table[line, LAST] = time
        if opens[row] and (opened_count == opened.shape[1] or not has_room(pool)):
            stop_at(fill, row, opened_count, closed_count)
            return
        while closes[row] and table[line, OPEN_COUNT]:
            if closed_count == closed.shape[1]:
                stop_at(fill, row, opened_count, closed_count)
                return
            close_queued(closed, closed_count, table, pool, line, arrival[row])
            closed_count += 1
        table[line, EVENTS] = event + 1
        table[line, LAST] = time
        if opens[row]:
            open_queued(opened, opened_count, table, pool, line, event, time)
            opened_count += 1
    stop_at(fill, len(partition), opened_count, closed_count)


@compiled_when_worth
def close_rest(
    lines: int, arrived: int, table: Integers, pool: Integers, closed: Integers, fill: Integers
) -> None:
    """Close all queued windows of the first `lines` lines at the end of the input."""
    closed_count = fill[CLOSED]
    for line in range(max(1, fill[ROW]), lines):
        while table[line, OPEN_COUNT]:
            if closed_count == closed.shape[1]:
                stop_at(fill, line, 0, closed_count)
                return
            close_queued(closed, closed_count, table, pool, line, arrived)
            closed_count += 1
    stop_at(fill, lines, 0, closed_count)


@compiled_when_worth
def is_consistent(table: Integers, pool: Integers, queued: bool, in_ring: bool) -> bool:
    """Say whether queues, free lines and the ring are what other loops rely on.

    Links lie inside of both arrays. Each line of the pool is in one queue or free, a queue is as
    long as its partition has open windows, and the ring has the partitions that have any.
    """
    used = np.zeros(len(pool), np.bool_)
    if pool[0, USED] != len(pool) - 1 or table[0, HEAD] or table[0, OPEN_COUNT]:
        return False
    places = 0
    for line in range(len(table)):
        # Line 0 has no queue, and its place is taken by the free lines.
        node = table[line, HEAD] if line else pool[0, NEXT]
        count = 0
        last = 0
        while node:
            if used[node]:
                return False
            used[node] = True
            last = node
            count += 1
            node = pool[node, NEXT]
        places += count
        if (
            line
            and queued
            and (table[line, OPEN_COUNT] != count or (count and table[line, TAIL] != last))
        ):
            return False
        if line and not queued and (count or table[line, OPEN_COUNT] < 0):
            return False
    waiting = 0
    before = 0
    line = table[0, AFTER]
    while line and waiting < len(table):
        if table[line, BEFORE] != before or not table[line, OPEN_COUNT]:
            return False
        waiting += 1
        before = line
        line = table[line, AFTER]
    if line or table[0, BEFORE] != before or table[0, RING] != waiting:
        return False
    open_lines = 0
    for line in range(1, len(table)):
        open_lines += table[line, OPEN_COUNT] > 0
    return places == len(pool) - 1 and waiting == (open_lines if in_ring else 0)


@compiled_when_worth
def in_order_of_closing(closed_at: Integers, number: Integers, partition: Integers) -> bool:
    """Say whether windows are sorted by the event that closed them, number and partition."""
    for place in range(1, len(closed_at)):
        later = closed_at[place] - closed_at[place - 1]
        if later == 0:
            later = number[place] - number[place - 1]
            if later == 0:
                later = partition[place] - partition[place - 1]
        if later < 0:
            return False
    return True
