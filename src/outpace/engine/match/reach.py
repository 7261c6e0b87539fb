"""How far a query reaches beyond the rows of a match, which decides what a stream must keep."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.engine.match.contract import Task
from outpace.engine.match.program import ACCEPT
from outpace.pattern import bound
from outpace.pattern.query import Per


@dataclass(frozen=True, slots=True)
class Reach:
    """Rows before and after a match that its predicates and measures read.

    Parameters
    ----------
    back, ahead
        The largest PREV and NEXT, in rows.
    numbered
        Whether it matters how many matches a partition had: they are numbered, or limited.
    anchored
        Whether it matters that a partition had rows: the pattern has `^`.
    awaits_row
        Whether a match may wait for the next row of its partition, whenever that comes: the pattern
        ends with `$`, or with what the next row must not be.
    """

    back: int
    ahead: int
    numbered: bool
    anchored: bool
    awaits_row: bool


def reach_of(task: Task) -> Reach:
    """Find how far a query reaches."""
    back = ahead = 0
    numbered = any(limit.per is Per.PARTITION for limit in task.bound.query.limits)
    for tree in task.bound.expressions:
        for node in bound.walk(tree):
            if isinstance(node, bound.Read | bound.Label | bound.Present):
                back = max(back, -node.place.shift)
                ahead = max(ahead, node.place.shift)
            numbered = numbered or isinstance(node, bound.MatchOrdinal)
    anchored = any(move.at_start for move in task.program.initial)
    awaits_row = any(
        move.at_end or any(negation.immediate for negation in move.negations)
        for moves in task.program.follow
        for move in moves
        if move.target == ACCEPT
    )
    return Reach(back, ahead, numbered, anchored, awaits_row)
