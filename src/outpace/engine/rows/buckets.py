"""Dividing keys into buckets: equal keys are in the same bucket, in every process and block.

Equality is that of partitions: NULLs are equal to each other, and so are NaNs, and zero is equal to
negative zero. Different keys may share a bucket. The work is linear in the bytes of the keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import Unsigned
from outpace.engine.kernels.hashing import add_words, hash_bytes, place_in_buckets
from outpace.engine.rows.partition import one_array
from outpace.pattern.types import value_type

#: What NULL counts as; that some other value counts as the same does no harm.
_NULL: Final = np.uint64(0x6E756C6C)


def key_buckets(
    columns: Sequence[pa.ChunkedArray | pa.Array], buckets: int
) -> npt.NDArray[np.int32]:
    """Return the bucket of each row by its key, which is one value of each column.

    Examples
    --------
    >>> one = key_buckets([pa.array(["a", "b", None, "a"])], 8)
    >>> other = key_buckets([pa.array([None, "a"])], 8)
    >>> bool(one[0] == one[3] == other[1]), bool(one[2] == other[0])
    (True, True)
    """
    hashes = key_hashes(columns)
    out = np.empty(len(hashes), np.int32)
    place_in_buckets(hashes, buckets, out)
    return out


def key_hashes(columns: Sequence[pa.ChunkedArray | pa.Array]) -> Unsigned:
    """Return 64 bits for each row that are equal where the keys are."""
    hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        add_words(_words(one_array(column)), hashes)
    return hashes


def _words(column: pa.Array) -> Unsigned:
    """Return a number for each value, equal for equal values."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), _NULL)
    if pa.types.is_dictionary(kind):
        return _words_of_dictionary(column)
    words = _words_of_values(column)
    if column.null_count:
        words = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, words)
    return words


def _words_of_dictionary(column: pa.Array) -> Unsigned:
    if column.dictionary.null_count or not len(column.dictionary):
        return _words(column.cast(value_type(column.type)))
    codes = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
    words = _words(column.dictionary)[codes]
    missing = column.indices.is_null().to_numpy(zero_copy_only=False)
    return np.where(missing, _NULL, words) if column.indices.null_count else words


def _words_of_values(column: pa.Array) -> Unsigned:
    kind = column.type
    if pa.types.is_floating(kind):
        # Zero and negative zero are equal, and all NaNs, but they have different bits.
        plain = pc.add(column.cast(pa.float64()).fill_null(0.0), 0.0)
        values = np.asarray(plain.to_numpy(zero_copy_only=False))
        return np.where(np.isnan(values), np.nan, values).view(np.uint64)
    if pa.types.is_boolean(kind):
        return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), np.uint64)
    width = kind.bit_width // 8 if pa.types.is_primitive(kind) else 0
    if width in (1, 2, 4, 8):
        return _stored(column, np.dtype(f"i{width}")).astype(np.int64).view(np.uint64)
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        offsets = np.arange(column.offset, column.offset + len(column) + 1) * width
        return _hashed(offsets, column.buffers()[1], len(column))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        column = column.cast(pa.large_binary())
        kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hashed(_stored(column, np.dtype(np.int32), 1), column.buffers()[2], len(column))
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _hashed(_stored(column, np.dtype(np.int64), 1), column.buffers()[2], len(column))
    return np.array([_word_of_value(value) for value in column.to_pylist()], np.uint64)


def _stored(column: pa.Array, kind: np.dtype[Any], more: int = 0) -> npt.NDArray[Any]:
    """Return the numbers of a buffer; what stands for NULL has no meaning."""
    size = len(column) + more
    if not len(column):
        return np.zeros(size, kind)
    return np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + size]


def _hashed(offsets: npt.NDArray[Any], data: pa.Buffer | None, size: int) -> Unsigned:
    words = np.empty(size, np.uint64)
    held = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    hash_bytes(offsets, held, words)
    return words


def _word_of_value(value: object) -> int:
    """Return a number for a nested or rare value."""
    digest = hashlib.blake2b(repr(_canonical(value)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _canonical(value: object) -> object:
    if isinstance(value, dict):
        return [(name, _canonical(part)) for name, part in value.items()]
    if isinstance(value, list | tuple):
        return [_canonical(part) for part in value]
    return value + 0.0 if isinstance(value, float) else value
