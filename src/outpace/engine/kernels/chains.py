"""Searches of many windows at once: every start is searched once, whatever the number of windows.

The search of a window is a chain of starts: from a start that fails to the next row, from a match
to where AFTER MATCH SKIP leads. Chains that have met stay together, so windows are kept in groups,
one for each start that a chain has come to. A group is a skew heap of windows, the one that ends
first on top; groups that meet are merged in logarithmic time, however large they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from outpace.engine.kernels.chain import next_event
from outpace.engine.kernels.compiled import compiled
from outpace.engine.kernels.search import (
    DONE,
    FULL,
    NO_TIME,
    REACHED_END,
    WITHIN_FIRST,
    Buffers,
    Cursor,
    Rows,
    Rules,
)

Integers = npt.NDArray[Any]

#: No window, no group.
NONE = -1

#: So many numbers are sorted by insertion.
_FEW = 48

#: What is counted: matches found, and windows that left their groups.
FOUND, LEFT = 0, 1


class Heaps(NamedTuple):
    """Windows by slot, in the order of their numbers: the children of each, and where it ends.

    `stop` is the row behind its last one, beyond all rows while it is open.
    """

    left: Integers
    right: Integers
    stop: Integers


class Groups(NamedTuple):
    """Groups of windows whose chains have come to the same row, in lists that begin at `at`.

    All windows of a group had to look at the rows before `reach`, to get there. There is a place in
    `at` for each row of a segment and for its end, so segment s begins at its first row plus s.
    """

    at: Integers
    root: Integers
    reach: Integers
    following: Integers


class Outcomes(NamedTuple):
    """What the starts came to, by segment and start.

    A match goes on at `target`; `looked` has for each row that failed as a start the row behind the
    last that was looked at, or REACHED_END where more rows are needed; it is empty where neither
    can matter. From `limit` on nothing was searched.
    """

    begin: Integers
    end: Integers
    limit: Integers
    segment: Integers
    start: Integers
    target: Integers
    reach: Integers
    looked: Integers


@compiled
def merge_heaps(heaps: Heaps, one: int, other: int) -> int:
    """Merge two heaps and return the window on top."""
    if one == NONE:
        return other
    if other == NONE:
        return one
    left, right = heaps.left, heaps.right
    top, rest = min(one, other), max(one, other)
    at = top
    while True:
        below = right[at]
        right[at] = left[at]
        if below == NONE:
            left[at] = rest
            return top
        left[at] = min(below, rest)
        rest = max(below, rest)
        at = left[at]


@compiled
def pop_heap(heaps: Heaps, top: int) -> int:
    """Take the window on top away and return the next one."""
    following = merge_heaps(heaps, heaps.left[top], heaps.right[top])
    heaps.left[top] = NONE
    heaps.right[top] = NONE
    return following


@compiled
def add_windows(
    partition: Integers, first_slot: int, queue: Integers, heads: Integers, tails: Integers
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
    partition: Integers, queue: Integers, heads: Integers, tails: Integers, slots: Integers
) -> None:
    """Find the slots of windows that end: in each partition those that came first."""
    for window in range(len(partition)):
        slot = heads[partition[window]]
        slots[window] = slot
        if slot != NONE:
            heads[partition[window]] = queue[slot]
            if queue[slot] == NONE:
                tails[partition[window]] = NONE


@compiled
def sweep_chain(
    steps: Integers,
    past_last: bool,
    rules: Rules,
    rows: Rows,
    wanted: Integers,
    cursor: Cursor,
    out: Buffers,
) -> int:
    """Match a chain `A -> B -> C` from every start that the search of a window comes to.

    Rows that are `wanted` begin such searches, and rows that matches lead to become wanted. A start
    that waits for rows that have not come leaves all later ones waiting, too.
    """
    masks, times = rows.masks, rows.times
    length = len(steps)
    last = length - 1
    first_bit = steps[0]
    timed = rules.within_kind == WITHIN_FIRST
    taken = np.empty(length, np.int64)
    for segment in range(cursor.segment[0], len(rows.begin)):
        cursor.segment[0] = segment
        end = rows.visible[segment]
        start = cursor.next_row[segment]
        taken[:] = start
        searching = False
        while True:
            while start < end:
                searching = searching or wanted[start] != 0
                if searching and masks[start] & first_bit:
                    break
                start += 1
            if start >= end:
                break
            taken[0] = start
            for step in range(1, length):
                if taken[step] > taken[step - 1]:
                    break
                after = taken[step - 1] + 1
                taken[step] = next_event(masks, steps[step], after, end)
            if taken[last] >= end:
                break
            if timed and times[taken[last]] - times[start] >= rules.within:
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


class Walked(NamedTuple):
    """What the windows found, and where their chains stand.

    `found` has rows of match, window and reach, the row behind the last that the window had to look
    at; `left` has windows that ended and the row from which on they have to search by themselves;
    `parked` has segment, row and top window of each group that waits.
    """

    found: Integers
    left: Integers
    parked: Integers


@compiled
def walk_chains(
    outcomes: Outcomes, groups: Groups, heaps: Heaps, ahead: int, every: bool
) -> Walked:
    """Lead all groups through the outcomes of their starts.

    Parameters
    ----------
    outcomes, groups, heaps
        See there; groups and heaps are changed.
    ahead
        Rows that NEXT looks ahead, which a window must hold, too.
    every
        Return a match for every window that finds it, rather than for the first.
    """
    found = np.empty((max(64, len(outcomes.start)), 3), np.int64)
    left = np.empty((64, 2), np.int64)
    parked = np.empty((64, 3), np.int64)
    counts = np.zeros(2, np.int64)
    members = np.empty(len(heaps.stop) if every else 0, np.int64)
    parks = 0
    match = 0
    for segment in range(len(outcomes.begin)):
        limit = outcomes.limit[segment]
        active = NONE
        for row in range(outcomes.begin[segment], outcomes.end[segment] + 1):
            here = groups.at[row + segment]
            if here != NONE:
                groups.at[row + segment] = NONE
                active = join_lists(groups.following, active, here)
            matched = (
                match < len(outcomes.start)
                and outcomes.start[match] == row
                and outcomes.segment[match] == segment
            )
            match += matched
            if active == NONE:
                continue
            # The row behind the last one that the search from this row looks at.
            needed = row + 1
            if matched:
                needed = outcomes.reach[match - 1]
            elif row >= limit:
                needed = REACHED_END
            elif len(outcomes.looked):
                needed = max(needed, outcomes.looked[row])
            waits = needed == REACHED_END
            if needed == row + 1 and not (matched or ahead):
                # No start, and windows that end meanwhile can still go at the next one.
                continue
            held = needed if waits else needed + ahead
            active, left = let_go(groups, heaps, active, held, row, left, counts)
            if active == NONE:
                continue
            if waits:
                if parks == len(parked):
                    parked = grown(parked)
                parked[parks, 0] = segment
                parked[parks, 1] = row
                parked[parks, 2] = merge_list(groups, heaps, active)
                parks += 1
                active = NONE
                continue
            if matched or needed > row + 1:
                active = merge_reached(groups, heaps, active, needed)
            if not matched:
                continue
            found = add_found(groups, heaps, active, match - 1, every, members, found, counts)
            target = outcomes.target[match - 1]
            if target > row + 1:
                at = target + segment
                groups.at[at] = join_lists(groups.following, groups.at[at], active)
                active = NONE
    return Walked(found[: counts[FOUND]], left[: counts[LEFT]], parked[:parks])


@compiled
def let_go(
    groups: Groups, heaps: Heaps, first: int, held: int, row: int, left: Integers, counts: Integers
) -> tuple[int, Integers]:
    """Take windows that end before row `held` out of a list of groups; return what is left of it.

    They are added to `left`, with the row that they have come to.
    """
    group = first
    before = NONE
    while group != NONE:
        top = groups.root[group]
        while top != NONE and heaps.stop[top] < held:
            if counts[LEFT] == len(left):
                left = grown(left)
            left[counts[LEFT], 0] = top
            left[counts[LEFT], 1] = row
            counts[LEFT] += 1
            top = pop_heap(heaps, top)
        groups.root[group] = top
        following = groups.following[group]
        if top != NONE:
            before = group
        elif before == NONE:
            first = following
        else:
            groups.following[before] = following
        group = following
    return first, left


@compiled
def add_found(
    groups: Groups,
    heaps: Heaps,
    first: int,
    match: int,
    every: bool,
    members: Integers,
    found: Integers,
    counts: Integers,
) -> Integers:
    """Add a match for every window of a list of groups, or for the one that finds it first."""
    best = group = first
    while group != NONE:
        if every:
            found = add_members(
                heaps, groups.root[group], match, groups.reach[group], members, found, counts
            )
        nearer = groups.reach[group] < groups.reach[best]
        same = groups.reach[group] == groups.reach[best]
        if nearer or (same and groups.root[group] < groups.root[best]):
            best = group
        group = groups.following[group]
    if not every:
        if counts[FOUND] == len(found):
            found = grown(found)
        found[counts[FOUND], 0] = match
        found[counts[FOUND], 1] = groups.root[best]
        found[counts[FOUND], 2] = groups.reach[best]
        counts[FOUND] += 1
    return found


@compiled
def add_members(
    heaps: Heaps,
    top: int,
    match: int,
    reach: int,
    members: Integers,
    found: Integers,
    counts: Integers,
) -> Integers:
    """Add a match for every window of a heap, in the order of their numbers."""
    filled = 1
    members[0] = top
    at = 0
    while at < filled:
        window = members[at]
        for below in (heaps.left[window], heaps.right[window]):
            if below != NONE:
                members[filled] = below
                filled += 1
        at += 1
    sort_numbers(members, filled)
    while counts[FOUND] + filled > len(found):
        found = grown(found)
    for member in range(filled):
        place = counts[FOUND] + member
        found[place, 0] = match
        found[place, 1] = members[member]
        found[place, 2] = reach
    counts[FOUND] += filled
    return found


@compiled
def sort_numbers(numbers: Integers, size: int) -> None:
    """Sort the first numbers of an array; few, and nearly in order, are the common case."""
    if size > _FEW:
        numbers[:size] = np.sort(numbers[:size])
        return
    for place in range(1, size):
        number = numbers[place]
        before = place - 1
        while before >= 0 and numbers[before] > number:
            numbers[before + 1] = numbers[before]
            before -= 1
        numbers[before + 1] = number


@compiled
def grown(table: Integers) -> Integers:
    """Return a table with twice the room."""
    larger = np.empty((2 * len(table), table.shape[1]), np.int64)
    larger[: len(table)] = table
    return larger


@compiled
def join_lists(following: Integers, one: int, other: int) -> int:
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


@compiled
def merge_list(groups: Groups, heaps: Heaps, first: int) -> int:
    """Merge all groups of a list and return the window on top."""
    top = NONE
    while first != NONE:
        top = merge_heaps(heaps, top, groups.root[first])
        first = groups.following[first]
    return top


@compiled
def merge_reached(groups: Groups, heaps: Heaps, first: int, reach: int) -> int:
    """Let the groups of a list look as far as `reach`; those that did not before become one."""
    kept = merged = NONE
    while first != NONE:
        following = groups.following[first]
        if groups.reach[first] > reach:
            groups.following[first] = kept
            kept = first
        elif merged == NONE:
            merged = first
            groups.reach[first] = reach
        else:
            groups.root[merged] = merge_heaps(heaps, groups.root[merged], groups.root[first])
        first = following
    if merged == NONE:
        return kept
    groups.following[merged] = kept
    return merged


@compiled
def link_groups(places: Integers, at: Integers, following: Integers) -> None:
    """Put each group into the list of its place."""
    for group in range(len(places) - 1, -1, -1):
        following[group] = at[places[group]]
        at[places[group]] = group
