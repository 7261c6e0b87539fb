"""The chain kernel: `A -> B -> C`, one step after another, at constant cost per event.

A run takes for each step the first event after the last one taken. So the run of a later start
takes the same events as that of an earlier one from the step on where it catches up, and the event
of a step never goes back: each step reads the masks once, from front to back. The result is that of
the search kernel.
"""

from __future__ import annotations

from outpace.compiler.kernel import compiled_in_place, compiled_within
from outpace.engine.arrays import Numbers
from outpace.engine.kernels.search import (
    DONE,
    FULL,
    NO_TIME,
    PAUSED,
    WITHIN_FIRST,
    Buffers,
    Cursor,
    SearchRules,
    SegmentRows,
)


@compiled_in_place
def search_chain(
    steps: Numbers,
    past_last: bool,
    rules: SearchRules,
    rows: SegmentRows,
    taken: Numbers,
    cursor: Cursor,
    out: Buffers,
) -> int:
    """Match a chain of single steps from the cursor on; `steps` holds the bit of each.

    `taken` holds the event of each step between calls; all are -1 before the first.
    """
    times = rows.times
    length = len(steps)
    last = length - 1
    timed = rules.within_kind == WITHIN_FIRST
    # Starts and last steps only go on, and all others lie between them: that tells the work.
    pause_at = -1
    for segment in range(cursor.segment[0], len(rows.begin)):
        cursor.segment[0] = segment
        end = rows.visible[segment]
        within = rows.within[segment]
        start = next_event(rows.masks, steps[0], cursor.next_row[segment], end)
        if taken[0] < rows.begin[segment]:
            taken[:] = start
        if pause_at < 0:
            pause_at = start + taken[last] + rules.work // length
        while start < end and (rules.limit < 0 or cursor.number[segment] < rules.limit):
            if start + taken[last] > pause_at:
                cursor.next_row[segment] = start
                return PAUSED
            taken[0] = start
            for step in range(1, length):
                if taken[step] > taken[step - 1]:
                    break
                after = taken[step - 1] + 1
                taken[step] = next_event(rows.masks, steps[step], after, end)
            if taken[last] >= end:
                # Neither this start nor any later one gets to the end of the chain.
                break
            following = start + 1
            if not timed or times[taken[last]] - times[start] < within:
                matches, takes = out.counts[0], out.counts[1]
                if matches == len(out.start) or takes + length > len(out.rows):
                    cursor.next_row[segment] = start
                    out.counts[2] = length
                    return FULL
                cursor.number[segment] += 1
                out.segment[matches] = segment
                out.start[matches] = start
                out.number[matches] = cursor.number[segment]
                out.reach[matches] = taken[last] + 1
                out.passed[matches] = NO_TIME
                for step in range(length):
                    out.rows[takes + step] = taken[step]
                    out.positions[takes + step] = step
                out.ends[matches + 1] = takes + length
                out.counts[0] = matches + 1
                out.counts[1] = takes + length
                if past_last:
                    following = taken[last] + 1
            start = next_event(rows.masks, steps[0], following, end)
        full = rules.limit >= 0 and cursor.number[segment] >= rules.limit
        while timed and start < end and rows.floor[segment] - times[start] >= within:
            start = next_event(rows.masks, steps[0], start + 1, end)
        cursor.next_row[segment] = end if rows.ended or full else start
    cursor.segment[0] = len(rows.begin)
    return DONE


@compiled_within
def next_event(masks: Numbers, bit: int, row: int, end: int) -> int:
    """Return the first row from `row` on that has a bit; `end` where there is none."""
    while row < end and masks[row] & bit == 0:
        row += 1
    return min(row, end)
