"""WHY: one match explained row by row, with the values that made each condition true.

UNDECIDED: the rows that a match of a stream may still start with, and how far each has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from outpace.engine.match.after import barrier_after, skip_variables
from outpace.engine.match.contract import Block, BlockMatches, Resume, Task
from outpace.engine.match.program import ACCEPT, Transition
from outpace.errors import MatchError
from outpace.explanation.diagnose import explain_move
from outpace.explanation.evidence import Evidence, TracedRun
from outpace.explanation.explore import explore
from outpace.explanation.text_table import text_table
from outpace.pattern.ast import Link
from outpace.pattern.query import Selection, Skip

#: Of a longer match, only the first and last takes are shown.
_TAKES_MAX: Final = 60


def why(task: Task, block: Block, found: BlockMatches, index: int) -> str:
    """Explain a match: what each of its rows was taken for, and what happened then.

    Parameters
    ----------
    task, block, found
        A query, the rows, and the matches in them.
    index
        The match's place in `found`, from 0.
    """
    count = len(found.start)
    if not 0 <= index < count:
        raise MatchError(f"there is no match {index}", detail=f"there are {count}, counted from 0")
    evidence = Evidence(task, block, int(found.segment[index]))
    run = run_of(task, evidence, found, index)
    number = int(found.number[index])
    lines = [_headline(evidence, found, index)]
    if run.rows:
        lines += ["", *takes_table(evidence, run, number), "", *_ending(evidence, run, number)]
    lines.append(_continuation(evidence, found, index, run))
    return "\n".join(lines)


def run_of(task: Task, evidence: Evidence, found: BlockMatches, index: int) -> TracedRun:
    """Return the takes of a match, rows numbered from the start of its partition."""
    takes = slice(int(found.offsets[index]), int(found.offsets[index + 1]))
    positions = tuple(int(position) for position in found.positions[takes])
    return TracedRun(
        tuple(int(row) - evidence.low for row in found.rows[takes]),
        positions,
        tuple(task.program.positions[position].variable for position in positions),
    )


def takes_table(evidence: Evidence, run: TracedRun, number: int) -> list[str]:
    """Return the lines of a table of takes, a line for each condition."""
    rows: list[list[str]] = []
    for index in _shown(len(run.rows)):
        if index is None:
            rows.append(["...", "", "", "", "", "", "", ""])
            continue
        rows += _take_lines(evidence, run, index, number)
    time = evidence.task.bound.time or ""
    return text_table(
        ["row", time, "label", "position", "follows", "condition", "values", "is"], rows
    )


def _take_lines(evidence: Evidence, run: TracedRun, index: int, number: int) -> list[list[str]]:
    row, label = run.rows[index], run.labels[index]
    before = TracedRun(run.rows[:index], run.positions[:index], run.labels[:index])
    lead = [
        str(evidence.input_row(row)),
        evidence.order_text(row),
        evidence.task.program.names[label],
        str(run.positions[index]),
        _follows(evidence, run, index),
    ]
    findings = evidence.findings(label, row, before, number)
    if not findings:
        return [[*lead, "no condition", "", ""]]
    return [
        [*(lead if place == 0 else [""] * 5), finding.condition, finding.values, finding.verdict]
        for place, finding in enumerate(findings)
    ]


def _follows(evidence: Evidence, run: TracedRun, index: int) -> str:
    if index == 0:
        return "first"
    skipped = run.rows[index] - run.rows[index - 1] - 1
    moves = evidence.task.program.follow[run.positions[index - 1]]
    move = _move_taken(moves, run.positions[index], skipped)
    if move.link is Link.STRICT:
        return "at once"
    kind = "next that fits" if move.link is Link.NEXT else "any that fits"
    return f"{kind}, {skipped} skipped" if skipped else kind


def _move_taken(moves: tuple[Transition, ...], target: int, skipped: int) -> Transition:
    """Return the preferred move that can have been taken."""
    return next(
        move
        for move in moves
        if move.target == target and (skipped == 0 or move.link is not Link.STRICT)
    )


def _shown(count: int) -> list[int | None]:
    if count <= _TAKES_MAX:
        return list(range(count))
    half = _TAKES_MAX // 2
    return [*range(half), None, *range(count - half, count)]


def _headline(evidence: Evidence, found: BlockMatches, index: int) -> str:
    first, last = int(found.offsets[index]), int(found.offsets[index + 1]) - 1
    parts = [f"match {index}"]
    partition = evidence.partition_text()
    if partition:
        parts.append(partition)
    if last < first:
        start = evidence.row_name(int(found.start[index]) - evidence.low)
        return ", ".join([*parts, f"empty, before {start}"])
    ends = [evidence.input_row(int(found.rows[at]) - evidence.low) for at in (first, last)]
    count = last - first + 1
    parts.append(f"row {ends[0]}" if count == 1 else f"rows {ends[0]} to {ends[1]}, {count} events")
    return ", ".join([*parts, f"match number {int(found.number[index])}"])


def _ending(evidence: Evidence, run: TracedRun, number: int) -> list[str]:
    """Say why the match ends where it does."""
    last = evidence.row_name(run.rows[-1])
    moves = evidence.task.program.follow[run.positions[-1]]
    lines = [f"complete at {last}"]
    accept = next(index for index, move in enumerate(moves) if move.target == ACCEPT)
    if evidence.task.bound.query.effective_selection is Selection.ALL or accept == 0:
        return lines
    lines[0] += ", because nothing that is preferred to ending can follow:"
    for move in moves[:accept]:
        lines += [f"  {line}" for line in explain_move(evidence, run, move, number)]
    return lines


def _continuation(evidence: Evidence, found: BlockMatches, index: int, run: TracedRun) -> str:
    """Say where the search goes on."""
    bound = evidence.task.bound
    after, selection = bound.query.effective_skip, bound.query.effective_selection
    start = int(found.start[index]) - evidence.low
    barrier = barrier_after(after, selection, skip_variables(bound), start, run.rows, run.labels)
    mode = f"after match skip {after.skip.value}" + (f" {after.variable}" if after.variable else "")
    if after.skip is Skip.NONE:
        mode = "no skip"
    if barrier < start:
        return f"{mode}: rules out no other match"
    if barrier + 1 >= evidence.size:
        return f"{mode}: no row is left to start from"
    return f"{mode}: the search goes on at {evidence.row_name(barrier + 1)}"


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
