"""Reading the matches that one event completes out of the graph, in order.

First the part of the graph that leads to the completing event is collected, backwards: every node
and edge in it lies on a match, so this costs no more than the matches have elements (and a sort of
its nodes). Then it is walked forwards from each start, where no way is a dead end, which gives the
order of preference.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outpace.engine.kernels.compiled import compiled_within
from outpace.engine.kernels.graph_build import (
    BEFORE,
    EDGE,
    EDGES,
    JUMP,
    LATEST,
    LINKED,
    LINKED_END,
    LIST,
    MARK,
    MOVE,
    NODE,
    OUT,
    OUTS,
    POSITION,
    ROW,
    STAMP,
    START,
    Integers,
    Matrix,
    grown,
)
from outpace.engine.match.graph_layout import (
    ACCEPTS,
    AMBIGUOUS,
    GROUP,
    GROUPED,
    RANK,
    VARIABLE,
    Layout,
)

Flags = npt.NDArray[np.bool_]

# Columns of the tables below: links (from, move), ways on (to, rank, group), and the path walked
# (node, next way on, where its rivals begin).
FROM, BY = range(2)
TO, WAY_RANK, WAY_GROUP = range(3)
AT, CURSOR, RIVALS = range(3)

# Columns of the result tables: matches (start, completing row, end of its takes, settled), takes.
START_ROW, LAST_ROW, TAKES_END, SETTLED = range(4)
TAKEN_ROW, TAKEN_POSITION = range(2)

# Fill levels of the result tables, the last start that an emitted match rules out, and the work
# done so far: nodes and links collected, steps walked, takes written.
MATCHES, TAKES, BARRIER, DONE_WORK = range(4)
# Where an enumeration paused: one more than the depth of the path (0: it did not), the nodes
# collected, the place of the start among them, and the rank of the first take before this one.
HELD_DEPTH, HELD_COUNT, HELD_PLACE, HELD_RANK = range(4, 8)
FILLED_SIZE = 8

# What an enumeration ends with; paused, it is to be called again.
DONE, STOPPED, TOO_MANY, BAD_SKIP, PAUSED = range(5)

# Where to go on after a match.
SKIP_NONE, SKIP_NEXT_ROW, SKIP_PAST_LAST, SKIP_FIRST, SKIP_LAST = range(5)


@compiled_within
def visit(nodes: Matrix, visited: Matrix, count: int, node: int, stamp: int) -> int:
    """Note a node that leads to the completing event; return how many there are."""
    if nodes[node, STAMP] == stamp:
        return count
    nodes[node, STAMP] = stamp
    nodes[node, MARK] = -1
    nodes[node, OUTS] = 0
    visited[count, 0] = node
    return count + 1


@compiled_within
def collect(
    layout: Layout,
    first: int,
    last: int,
    start_low: int,
    lows: Integers,
    by_step: bool,
    nodes: Matrix,
    entries: Matrix,
    edges: Matrix,
    visited: Matrix,
    links: Matrix,
) -> tuple[Matrix, Matrix, int, int]:
    """Collect what leads to the accepting nodes among `first .. last`, backwards."""
    stamp = nodes[first, ROW]
    count = 0
    linked = 0
    for node in range(first, last):
        visited = grown(visited, count + 1)
        if layout.positions[nodes[node, POSITION], ACCEPTS] and nodes[node, LATEST] >= start_low:
            count = visit(nodes, visited, count, node, stamp)
    done = 0
    while done < count:
        node = visited[done, 0]
        done += 1
        step_low = lows[nodes[node, ROW]] if by_step else -1
        nodes[node, LINKED] = linked
        for edge in range(nodes[node, EDGE], nodes[node, EDGES]):
            entry = edges[edge, LIST]
            strict = entry < 0
            while strict or entry >= 0:
                before = -1 - entry if strict else entries[entry, NODE]
                if nodes[before, LATEST] < start_low:
                    if strict:
                        break
                    entry = entries[entry, JUMP]
                    continue
                if nodes[before, ROW] < step_low:
                    break
                visited = grown(visited, count + 1)
                count = visit(nodes, visited, count, before, stamp)
                # Two moves between the same positions make one step: the preferred one counts.
                if nodes[before, MARK] != node:
                    nodes[before, MARK] = node
                    nodes[before, OUTS] += 1
                    links = grown(links, linked + 1)
                    links[linked, FROM] = before
                    links[linked, BY] = edges[edge, MOVE]
                    linked += 1
                if strict:
                    break
                entry = entries[entry, BEFORE]
        nodes[node, LINKED_END] = linked
    return visited, links, count, linked


@compiled_within
def turn_round(
    layout: Layout,
    count: int,
    linked: int,
    nodes: Matrix,
    visited: Matrix,
    links: Matrix,
    ways: Matrix,
) -> Matrix:
    """Sort the collected nodes and list the ways on from each, in order of preference."""
    ways = grown(ways, linked)
    order = visited[:count, 0].copy()
    order.sort()
    at = 0
    groups = 1
    for place in range(count):
        node = order[place]
        visited[place, 0] = node
        nodes[node, OUT] = at
        at += nodes[node, OUTS]
        nodes[node, OUTS] = 0
    for link in range(linked):
        groups = max(groups, 1 + layout.moves[links[link, BY], GROUP])
    for group in range(groups):
        for node in order:
            for link in range(nodes[node, LINKED], nodes[node, LINKED_END]):
                move = links[link, BY]
                if layout.moves[move, GROUP] != group:
                    continue
                before = links[link, FROM]
                low = nodes[before, OUT]
                place = low + nodes[before, OUTS]
                nodes[before, OUTS] += 1
                # Ways to the same row stay in the order of the moves.
                while (
                    place > low
                    and ways[place - 1, WAY_GROUP] == group
                    and nodes[ways[place - 1, TO], ROW] == nodes[node, ROW]
                    and ways[place - 1, WAY_RANK] > layout.moves[move, RANK]
                ):
                    ways[place] = ways[place - 1]
                    place -= 1
                ways[place, TO] = node
                ways[place, WAY_RANK] = layout.moves[move, RANK]
                ways[place, WAY_GROUP] = group
    return ways


@compiled_within
def add_rival(rivals: Integers, low: int, high: int, node: int) -> int:
    """Add a node to the rivals unless it is there; return where they end."""
    for place in range(low, high):
        if rivals[place] == node:
            return high
    rivals[high] = node
    return high + 1


@compiled_within
def first_way_to(nodes: Matrix, ways: Matrix, low: int, high: int, row: int) -> int:
    """Return the first of some ways, sorted by row, that leads to `row` or beyond."""
    while low < high:
        middle = (low + high) // 2
        if nodes[ways[middle, TO], ROW] < row:
            low = middle + 1
        else:
            high = middle
    return low


@compiled_within
def rivals_of_step(
    layout: Layout,
    nodes: Matrix,
    ways: Matrix,
    way: int,
    from_node: int,
    rivals: Integers,
    low: int,
    high: int,
    filled: Integers,
) -> int:
    """Append the nodes that a preferred run with the same labels reaches by the same step.

    The rivals of the step before are `rivals[low:high]`; the new ones follow. Returns their end.
    What is looked at counts as work: with many ways to the same match it is nearly all of it.
    """
    node = ways[way, TO]
    row, label = nodes[node, ROW], layout.positions[nodes[node, POSITION], VARIABLE]
    end = high
    for place in range(low - 1, high):
        # Before the rivals, the run itself: it has rivals in the ways that it prefers to this one.
        rival = from_node if place < low else rivals[place]
        onward = nodes[rival, OUT]
        onward_end = way if place < low else onward + nodes[rival, OUTS]
        if not layout.header[GROUPED]:
            onward = first_way_to(nodes, ways, onward, onward_end, row)
        while onward < onward_end:
            filled[DONE_WORK] += 1
            other = ways[onward, TO]
            if nodes[other, ROW] == row:
                if layout.positions[nodes[other, POSITION], VARIABLE] == label:
                    filled[DONE_WORK] += end - high
                    end = add_rival(rivals, high, end, other)
            elif not layout.header[GROUPED]:
                break
            onward += 1
    return end


@compiled_within
def skip_target(path: Matrix, depth: int, nodes: Matrix, targets: Flags, skip: int) -> int:
    """Return the row that AFTER MATCH SKIP TO names in the match on the path, or -1."""
    found = -1
    for step in range(depth + 1):
        node = path[step, AT]
        if targets[nodes[node, POSITION]]:
            found = int(nodes[node, ROW])
            if skip == SKIP_FIRST:
                return found
    return found


@compiled_within
def write_match(
    path: Matrix,
    depth: int,
    settled: int,
    nodes: Matrix,
    found: Matrix,
    taken: Matrix,
    filled: Integers,
) -> tuple[Matrix, Matrix]:
    """Append the match on the path to the result tables."""
    found = grown(found, filled[MATCHES] + 1)
    taken = grown(taken, filled[TAKES] + depth + 1)
    at = filled[TAKES]
    for step in range(depth + 1):
        node = path[step, AT]
        taken[at + step, TAKEN_ROW] = nodes[node, ROW]
        taken[at + step, TAKEN_POSITION] = nodes[node, POSITION]
    match = filled[MATCHES]
    found[match, START_ROW] = nodes[path[0, AT], ROW]
    found[match, LAST_ROW] = nodes[path[depth, AT], ROW]
    found[match, TAKES_END] = at + depth + 1
    found[match, SETTLED] = settled
    filled[MATCHES] += 1
    filled[TAKES] += depth + 1
    filled[DONE_WORK] += depth + 1
    return found, taken


@compiled_within
def walk(
    layout: Layout,
    root: int,
    last: int,
    settled: int,
    room: int,
    takes_max: int,
    pause_at: int,
    skip: int,
    strict: bool,
    targets: Flags,
    nodes: Matrix,
    ways: Matrix,
    path: Matrix,
    rivals: Integers,
    rivals_end: int,
    found: Matrix,
    taken: Matrix,
    filled: Integers,
) -> tuple[Matrix, Matrix, int, int]:
    """Write all matches from one first take, in order; return the tables, what is left, a status.

    `rivals[:rivals_end]` are the preferred first takes with the same label. The walk pauses when
    the work done so far exceeds `pause_at`.
    """
    depth = filled[HELD_DEPTH] - 1
    filled[HELD_DEPTH] = 0
    if depth < 0:
        depth = 0
        path[0, AT] = root
        path[0, CURSOR] = nodes[root, OUT]
        path[0, RIVALS] = 0
        path[1, RIVALS] = rivals_end
    while depth >= 0:
        if filled[DONE_WORK] > pause_at:
            filled[HELD_DEPTH] = depth + 1
            return found, taken, room, PAUSED
        filled[DONE_WORK] += 1
        node = path[depth, AT]
        if nodes[node, ROW] == last:
            # With a rival at the end, a preferred run has given the same match already.
            if path[depth, RIVALS] == path[depth + 1, RIVALS]:
                if filled[TAKES] + depth + 1 > takes_max:
                    return found, taken, room, TOO_MANY
                found, taken = write_match(path, depth, settled, nodes, found, taken, filled)
                room -= 1
                if skip >= SKIP_FIRST:
                    target = skip_target(path, depth, nodes, targets, skip)
                    if strict and (target < 0 or target == nodes[root, ROW]):
                        return found, taken, room, BAD_SKIP
                    filled[BARRIER] = max(filled[BARRIER], target - 1)
                    if filled[BARRIER] >= nodes[root, ROW]:
                        return found, taken, room, STOPPED
                if room == 0:
                    return found, taken, room, STOPPED
            depth -= 1
            continue
        way = path[depth, CURSOR]
        if way == nodes[node, OUT] + nodes[node, OUTS]:
            depth -= 1
            continue
        path[depth, CURSOR] += 1
        onward = ways[way, TO]
        low, high = path[depth, RIVALS], path[depth + 1, RIVALS]
        end = high
        if layout.header[AMBIGUOUS]:
            end = rivals_of_step(layout, nodes, ways, way, node, rivals, low, high, filled)
            filled[DONE_WORK] += end - low
            overtaken = False
            for place in range(high, end):
                overtaken = overtaken or rivals[place] == onward
            if overtaken:
                continue
        depth += 1
        path[depth, AT] = onward
        path[depth, CURSOR] = nodes[onward, OUT]
        path[depth, RIVALS] = high
        path[depth + 1, RIVALS] = end
    return found, taken, room, DONE


@compiled_within
def enumerate_row(
    layout: Layout,
    first: int,
    last: int,
    start_low: int,
    lows: Integers,
    by_step: bool,
    settled: int,
    room: int,
    takes_max: int,
    work: int,
    skip: int,
    strict: bool,
    targets: Flags,
    nodes: Matrix,
    entries: Matrix,
    edges: Matrix,
    visited: Matrix,
    links: Matrix,
    ways: Matrix,
    path: Matrix,
    rivals: Integers,
    found: Matrix,
    taken: Matrix,
    filled: Integers,
) -> tuple[Matrix, Matrix, Matrix, Matrix, Integers, Matrix, Matrix, int, int]:
    """Write the matches that the nodes `first .. last`, all of one row, complete.

    In order of start, then preference. Returns the tables (visited, links, ways, path, rivals,
    found, taken), the room left and a status; PAUSED after about as much work as given, to be
    called again with the same arguments and what is left of the room.
    """
    status = DONE
    place = held_place = 0
    held_rank = -1
    if filled[HELD_DEPTH]:
        count = filled[HELD_COUNT]
        place = held_place = filled[HELD_PLACE]
        held_rank = filled[HELD_RANK]
    else:
        visited, links, count, linked = collect(
            layout, first, last, start_low, lows, by_step, nodes, entries, edges, visited, links
        )
        filled[DONE_WORK] += count + linked
        if count == 0:
            return visited, links, ways, path, rivals, found, taken, room, status
        ways = turn_round(layout, count, linked, nodes, visited, links, ways)
        path = grown(path, count + 2)
        if layout.header[AMBIGUOUS] and len(rivals) < (count + 2) * len(layout.positions):
            rivals = np.empty(2 * (count + 2) * len(layout.positions), np.int64)
    row = nodes[first, ROW]
    pause_at = filled[DONE_WORK] + work
    while place < count and status == DONE:
        start = nodes[visited[place, 0], ROW]
        end = place
        while end < count and nodes[visited[end, 0], ROW] == start:
            end += 1
        rank = held_rank if place == held_place else -1
        while start >= start_low and status == DONE:
            # The first takes of a start, by rank: there are few, so each is looked for.
            root = -1
            for other in range(place, end):
                node = visited[other, 0]
                if nodes[node, START] > rank and (
                    root < 0 or nodes[node, START] < nodes[root, START]
                ):
                    root = node
            if root < 0:
                break
            rivals_end = 0
            for other in range(place, end) if layout.header[AMBIGUOUS] else range(0):
                node = visited[other, 0]
                if (
                    0 <= nodes[node, START] <= rank
                    and layout.positions[nodes[node, POSITION], VARIABLE]
                    == layout.positions[nodes[root, POSITION], VARIABLE]
                ):
                    rivals[rivals_end] = node
                    rivals_end += 1
            filled[HELD_COUNT] = count
            filled[HELD_PLACE] = place
            filled[HELD_RANK] = rank
            rank = nodes[root, START]
            found, taken, room, status = walk(
                layout, root, row, settled, room, takes_max, pause_at, skip, strict, targets,
                nodes, ways, path, rivals, rivals_end, found, taken, filled,
            )  # fmt: skip
        place = end
    return visited, links, ways, path, rivals, found, taken, room, status
