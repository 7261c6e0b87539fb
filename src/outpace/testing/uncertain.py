"""Matches of events whose order is uncertain, by definition: every order is tried.

The true time of an event lies within half of its width of its own. An order is possible if events
are in the order of their times where that is sure, and events of one source in the order in which
they came. In an order true times rise, and WITHIN measures them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from outpace.pattern.ast import Link

#: The events of a match, step by step.
Taken: TypeAlias = tuple[tuple[int, ...], ...]


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
        """Return the first time that an event may have, doubled."""
        return 2 * self.times[event] - self.widths[event]

    def latest(self, event: int) -> int:
        """Return the last time that an event may have, doubled."""
        return 2 * self.times[event] + self.widths[event]

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


@dataclass(frozen=True)
class AlternativeStep:
    """A step: what fits it beside what is taken, how it follows, and what is not behind it.

    Parameters
    ----------
    fits, absent
        Whether an event may be taken, or must not be skipped, given the events taken so far.
    link, own
        How its first event follows the step before it, and each other one the one before.
    least, most
        How many events it takes.
    """

    fits: Callable[[int, Taken], bool]
    absent: Callable[[int, Taken], bool]
    link: Link = Link.NEXT
    own: Link = Link.NEXT
    least: int = 1
    most: int | None = 1


def confidences(
    events: UncertainEvents,
    steps: Sequence[AlternativeStep],
    within: int,
    *,
    trailing: bool = False,
) -> dict[Taken, str]:
    """Return all matches that some order has, and whether every order has them.

    Parameters
    ----------
    events, steps, within
        The events, the pattern, and WITHIN.
    trailing
        Whether what is absent behind the last step is so until WITHIN ends.
    """
    possible: set[Taken] = set()
    sure: set[Taken] | None = None
    for order in events.orders():
        held = set()
        for place, event in enumerate(order):
            if not steps[0].fits(event, ()):
                continue
            for last, taken in _runs(steps, order, place, ((event,),)):
                ended = None
                if trailing:
                    absent = (
                        place
                        for place in range(last + 1, len(order))
                        if steps[-1].absent(order[place], taken)
                    )
                    ended = next(absent, None)
                match = tuple(tuple(sorted(step)) for step in taken)
                span = _Span(events, order, place, last, ended, within)
                if span.may_fit:
                    possible.add(match)
                if span.fits:
                    held.add(match)
        sure = held if sure is None else sure & held
    return {one: "CONFIRMED" if one in (sure or ()) else "UNCERTAIN" for one in possible}


def _runs(
    steps: Sequence[AlternativeStep], order: list[int], last: int, taken: Taken
) -> Iterator[tuple[int, Taken]]:
    """Yield the runs that go on from a place in an order, with the place of their last event."""
    own, count = steps[len(taken) - 1], len(taken[-1])
    ways = []
    if own.most is None or count < own.most:
        ways.append((own, own.own, taken[:-1], taken[-1]))
    if count >= own.least:
        if len(taken) == len(steps):
            yield last, taken
        else:
            following = steps[len(taken)]
            ways.append((following, following.link, taken, ()))
    for step, link, before, same in ways:
        for place in range(last + 1, len(order)):
            event = order[place]
            if step.fits(event, taken):
                yield from _runs(steps, order, place, (*before, (*same, event)))
                if link is Link.NEXT:
                    break
            if link is Link.STRICT or own.absent(event, taken):
                break


@dataclass(frozen=True)
class _Span:
    """What true times the first and the last event of a match may have in an order.

    `ended` is the place of an event that must not come before WITHIN ends, or None. Times are
    doubled, so that half of the bound is a whole number.
    """

    events: UncertainEvents
    order: list[int]
    first: int
    last: int
    ended: int | None
    within: int

    def _earliest(self, place: int) -> int:
        return max(map(self.events.earliest, self.order[: place + 1]))

    def _latest(self, place: int) -> int:
        return min(map(self.events.latest, self.order[place:]))

    @property
    def may_fit(self) -> bool:
        """Whether some true times are within WITHIN."""
        begin = self._latest(self.first)
        if self.ended is not None:
            begin = min(begin, self._latest(self.ended) - 2 * self.within)
        known = self._earliest(self.first) <= begin
        return known and self._earliest(self.last) - 2 * self.within < begin

    @property
    def fits(self) -> bool:
        """Whether all are."""
        inside = self._latest(self.last) - self._earliest(self.first) < 2 * self.within
        return inside and (
            self.ended is None
            or self._earliest(self.ended) - self._latest(self.first) >= 2 * self.within
        )
