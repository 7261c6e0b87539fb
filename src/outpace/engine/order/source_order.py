"""Events of several sources, in the order of all of them; see `SourceMerge`.

Order is a chain: where the events of a source are out of order, a part of its own brings them into
order first, so which of them are late depends on that source alone, however the sources are mixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.order.contract import Order, Released
from outpace.engine.order.sources import SourceMerge, ticks_of
from outpace.engine.state import State, integer
from outpace.errors import BindError
from outpace.pattern.bound import BoundQuery


class SourceOrder(Order):
    """Brings the events of several sources into one order.

    Parameters
    ----------
    bound
        The query; its first order column is the time of all sources.
    sources
        Their identifiers.
    schema
        The columns of their events.
    each
        What brings the events of each source into order; None where they are in order.
    """

    CHANGED = ("merge", "_each", "_timers")

    def __init__(
        self,
        bound: BoundQuery,
        sources: tuple[str, ...],
        schema: pa.Schema,
        each: Mapping[str, Order] | None = None,
    ) -> None:
        if not bound.order_by or bound.descending[0]:
            raise BindError(
                "the events of several sources are ordered by rising time",
                hint='name the time column first: order_by("ts")',
            )
        self.merge = SourceMerge(sources, time=bound.order_by[0])
        self._each = dict(each or {})
        self._nothing = schema.empty_table()
        self._ticks = ticks_of(bound.schema.field(bound.order_by[0]).type)
        self._watermark = int(NO_TIME)
        #: When the order of each source wants to be asked again.
        self._timers: dict[str, int | None] = {}

    @property
    def buffered(self) -> int:
        """How many events wait for others, of their source or of other sources."""
        waiting = sum(map(self.merge.buffered, self.merge.sources))
        return waiting + sum(order.buffered for order in self._each.values())

    @property
    def watermark(self) -> int:
        """No later event has a time before this; NO_TIME while it is not known."""
        return self._watermark

    def push(
        self,
        rows: pa.Table,
        spans: Integers | None = None,
        told: int = NO_TIME,
        source: str | None = None,
        arrival: int = NO_TIME,
    ) -> Released:
        """Take the next events of a source; after an error nothing is taken."""
        if source in self._each and not self.merge.has_finished(source):
            released = self._each[source].push(rows, spans, told, arrival=arrival)
            return self._pass_on(source, released)
        self.merge.push(source or "", rows)
        return self._released() if told == NO_TIME else self.tell(told, source)

    def tell(self, time: int, source: str | None = None) -> Released:
        """Take a promise that no later event of a source has a time before this."""
        if source in self._each and not self.merge.has_finished(source):
            return self._pass_on(source, self._each[source].tell(time))
        self.merge.heartbeat(source or "", time * self._ticks)
        return self._released()

    def fire(self, at: int) -> Released:
        """Take note that the clock of the host has come to a time, for every source."""
        for source, order in self._each.items():
            if not self.merge.has_finished(source):
                self._hand_over(source, order.fire(at))
        return self._released()

    def finish(self, source: str | None = None) -> Released:
        """Say that a source, or every one, sends no more events."""
        for one in self.merge.sources if source is None else [source]:
            if one in self._each and not self.merge.has_finished(one):
                self.merge.push(one, self._each[one].finish().rows)
            self.merge.finish(one)
        return self._released()

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        each = {f"source {name}": order.state() for name, order in self._each.items()}
        numbers = {"watermark": self._watermark}
        return State(numbers, parts={"merge": self.merge.state(), **each})

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        self._watermark = integer(state.numbers, "watermark")
        self.merge.restore(state.part("merge"))
        for name, order in self._each.items():
            order.restore(state.part(f"source {name}"))

    def _pass_on(self, source: str, released: Released) -> Released:
        """Let events of a source that are in order wait for those of the others."""
        self._hand_over(source, released)
        return replace(self._released(), late=released.late, invalid=released.invalid)

    def _hand_over(self, source: str, released: Released) -> None:
        self._timers[source] = released.timer
        self.merge.push(source, released.rows)
        if released.watermark != NO_TIME:
            self.merge.heartbeat(source, released.watermark * self._ticks)

    def _released(self) -> Released:
        ordered = self.merge.take()
        if ordered.watermark != NO_TIME:
            self._watermark = ordered.watermark // self._ticks
        rows = ordered.rows if len(ordered) else self._nothing
        timers = [timer for timer in self._timers.values() if timer is not None]
        return Released(rows, self._watermark, timer=min(timers, default=None))
