"""The graph of all partial matches, built row by row.

A node is a row taken at a position; it stands for all runs that end there. Each move out of a
position has a list of the nodes that wait for it. Lists only ever grow at their newer end, so a
node that is taken from a list needs to remember only where the list ended then: the runs before it
are shared, never copied. Closing a move starts its list anew and leaves the old one to the nodes
that point into it.

Every entry knows the latest start of the runs through its node, and the next older entry with a
later one, so that reading a list jumps over what WITHIN has cut off.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from outpace.compiler.kernel import compiled_within
from outpace.engine.arrays import Booleans, Integers

# Links as kernels see them.
STRICT, NEXT, ANY = range(3)

# A column `x` with a neighbour `x_END` is a range of lines of the moves table (INCOMING), else of
# `flat`.

# Columns of the positions table: the variable, whether a match may end there, the moves that lead
# to it and from it, the negations of skipped events and those of the very next event.
VARIABLE, ACCEPTS, INCOMING, INCOMING_END, OUTGOING, OUTGOING_END = range(6)
ENDS, ENDS_END, BARS, BARS_END = range(6, 10)

# Columns of the moves table: where from and to, the link, the place among the moves of its source,
# how many ACCEPTs the source prefers to it (moves of a lower group come first), the variables that
# close it (until, and possessive repetitions), the variable that ends the possessive repetitions in
# KEPT (or -1), the variables that close it unless RELEASE came first.
SOURCE, TARGET, LINK, RANK, GROUP, CLOSE, CLOSE_END, RELEASE, KEPT, KEPT_END = range(10)

# Columns of the variables table: the positions that take it, the moves of link next to one of them.
TAKING, TAKING_END, AWAITED, AWAITED_END = range(4)

# Columns of the table of initial moves, in order of preference: the position, whether it holds only
# on the partition's first row, and pairs (variable that forbids it, `until` that lifts that or -1).
OPENED, FIRST_ONLY, FORBIDDEN, FORBIDDEN_END = range(4)

# Places in the header: the moves that some event can close, the positions where a negation waits,
# whether two runs may give the same match, whether some move has a GROUP above 0.
GUARDED, GUARDED_END, ENDING, ENDING_END, AMBIGUOUS, GROUPED = range(6)


class GraphLayout(NamedTuple):
    """A program in tables; the constants of this module name their columns."""

    positions: Integers
    moves: Integers
    variables: Integers
    initial: Integers
    header: Integers
    flat: Integers


# Columns of the node table: what it takes, the latest and earliest start of its runs, its edges,
# the rank of the initial move that starts a run there (or -1); the rest belongs to enumeration.
ROW, POSITION, LATEST, EARLIEST, EDGE, EDGES, START, STAMP, MARK = range(9)
LINKED, LINKED_END, OUT, OUTS = range(9, 13)
NODE_COLUMNS = 13

# Columns of the entry table: the node, the entry before it, the next older one with a later start.
NODE, BEFORE, JUMP = range(3)
ENTRY_COLUMNS = 3

# Columns of the edge table: the move, and the end of its list (or -1 - node for a strict link).
MOVE, LIST = range(2)
EDGE_COLUMNS = 2

# Columns of the list table: the newest entry, the latest and the earliest start in the list.
TAIL, LIST_LATEST, LIST_EARLIEST = range(3)
LIST_COLUMNS = 3

# Fill levels of the tables.
NODES, ENTRIES, EDGE_COUNT = range(3)

# Tables of the enumeration. `wanted` has for each table the lines that it needs: a kernel that has
# too few returns, and goes on when Python has made room.
LINKS, FOUND, TAKEN, CONTENDERS = range(3, 7)

#: An earliest start where there is none.
NEVER = np.iinfo(np.int64).max


@compiled_within
def window_lows(times: Integers, low: int, high: int, within: int, lows: Integers) -> None:
    """Fill in, for each row, the first row that is less than `within` before it."""
    first = low
    for row in range(low, high):
        while times[row] - times[first] >= within:
            first += 1
        lows[row] = first


@compiled_within
def has_room(table: Integers, lines: int, wanted: Integers, number: int) -> bool:
    """Say whether a table has so many lines, and note that it needs them."""
    wanted[number] = lines
    return lines <= len(table)


@compiled_within
def clear_list(lists: Integers, number: int) -> None:
    """Let nothing wait in a list any more."""
    lists[number, TAIL] = -1
    lists[number, LIST_LATEST] = -1
    lists[number, LIST_EARLIEST] = NEVER


@compiled_within
def add_entry(
    nodes: Integers, entries: Integers, lists: Integers, fill: Integers, to: int, node: int
) -> None:
    """Let a node wait in a list."""
    entry = fill[ENTRIES]
    fill[ENTRIES] += 1
    before = lists[to, TAIL]
    latest = nodes[node, LATEST]
    jump = before
    while jump >= 0 and nodes[entries[jump, NODE], LATEST] <= latest:
        jump = entries[jump, JUMP]
    entries[entry, NODE] = node
    entries[entry, BEFORE] = before
    entries[entry, JUMP] = jump
    lists[to, TAIL] = entry
    lists[to, LIST_LATEST] = max(lists[to, LIST_LATEST], latest)
    lists[to, LIST_EARLIEST] = min(lists[to, LIST_EARLIEST], nodes[node, EARLIEST])


@compiled_within
def any_holds(layout: GraphLayout, truth: Booleans, row: int, low: int, high: int) -> bool:
    """Say whether the row satisfies one of the variables in a part of the list."""
    for place in range(low, high):  # noqa: SIM110 - kernels have no generators
        if truth[row, layout.flat[place]]:
            return True
    return False


@compiled_within
def close_moves(
    layout: GraphLayout,
    truth: Booleans,
    row: int,
    nodes: Integers,
    entries: Integers,
    lists: Integers,
    fill: Integers,
    wanted: Integers,
) -> bool:
    """Close what this row's event closes before it can be taken; False asks for more entries.

    What is closed already is not closed again when the call is repeated.
    """
    moves = len(layout.moves)
    for place in range(layout.header[GUARDED], layout.header[GUARDED_END]):
        move = layout.flat[place]
        line = layout.moves[move]
        if any_holds(layout, truth, row, line[CLOSE], line[CLOSE_END]):
            clear_list(lists, move)
            clear_list(lists, moves + move)
        release = line[RELEASE]
        if release < 0:
            continue
        if truth[row, release]:
            end = fill[ENTRIES]
            entry = lists[move, TAIL]
            while entry >= 0:
                end += 1
                entry = entries[entry, BEFORE]
            if not has_room(entries, end + moves, wanted, ENTRIES):
                return False
            # The nodes are copied backwards, to where their entries will be.
            at = end
            entry = lists[move, TAIL]
            while entry >= 0:
                at -= 1
                entries[at, NODE] = entries[entry, NODE]
                entry = entries[entry, BEFORE]
            for entry in range(at, end):
                add_entry(nodes, entries, lists, fill, moves + move, entries[entry, NODE])
            clear_list(lists, move)
        elif any_holds(layout, truth, row, line[KEPT], line[KEPT_END]):
            clear_list(lists, move)
    return True


@compiled_within
def start_rank(layout: GraphLayout, truth: Booleans, row: int, first: bool, position: int) -> int:
    """Return the rank of the best initial move that takes this row there, or -1."""
    for move in range(len(layout.initial)):
        line = layout.initial[move]
        if line[OPENED] != position or (line[FIRST_ONLY] and not first):
            continue
        open_here = True
        for place in range(line[FORBIDDEN], line[FORBIDDEN_END], 2):
            until = layout.flat[place + 1]
            lifted = until >= 0 and truth[row, until]
            if truth[row, layout.flat[place]] and not lifted:
                open_here = False
        if open_here:
            return move
    return -1


@compiled_within
def add_edge(edges: Integers, fill: Integers, move: int, end: int) -> None:
    """Connect the newest node to the runs before it."""
    edges[fill[EDGE_COUNT], MOVE] = move
    edges[fill[EDGE_COUNT], LIST] = end
    fill[EDGE_COUNT] += 1


@compiled_within
def take_row(
    layout: GraphLayout,
    truth: Booleans,
    row: int,
    position: int,
    rank: int,
    start_low: int,
    step_low: int,
    nodes: Integers,
    entries: Integers,
    edges: Integers,
    lists: Integers,
    newest: Integers,
    fill: Integers,
) -> None:
    """Make the node of a row at a position, if a run can take it."""
    moves = len(layout.moves)
    first_edge = fill[EDGE_COUNT]
    latest = row if rank >= 0 else -1
    earliest = row if rank >= 0 else NEVER
    taken = layout.positions[position]
    for move in range(taken[INCOMING], taken[INCOMING_END]):
        line = layout.moves[move]
        if line[LINK] == STRICT:
            node = newest[line[SOURCE]]
            if (
                node >= 0
                and nodes[node, ROW] == row - 1
                and nodes[node, LATEST] >= start_low
                and row - 1 >= step_low
                and not any_holds(layout, truth, row, line[CLOSE], line[CLOSE_END])
                and (
                    (line[RELEASE] >= 0 and truth[row, line[RELEASE]])
                    or not any_holds(layout, truth, row, line[KEPT], line[KEPT_END])
                )
            ):
                add_edge(edges, fill, move, -1 - node)
                latest = max(latest, nodes[node, LATEST])
                earliest = min(earliest, nodes[node, EARLIEST])
            continue
        for number in range(move, 2 * moves, moves):
            tail = lists[number, TAIL]
            if (
                tail >= 0
                and lists[number, LIST_LATEST] >= start_low
                and nodes[entries[tail, NODE], ROW] >= step_low
            ):
                add_edge(edges, fill, move, tail)
                latest = max(latest, lists[number, LIST_LATEST])
                earliest = min(earliest, lists[number, LIST_EARLIEST])
    if latest < 0:
        return
    node = fill[NODES]
    fill[NODES] += 1
    nodes[node, ROW] = row
    nodes[node, POSITION] = position
    nodes[node, LATEST] = latest
    nodes[node, EARLIEST] = earliest
    nodes[node, EDGE] = first_edge
    nodes[node, EDGES] = fill[EDGE_COUNT]
    nodes[node, START] = rank
    nodes[node, STAMP] = -1


@compiled_within
def wait_after(
    layout: GraphLayout,
    truth: Booleans,
    row: int,
    end: int,
    first_node: int,
    nodes: Integers,
    entries: Integers,
    lists: Integers,
    newest: Integers,
    fill: Integers,
) -> None:
    """Close what this row's event closes after it could be taken, and let its own nodes wait."""
    moves = len(layout.moves)
    for variable in range(len(layout.variables)):
        if truth[row, variable]:
            line = layout.variables[variable]
            for place in range(line[AWAITED], line[AWAITED_END]):
                clear_list(lists, layout.flat[place])
                clear_list(lists, moves + layout.flat[place])
    for waiting in range(layout.header[ENDING], layout.header[ENDING_END]):
        line = layout.positions[layout.flat[waiting]]
        if any_holds(layout, truth, row, line[ENDS], line[ENDS_END]):
            for place in range(line[OUTGOING], line[OUTGOING_END]):
                clear_list(lists, layout.flat[place])
                clear_list(lists, moves + layout.flat[place])
    for node in range(first_node, fill[NODES]):
        position = nodes[node, POSITION]
        line = layout.positions[position]
        newest[position] = -1
        if row + 1 < end and any_holds(layout, truth, row + 1, line[BARS], line[BARS_END]):
            continue
        newest[position] = node
        for place in range(line[OUTGOING], line[OUTGOING_END]):
            move = layout.flat[place]
            if layout.moves[move, LINK] != STRICT:
                add_entry(nodes, entries, lists, fill, move, node)


@compiled_within
def add_row(
    layout: GraphLayout,
    truth: Booleans,
    row: int,
    end: int,
    first: bool,
    startable: bool,
    takeable: bool,
    start_low: int,
    step_low: int,
    nodes: Integers,
    entries: Integers,
    edges: Integers,
    lists: Integers,
    newest: Integers,
    fill: Integers,
    wanted: Integers,
) -> bool:
    """Add one row to the graph; False asks for more room, and then for the same call.

    Parameters
    ----------
    end
        The row up to which rows may be looked at.
    first, startable, takeable
        Whether the row is the partition's first, may start a match, may be in a match.
    start_low, step_low
        The first row where a match, or the take before this one, may be; -1 without WITHIN.
    """
    moves = len(layout.moves)
    roomy = has_room(nodes, fill[NODES] + len(layout.positions), wanted, NODES)
    roomy &= has_room(edges, fill[EDGE_COUNT] + 2 * moves, wanted, EDGE_COUNT)
    roomy &= has_room(entries, fill[ENTRIES] + moves, wanted, ENTRIES)
    if not roomy or not close_moves(layout, truth, row, nodes, entries, lists, fill, wanted):
        return False
    first_node = fill[NODES]
    if takeable:
        for variable in range(len(layout.variables)):
            if not truth[row, variable]:
                continue
            line = layout.variables[variable]
            for place in range(line[TAKING], line[TAKING_END]):
                position = layout.flat[place]
                rank = -1
                if startable:
                    rank = start_rank(layout, truth, row, first, position)
                take_row(
                    layout, truth, row, position, rank, start_low, step_low,
                    nodes, entries, edges, lists, newest, fill,
                )  # fmt: skip
    wait_after(layout, truth, row, end, first_node, nodes, entries, lists, newest, fill)
    return True


@compiled_within
def empty_graph(lists: Integers, newest: Integers, fill: Integers) -> None:
    """Forget all nodes."""
    fill[:] = 0
    newest[:] = -1
    for number in range(len(lists)):
        clear_list(lists, number)


@compiled_within
def earliest_live(
    layout: GraphLayout,
    row: int,
    start_low: int,
    step_low: int,
    nodes: Integers,
    entries: Integers,
    lists: Integers,
    newest: Integers,
) -> int:
    """Return the earliest start whose runs can go on after `row`, or NEVER; WITHIN cuts it off."""
    earliest = NEVER
    for number in range(len(lists)):
        tail = lists[number, TAIL]
        if (
            tail >= 0
            and lists[number, LIST_LATEST] >= start_low
            and nodes[entries[tail, NODE], ROW] >= step_low
        ):
            earliest = min(earliest, max(start_low, lists[number, LIST_EARLIEST]))
    for move in range(len(layout.moves)):
        node = newest[layout.moves[move, SOURCE]]
        if (
            layout.moves[move, LINK] == STRICT
            and node >= 0
            and nodes[node, ROW] == row
            and nodes[node, LATEST] >= start_low
            and row >= step_low
        ):
            earliest = min(earliest, max(start_low, nodes[node, EARLIEST]))
    return earliest
