"""The program as a few tables of integers, in the form that the graph kernels read.

`graph_layout` also says which programs the graph covers: those whose end does not depend on later
rows. A trailing `!B` and `$` do, so programs with one give None.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import numpy as np

from outpace.engine.arrays import Integers
from outpace.engine.kernels.graph_build import (
    ANY,
    CLOSE,
    CLOSE_END,
    ENDS,
    ENDS_END,
    GROUP,
    KEPT,
    KEPT_END,
    NEXT,
    STRICT,
    GraphLayout,
)
from outpace.engine.match.count_ambiguity import is_ambiguous
from outpace.engine.match.program import ACCEPT, Program, Transition, completing
from outpace.pattern.ast import Link

_LINKS = {Link.STRICT: STRICT, Link.NEXT: NEXT, Link.ANY: ANY}


def graph_layout(program: Program, variables: int) -> GraphLayout | None:
    """Lay out a program, or return None where the graph does not cover it.

    Examples
    --------
    >>> from outpace.engine.kernels.graph_build import ACCEPTS, LINK
    >>> from outpace.engine.match.program import compile_program
    >>> from outpace.pattern.ast import Link, Var, concat
    >>> program = compile_program(concat([Var("A"), Var("B")], [Link.ANY]), ("A", "B"))
    >>> layout = graph_layout(program, 2)
    >>> layout.moves[:, LINK].tolist(), layout.positions[:, ACCEPTS].tolist()
    ([2], [0, 1])
    """
    if not covered(program):
        return None
    useful = completing(program)
    moves = sorted(
        (move.target, source, rank)
        for source, follow in enumerate(program.follow)
        for rank, move in enumerate(follow)
        if move.target != ACCEPT and useful[move.target]
    )
    if any(_release(program.follow[source][rank]) is None for _, source, rank in moves):
        return None
    flat = _Flat()
    move_lines = [_move_line(program, flat, *move) for move in moves]
    position_lines = _position_lines(program, flat, moves)
    variable_lines = _variable_lines(program, flat, moves, variables)
    opening = [m for m in program.initial if m.target != ACCEPT and useful[m.target]]
    initial_lines = [
        [move.target, int(move.at_start), *flat.add(_forbidding(move))] for move in opening
    ]
    header = [
        *flat.add(n for n, line in enumerate(move_lines) if _is_guarded(line)),
        *flat.add(n for n, line in enumerate(position_lines) if line[ENDS] < line[ENDS_END]),
        int(is_ambiguous(program)),
        int(any(line[GROUP] for line in move_lines)),
    ]
    return GraphLayout(
        _table(position_lines, 10),
        _table(move_lines, 10),
        _table(variable_lines, 4),
        _table(initial_lines, 4),
        np.array(header, np.int64),
        np.array(flat.values, np.int64),
    )


def covered(program: Program) -> bool:
    """Say whether a match is complete with its last event, whatever comes later."""
    return not any(
        move.at_end or move.negations
        for moves in program.follow
        for move in moves
        if move.target == ACCEPT
    )


class _Flat:
    """Lists of numbers, one after the other."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def add(self, values: Iterable[int]) -> tuple[int, int]:
        """Append a list and return where it is."""
        start = len(self.values)
        self.values += values
        return start, len(self.values)


def _move_line(program: Program, flat: _Flat, target: int, source: int, rank: int) -> list[int]:
    move = program.follow[source][rank]
    closing = [*move.untils, *(hold.variable for hold in move.holds if hold.until is None)]
    kept = [hold.variable for hold in move.holds if hold.until is not None]
    group = sum(other.target == ACCEPT for other in program.follow[source][:rank])
    release = _release(move)
    assert release is not None
    return [
        source, target, _LINKS[move.link], rank, group,
        *flat.add(closing), release, *flat.add(kept),
    ]  # fmt: skip


def _position_lines(
    program: Program, flat: _Flat, moves: Sequence[tuple[int, int, int]]
) -> list[list[int]]:
    outgoing: list[list[int]] = [[] for _ in program.positions]
    for number, (_, source, _) in enumerate(moves):
        outgoing[source].append(number)
    targets = [target for target, *_ in moves]
    return [
        [
            program.positions[position].variable,
            int(any(move.target == ACCEPT for move in program.follow[position])),
            bisect_left(targets, position),
            bisect_right(targets, position),
            *flat.add(outgoing[position]),
            *flat.add(negation.variable for negation in ends if not negation.immediate),
            *flat.add(negation.variable for negation in ends if negation.immediate),
        ]
        for position, ends in enumerate(program.ends)
    ]


def _variable_lines(
    program: Program, flat: _Flat, moves: Sequence[tuple[int, int, int]], variables: int
) -> list[list[int]]:
    taking: list[list[int]] = [[] for _ in range(variables)]
    awaited: list[list[int]] = [[] for _ in range(variables)]
    for number, position in enumerate(program.positions):
        taking[position.variable].append(number)
    for number, (target, source, rank) in enumerate(moves):
        if program.follow[source][rank].link is Link.NEXT:
            awaited[program.positions[target].variable].append(number)
    return [[*flat.add(taking[v]), *flat.add(awaited[v])] for v in range(variables)]


def _is_guarded(line: list[int]) -> bool:
    return line[CLOSE] < line[CLOSE_END] or line[KEPT] < line[KEPT_END]


def _release(move: Transition) -> int | None:
    """Return the one `until` of a move's possessive repetitions, -1 without, None with several."""
    untils = {hold.until for hold in move.holds if hold.until is not None}
    if len(untils) > 1:
        return None
    return next(iter(untils)) if untils else -1


def _forbidding(move: Transition) -> list[int]:
    pairs = [(until, -1) for until in move.untils] + [
        (hold.variable, -1 if hold.until is None else hold.until) for hold in move.holds
    ]
    return [value for pair in pairs for value in pair]


def _table(lines: list[list[int]], columns: int) -> Integers:
    return np.array(lines, np.int64).reshape(len(lines), columns)
