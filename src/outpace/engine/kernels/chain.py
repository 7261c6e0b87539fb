"""The chain kernel: `A -> B -> C`, one step after another, at constant cost per event.

Starts that wait for the same step all go on at the same event, and a start never overtakes an
earlier one. So the starts of a partition form a queue in which the steps fall from front to back,
and an event moves a whole stretch of the queue on. The result is that of the search kernel.
"""

from __future__ import annotations

import numpy as np

from outpace.engine.kernels.compiled import compiled
from outpace.engine.kernels.search import (
    DONE,
    FULL,
    NO_TIME,
    WITHIN_FIRST,
    Buffers,
    Cursor,
    Integers,
    Rows,
    Rules,
)


@compiled
def search_chain(
    steps: Integers,
    past_last: bool,
    rules: Rules,
    rows: Rows,
    cursor: Cursor,
    out: Buffers,
    starts: Integers,
    taken: Integers,
) -> int:
    """Match a chain of single steps from the cursor on; `steps` holds the bit of each.

    `starts` has room for the starts of one partition and `taken` for the rows that each took.
    """
    masks, times = rows.masks, rows.times
    length = len(steps)
    # Starts from first_of[k] up to first_of[k - 1] have taken k events; [length] is the front.
    first_of = np.zeros(length + 1, np.int64)
    everything = 0
    for step in range(length):
        everything |= steps[step]
    for segment in range(cursor.segment[0], len(rows.begin)):
        cursor.segment[0] = segment
        begin, end = cursor.next_row[segment], rows.visible[segment]
        first_of[:] = 0
        queue_end = 0
        event = begin
        while event < end:
            bits = int(masks[event]) & everything
            if bits == 0:
                event += 1
                continue
            # Late steps first, so that an event serves a run only once.
            for step in range(length - 1, 0, -1):
                if bits & steps[step] == 0 or first_of[step] == first_of[step - 1]:
                    continue
                low, high = first_of[step], first_of[step - 1]
                for start in range(low, high):
                    taken[start * length + step] = event
                first_of[step] = high
            low, high = first_of[length], first_of[length - 1]
            if low < high:
                finished = False
                for start in range(low, high):
                    if (
                        rules.within_kind == WITHIN_FIRST
                        and times[event] - times[starts[start]] >= rules.within
                    ):
                        continue
                    if rules.limit >= 0 and cursor.number[segment] >= rules.limit:
                        break
                    matches, takes = out.counts[0], out.counts[1]
                    if matches == len(out.start) or takes + length > len(out.rows):
                        cursor.next_row[segment] = starts[start]
                        out.counts[2] = length
                        return FULL
                    cursor.number[segment] += 1
                    out.segment[matches] = segment
                    out.start[matches] = starts[start]
                    out.number[matches] = cursor.number[segment]
                    out.reach[matches] = event + 1
                    out.passed[matches] = NO_TIME
                    for step in range(length):
                        out.rows[takes + step] = taken[start * length + step]
                        out.positions[takes + step] = step
                    out.ends[matches + 1] = takes + length
                    out.counts[0] = matches + 1
                    out.counts[1] = takes + length
                    if past_last:
                        finished = True
                        break
                full = rules.limit >= 0 and cursor.number[segment] >= rules.limit
                first_of[length] = high
                if finished or full or high == queue_end:
                    first_of[:] = 0
                    queue_end = 0
                if full:
                    break
                if finished:
                    event += 1
                    continue
            if bits & steps[0]:
                starts[queue_end] = event
                taken[queue_end * length] = event
                queue_end += 1
                first_of[0] = queue_end
            event += 1
        cursor.next_row[segment] = end
        if not rows.ended:
            for start in range(first_of[length], queue_end):
                late = (
                    rules.within_kind == WITHIN_FIRST
                    and rows.floor[segment] - times[starts[start]] >= rules.within
                )
                if not late:
                    cursor.next_row[segment] = starts[start]
                    break
    cursor.segment[0] = len(rows.begin)
    return DONE
