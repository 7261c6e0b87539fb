"""Events of several sources, in the order of all of them; see `SourceMerge`."""

from __future__ import annotations

import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.order.contract import Released
from outpace.engine.order.sources import SourceMerge, ticks_of
from outpace.engine.snapshot import Stateful
from outpace.engine.state import State
from outpace.errors import BindError
from outpace.pattern.bound import BoundQuery


class SourceOrder(Stateful):
    """Brings the events of several sources into one order.

    Parameters
    ----------
    bound
        The query; its first order column is the time of all sources.
    sources
        Their identifiers.
    """

    CHANGED = ("merge",)

    def __init__(self, bound: BoundQuery, sources: tuple[str, ...]) -> None:
        if not bound.order_by or bound.descending[0]:
            raise BindError(
                "the events of several sources are ordered by rising time",
                hint='name the time column first: order_by("ts")',
            )
        self.merge = SourceMerge(sources, time=bound.order_by[0])
        self._nothing = bound.schema.empty_table()
        self._ticks = ticks_of(bound.schema.field(bound.order_by[0]).type)

    @property
    def buffered(self) -> int:
        """How many events wait for those of other sources."""
        return sum(map(self.merge.buffered, self.merge.sources))

    def push(
        self,
        rows: pa.Table,
        spans: Integers | None = None,
        told: int = NO_TIME,
        source: str | None = None,
    ) -> Released:
        """Take the next events of a source; after an error nothing is taken."""
        self.merge.push(source or "", rows)
        return self._released() if told == NO_TIME else self.tell(told, source)

    def tell(self, time: int, source: str | None = None) -> Released:
        """Take a promise that no later event of a source has a time before this."""
        self.merge.heartbeat(source or "", time * self._ticks)
        return self._released()

    def finish(self, source: str | None = None) -> Released:
        """Say that a source, or every one, sends no more events."""
        for one in self.merge.sources if source is None else [source]:
            self.merge.finish(one)
        return self._released()

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        return self.merge.state()

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        self.merge.restore(state)

    def _released(self) -> Released:
        ordered = self.merge.take()
        time = (
            ordered.watermark if ordered.watermark == NO_TIME else ordered.watermark // self._ticks
        )
        return Released(ordered.rows if len(ordered) else self._nothing, time)
