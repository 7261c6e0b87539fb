"""K-slacks of several queries as a chain: an event waits once, for as long as the longest K.

    events ──► K of 1 s ──┬──► K of 5 s ──┬──► K of 9 s ──┐
                          ▼               ▼               ▼
                    queries of 1 s   queries of 5 s   queries of 9 s

The events that the first lets go, and those that are late there, go on to the next, which waits for
the rest of its own K. So each query gets the events that a K-slack of its own would give it.
Memory: an event waits in one place at a time, so all buffers together hold what that of the largest
K would. Paper: Rajendran 2019, 2.3.5, figure 2.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.message import EventsArrived
from outpace.engine.order.contract import Order, ReleasedEvents
from outpace.engine.order.reorderer import Reorderer
from outpace.engine.order.rules import fixed_slack
from outpace.engine.rows.permutation import as_table
from outpace.engine.state import ANY
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import BoundQuery


class SlackChain(Order):
    """Brings events into order for several queries with different K.

    Parameters
    ----------
    bound
        One of the queries; all have the same order.
    disorders
        K-slacks with rising K, alike in all else.
    schema
        The columns of events.
    """

    NUMBERS: ClassVar = {"promise": ("_promise", ANY)}
    PARTS: ClassVar = {"": "_links"}

    def __init__(
        self, bound: BoundQuery, disorders: Sequence[BoundDisorder], schema: pa.Schema
    ) -> None:
        self._slacks = [int(one["slack"]) for one in disorders]
        first, *others = disorders
        self._links = [
            Reorderer(bound, first, schema, fixed_slack(first)),
            *(Reorderer(bound, _checked(one), schema, None) for one in others),
        ]
        self._promise = int(NO_TIME)

    @property
    def buffered(self) -> int:
        """How many events wait, at all links together."""
        return sum(link.buffered for link in self._links)

    @property
    def watermark(self) -> int:
        """No later event of the last link has a time before this; NO_TIME while it is not known."""
        return self._links[-1].watermark

    @property
    def slack(self) -> int:
        """The largest K."""
        return self._slacks[-1]

    @property
    def greatest(self) -> int:
        """The greatest time that events had."""
        return self._links[0].greatest

    @property
    def oldest(self) -> int:
        """What `now` was, at least, when events came that wait at the last link."""
        return self._links[-1].watermark

    def push(self, events: EventsArrived) -> ReleasedEvents:
        """Take events; after an error nothing is taken."""
        return self._pass_on(self._links[0].push(events))

    def tell(self, time: int, source: str | None = None, arrival: int = NO_TIME) -> ReleasedEvents:
        """Take a promise that no later event has a time before this; there is one source."""
        self._promise = max(self._promise, time)
        return self._pass_on(self._links[0].tell(time))

    def finish(self, source: str | None = None) -> ReleasedEvents:
        """Say that no more events come."""
        return self._pass_on(self._links[0].finish(), ended=True)

    def _pass_on(self, released: ReleasedEvents, *, ended: bool = False) -> ReleasedEvents:
        """Let events that a link lets go, late ones too, wait at the next; return all of them."""
        found, greatest = [released], self.greatest
        for link, slack in zip(self._links[1:], self._slacks[1:], strict=True):
            rows = as_table(released.rows)
            if released.late is not None:
                rows = pa.concat_tables([rows, released.late])
            watermark = self._promise
            if greatest != NO_TIME:
                watermark = max(watermark, greatest - slack)
            released = link.push(EventsArrived(rows, watermark=watermark))
            if ended:
                last = link.finish()
                rows = pa.concat_tables([as_table(released.rows), as_table(last.rows)])
                released = ReleasedEvents(rows, last.watermark, released.late)
            found.append(released)
        return replace(released, links=tuple(found))


def _checked(disorder: BoundDisorder) -> BoundDisorder:
    """Return a disorder whose events were looked at before: none is too far ahead."""
    settings = tuple((name, None if name == "ahead" else one) for name, one in disorder.settings)
    return replace(disorder, settings=settings)
