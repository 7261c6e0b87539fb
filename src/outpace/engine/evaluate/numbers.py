"""Columns as numbers that compare, and add up, as their values do.

Times and intervals are microseconds (dates: days), decimals are counted in units of their last
digit, and texts are numbers of their own, which several columns may share.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import Booleans, Integers, Numbers
from outpace.engine.evaluate.mask import stored_values
from outpace.pattern import types


def is_text(kind: pa.DataType) -> bool:
    """Say whether values are texts or bytes, of which only is known how they compare."""
    return types.is_string(kind) or types.is_binary(kind)


def numbers_of(columns: Sequence[pa.Array], *, ordered: bool) -> list[Numbers | None]:
    """Return columns as numbers; what stands for NULL has no meaning.

    Parameters
    ----------
    columns
        Texts among them compare with each other.
    ordered
        Whether it counts which of two texts is the lesser.

    Returns
    -------
    list
        None for a column of another type, and of decimals that do not fit into 64 bits.

    Examples
    --------
    >>> names, rivals = pa.array(["b", "b", "a"]), pa.array(["c", "a", "b"])
    >>> [found.tolist() for found in numbers_of([names, rivals], ordered=True)]
    [[1, 1, 0], [2, 0, 1]]
    """
    found = [None if is_text(column.type) else _plain(column) for column in columns]
    for wide, texts in (
        (pa.large_string(), types.is_string),
        (pa.large_binary(), types.is_binary),
    ):
        places = [place for place, column in enumerate(columns) if texts(column.type)]
        codes = _text_codes([columns[place].cast(wide) for place in places], ordered)
        for place, values in zip(places, codes, strict=True):
            found[place] = values
    return found


def from_numbers(numbers: Integers, kind: pa.DataType, null: Booleans) -> pa.Array:
    """Return integers as the values of a type that they stand for, see `numbers_of`.

    Examples
    --------
    >>> from_numbers(np.array([-150, 7]), pa.decimal128(5, 2), np.array([False, True])).to_pylist()
    [Decimal('-1.50'), None]
    """
    if not types.is_decimal(kind):
        return pa.array(numbers, kind if pa.types.is_duration(kind) else None, mask=null).cast(kind)
    words = np.empty((len(numbers), 2), np.int64)
    words[:, 0], words[:, 1] = numbers, numbers >> 63
    known = pa.array(~null).buffers()[1] if null.any() else None
    return pa.Array.from_buffers(kind, len(numbers), [known, pa.py_buffer(words)])


def _text_codes(columns: Sequence[pa.Array], ordered: bool) -> list[Integers]:
    """Return texts as numbers that are equal, and where asked for in order, as the texts are."""
    if not columns:
        return []
    whole = columns[0] if len(columns) == 1 else pa.concat_arrays(columns)
    encoded = whole.dictionary_encode()
    codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if ordered:
        rank = np.empty(len(encoded.dictionary), np.int64)
        rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
        codes = rank[codes] if len(rank) else codes
    ends = np.cumsum([len(column) for column in columns])
    return np.split(codes, ends[:-1])


def _plain(column: pa.Array) -> npt.NDArray[np.generic] | None:
    kind = column.type
    if pa.types.is_boolean(kind):
        flags: Booleans = column.fill_null(False).to_numpy(zero_copy_only=False)
        return flags
    if types.is_decimal(kind):
        return _unscaled(column)
    if types.is_temporal(kind):
        column = column.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        return None
    return stored_values(column)


def _unscaled(column: pa.Array) -> Integers | None:
    """Return decimals in units of their last digit, None where 64 bits do not hold them."""
    column = column.cast(pa.decimal128(types.MAX_PRECISION, column.type.scale))
    column = column.fill_null(0) if column.null_count else column
    words = np.frombuffer(column.buffers()[1], np.int64) if len(column) else np.zeros(0, np.int64)
    words = words[2 * column.offset : 2 * (column.offset + len(column))]
    low, high = words[0::2], words[1::2]
    fits = high == low >> 63
    return low if fits.all() else None
