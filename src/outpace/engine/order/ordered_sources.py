"""The order of several sources that each send their events in order: these are merged."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.message import EventsArrived
from outpace.engine.order.contract import Order, ReleasedEvents
from outpace.engine.order.senders import owned
from outpace.engine.order.source_merge import CAPACITY, SEQUENCE, SourceMerge, ticks_of
from outpace.engine.state import ANY
from outpace.errors import BindError
from outpace.pattern.bound import BoundQuery


class SourceOrder(Order):
    """Brings the events of several sources, each in order, into one order; see `SourceMerge`.

    Parameters
    ----------
    bound
        The query; its first order column is the time of all sources.
    sources
        Their identifiers.
    schema
        The columns of their events.
    sequence
        The column of their sequence numbers; None where they are counted.
    capacity
        How many events of a source wait for others before more are refused.
    """

    NUMBERS: ClassVar = {"watermark": ("_watermark", ANY)}
    PARTS: ClassVar = {"merge": "_merge"}

    def __init__(
        self,
        bound: BoundQuery,
        sources: tuple[str, ...],
        schema: pa.Schema,
        *,
        sequence: str | None = SEQUENCE,
        capacity: int = CAPACITY,
    ) -> None:
        if not bound.order_by or bound.descending[0]:
            raise BindError(
                "the events of several sources are ordered by rising time",
                hint='name the time column first: order_by("ts")',
            )
        # A join without sequence numbers has the left side first, as where its rows are reordered.
        apart = bound.query.join is not None and SEQUENCE not in schema.names
        self._merge = SourceMerge(
            sources, time=bound.order_by[0], sequence=sequence, apart=apart, capacity=capacity
        )
        self._nothing = schema.empty_table()
        self._ticks = ticks_of(bound.schema.field(bound.order_by[0]).type)
        self._watermark = int(NO_TIME)

    @property
    def buffered(self) -> int:
        """How many events wait for those of other sources."""
        return sum(map(self.waiting, self._merge.sources))

    @property
    def holding(self) -> str | None:
        """The source that the others wait for; None when all have finished."""
        return self._merge.holding

    @property
    def ended(self) -> frozenset[str]:
        """The sources that send no more events."""
        return self._merge.ended

    def waiting(self, source: str) -> int:
        """Return how many events of a source wait."""
        return self._merge.buffered(source)

    def held_back(self, source: str) -> int:
        """Return how many events of a source wait for other sources."""
        return self._merge.buffered(source)

    @property
    def watermark(self) -> int:
        """No later event has a time before this; NO_TIME while it is not known."""
        return self._watermark

    @property
    def greatest(self) -> int:
        """The greatest time of the events of any source."""
        latest = self._merge.latest
        return latest if latest == NO_TIME else latest // self._ticks

    def wants(self, source: str) -> bool:
        """Say whether a source may go on: not too many of its events are held back."""
        return self._merge.wants(source)

    def push(self, events: EventsArrived) -> ReleasedEvents:
        """Take the next events of a source, or of all that the column `source` names.

        After an error nothing is taken.
        """
        if events.source is None:
            return self._push_mixed(events.rows)
        self._merge.push(events.source, events.rows)
        if events.watermark == NO_TIME:
            return self._released()
        return self.tell(events.watermark, events.source)

    def tell(self, time: int, source: str | None = None, arrival: int = NO_TIME) -> ReleasedEvents:
        """Take a promise that no later event of a source has a time before this."""
        self._merge.heartbeat(source or "", time * self._ticks)
        return self._released()

    def fire(self, at: int) -> ReleasedEvents:
        """Take note that the clock of the host has come to a time, which says nothing here."""
        return self._released()

    def finish(self, source: str | None = None) -> ReleasedEvents:
        """Say that a source, or every one, sends no more events."""
        for one in self._merge.sources if source is None else [source]:
            self._merge.finish(one)
        return self._released()

    def _push_mixed(self, rows: pa.Table) -> ReleasedEvents:
        rows, owners, _ = owned(rows, self._merge.sources, None)
        before = self._merge.snapshot()
        try:
            for number in np.unique(owners).tolist():
                own = rows.filter(pa.array(owners == number))
                self._merge.push(self._merge.sources[number], own)
        except BaseException:
            self._merge = before
            raise
        return self._released()

    def _released(self) -> ReleasedEvents:
        ordered = self._merge.pop()
        if ordered.watermark != NO_TIME:
            self._watermark = ordered.watermark // self._ticks
        return ReleasedEvents(
            ordered.rows if ordered.rows.num_rows else self._nothing, self._watermark
        )
