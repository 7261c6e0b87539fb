"""Why a run does not go on: what each move out of its last position is blocked by.

This reads `docs/explanation/semantics.md` for one run and one move at a time and keeps the reason,
where a matcher keeps only the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from outpace.engine.match.program import ACCEPT, Negation, Transition
from outpace.explanation.evidence import Evidence, Finding, TracedRun
from outpace.explanation.text_table import counted, text_table
from outpace.pattern.ast import Link
from outpace.pattern.query import WithinKind

#: How many rows are looked at for one step of a relaxed pattern.
ROWS_MAX: Final = 20_000


class Stop(Enum):
    """What stops a move."""

    FITS = "fits"
    """Nothing: the row fits."""
    MISFIT = "misfit"
    """The very next row does not satisfy the predicate."""
    ENDED = "ended"
    """No further row."""
    WITHIN = "within"
    """The row comes when the time of WITHIN is over."""
    NEGATION = "negation"
    """The row is one that must not come."""
    UNTIL = "until"
    """The row ends the repetition."""
    POSSESSIVE = "possessive"
    """The row is one that the repetition left behind could have taken."""
    UNDECIDED = "undecided"
    """Too many rows to look at."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What stops a move, at which row, and for which variable where one is the reason."""

    kind: Stop
    row: int
    variable: int | None = None


def first_obstacle(
    evidence: Evidence, run: TracedRun, move: Transition, number: int = 1
) -> Obstacle:
    """Follow one move from a run to the first row that it can take, or to what stops it."""
    last = run.rows[-1]
    ends = evidence.task.program.ends[run.positions[-1]]
    variable = evidence.task.program.positions[move.target].variable
    held = list(move.holds)
    for row in range(last + 1, evidence.size + 1):
        if row == evidence.size:
            return Obstacle(Stop.ENDED, row)
        if exceeds_within(evidence, run, row):
            return Obstacle(Stop.WITHIN, row)
        if row - last > ROWS_MAX:
            return Obstacle(Stop.UNDECIDED, row)
        immediate = _hit(evidence, run, row, ends, number) if row == last + 1 else None
        if immediate is not None:
            return Obstacle(Stop.NEGATION, row, immediate)
        for until in move.untils:
            if evidence.holds(until, row, run, number):
                return Obstacle(Stop.UNTIL, row, until)
        held = [
            hold
            for hold in held
            if hold.until is None or not evidence.holds(hold.until, row, run, number)
        ]
        for hold in held:
            if evidence.holds(hold.variable, row, run, number):
                return Obstacle(Stop.POSSESSIVE, row, hold.variable)
        if evidence.holds(variable, row, run, number):
            return Obstacle(Stop.FITS, row)
        if move.link is Link.STRICT:
            return Obstacle(Stop.MISFIT, row)
        for negation in ends:
            if not negation.immediate and evidence.holds(negation.variable, row, run, number):
                return Obstacle(Stop.NEGATION, row, negation.variable)
    raise AssertionError("the rows after a run end at the partition's end")


def exceeds_within(evidence: Evidence, run: TracedRun, row: int) -> bool:
    """Whether WITHIN forbids to take a row after a run."""
    within = evidence.task.bound.within
    return within is not None and evidence.elapsed(_measured_from(evidence, run), row) >= within


def explain_move(
    evidence: Evidence,
    run: TracedRun,
    move: Transition,
    number: int = 1,
    expected: Sequence[int] = (),
) -> list[str]:
    """Say in lines of text what stops a move; `expected` are rows that the user has in mind."""
    if move.target == ACCEPT:
        return explain_accept(evidence, run, move, number)
    program = evidence.task.program
    variable = program.positions[move.target].variable
    name = program.names[variable]
    obstacle = first_obstacle(evidence, run, move, number)
    here = evidence.row_name(obstacle.row) if obstacle.row < evidence.size else ""
    looked = range(run.rows[-1] + 1, obstacle.row)
    match obstacle.kind:
        case Stop.FITS:
            if expected and obstacle.row not in expected:
                return [f"{name}: {here} fits, but is not one of the named rows"]
            return [f"{name}: {here} fits, but no match goes on from there"]
        case Stop.MISFIT:
            lines = [f"{name}: the very next row, {here}, does not fit"]
            lines += condition_lines(evidence.findings(variable, obstacle.row, run, number))
            return lines + _fits_later(evidence, run, variable, obstacle.row, number, expected)
        case Stop.ENDED:
            lines = [f"{name}: no row follows {evidence.row_name(run.rows[-1])}"]
            if looked:
                lines = [
                    f"{name}: no row up to the end fits ({counted(len(looked), 'row')} looked at)"
                ]
        case Stop.WITHIN:
            lines = [f"{name}: {_excess(evidence, run, obstacle.row)}"]
            if looked:
                lines.append(f"  no row before it fits ({counted(len(looked), 'row')} looked at)")
            elif evidence.holds(variable, obstacle.row, run, number):
                lines.append("  it would fit otherwise")
        case Stop.UNDECIDED:
            return [f"{name}: none of the next {ROWS_MAX} rows fits; later ones were not looked at"]
        case _:
            assert obstacle.variable is not None
            lines = [f"{name}: {here} {_forbidden(evidence, obstacle)}"]
            lines += condition_lines(
                evidence.findings(obstacle.variable, obstacle.row, run, number)
            )
            return lines
    return lines + _example(evidence, run, variable, looked, number, expected)


def explain_accept(
    evidence: Evidence, run: TracedRun, move: Transition, number: int = 1
) -> list[str]:
    """Say what keeps a complete run from being a match, or nothing."""
    last = run.rows[-1]
    if move.at_end and last + 1 < evidence.size:
        return [f"$: {evidence.row_name(last + 1)} follows, so the run is not at the end"]
    for negation in move.negations:
        row = _trailing_hit(evidence, run, negation, number)
        if row is not None:
            name = evidence.task.program.names[negation.variable]
            lines = [f"!{name}: {evidence.row_name(row)} is a {name} after the run"]
            return lines + condition_lines(evidence.findings(negation.variable, row, run, number))
    return []


def _trailing_hit(
    evidence: Evidence, run: TracedRun, negation: Negation, number: int
) -> int | None:
    """Return the row that a negation at the end of the pattern forbids."""
    first = run.rows[-1] + 1
    final = first + 1 if negation.immediate else first + ROWS_MAX
    for row in range(first, min(evidence.size, final)):
        if not negation.immediate and exceeds_within(evidence, run, row):
            return None
        if evidence.holds(negation.variable, row, run, number):
            return row
    return None


def _hit(
    evidence: Evidence, run: TracedRun, row: int, ends: Sequence[Negation], number: int
) -> int | None:
    for negation in ends:
        if negation.immediate and evidence.holds(negation.variable, row, run, number):
            return negation.variable
    return None


def _measured_from(evidence: Evidence, run: TracedRun) -> int:
    bound = evidence.task.bound.query.bound
    first_to_last = bound is None or bound.kind is WithinKind.FIRST_TO_LAST
    return run.rows[0] if first_to_last else run.rows[-1]


def _excess(evidence: Evidence, run: TracedRun, row: int) -> str:
    within = evidence.task.bound.within
    assert within is not None
    start = _measured_from(evidence, run)
    elapsed = evidence.elapsed(start, row)
    over = elapsed - within
    how_much = f"{evidence.duration_text(over)} too long" if over else "just too long"
    return (
        f"{evidence.row_name(row)} comes {evidence.duration_text(elapsed)} after "
        f"{evidence.row_name(start)}, WITHIN allows less than {evidence.duration_text(within)} "
        f"({how_much})"
    )


def _forbidden(evidence: Evidence, obstacle: Obstacle) -> str:
    assert obstacle.variable is not None
    name = evidence.task.program.names[obstacle.variable]
    match obstacle.kind:
        case Stop.NEGATION:
            return f"is a {name}, which !{name} forbids"
        case Stop.UNTIL:
            return f"fits {name}, which ends the repetition"
        case _:
            return f"fits {name}, and a possessive repetition leaves no event that it could take"


def _fits_later(
    evidence: Evidence,
    run: TracedRun,
    variable: int,
    row: int,
    number: int,
    expected: Sequence[int],
) -> list[str]:
    """Say which expected row would have fitted had rows in between been allowed."""
    for later in expected:
        if later > row and evidence.holds(variable, later, run, number):
            between = evidence.row_name(row)
            return [
                f"  {evidence.row_name(later)} would fit, but {between} stands between them; "
                "-> would allow that"
            ]
    return []


def _example(
    evidence: Evidence,
    run: TracedRun,
    variable: int,
    looked: range,
    number: int,
    expected: Sequence[int],
) -> list[str]:
    """Show the conditions on one of the rows that did not fit, an expected one if there is one."""
    if not looked:
        return []
    row = next((row for row in expected if row in looked), looked[0])
    findings = evidence.findings(variable, row, run, number)
    return [f"  {evidence.row_name(row)}:", *condition_lines(findings, "    ")] if findings else []


def condition_lines(findings: Sequence[Finding], indent: str = "  ") -> list[str]:
    """Return a line for each condition: its text, its values and what it comes to."""
    if not findings:
        return []
    rows = [[finding.condition, finding.values, finding.verdict] for finding in findings]
    return text_table(["", "", ""], rows, indent)[1:]
