"""The program as flat arrays, in the form that the graph kernels read.

`graph_layout` also says which programs the graph covers: those whose end does not depend on later
rows. A trailing `!B` and `$` do, so programs with one give None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from outpace.engine.match.contract import Integers
from outpace.engine.match.count_ambiguity import is_ambiguous
from outpace.engine.match.program import ACCEPT, Move, Program
from outpace.pattern.ast import Link

#: Links as kernels see them.
STRICT, NEXT, ANY = 0, 1, 2

_LINKS = {Link.STRICT: STRICT, Link.NEXT: NEXT, Link.ANY: ANY}


class Layout(NamedTuple):
    """A program in arrays; `x_at[k] : x_at[k + 1]` is the part of `x` that belongs to k.

    Moves are sorted by target, source and rank; moves that accept are not among them.

    Parameters
    ----------
    variable, accepts
        For each position its variable, and whether a match may end there.
    initial, initial_first
        The initial moves in order of preference: their positions, and whether they hold only on
        the partition's first row.
    opening_at, opening, opening_until
        For each initial move the variables that forbid it, each unless the `until` beside it holds
        as well (-1: none).
    source, target, link, rank
        Of each move.
    group
        How many ACCEPTs the source prefers to the move: every move of a lower group comes first.
    incoming_at
        The moves into each position.
    outgoing_at, outgoing
        The moves out of each position.
    taking_at, taking
        The positions of each variable.
    next_at, next_moves
        For each variable the moves with link next to a position of it.
    guarded
        The moves that some event can close.
    close_at, close
        For each move the variables that close it (until, and possessive repetitions).
    release
        For each move the variable that ends the possessive repetitions in `kept`, or -1.
    kept_at, kept
        For each move the variables that close it unless `release` came first.
    ending
        The positions where a negation waits.
    ends_at, ends
        For each position the negations of skipped events.
    bars_at, bars
        For each position the negations of the very next event.
    ambiguous
        Whether two runs may give the same match.
    grouped
        Whether some position has moves on both sides of an ACCEPT, or only after it.
    """

    variable: Integers
    accepts: Integers
    initial: Integers
    initial_first: Integers
    opening_at: Integers
    opening: Integers
    opening_until: Integers
    source: Integers
    target: Integers
    link: Integers
    rank: Integers
    group: Integers
    incoming_at: Integers
    outgoing_at: Integers
    outgoing: Integers
    taking_at: Integers
    taking: Integers
    next_at: Integers
    next_moves: Integers
    guarded: Integers
    close_at: Integers
    close: Integers
    release: Integers
    kept_at: Integers
    kept: Integers
    ending: Integers
    ends_at: Integers
    ends: Integers
    bars_at: Integers
    bars: Integers
    ambiguous: bool
    grouped: bool


def graph_layout(program: Program, variables: int) -> Layout | None:
    """Lay out a program, or return None where the graph does not cover it.

    Examples
    --------
    >>> from outpace.engine.match.program import compile_program
    >>> from outpace.pattern.ast import Link, Var, concat
    >>> program = compile_program(concat([Var("A"), Var("B")], [Link.ANY]), ("A", "B"))
    >>> layout = graph_layout(program, 2)
    >>> layout.link.tolist(), layout.accepts.tolist()
    ([2], [0, 1])
    """
    if not covered(program):
        return None
    places = range(len(program.positions))
    moves = sorted(
        (move.target, source, rank, move)
        for source in places
        for rank, move in _ranked(program.follow[source])
    )
    releases = [_release(move) for *_, move in moves]
    if any(release is None for release in releases):
        return None
    variable = [position.variable for position in program.positions]
    numbers = range(len(moves))
    incoming_at, _ = _grouped(places, ((target, 0) for target, *_ in moves))
    outgoing_at, outgoing = _grouped(places, ((moves[n][1], n) for n in numbers))
    taking_at, taking = _grouped(range(variables), ((variable[p], p) for p in places))
    next_at, next_moves = _grouped(
        range(variables),
        ((variable[moves[n][0]], n) for n in numbers if moves[n][3].link is Link.NEXT),
    )
    close = [
        [*move.untils, *(hold.variable for hold in move.holds if hold.until is None)]
        for *_, move in moves
    ]
    kept = [[h.variable for h in move.holds if h.until is not None] for *_, move in moves]
    ends = [[n.variable for n in program.ends[p] if not n.immediate] for p in places]
    bars = [[n.variable for n in program.ends[p] if n.immediate] for p in places]
    opening = [move for move in program.initial if move.target != ACCEPT]
    forbidding = [_forbidding(move) for move in opening]
    opening_at, opening_variables = _flat([[pair[0] for pair in part] for part in forbidding])
    _, opening_untils = _flat([[pair[1] for pair in part] for part in forbidding])
    close_at, close_flat = _flat(close)
    kept_at, kept_flat = _flat(kept)
    ends_at, ends_flat = _flat(ends)
    bars_at, bars_flat = _flat(bars)
    return Layout(
        variable=_array(variable),
        accepts=_array(any(m.target == ACCEPT for m in program.follow[p]) for p in places),
        initial=_array(move.target for move in opening),
        initial_first=_array(move.at_start for move in opening),
        opening_at=opening_at,
        opening=opening_variables,
        opening_until=opening_untils,
        source=_array(source for _, source, *_ in moves),
        target=_array(target for target, *_ in moves),
        link=_array(_LINKS[move.link] for *_, move in moves),
        rank=_array(rank for _, _, rank, _ in moves),
        group=_array(_group(program.follow[source], rank) for _, source, rank, _ in moves),
        incoming_at=incoming_at,
        outgoing_at=outgoing_at,
        outgoing=outgoing,
        taking_at=taking_at,
        taking=taking,
        next_at=next_at,
        next_moves=next_moves,
        guarded=_array(n for n in numbers if close[n] or kept[n]),
        close_at=close_at,
        close=close_flat,
        release=_array(-1 if release is None else release for release in releases),
        kept_at=kept_at,
        kept=kept_flat,
        ending=_array(p for p in places if ends[p]),
        ends_at=ends_at,
        ends=ends_flat,
        bars_at=bars_at,
        bars=bars_flat,
        ambiguous=is_ambiguous(program),
        grouped=any(_group(program.follow[source], rank) for _, source, rank, _ in moves),
    )


def covered(program: Program) -> bool:
    """Say whether a match is complete with its last event, whatever comes later."""
    return not any(
        move.at_end or move.negations
        for moves in program.follow
        for move in moves
        if move.target == ACCEPT
    )


def _ranked(moves: Sequence[Move]) -> list[tuple[int, Move]]:
    return [(rank, move) for rank, move in enumerate(moves) if move.target != ACCEPT]


def _release(move: Move) -> int | None:
    """Return the one `until` of a move's possessive repetitions, -1 without, None with several."""
    untils = {hold.until for hold in move.holds if hold.until is not None}
    if len(untils) > 1:
        return None
    return next(iter(untils)) if untils else -1


def _group(moves: Sequence[Move], rank: int) -> int:
    return sum(move.target == ACCEPT for move in moves[:rank])


def _forbidding(move: Move) -> list[tuple[int, int]]:
    """Return what forbids an initial move: (variable, the `until` that lifts it or -1)."""
    return [(until, -1) for until in move.untils] + [
        (hold.variable, -1 if hold.until is None else hold.until) for hold in move.holds
    ]


def _array(values: Iterable[int]) -> Integers:
    return np.fromiter(values, np.int64)


def _flat(parts: Sequence[Sequence[int]]) -> tuple[Integers, Integers]:
    ends = np.cumsum([0, *(len(part) for part in parts)]).astype(np.int64)
    return ends, _array(value for part in parts for value in part)


def _grouped(keys: range, pairs: Iterable[tuple[int, int]]) -> tuple[Integers, Integers]:
    parts: list[list[int]] = [[] for _ in keys]
    for key, value in pairs:
        parts[key].append(value)
    return _flat(parts)
