"""WHY NOT: the step that failed, on which row and by which condition, where a match was expected.

From the first of the named rows, the run that gets furthest is shown with what stops it. Where a
run is complete and yet no match, the match that ruled it out is named. The search is bounded, and
the text says where a bound was reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from outpace.engine.match.after import barrier_after, skip_variables
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Block, Resume, Task
from outpace.engine.match.program import ACCEPT
from outpace.errors import DataError
from outpace.explanation.diagnose import condition_lines, explain_move
from outpace.explanation.evidence import Evidence, TracedRun
from outpace.explanation.explore import STEPS_MAX, Exploration, explore, may_start
from outpace.explanation.text_table import counted
from outpace.explanation.why import run_of, takes_table
from outpace.pattern.query import Consume, Query, Selection, Skip

#: How many of the named rows are tried as other starts.
_STARTS_MAX: Final = 20


def why_not(task: Task, block: Block, rows: Sequence[int]) -> str:
    """Explain why there is no match where one was expected.

    Parameters
    ----------
    task, block
        A query and the rows.
    rows
        The rows of the expected match, by their places in the input; a range will do.
    """
    evidence, named, lines = _named_rows(task, block, rows)
    if _all_are_matches(task.bound.query):
        return "\n".join(lines + _among_all(evidence, named))
    found = choose_matcher(task)(evidence.block, Resume.fresh(1)).found
    runs = [
        (int(start), run_of(task, evidence, found, index))
        for index, start in enumerate(found.start)
    ]
    start = named[0]
    own = [index for index, (first, _) in enumerate(runs) if first == start]
    if own:
        lines += _own_matches(evidence, runs, own, named)
        return "\n".join(lines)
    number = 1 + sum(1 for first, _ in runs if first < start)
    explored = explore(evidence, start, named, number)
    if explored.candidate:
        lines += _ruled_out(evidence, explored.furthest, runs)
    else:
        lines += _stopped(evidence, start, explored, named, number)
        lines += _other_start(evidence, explored, named, number)
    return "\n".join(lines)


def _all_are_matches(query: Query) -> bool:
    """Whether every candidate is a match, so that there is no need to find the others."""
    return (
        query.effective_selection is Selection.ALL
        and query.effective_skip.skip is Skip.NONE
        and query.consumption is Consume.NONE
        and not query.limits
    )


def _among_all(evidence: Evidence, named: list[int]) -> list[str]:
    """Explain where all candidates are matches: whether the named rows are one."""
    start = named[0]
    exact = explore(evidence, start, named, only_expected=True)
    if exact.candidate:
        left_out = [row for row in named if row not in exact.furthest.rows]
        lines = [f"{_rows_text(evidence, exact.furthest.rows)} are a match"]
        return lines + ([f"not in it: {_rows_text(evidence, left_out)}"] if left_out else [])
    explored = explore(evidence, start, named)
    if not explored.candidate:
        lines = _stopped(evidence, start, explored, named, 1)
        return lines + _other_start(evidence, explored, named, 1)
    return [
        f"{evidence.row_name(start)} does start a match, "
        f"for example {_rows_text(evidence, explored.furthest.rows)}",
        "",
        "with the named rows alone:",
        *_stopped(evidence, start, exact, named, 1),
    ]


def _named_rows(
    task: Task, block: Block, rows: Sequence[int]
) -> tuple[Evidence, list[int], list[str]]:
    """Return the partition of the first named row, and the named rows that are in it.

    The partition becomes a block of its own, so that its rows count from 0.
    """
    if not len(rows):
        raise DataError("no rows are named", hint="name the rows in which a match was expected")
    wanted = [int(row) for row in rows]
    places = []
    for row in wanted:
        place = np.flatnonzero(block.arrivals == row)
        if not len(place):
            raise DataError(
                f"there is no row {row}", detail=f"rows count from 0 to {block.size - 1}"
            )
        places.append(int(place[0]))
    segments = np.searchsorted(block.segments, places, side="right") - 1
    evidence = Evidence(task, _only(block, int(segments[0])), 0)
    low = int(block.segments[segments[0]])
    inside = [
        place - low
        for place, segment in zip(places, segments, strict=True)
        if segment == segments[0]
    ]
    lines = []
    if len(inside) < len(places):
        outside = next(
            row for row, segment in zip(wanted, segments, strict=True) if segment != segments[0]
        )
        lines.append(
            f"row {outside} is in another partition than row {wanted[0]} "
            f"({evidence.partition_text()}); a match never spans two"
        )
    return evidence, sorted(set(inside)), lines


def _only(block: Block, segment: int) -> Block:
    """Return one partition as a block of its own."""
    low, high = (int(block.segments[segment + side]) for side in (0, 1))
    return replace(
        block,
        columns={name: column.slice(low, high - low) for name, column in block.columns.items()},
        segments=np.array([0, high - low], np.int64),
        visible=block.visible[segment : segment + 1] - low,
        ordinals=block.ordinals[low:high],
        arrivals=block.arrivals[low:high],
        times=block.times[low:high] if len(block.times) else block.times,
    )


def _own_matches(
    evidence: Evidence, runs: list[tuple[int, TracedRun]], own: list[int], named: list[int]
) -> list[str]:
    """Say that the first named row does start a match, and which named rows it leaves out."""
    index = max(own, key=lambda i: len(set(runs[i][1].rows) & set(named)))
    run = runs[index][1]
    start = evidence.row_name(named[0])
    if not run.rows:
        return [f"{start} has a match: the empty one"]
    lines = [f"{start} does start a match: {_rows_text(evidence, run.rows)}"]
    left_out = [row for row in named if row not in run.rows]
    if left_out:
        lines.append(f"not in it: {_rows_text(evidence, left_out)}")
        lines += ["", *takes_table(evidence, run, index + 1), ""]
        lines += _after_run(evidence, run, named, index + 1)
    return lines


def _stopped(
    evidence: Evidence, start: int, explored: Exploration, named: list[int], number: int
) -> list[str]:
    """Show the run that got furthest and what stops it."""
    run = explored.furthest
    head = f"no match starts at {evidence.row_name(start)}"
    partition = evidence.partition_text()
    lines = [f"{head} ({partition})" if partition else head]
    if not run.rows:
        lines.append("it cannot be the first row of a match:")
        return lines + _not_first(evidence, start, number)
    lines += [f"the run that gets furthest takes {counted(len(run.rows), 'row')}:", ""]
    lines += [*takes_table(evidence, run, number), ""]
    lines += _after_run(evidence, run, named, number)
    if explored.cut_off:
        lines.append(f"the search was given up after {STEPS_MAX} steps; there may be longer runs")
    return lines


def _after_run(evidence: Evidence, run: TracedRun, named: list[int], number: int) -> list[str]:
    """Say what stops each move out of the last position of a run."""
    later = [row for row in named if row > run.rows[-1]]
    reasons: dict[tuple[str, ...], None] = {}
    for move in evidence.task.program.follow[run.positions[-1]]:
        reasons[tuple(explain_move(evidence, run, move, number, later))] = None
    lines = [f"  {line}" for reason in reasons for line in reason]
    return [f"after {evidence.row_name(run.rows[-1])}:", *lines] if lines else []


def _not_first(evidence: Evidence, start: int, number: int) -> list[str]:
    program = evidence.task.program
    lines: list[str] = []
    for move in program.initial:
        if move.target == ACCEPT or may_start(evidence, move, start, number):
            continue
        variable = program.positions[move.target].variable
        name = program.names[variable]
        if move.at_start and int(evidence.block.ordinals[evidence.low + start]) != 0:
            lines.append(f"  ^ {name}: it is not the first row of its partition")
            continue
        findings = evidence.findings(variable, start, TracedRun(), number)
        if all(finding.holds for finding in findings):
            lines.append(f"  {name}: it fits, but the repetition cannot begin or end there")
            continue
        if f"  {name}: it does not fit" not in lines:
            lines += [f"  {name}: it does not fit", *condition_lines(findings, "    ")]
    return lines


def _other_start(
    evidence: Evidence, explored: Exploration, named: list[int], number: int
) -> list[str]:
    """Show a run from another named row if it gets further."""
    best: tuple[int, Exploration] | None = None
    for start in named[1 : 1 + _STARTS_MAX]:
        other = explore(evidence, start, named, number)
        if other.missing < (explored if best is None else best[1]).missing:
            best = start, other
    if best is None:
        return []
    start, other = best
    if other.candidate:
        rows = _rows_text(evidence, other.furthest.rows)
        return ["", f"from {evidence.row_name(start)} there is a complete run: {rows}"]
    return [
        "",
        f"from {evidence.row_name(start)} a run gets further:",
        "",
        *takes_table(evidence, other.furthest, number),
        "",
        *_after_run(evidence, other.furthest, named, number),
    ]


def _ruled_out(evidence: Evidence, run: TracedRun, runs: list[tuple[int, TracedRun]]) -> list[str]:
    """Name the match, or the limit, that kept a complete run from being a match."""
    start = evidence.row_name(run.rows[0])
    head = [
        f"no match starts at {start}, although {_rows_text(evidence, run.rows)} "
        f"({', '.join(evidence.task.program.names[label] for label in run.labels)}) would be one"
    ]
    for index, (first, taken) in enumerate(runs):
        reason = _skipped(evidence, run, first, taken) or _consumed(evidence, run, taken)
        if reason:
            shown = _rows_text(evidence, taken.rows) if taken.rows else "the empty one"
            return [*head, f"match {index} of the partition ({shown}) rules it out: {reason}"]
    limits = evidence.task.bound.query.limits
    if limits:
        limit_text = " and ".join(f"{limit.count} per {limit.per.value}" for limit in limits)
        return [*head, f"the limit of matches is reached: {limit_text}"]
    return [*head, "a match that was found with other rows is preferred"]


def _skipped(evidence: Evidence, run: TracedRun, first: int, taken: TracedRun) -> str:
    bound = evidence.task.bound
    after, selection = bound.query.effective_skip, bound.query.effective_selection
    if first > run.rows[0]:
        return ""
    barrier = barrier_after(
        after, selection, skip_variables(bound), first, taken.rows, taken.labels
    )
    if barrier < run.rows[0] or (after.skip is Skip.NONE and selection is Selection.ALL):
        return ""
    mode = f"{after.skip.value} {after.variable or ''}".strip().upper()
    if barrier + 1 >= evidence.size:
        return f"AFTER MATCH SKIP {mode} leaves no row to start from"
    return f"AFTER MATCH SKIP {mode} goes on at {evidence.row_name(barrier + 1)}"


def _consumed(evidence: Evidence, run: TracedRun, taken: TracedRun) -> str:
    consumption = evidence.task.bound.query.consumption
    if consumption is Consume.NONE or not taken.rows:
        return ""
    used = (
        set(taken.rows)
        if consumption is Consume.SELECTED
        else set(range(taken.rows[0], taken.rows[-1] + 1))
    )
    shared = [row for row in run.rows if row in used]
    if not shared:
        return ""
    return f"it has consumed {_rows_text(evidence, shared)} (consume {consumption.value})"


def _rows_text(evidence: Evidence, rows: Sequence[int]) -> str:
    named = [str(evidence.input_row(row)) for row in rows]
    if len(named) > 12:
        named = [*named[:6], "...", *named[-3:]]
    return ("row " if len(rows) == 1 else "rows ") + ", ".join(named)
