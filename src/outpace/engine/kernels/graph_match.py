"""The two ways to go through a block with the graph: by completing event, and by start.

By completing event, all starts share one graph, and each event writes the matches that it
completes. By start, each start has a graph of its own that ends as soon as the start is ruled out,
has as many matches as asked for, or cannot have more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from outpace.engine.kernels.compiled import compiled, compiled_within
from outpace.engine.kernels.graph_build import (
    EDGE_COLUMNS,
    ENTRY_COLUMNS,
    LIST_COLUMNS,
    NODE,
    NODE_COLUMNS,
    NODES,
    POSITION,
    ROW,
    TAIL,
    Integers,
    Matrix,
    Truth,
    add_row,
    earliest_live,
    empty_graph,
    start_rank,
    window_lows,
)
from outpace.engine.kernels.graph_enumerate import (
    BAD_SKIP,
    BARRIER,
    DONE,
    DONE_WORK,
    FILLED_SIZE,
    HELD_DEPTH,
    MATCHES,
    PAUSED,
    SKIP_NEXT_ROW,
    SKIP_PAST_LAST,
    TAKEN_ROW,
    TAKES,
    TOO_MANY,
    Flags,
    enumerate_row,
)
from outpace.engine.match.graph_layout import (
    ACCEPTS,
    LINK,
    OPENED,
    SOURCE,
    STRICT,
    VARIABLE,
    Layout,
)

# What WITHIN measures.
NO_WITHIN, FIRST_TO_LAST, PREVIOUS_TO_CURRENT = range(3)

#: So many nodes before old ones are given up, at first.
NODES_KEPT = 1 << 16

#: Room without a limit.
UNLIMITED = np.iinfo(np.int64).max

#: What adding a row to a graph is worth, counted in nodes, links and takes.
_ROW_WORK = 8

# Where a call paused: the segment, the row to go on with (-1: at the segment's beginning), where
# the graph begins, the first completing row that counts, how many nodes may pile up. By start also
# the start, the room that it has left, the row that its time is counted from, and what settled the
# starts before it. Within the matches of a row, its first node and by start the room that it had
# and has, and the fill levels before it. Last, the work of the call.
SEGMENT, NEXT_ROW, BASE, COMPLETED, NODES_LIMIT = range(5)
AT_START, START_ROOM, ANCHOR, SETTLED_BEFORE = range(5, 9)
FIRST_NODE, ROW_ROOM, ROW_LEFT, ROW_MATCHES, ROW_TAKES, WORK = range(9, 15)
_PLACE_SIZE = 15


class Tables(NamedTuple):
    """What a kernel works in and writes, handed back so that a later call can go on.

    Kernels return it as a plain tuple: a named one is made by Python code, and a signal that
    arrives there would end the process.

    `place` says where a call paused. `found` and `taken` are the matches and their takes, up to the
    levels in `filled`; `ends` and `keep` have for each segment the matches up to its end and the
    first row that is still needed.
    """

    nodes: Matrix
    entries: Matrix
    edges: Matrix
    lists: Matrix
    newest: Integers
    fill: Integers
    visited: Matrix
    links: Matrix
    ways: Matrix
    path: Matrix
    rivals: Integers
    found: Matrix
    taken: Matrix
    filled: Integers
    lows: Integers
    ends: Integers
    keep: Integers
    place: Integers


def new_tables(layout: Layout, rows: int, segments: int) -> Tables:
    """Return tables before the first call; `lows` has `rows`, those that WITHIN looks at."""
    lines = (NODE_COLUMNS, ENTRY_COLUMNS, EDGE_COLUMNS)
    nodes, entries, edges = (np.empty((64, columns), np.int64) for columns in lines)
    visited, links, ways, path, found, taken = (
        np.empty((64, columns), np.int64) for columns in (1, 2, 3, 3, 4, 2)
    )
    place = np.zeros(_PLACE_SIZE, np.int64)
    place[NEXT_ROW] = -1
    return Tables(
        nodes, entries, edges,
        lists=np.empty((2 * len(layout.moves), LIST_COLUMNS), np.int64),
        newest=np.empty(len(layout.positions), np.int64),
        fill=np.zeros(3, np.int64),
        visited=visited, links=links, ways=ways, path=path,
        rivals=np.empty(64, np.int64),
        found=found, taken=taken,
        filled=np.zeros(FILLED_SIZE, np.int64),
        lows=np.full(rows, -1, np.int64),
        ends=np.zeros(segments, np.int64),
        keep=np.zeros(segments, np.int64),
        place=place,
    )  # fmt: skip


@compiled_within
def first_in_window(times: Integers, low: int, high: int, now: int, within: int) -> int:
    """Return the first row that is less than `within` before `now`."""
    while low < high and now - times[low] >= within:
        low += 1
    return low


@compiled_within
def accepting(layout: Layout, nodes: Matrix, first: int, last: int) -> bool:
    """Say whether a match may end at one of the nodes."""
    for node in range(first, last):  # noqa: SIM110 - kernels have no generators
        if layout.positions[nodes[node, POSITION], ACCEPTS]:
            return True
    return False


@compiled
def match_by_completion(
    layout: Layout,
    truth: Truth,
    times: Integers,
    kind: int,
    within: int,
    watermark: int,
    bounds: Matrix,
    first_ordinal: Integers,
    settled: Integers,
    ended: bool,
    floors: Integers,
    takes_max: int,
    nodes_kept: int,
    work: int,
    tables: Tables,
) -> tuple[tuple[Integers, ...], int]:
    """Write all matches of all segments in the order of the events that complete them.

    `floors` is empty, or has for each row the first one that a match it completes may start with.

    `bounds` has for each segment its first row, the first start, the first completing row that
    counts, and the end. Returns the tables and a status: PAUSED after about as much work as given,
    to be called again with the tables.
    """
    (
        nodes, entries, edges, lists, newest, fill, visited, links, ways, path, rivals,
        found, taken, filled, lows, ends, keep, place,
    ) = tables  # fmt: skip
    begun = filled[DONE_WORK]
    targets = np.zeros(0, np.bool_)
    status = DONE
    for segment in range(place[SEGMENT], len(bounds)):
        place[SEGMENT] = segment
        origin, low, completed, high = bounds[segment]
        row = place[NEXT_ROW]
        if row < 0:
            empty_graph(lists, newest, fill)
            if kind and low < high:
                window_lows(times, low, high, within, lows)
            row = base = low
            limit = nodes_kept
        else:
            base, completed, limit = place[BASE], place[COMPLETED], place[NODES_LIMIT]
            place[NEXT_ROW] = -1
        while row < high:
            spent = filled[DONE_WORK] - begun
            if spent > work:
                place[NEXT_ROW] = row
                place[BASE] = base
                place[COMPLETED] = completed
                place[NODES_LIMIT] = limit
                place[WORK] = spent
                status = PAUSED
                break
            resumed = filled[HELD_DEPTH] > 0
            start_low = lows[row] if kind == FIRST_TO_LAST else -1
            if len(floors):
                start_low = max(start_low, floors[row])
            if fill[NODES] > limit and start_low >= 0 and not resumed:
                # Build anew from the first row that still counts, once that is worth it.
                if 2 * (row - start_low) < row - base:
                    base = start_low
                    completed = max(completed, row)
                    row = base
                    empty_graph(lists, newest, fill)
                    continue
                limit *= 2
            step_low = lows[row] if kind == PREVIOUS_TO_CURRENT else -1
            if not resumed:
                filled[DONE_WORK] += _ROW_WORK
                place[FIRST_NODE] = fill[NODES]
                first = first_ordinal[segment] == 0 and row == origin
                nodes, entries, edges = add_row(
                    layout, truth, row, high, first, True, True, start_low, step_low,
                    nodes, entries, edges, lists, newest, fill,
                )  # fmt: skip
            first_node = place[FIRST_NODE]
            if row >= completed and accepting(layout, nodes, first_node, fill[NODES]):
                visited, links, ways, path, rivals, found, taken, _, status = enumerate_row(
                    layout, first_node, fill[NODES], start_low, lows, kind == PREVIOUS_TO_CURRENT,
                    settled[row], UNLIMITED, takes_max, work, 0, False, targets,
                    nodes, entries, edges, visited, links, ways, path, rivals,
                    found, taken, filled,
                )  # fmt: skip
                if status == TOO_MANY:
                    break
                if status == PAUSED:
                    status = DONE
                    continue
            row += 1
        if status in (TOO_MANY, PAUSED):
            break
        keep[segment] = high
        ends[segment] = filled[MATCHES]
        if low < high and not ended:
            start_low = step_low = -1
            if kind:
                now = max(watermark, times[high - 1])
                in_window = first_in_window(times, low, high, now, within)
                start_low = in_window if kind == FIRST_TO_LAST else -1
                step_low = in_window if kind == PREVIOUS_TO_CURRENT else -1
            live = earliest_live(
                layout, high - 1, start_low, step_low, nodes, entries, lists, newest
            )
            keep[segment] = min(high, live)
    held = (
        nodes, entries, edges, lists, newest, fill, visited, links, ways, path, rivals,
        found, taken, filled, lows, ends, keep, place,
    )  # fmt: skip
    return held, status


@compiled_within
def newest_live(
    layout: Layout, row: int, nodes: Matrix, entries: Matrix, lists: Matrix, newest: Integers
) -> int:
    """Return the newest row where a run waits after `row`, or -1; WITHIN is not looked at."""
    latest = -1
    for number in range(len(lists)):
        tail = lists[number, TAIL]
        if tail >= 0:
            latest = max(latest, nodes[entries[tail, NODE], ROW])
    for move in range(len(layout.moves)):
        node = newest[layout.moves[move, SOURCE]]
        if layout.moves[move, LINK] == STRICT and node >= 0 and nodes[node, ROW] == row:
            latest = row
    return latest


@compiled_within
def settled_by_time(
    times: Integers,
    settled: Integers,
    low: int,
    high: int,
    deadline: int,
    clock: Integers,
    clock_settled: Integers,
    at_end: int,
) -> int:
    """Return the number of the row, of any partition, that showed that the deadline has passed."""
    number = at_end
    row = low + np.searchsorted(times[low:high], deadline)
    if row < high:
        number = settled[row]
    tick = np.searchsorted(clock, deadline)
    if tick < len(clock):
        number = min(number, clock_settled[tick])
    return number


@compiled_within
def can_start(layout: Layout, truth: Truth, row: int, first: bool) -> bool:
    """Say whether a match may start at a row."""
    for move in range(len(layout.initial)):
        position = layout.initial[move, OPENED]
        fits = truth[row, layout.positions[position, VARIABLE]]
        if fits and start_rank(layout, truth, row, first, position) >= 0:
            return True
    return False


@compiled
def match_by_start(
    layout: Layout,
    truth: Truth,
    times: Integers,
    kind: int,
    within: int,
    watermark: int,
    bounds: Matrix,
    first_ordinal: Integers,
    settled: Integers,
    ended: bool,
    barriers: Integers,
    numbers: Integers,
    consumed: Flags,
    clock: Integers,
    clock_settled: Integers,
    at_end: int,
    waits: bool,
    start_limit: int,
    partition_limit: int,
    skip: int,
    strict: bool,
    targets: Flags,
    consume_selected: bool,
    consume_all: bool,
    takes_max: int,
    work: int,
    tables: Tables,
) -> tuple[tuple[Integers, ...], int]:
    """Write the matches of each start, up to the limits, start by start.

    Parameters and results as in `match_by_completion`; `barriers`, `numbers` and `consumed` are
    updated, the first in rows. With `waits` a start waits until all earlier ones are settled.
    """
    (
        nodes, entries, edges, lists, newest, fill, visited, links, ways, path, rivals,
        found, taken, filled, lows, ends, keep, place,
    ) = tables  # fmt: skip
    begun = filled[DONE_WORK]
    one_each = skip in (SKIP_NEXT_ROW, SKIP_PAST_LAST) or consume_selected or consume_all
    status = DONE
    for segment in range(place[SEGMENT], len(bounds)):
        place[SEGMENT] = segment
        origin, low, completed, high = bounds[segment]
        first_start = low
        settled_before = -1
        if place[NEXT_ROW] < 0:
            if kind and low < high:
                window_lows(times, low, high, within, lows)
            filled[BARRIER] = barriers[segment]
            keep[segment] = high
        else:
            first_start = place[AT_START]
            settled_before = place[SETTLED_BEFORE]
        for start in range(first_start, high):
            row = place[NEXT_ROW]
            first = first_ordinal[segment] == 0 and start == origin
            # What ends this start: a row, time, or nothing yet.
            settled_at = -1
            if row < 0:
                if numbers[segment] >= partition_limit:
                    break
                if start <= filled[BARRIER] or consumed[start]:
                    continue
                if not can_start(layout, truth, start, first):
                    continue
                empty_graph(lists, newest, fill)
                room = 1 if one_each else start_limit
                row = anchor = start
            else:
                room, anchor = place[START_ROOM], place[ANCHOR]
                place[NEXT_ROW] = -1
            while row < high and settled_at < 0:
                spent = filled[DONE_WORK] - begun
                if spent > work:
                    place[NEXT_ROW] = row
                    place[AT_START] = start
                    place[START_ROOM] = room
                    place[ANCHOR] = anchor
                    place[SETTLED_BEFORE] = settled_before
                    place[WORK] = spent
                    status = PAUSED
                    break
                if kind and times[row] - times[anchor] >= within:
                    break
                resumed = filled[HELD_DEPTH] > 0
                if not resumed:
                    filled[DONE_WORK] += _ROW_WORK
                    step_low = lows[row] if kind == PREVIOUS_TO_CURRENT else -1
                    place[FIRST_NODE] = fill[NODES]
                    nodes, entries, edges = add_row(
                        layout, truth, row, high, first, row == start, not consumed[row],
                        -1, step_low, nodes, entries, edges, lists, newest, fill,
                    )  # fmt: skip
                first_node = place[FIRST_NODE]
                if accepting(layout, nodes, first_node, fill[NODES]):
                    # What an earlier call has emitted counts against the limit of the start only.
                    again = row < completed and (not waits or start == low)
                    if not resumed:
                        place[ROW_MATCHES], place[ROW_TAKES] = filled[MATCHES], filled[TAKES]
                        here = room
                        if not again:
                            here = min(room, partition_limit - numbers[segment])
                        place[ROW_ROOM] = place[ROW_LEFT] = here
                    matches, takes, here = place[ROW_MATCHES], place[ROW_TAKES], place[ROW_ROOM]
                    visited, links, ways, path, rivals, found, taken, left, status = enumerate_row(
                        layout, first_node, fill[NODES], -1, lows, kind == PREVIOUS_TO_CURRENT,
                        max(settled_before, settled[row]), place[ROW_LEFT], takes_max, work,
                        skip, strict, targets, nodes, entries, edges, visited, links, ways,
                        path, rivals, found, taken, filled,
                    )  # fmt: skip
                    if status in (TOO_MANY, BAD_SKIP):
                        break
                    if status == PAUSED:
                        place[ROW_LEFT] = left
                        status = DONE
                        continue
                    room -= here - left
                    if again:
                        filled[MATCHES], filled[TAKES] = matches, takes
                    elif filled[MATCHES] > matches:
                        numbers[segment] += filled[MATCHES] - matches
                        if skip == SKIP_NEXT_ROW:
                            filled[BARRIER] = max(filled[BARRIER], start)
                        if skip == SKIP_PAST_LAST or consume_all:
                            filled[BARRIER] = max(filled[BARRIER], row)
                        if consume_selected:
                            for take in range(takes, filled[TAKES]):
                                consumed[taken[take, TAKEN_ROW]] = True
                    if room == 0 or filled[BARRIER] >= start or numbers[segment] >= partition_limit:
                        settled_at = settled[row]
                waiting = newest_live(layout, row, nodes, entries, lists, newest)
                if kind == PREVIOUS_TO_CURRENT and waiting >= 0:
                    anchor = waiting
                if waiting < 0 or (kind and times[row] - times[anchor] >= within):
                    settled_at = settled[row]
                row += 1
            if status in (TOO_MANY, BAD_SKIP, PAUSED):
                break
            if settled_at < 0 and kind:
                now = max(watermark, times[high - 1])
                if row < high or now - times[anchor] >= within:
                    passed = settled_by_time(
                        times, settled, low, high, times[anchor] + within,
                        clock, clock_settled, at_end,
                    )  # fmt: skip
                    settled_at = max(settled[row - 1], passed)
            if settled_at < 0 and ended:
                settled_at = at_end
            if settled_at < 0:
                keep[segment] = min(keep[segment], start)
                if waits:
                    break
            elif waits:
                settled_before = max(settled_before, settled_at)
        if status in (TOO_MANY, BAD_SKIP, PAUSED):
            break
        barriers[segment] = filled[BARRIER]
        ends[segment] = filled[MATCHES]
    held = (
        nodes, entries, edges, lists, newest, fill, visited, links, ways, path, rivals,
        found, taken, filled, lows, ends, keep, place,
    )  # fmt: skip
    return held, status
