"""The windows of a table, to look at: one row for each window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.operator_spec import OperatorSpec, without_pattern
from outpace.engine.rows.times import from_integers
from outpace.engine.split.number import row_order
from outpace.engine.split.windows import Windows, take_windows
from outpace.engine.whole import whole_delivery
from outpace.pattern.bind.window_kinds import bind_windows
from outpace.pattern.query import Query


def windows_of(query: Query, table: pa.Table) -> pa.Table:
    """Return the windows that a query's `over` makes of a table, by partition and number.

    The result has the partition columns, `window`, `first_row` (the table's row of its first
    event), `rows`, and `window_start` and `window_end` where the first column of the order tells
    the time: the bounds of time windows, else the times of the first and the last event.

    Examples
    --------
    >>> from outpace.pattern.windows import CountWindows
    >>> query = Query().over(CountWindows(2, 1))
    >>> windows_of(query, pa.table({"x": [7, 8]})).select(["window", "rows"]).to_pylist()
    [{'window': 0, 'rows': 2}, {'window': 1, 'rows': 1}]
    """
    shown = replace(without_pattern(query), numbered=True)
    time = bind_windows(shown, table.schema).time
    spec = OperatorSpec(shown, table.schema)
    order = row_order(spec.bound, table, time)
    whole = whole_delivery(spec, table if order is None else table.take(pa.array(order)))
    found = _by_number(whole.split.closed)
    places = _places(whole.events.partition, found)
    rows = places if order is None else order[places].astype(np.int64)
    first = table.select(spec.bound.partition_by).take(pa.array(rows))
    columns = {name: first.column(name) for name in first.column_names}
    columns["window"] = pa.array(found.number)
    columns["first_row"] = pa.array(rows)
    columns["rows"] = pa.array(found.stop - found.first)
    for name, times in (("window_start", found.start_time), ("window_end", found.end_time)):
        columns[name] = pa.nulls(len(found), pa.int64())
        if time is not None:
            columns[name] = from_integers(times, table.schema.field(time).type)
    return pa.table(columns)


def _by_number(windows: Windows) -> Windows:
    return take_windows(windows, np.lexsort((windows.number, windows.partition)))


def _places(partition: Integers, found: Windows) -> Integers:
    """Return for each window the place of its first event in the stream."""
    order = np.argsort(partition, kind="stable")
    begins = np.searchsorted(partition[order], found.partition)
    places: Integers = order[begins + found.first]
    return places
