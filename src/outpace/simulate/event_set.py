"""Event sets, the batches of events that the simulator computes with, and queues of them.

A set stands for many events at once: how many they are, when they were last touched, how old they
are on average, and how many events of each producer they result from. Counts are floats: half an
event is half a chance of one. The four operations are equations 3 to 6 of the CEPSim paper
(section 4.2), the queue is equation 7 (section 4.3).

An empty set (cardinality 0) has no totals, and the sum with it is the other set.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EventSet:
    """A batch of events.

    Parameters
    ----------
    cardinality
        The number of events (`cn` in the CEPSim paper).
    timestamp
        The time, in seconds, up to which `latency` counts (`ts`).
    latency
        The average age of the events at `timestamp`, in seconds (`lt`).
    totals
        For each producer, how many of its events these events result from (`tt`).
    spread
        How far the ages of a batch's events lie below and above `latency`, in seconds: all between
        are as likely. Operators that work in batches make it; the paper has nothing like it, and
        elsewhere all events of a set are as old as its average.

    Examples
    --------
    >>> young = EventSet(100.0, timestamp=10.0, latency=5.0, totals={"a": 100.0})
    >>> old = EventSet(300.0, timestamp=14.0, latency=9.0, totals={"b": 300.0})
    >>> (young + old).update(15.0)
    EventSet(cardinality=400.0, timestamp=15.0, latency=10.0, totals={'a': 100.0, 'b': 300.0},
             spread=0.0)
    """

    cardinality: float = 0.0
    timestamp: float = 0.0
    latency: float = 0.0
    totals: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.0

    def __add__(self, other: EventSet) -> EventSet:
        """Return a set with the events of both (equation 3)."""
        if not self.cardinality:
            return other
        if not other.cardinality:
            return self
        cardinality = self.cardinality + other.cardinality
        return EventSet(
            cardinality,
            _average(self.cardinality, self.timestamp, other.cardinality, other.timestamp),
            _average(self.cardinality, self.latency, other.cardinality, other.latency),
            add_totals(self.totals, other.totals),
            _average(self.cardinality, self.spread, other.cardinality, other.spread),
        )

    def extract(self, count: float) -> tuple[EventSet, EventSet]:
        """Return `count` events of the set and the rest of it (equation 4).

        Parameters
        ----------
        count
            How many, not more than there are.
        """
        part = count / self.cardinality
        taken = {producer: part * total for producer, total in self.totals.items()}
        left = {producer: total - taken[producer] for producer, total in self.totals.items()}
        return (
            EventSet(count, self.timestamp, self.latency, taken, self.spread),
            EventSet(self.cardinality - count, self.timestamp, self.latency, left, self.spread),
        )

    def select(self, selectivity: float) -> EventSet:
        """Return what an edge with this selectivity lets through (equation 5).

        The totals stay: the events that come through result from all that went in. Nothing comes
        through an edge of selectivity 0.

        Parameters
        ----------
        selectivity
            How many come through for each that goes in.

        Examples
        --------
        >>> EventSet(100.0, totals={"a": 100.0}).select(0.5)
        EventSet(cardinality=50.0, timestamp=0.0, latency=0.0, totals={'a': 100.0}, spread=0.0)
        """
        if not selectivity:
            return EMPTY
        selected = self.cardinality * selectivity
        return EventSet(selected, self.timestamp, self.latency, self.totals, self.spread)

    def update(self, timestamp: float) -> EventSet:
        """Return the set as it is at this time (equation 6).

        Parameters
        ----------
        timestamp
            The time, in seconds.
        """
        if not self.cardinality:
            return self
        latency = self.latency + (timestamp - self.timestamp)
        return EventSet(self.cardinality, timestamp, latency, self.totals, self.spread)


EMPTY = EventSet()


class EventSetQueue:
    """Event sets in the order of their arrival; `len` is the number of sets.

    It holds at most one set for each time that something was sent to it and is not processed yet.

    Examples
    --------
    >>> queue = EventSetQueue()
    >>> queue.enqueue(EventSet(3.0, timestamp=1.0)); queue.enqueue(EventSet(3.0, timestamp=2.0))
    >>> queue.dequeue(4.0)
    EventSet(cardinality=4.0, timestamp=1.25, latency=0.0, totals={}, spread=0.0)
    >>> queue.cardinality
    2.0
    """

    __slots__ = ("_sets", "cardinality")

    def __init__(self) -> None:
        self._sets: deque[EventSet] = deque()
        #: The sum of the sets' cardinalities (equation 7), kept up to date by adding and
        #: subtracting, and exactly 0 when no set is left.
        self.cardinality = 0.0

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[EventSet]:
        return iter(self._sets)

    def enqueue(self, event_set: EventSet) -> None:
        """Add a set at the back; an empty one changes nothing."""
        if event_set.cardinality:
            self._sets.append(event_set)
            self.cardinality += event_set.cardinality

    def until(self, now: float) -> float:
        """Return how many events had been sent by a time; those sent later are at the back."""
        events = self.cardinality
        for event_set in reversed(self._sets):
            if event_set.timestamp <= now:
                break
            events -= event_set.cardinality
        return events if self._sets and self._sets[0].timestamp <= now else 0.0

    @property
    def begin(self) -> float:
        """When the first set was sent; infinite without one."""
        return self._sets[0].timestamp if self._sets else math.inf

    def drop_after(self, count: float) -> EventSet:
        """Keep the first `count` events, and return the sum of the others, from front to back."""
        kept = self.dequeue_sets(count)
        rest = self.dequeue_all()
        for event_set in kept:
            self.enqueue(event_set)
        return rest

    def dequeue(self, count: float) -> EventSet:
        """Return the sum of the first `count` events, from front to back."""
        return add_sets(self.dequeue_sets(count))

    def dequeue_sets(self, count: float) -> list[EventSet]:
        """Return the sets of the first `count` events, from front to back."""
        taken = []
        while self._sets and count > 0.0:
            front = self._sets.popleft()
            if front.cardinality > count:
                front, rest = front.extract(count)
                self._sets.appendleft(rest)
            taken.append(front)
            count -= front.cardinality
            self.cardinality -= front.cardinality
        if not self._sets:
            self.cardinality = 0.0
        return taken

    def dequeue_all(self) -> EventSet:
        """Return the sum of all events, from front to back."""
        taken = add_sets(self._sets)
        self._sets.clear()
        self.cardinality = 0.0
        return taken


def add_sets(event_sets: Iterable[EventSet]) -> EventSet:
    """Return the sum of the sets, from first to last.

    Examples
    --------
    >>> add_sets([EventSet(1.0), EventSet(2.0)]).cardinality
    3.0
    """
    total = EMPTY
    for event_set in event_sets:
        total += event_set
    return total


def spread_of(event_sets: Iterable[EventSet]) -> float:
    """Return half of the time between the oldest and the youngest events of sets.

    Examples
    --------
    >>> spread_of([EventSet(1.0, timestamp=1.0), EventSet(9.0, timestamp=4.0, latency=1.0)])
    1.0
    """
    oldest, youngest = math.inf, -math.inf
    for event_set in event_sets:
        came = event_set.timestamp - event_set.latency
        oldest = min(oldest, came - event_set.spread)
        youngest = max(youngest, came + event_set.spread)
    return max(0.0, (youngest - oldest) / 2)


def add_totals(left: Mapping[str, float], right: Mapping[str, float]) -> dict[str, float]:
    """Return the totals of both, producer by producer (equation 3e)."""
    totals = dict(left)
    for producer, total in right.items():
        totals[producer] = totals.get(producer, 0.0) + total
    return totals


def _average(left_weight: float, left: float, right_weight: float, right: float) -> float:
    return (left_weight * left + right_weight * right) / (left_weight + right_weight)
