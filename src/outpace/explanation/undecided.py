"""UNDECIDED: the rows that a match of a stream may still start with, and how far each has come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from outpace.engine.match.contract import Block, Resume, Task
from outpace.engine.match.program import ACCEPT
from outpace.explanation.evidence import Evidence, TracedRun
from outpace.explanation.explore import explore

#: How many starts are shown, and how many rows are tried.
_SHOWN_MAX: Final = 5
_TRIED_MAX: Final = 200


def undecided(task: Task, block: Block, resume: Resume) -> list[str]:
    """Return a line for each row that a match may start with which later rows decide.

    Parameters
    ----------
    task, block
        A query, and the rows that a step looked at.
    resume
        Where matching stopped in them.
    """
    lines: list[str] = []
    if block.ended:
        return lines
    for tried, (evidence, start, number) in enumerate(_starts(task, block, resume)):
        if len(lines) == _SHOWN_MAX or tried == _TRIED_MAX:
            return [*lines, "and maybe more"]
        explored = explore(evidence, start, number=number)
        if explored.furthest.rows:
            lines.append(_line(evidence, explored.furthest, candidate=explored.candidate))
    return lines


def _starts(task: Task, block: Block, resume: Resume) -> Iterator[tuple[Evidence, int, int]]:
    """Yield the rows that are not settled as starts: the partition, the row, the next number."""
    for segment in range(len(block.segments) - 1):
        evidence = Evidence(task, block, segment)
        ordinals = block.ordinals[evidence.low : evidence.low + evidence.size]
        first = max(int(resume.next_start[segment]), int(resume.barrier[segment]) + 1)
        for start in np.flatnonzero(ordinals >= first).tolist():
            yield evidence, start, int(resume.number[segment]) + 1


def _line(evidence: Evidence, run: TracedRun, *, candidate: bool) -> str:
    program = evidence.task.program
    partition = evidence.partition_text()
    taken = ", ".join(
        f"{program.names[label]} is {evidence.row_name(row)}"
        for row, label in zip(run.rows[:3], run.labels[:3], strict=True)
    )
    if len(run.rows) > 3:
        taken += f", {len(run.rows) - 3} more"
    head = f"{taken} ({partition})" if partition else taken
    moves = program.follow[run.positions[-1]]
    names = dict.fromkeys(
        program.names[program.positions[move.target].variable]
        for move in moves
        if move.target != ACCEPT
    )
    if not names:
        return f"{head}: complete, but later rows may still rule it out"
    waits = " or ".join(names)
    return f"{head}: {'complete, may go on with' if candidate else 'waits for'} {waits}"
