"""Searches of many windows at once: every start is searched once, whatever the number of windows.

The search of a window is a chain of starts: from a start that fails to the next row, from a match
to where AFTER MATCH SKIP leads. Chains that have met stay together, so windows are kept in groups,
one for each start that a chain has come to. A group is a list of windows in the order of their
numbers, which is that of their ends; lists are merged from behind, where the windows are that have
not met the others yet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from outpace.compiler.kernel import compiled, compiled_in_place, compiled_within
from outpace.engine.arrays import Numbers
from outpace.engine.kernels.chain import next_event
from outpace.engine.kernels.search import (
    DONE,
    FULL,
    NO_TIME,
    PAUSED,
    REACHED_END,
    WITHIN_FIRST,
    Buffers,
    Cursor,
    SearchRules,
    SegmentRows,
)

#: No window, no group.
NONE = -1

#: What is counted: windows that find a match, and windows that left their groups.
LISTED, LEFT = 0, 1


class Slots(NamedTuple):
    """Windows in the order of their numbers: their neighbours in a group, and where each ends.

    `stop` is the row behind its last one, beyond all rows while it is open.
    """

    before: Numbers
    after: Numbers
    stop: Numbers


class Groups(NamedTuple):
    """Groups of windows whose chains have come to the same row, in lists that begin at `at`.

    All windows of a group had to look at the rows before `reach`, to get there. There is a place in
    `at` for each row of a segment and for its end, so segment s begins at its first row plus s.
    """

    at: Numbers
    first: Numbers
    last: Numbers
    reach: Numbers
    following: Numbers


class Outcomes(NamedTuple):
    """The results of the starts, by segment and start.

    A match goes on at `target`; `looked` has for each row that failed as a start the row behind the
    last that was looked at, or REACHED_END where more rows are needed; it is empty where neither
    can matter. From `limit` on nothing was searched.
    """

    begin: Numbers
    end: Numbers
    limit: Numbers
    segment: Numbers
    start: Numbers
    target: Numbers
    reach: Numbers
    looked: Numbers


@compiled_within
def merge_groups(
    firsts: Numbers, lasts: Numbers, before: Numbers, after: Numbers, group: int, other: int
) -> None:
    """Put the windows of another group into a group."""
    one, two = lasts[group], lasts[other]
    one_first, two_first = firsts[group], firsts[other]
    firsts[group] = min(one_first, two_first)
    lasts[group] = max(one, two)
    # The window that comes behind all that are left of both.
    behind = NONE
    while True:
        if one < two:
            one, two = two, one
            one_first, two_first = two_first, one_first
        if behind != NONE:
            after[one] = behind
            before[behind] = one
        if one_first > two:
            # What is left of one lies behind all that is left of the other.
            before[one_first] = two
            after[two] = one_first
            return
        behind = one
        one = before[one]


@compiled
def add_windows(
    partition: Numbers, first_slot: int, queue: Numbers, heads: Numbers, tails: Numbers
) -> None:
    """Put new windows into slots, each behind those of its partition."""
    for window in range(len(partition)):
        slot = first_slot + window
        tail = tails[partition[window]]
        if tail == NONE:
            heads[partition[window]] = slot
        else:
            queue[tail] = slot
        queue[slot] = NONE
        tails[partition[window]] = slot


@compiled
def end_windows(
    partition: Numbers, queue: Numbers, heads: Numbers, tails: Numbers, slots: Numbers
) -> None:
    """Find the slots of windows that end: in each partition those that came first."""
    for window in range(len(partition)):
        slot = heads[partition[window]]
        slots[window] = slot
        if slot != NONE:
            heads[partition[window]] = queue[slot]
            if queue[slot] == NONE:
                tails[partition[window]] = NONE


@compiled_in_place
def sweep_chain(
    steps: Numbers,
    past_last: bool,
    rules: SearchRules,
    rows: SegmentRows,
    wanted: Numbers,
    taken: Numbers,
    cursor: Cursor,
    out: Buffers,
) -> int:
    """Match a chain `A -> B -> C` from every start that the search of a window comes to.

    Rows that are `wanted` begin such searches, and rows that matches lead to become wanted. A start
    that waits for rows that have not come leaves all later ones waiting, too. `taken` is as in
    `search_chain`.
    """
    masks, times = rows.masks, rows.times
    length = len(steps)
    last = length - 1
    first_bit = steps[0]
    timed = rules.within_kind == WITHIN_FIRST
    # Starts and last steps only go on, and all others lie between them: that tells the work.
    pause_at = -1
    for segment in range(cursor.segment[0], len(rows.begin)):
        cursor.segment[0] = segment
        end = rows.visible[segment]
        start = cursor.next_row[segment]
        if taken[0] < rows.begin[segment]:
            taken[:] = start
        if pause_at < 0:
            pause_at = start + taken[last] + rules.work // length
        searching = False
        while True:
            while start < end:
                searching = searching or wanted[start] != 0
                if searching and masks[start] & first_bit:
                    break
                start += 1
            if start >= end:
                break
            if start + taken[last] > pause_at:
                cursor.next_row[segment] = start
                wanted[start] = 1
                return PAUSED
            taken[0] = start
            for step in range(1, length):
                if taken[step] > taken[step - 1]:
                    break
                after = taken[step - 1] + 1
                taken[step] = next_event(masks, steps[step], after, end)
            if taken[last] >= end:
                break
            if timed and times[taken[last]] - times[start] >= rows.within[segment]:
                start += 1
                continue
            matches, takes = out.counts[0], out.counts[1]
            if matches == len(out.start) or takes + length > len(out.rows):
                cursor.next_row[segment] = start
                wanted[start] = 1
                out.counts[2] = length
                return FULL
            out.segment[matches] = segment
            out.start[matches] = start
            out.reach[matches] = taken[last] + 1
            out.passed[matches] = NO_TIME
            for step in range(length):
                out.rows[takes + step] = taken[step]
                out.positions[takes + step] = step
            out.ends[matches + 1] = takes + length
            out.counts[0] = matches + 1
            out.counts[1] = takes + length
            following = start + 1
            if past_last:
                following = taken[last] + 1
                searching = False
                if following < end:
                    wanted[following] = 1
            out.number[matches] = following
            start += 1
        cursor.next_row[segment] = start
    cursor.segment[0] = len(rows.begin)
    return DONE


class ChainWalk(NamedTuple):
    """The matches of the windows, and where their chains stand.

    `found` has a column for each group that finds a match: the match, the row behind the last that
    its windows had to look at, and where they end in `windows`, in the order of their numbers.
    `left` has windows that ended, and the row from which on they have to search by themselves;
    `parked` the segment, the row, and the first and last window of each group that waits.
    """

    found: Numbers
    windows: Numbers
    left: Numbers
    parked: Numbers


@compiled
def walk_chains(
    outcomes: Outcomes, groups: Groups, slots: Slots, ahead: int, every: bool
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Lead all groups through the outcomes of their starts; return what `ChainWalk` has.

    Parameters
    ----------
    outcomes, groups, slots
        See there; groups and the neighbours of windows are changed.
    ahead
        Rows that NEXT looks ahead, which a window must hold, too.
    every
        Return a match for every window that finds it, rather than for the first.
    """
    found = np.empty((3, max(64, len(outcomes.start))), np.int64)
    windows = np.empty(max(64, len(outcomes.start)), np.int64)
    left = np.empty((2, 64), np.int64)
    parked = np.empty((4, 64), np.int64)
    counts = np.zeros(2, np.int64)
    # Where others are called with a constant, `int` gives it the type that it has later on.
    runs = parks = match = 0
    # Arrays are taken out of their tuples, as to count who holds them costs more than to read them.
    at, starts, segments = groups.at, outcomes.start, outcomes.segment
    firsts, lasts, reaches = groups.first, groups.last, groups.reach
    following, before, after, stops = groups.following, slots.before, slots.after, slots.stop
    targets, match_reach, looked = outcomes.target, outcomes.reach, outcomes.looked
    # Between starts nothing happens, as windows that end meanwhile can still go at the next one.
    leaps = ahead == 0 and len(looked) == 0
    for segment in range(len(outcomes.begin)):
        end, limit = outcomes.end[segment], outcomes.limit[segment]
        active = NONE
        row = outcomes.begin[segment] - 1
        while row < end:
            row += 1
            quiet = end
            if active != NONE:
                match, start = next_start(starts, segments, int(match), segment, row)
                quiet = min(start, limit) if leaps else row
            while row < quiet and at[row + segment] == NONE:
                row += 1
            here = at[row + segment]
            if here != NONE:
                at[row + segment] = NONE
                active = here if active == NONE else join_lists(following, int(active), here)
            if active == NONE:
                continue
            match, start = next_start(starts, segments, int(match), segment, row)
            matched = start == row
            # The row behind the last one that the search from this row looks at.
            needed = row + 1
            if matched:
                needed = match_reach[match]
            elif row >= limit:
                needed = REACHED_END
            elif len(looked):
                needed = max(needed, looked[row])
            waits = needed == REACHED_END
            if not matched and needed == row + 1 and ahead == 0:
                continue
            held = needed if waits else needed + ahead
            alone = following[active] == NONE
            if not alone or stops[firsts[active]] < held:
                active, left = let_go(
                    firsts, lasts, following, after, stops, active, held, row, left, counts
                )
                if active == NONE:
                    continue
                alone = following[active] == NONE
            if alone:
                reaches[active] = max(reaches[active], needed)
            elif matched or needed > row + 1:
                active = merge_reached(
                    firsts, lasts, reaches, following, before, after, active, needed
                )
            if waits:
                if parks == parked.shape[1]:
                    parked = grown(parked)
                parked[0, parks] = segment
                parked[1, parks] = row
                parked[2, parks] = firsts[active]
                parked[3, parks] = lasts[active]
                parks += 1
                active = NONE
                continue
            if not matched:
                continue
            group = active
            if not every and following[active] != NONE:
                group = first_to_find(firsts, reaches, following, active)
            while group != NONE:
                if runs == found.shape[1]:
                    found = grown(found)
                if every:
                    windows = list_windows(after, firsts[group], lasts[group], windows, counts)
                else:
                    # There is room, as each match has one window at most.
                    windows[runs] = firsts[group]
                    counts[LISTED] = runs + 1
                found[0, runs] = match
                found[1, runs] = reaches[group]
                found[2, runs] = counts[LISTED]
                runs += 1
                group = following[group] if every else NONE
            target = targets[match]
            if target > row + 1:
                place = target + segment
                there = at[place]
                at[place] = active if there == NONE else join_lists(following, there, int(active))
                active = NONE
    # A plain tuple: a named one is made by Python code, where a signal would end the process.
    return (
        found[:, :runs], windows[: counts[LISTED]], left[:, : counts[LEFT]],
        parked[:, :parks],
    )  # fmt: skip


@compiled_within
def next_start(
    starts: Numbers, segments: Numbers, match: int, segment: int, row: int
) -> tuple[int, int]:
    """Return the first match from a row of a segment on, and where it starts."""
    while match < len(starts) and (
        segments[match] < segment or (segments[match] == segment and starts[match] < row)
    ):
        match += 1
    if match < len(starts) and segments[match] == segment:
        return match, int(starts[match])
    return match, REACHED_END


@compiled
def let_go(
    firsts: Numbers,
    lasts: Numbers,
    following: Numbers,
    after: Numbers,
    stops: Numbers,
    active: int,
    held: int,
    row: int,
    left: Numbers,
    counts: Numbers,
) -> tuple[int, Numbers]:
    """Take windows that end before row `held` out of a list of groups; return what is left of it.

    They are added to `left`, with the row that they have come to.
    """
    group = active
    before = NONE
    while group != NONE:
        window = firsts[group]
        while window != NONE and stops[window] < held:
            if counts[LEFT] == left.shape[1]:
                left = grown(left)
            left[0, counts[LEFT]] = window
            left[1, counts[LEFT]] = row
            counts[LEFT] += 1
            window = after[window] if window != lasts[group] else NONE
        firsts[group] = window
        if window != NONE:
            before = group
        elif before == NONE:
            active = following[group]
        else:
            following[before] = following[group]
        group = following[group]
    return active, left


@compiled_within
def first_to_find(firsts: Numbers, reaches: Numbers, following: Numbers, active: int) -> int:
    """Return the group of a list that finds a match first."""
    best = group = active
    while group != NONE:
        nearer = reaches[group] < reaches[best]
        same = reaches[group] == reaches[best]
        if nearer or (same and firsts[group] < firsts[best]):
            best = group
        group = following[group]
    return best


@compiled
def list_windows(
    after: Numbers, window: int, last: int, windows: Numbers, counts: Numbers
) -> Numbers:
    """Add the windows of a group, from one of them up to another, to `windows`."""
    count = counts[LISTED]
    while True:
        # Mostly slots follow each other: then the next one is known before it is read.
        while window != last and count < len(windows) and after[window] == window + 1:
            windows[count] = window
            count += 1
            window += 1
        if count == len(windows):
            longer = np.empty(2 * count, np.int64)
            for place in range(count):
                longer[place] = windows[place]
            windows = longer
        windows[count] = window
        count += 1
        if window == last:
            counts[LISTED] = count
            return windows
        window = after[window]


@compiled
def grown(columns: Numbers) -> Numbers:
    """Return columns with twice the room.

    Values are copied one by one: a slice would compile the words of NumPy's errors along.
    """
    larger = np.empty((columns.shape[0], 2 * columns.shape[1]), np.int64)
    for column in range(columns.shape[0]):
        for place in range(columns.shape[1]):
            larger[column, place] = columns[column, place]
    return larger


@compiled_within
def join_lists(following: Numbers, one: int, other: int) -> int:
    """Put two lists of groups behind each other; the first is walked to its end."""
    if one == NONE:
        return other
    if other == NONE:
        return one
    end = one
    while following[end] != NONE:
        end = following[end]
    following[end] = other
    return one


@compiled_within
def merge_reached(
    firsts: Numbers,
    lasts: Numbers,
    reaches: Numbers,
    following: Numbers,
    before: Numbers,
    after: Numbers,
    active: int,
    reach: int,
) -> int:
    """Let the groups of a list look as far as `reach`; those that did not before become one."""
    kept = merged = NONE
    while active != NONE:
        next_group = following[active]
        if reaches[active] > reach:
            following[active] = kept
            kept = active
        elif merged == NONE:
            merged = active
            reaches[active] = reach
        else:
            merge_groups(firsts, lasts, before, after, int(merged), active)
        active = next_group
    if merged == NONE:
        return kept
    following[merged] = kept
    return merged


@compiled_in_place
def link_groups(places: Numbers, at: Numbers, following: Numbers) -> None:
    """Put each group into the list of its place."""
    for group in range(len(places) - 1, -1, -1):
        following[group] = at[places[group]]
        at[places[group]] = group


@compiled
def enter_chains(
    outcomes: Outcomes, rows: Numbers, stops: Numbers, reach: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """Lead the search of each segment from its row on, up to a row that is not before its stop.

    `rows` and `reach`, the row behind the last that had to be looked at, are changed. A search that
    waits for more rows stays where it is. Returns the matches found, the segment of each, and what
    its `reach` was then.
    """
    found = np.empty((3, 64), np.int64)
    founds = 0
    match = 0
    for segment in range(len(rows)):
        row = rows[segment]
        while row < stops[segment]:
            match, start = next_start(outcomes.start, outcomes.segment, int(match), segment, row)
            if start == row:
                reach[segment] = max(reach[segment], outcomes.reach[match])
                if founds == found.shape[1]:
                    found = grown(found)
                found[0, founds] = match
                found[1, founds] = segment
                found[2, founds] = reach[segment]
                founds += 1
                row = outcomes.target[match]
                continue
            if row >= outcomes.limit[segment]:
                break
            if len(outcomes.looked):
                if outcomes.looked[row] == REACHED_END:
                    break
                reach[segment] = max(reach[segment], outcomes.looked[row])
            row += 1
        rows[segment] = row
    return found[0, :founds], found[1, :founds], found[2, :founds]
