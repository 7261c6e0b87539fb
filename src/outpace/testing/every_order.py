"""Matches of events whose order is uncertain, by definition: every order is tried.

The true time of an event lies within half of its width of its own. An order is possible if events
are in the order of their times where that is sure, and events of one source in the order in which
they came. In an order true times rise; WITHIN and windows measure them. What matches in an order is
what the oracle says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from outpace.pattern import ast
from outpace.pattern.query import AfterMatch, Selection, Skip
from outpace.testing.oracle import Holds, Question, Run, answer

_NO_SKIP: Final = AfterMatch(Skip.NONE)

#: The events of a match with their variables.
Takes: TypeAlias = frozenset[tuple[int, str]]


@dataclass(frozen=True)
class UncertainEvents:
    """Events as they came: their times, their sources where these count, and their widths."""

    times: Sequence[int]
    sources: Sequence[object] | None
    widths: Sequence[int]

    def orders(self) -> Iterator[list[int]]:
        """Yield every order that is possible."""
        return self._continued([], set(range(len(self.times))))

    def earliest(self, event: int) -> int:
        """Return the first time that an event may have, in quarters of units."""
        return 4 * self.times[event] - 2 * self.widths[event]

    def latest(self, event: int) -> int:
        """Return the last time that an event may have, in quarters of units."""
        return 4 * self.times[event] + 2 * self.widths[event]

    def _continued(self, order: list[int], left: set[int]) -> Iterator[list[int]]:
        if not left:
            yield list(order)
        for event in sorted(left):
            if not any(self._before(other, event) for other in left - {event}):
                yield from self._continued([*order, event], left - {event})

    def _before(self, one: int, other: int) -> bool:
        """Say whether an event surely happened before another."""
        if self.earliest(other) > self.latest(one):
            return True
        same = self.sources is not None and self.sources[one] == self.sources[other]
        return same and one < other


def confidences(
    events: UncertainEvents,
    pattern: ast.Pattern,
    holds: Holds,
    within: int | None,
    window: tuple[int, int] | None = None,
    after: AfterMatch = _NO_SKIP,
) -> dict[Takes, str]:
    """Return all matches that some order has, and whether every order has them.

    Parameters
    ----------
    events, pattern, holds, within
        The events, the pattern, its predicates, and WITHIN.
    window
        Only events with a true time from the first up to the second count.
    after
        Where the search goes on behind a match. Where it skips anything, one match of each start is
        preferred, and WITHIN is as long as all events are apart, since a match that it ends rules
        out none.
    """
    possible: set[Takes] = set()
    sure: set[Takes] | None = None
    for order in events.orders():
        for times in _cut(events, order, window):
            held = set()
            for match, (run, ended) in _runs(order, times, pattern, holds, after).items():
                span = _TrueSpan(times, run[0][0], run[-1][0], ended, within)
                if span.may_fit:
                    possible.add(match)
                if span.fits:
                    held.add(match)
            sure = held if sure is None else sure & held
    return {one: "CONFIRMED" if one in (sure or ()) else "UNCERTAIN" for one in possible}


@dataclass(frozen=True)
class _TrueTimes:
    """What true times the events of an order may have, and which of them are in a window."""

    earliest: list[int]
    latest: list[int]
    first: int
    stop: int


def _cut(
    events: UncertainEvents, order: list[int], window: tuple[int, int] | None
) -> Iterator[_TrueTimes]:
    """Yield the times that an order allows, for each stretch of events that a window may hold."""
    size = len(order)
    stretches = [(0, size)]
    if window is not None:
        stretches = [(first, stop) for first in range(size + 1) for stop in range(first, size + 1)]
    for first, stop in stretches:
        earliest, latest = list(map(events.earliest, order)), list(map(events.latest, order))
        if window is not None:
            since, until = 4 * window[0], 4 * window[1]
            # Nothing else lies on an odd quarter: so it is before what it ends at.
            latest[:first] = [min(time, since - 1) for time in latest[:first]]
            earliest[first:] = [max(time, since) for time in earliest[first:]]
            latest[first:stop] = [min(time, until - 1) for time in latest[first:stop]]
            earliest[stop:] = [max(time, until) for time in earliest[stop:]]
        for place in range(1, size):
            earliest[place] = max(earliest[place - 1 : place + 1])
            latest[-place - 1] = min(latest[-place - 1 :][:2])
        if all(low <= high for low, high in zip(earliest, latest, strict=True)):
            yield _TrueTimes(earliest, latest, first, stop)


def _runs(
    order: list[int], times: _TrueTimes, pattern: ast.Pattern, holds: Holds, after: AfterMatch
) -> dict[Takes, tuple[Run, int | None]]:
    """Return the matches of a stretch, whatever WITHIN is.

    Each has the place of an event that must not come before WITHIN ends, or None.
    """
    found: dict[Takes, tuple[Run, int | None]] = {}
    ends = [times.stop]
    if any(isinstance(node, ast.Not) for node in ast.walk(pattern)):
        ends = [*range(times.first + 1, times.stop + 1)]
    for end in ends:
        taken = order[times.first : end]

        def fits(name: str, place: int, run: Run, taken: list[int] = taken) -> bool:
            return holds(name, taken[place], tuple((taken[at], label) for at, label in run))

        asked = Question(
            pattern,
            len(taken),
            fits,
            times=range(len(taken)),
            within=len(order) + 1,
            selection=Selection.ALL if after == _NO_SKIP else Selection.PREFERRED,
            after=after,
        )
        for _, run in answer(asked).matches:
            placed = tuple((times.first + place, name) for place, name in run)
            match = frozenset((order[place], name) for place, name in placed)
            found[match] = placed, None if end == times.stop else end
    return found


@dataclass(frozen=True)
class _TrueSpan:
    """What true times the first and the last event of a match may have in an order.

    `ended` is the place of an event that must not come before WITHIN ends, or None.
    """

    times: _TrueTimes
    first: int
    last: int
    ended: int | None
    within: int | None

    @property
    def may_fit(self) -> bool:
        """Whether some true times are within WITHIN."""
        if self.within is None:
            return self.ended is None
        begin = self.times.latest[self.first]
        if self.ended is not None:
            begin = min(begin, self.times.latest[self.ended] - 4 * self.within)
        known = self.times.earliest[self.first] <= begin
        return known and self.times.earliest[self.last] - 4 * self.within < begin

    @property
    def fits(self) -> bool:
        """Whether all are."""
        if self.within is None:
            return self.ended is None
        first, last = self.times.earliest[self.first], self.times.latest[self.last]
        inside = last - first < 4 * self.within
        return inside and (
            self.ended is None
            or self.times.earliest[self.ended] - self.times.latest[self.first] >= 4 * self.within
        )
