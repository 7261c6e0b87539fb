"""The two ways to go through a block with the graph: by completing event, and by start.

By completing event, all starts share one graph, and each event writes the matches that it
completes. By start, each start has a graph of its own that ends as soon as the start is ruled out,
has as many matches as asked for, or cannot have more.
"""

from __future__ import annotations

import numpy as np

from outpace.engine.kernels.compiled import compiled
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
    MATCHES,
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


@compiled
def first_in_window(times: Integers, low: int, high: int, now: int, within: int) -> int:
    """Return the first row that is less than `within` before `now`."""
    while low < high and now - times[low] >= within:
        low += 1
    return low


@compiled
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
) -> tuple[Matrix, Matrix, Integers, Integers, Integers, int]:
    """Write all matches of all segments in the order of the events that complete them.

    `floors` is empty, or has for each row the first one that a match it completes may start with.

    `bounds` has for each segment its first row, the first start, the first completing row that
    counts, and the end. Returns the matches, their takes, the fill levels, for each segment the
    matches up to its end and the first row that is still needed, and a status.
    """
    nodes = np.empty((64, NODE_COLUMNS), np.int64)
    entries = np.empty((64, ENTRY_COLUMNS), np.int64)
    edges = np.empty((64, EDGE_COLUMNS), np.int64)
    lists = np.empty((2 * len(layout.moves), LIST_COLUMNS), np.int64)
    newest = np.empty(len(layout.positions), np.int64)
    fill = np.zeros(3, np.int64)
    visited = np.empty((64, 1), np.int64)
    links = np.empty((64, 2), np.int64)
    ways = np.empty((64, 3), np.int64)
    path = np.empty((64, 3), np.int64)
    rivals = np.empty(64, np.int64)
    found = np.empty((64, 4), np.int64)
    taken = np.empty((64, 2), np.int64)
    filled = np.zeros(3, np.int64)
    targets = np.zeros(0, np.bool_)
    lows = np.full(len(truth) if kind else 0, -1, np.int64)
    ends = np.zeros(len(bounds), np.int64)
    keep = np.zeros(len(bounds), np.int64)
    status = DONE
    for segment in range(len(bounds)):
        origin, low, completed, high = bounds[segment]
        empty_graph(lists, newest, fill)
        if kind and low < high:
            window_lows(times, low, high, within, lows)
        base = low
        limit = nodes_kept
        row = low
        while row < high:
            start_low = lows[row] if kind == FIRST_TO_LAST else -1
            if len(floors):
                start_low = max(start_low, floors[row])
            if fill[NODES] > limit and start_low >= 0:
                # Build anew from the first row that still counts, once that is worth it.
                if 2 * (row - start_low) < row - base:
                    base = start_low
                    completed = max(completed, row)
                    row = base
                    empty_graph(lists, newest, fill)
                    continue
                limit *= 2
            step_low = lows[row] if kind == PREVIOUS_TO_CURRENT else -1
            first_node = fill[NODES]
            first = first_ordinal[segment] == 0 and row == origin
            nodes, entries, edges = add_row(
                layout, truth, row, high, first, True, True, start_low, step_low,
                nodes, entries, edges, lists, newest, fill,
            )  # fmt: skip
            if row >= completed and accepting(layout, nodes, first_node, fill[NODES]):
                visited, links, ways, path, rivals, found, taken, _, status = enumerate_row(
                    layout, first_node, fill[NODES], start_low, lows, kind == PREVIOUS_TO_CURRENT,
                    settled[row], UNLIMITED, takes_max, 0, False, targets,
                    nodes, entries, edges, visited, links, ways, path, rivals,
                    found, taken, filled,
                )  # fmt: skip
                if status == TOO_MANY:
                    return found, taken, filled, ends, keep, status
            row += 1
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
    return found, taken, filled, ends, keep, status


@compiled
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


@compiled
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


@compiled
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
) -> tuple[Matrix, Matrix, Integers, Integers, Integers, int]:
    """Write the matches of each start, up to the limits, start by start.

    Parameters and results as in `match_by_completion`; `barriers`, `numbers` and `consumed` are
    updated, the first in rows. With `waits` a start waits until all earlier ones are settled.
    """
    nodes = np.empty((64, NODE_COLUMNS), np.int64)
    entries = np.empty((64, ENTRY_COLUMNS), np.int64)
    edges = np.empty((64, EDGE_COLUMNS), np.int64)
    lists = np.empty((2 * len(layout.moves), LIST_COLUMNS), np.int64)
    newest = np.empty(len(layout.positions), np.int64)
    fill = np.zeros(3, np.int64)
    visited = np.empty((64, 1), np.int64)
    links = np.empty((64, 2), np.int64)
    ways = np.empty((64, 3), np.int64)
    path = np.empty((64, 3), np.int64)
    rivals = np.empty(64, np.int64)
    found = np.empty((64, 4), np.int64)
    taken = np.empty((64, 2), np.int64)
    filled = np.zeros(3, np.int64)
    lows = np.full(len(truth) if kind else 0, -1, np.int64)
    ends = np.zeros(len(bounds), np.int64)
    keep = np.zeros(len(bounds), np.int64)
    one_each = skip in (SKIP_NEXT_ROW, SKIP_PAST_LAST) or consume_selected or consume_all
    status = DONE
    for segment in range(len(bounds)):
        origin, low, completed, high = bounds[segment]
        if kind and low < high:
            window_lows(times, low, high, within, lows)
        filled[BARRIER] = barriers[segment]
        settled_before = -1
        keep[segment] = high
        for start in range(low, high):
            if numbers[segment] >= partition_limit:
                break
            first = first_ordinal[segment] == 0 and start == origin
            if start <= filled[BARRIER] or consumed[start]:
                continue
            if not can_start(layout, truth, start, first):
                continue
            empty_graph(lists, newest, fill)
            room = 1 if one_each else start_limit
            # What ends this start: a row, time, or nothing yet.
            settled_at = -1
            anchor = start
            row = start
            while row < high and settled_at < 0:
                if kind and times[row] - times[anchor] >= within:
                    break
                step_low = lows[row] if kind == PREVIOUS_TO_CURRENT else -1
                first_node = fill[NODES]
                nodes, entries, edges = add_row(
                    layout, truth, row, high, first, row == start, not consumed[row], -1, step_low,
                    nodes, entries, edges, lists, newest, fill,
                )  # fmt: skip
                if accepting(layout, nodes, first_node, fill[NODES]):
                    # What an earlier call has emitted counts against the limit of the start only.
                    again = row < completed and (not waits or start == low)
                    matches, takes = filled[MATCHES], filled[TAKES]
                    here = room
                    if not again:
                        here = min(room, partition_limit - numbers[segment])
                    visited, links, ways, path, rivals, found, taken, left, status = enumerate_row(
                        layout, first_node, fill[NODES], -1, lows, kind == PREVIOUS_TO_CURRENT,
                        max(settled_before, settled[row]), here, takes_max, skip, strict, targets,
                        nodes, entries, edges, visited, links, ways, path, rivals,
                        found, taken, filled,
                    )  # fmt: skip
                    if status in (TOO_MANY, BAD_SKIP):
                        return found, taken, filled, ends, keep, status
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
        barriers[segment] = filled[BARRIER]
        ends[segment] = filled[MATCHES]
    return found, taken, filled, ends, keep, status
