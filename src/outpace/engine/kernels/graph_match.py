"""The two ways to go through a block with the graph: by completing event, and by start.

By completing event, all starts share one graph, and each event writes the matches that it
completes. By start, each start has a graph of its own that ends as soon as the start is ruled out,
has as many matches as asked for, or cannot have more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from outpace.compiler.kernel import compiled_in_place, compiled_within
from outpace.engine.arrays import NO_TIME, Booleans, Integers
from outpace.engine.kernels.graph_build import (
    ACCEPTS,
    CONTENDERS,
    EDGE_COLUMNS,
    ENTRY_COLUMNS,
    LINK,
    LIST_COLUMNS,
    NODE,
    NODE_COLUMNS,
    NODES,
    OPENED,
    POSITION,
    ROW,
    SOURCE,
    STRICT,
    TAIL,
    VARIABLE,
    GraphLayout,
    add_row,
    earliest_live,
    empty_graph,
    start_rank,
    window_lows,
)
from outpace.engine.kernels.graph_enumerate import (
    BARRIER,
    DEADLINE,
    DONE,
    DONE_WORK,
    FILLED_SIZE,
    FOUND_COLUMNS,
    FULL,
    MATCHES,
    PAUSED,
    ROOM,
    SKIP_NEXT_ROW,
    SKIP_NONE,
    SKIP_PAST_LAST,
    STOPPED,
    TAKEN_ROW,
    TAKES,
    WAY_COLUMNS,
    enumerate_row,
)

# What WITHIN measures.
NO_WITHIN, FIRST_TO_LAST, PREVIOUS_TO_CURRENT = range(3)

#: So many nodes before old ones are given up, at first.
NODES_KEPT = 1 << 16

#: Lines of each table, at first.
FIRST_LINES = 64

#: So many are copied at once.
_LINES_AT_ONCE = 1 << 17

#: Room without a limit.
UNLIMITED = np.iinfo(np.int64).max

#: What adding a row to a graph is worth, counted in nodes, links and takes.
_ROW_WORK = 16

# Where a call stopped: the segment, the row to go on with and by start the start (-1: none yet),
# the first node of the row (-1: it is not in the graph yet), where the graph begins, the first
# completing row that counts, how many nodes may pile up. By start the room that the start has left,
# the row that its time is counted from, and what settled the starts before it, by the last row and
# by time; within the matches of a row the room that it had, and the fill levels before it.
SEGMENT, NEXT_ROW, AT_START, FIRST_NODE, BASE, COMPLETED, NODES_LIMIT = range(7)
START_ROOM, ANCHOR, SETTLED_BEFORE, TIME_BEFORE, ROW_ROOM, ROW_MATCHES, ROW_TAKES = range(7, 14)
_PLACE_SIZE = 14


class Tables(NamedTuple):
    """The arrays that a kernel works in and writes, so that a later call can go on.

    `place` says where a call stopped, `wanted` how many lines the tables need that it may have
    filled. `found` and `taken` are the matches and their takes, up to the levels in `filled`;
    `ends` and `keep` have for each segment the matches up to its end and the first row that is
    still needed.
    """

    nodes: Integers
    entries: Integers
    edges: Integers
    links: Integers
    found: Integers
    taken: Integers
    rivals: Integers
    ways: Integers
    visited: Integers
    path: Integers
    lists: Integers
    newest: Integers
    fill: Integers
    filled: Integers
    wanted: Integers
    lows: Integers
    ends: Integers
    keep: Integers
    place: Integers


def new_tables(layout: GraphLayout, rows: int, segments: int) -> Tables:
    """Return tables before the first call; `lows` has `rows`, those that WITHIN looks at."""
    place = np.full(_PLACE_SIZE, -1, np.int64)
    place[SEGMENT] = 0
    tables = Tables(
        nodes=_lines(NODE_COLUMNS), entries=_lines(ENTRY_COLUMNS), edges=_lines(EDGE_COLUMNS),
        links=_lines(2), found=_lines(FOUND_COLUMNS), taken=_lines(2), rivals=np.empty(0, np.int64),
        ways=_lines(WAY_COLUMNS), visited=np.empty(0, np.int64), path=_lines(3),
        lists=np.empty((2 * len(layout.moves), LIST_COLUMNS), np.int64),
        newest=np.empty(len(layout.positions), np.int64),
        fill=np.zeros(3, np.int64),
        filled=np.zeros(FILLED_SIZE, np.int64),
        wanted=np.full(CONTENDERS + 1, FIRST_LINES, np.int64),
        lows=np.full(rows, -1, np.int64),
        ends=np.zeros(segments, np.int64),
        keep=np.zeros(segments, np.int64),
        place=place,
    )  # fmt: skip
    return with_room(tables)


def with_room(tables: Tables) -> Tables:
    """Return tables with as many lines as wanted, or twice as many as there were."""
    nodes, entries, edges, links, found, taken, rivals = (
        _grown(table, lines) for table, lines in zip(tables, tables.wanted.tolist(), strict=False)
    )
    return tables._replace(
        nodes=nodes, entries=entries, edges=edges, links=links, found=found, taken=taken,
        rivals=rivals,
        # Every link becomes a way, and every node can be collected and be on the path.
        ways=_grown(tables.ways, len(links)),
        visited=_grown(tables.visited, len(nodes)),
        path=_grown(tables.path, len(nodes) + 2),
    )  # fmt: skip


def _lines(columns: int) -> Integers:
    return np.empty((0, columns), np.int64)


def _grown(table: Integers, lines: int) -> Integers:
    if lines <= len(table):
        return table
    larger = np.empty((max(lines, 2 * len(table)), *table.shape[1:]), np.int64)
    # Piece by piece, as Python has the floor only between copies.
    for low in range(0, len(table), _LINES_AT_ONCE):
        piece = table[low : low + _LINES_AT_ONCE]
        larger[low : low + len(piece)] = piece
    return larger


@compiled_within
def first_in_window(times: Integers, low: int, high: int, now: int, within: int) -> int:
    """Return the first row that is less than `within` before `now`."""
    while low < high and now - times[low] >= within:
        low += 1
    return low


@compiled_within
def accepting(layout: GraphLayout, nodes: Integers, first: int, last: int) -> bool:
    """Say whether a match may end at one of the nodes."""
    for node in range(first, last):  # noqa: SIM110 - kernels have no generators
        if layout.positions[nodes[node, POSITION], ACCEPTS]:
            return True
    return False


@compiled_in_place
def match_by_completion(
    layout: GraphLayout,
    truth: Booleans,
    times: Integers,
    kind: int,
    withins: Integers,
    watermark: int,
    bounds: Integers,
    first_ordinal: Integers,
    settled: Integers,
    ended: bool,
    takes_max: int,
    work: int,
    targets: Booleans,
    floors: Integers,
    nodes_kept: int,
    tables: Tables,
) -> int:
    """Write all matches of all segments in the order of the events that complete them.

    `bounds` has for each segment its first row, the first start, the first completing row that
    counts, and the end; `withins` has what WITHIN allows its matches. `floors` is empty, or has for
    each row the first one that a match it completes may start with. Returns a status: PAUSED after
    about as much work as given, FULL when a table is short; then it is to be called again.
    """
    (
        nodes, entries, edges, links, found, taken, rivals, ways, visited, path,
        lists, newest, fill, filled, wanted, lows, ends, keep, place,
    ) = tables  # fmt: skip
    pause_at = filled[DONE_WORK] + work
    filled[ROOM] = UNLIMITED
    for segment in range(place[SEGMENT], len(bounds)):
        place[SEGMENT] = segment
        within = withins[segment]
        origin, low, high = bounds[segment, 0], bounds[segment, 1], bounds[segment, 3]
        if place[NEXT_ROW] < 0:
            empty_graph(lists, newest, fill)
            if kind and low < high:
                window_lows(times, low, high, within, lows)
            place[NEXT_ROW] = place[BASE] = low
            place[COMPLETED] = bounds[segment, 2]
            place[NODES_LIMIT] = nodes_kept
        while place[NEXT_ROW] < high:
            if filled[DONE_WORK] > pause_at:
                return PAUSED
            row = place[NEXT_ROW]
            start_low = lows[row] if kind == FIRST_TO_LAST else -1
            if len(floors):
                start_low = max(start_low, floors[row])
            if place[FIRST_NODE] < 0:
                if fill[NODES] > place[NODES_LIMIT] and start_low >= 0:
                    # Build anew from the first row that still counts, once that is worth it.
                    if 2 * (row - start_low) < row - place[BASE]:
                        place[NEXT_ROW] = place[BASE] = start_low
                        place[COMPLETED] = max(place[COMPLETED], row)
                        empty_graph(lists, newest, fill)
                        continue
                    place[NODES_LIMIT] *= 2
                step_low = lows[row] if kind == PREVIOUS_TO_CURRENT else -1
                first = first_ordinal[segment] == 0 and row == origin
                first_node = fill[NODES]
                if not add_row(
                    layout, truth, row, high, first, True, True, start_low, step_low,
                    nodes, entries, edges, lists, newest, fill, wanted,
                ):  # fmt: skip
                    return FULL
                place[FIRST_NODE] = first_node
                filled[DONE_WORK] += _ROW_WORK
            first_node = place[FIRST_NODE]
            if row >= place[COMPLETED] and accepting(layout, nodes, first_node, fill[NODES]):
                status = enumerate_row(
                    layout, first_node, fill[NODES], start_low, lows, kind == PREVIOUS_TO_CURRENT,
                    settled[row], takes_max, pause_at, SKIP_NONE, False, targets,
                    nodes, entries, edges, visited, links, ways, path, rivals,
                    found, taken, filled, wanted,
                )  # fmt: skip
                if status != DONE:
                    return status
            place[FIRST_NODE] = -1
            place[NEXT_ROW] = row + 1
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
        place[NEXT_ROW] = -1
    return DONE


@compiled_within
def newest_live(
    layout: GraphLayout,
    row: int,
    nodes: Integers,
    entries: Integers,
    lists: Integers,
    newest: Integers,
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
def can_start(layout: GraphLayout, truth: Booleans, row: int, first: bool) -> bool:
    """Say whether a match may start at a row."""
    for move in range(len(layout.initial)):
        position = layout.initial[move, OPENED]
        fits = truth[row, layout.positions[position, VARIABLE]]
        if fits and start_rank(layout, truth, row, first, position) >= 0:
            return True
    return False


@compiled_in_place
def match_by_start(
    layout: GraphLayout,
    truth: Booleans,
    times: Integers,
    kind: int,
    withins: Integers,
    watermark: int,
    bounds: Integers,
    first_ordinal: Integers,
    settled: Integers,
    ended: bool,
    takes_max: int,
    work: int,
    targets: Booleans,
    barriers: Integers,
    numbers: Integers,
    consumed: Booleans,
    at_end: int,
    waits: bool,
    start_limit: int,
    partition_limit: int,
    skip: int,
    strict: bool,
    consume_selected: bool,
    consume_all: bool,
    tables: Tables,
) -> int:
    """Write the matches of each start, up to the limits, start by start.

    Parameters and results as in `match_by_completion`; `barriers`, `numbers` and `consumed` are
    updated, the first in rows. With `waits` a start waits until all earlier ones are settled.
    """
    (
        nodes, entries, edges, links, found, taken, rivals, ways, visited, path,
        lists, newest, fill, filled, wanted, lows, ends, keep, place,
    ) = tables  # fmt: skip
    pause_at = filled[DONE_WORK] + work
    one_each = skip in (SKIP_NEXT_ROW, SKIP_PAST_LAST) or consume_selected or consume_all
    for segment in range(place[SEGMENT], len(bounds)):
        place[SEGMENT] = segment
        within = withins[segment]
        origin, low = bounds[segment, 0], bounds[segment, 1]
        completed, high = bounds[segment, 2], bounds[segment, 3]
        if place[AT_START] < 0:
            if kind and low < high:
                window_lows(times, low, high, within, lows)
            filled[BARRIER] = barriers[segment]
            keep[segment] = high
            place[AT_START] = low
            place[SETTLED_BEFORE] = -1
            place[TIME_BEFORE] = NO_TIME
        for start in range(place[AT_START], high):
            first = first_ordinal[segment] == 0 and start == origin
            if place[NEXT_ROW] < 0:
                if numbers[segment] >= partition_limit:
                    break
                if start <= filled[BARRIER] or consumed[start]:
                    continue
                if not can_start(layout, truth, start, first):
                    continue
                empty_graph(lists, newest, fill)
                place[START_ROOM] = 1 if one_each else start_limit
                place[AT_START] = place[NEXT_ROW] = place[ANCHOR] = start
            row = place[NEXT_ROW]
            # What ends this start: a row, a row and time, or nothing yet.
            settled_at = -1
            deadline = NO_TIME
            while row < high and settled_at < 0:
                place[NEXT_ROW] = row
                if filled[DONE_WORK] > pause_at:
                    return PAUSED
                if kind and times[row] - times[place[ANCHOR]] >= within:
                    break
                # What an earlier call has emitted counts against the limit of the start only.
                again = row < completed and (not waits or start == low)
                if place[FIRST_NODE] < 0:
                    step_low = lows[row] if kind == PREVIOUS_TO_CURRENT else -1
                    first_node = fill[NODES]
                    if not add_row(
                        layout, truth, row, high, first, row == start, not consumed[row],
                        -1, step_low, nodes, entries, edges, lists, newest, fill, wanted,
                    ):  # fmt: skip
                        return FULL
                    place[FIRST_NODE] = first_node
                    filled[DONE_WORK] += _ROW_WORK
                    place[ROW_MATCHES], place[ROW_TAKES] = filled[MATCHES], filled[TAKES]
                    room = place[START_ROOM]
                    if not again:
                        room = min(room, partition_limit - numbers[segment])
                    place[ROW_ROOM] = filled[ROOM] = room
                first_node = place[FIRST_NODE]
                if accepting(layout, nodes, first_node, fill[NODES]):
                    status = enumerate_row(
                        layout, first_node, fill[NODES], -1, lows, kind == PREVIOUS_TO_CURRENT,
                        max(place[SETTLED_BEFORE], settled[row]), takes_max, pause_at, skip,
                        strict, targets, nodes, entries, edges, visited, links, ways, path, rivals,
                        found, taken, filled, wanted,
                    )  # fmt: skip
                    if status > STOPPED:
                        return status
                    matches, takes = place[ROW_MATCHES], place[ROW_TAKES]
                    for match in range(matches, filled[MATCHES]):
                        found[match, DEADLINE] = place[TIME_BEFORE]
                    place[START_ROOM] -= place[ROW_ROOM] - filled[ROOM]
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
                    spent = place[START_ROOM] == 0 or numbers[segment] >= partition_limit
                    if spent or filled[BARRIER] >= start:
                        settled_at = settled[row]
                place[FIRST_NODE] = -1
                waiting = newest_live(layout, row, nodes, entries, lists, newest)
                if kind == PREVIOUS_TO_CURRENT and waiting >= 0:
                    place[ANCHOR] = waiting
                if waiting < 0 or (kind and times[row] - times[place[ANCHOR]] >= within):
                    settled_at = settled[row]
                row += 1
            place[NEXT_ROW] = -1
            anchor = place[ANCHOR]
            if settled_at < 0 and kind:
                now = max(watermark, times[high - 1])
                if row < high or now - times[anchor] >= within:
                    settled_at = settled[row - 1]
                    deadline = times[anchor] + within
            if settled_at < 0 and ended:
                settled_at = at_end
            if settled_at < 0:
                keep[segment] = min(keep[segment], start)
                if waits:
                    break
            elif waits:
                place[SETTLED_BEFORE] = max(place[SETTLED_BEFORE], settled_at)
                place[TIME_BEFORE] = max(place[TIME_BEFORE], deadline)
        barriers[segment] = filled[BARRIER]
        ends[segment] = filled[MATCHES]
        place[AT_START] = -1
    return DONE
