"""A toy reorderer, as CONTRIBUTING says that one is added: it waits by slack or by the clock."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

import pyarrow as pa

import outpace as op
from outpace.engine.arrays import NO_TIME
from outpace.engine.message import EventsArrived
from outpace.engine.order.choose import ORDERS
from outpace.engine.order.clock import fixed
from outpace.engine.order.contract import ReleasedEvents
from outpace.engine.order.reorderer import Reorderer
from outpace.engine.rows.times import as_integers
from outpace.engine.state import State, integer, require
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import BoundQuery
from outpace.pattern.disorder import Disorder
from outpace.pattern.setting import (
    Choice,
    ClockSpan,
    ColumnName,
    ColumnValues,
    Duration,
    EventSpan,
    Number,
    setting,
)


class Rounding(Enum):
    """How a part of the slack becomes a whole number."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Patient(Disorder):
    """An event waits until one is seen that is `share` of `at_most` later, or for `timeout`."""

    described = "an event waits until one is seen that is {share} of {at_most} later"

    at_most: Duration | str = field(metadata=setting(EventSpan(least="at_least")))
    timeout: Duration | str | None = field(default=None, metadata=setting(ClockSpan()))
    share: float = field(default=1, metadata=setting(Number(least=0, most=1)))
    at_least: Duration | str | None = field(default=None, metadata=setting(EventSpan()))
    rounding: Rounding | str = field(default="up", metadata=setting(Choice(Rounding)))
    sequence: str | None = field(default=None, metadata=setting(ColumnName(ColumnValues.INTEGERS)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _read, tuple((one.name, getattr(self, one.name)) for one in fields(self))


class PatientOrder(Reorderer):
    """Lets events go on that have waited long enough by the clock, and all before them."""

    def __init__(self, bound: BoundQuery, disorder: BoundDisorder, schema: pa.Schema) -> None:
        rounded = math.ceil if disorder["rounding"] is Rounding.UP else math.floor
        slack = max(rounded(disorder["at_most"] * disorder["share"]), disorder["at_least"] or 0)
        super().__init__(bound, disorder, schema, fixed(slack))
        self._timeout, self._sequence = disorder["timeout"], disorder["sequence"]
        #: Pieces with events that wait: when their time is up, and the greatest of their times.
        self._waits: list[list[int]] = []

    @property
    def timer(self) -> int | None:
        return min((due for due, _ in self._waits), default=None)

    def push(self, events: EventsArrived) -> ReleasedEvents:
        rows = events.rows
        if self._sequence is not None:
            rows = rows.sort_by(self._sequence)
        released = super().push(EventsArrived(rows, events.source, None, events.watermark))
        # What came may be invalid, or late: only what waits has time.
        waiting = [int(as_integers(run.rows.column(self._time))[-1]) for run in self._runs]
        if waiting and self._timeout is not None and events.arrival != NO_TIME:
            self._waits = [*self._waits, [events.arrival + self._timeout, max(waiting)]]
        return self._forgetting(released)

    def fire(self, at: int) -> ReleasedEvents:
        up = [latest + 1 for due, latest in self._waits if due <= at]
        return self._forgetting(self.tell(max(up, default=int(NO_TIME))))

    def state(self) -> State:
        return State({"waits": self._waits}, parts={"events": super().state()})

    def restore(self, state: State) -> None:
        super().restore(state.part("events"))
        waits = state.numbers.get("waits")
        require(isinstance(waits, list), "nobody knows what waits")
        self._waits = [
            [integer({"due": due}, "due"), integer({"latest": latest}, "latest")]
            for due, latest in waits
        ]

    def _forgetting(self, released: ReleasedEvents) -> ReleasedEvents:
        self._waits = [one for one in self._waits if one[1] >= self.watermark]
        return released


def _read(*settings: tuple[str, Any]) -> Patient:
    """Return the value in a process of Spark, where no test has made the toy known."""
    ORDERS.setdefault(Patient, PatientOrder)
    return Patient(**dict(settings))


#: A query that has it.
ASKED = (
    op.Query("q")
    .order_by("ts")
    .pattern("A B")
    .define(B="x > A.x")
    .measures(at="B.ts")
    .disorder(Patient(4, "1 s", share=0.5))
)
