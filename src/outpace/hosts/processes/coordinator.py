"""The coordinator: routes events to the instances, and merges what they find.

It is a state machine without I/O: what a stimulus asks of the instances is returned as parcels, and
what an instance answers is taken by `receive`. The result does not depend on who answers when.

Memory: what router and merger keep, and one small entry for each parcel without an answer.
Paper: 2.3.4, figure 2.3.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import Events
from outpace.engine.merge.merger import ENDED, Merger
from outpace.engine.split.router import Router, finds_again
from outpace.engine.split.schedule import Delivery
from outpace.engine.split.windows import Split
from outpace.engine.window_match.operator import Instance
from outpace.engine.window_match.result import WindowMatches
from outpace.pattern.bind.windows import BoundWindows
from outpace.pattern.bound import BoundQuery
from outpace.pattern.query import Query


@dataclass(frozen=True)
class Parcel:
    """What an instance is to do next.

    Parameters
    ----------
    instance
        Which one.
    ranges
        The rows of the events that it gets; see `Delivery`.
    split
        Its windows that open and close.
    arrived
        How many events the whole stream has had then.
    """

    instance: int
    ranges: Integers
    split: Split
    arrived: int


@dataclass(frozen=True)
class Answer:
    """What an instance says after a parcel.

    Parameters
    ----------
    matches
        What became final.
    horizon
        No later match starts before this event.
    open_windows
        How many windows it has open.
    """

    matches: WindowMatches
    horizon: int
    open_windows: int

    @staticmethod
    def of(instance: Instance, events: Events, split: Split, arrived: int) -> Answer:
        """Let an instance take events of its windows, and return what it says."""
        matches = instance.step(events, split, arrived=arrived)
        return Answer(matches, instance.horizon, instance.open_windows)


@dataclass
class _Known:
    """What is known of an instance: parcels without an answer, and its last promise."""

    #: For each parcel the arrival number of its first event or later, and how many it has.
    sent: deque[tuple[int, int]]
    events_waiting: int = 0
    horizon: int = 0
    open_windows: int = 0


class Coordinator:
    """Splits a stream over instances and merges their matches.

    Parameters
    ----------
    query
        A query over windows.
    bound, windows
        The query and its windows, bound to the schema of the stream.
    """

    def __init__(self, query: Query, bound: BoundQuery, windows: BoundWindows) -> None:
        count = query.instance_count
        self.router = Router(query, bound, windows)
        self.merger = Merger(bound.output, count, distinct=finds_again(query))
        self._instances = [_Known(deque()) for _ in range(count)]
        self._finished = False

    @property
    def arrived(self) -> int:
        """How many events have come."""
        return self.router.arrived

    @property
    def loads(self) -> list[int]:
        """For each instance the events that it was sent and has not answered for."""
        return [instance.events_waiting for instance in self._instances]

    @property
    def unanswered(self) -> list[int]:
        """For each instance the number of parcels without an answer."""
        return [len(instance.sent) for instance in self._instances]

    @property
    def settled(self) -> bool:
        """Whether the input has ended and every parcel is answered."""
        return self._finished and not any(instance.sent for instance in self._instances)

    def push(self, rows: pa.Table) -> tuple[Events, list[Parcel]]:
        """Take the next rows, in order; return them numbered, and what the instances are to do."""
        before = self.arrived
        events, deliveries = self.router.push(rows, self.loads)
        return events, self._parcels(deliveries, before)

    def advance(self, watermark: int) -> list[Parcel]:
        """Promise that no later event has a time before `watermark`."""
        return self._parcels(self.router.advance(watermark, self.loads), self.arrived)

    def finish(self) -> list[Parcel]:
        """Say that no more events come."""
        parcels = self._parcels(self.router.finish(self.loads), self.arrived)
        self._finished = True
        return parcels

    def receive(self, instance: int, answer: Answer) -> int:
        """Take the answer to the first parcel without one, and return how many events it had."""
        known = self._instances[instance]
        _, events = known.sent.popleft()
        known.events_waiting -= events
        known.horizon, known.open_windows = answer.horizon, answer.open_windows
        self.merger.push(instance, answer.matches)
        return events

    def take(self) -> pa.Table:
        """Return the matches that are complete, in their order."""
        now = ENDED if self._finished else self.arrived
        for number, instance in enumerate(self._instances):
            # Nothing that was sent before the first unanswered parcel can give a match any more.
            frontier = instance.sent[0][0] if instance.sent else now
            horizon = instance.horizon if instance.open_windows else frontier
            self.merger.advance(number, frontier, min(horizon, frontier))
        return self.merger.take().table

    def _parcels(self, deliveries: list[Delivery], before: int) -> list[Parcel]:
        parcels = []
        for delivery in deliveries:
            parcel = Parcel(delivery.instance, delivery.ranges, delivery.split, self.arrived)
            instance = self._instances[delivery.instance]
            instance.sent.append((before, delivery.size))
            instance.events_waiting += delivery.size
            parcels.append(parcel)
        return parcels
