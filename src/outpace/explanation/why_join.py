"""WHY and UNDECIDED for joins: what makes two rows a pair, and which rows still wait for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from outpace.engine.match.contract import Block, BlockMatches, Outcome, Task
from outpace.engine.rows.times import from_integers
from outpace.explanation.evidence import Evidence, TracedRun
from outpace.pattern.join import SIDES
from outpace.pattern.query import JoinKind

#: How many rows of a side are shown that wait.
_SHOWN_MAX: Final = 5


def why_joined(task: Task, block: Block, found: BlockMatches, index: int) -> str:
    """Explain a row of the result: the pair that it is of, or why a row has no partner.

    Parameters
    ----------
    task, block, found
        A join, the rows of both sides, and what was found in them.
    index
        The place in `found`, from 0.
    """
    evidence = Evidence(task, block, int(found.segment[index]))
    takes = slice(int(found.offsets[index]), int(found.offsets[index + 1]))
    rows = [int(row) - evidence.low for row in found.rows[takes]]
    sides = [_side(task, int(position)) for position in found.positions[takes]]
    assert task.bound.within is not None, "a join is within a bound"
    within = task.bound.within - 1
    head = f"match {index}, {evidence.partition_text()}: "
    names = [_named(evidence, row, side) for row, side in zip(rows, sides, strict=True)]
    if len(rows) == 1:
        until = _until(evidence, rows[0], within)
        return f"{head}{names[0]} has no partner: none came with a time up to {until}"
    apart, known = evidence.elapsed(*rows), task.bound.uncertainty
    off = 0 if known is None else known.bound
    text = f"{head}{' and '.join(names)} are {evidence.duration_text(apart)} apart, "
    if off:
        text += f"known to within {evidence.duration_text(off)}, "
    return f"{text}at most {evidence.duration_text(within - off)}"


def undecided_joined(task: Task, block: Block, outcome: Outcome) -> list[str]:
    """Return a line for each row that a partner may still come for, the left side first.

    Parameters
    ----------
    task, block, outcome
        A join, the rows that a step looked at, and what it found in them.
    """
    lines: list[str] = []
    if block.ended:
        return lines
    waiting = list(_waiting(task, block, outcome))
    for side in SIDES:
        own = [line for of, line in waiting if of == side]
        lines += own[:_SHOWN_MAX]
        if len(own) > _SHOWN_MAX:
            lines.append(f"and {len(own) - _SHOWN_MAX:,} more of {side}")
    return lines


def _waiting(task: Task, block: Block, outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Yield the side of each row that is kept, and what it waits for."""
    assert task.bound.within is not None, "a join is within a bound"
    lonely = task.bound.query.join is JoinKind.LEFT
    for segment, first in enumerate(outcome.keep_from.tolist()):
        evidence = Evidence(task, block, segment)
        paired = {int(one) for one in outcome.resume.consumed[segment]}
        for row in range(first - evidence.low, evidence.size):
            side = next((one for one in SIDES if _is_of(evidence, row, one)), None)
            if side is None:
                continue
            alone = lonely and side == SIDES[0]
            alone = alone and int(block.ordinals[evidence.low + row]) not in paired
            yield (
                side,
                f"{_named(evidence, row, side)} ({evidence.partition_text()}): a partner may come "
                f"up to {_until(evidence, row, task.bound.within - 1)}"
                f"{', it has none yet' if alone else ''}",
            )


def _side(task: Task, position: int) -> str:
    label = task.program.names[task.program.positions[position].variable]
    return SIDES["LR".index(label)]


def _is_of(evidence: Evidence, row: int, side: str) -> bool:
    """Whether a row can be in a pair as one of a side."""
    label = "LR"[SIDES.index(side)]
    return evidence.holds(evidence.task.program.names.index(label), row, TracedRun())


def _named(evidence: Evidence, row: int, side: str) -> str:
    return f"{evidence.row_name(row)} of {side} at {evidence.order_text(row)}"


def _until(evidence: Evidence, row: int, within: int) -> str:
    """Return the last time that a partner of a row can have."""
    bound = evidence.task.bound
    assert bound.time is not None, "a join has a time"
    kind = bound.schema.field(bound.time).type
    last = int(evidence.block.times[evidence.low + row]) + within
    return str(from_integers(np.array([last]), kind)[0])
