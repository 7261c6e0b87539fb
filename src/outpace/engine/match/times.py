"""Event time as integers: microseconds for timestamps and dates, the value itself for integers."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.match.contract import NO_TIME, Integers
from outpace.errors import DataError
from outpace.pattern.argument import plain, shown
from outpace.pattern.bound import BoundQuery
from outpace.pattern.types import is_instant, type_name


def time_values(
    bound: BoundQuery,
    columns: Mapping[str, pa.Array],
    rows: Integers | range | None = None,
) -> Integers:
    """Return the times that WITHIN measures, or nothing for a query without WITHIN.

    Parameters
    ----------
    bound, columns
        A query and its rows.
    rows
        Which rows of the input they are, to name one without a time; None where nobody knows.
    """
    if bound.within is None or bound.time is None:
        return np.zeros(0, np.int64)
    column = columns[bound.time]
    refuse_missing(bound.time, column, rows)
    return as_integers(column)


def refuse_missing(
    time: str, column: pa.Array | pa.ChunkedArray, rows: Integers | range | None
) -> None:
    """Fail where a time is NULL, and say in which row of the input it is."""
    if not column.null_count:
        return
    missing = np.flatnonzero(np.asarray(column.is_null()))
    detail = None
    if rows is not None:
        first = min(int(rows[row]) for row in missing)
        more = "" if len(missing) == 1 else f", the first of {len(missing)} such rows"
        detail = f"row {first} of the input, counted from 0{more}"
    raise DataError(
        f"the time column '{time}' is NULL",
        detail=detail,
        hint="leave such rows out, or give them a time",
    )


def as_integers(column: pa.Array | pa.ChunkedArray) -> Integers:
    """Return times without NULLs as integers: microseconds, or the integers that they are."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    elif kind != pa.int64():
        try:
            column = pc.cast(column, pa.int64())
        except pa.ArrowInvalid as error:
            raise DataError("a time is too large", detail=str(error)) from None
    return np.asarray(column.to_numpy(), np.int64)


def from_integers(values: Integers, kind: pa.DataType) -> pa.Array:
    """Return integers as times of a type: instants of that type, or the integers that they are.

    Examples
    --------
    >>> from_integers(np.array([1_500_000]), pa.timestamp("ms"))[0].as_py()
    datetime.datetime(1970, 1, 1, 0, 0, 1, 500000)
    """
    if pa.types.is_integer(kind):
        return pa.array(values)
    instants = pa.array(values).cast(pa.timestamp("us", getattr(kind, "tz", None)))
    return instants.cast(kind, safe=False)


def time_of(bound: BoundQuery, time: int | datetime.datetime) -> int:
    """Return one time in the units of `time_values`."""
    if bound.time is None or (bound.within is None and bound.query.windows is None):
        return NO_TIME
    return as_integer(time, bound.schema.field(bound.time).type)


def as_integer(time: int | datetime.datetime, kind: pa.DataType) -> int:
    """Return one time, of a column of a type, in the units of `as_integers`.

    Examples
    --------
    >>> as_integer(datetime.datetime(1970, 1, 1, 0, 0, 1), pa.timestamp("ms"))
    1000000
    """
    given, time = time, plain(time)
    if isinstance(time, datetime.datetime) and is_instant(kind):
        return int(pa.scalar(time, pa.timestamp("us", getattr(kind, "tz", None))).value)
    limits = np.iinfo(np.int64)
    if isinstance(time, bool) or not isinstance(time, int) or not limits.min <= time <= limits.max:
        raise DataError(
            f"{shown(given)} is no time of a column of type {type_name(kind)}",
            hint="give an integer of 64 bits, or a datetime where the column has timestamps",
        )
    return time
