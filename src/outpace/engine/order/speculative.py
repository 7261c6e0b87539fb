"""The speculative order: events go on before it is certain that none comes before them.

    times     -----certain-----------early----------greatest-->
                   |<------- K ---------------------->|
                                     |<-- alpha K --->|

A reorderer says how far time has come for certain. What lies behind that, up to a part of the way
to the greatest time, goes on early. An event that comes between the two is put in its place by who
took the early ones; one that comes before what is certain is late.

Memory: the events that wait, and of those behind what is certain the columns that order them.

Papers: Sardar 2018, equation 2.3 and algorithm 1; Mutschler and Philippsen 2013.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME, Booleans
from outpace.engine.event import EVENT_ID
from outpace.engine.message import EventsArrived
from outpace.engine.order.contract import REASON, Order, ReleasedEvents, with_reasons
from outpace.engine.order.reorderer import Reorderer
from outpace.engine.rows.times import as_integers
from outpace.engine.state import State, integer, require
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import BoundQuery
from outpace.pattern.disorder import Disorder, Punctuation

#: What alpha goes down by once it is near what was too much.
LEAST_STEP: Final = 0.05


@dataclass(frozen=True)
class SpeculationFactor:
    """Alpha: the part of K that events wait, which may follow the load.

    As windows of congestion do: a host that is not busy enough halves it. One that is too busy goes
    back to 1, and what was too much is remembered: from half of the way to it on, steps are small.
    (Sardar 2018, 3.2.2 has the line at half of what is left, which lies below what was too much.)

    Parameters
    ----------
    target
        How busy the host is to be, from and to; None where alpha stays as it is.
    alpha
        What it is now.
    best
        What it was when the host was too busy last; None while it never was.

    Examples
    --------
    >>> factor = SpeculationFactor((0.7, 0.9), 1.0)
    >>> for busy in (0.2, 0.4, 0.8, 0.95, 0.3, 0.3, 0.8):
    ...     factor = factor.follow(busy)
    ...     print(round(factor.alpha, 3), end=" ")
    0.5 0.25 0.25 1.0 0.625 0.575 0.575
    """

    target: tuple[float, float] | None
    alpha: float
    best: float | None = None

    def follow(self, busy: float) -> SpeculationFactor:
        """Return the factor for a host that was so busy."""
        if self.target is None:
            return self
        low, high = self.target
        if busy > high:
            return replace(self, alpha=1.0, best=self.alpha)
        if busy >= low:
            return self
        lower = self.alpha / 2 if self.alpha > LEAST_STEP else 0.0
        if self.best is not None:
            line = (1 + self.best) / 2
            lower = max(line, lower) if self.alpha > line else max(0.0, self.alpha - LEAST_STEP)
        return replace(self, alpha=lower)


class SpeculativeOrder(Order):
    """Lets events go on early, and says which belong before them that come later.

    Parameters
    ----------
    bound, disorder, schema
        The query, how its events are out of order, and the columns that they have, ids among them.
    make
        Makes the reorderer that says what is certain.
    """

    CHANGED = ("_certain", "_early")

    def __init__(
        self,
        bound: BoundQuery,
        disorder: BoundDisorder,
        schema: pa.Schema,
        make: Callable[[BoundQuery, BoundDisorder, pa.Schema], Order],
    ) -> None:
        inner: BoundDisorder = disorder["slack"]
        self._time = disorder.time
        # Its events are only told apart: the others have all columns.
        names = {*bound.order_by, *inner.columns, EVENT_ID.name}
        self._told = pa.schema([field for field in schema if field.name in names])
        self._certain = make(bound, inner, self._told)
        told = replace(disorder, value=Punctuation(), settings=_NOTHING_MORE)
        self._early = Reorderer(bound, told, schema, None)
        alpha: float | None = disorder["alpha"]
        self._factor = (
            SpeculationFactor(disorder["target"], 1.0)
            if alpha is None
            else SpeculationFactor(None, alpha)
        )
        #: The greatest time of all events.
        self._greatest = int(NO_TIME)

    @property
    def buffered(self) -> int:
        """How many events wait for their turn."""
        return self._early.buffered

    @property
    def watermark(self) -> int:
        """Events before this time have gone on; NO_TIME while none has."""
        return self._early.watermark

    @property
    def certain(self) -> int:
        """No event that is not late has a time before this; NO_TIME while it is not known."""
        return self._certain.watermark

    @property
    def greatest(self) -> int:
        """The greatest time that events had; NO_TIME while none came."""
        return self._greatest

    @property
    def now(self) -> int:
        """How far the clock has come by which it decides."""
        return self._greatest

    @property
    def slack(self) -> int:
        """K: how long events would wait for those that are late."""
        return self._certain.slack

    @property
    def timer(self) -> int | None:
        """When the reorderer wants to be asked again, by the clock of the host."""
        return self._certain.timer

    def push(self, events: EventsArrived) -> ReleasedEvents:
        """Take events; after an error nothing is taken."""
        rows = events.rows
        found = self._certain.push(replace(events, rows=rows.select(self._told.names)))
        late = invalid = None
        known = np.ones(rows.num_rows, np.bool_)
        if found.late is not None and found.late.num_rows:
            chosen = _are_in(rows, found.late)
            late, known = rows.filter(pa.array(chosen)), known & ~chosen
        if found.invalid is not None and found.invalid.num_rows:
            chosen = _are_in(rows, found.invalid)
            reasons = found.invalid.column(REASON).to_pylist()
            invalid, known = with_reasons(rows.filter(pa.array(chosen)), reasons), known & ~chosen
        if events.busy is not None:
            self._factor = self._factor.follow(events.busy)
        if not known.all():
            rows = rows.filter(pa.array(known))
        if rows.num_rows:
            times = as_integers(rows.column(self._time))
            self._greatest = max(self._greatest, int(times.max()))
        taken = self._early.push(EventsArrived(rows, watermark=self._due))
        return replace(taken, late=late, invalid=invalid, correcting=taken.late)

    @property
    def _due(self) -> int:
        """What lies before this time goes on: `ts + alpha K < greatest`, and never goes back."""
        certain, greatest = self._certain.watermark, self._greatest
        if certain == NO_TIME:
            # As long as nobody knows K, all is speculation.
            return greatest if self._factor.alpha < 1 else int(NO_TIME)
        return max(certain, greatest - math.ceil(self._factor.alpha * (greatest - certain)))

    def tell(self, time: int, source: str | None = None, arrival: int = NO_TIME) -> ReleasedEvents:
        """Take a promise; see `TimeTold`."""
        self._certain.tell(time, source, arrival)
        return self._early.tell(self._due)

    def fire(self, at: int) -> ReleasedEvents:
        """Take note that the clock of the host has come to a time."""
        self._certain.fire(at)
        return self._early.tell(self._due)

    def finish(self, source: str | None = None) -> ReleasedEvents:
        """Say that no more events come, and return those that wait."""
        self._certain.tell(max(self._certain.finish(source).watermark, self._greatest))
        return self._early.finish(source)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        parts = {"certain": self._certain.state(), "early": self._early.state()}
        factor = self._factor
        numbers = {"greatest": self._greatest, "alpha": factor.alpha, "best": factor.best}
        return State(numbers, parts=parts)

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        self._certain.restore(state.part("certain"))
        self._early.restore(state.part("early"))
        self._greatest = integer(state.numbers, "greatest")
        alpha, best = (state.numbers.get(name) for name in ("alpha", "best"))
        require(isinstance(alpha, float) and 0 <= alpha <= 1, "alpha is from 0 to 1")
        known = isinstance(best, float) and 0 <= best <= 1
        require(best is None or known, "alpha was from 0 to 1")
        self._factor = replace(self._factor, alpha=float(alpha or 0), best=best)


_NOTHING_MORE = tuple((name, None) for name in Disorder().options)


def _are_in(rows: pa.Table, some: pa.Table) -> Booleans:
    """Say which rows are some of them, by their ids."""
    found = pc.is_in(rows.column(EVENT_ID.name), some.column(EVENT_ID.name).combine_chunks())
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)
