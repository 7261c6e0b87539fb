"""Events on their way to an instance: some rows of them, as one table with their numbers."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.event import Events
from outpace.engine.rows.partition import one_array

#: Columns that travel beside those of the events.
_PARTITION: Final = "__outpace_partition"
_ORDINAL: Final = "__outpace_ordinal"
_ARRIVAL: Final = "__outpace_arrival"
_TIMES: Final = "__outpace_times"

#: All of them.
NUMBERS: Final = pa.schema(
    [(name, pa.int64()) for name in (_PARTITION, _ORDINAL, _ARRIVAL, _TIMES)]
)


def packed(events: Events, columns: tuple[str, ...], *, keyed: bool) -> pa.Table:
    """Return events as the table that travels; numbers that can be told from others do not."""
    rows = events.rows.select(columns)
    if keyed:
        rows = rows.append_column(_PARTITION, pa.array(events.partition))
        rows = rows.append_column(_ORDINAL, pa.array(events.ordinal))
    arrival = events.arrival
    if len(arrival) and int(arrival[-1]) - int(arrival[0]) >= len(arrival):
        rows = rows.append_column(_ARRIVAL, pa.array(arrival))
    if len(events.times):
        rows = rows.append_column(_TIMES, pa.array(events.times))
    return rows


def unpacked(rows: pa.Table, first: int) -> Events:
    """Return events that travelled; `first` is the arrival number of the first of them."""
    beside = {
        name: np.asarray(one_array(rows.column(name)), np.int64)
        for name in NUMBERS.names
        if name in rows.column_names
    }
    arrival = beside.get(_ARRIVAL, np.arange(first, first + rows.num_rows, dtype=np.int64))
    return Events(
        rows.drop_columns(list(beside)),
        beside.get(_PARTITION, np.zeros(len(arrival), np.int64)),
        beside.get(_ORDINAL, arrival),
        arrival,
        beside.get(_TIMES, arrival[:0]),
    )
