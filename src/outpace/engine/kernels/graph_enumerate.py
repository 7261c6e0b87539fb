"""Reading the matches that one event completes out of the graph, in order.

First the part of the graph that leads to the completing event is collected, backwards: every node
and edge in it lies on a match, so this costs no more than the matches have elements (and a sort of
its nodes). Then it is walked forwards from each start, where no way is a dead end, which gives the
order of preference.
"""

from __future__ import annotations

from outpace.compiler.kernel import compiled_within
from outpace.engine.arrays import Booleans, Integers
from outpace.engine.kernels.graph_build import (
    ACCEPTS,
    AMBIGUOUS,
    BEFORE,
    CONTENDERS,
    EDGE,
    EDGES,
    FOUND,
    GROUP,
    GROUPED,
    JUMP,
    LATEST,
    LINKED,
    LINKED_END,
    LINKS,
    LIST,
    MARK,
    MOVE,
    NODE,
    OUT,
    OUTS,
    POSITION,
    RANK,
    ROW,
    STAMP,
    START,
    TAKEN,
    VARIABLE,
    GraphLayout,
    has_room,
)

# Columns of the tables below: links (from, move), ways on (to, rank, group), and the path walked
# (node, next way on, where its rivals begin).
FROM, BY = range(2)
TO, WAY_RANK, WAY_GROUP = range(3)
WAY_COLUMNS = 3
AT, CURSOR, RIVALS = range(3)

# Columns of the result tables: matches (start, completing row, end of its takes, the last row that
# had to be known, the time that had to come), takes.
START_ROW, LAST_ROW, TAKES_END, SETTLED, DEADLINE = range(5)
FOUND_COLUMNS = 5
TAKEN_ROW, TAKEN_POSITION = range(2)

# Fill levels of the result tables, the last start that an emitted match rules out, and the work
# done so far: nodes and links collected, steps walked, takes written.
MATCHES, TAKES, BARRIER, DONE_WORK = range(4)
# Where an enumeration paused: one more than the depth of the path (0: it did not), the nodes
# collected, the place of the start among them, and the rank of the first take before this one. Then
# how many matches there is room for, the links collected, and how often anything was collected.
HELD_DEPTH, HELD_COUNT, HELD_PLACE, HELD_RANK, ROOM, LINKED_COUNT, COLLECTED = range(4, 11)
FILLED_SIZE = 11

# What an enumeration ends with; paused or full, it is to be called again.
DONE, STOPPED, TOO_MANY, BAD_SKIP, PAUSED, FULL = range(6)

# Where to go on after a match.
SKIP_NONE, SKIP_NEXT_ROW, SKIP_PAST_LAST, SKIP_FIRST, SKIP_LAST = range(5)


@compiled_within
def visit(nodes: Integers, visited: Integers, filled: Integers, node: int) -> None:
    """Note a node that leads to the completing event, once."""
    if nodes[node, STAMP] != filled[COLLECTED]:
        nodes[node, STAMP] = filled[COLLECTED]
        nodes[node, MARK] = -1
        nodes[node, OUTS] = 0
        visited[filled[HELD_COUNT]] = node
        filled[HELD_COUNT] += 1


@compiled_within
def collect(
    layout: GraphLayout,
    first: int,
    last: int,
    start_low: int,
    lows: Integers,
    by_step: bool,
    nodes: Integers,
    entries: Integers,
    edges: Integers,
    visited: Integers,
    links: Integers,
    filled: Integers,
    wanted: Integers,
) -> bool:
    """Collect what leads to the accepting nodes among `first .. last`, backwards.

    False asks for more links, and then for the same call.
    """
    filled[COLLECTED] += 1
    filled[HELD_COUNT] = 0
    linked = 0
    for node in range(first, last):
        if layout.positions[nodes[node, POSITION], ACCEPTS] and nodes[node, LATEST] >= start_low:
            visit(nodes, visited, filled, node)
    done = 0
    while done < filled[HELD_COUNT]:
        node = visited[done]
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
                visit(nodes, visited, filled, before)
                # Two moves between the same positions make one step: the preferred one counts.
                if nodes[before, MARK] != node:
                    nodes[before, MARK] = node
                    nodes[before, OUTS] += 1
                    if not has_room(links, linked + 1, wanted, LINKS):
                        return False
                    links[linked, FROM] = before
                    links[linked, BY] = edges[edge, MOVE]
                    linked += 1
                if strict:
                    break
                entry = entries[entry, BEFORE]
        nodes[node, LINKED_END] = linked
    filled[LINKED_COUNT] = linked
    filled[DONE_WORK] += filled[HELD_COUNT] + linked
    return True


@compiled_within
def sort(visited: Integers, count: int) -> None:
    """Sort nodes that were collected backwards: Shell's way, which compiles in no time."""
    for place in range(count // 2):
        other = count - 1 - place
        visited[place], visited[other] = visited[other], visited[place]
    gap = count
    while gap > 1:
        gap = max(1, gap * 5 // 11)
        for place in range(gap, count):
            node = visited[place]
            at = place
            while at >= gap and visited[at - gap] > node:
                visited[at] = visited[at - gap]
                at -= gap
            visited[at] = node


@compiled_within
def turn_round(
    layout: GraphLayout,
    nodes: Integers,
    visited: Integers,
    links: Integers,
    ways: Integers,
    filled: Integers,
) -> None:
    """Sort the collected nodes and list the ways on from each, in order of preference."""
    count = filled[HELD_COUNT]
    sort(visited, count)
    at = 0
    groups = 1
    for place in range(count):
        node = visited[place]
        nodes[node, OUT] = at
        at += nodes[node, OUTS]
        nodes[node, OUTS] = 0
    for link in range(filled[LINKED_COUNT]):
        groups = max(groups, 1 + layout.moves[links[link, BY], GROUP])
    for group in range(groups):
        for number in range(count):
            node = visited[number]
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
                    for column in range(WAY_COLUMNS):
                        ways[place, column] = ways[place - 1, column]
                    place -= 1
                ways[place, TO] = node
                ways[place, WAY_RANK] = layout.moves[move, RANK]
                ways[place, WAY_GROUP] = group


@compiled_within
def add_rival(rivals: Integers, low: int, high: int, node: int) -> int:
    """Add a node to the rivals unless it is there; return where they end."""
    for place in range(low, high):
        if rivals[place] == node:
            return high
    rivals[high] = node
    return high + 1


@compiled_within
def first_way_to(nodes: Integers, ways: Integers, low: int, high: int, row: int) -> int:
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
    layout: GraphLayout,
    nodes: Integers,
    ways: Integers,
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
def skip_target(path: Integers, depth: int, nodes: Integers, targets: Booleans, skip: int) -> int:
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
    path: Integers,
    depth: int,
    settled: int,
    nodes: Integers,
    found: Integers,
    taken: Integers,
    filled: Integers,
) -> None:
    """Append the match on the path to the result tables."""
    match, at = filled[MATCHES], filled[TAKES]
    for step in range(depth + 1):
        node = path[step, AT]
        taken[at + step, TAKEN_ROW] = nodes[node, ROW]
        taken[at + step, TAKEN_POSITION] = nodes[node, POSITION]
    found[match, START_ROW] = nodes[path[0, AT], ROW]
    found[match, LAST_ROW] = nodes[path[depth, AT], ROW]
    found[match, TAKES_END] = at + depth + 1
    found[match, SETTLED] = settled
    filled[MATCHES] += 1
    filled[TAKES] += depth + 1
    filled[DONE_WORK] += depth + 1
    filled[ROOM] -= 1


@compiled_within
def walk(
    layout: GraphLayout,
    root: int,
    last: int,
    settled: int,
    takes_max: int,
    pause_at: int,
    skip: int,
    strict: bool,
    targets: Booleans,
    nodes: Integers,
    ways: Integers,
    path: Integers,
    rivals: Integers,
    rivals_end: int,
    found: Integers,
    taken: Integers,
    filled: Integers,
    wanted: Integers,
) -> int:
    """Write all matches from one first take, in order; return a status.

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
            return PAUSED
        filled[DONE_WORK] += 1
        node = path[depth, AT]
        if nodes[node, ROW] == last:
            # With a rival at the end, a preferred run has given the same match already.
            if path[depth, RIVALS] == path[depth + 1, RIVALS]:
                takes = filled[TAKES] + depth + 1
                if takes > takes_max:
                    return TOO_MANY
                roomy = has_room(found, filled[MATCHES] + 1, wanted, FOUND)
                if not (has_room(taken, takes, wanted, TAKEN) and roomy):
                    filled[HELD_DEPTH] = depth + 1
                    return FULL
                write_match(path, depth, settled, nodes, found, taken, filled)
                if skip >= SKIP_FIRST:
                    target = skip_target(path, depth, nodes, targets, skip)
                    if strict and (target < 0 or target == nodes[root, ROW]):
                        return BAD_SKIP
                    filled[BARRIER] = max(filled[BARRIER], target - 1)
                    if filled[BARRIER] >= nodes[root, ROW]:
                        return STOPPED
                if filled[ROOM] == 0:
                    return STOPPED
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
    return DONE


@compiled_within
def enumerate_row(
    layout: GraphLayout,
    first: int,
    last: int,
    start_low: int,
    lows: Integers,
    by_step: bool,
    settled: int,
    takes_max: int,
    pause_at: int,
    skip: int,
    strict: bool,
    targets: Booleans,
    nodes: Integers,
    entries: Integers,
    edges: Integers,
    visited: Integers,
    links: Integers,
    ways: Integers,
    path: Integers,
    rivals: Integers,
    found: Integers,
    taken: Integers,
    filled: Integers,
    wanted: Integers,
) -> int:
    """Write the matches that the nodes `first .. last`, all of one row, complete.

    In order of start, then preference, as many as there is room for. Returns a status: PAUSED when
    the work done exceeds `pause_at`, FULL when a table is short; then it is to be called again.
    """
    if filled[HELD_DEPTH] == 0:
        if not collect(
            layout, first, last, start_low, lows, by_step,
            nodes, entries, edges, visited, links, filled, wanted,
        ):  # fmt: skip
            return FULL
        wanted[CONTENDERS] = 0
        if layout.header[AMBIGUOUS]:
            wanted[CONTENDERS] = (filled[HELD_COUNT] + 2) * len(layout.positions)
        if wanted[CONTENDERS] > len(rivals):
            return FULL
        turn_round(layout, nodes, visited, links, ways, filled)
        filled[HELD_PLACE] = 0
        filled[HELD_RANK] = -1
    count = filled[HELD_COUNT]
    row = nodes[first, ROW]
    while filled[HELD_PLACE] < count:
        place = filled[HELD_PLACE]
        start = nodes[visited[place], ROW]
        end = place
        while end < count and nodes[visited[end], ROW] == start:
            end += 1
        while start >= start_low:
            # The first takes of a start, by rank: there are few, so each is looked for.
            rank = filled[HELD_RANK]
            root = -1
            for other in range(place, end):
                node = visited[other]
                if nodes[node, START] > rank and (
                    root < 0 or nodes[node, START] < nodes[root, START]
                ):
                    root = node
            if root < 0:
                break
            rivals_end = 0
            for other in range(place, end) if layout.header[AMBIGUOUS] else range(0):
                node = visited[other]
                if (
                    0 <= nodes[node, START] <= rank
                    and layout.positions[nodes[node, POSITION], VARIABLE]
                    == layout.positions[nodes[root, POSITION], VARIABLE]
                ):
                    rivals[rivals_end] = node
                    rivals_end += 1
            # As plain -1 and 0 they have other types at first, for which `walk` would be compiled.
            status = walk(
                layout, int(root), row, settled, takes_max, pause_at, skip, strict, targets,
                nodes, ways, path, rivals, int(rivals_end), found, taken, filled, wanted,
            )  # fmt: skip
            if status != DONE:
                return status
            filled[HELD_RANK] = nodes[root, START]
        filled[HELD_PLACE] = end
        filled[HELD_RANK] = -1
    return DONE
