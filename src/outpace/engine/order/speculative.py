"""The speculative order: events go on before it is certain that none comes before them.

    times     -----certain-----------early----------greatest-->
                   |<------- K ---------------------->|
                                     |<-- alpha K --->|

A reorderer says how far time has come for certain. The events behind that, up to a part of the way
to the greatest time, go on early. An event that comes between the two is put in its place by the
part that took the early ones; one that comes before the certain watermark is late. Where one source
moves the clock, the greatest time is that of its events, and K says how far behind it those of
others are.

Memory: the events that wait.

Papers: Sardar 2018, equation 2.3 and algorithm 1; Mutschler and Philippsen 2013.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME, Booleans, Integers
from outpace.engine.match.bits import BitTask
from outpace.engine.message import EventsArrived
from outpace.engine.order.clock import Clock, SlackRule, order_of
from outpace.engine.order.contract import ReleasedEvents, quarantine_hint
from outpace.engine.order.reorderer import Reorderer
from outpace.engine.order.runs import SortedRun, sorted_run
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.times import as_integers
from outpace.engine.state import State, integer, require
from outpace.pattern.bind.disorder import SOURCE, BoundDisorder
from outpace.pattern.bound import BoundQuery

#: What alpha goes down by once it is near what was too much.
LEAST_STEP: Final = 0.05


@dataclass(frozen=True)
class SpeculationFactor:
    """Alpha: the part of K that events wait, which may follow the load.

    As windows of congestion do: a host that is not busy enough halves it. One that is too busy goes
    back to 1, and the factor that was too small is remembered: from half of the way to it on, steps
    are small. (Sardar 2018, 3.2.2 has the line at half of what is left, which lies below that
    factor.)

    Parameters
    ----------
    target
        How busy the host is to be, from and to; None where alpha stays as it is.
    alpha
        The factor now.
    best
        The factor when the host was too busy last; None while it never was.

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


class SpeculativeOrder(Reorderer):
    """Lets events go on early, and says which belong before them that come later.

    Parameters
    ----------
    bound, disorder, schema
        The query, how its events are out of order, and the columns that they have.
    rule
        How K is chosen; None where only watermarks that the source sends make events certain.
    """

    def __init__(
        self,
        bound: BoundQuery,
        disorder: BoundDisorder,
        schema: pa.Schema,
        rule: SlackRule | None,
        useful: BitTask | None = None,
    ) -> None:
        super().__init__(bound, disorder["slack"], schema, rule, useful=useful)
        self._hint = quarantine_hint(disorder)
        alpha: float | None = disorder["alpha"]
        self._factor = (
            SpeculationFactor(disorder["target"], 1.0)
            if alpha is None
            else SpeculationFactor(None, alpha)
        )
        #: The source whose events alone move the clock; None: those of all do.
        self._mover: str | None = disorder["clock"]
        #: How many events that are not certain are kept at most, where somebody says so; how many
        #: more may go on; and how often more would have.
        self.memory: int | None = disorder["memory"]
        self.room: int | None = None
        self._times_full = 0
        #: The greatest time of all events, and that before which they have gone on.
        self._greatest = self._gone = int(NO_TIME)

    @property
    def alpha(self) -> float:
        """The part of K that events wait now, where there is room."""
        return self._factor.alpha

    @property
    def times_full(self) -> int:
        """How often events had to wait longer than that, as there was no room for them."""
        return self._times_full

    @property
    def watermark(self) -> int:
        """Events before this time have gone on; NO_TIME while none has."""
        return self._gone

    @property
    def certain(self) -> int:
        """No event that is not late has a time before this; NO_TIME while it is not known."""
        return self._clock.watermark

    @property
    def greatest(self) -> int:
        """The greatest time that events had; NO_TIME while none came."""
        return self._greatest

    @property
    def now(self) -> int:
        """How far the clock has come by which it decides."""
        return self._greatest

    def push(self, events: EventsArrived) -> ReleasedEvents:
        """Take events; after an error nothing is taken."""
        clock, rows, late, invalid, _ = self._admit(events)
        if self._mover is not None:
            greatest = clock.greatest
        elif clock.rule is not None and events.spans is None:
            greatest = max(self._greatest, clock.greatest)  # It has seen the same events.
        else:
            times = as_integers(one_array(rows.column(self._time)))
            greatest = max(self._greatest, int(times.max(initial=NO_TIME)))
        factor = self._factor if events.load is None else self._factor.follow(events.load.busy)
        due, correcting = _due(clock.watermark, greatest, factor.alpha), None
        rows = self._used(rows)
        behind = as_integers(one_array(rows.column(self._time))) < self._gone
        if behind.any():
            correcting, rows = rows.filter(pa.array(behind)), rows.filter(pa.array(~behind))
        run = sorted_run(rows, self._order.ticks(rows))
        gone = max(self._gone, self._within(run, clock.watermark, due))
        ready = self._release(run, gone)
        self._clock, self._greatest, self._factor, self._gone = clock, greatest, factor, gone
        self._times_full += gone < due
        return ReleasedEvents(ready, gone, late, invalid, correcting)

    def _follow(
        self, clock: Clock, rows: pa.Table, events: EventsArrived
    ) -> tuple[Booleans, Booleans, Integers]:
        """Let the clock see a piece, which only events of one source may move.

        How far behind it what others sent is shows when it goes on (`PENDING` of the kernel), as in
        algorithm 1: what came since it last did counts with its distance, if it lies behind then.
        That may be more than it was late, and never is less. What came before the first event of
        the clock says nothing, since nobody knows when the source began; there it counts.
        """
        if self._mover is None:
            return super()._follow(clock, rows, events)
        assert clock.rule is not None
        times, before = as_integers(one_array(rows.column(self._time))), clock.watermark
        moves = pc.equal(rows.column(SOURCE).cast(pa.string()), self._mover)
        moving = times[np.asarray(pc.fill_null(moves, False), np.bool_)]
        now = max(clock.greatest, int(moving.max(initial=NO_TIME)))
        if now != NO_TIME and clock.rule.by_event:
            seen, values = np.minimum(times, now), self._weights(rows, events)
            order = order_of(seen, values) if len(values) else np.argsort(seen, kind="stable")
            clock.follow(seen[order], values[order] if len(values) else values, at_once=True)
            clock.await_passing(times[times > now])
        elif now != NO_TIME:
            clock.reach(now)
        clock.tell(events.watermark)
        met = np.broadcast_to(np.int64(before), times.shape)
        return np.ones(len(times), np.bool_), times < before, met

    def _within(self, run: SortedRun, certain: int, due: int) -> int:
        """Return a time before which so many events go on early as there is room for, at most."""
        if self.room is None:
            return due
        low, high = map(self._order.in_ticks, (certain, due))
        times = np.concatenate([one.times for one in (*self._runs, run)])
        early = times[(times >= low) & (times < high)]
        if len(early) <= self.room:
            return due
        first = int(np.partition(early, self.room)[self.room])
        return max(certain, self._order.in_units(first))

    def finish(self, source: str | None = None) -> ReleasedEvents:
        """Say that no more events come, and return those that wait."""
        self._clock.tell(self._greatest)
        return super().finish(source)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        factor = self._factor
        numbers = {"greatest": self._greatest, "gone": self._gone}
        return State(
            {**numbers, "alpha": factor.alpha, "best": factor.best},
            parts={"order": super().state()},
        )

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        super().restore(state.part("order"))
        self._greatest, self._gone = (integer(state.numbers, name) for name in ("greatest", "gone"))
        alpha, best = (state.numbers.get(name) for name in ("alpha", "best"))
        require(isinstance(alpha, float) and 0 <= alpha <= 1, "alpha is from 0 to 1")
        known = isinstance(best, float) and 0 <= best <= 1
        require(best is None or known, "alpha was from 0 to 1")
        self._factor = replace(self._factor, alpha=float(alpha or 0), best=best)


def _due(certain: int, greatest: int, alpha: float) -> int:
    """Return the time before which events go on: `ts + alpha K < greatest`."""
    if certain == NO_TIME:
        # As long as nobody knows K, all is speculation.
        return greatest if alpha < 1 else int(NO_TIME)
    return max(certain, greatest - math.floor(alpha * (greatest - certain)))
