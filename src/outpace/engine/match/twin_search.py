"""The search of the twin matcher: all runs from one start, in order of preference, on a stack.

`Walk` is a direct reading of `docs/explanation/semantics.md` over a `Program`: it offers the takes
of a run by event and by move, and knows when an answer needs rows that have not come yet.
A part of the search that failed is not searched again where no predicate reads the run, so that
searching costs at most (positions x rows) there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final

from outpace.engine.arrays import NO_TIME
from outpace.engine.match.contract import STEPS_PER_ROW
from outpace.engine.match.masks import Ask
from outpace.engine.match.program import ACCEPT, Negation, Program, Transition, completing
from outpace.errors import MatchError
from outpace.pattern.ast import Link
from outpace.pattern.query import WithinKind

#: Failures that are remembered at most; then the memory starts anew.
MEMORY_MAX: Final = 4_000_000
#: A step takes as long as a predicate takes to look through so many rows of a run, or longer.
_READ_EACH: Final = 10


class TooManyStepsError(Exception):
    """The search has taken as many steps as someone is ready to wait for."""


@dataclass(slots=True)
class StepBudget:
    """The steps that searches which share it have taken, and after how many they give up.

    Parameters
    ----------
    most
        After how many they give up.
    more
        Asked whenever these are taken: how many it may be then.
    taken
        How many they have taken.
    read
        How many rows of runs predicates may have looked through, which takes time as well.
    """

    most: float = inf
    more: Callable[[], float] | None = None
    taken: int = 0
    read: int = 0

    @property
    def work(self) -> int:
        """What has been done, in steps."""
        return self.taken + self.read // _READ_EACH

    def end(self) -> None:
        """Go on with more steps where there are any, and else end the search."""
        if self.more is not None:
            self.most = self.more()
        if self.work > self.most:
            raise TooManyStepsError


class Signal(Enum):
    """The message of the search about the run that it stands at."""

    FOUND = "found"
    """The run is a candidate."""
    REJECTED = "rejected"
    """The run would be a candidate but for a negation or an anchor at its end."""
    PENDING = "pending"
    """Whether the run is a candidate depends on rows that have not come."""
    OPEN = "open"
    """The run may go on with rows that have not come."""


@dataclass(slots=True)
class SearchReach:
    """What had to be known: rows up to `row`, that time passed `deadline`, that the input ended."""

    row: int = -1
    deadline: int = NO_TIME
    end: bool = False

    def include(self, other: SearchReach) -> None:
        """Know also what `other` had to know."""
        self.row = max(self.row, other.row)
        self.deadline = max(self.deadline, other.deadline)
        self.end = self.end or other.end


@dataclass(frozen=True)
class SearchSegment:
    """One partition's rows as the search sees them, numbered from 0.

    Parameters
    ----------
    size
        How many rows may be taken.
    ended
        No more rows come.
    first
        Whether row 0 is the partition's first.
    times
        Event times, empty without WITHIN.
    floor
        No later row has a time less than this.
    within
        What WITHIN allows, where there is one.
    masks, ask
        The predicates, see `masks.Predicates`.
    """

    size: int
    ended: bool
    first: bool
    times: Sequence[int]
    floor: int
    within: int
    masks: Sequence[bytes | None]
    ask: Ask


@dataclass(frozen=True)
class SearchPlan:
    """The facts of a program that a search needs, prepared once.

    Parameters
    ----------
    program
        The automaton of the pattern.
    timed, kind
        Whether there is a WITHIN, and of which kind.
    step_budget
        How many steps the search from one start may take.
    remember
        Whether failures are remembered; not where all partial matches are wanted.
    initial
        The moves to the first event that can lead to a match.
    groups
        For each position its moves, cut before and after each ACCEPT.
    pure
        For each position whether nothing from there on reads the run.
    plain
        For each position whether all its moves are strict and nothing guards them.
    """

    program: Program
    timed: bool
    kind: WithinKind
    step_budget: int
    remember: bool
    initial: tuple[Transition, ...]
    groups: tuple[tuple[tuple[Transition, ...], ...], ...]
    pure: tuple[bool, ...]
    plain: tuple[bool, ...]

    @staticmethod
    def of(
        program: Program,
        reads_run: Sequence[bool],
        timed: bool,
        kind: WithinKind,
        *,
        step_budget: int,
        remember: bool,
    ) -> SearchPlan:
        """Prepare a program; `reads_run` says it of each variable."""
        useful = completing(program)
        initial, *follow = (
            tuple(move for move in moves if move.target == ACCEPT or useful[move.target])
            for moves in (program.initial, *program.follow)
        )
        groups = tuple(_groups(moves) for moves in follow)
        pure = _pure(program, reads_run)
        plain = tuple(_is_plain(*each) for each in zip(follow, program.ends, strict=True))
        return SearchPlan(program, timed, kind, step_budget, remember, initial, groups, pure, plain)


@dataclass(slots=True)
class _RunFrame:
    """A run that the search stands at: its last take and what is left to try."""

    position: int
    row: int
    options: Iterator[tuple[int, int] | Signal]
    reach: SearchReach = field(default_factory=SearchReach)
    fruitful: bool = False
    extended: bool = False
    timed_out: bool = False
    accepted: bool = False


class Walk:
    """Searches the runs of one segment, start by start.

    After each signal `rows`, `labels` and `positions` are the run that it is about. `consumed`
    holds rows that no run may take any more; it only ever grows.
    """

    def __init__(self, plan: SearchPlan, segment: SearchSegment, steps: StepBudget) -> None:
        self._plan = plan
        self._segment = segment
        self._steps = steps
        #: What the search from one start may take, and the step where that is over.
        self._budget = plan.step_budget + STEPS_PER_ROW * segment.size
        self._last_step = 0
        self._masks = segment.masks
        self._variables = [position.variable for position in plan.program.positions]
        self._failures: dict[tuple[int, int], SearchReach] = {}
        self._failures_of_start: dict[tuple[int, int], SearchReach] = {}
        self._number = 1
        #: The start that is searched, or was last.
        self.start = 0
        self._stack: list[_RunFrame] = []
        self.consumed: set[int] = set()
        self.rows: list[int] = []
        self.labels: list[int] = []
        self.positions: list[int] = []
        self._ended: dict[int, SearchReach] = {}
        #: What the last FOUND or REJECTED had to know beyond its own rows.
        self.verdict_reach = SearchReach()
        #: Runs that WITHIN ended, by their (row, variable) lists, with their positions.
        self.timed_out: dict[tuple[tuple[int, int], ...], tuple[int, ...]] = {}

    @property
    def reach(self) -> SearchReach:
        """What had to be known for everything that the search has found out about this start."""
        total = SearchReach()
        for frame in self._stack:
            total.include(frame.reach)
        return total

    def search(self, start: int, number: int) -> Iterator[Signal]:
        """Yield what the runs from `start` come to, in order of preference."""
        self._last_step = self._steps.taken + self._budget
        self._number = number
        self.start = start
        self._failures_of_start.clear()
        self.rows.clear()
        self.labels.clear()
        self.positions.clear()
        self.timed_out.clear()
        longer: set[tuple[tuple[int, int], ...]] = set()
        root = _RunFrame(-1, start - 1, iter(()), SearchReach(start))
        root.options = self._initial(start)
        self._stack = stack = [root]
        while True:
            frame = stack[-1]
            self._count_step(start)
            option = next(frame.options, None)
            if option is None:
                if len(stack) == 1:
                    self._drop_longer(longer)
                    return
                self._leave(frame, stack, longer)
            elif isinstance(option, Signal):
                if option is not Signal.REJECTED:
                    frame.fruitful = True
                if option in (Signal.FOUND, Signal.PENDING):
                    frame.accepted = True
                yield option
            else:
                self._take(frame, option, stack)

    def _take(self, frame: _RunFrame, option: tuple[int, int], stack: list[_RunFrame]) -> None:
        row, position = option
        frame.extended = True
        known = self._failures.get((position, row))
        if known is None:
            known = self._failures_of_start.get((position, row))
        if known is not None:
            frame.reach.include(known)
            return
        self.rows.append(row)
        self.positions.append(position)
        self.labels.append(self._variables[position])
        child = _RunFrame(position, row, iter(()), SearchReach(row))
        child.options = self._options(child)
        stack.append(child)

    def _leave(
        self, frame: _RunFrame, stack: list[_RunFrame], longer: set[tuple[tuple[int, int], ...]]
    ) -> None:
        stack.pop()
        parent = stack[-1]
        parent.reach.include(frame.reach)
        parent.fruitful = parent.fruitful or frame.fruitful
        if not self._plan.remember:
            self._note_timed_out(frame, longer)
        elif not frame.fruitful and self._plan.pure[frame.position]:
            self._remember_failure(frame)
        self.rows.pop()
        self.labels.pop()
        self.positions.pop()

    def _remember_failure(self, frame: _RunFrame) -> None:
        # A later start has a later deadline, so what only the deadline ended may succeed there.
        by_deadline = (
            frame.reach.deadline != NO_TIME and self._plan.kind is WithinKind.FIRST_TO_LAST
        )
        failures = self._failures_of_start if by_deadline else self._failures
        if len(failures) >= MEMORY_MAX:
            failures.clear()
        failures[frame.position, frame.row] = frame.reach

    def _note_timed_out(self, frame: _RunFrame, longer: set[tuple[tuple[int, int], ...]]) -> None:
        run = tuple(zip(self.rows, self.labels, strict=True))
        if frame.extended or frame.accepted:
            longer.add(run)
        elif frame.timed_out:
            self.timed_out.setdefault(run, tuple(self.positions))

    def _drop_longer(self, longer: set[tuple[tuple[int, int], ...]]) -> None:
        for run in longer & self.timed_out.keys():
            del self.timed_out[run]

    def _count_step(self, start: int) -> None:
        steps = self._steps
        steps.taken += 1
        if steps.taken + steps.read // _READ_EACH > steps.most:
            steps.end()
        if steps.taken > self._last_step:
            raise MatchError(
                f"the search for a match took more than {self._budget} steps",
                detail=f"the match would start at row {start} of the rows looked at",
                hint="add WITHIN, make a quantifier possessive (A++), or let fewer DEFINEs read"
                " the match",
            )

    def _holds(self, variable: int, row: int) -> bool:
        mask = self._masks[variable]
        if mask is not None:
            return mask[row] != 0
        self._steps.read += len(self.rows)
        return self._segment.ask(variable, row, self.rows, self.labels, self._number)

    def _initial(self, start: int) -> Iterator[tuple[int, int] | Signal]:
        """Offer the first event; negations have no event before them to start from."""
        for move in self._plan.initial:
            if move.at_start and not (start == 0 and self._segment.first):
                continue
            if move.target == ACCEPT:
                # An empty match stands before a row, so `$` cannot hold there.
                if not move.at_end:
                    self.verdict_reach = SearchReach(start)
                    yield Signal.FOUND
            elif start not in self.consumed and self._may_start(move, start):
                yield start, move.target

    def _may_start(self, move: Transition, start: int) -> bool:
        return (
            self._holds(self._variables[move.target], start)
            and not any(self._holds(until, start) for until in move.untils)
            and not any(
                self._holds(hold.variable, start)
                and (hold.until is None or not self._holds(hold.until, start))
                for hold in move.holds
            )
        )

    def _options(self, frame: _RunFrame) -> Iterator[tuple[int, int] | Signal]:
        """Offer what can follow the last take, in order of preference."""
        for group in self._plan.groups[frame.position]:
            if group[0].target == ACCEPT:
                yield self._verdict(frame, group[0])
            elif self._plan.plain[frame.position]:
                yield from self._strict_takes(frame, group)
            else:
                yield from self._takes(frame, group)

    def _deadline(self, row: int) -> int | None:
        """Return the time that the take after `row` must come before."""
        if not self._plan.timed:
            return None
        first_to_last = self._plan.kind is WithinKind.FIRST_TO_LAST
        since = self.rows[0] if first_to_last else row
        return self._segment.times[since] + self._segment.within

    def _strict_takes(
        self, frame: _RunFrame, moves: tuple[Transition, ...]
    ) -> Iterator[tuple[int, int] | Signal]:
        """Offer the takes of strict moves without guards, as `_takes` does, only faster."""
        segment, reach, row = self._segment, frame.reach, frame.row + 1
        deadline = self._deadline(frame.row)
        if deadline is not None and self._time_is_over(row, deadline):
            reach.deadline = max(reach.deadline, deadline)
            frame.timed_out = True
        elif row < segment.size:
            reach.row = max(reach.row, row)
            for move in moves:
                if self._holds(self._variables[move.target], row) and row not in self.consumed:
                    yield row, move.target
        else:
            if not segment.ended:
                yield Signal.OPEN
            reach.end = True

    def _takes(
        self, frame: _RunFrame, moves: tuple[Transition, ...]
    ) -> Iterator[tuple[int, int] | Signal]:
        """Offer the takes of some moves, by event and then by move."""
        segment, reach = self._segment, frame.reach
        deadline = self._deadline(frame.row)
        ends = self._plan.program.ends[frame.position]
        open_holds = {hold for move in moves for hold in move.holds}
        active = list(moves)
        row = frame.row
        while active:
            row += 1
            if deadline is not None and self._time_is_over(row, deadline):
                reach.deadline = max(reach.deadline, deadline)
                frame.timed_out = True
                return
            if row >= segment.size:
                if not segment.ended:
                    yield Signal.OPEN
                reach.end = True
                return
            reach.row = max(reach.row, row)
            self._steps.taken += 1
            if row == frame.row + 1 and any(
                n.immediate and self._holds(n.variable, row) for n in ends
            ):
                return
            open_holds = {
                hold
                for hold in open_holds
                if hold.until is None or not self._holds(hold.until, row)
            }
            held = {hold for hold in open_holds if self._holds(hold.variable, row)}
            waiting = []
            for move in active:
                if any(self._holds(until, row) for until in move.untils) or not held.isdisjoint(
                    move.holds
                ):
                    continue
                fits = self._holds(self._variables[move.target], row)
                if fits and row not in self.consumed:
                    yield row, move.target
                if move.link is Link.ANY or (move.link is Link.NEXT and not fits):
                    waiting.append(move)
            active = waiting
            if active and any(not n.immediate and self._holds(n.variable, row) for n in ends):
                return

    def _time_is_over(self, row: int, deadline: int) -> bool:
        """Whether neither `row` nor a later one comes before the deadline."""
        if row < self._segment.size:
            return self._segment.times[row] >= deadline
        return self._segment.floor >= deadline

    def _verdict(self, frame: _RunFrame, move: Transition) -> Signal:
        """Decide whether the run may end here."""
        if not move.at_end and not move.negations:
            # Many matches end with the same row: one object serves them all.
            self.verdict_reach = self._ended.setdefault(frame.row, SearchReach(frame.row))
            return Signal.FOUND
        reach = SearchReach(frame.row)
        signal = Signal.FOUND
        if move.at_end:
            signal = _worst(signal, self._is_last(frame.row, reach))
        for negation in move.negations:
            if negation.immediate:
                found = self._none_next(negation.variable, frame.row, reach)
            else:
                found = self._none_until_deadline(negation.variable, frame.row, reach)
            signal = _worst(signal, found)
        frame.reach.include(reach)
        self.verdict_reach = reach
        return signal

    def _is_last(self, row: int, reach: SearchReach) -> Signal:
        if row + 1 < self._segment.size:
            reach.row = max(reach.row, row + 1)
            return Signal.REJECTED
        reach.end = True
        return Signal.FOUND if self._segment.ended else Signal.PENDING

    def _none_next(self, variable: int, row: int, reach: SearchReach) -> Signal:
        if row + 1 < self._segment.size:
            reach.row = max(reach.row, row + 1)
            return Signal.REJECTED if self._holds(variable, row + 1) else Signal.FOUND
        reach.end = True
        return Signal.FOUND if self._segment.ended else Signal.PENDING

    def _none_until_deadline(self, variable: int, row: int, reach: SearchReach) -> Signal:
        deadline = self._deadline(row)
        for later in range(row + 1, self._segment.size + 1):
            if deadline is not None and self._time_is_over(later, deadline):
                reach.deadline = max(reach.deadline, deadline)
                return Signal.FOUND
            if later < self._segment.size:
                reach.row = max(reach.row, later)
                if self._holds(variable, later):
                    return Signal.REJECTED
        reach.end = True
        return Signal.FOUND if self._segment.ended else Signal.PENDING


def _worst(one: Signal, other: Signal) -> Signal:
    for signal in (Signal.REJECTED, Signal.PENDING):
        if signal in (one, other):
            return signal
    return Signal.FOUND


def _groups(moves: tuple[Transition, ...]) -> tuple[tuple[Transition, ...], ...]:
    groups: list[list[Transition]] = []
    for move in moves:
        joins = bool(groups) and ACCEPT not in (move.target, groups[-1][-1].target)
        if joins:
            groups[-1].append(move)
        else:
            groups.append([move])
    return tuple(tuple(group) for group in groups)


def _is_plain(moves: tuple[Transition, ...], ends: tuple[Negation, ...]) -> bool:
    return not ends and all(
        move.link is Link.STRICT and not move.untils and not move.holds for move in moves
    )


def _pure(program: Program, reads_run: Sequence[bool]) -> tuple[bool, ...]:
    """Return for each position whether nothing that comes after it reads the run."""
    before: list[list[int]] = [[] for _ in program.positions]
    found = []
    for position, moves in enumerate(program.follow):
        variables = {negation.variable for negation in program.ends[position]}
        for move in moves:
            variables.update(move.untils)
            variables.update(negation.variable for negation in move.negations)
            for hold in move.holds:
                variables.update(
                    (hold.variable,) if hold.until is None else (hold.variable, hold.until)
                )
            if move.target != ACCEPT:
                variables.add(program.positions[move.target].variable)
                before[move.target].append(position)
        if any(reads_run[variable] for variable in variables):
            found.append(position)
    return tuple(not reached for reached in _closure(before, found))


def _closure(before: list[list[int]], found: list[int]) -> list[bool]:
    """Return what leads to `found`, these included."""
    reached = [False] * len(before)
    stack = list(found)
    while stack:
        position = stack.pop()
        if not reached[position]:
            reached[position] = True
            stack.extend(before[position])
    return reached
