"""Events on their way into a log: checked, in the log's types, and cut into frames.

A time must be there and in range: for dates and timestamps the years 1 to 9999, which Spark and
Python can tell; for integers less than 2^62 either way, so that durations can be added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.codec.block import block_cells, narrow_rows
from outpace.engine.rows.partition import column_arrays
from outpace.engine.rows.times import as_integers
from outpace.errors import DataError, did_you_mean
from outpace.pattern.types import type_name

#: A frame has at most so many events, and about so many bytes before its numbers are narrowed.
FRAME_EVENTS: Final = 2**18
FRAME_BYTES: Final = 2**25
#: The numbers of fewer events are not narrowed: saying how would take what it saves.
NARROW_EVENTS: Final = 2**9
#: A payload must fit a cell of Spark.
_PAYLOAD_BYTES_MAX: Final = 2**30


@dataclass(frozen=True)
class Payload:
    """A block of events, how many it has, and their least and greatest time."""

    data: pa.Buffer
    events: int
    least: int
    greatest: int


def fitting(events: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return events with the columns and types of a schema, nothing lost.

    Examples
    --------
    >>> schema = pa.schema({"ts": pa.int64(), "price": pa.float64()})
    >>> fitting(pa.table({"price": [1, 2], "ts": [5, 6]}), schema).column_names
    ['ts', 'price']
    >>> fitting(pa.table({"price": ["1", "x"], "ts": [5, 6]}), schema)
    Traceback (most recent call last):
    ...
    outpace.errors.DataError: [data] a value of column 'price' is not of type double
      row 1: 'x'
    """
    for name in schema.names:
        if name not in events.column_names:
            hint = did_you_mean(name, events.column_names)
            raise DataError(f"the events have no column '{name}'", hint=hint)
    for name in events.column_names:
        if name not in schema.names:
            hint = did_you_mean(name, schema.names)
            raise DataError(f"the log has no column '{name}'", hint=hint)
    columns = [_cast(events[field.name], field) for field in schema]
    for field, column in zip(schema, columns, strict=True):
        if not field.nullable and column.null_count:
            row = _first_row(column.is_null())
            raise DataError(f"column '{field.name}' must not be NULL", detail=f"row {row}")
    return pa.table(columns, schema=schema)


def payloads(events: pa.Table, time: str, most: int = FRAME_EVENTS) -> Iterator[Payload]:
    """Cut events into frames with at most so many events, and of a bounded size."""
    per_frame = min(most, max(1, FRAME_BYTES * events.num_rows // max(1, events.nbytes)))
    for start in range(0, events.num_rows, per_frame):
        part = events.slice(start, per_frame)
        columns = column_arrays(part)
        times = as_integers(columns[time])
        if part.num_rows < NARROW_EVENTS:
            block = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        else:
            block = narrow_rows(columns)
        (cell,) = block_cells([block])
        data = cell.as_buffer()
        if len(data) > _PAYLOAD_BYTES_MAX:
            raise DataError(
                "events are too large for a log", detail=f"row {start} on: {len(data)} bytes"
            )
        yield Payload(data, part.num_rows, int(times.min()), int(times.max()))


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column if column.type == field.type else column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        row = _first_bad(column, field.type)
        detail = str(error) if row is None else f"row {row}: {column[row].as_py()!r}"
        raise DataError(
            f"a value of column '{field.name}' is not of type {type_name(field.type)}",
            detail=detail,
        ) from error


def _first_bad(column: pa.ChunkedArray, kind: pa.DataType) -> int | None:
    """Return the first row that cannot be cast, or nothing where no row can."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            column.slice(low, middle - low).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            high = middle
        else:
            low = middle
    return low if len(column) else None


def _first_row(chosen: pa.ChunkedArray) -> int:
    return int(np.flatnonzero(chosen.to_numpy())[0])
