"""The run that gets furthest from a start: a bounded search that keeps the best run it saw.

It offers takes as `docs/explanation/semantics.md` says and stops at the first candidate. Furthest
means: fewest takes from a complete match, then most of the rows that the user named, then most
rows. Where no predicate reads the match, no (position, row) is visited twice. The number of steps
is bounded, and the result says whether the bound was reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from outpace.engine.match.program import ACCEPT, Program, Transition
from outpace.explanation.diagnose import ROWS_MAX, exceeds_within, explain_accept
from outpace.explanation.evidence import Evidence, TracedRun
from outpace.pattern.ast import Link
from outpace.pattern.bound import PredicateClass

#: Rows that are looked at for one start at most.
STEPS_MAX: Final = 20_000
#: Offered in place of a take where the run may end.
_ACCEPTED: Final = (-1, ACCEPT)


@dataclass(frozen=True, slots=True)
class Exploration:
    """What the search from one start came to.

    Parameters
    ----------
    furthest
        The run that got furthest; without rows if the start itself does not fit.
    missing
        How many takes it lacks at least.
    candidate
        Whether `furthest` is complete, so that only another match can have ruled it out.
    cut_off
        Whether the search was given up before everything was seen.
    """

    furthest: TracedRun
    missing: int
    candidate: bool
    cut_off: bool


def explore(
    evidence: Evidence,
    start: int,
    expected: Sequence[int] = (),
    number: int = 1,
    *,
    only_expected: bool = False,
) -> Exploration:
    """Search from a start for the run that gets furthest.

    Parameters
    ----------
    evidence, start
        The rows, and the first row of the run.
    expected, only_expected
        Rows that a run should take, and whether it may take no others.
    number
        What MATCH_NUMBER() gives.
    """
    search = _StartSearch(evidence, frozenset(expected), number, only_expected)
    return search.run(start)


class _StartSearch:
    """A search from one start; `rows`, `positions` and `labels` are the run that it stands at."""

    def __init__(
        self, evidence: Evidence, expected: frozenset[int], number: int, only_expected: bool
    ) -> None:
        self.evidence = evidence
        self.expected = expected
        self.only_expected = only_expected
        self.number = number
        self.program = evidence.task.program
        self.missing = _missing(self.program)
        self.steps = 0
        self.rows: list[int] = []
        self.positions: list[int] = []
        self.labels: list[int] = []
        self.path = TracedRun(self.rows, self.positions, self.labels)
        reads_run = any(p.kind is PredicateClass.PATH for p in evidence.task.bound.predicates)
        self.takes: set[tuple[int, int]] | None = None if reads_run else set()

    def run(self, start: int) -> Exploration:
        best, best_score = TracedRun(), (-len(self.missing) - 2, 0, 0)
        stack = [self._first(start)]
        named = [0]
        while stack and self.steps < STEPS_MAX:
            take = next(stack[-1], None)
            if take is None:
                stack.pop()
                named.pop()
                self._untake()
                continue
            if take == _ACCEPTED:
                return Exploration(self._snapshot(), 0, True, False)
            if self._is_known(take):
                continue
            self._take(*take)
            named.append(named[-1] + (take[0] in self.expected))
            stack.append(self._next(self.path))
            score = (-self.missing[take[1]], named[-1], len(self.rows))
            if score > best_score:
                best, best_score = self._snapshot(), score
        return Exploration(best, -best_score[0], False, bool(stack))

    def _take(self, row: int, position: int) -> None:
        self.rows.append(row)
        self.positions.append(position)
        self.labels.append(self.program.positions[position].variable)

    def _untake(self) -> None:
        if self.rows:
            self.rows.pop()
            self.positions.pop()
            self.labels.pop()

    def _snapshot(self) -> TracedRun:
        return TracedRun(tuple(self.rows), tuple(self.positions), tuple(self.labels))

    def _is_known(self, take: tuple[int, int]) -> bool:
        if self.takes is None:
            return False
        known = take in self.takes
        self.takes.add(take)
        return known

    def _first(self, start: int) -> Iterator[tuple[int, int]]:
        for move in self.program.initial:
            if move.target != ACCEPT and may_start(self.evidence, move, start, self.number):
                yield start, move.target

    def _next(self, run: TracedRun) -> Iterator[tuple[int, int]]:
        """Offer what can follow a run, in order of preference."""
        moves = self.program.follow[run.positions[-1]]
        for accepts, group in groupby(moves, key=lambda move: move.target == ACCEPT):
            if not accepts:
                yield from self._takes(run, list(group))
            elif any(not explain_accept(self.evidence, run, move, self.number) for move in group):
                yield _ACCEPTED

    def _takes(self, run: TracedRun, active: list[Transition]) -> Iterator[tuple[int, int]]:
        """Offer what some moves can take after a run, by row and then by move."""
        last = run.rows[-1]
        ends = self.program.ends[run.positions[-1]]
        open_holds = {hold for move in active for hold in move.holds}
        for row in range(last + 1, min(self.evidence.size, last + 1 + ROWS_MAX)):
            self.steps += 1
            if not active or self.steps > STEPS_MAX or exceeds_within(self.evidence, run, row):
                return
            at_once = row == last + 1
            if at_once and any(n.immediate and self._holds(n.variable, row, run) for n in ends):
                return
            open_holds = {
                hold
                for hold in open_holds
                if hold.until is None or not self._holds(hold.until, row, run)
            }
            held = {hold for hold in open_holds if self._holds(hold.variable, row, run)}
            waiting = []
            for move in active:
                if held & set(move.holds) or any(self._holds(u, row, run) for u in move.untils):
                    continue
                fits = self._holds(self.program.positions[move.target].variable, row, run)
                if fits and (row in self.expected or not self.only_expected):
                    yield row, move.target
                if move.link is Link.ANY or (move.link is Link.NEXT and not fits):
                    waiting.append(move)
            active = waiting
            if any(not n.immediate and self._holds(n.variable, row, run) for n in ends):
                return

    def _holds(self, variable: int, row: int, run: TracedRun) -> bool:
        return self.evidence.holds(variable, row, run, self.number)


def may_start(evidence: Evidence, move: Transition, start: int, number: int) -> bool:
    """Whether a match may begin with this row by this move."""
    if move.at_start and int(evidence.block.ordinals[evidence.low + start]) != 0:
        return False
    empty = TracedRun()
    variable = evidence.task.program.positions[move.target].variable
    return (
        evidence.holds(variable, start, empty, number)
        and not any(evidence.holds(until, start, empty, number) for until in move.untils)
        and not any(
            evidence.holds(hold.variable, start, empty, number)
            and (hold.until is None or not evidence.holds(hold.until, start, empty, number))
            for hold in move.holds
        )
    )


def _missing(program: Program) -> list[int]:
    """Return for each position how many takes it lacks at least to be accepted."""
    before: list[list[int]] = [[] for _ in program.positions]
    lacking = [len(program.positions) + 1] * len(program.positions)
    wave = []
    for position, moves in enumerate(program.follow):
        for move in moves:
            if move.target != ACCEPT:
                before[move.target].append(position)
            elif lacking[position]:
                lacking[position] = 0
                wave.append(position)
    while wave:
        following = []
        for position in wave:
            for earlier in before[position]:
                if lacking[earlier] > lacking[position] + 1:
                    lacking[earlier] = lacking[position] + 1
                    following.append(earlier)
        wave = following
    return lacking
