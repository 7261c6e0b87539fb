"""The way of events to the instances: numbered, split into windows, and given to who has them.

It is the same whoever runs the instances: processes that answer one by one, or tasks that all take
the same batch. Memory: what numbers, splitter and schedule keep, see there. Paper: 2.3.4.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.event import Events
from outpace.engine.split.choose import make_splitter
from outpace.engine.split.feed import Feed, may_forget
from outpace.engine.split.schedule import Delivery, Schedule, overlapping, scheduler_of
from outpace.engine.split.windows import Split, joined_windows
from outpace.engine.state import pack, parts, unpack
from outpace.pattern.bind.windows import BoundWindows
from outpace.pattern.bound import BoundQuery
from outpace.pattern.query import Query
from outpace.pattern.schedulers import ByKey


class Router:
    """Says what each instance gets of a stream.

    Parameters
    ----------
    query
        A query over windows.
    bound, windows
        The query and its windows, bound to the schema of the stream.
    checked
        Whether rows that go back are refused; see `Feed`.
    forgets
        Whether partitions without open windows are forgotten, where nothing that is shown counts
        their events or windows. Then what different keys have at the same time comes in any order.
    """

    def __init__(
        self,
        query: Query,
        bound: BoundQuery,
        windows: BoundWindows,
        *,
        checked: bool = True,
        forgets: bool = False,
    ) -> None:
        self._feed = Feed(bound, windows, checked=checked)
        self.splitter = make_splitter(windows)
        self.schedule = Schedule(scheduler_of(query), query.instance_count, keyed=windows.keyed)
        self._nothing = bound.schema.empty_table()
        self._forgets = forgets and may_forget(bound, windows)

    @property
    def arrived(self) -> int:
        """How many events have come."""
        return self._feed.arrived

    @property
    def partitions(self) -> int:
        """How many partitions are known."""
        return self._feed.partitions

    def push(
        self, rows: pa.Table, loads: Sequence[float], watermark: int = NO_TIME
    ) -> tuple[Events, list[Delivery]]:
        """Take the next rows, in order; return them numbered, and what the instances get.

        Parameters
        ----------
        rows
            The rows.
        loads
            For each instance the events that wait for it.
        watermark
            A promise: no event behind these rows has a time before this.
        """
        events = self._feed.number(rows)
        split = self.splitter.push(events)
        self._feed.take(events)
        passed = self.splitter.advance(watermark)
        closed = joined_windows(split.closed, passed.closed)
        deliveries = self.schedule.route(events, Split(split.opened, closed), loads)
        if self._forgets:
            touched = np.union1d(events.partition, closed.partition)
            self._feed.forget(self.splitter.idle(touched))
        return events, deliveries

    def advance(self, watermark: int, loads: Sequence[float]) -> list[Delivery]:
        """Promise that no later event has a time before `watermark`."""
        return self.push(self._nothing, loads, watermark)[1]

    def finish(self, loads: Sequence[float]) -> list[Delivery]:
        """Say that no more events come."""
        events = self._feed.number(self._nothing)
        return self.schedule.route(events, self.splitter.finish(), loads)

    def state(self) -> bytes:
        """Return all that is kept, as bytes for `restore`."""
        states = [self._feed.state(), self.splitter.state(), self.schedule.state()]
        return pack({}, [pa.table({"part": pa.array(states, pa.binary())})])

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned, maybe in another process."""
        _, (saved,) = unpack(data, 1)
        feed, splitter, schedule = parts(saved, 3)
        self._feed.restore(feed)
        self.splitter.restore(splitter)
        opened = self.splitter.opened()
        self._feed.require_same(self.splitter, opened)
        self.schedule.restore(schedule, opened)


def finds_again(query: Query) -> bool:
    """Say whether two instances may find the same match, of which one is to come out."""
    apart = query.instance_count == 1 or isinstance(scheduler_of(query), ByKey)
    return not (
        query.duplicates or query.operator is not None or apart or not overlapping(query.windows, 1)
    )
