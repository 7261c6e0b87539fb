"""How far a query reaches beyond the rows of a match, which decides what a stream must keep."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.engine.match.contract import Task
from outpace.pattern import bound
from outpace.pattern.query import Per


@dataclass(frozen=True, slots=True)
class Reach:
    """Rows before and after a match that its predicates and measures read.

    Parameters
    ----------
    back, ahead
        The largest PREV and NEXT, in rows.
    history
        Whether a partition must be remembered when it has no rows any more: it numbers matches,
        has `^`, looks back, or has a limit.
    """

    back: int
    ahead: int
    history: bool


def reach_of(task: Task) -> Reach:
    """Find how far a query reaches."""
    trees = [p.expression for p in task.bound.predicates if p.expression is not None]
    trees += [measure.expression for measure in task.bound.measures]
    back = ahead = 0
    history = any(limit.per is Per.PARTITION for limit in task.bound.query.limits)
    history = history or any(move.at_start for move in task.program.initial)
    for tree in trees:
        for node in bound.walk(tree):
            if isinstance(node, bound.Read | bound.Label | bound.Present):
                back = max(back, -node.place.shift)
                ahead = max(ahead, node.place.shift)
            history = history or isinstance(node, bound.Number)
    return Reach(back, ahead, history or back > 0)
