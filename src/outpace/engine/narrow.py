"""Integers in as few bytes as their range needs, for the way between two tasks.

A column of integers, times or dates without NULLs becomes the distance of each value from the least
one, in one, two or four bytes where they suffice. Field metadata says what the least one is, so a
narrow column can be widened alone. Anything else stays as it is.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_LEAST: Final = b"outpace.least"

_KINDS: Final = ((0xFF, pa.uint8()), (0xFFFF, pa.uint16()), (0xFFFFFFFF, pa.uint32()))


def narrow(name: str, column: pa.Array) -> tuple[pa.Field, pa.Array]:
    """Return a column in fewer bytes, and the field that tells how to widen it.

    Examples
    --------
    >>> field, column = narrow("ts", pa.array([1_000_000, 1_000_007]))
    >>> column.type, column.to_pylist()
    (DataType(uint8), [0, 7])
    >>> widen(field, column, pa.int64()).to_pylist()
    [1000000, 1000007]
    """
    plain = pa.field(name, column.type)
    values = _integers(column)
    if values is None or not len(values):
        return plain, column
    least, greatest = int(values.min()), int(values.max())
    for most, kind in _KINDS:
        if greatest - least <= most:
            if kind.bit_width >= values.itemsize * 8:
                break
            near = np.empty(len(values), kind.to_pandas_dtype())
            np.subtract(values, values.dtype.type(least), out=near, casting="unsafe")
            field = pa.field(name, kind, metadata={_LEAST: str(least)})
            return field, pa.Array.from_buffers(kind, len(near), [None, pa.py_buffer(near)])
    return plain, column


def widen(field: pa.Field, column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column that `narrow` made as the type that it had."""
    if field.metadata is None or _LEAST not in field.metadata:
        return column
    width = np.dtype(f"i{kind.bit_width // 8}") if _signed(kind) else kind.to_pandas_dtype()
    wide = np.empty(len(column), width)
    least = wide.dtype.type(int(field.metadata[_LEAST]))
    np.add(column.to_numpy(), least, out=wide, casting="unsafe", dtype=wide.dtype)
    return pa.Array.from_buffers(kind, len(wide), [None, pa.py_buffer(wide)])


def _integers(column: pa.Array) -> npt.NDArray[Any] | None:
    kind = column.type
    if column.null_count or not (_signed(kind) or pa.types.is_unsigned_integer(kind)):
        return None
    width = np.dtype(f"i{kind.bit_width // 8}") if _signed(kind) else kind.to_pandas_dtype()
    if not len(column):
        return np.zeros(0, width)
    return np.frombuffer(column.buffers()[1], width)[column.offset :][: len(column)]


def _signed(kind: pa.DataType) -> bool:
    """Say whether values lie as signed integers in their buffer."""
    return bool(
        pa.types.is_signed_integer(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_duration(kind)
    )
