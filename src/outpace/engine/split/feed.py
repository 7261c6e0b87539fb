"""The input of windows: rows in the query's order become numbered events.

A table is sorted first; pieces of a stream that go back are refused where nobody has put them in
order. Memory: one entry for every partition there has been, and the place of the last row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import Events
from outpace.engine.order.arrival import Arrival
from outpace.engine.rows.partition import sort_groups
from outpace.engine.rows.times import valid_times
from outpace.engine.split.number import EventNumbers
from outpace.engine.split.splitter import Splitter
from outpace.engine.split.windows import Windows
from outpace.engine.state import pack, parts, require, unpack
from outpace.pattern.bind.windows import BoundWindows, ByTime
from outpace.pattern.bound import BoundQuery


def may_forget(bound: BoundQuery, windows: BoundWindows) -> bool:
    """Say whether a partition without open windows can be forgotten, and nothing shown tells it.

    Shown numbers of windows count on where a partition comes again, but those of time windows,
    which time alone gives.
    """
    return windows.keyed and (not bound.query.numbered or isinstance(windows.kind, ByTime))


def in_order(bound: BoundQuery, table: pa.Table, windows: BoundWindows | None = None) -> pa.Table:
    """Return a table's rows in the query's order, over all partitions, ties as they come.

    Where the windows are given, a row without the time that they measure is refused by its number
    in the table: sorted, it would have another.
    """
    time = None if windows is None else _time(bound, windows)
    if time is not None:
        valid_times(time, table.column(time), range(table.num_rows))
    order = _order(bound, table)
    return table if order is None else table.take(pa.array(order))


class Feed:
    """Numbers the events of a stream, in the order that the query asks for.

    Parameters
    ----------
    bound, windows
        The query, and its windows.
    checked
        Whether rows that go back are refused; needless where a reorderer has put them in order.
    """

    def __init__(self, bound: BoundQuery, windows: BoundWindows, *, checked: bool = True) -> None:
        self._checked = checked
        self._numbers = EventNumbers(bound.schema, bound.partition_by, _time(bound, windows))
        self._arrival = Arrival(bound)

    @property
    def arrived(self) -> int:
        """How many events were taken."""
        return self._numbers.arrived

    @property
    def partitions(self) -> int:
        """How many partitions are known."""
        return self._numbers.partitions

    def number(self, rows: pa.Table) -> Events:
        """Number the next events; they count from `take` on."""
        if self._checked:
            self._arrival.check(rows)
        return self._numbers.number(rows)

    def take(self, events: Events) -> None:
        """Count the events that `number` returned last."""
        self._numbers.take(events)
        if self._checked:
            self._arrival.take(events.rows)

    def forget(self, partitions: Integers) -> None:
        """Forget partitions; see `EventNumbers.forget`."""
        self._numbers.forget(partitions)

    def state(self) -> bytes:
        """Return all that is kept, as bytes for `restore`."""
        return pack({}, [pa.table({"": [self._numbers.state()]}), self._arrival.latest])

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned."""
        _, (numbers, latest) = unpack(data, 2)
        self._arrival.restore(latest)
        self._numbers.restore(*parts(numbers, 1, ""))

    def require_same(self, splitter: Splitter, opened: Windows) -> None:
        """Refuse the saved state of a splitter, with these open windows, that took other events."""
        numbers, seen = self._numbers, splitter.seen
        taken = numbers.taken
        same = len(seen) <= len(taken) and (seen == taken[: len(seen)]).all()
        same = same and not taken[len(seen) :].any() and splitter.arrived == numbers.arrived
        require(same, "windows have other events than the stream")
        require((opened.first < opened.stop).all(), "a window has no events")
        require(not np.isin(opened.partition, numbers.forgotten).any(), "a partition is forgotten")


def _time(bound: BoundQuery, windows: BoundWindows) -> str | None:
    """Return the column with the times that windows or WITHIN measure."""
    return windows.time if bound.within is None else bound.time


def _order(bound: BoundQuery, table: pa.Table) -> np.ndarray | None:
    if not bound.order_by or not table.num_rows:
        return None
    return sort_groups(table, bound, None, np.array([0, table.num_rows], np.int64))
