"""The speculative order: events go on before it is certain that none comes before them.

A reorderer says how far time has come for certain. Behind that events go on early
(`early_release`). An event that belongs before them is put in its place by the part that took them;
one that comes before the certain watermark is late. Where one source moves the clock, the greatest
time is that of its events, and K says how far behind it those of others are.

Memory: the events that wait.

Paper: Sardar 2018, algorithm 1.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME, Booleans, Integers
from outpace.engine.match.bits import BitTask
from outpace.engine.message import EventsArrived
from outpace.engine.order.clock import Clock, SlackRule, order_of
from outpace.engine.order.contract import ReleasedEvents, quarantine_hint
from outpace.engine.order.early_release import EarlyOrder
from outpace.engine.order.reorderer import Reorderer
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.times import as_integers
from outpace.engine.state import State
from outpace.pattern.bind.disorder import SOURCE, BoundDisorder
from outpace.pattern.bound import BoundQuery


class SpeculativeOrder(EarlyOrder, Reorderer):
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
        self._begin_early(disorder)
        #: The source whose events alone move the clock; None: those of all do.
        self._mover: str | None = disorder["clock"]

    @property
    def certain(self) -> int:
        """No event that is not late has a time before this; NO_TIME while it is not known."""
        return self._clock.watermark

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
        rows = self._used(rows)
        correcting, run, early = self._reach(rows, early, clock.watermark, greatest)
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
            moments, values = np.minimum(times, now), self._weights(rows, events)
            order = order_of(moments, values) if len(values) else np.argsort(moments, kind="stable")
            clock.follow(moments[order], values[order] if len(values) else values, at_once=True)
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
