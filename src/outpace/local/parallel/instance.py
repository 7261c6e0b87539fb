"""An instance: from what it is sent to what it answers, without I/O.

Paper: 2.3.4 and 3.1.4.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from outpace.engine.match.contract import Integers
from outpace.engine.partition import one_array
from outpace.engine.window.contract import Events, Split
from outpace.engine.window.match import WindowMatcher
from outpace.engine.window.operator import make_instance
from outpace.engine.window.rows import select
from outpace.local.parallel.coordinator import Answer
from outpace.pattern.query import Query

#: Columns that travel beside those of the events.
_PARTITION, _ORDINAL, _TIMES = "__outpace_partition", "__outpace_ordinal", "__outpace_times"


class Instance:
    """Matches the windows that it is given.

    Parameters
    ----------
    query, schema
        The query, and the schema of the stream that it runs on.
    """

    def __init__(self, query: Query, schema: pa.Schema) -> None:
        self._core = make_instance(query, schema)[1]

    @property
    def rows_kept(self) -> int:
        """How many rows undecided matches may still need."""
        return self._core.rows_kept

    def answer(self, events: Events, split: Split, arrived: int) -> Answer:
        """Take the next events of its windows and return what to say."""
        matches = self._core.step(events, split, arrived=arrived)
        # What user-defined operators give is never the same twice, so nobody asks where it starts.
        horizon = self._core.horizon if isinstance(self._core, WindowMatcher) else arrived
        return Answer(matches, horizon, self._core.open_windows)


def chosen(events: Events, ranges: Integers) -> Events:
    """Return the events in ranges of rows; one range alone is not copied."""
    if len(ranges) == 1:
        low, high = ranges[0].tolist()
        return Events(
            events.rows.slice(low, high - low),
            events.partition[low:high],
            events.ordinal[low:high],
            events.arrival[low:high],
            events.times[low:high],
        )
    sizes = ranges[:, 1] - ranges[:, 0]
    before = np.cumsum(sizes) - sizes
    return select(events, np.repeat(ranges[:, 0] - before, sizes) + np.arange(sizes.sum()))


def packed(events: Events, columns: tuple[str, ...], *, keyed: bool) -> pa.Table:
    """Return events as the table that travels; their arrival numbers follow each other."""
    rows = events.rows.select(columns)
    if keyed:
        rows = rows.append_column(_PARTITION, pa.array(events.partition))
        rows = rows.append_column(_ORDINAL, pa.array(events.ordinal))
    if len(events.times):
        rows = rows.append_column(_TIMES, pa.array(events.times))
    return rows


def unpacked(rows: pa.Table, first: int) -> Events:
    """Return events that travelled; `first` is the arrival number of the first of them."""
    arrival = np.arange(first, first + rows.num_rows, dtype=np.int64)
    beside = {
        name: np.asarray(one_array(rows.column(name)), np.int64)
        for name in (_PARTITION, _ORDINAL, _TIMES)
        if name in rows.column_names
    }
    return Events(
        rows.drop_columns([name for name in rows.column_names if name in beside]),
        beside.get(_PARTITION, np.zeros(len(arrival), np.int64)),
        beside.get(_ORDINAL, arrival),
        arrival,
        beside.get(_TIMES, arrival[:0]),
    )
