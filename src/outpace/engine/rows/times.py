"""Event time as integers: microseconds for timestamps and dates, the value itself for integers.

A time must be there and in range, so that times can be added and compared in 64 bits: for dates and
timestamps the years 1 to 9999, which Spark and Python can show, for integers less than 2^62 from 0.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.rows.partition import one_array
from outpace.errors import DataError
from outpace.pattern.argument import plain, shown
from outpace.pattern.bound import BoundQuery
from outpace.pattern.types import is_instant, type_name, value_type
from outpace.pattern.values import TIME_LIMIT, computed

_YEAR_1_US: Final = -62_135_596_800_000_000
_YEAR_10000_US: Final = 253_402_300_800_000_000
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def time_values(
    bound: BoundQuery,
    columns: Mapping[str, pa.Array] | pa.Table,
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
    return valid_times(bound.time, columns[bound.time], rows)


def valid_times(
    name: str, column: pa.Array | pa.ChunkedArray, rows: Integers | range | None = None
) -> Integers:
    """Return the times of a column as integers; refuse those that are NULL or out of range.

    Parameters
    ----------
    name, column
        The column.
    rows
        Which rows of the input they are, to name the first that is wrong; None where nobody knows.
    """
    low, stop = time_limits(column.type)
    stored = _stored(column)
    if column.null_count or (len(stored) and (stored.min() < low or stored.max() >= stop)):
        wrong = np.flatnonzero(invalid_times(column)).tolist()
        first, detail = wrong[0], None
        if rows is not None:
            first = min(wrong, key=lambda row: int(rows[row]))
            more = "" if len(wrong) == 1 else f", the first of {len(wrong)} such rows"
            detail = f"row {int(rows[first])} of the input, counted from 0{more}"
        raise DataError(
            reason_of(column, name, first),
            detail=detail,
            hint="event times lie in the years 1 to 9999, as integers from -2^62 to below 2^62"
            if column[first].is_valid
            else "leave such rows out, or give them a time",
        )
    return as_integers(column)


def invalid_times(column: pa.Array | pa.ChunkedArray) -> Booleans:
    """Return for each time whether it is NULL or out of range.

    Examples
    --------
    >>> invalid_times(pa.chunked_array([[1, None, 2**62]])).tolist()
    [False, True, True]
    """
    low, stop = time_limits(column.type)
    stored = _stored(column)
    invalid: Booleans = (stored < low) | (stored >= stop)
    if column.null_count:
        invalid |= np.asarray(one_array(column).is_null().to_numpy(zero_copy_only=False))
    return invalid


def reason_of(column: pa.Array | pa.ChunkedArray, time: str, row: int) -> str:
    """Say what is wrong with a time."""
    if not column[row].is_valid:
        return f"the time '{time}' is NULL"
    # Python has no dates outside of the range.
    shown = column[row].value if is_instant(column.type) else column[row].as_py()
    return f"the time '{time}' is out of range: {shown}"


@lru_cache(maxsize=64)
def time_limits(kind: pa.DataType) -> tuple[int, int]:
    """Return the first time of a type that is in range, and the first after that is not.

    Examples
    --------
    >>> time_limits(pa.timestamp("s"))
    (-62135596800, 253402300800)
    """
    kind = value_type(kind)
    if not is_instant(kind):
        return -TIME_LIMIT, TIME_LIMIT
    if pa.types.is_date32(kind):
        return _YEAR_1_US // (86_400 * 10**6), _YEAR_10000_US // (86_400 * 10**6)
    per_second = _PER_SECOND["ms" if pa.types.is_date64(kind) else kind.unit]
    return _YEAR_1_US * per_second // 10**6, _YEAR_10000_US * per_second // 10**6


def _stored(column: pa.Array | pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[Any]]:
    """Return times as the integers that stand in their column; those of NULL are in range."""
    array = one_array(column)
    if pa.types.is_dictionary(array.type):
        array = array.cast(value_type(array.type))
    if is_instant(array.type):
        array = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    if array.null_count:
        array = array.fill_null(0)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def as_integers(column: pa.Array | pa.ChunkedArray) -> Integers:
    """Return times without NULLs as integers: microseconds, or the integers that they are."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        column = one_array(column).view(pa.int64())
    elif is_instant(kind):
        column = computed(column, pa.timestamp("us", getattr(kind, "tz", None))).cast(pa.int64())
    elif kind != pa.int64():
        try:
            column = pc.cast(column, pa.int64())
        except pa.ArrowInvalid as error:
            raise DataError("a time is too large", detail=str(error)) from None
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


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


def passed(row: int, detail: str) -> DataError:
    """Return the error for a row before a time of which it was said that it has passed."""
    return DataError(
        f"row {row} of the pushed table comes before the time that has passed",
        detail=detail,
        hint="push rows in event order, and advance to times that no row comes before",
    )
