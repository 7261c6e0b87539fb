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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME, Booleans, Integers
from outpace.engine.match.bits import BitTask
from outpace.engine.message import EventsArrived, HostLoad
from outpace.engine.order.clock import Clock, SlackRule, order_of
from outpace.engine.order.contract import ReleasedEvents, quarantine_hint
from outpace.engine.order.reorderer import Reorderer
from outpace.engine.order.runs import SortedRun, sorted_run
from outpace.engine.order.total import TotalOrder
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


@dataclass(frozen=True)
class EarlyRelease:
    """How far events have gone on early.

    Parameters
    ----------
    factor
        The part of K that events wait.
    greatest, gone
        The greatest time of all events, and that before which they have gone on.
    times_full
        How often events had to wait longer than the factor says, as there was no room for them.
    """

    factor: SpeculationFactor
    greatest: int = int(NO_TIME)
    gone: int = int(NO_TIME)
    times_full: int = 0

    @staticmethod
    def of(disorder: BoundDisorder) -> EarlyRelease:
        """Return how it begins."""
        alpha: float | None = disorder["alpha"]
        if alpha is None:
            return EarlyRelease(SpeculationFactor(disorder["target"], 1.0))
        return EarlyRelease(SpeculationFactor(None, alpha))

    def follow(self, load: HostLoad | None) -> EarlyRelease:
        """Return how it goes on after a load."""
        return self if load is None else replace(self, factor=self.factor.follow(load.busy))

    def reach(self, certain: int, greatest: int, within: Callable[[int], int]) -> EarlyRelease:
        """Return how far events go on: so far has time come for certain, and at most.

        Up to a time that is due there may be too little room; `within` says up to which there is.
        """
        due = _due(certain, greatest, self.factor.alpha)
        gone = max(self.gone, within(due))
        return EarlyRelease(self.factor, greatest, gone, self.times_full + (gone < due))

    @property
    def numbers(self) -> dict[str, object]:
        """All that is kept, for `restore`."""
        factor = {"alpha": self.factor.alpha, "best": self.factor.best}
        return {"greatest": self.greatest, "gone": self.gone, **factor}

    def restored(self, numbers: Mapping[str, Any]) -> EarlyRelease:
        """Return how it goes on from what `numbers` were."""
        greatest, gone = (integer(numbers, name) for name in ("greatest", "gone"))
        alpha, best = (numbers.get(name) for name in ("alpha", "best"))
        require(isinstance(alpha, float) and 0 <= alpha <= 1, "alpha is from 0 to 1")
        known = isinstance(best, float) and 0 <= best <= 1
        require(best is None or known, "alpha was from 0 to 1")
        factor = replace(self.factor, alpha=float(alpha or 0), best=best)
        return EarlyRelease(factor, greatest, gone)


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
        self._early = EarlyRelease.of(disorder)
        #: The source whose events alone move the clock; None: those of all do.
        self._mover: str | None = disorder["clock"]
        self.memory = disorder["memory"]

    @property
    def alpha(self) -> float:
        """The part of K that events wait now, where there is room."""
        return self._early.factor.alpha

    @property
    def times_full(self) -> int:
        """How often events had to wait longer than that, as there was no room for them."""
        return self._early.times_full

    @property
    def watermark(self) -> int:
        """Events before this time have gone on; NO_TIME while none has."""
        return self._early.gone

    @property
    def certain(self) -> int:
        """No event that is not late has a time before this; NO_TIME while it is not known."""
        return self._clock.watermark

    @property
    def greatest(self) -> int:
        """The greatest time that events had; NO_TIME while none came."""
        return self._early.greatest

    @property
    def now(self) -> int:
        """How far the clock has come by which it decides."""
        return self._early.greatest

    def push(self, events: EventsArrived) -> ReleasedEvents:
        """Take events; after an error nothing is taken."""
        clock, rows, late, invalid, _ = self._admit(events)
        early = self._early.follow(events.load)
        if self._mover is not None:
            greatest = clock.greatest
        elif clock.rule is not None and events.spans is None:
            greatest = max(early.greatest, clock.greatest)  # It has seen the same events.
        else:
            times = as_integers(one_array(rows.column(self._time)))
            greatest = max(early.greatest, int(times.max(initial=NO_TIME)))
        rows, correcting = self._used(rows), None
        behind = as_integers(one_array(rows.column(self._time))) < early.gone
        if behind.any():
            correcting, rows = rows.filter(pa.array(behind)), rows.filter(pa.array(~behind))
        run = sorted_run(rows, self._order.ticks(rows))
        within = partial(time_within, self._order, (*self._runs, run), self.room, clock.watermark)
        early = early.reach(clock.watermark, greatest, within)
        ready = self._release(run, early.gone)
        self._clock, self._early = clock, early
        return ReleasedEvents(ready, early.gone, late, invalid, correcting)

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

    def finish(self, source: str | None = None) -> ReleasedEvents:
        """Say that no more events come, and return those that wait."""
        self._clock.tell(self._early.greatest)
        return super().finish(source)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        return State(self._early.numbers, parts={"order": super().state()})

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        super().restore(state.part("order"))
        self._early = self._early.restored(state.numbers)


def time_within(
    order: TotalOrder, runs: Sequence[SortedRun], room: int | None, certain: int, due: int
) -> int:
    """Return a time before which so many events go on early as there is room for, at most."""
    if room is None:
        return due
    low, high = map(order.in_ticks, (certain, due))
    times = np.concatenate([np.zeros(0, np.int64), *(one.times for one in runs)])
    early = times[(times >= low) & (times < high)]
    if len(early) <= room:
        return due
    first = int(np.partition(early, room)[room])
    return max(certain, order.in_units(first))


def _due(certain: int, greatest: int, alpha: float) -> int:
    """Return the time before which events go on: `ts + alpha K < greatest`."""
    if certain == NO_TIME:
        # As long as nobody knows K, all is speculation.
        return greatest if alpha < 1 else int(NO_TIME)
    return max(certain, greatest - math.floor(alpha * (greatest - certain)))
