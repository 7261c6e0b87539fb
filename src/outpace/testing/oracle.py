"""The oracle: what the matches of one complete partition are, by brute force.

A direct transcription of `docs/explanation/semantics.md` that shares no code with the program and
the matchers: it unfolds the pattern tree itself and checks every condition event by event. It takes
exponential time, so use it on a handful of events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise, permutations
from typing import Any

from outpace.pattern import ast
from outpace.pattern.ast import Link, Mode
from outpace.pattern.query import AfterMatch, Consume, Selection, Skip, WithinKind

#: A run or a match: (event index, variable name) in order.
Run = tuple[tuple[int, str], ...]

#: Whether an event satisfies a variable's predicate, given the run so far (without the event).
Holds = Callable[[str, int, Run], bool]


class SkipFailure(Exception):  # noqa: N818 - it is a verdict about the query, not a defect
    """A strict AFTER MATCH SKIP has no row to go to."""


@dataclass(frozen=True)
class Question:
    """A pattern over one partition, and which of its candidates are meant.

    Parameters
    ----------
    pattern, size, holds
        The pattern, the number of events, and the predicates.
    times, within, kind
        Event times (none needed without WITHIN).
    selection, after, targets, consume, per_start, per_partition
        As in the query; `targets` are the variables that the skip names.
    watermark
        Time has passed up to here when the input ends; None: only up to the last event.
    """

    pattern: ast.Pattern
    size: int
    holds: Holds
    times: Sequence[int] = ()
    within: int | None = None
    kind: WithinKind = WithinKind.FIRST_TO_LAST
    selection: Selection = Selection.PREFERRED
    after: AfterMatch = field(default_factory=lambda: AfterMatch(Skip.PAST_LAST_ROW))
    targets: frozenset[str] = frozenset()
    consume: Consume = Consume.NONE
    per_start: int | None = None
    per_partition: int | None = None
    watermark: int | None = None


@dataclass(frozen=True)
class OracleAnswer:
    """Matches as (start, run) in the order of emission, and runs that WITHIN ended."""

    matches: list[tuple[int, Run]]
    timed_out: list[Run]


def answer(question: Question) -> OracleAnswer:
    """Find the matches of a complete partition.

    Examples
    --------
    >>> letters = "aab"
    >>> pattern = ast.concat([ast.Repeat(ast.Var("A"), 1, None), ast.Var("B")])
    >>> asked = Question(pattern, 3, lambda name, event, run: letters[event] == name.lower())
    >>> answer(asked).matches
    [(0, ((0, 'A'), (1, 'A'), (2, 'B')))]
    """
    return _Emitter(question).answer()


# --- Moves: what can come next in a pattern -----------------------------------------------------


@dataclass(frozen=True)
class _Guard:
    """What was passed on the way from the last take to the next."""

    link: Link = Link.STRICT
    at_start: bool = False
    at_end: bool = False
    untils: tuple[str, ...] = ()
    holds: tuple[tuple[str, str | None], ...] = ()
    negations: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True)
class _VariableStep:
    """A variable to be taken; `ended_by` also ends the run while it waits after the take."""

    name: str
    ended_by: str | None = None


@dataclass(frozen=True)
class _Again:
    """A repetition of which `done` rounds are over; unbounded ones stop counting when required."""

    repeat: ast.Repeat
    done: int
    ended_by: str | None


@dataclass(frozen=True)
class _Until:
    name: str


@dataclass(frozen=True)
class _Leaving:
    held: tuple[tuple[str, str | None], ...]


_PatternPart = ast.Pattern | Link | _VariableStep | _Again | _Until | _Leaving
_Rest = tuple[_PatternPart, ...]


@dataclass(frozen=True)
class _Continuation:
    """A way to the next take (`step`), or to the end of the pattern (None)."""

    guard: _Guard
    step: _VariableStep | None
    rest: _Rest


@lru_cache(maxsize=1 << 12)
def _moves(rest: _Rest) -> list[_Continuation]:
    """List the moves in order of preference, each once."""
    return list(dict.fromkeys(_unfold(rest, _Guard(), frozenset())))


def _unfold(
    rest: _Rest, guard: _Guard, path: frozenset[tuple[_Rest, _Guard]]
) -> Iterator[_Continuation]:
    if (rest, guard) in path:
        return  # a repetition that took no event came back to where it was
    path |= {(rest, guard)}
    if not rest:
        yield _Continuation(replace(guard, link=Link.STRICT, untils=(), holds=()), None, ())
        return
    head, tail = rest[0], rest[1:]
    match head:
        case ast.Var(name=name):
            yield _Continuation(guard, _VariableStep(name), tail)
        case _VariableStep():
            yield _Continuation(guard, head, tail)
        case _:
            for unfolded, changed in _alternatives(head, guard):
                yield from _unfold((*unfolded, *tail), changed, path)


def _alternatives(head: _PatternPart, guard: _Guard) -> Iterator[tuple[_Rest, _Guard]]:
    """List what a part that takes no event itself stands for."""
    match head:
        case Link():
            yield (), replace(guard, link=head)
        case ast.Not(name=name):
            negation = (name, guard.link is Link.STRICT)
            yield (), replace(guard, negations=_with(guard.negations, negation))
        case _Until(name=name):
            yield (), replace(guard, untils=_with(guard.untils, name))
        case _Leaving(held=held):
            for each in held:
                guard = replace(guard, holds=_with(guard.holds, each))
            yield (), guard
        case ast.Empty():
            yield (), guard
        case ast.AtStart():
            yield (), replace(guard, at_start=True)
        case ast.AtEnd():
            yield (), replace(guard, at_end=True)
        case ast.Exclude(item=item):
            yield (item,), guard
        case ast.Concat():
            yield _sequence(head), guard
        case ast.Alternate(options=options):
            for option in options:
                yield (option,), guard
        case ast.Permute(items=items):
            for order in permutations(items):
                yield order, guard
        case ast.Repeat():
            yield (_Again(head, 0, None),), guard
        case _Again():
            for unfolded in _rounds(head):
                yield unfolded, guard
        case _:
            raise AssertionError(f"no such part: {head!r}")


def _with(values: tuple[Any, ...], value: object) -> tuple[Any, ...]:
    return values if value in values else (*values, value)


def _sequence(pattern: ast.Concat) -> _Rest:
    parts: list[_PatternPart] = []
    for index, item in enumerate(pattern.items):
        following = pattern.items[index + 1] if index + 1 < len(pattern.items) else None
        if index:
            parts.append(pattern.links[index - 1])
        if (
            isinstance(item, ast.Repeat)
            and _repeats_one_variable(item)
            and isinstance(following, ast.Not)
            and pattern.links[index] is not Link.STRICT
        ):
            parts.append(_Again(item, 0, following.name))
        else:
            parts.append(item)
    return tuple(parts)


def _repeats_one_variable(item: ast.Pattern) -> bool:
    while isinstance(item, ast.Repeat):
        item = item.item
    return isinstance(item, ast.Var)


def _rounds(again: _Again) -> Iterator[_Rest]:
    """One more round, or leaving the repetition, in order of preference."""
    repeat, done = again.repeat, again.done
    more: list[_PatternPart] = []
    if repeat.most is None or done < repeat.most:
        if done:
            more.append(repeat.link)
        if repeat.until is not None:
            more.append(_Until(repeat.until))
        if again.ended_by is not None and isinstance(repeat.item, ast.Var):
            more.append(_VariableStep(repeat.item.name, again.ended_by))
        elif again.ended_by is not None and isinstance(repeat.item, ast.Repeat):
            more.append(_Again(repeat.item, 0, again.ended_by))
        else:
            more.append(repeat.item)
        counted = done + 1 if repeat.most is not None else min(done + 1, max(1, repeat.least))
        more.append(_Again(repeat, counted, again.ended_by))
    if done < repeat.least:
        yield tuple(more)
        return
    leave: _Rest = ()
    if more and repeat.mode is Mode.POSSESSIVE:
        firsts = [move.step.name for move in _moves((repeat.item,)) if move.step is not None]
        leave = (_Leaving(tuple((name, repeat.until) for name in dict.fromkeys(firsts))),)
    ways = [leave] if not more else [tuple(more), leave]
    yield from reversed(ways) if repeat.mode is Mode.RELUCTANT else ways


@lru_cache(maxsize=1 << 12)
def _can_finish(rest: _Rest) -> bool:
    """Whether some events could complete the pattern from here."""
    seen = {rest}
    stack = [rest]
    while stack:
        for move in _moves(stack.pop()):
            if move.guard.at_start or (move.guard.at_end and move.step is not None):
                continue
            if move.step is None:
                return True
            if move.rest not in seen:
                seen.add(move.rest)
                stack.append(move.rest)
    return False


# --- Runs: which events the moves can take -------------------------------------------------------


@dataclass(frozen=True)
class _OracleState:
    """A run, what is left of the pattern, and what ends the run while it waits."""

    run: Run
    rest: _Rest
    ended_by: str | None


class _Runs:
    """The candidates and the timed-out runs of one start."""

    def __init__(self, question: Question, start: int, free: Callable[[int], bool]) -> None:
        self._question = question
        self._free = free
        self.candidates: list[Run] = []
        self._timed_out: dict[Run, None] = {}
        self._not_partial: set[Run] = set()
        for move in _moves((question.pattern,)):
            if move.guard.at_start and start != 0:
                continue
            if move.step is None:
                if not move.guard.at_end:
                    self.candidates.append(())
            elif not move.guard.at_end and self._may_start(start, move):
                name = move.step.name
                self._extend(_OracleState(((start, name),), move.rest, move.step.ended_by))
        self.timed_out = [run for run in self._timed_out if run not in self._not_partial]

    def _may_start(self, start: int, move: _Continuation) -> bool:
        def holds(name: str) -> bool:
            return self._question.holds(name, start, ())

        assert move.step is not None
        return (
            self._free(start)
            and _can_finish(move.rest)
            and holds(move.step.name)
            and not any(holds(until) for until in move.guard.untils)
            and not any(
                holds(name) and not (until is not None and holds(until))
                for name, until in move.guard.holds
            )
        )

    def _extend(self, state: _OracleState) -> None:
        """Add the candidates that go on from a run, in order of preference."""
        moves = [
            move
            for move in _moves(state.rest)
            if not move.guard.at_start and not (move.guard.at_end and move.step is not None)
        ]
        negations = [negation for move in moves for negation in move.guard.negations]
        if state.ended_by is not None:
            negations.append((state.ended_by, False))
        useful = [move for move in moves if move.step is None or _can_finish(move.rest)]
        ends = [index for index, move in enumerate(useful) if move.step is None]
        for before, end in pairwise([-1, *ends, len(useful)]):
            self._take_all(state, useful[before + 1 : end], negations)
            if end < len(useful) and self._may_accept(state, useful[end]):
                self.candidates.append(state.run)
                self._not_partial.add(state.run)
        waiting = [move for move in useful if move.step is not None]
        if any(self._times_out(state, move, negations) for move in waiting):
            self._timed_out[state.run] = None

    def _take_all(
        self, state: _OracleState, moves: list[_Continuation], negations: list[tuple[str, bool]]
    ) -> None:
        for event in range(state.run[-1][0] + 1, self._question.size):
            for move in moves:
                assert move.step is not None
                if self._free(event) and self._may_take(state, move, event, negations):
                    self._not_partial.add(state.run)
                    run = (*state.run, (event, move.step.name))
                    self._extend(_OracleState(run, move.rest, move.step.ended_by))

    def _may_take(
        self,
        state: _OracleState,
        move: _Continuation,
        event: int,
        negations: list[tuple[str, bool]],
    ) -> bool:
        assert move.step is not None
        skipped = range(state.run[-1][0] + 1, event)
        return (
            self._question.holds(move.step.name, event, state.run)
            and self._in_time(state.run, event)
            and self._still_waits(state, move, skipped, negations)
            and not self._closed(state, move, range(skipped.start, event + 1))
            and not any(
                immediate and self._question.holds(name, skipped.start, state.run)
                for name, immediate in negations
            )
        )

    def _still_waits(
        self,
        state: _OracleState,
        move: _Continuation,
        skipped: range,
        negations: list[tuple[str, bool]],
    ) -> bool:
        """Whether a move survives that these events are skipped."""

        def some(name: str) -> bool:
            return any(self._question.holds(name, event, state.run) for event in skipped)

        assert move.step is not None
        if skipped and move.guard.link is Link.STRICT:
            return False
        if move.guard.link is Link.NEXT and some(move.step.name):
            return False
        return not any(not immediate and some(name) for name, immediate in negations)

    def _closed(self, state: _OracleState, move: _Continuation, events: range) -> bool:
        """Whether an `until` or a possessive repetition rules a move out by these events."""

        def holds(name: str, event: int) -> bool:
            return self._question.holds(name, event, state.run)

        def could_have_taken(name: str, until: str | None, event: int) -> bool:
            return holds(name, event) and not (
                until is not None and any(holds(until, k) for k in range(events.start, event + 1))
            )

        return any(holds(until, event) for until in move.guard.untils for event in events) or any(
            could_have_taken(name, until, event)
            for name, until in move.guard.holds
            for event in events
        )

    def _deadline(self, run: Run) -> int | None:
        if self._question.within is None:
            return None
        first = self._question.kind is WithinKind.FIRST_TO_LAST
        return self._question.times[run[0 if first else -1][0]] + self._question.within

    def _in_time(self, run: Run, event: int) -> bool:
        deadline = self._deadline(run)
        return deadline is None or self._question.times[event] < deadline

    def _events_in_time(self, run: Run) -> range:
        first = run[-1][0] + 1
        last = first
        while last < self._question.size and self._in_time(run, last):
            last += 1
        return range(first, last)

    def _times_out(
        self, state: _OracleState, move: _Continuation, negations: list[tuple[str, bool]]
    ) -> bool:
        """Whether a move was still open when time had reached the deadline."""
        deadline = self._deadline(state.run)
        events = self._events_in_time(state.run)
        watermark = self._question.watermark
        if deadline is None or (
            events.stop == self._question.size and (watermark is None or watermark < deadline)
        ):
            return False
        return (
            self._still_waits(state, move, events, negations)
            and not self._closed(state, move, events)
            and not any(
                immediate and events and self._question.holds(name, events.start, state.run)
                for name, immediate in negations
            )
        )

    def _may_accept(self, state: _OracleState, move: _Continuation) -> bool:
        last = state.run[-1][0]
        if move.guard.at_end and last != self._question.size - 1:
            return False
        for name, immediate in move.guard.negations:
            following = range(last + 1, min(last + 2, self._question.size))
            events = following if immediate else self._events_in_time(state.run)
            if any(self._question.holds(name, event, state.run) for event in events):
                return False
        return True


# --- Emission: which candidates become matches ---------------------------------------------------


class _Emitter:
    """Goes through the starts and emits what no earlier match rules out."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._barrier = -1
        self._consumed: set[int] = set()
        self._matches: list[tuple[int, Run]] = []
        self._timed_out: list[Run] = []

    def answer(self) -> OracleAnswer:
        question = self._question
        if question.selection is Selection.PREFERRED:
            self._preferred()
        elif (
            question.after.skip is Skip.NONE
            and question.consume is Consume.NONE
            and question.per_partition is None
        ):
            self._all_by_completion()
        else:
            self._all_by_start()
        return OracleAnswer(self._matches, self._timed_out)

    def _preferred(self) -> None:
        for start in range(self._question.size):
            if self._full or start <= self._barrier:
                continue
            runs = self._runs(start)
            if runs.candidates:
                self._emit(start, runs.candidates[0])
            else:
                self._timed_out += runs.timed_out

    def _all_by_completion(self) -> None:
        found = []
        for start in range(self._question.size):
            candidates = self._by_completion(start)
            limited = candidates[: self._question.per_start]
            found += [(run[-1][0], start, index, run) for index, run in enumerate(limited)]
            if self._question.per_start is None or len(candidates) < self._question.per_start:
                self._timed_out += self._runs(start).timed_out
        self._matches = [(start, run) for _, start, _, run in sorted(found)]

    def _all_by_start(self) -> None:
        for start in range(self._question.size):
            count = 0
            for run in self._by_completion(start):
                if self._ruled_out(start, run) or count == self._question.per_start:
                    break
                self._emit(start, run)
                count += 1
            full = self._full or count == self._question.per_start
            if start > self._barrier and start not in self._consumed and not full:
                self._timed_out += self._runs(start).timed_out

    def _by_completion(self, start: int) -> list[Run]:
        candidates = dict.fromkeys(run for run in self._runs(start).candidates if run)
        return sorted(candidates, key=lambda run: run[-1][0])

    def _ruled_out(self, start: int, run: Run) -> bool:
        used = any(event in self._consumed for event, _ in run)
        return self._full or start <= self._barrier or used

    def _runs(self, start: int) -> _Runs:
        return _Runs(self._question, start, lambda event: event not in self._consumed)

    @property
    def _full(self) -> bool:
        limit = self._question.per_partition
        return limit is not None and len(self._matches) >= limit

    def _emit(self, start: int, run: Run) -> None:
        self._matches.append((start, run))
        self._barrier = max(self._barrier, self._barrier_of(start, run))
        if self._question.consume is Consume.SELECTED:
            self._consumed.update(event for event, _ in run)
        elif self._question.consume is Consume.ALL and run:
            self._consumed.update(range(start, run[-1][0] + 1))

    def _barrier_of(self, start: int, run: Run) -> int:
        preferred = self._question.selection is Selection.PREFERRED
        own = start if preferred else start - 1
        match self._question.after.skip:
            case _ if not run:
                return start
            case Skip.NONE:
                return own
            case Skip.TO_NEXT_ROW:
                return start
            case Skip.PAST_LAST_ROW:
                return run[-1][0]
            case Skip.TO_FIRST | Skip.TO_LAST as mode:
                events = [event for event, name in run if name in self._question.targets]
                target = None if not events else events[0 if mode is Skip.TO_FIRST else -1]
                if target is None or target == start:
                    if self._question.after.strict:
                        raise SkipFailure("missing" if target is None else "first row")
                    return own
                return max(target - 1, own)
