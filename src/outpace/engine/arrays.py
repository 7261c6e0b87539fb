"""Arrays: their types, memory for them, and arrays of integers that grow."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Integers = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.int8]
Booleans = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

#: Of any width.
Numbers = npt.NDArray[Any]


#: A `watermark` before any time.
NO_TIME = np.iinfo(np.int64).min
#: One behind all time: what still waits for time then ends.
END_OF_TIME: Final = int(np.iinfo(np.int64).max)


#: Integers that are added to at once; so many stay near the processor.
_RAMP: Final = 1 << 14


def pooled(size: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array with any content.

    Examples
    --------
    >>> pooled(3, np.int64).shape, pooled(0, np.int8).shape
    ((3,), (0,))
    """
    width = np.dtype(kind)
    if not size:
        return np.empty(0, width)
    return np.frombuffer(pa.allocate_buffer(size * width.itemsize), width)


def rising(first: int, size: int) -> Integers:
    """Return so many integers from one on, in memory that is used again.

    Examples
    --------
    >>> rising(7, 3).tolist(), rising(-1, 0).tolist()
    ([7, 8, 9], [])
    """
    values = pooled(size, np.int64)
    for low in range(0, size, _RAMP):
        part = values[low : low + _RAMP]
        np.add(_ramp()[: len(part)], first + low, out=part)
    return values


@cache
def _ramp() -> Integers:
    return np.arange(_RAMP)


def repeated(value: bool | int, size: int) -> pa.Array:
    """Return a value so many times; few of it are a part of an array that is there.

    Examples
    --------
    >>> repeated(-1, 3).to_pylist(), repeated(True, 2).to_pylist()
    ([-1, -1, -1], [True, True])
    """
    if size > _RAMP:
        return pa.repeat(value, size)
    return _values(value).slice(0, size)


@lru_cache(maxsize=8, typed=True)
def _values(value: bool | int) -> pa.Array:
    return pa.repeat(value, _RAMP)


def distinct(*parts: Integers) -> Integers:
    """Return the different integers of some arrays, in order.

    To sort them takes a third of the time that `numpy.unique` takes to hash them.

    Examples
    --------
    >>> distinct(np.array([3, 1]), np.array([3])).tolist()
    [1, 3]
    """
    values = np.sort(np.concatenate(parts))
    first = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return values[first]


def grown(values: Integers, size: int, fill: int) -> Integers:
    """Return an array with room for at least so many values; doubling, so each costs the same.

    Examples
    --------
    >>> grown(np.array([7]), 2, -1).tolist(), grown(np.array([7]), 1, -1).tolist()
    ([7, -1, -1, -1], [7])
    """
    if size <= len(values):
        return values
    larger = np.full(2 * size, fill, np.int64)
    larger[: len(values)] = values
    return larger
