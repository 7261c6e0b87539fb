"""How long events wait in an order.

Where a column says when events arrived, each event is looked at: it waited from its arrival to that
of the event which moved the watermark past it, however pieces are cut.

Else a piece is one moment, by the clock by which the order decides: the greatest event time that
has come; where sequence numbers decide, the one by which events arrive. No event is looked at then.
While the clock goes on, all that wait do, so the sum of all waits is how many wait, times how far
it goes. The longest wait is that of an event which had waited longest of all when it had its turn,
and of these it is known when they came: at one of the moments that are kept here, up to that of the
oldest event which still waits.

Memory: a number for each piece of which events wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from outpace.compiler.kernel import read_only
from outpace.engine.arrays import END_OF_TIME, NO_TIME, Integers
from outpace.engine.kernels.waits import NO_NUMBER, wait_for_numbers, wait_for_time
from outpace.engine.order.contract import Order, OrderCounters, ReleasedEvents, WatermarkSteps
from outpace.engine.order.moments import arrivals_of
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.times import as_integers
from outpace.engine.snapshot import Stateful
from outpace.pattern.bind.disorder import BoundDisorder

_NOTHING: Final = np.zeros(0, np.int64)
_NO_STEPS: Final = WatermarkSteps(_NOTHING, _NOTHING, _NOTHING, int(NO_TIME))


class Waits(Stateful):
    """Counts how long events wait.

    Parameters
    ----------
    sources
        How many there are: to ask how many of their events wait takes longer the more there are, so
        it is asked less often.

    Attributes
    ----------
    events, waited
        Events that had their turn since `forget`, and how long they and others waited since then,
        added up; in units of time, or in microseconds.
    """

    CHANGED: ClassVar[tuple[str, ...]] = ("_came",)

    def __init__(self, sources: int = 1) -> None:
        self.forget()
        self._every, self._skipped = 1 + sources // 8, 0
        #: The moment that was looked at last, and how many waited then.
        self._now = int(NO_TIME)
        self._waiting = 0
        #: Moments at which events came that may still wait, rising.
        self._came: deque[int] = deque()

    def forget(self) -> None:
        """Count from now on."""
        self.events = self.waited = self._longest = 0

    @property
    def average(self) -> float:
        """How long an event waited on average; the waits of those that still do count so far."""
        return self.waited / self.events if self.events else 0.0

    @property
    def longest(self) -> int:
        """The longest that an event has waited, maybe one that still does."""
        return max(self._longest, self._now - self._came[0]) if self._came else self._longest

    def counters(self, order: Order, source: str | None = None) -> OrderCounters:
        """Return how it goes with an order, or with that of a source; others count late events."""
        if source is None:
            return OrderCounters(
                order.slack,
                order.buffered,
                silent=len(order.silent),
                unawaited=order.unawaited,
                latency=self.average,
                longest_wait=self.longest,
            )
        return OrderCounters(
            order.slack_of(source),
            order.waiting(source),
            silent=int(source in order.silent),
            unawaited=order.unawaited_of(source),
        )

    def begin(self, order: Order) -> None:
        """Look at an order before its first step: events may wait in it that were saved."""
        if self._now == NO_TIME and order.now != NO_TIME:
            self._now, self._waiting = order.now, order.buffered
            if self._waiting:
                # Where no time is over yet, nobody knows how long they have waited.
                self._came.append(order.now if order.oldest == NO_TIME else order.oldest)

    def note(
        self,
        order: Order,
        released: ReleasedEvents,
        arrived: pa.Table | None = None,
        *,
        last: bool = False,
    ) -> None:
        """Look at an order after a step.

        Parameters
        ----------
        order, released
            The order, and what it let go.
        arrived
            The events that came; None where something else happened.
        last
            Whether nothing comes any more.
        """
        self.events += released.rows.num_rows
        self._skipped += 1
        # Who tells that all time is over does not let it pass.
        now = self._now if order.now == END_OF_TIME else order.now
        if now == NO_TIME or (self._skipped < self._every and not last):
            return
        self._skipped = 0
        if self._now != NO_TIME:
            self.waited += self._waiting * (now - self._now)
        self._now, self._waiting = now, order.buffered
        if self._waiting and (not self._came or self._came[-1] < now):
            self._came.append(now)
        oldest = order.oldest if self._waiting else now + 1
        while self._came and self._came[0] < oldest:
            self._longest = max(self._longest, now - self._came.popleft())


class ArrivalWaits(Waits):
    """Counts how long events waited that had their turn, by a column that says when they arrived.

    Where sequence numbers decide, an event waits for the one before it. One before which numbers
    are missing was held for as long as a gap is waited for by now.

    Parameters
    ----------
    disorder
        What names the column, and that of time or of numbers.
    """

    CHANGED = (*Waits.CHANGED, "_last")

    def __init__(self, disorder: BoundDisorder) -> None:
        super().__init__()
        self._arrival, self._time = disorder["arrival"], disorder.time
        self._number: str | None = dict(disorder.settings).get("number")
        #: The number of the last event, and when it had its turn.
        self._last = np.array([NO_NUMBER, NO_TIME])

    def begin(self, order: Order) -> None:
        """Look at nothing: what waits says when it came."""

    def note(
        self,
        order: Order,
        released: ReleasedEvents,
        arrived: pa.Table | None = None,
        *,
        last: bool = False,
    ) -> None:
        """Look at the events that a step gave their turn, and at those that came with it."""
        if arrived is not None and arrived.num_rows:
            moments = arrivals_of(arrived.column(self._arrival).drop_null())
            self._now = int(moments.max(initial=self._now))
        rows, found = released.rows, np.array([0.0, self._longest])
        if not rows.num_rows:
            return
        self.events += rows.num_rows
        arrivals = self._integers(rows.column(self._arrival))
        if self._number is None:
            steps, times = released.steps or _NO_STEPS, self._integers(rows.column(self._time))
            wait_for_time(
                times,
                arrivals,
                read_only(steps.met),
                read_only(steps.moments),
                read_only(steps.order),
                steps.final,
                self._now,
                found,
            )
        else:
            numbers = self._integers(rows.column(self._number))
            wait_for_numbers(numbers, arrivals, order.slack, self._now, self._last, found)
        self.waited += int(found[0])
        self._longest = int(found[1])

    @staticmethod
    def _integers(column: pa.ChunkedArray) -> Integers:
        return read_only(as_integers(one_array(column)))


@dataclass(frozen=True)
class JoinedWaits:
    """The waits of several orders of the same events, of which the longest count."""

    each: Sequence[Waits]

    def forget(self) -> None:
        """Count from now on."""
        for one in self.each:
            one.forget()

    @property
    def waited(self) -> int:
        """How long events waited, added up."""
        return max((one.waited for one in self.each), default=0)

    @property
    def longest(self) -> int:
        """The longest that an event has waited."""
        return max((one.longest for one in self.each), default=0)
