"""The windows of a table, to look at: one row for each window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.rows.partition import sort_groups
from outpace.engine.rows.times import from_integers
from outpace.engine.split.choose import make_splitter
from outpace.engine.split.number import EventNumbers
from outpace.engine.split.windows import Windows
from outpace.pattern import ast
from outpace.pattern.bind.query import bind
from outpace.pattern.bind.windows import bind_windows
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
    # Partitions and order alone are bound: a pattern is not needed to look at windows.
    rows_query = Query(partitions=query.partitions, order=query.order, tree=ast.Var("A"))
    bound = bind(rows_query, table.schema)
    windows = bind_windows(replace(query, numbered=True), table.schema)
    order = sort_groups(table, bound, None, np.array([0, table.num_rows], np.int64))
    ordered = table if order is None else table.take(pa.array(order))
    numbers = EventNumbers(table.schema, bound.partition_by, windows.time)
    events = numbers.number(ordered)
    numbers.take()
    splitter = make_splitter(windows)
    parts = (splitter.push(events).closed, splitter.finish().closed)
    found = _by_number([part for part in parts if len(part)])
    rows = _places(events.partition, found)
    time = None if windows.time is None else table.schema.field(windows.time).type
    columns = {
        name: numbers.keys.column(name).take(pa.array(found.partition))
        for name in bound.partition_by
    }
    columns["window"] = pa.array(found.number)
    columns["first_row"] = pa.array(rows if order is None else order[rows].astype(np.int64))
    columns["rows"] = pa.array(found.stop - found.first)
    for name, times in (("window_start", found.start_time), ("window_end", found.end_time)):
        missing = pa.nulls(len(found), pa.int64())
        columns[name] = missing if time is None else from_integers(times, time)
    return pa.table(columns)


def _by_number(parts: list[Windows]) -> Windows:
    if not parts:
        return Windows.none()
    lines = np.concatenate([np.stack(part.columns) for part in parts], axis=1)
    partition, number = lines[0], lines[1]
    return Windows(*lines[:, np.lexsort((number, partition))])


def _places(partition: Integers, found: Windows) -> Integers:
    """Return for each window the place of its first event in the stream."""
    order = np.argsort(partition, kind="stable")
    begins = np.searchsorted(partition[order], found.partition)
    places: Integers = order[begins + found.first]
    return places
