"""Matches of events whose order is uncertain, by definition: every order is tried.

An order is possible if events that are more than the bound apart are in the order of their times,
and events of one source in the order in which they came. In an order, true times rise and each lies
within half of the bound of the event's own; WITHIN measures true times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from outpace.pattern.ast import Link

#: The events of a match, one for each step.
Taken: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class UncertainEvents:
    """Events in the order in which they came: their times, and their sources where these count."""

    times: Sequence[int]
    sources: Sequence[object] | None
    bound: int

    def orders(self) -> Iterator[list[int]]:
        """Yield every order that is possible."""
        return self._continued([], set(range(len(self.times))))

    def _continued(self, order: list[int], left: set[int]) -> Iterator[list[int]]:
        if not left:
            yield list(order)
        for event in sorted(left):
            if not any(self._before(other, event) for other in left - {event}):
                yield from self._continued([*order, event], left - {event})

    def _before(self, one: int, other: int) -> bool:
        """Say whether an event surely happened before another."""
        if self.times[other] - self.times[one] > self.bound:
            return True
        same = self.sources is not None and self.sources[one] == self.sources[other]
        return same and one < other


@dataclass(frozen=True)
class Steps:
    """A sequence: whether an event may be a step, how steps follow, and what is not between."""

    fits: Sequence[Callable[[int], bool]]
    links: Sequence[Link]
    absent: Sequence[Callable[[int], bool]]
    within: int


def confidences(events: UncertainEvents, steps: Steps) -> dict[Taken, str]:
    """Return all matches that some order has, and whether every order has them."""
    possible: set[Taken] = set()
    sure: set[Taken] | None = None
    for order in events.orders():
        found = set(_runs(steps, order, 0, -1, ()))
        possible |= {one for one in found if _gap(events, order, one, least=True) < steps.within}
        held = {one for one in found if _gap(events, order, one, least=False) < steps.within}
        sure = held if sure is None else sure & held
    return {one: "CONFIRMED" if one in (sure or ()) else "UNCERTAIN" for one in possible}


def _runs(steps: Steps, order: list[int], step: int, last: int, taken: Taken) -> Iterator[Taken]:
    """Yield what events can be taken from a place in an order on."""
    if step == len(steps.fits):
        yield taken
        return
    for place in range(last + 1, len(order)):
        event = order[place]
        if steps.fits[step](event):
            yield from _runs(steps, order, step + 1, place, (*taken, event))
            if step and steps.links[step - 1] is Link.NEXT:
                return
        if step and steps.absent[step - 1](event):
            return


def _gap(events: UncertainEvents, order: list[int], taken: Taken, *, least: bool) -> int:
    """Return the least or the greatest true time from the first event to the last."""
    times = [events.times[event] for event in order]
    first, last = order.index(taken[0]), order.index(taken[-1])
    if least:
        return max(times[: last + 1]) - min(times[first:]) - events.bound
    return min(times[last:]) - max(times[: first + 1]) + events.bound
