"""Columns in as few bytes as their values need, for the way between two tasks.

Integers, times and dates become the distance of each value from the least one, in one, two or four
bytes where they suffice. Numbers that are decimals with few places, as prices are, become integers
first; each must come back bit by bit. Texts of one length need no offsets; of few texts in many
rows each is there once, where that is asked for, and a number for each row. A column with NULLs,
and any other, stays as it is. Field metadata says what was done, so a narrow column can be widened
alone, and a slice of it too.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Numbers, pooled
from outpace.engine.kernels.narrow import number_texts, scale_exactly

_LEAST: Final = b"outpace.least"
_SCALE: Final = b"outpace.scale"

#: Small types: the greatest distance that each holds, the type, and that of an array.
_KINDS: Final = tuple(
    (int(np.iinfo(small).max), pa.from_numpy_dtype(small), np.dtype(small))
    for small in (np.uint8, np.uint16, np.uint32)
)

#: By the number of a type whose values lie as integers in their buffer: as which.
_LAID: Final = {
    kind.id: np.dtype(f"{'u' if pa.types.is_unsigned_integer(kind) else 'i'}{kind.byte_width}")
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us")),
        *(pa.timestamp("us"), pa.duration("us")),
    )
}
_FLOAT: Final = pa.float64().id
_TEXTS: Final = (pa.string().id, pa.binary().id)

#: What decimals may be multiplied with to be integers, and how many are tried before all are.
_SCALES: Final = (1.0, 10.0, 100.0, 1000.0, 10_000.0)
_TRIED: Final = 32

#: In so many rows, or more, texts are numbered where no more than so many differ. In fewer rows it
#: takes too long: packing 1000 ticks would take 1.6 times as long, for half the bytes.
_MANY: Final = 4096
_FEW: Final = 256


def narrow(name: str, column: pa.Array, *, numbered: bool = False) -> tuple[pa.Field, pa.Array]:
    """Return a column in fewer bytes, and the field that tells how to widen it.

    Parameters
    ----------
    name, column
        The column.
    numbered
        Whether few texts are there once. Only for who reads nothing but what was written here: a
        long text by many numbers would be much larger than its bytes.

    Examples
    --------
    >>> field, column = narrow("ts", pa.array([1_000_000, 1_000_007]))
    >>> column.type, column.to_pylist()
    (DataType(uint8), [0, 7])
    >>> widen(field, column, pa.int64()).to_pylist()
    [1000000, 1000007]
    >>> field, column = narrow("price", pa.array([100.25, 99.5]))
    >>> column.type, widen(field, column, pa.float64()).to_pylist()
    (DataType(uint8), [100.25, 99.5])
    >>> narrow("symbol", pa.array(["ACME", "BOLT"]))[1].type
    FixedSizeBinaryType(fixed_size_binary[4])
    """
    kind = column.type
    if not len(column) or column.null_count:
        return pa.field(name, kind), column
    if is_text(kind):
        short = without_offsets(column)
        if numbered and short is column and len(column) >= _MANY:
            short = _numbered(column)
        return pa.field(name, short.type), short
    values, scale = _integers(column)
    if len(values):
        least, most = np.minimum.reduce(values), np.maximum.reduce(values)
        distance = int(most) - int(least)
        for limit, small, laid in _KINDS:
            if distance <= limit and laid.itemsize < values.itemsize:
                near = pooled(len(values), laid)
                np.subtract(values, least, out=near, casting="unsafe")
                metadata = {_LEAST: str(least)}
                if scale is not None:
                    metadata[_SCALE] = str(int(scale))
                field = pa.field(name, small, metadata=metadata)
                return field, pa.Array.from_buffers(small, len(near), [None, pa.py_buffer(near)])
    return pa.field(name, kind), column


def widen(field: pa.Field, column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column that `narrow` made as the type that it had."""
    if pa.types.is_fixed_size_binary(column.type) and is_text(kind):
        return with_offsets(column, kind)
    if pa.types.is_dictionary(column.type) and is_text(kind):
        return column.dictionary_decode()
    if field.metadata is None or _LEAST not in field.metadata:
        return column
    least, scale = int(field.metadata[_LEAST]), field.metadata.get(_SCALE)
    wide = pooled(len(column), np.int64 if scale else _LAID[kind.id])
    np.add(column.to_numpy(), wide.dtype.type(least), out=wide, casting="unsafe", dtype=wide.dtype)
    values = (
        wide if scale is None else np.divide(wide, int(scale), out=pooled(len(wide), np.float64))
    )
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _integers(column: pa.Array) -> tuple[Numbers, float | None]:
    """Return values as integers, none where they are not, and what decimals were multiplied by."""
    number = column.type.id
    if number == _FLOAT:
        return _decimals(column.to_numpy())
    laid = _LAID.get(number)
    if laid is None:
        return np.zeros(0, np.int64), None
    return np.frombuffer(column.buffers()[1], laid)[column.offset :][: len(column)], None


def _decimals(values: Numbers) -> tuple[Numbers, float | None]:
    tried = np.array(values[:: max(1, len(values) // _TRIED)])
    # Like those of Arrow, or the kernel would be compiled twice.
    tried.flags.writeable = False
    integers = pooled(len(values), np.int64)
    for scale in _SCALES:
        if scale_exactly(tried, scale, integers):
            exact = scale_exactly(values, scale, integers)
            return (integers, scale) if exact else (integers[:0], None)
    return integers[:0], None


def _numbered(column: pa.Array) -> pa.Array:
    """Return texts by number, or as they are where too many differ."""
    _, offsets, data = column.buffers()
    if data is None:
        return column
    bounds = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1]
    numbers, firsts = pooled(len(column), np.uint8), np.empty(_FEW, np.int64)
    count = number_texts(bounds, np.frombuffer(data, np.uint8), numbers, firsts)
    if count < 0:
        return column
    texts = column.take(pa.array(firsts[:count]))
    small = pa.Array.from_buffers(pa.uint8(), len(column), [None, pa.py_buffer(numbers)])
    return pa.DictionaryArray.from_arrays(small, texts)


def without_offsets(column: pa.Array) -> pa.Array:
    """Return texts without their offsets, or as they are where lengths differ."""
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1]
    length = int(bounds[1] - bounds[0])
    if not length or (bounds[1:] - bounds[:-1] != length).any():
        return column
    content = data.slice(int(bounds[0]), length * len(column))
    return pa.Array.from_buffers(pa.binary(length), len(column), [None, content])


def with_offsets(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts that `without_offsets` made as the type that they had."""
    length = column.type.byte_width
    offsets = pooled(len(column) + 1, np.int32)
    offsets[:] = np.arange(0, (len(column) + 1) * length, length, dtype=np.int32)
    data = column.buffers()[1].slice(column.offset * length)
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(offsets), data])


def is_text(kind: pa.DataType) -> bool:
    """Say whether values are bytes with offsets of 32 bits."""
    return kind.id in _TEXTS
