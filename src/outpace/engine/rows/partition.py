"""Sorting rows into partitions: by key in linear time, then by the query's order only where needed.

Partitions come in the order of their first row and rows of a partition in the query's order, ties
as they came in. A table without keys that is in order already is not touched at all.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import Integers, pooled
from outpace.engine.kernels.grouping import (
    Scatter,
    encode_range,
    gather_rows,
    is_ascending,
    is_ascending_in_groups,
    number_rows,
    order_rows,
    scatter_of,
    scatter_rows,
)
from outpace.engine.rows.narrow import is_text, with_offsets, without_offsets
from outpace.pattern.bound import BoundQuery
from outpace.pattern.types import value_type

#: Row numbers: 32 bits where they fit, which halves what a sort moves.
RowNumbers = npt.NDArray[Any]

#: Integer keys in a range up to this size, or up to the number of rows, are numbered by a table.
_RANGE_MIN = 1 << 16

#: So many rows are moved before a kernel is called.
_FEW_ROWS = 1 << 12

_INT32_MAX = np.iinfo(np.int32).max

#: By the number of a type whose values lie in a plain buffer: the bytes of each.
_WIDTHS: dict[int, int] = {
    kind.id: kind.bit_width // 8
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us")),
        *(pa.timestamp("us"), pa.duration("us")),
    )
}

#: Stands for NaN where keys are compared: all of them are one key.
_NOT_A_NUMBER = object()


@dataclass(frozen=True)
class SortedTable:
    """A table sorted by partition and order.

    Parameters
    ----------
    columns
        The columns that were asked for, sorted; those of a table that was in order are not copied.
    segments
        The sorted row where each partition starts, and the number of rows at the end.
    order
        Row numbers in sorted order; None where the table was sorted as it is.
    ordinals
        The number of each sorted row in its partition.
    """

    columns: dict[str, pa.Array]
    segments: Integers
    order: RowNumbers | None
    ordinals: RowNumbers


def sort_table(table: pa.Table, bound: BoundQuery, names: Sequence[str]) -> SortedTable:
    """Sort the named columns of a table by the query's partitions and order."""
    size = table.num_rows
    grouping = _group(table, bound.partition_by)
    segments = grouping.segments
    order = sort_groups(table, bound, grouping.order, segments)
    scatter = grouping.scatter if order is grouping.order else None
    columns = {}
    for name in names:
        column = one_array(table.column(name))
        # Equal keys can look different (0.0 and -0.0): a partition shows its first row's.
        if name in bound.partition_by and (order is not None or pa.types.is_floating(column.type)):
            firsts = segments[:-1] if order is None else order[segments[:-1]]
            columns[name] = _repeated(column.take(pa.array(firsts)), segments)
        else:
            columns[name] = place_rows(column, order, scatter)
    ordinals = np.empty(size, row_type(size))
    number_rows(segments, ordinals)
    return SortedTable(columns, segments, order, ordinals)


def sort_rows(table: pa.Table, bound: BoundQuery) -> tuple[RowNumbers | None, Integers]:
    """Return the order that sorts a table by partition and order, and where partitions start.

    Returns
    -------
    order
        Row numbers in sorted order; None where the table is sorted as it is.
    segments
        The sorted row where each partition starts, and the number of rows at the end.
    """
    if table.num_rows == 0:
        return None, np.zeros(1, np.int64)
    grouping = _group(table, bound.partition_by)
    segments = grouping.segments
    return sort_groups(table, bound, grouping.order, segments), segments


def sort_groups(
    table: pa.Table, bound: BoundQuery, order: RowNumbers | None, segments: Integers
) -> RowNumbers | None:
    """Return the order that sorts each partition by the query's order, ties as they come.

    Parameters
    ----------
    table, bound
        The rows, and the query.
    order, segments
        Row numbers by partition, None where rows lie so, and where partitions start. It is returned
        as it is where partitions are in order already.
    """
    if not bound.order_by or not table.num_rows or _in_order(table, bound, order, segments):
        return order
    ranked = _ranked(table, bound, order, segments)
    return ranked if order is None else order[ranked]


def key_codes(columns: Sequence[pa.ChunkedArray]) -> tuple[npt.NDArray[np.int32], Integers]:
    """Number the different keys in the order of their first appearance.

    Returns
    -------
    codes
        The number of each row's key.
    firsts
        The first row of each key.

    Examples
    --------
    >>> codes, firsts = key_codes([pa.chunked_array([["b", "a", "b", None]])])
    >>> codes.tolist(), firsts.tolist()
    ([0, 1, 0, 2], [0, 1, 3])
    """
    codes, firsts = column_codes(one_array(columns[0]))
    for column in columns[1:]:
        added, added_firsts = column_codes(one_array(column))
        pair = codes.astype(np.int64) * max(1, len(added_firsts)) + added
        codes, firsts = column_codes(pa.array(pair))
    return codes, firsts


def key_tuples(keys: pa.Table) -> list[tuple[Hashable, ...]]:
    """Return keys so that equal ones, NaN included, are equal in Python.

    Examples
    --------
    >>> one, other = key_tuples(pa.table({"key": [float("nan"), float("nan")]}))
    >>> one == other
    True
    """
    columns = []
    for column in keys.columns:
        kind = value_type(column.type)
        # Arrow makes the values of a dictionary one by one.
        values = (column.cast(kind) if column.type != kind else column).to_pylist()
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            values = [_hashable(value) for value in values]
        columns.append(values)
    return list(zip(*columns, strict=True))


def gather(column: pa.ChunkedArray | pa.Array, order: RowNumbers | None) -> pa.Array:
    """Return a column as one array in the given order; without one, and with one chunk, no copy."""
    return place_rows(one_array(column), order)


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array; one chunk is not copied."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    # Depending on the version, the result may be a chunked array of one.
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def column_arrays(rows: pa.Table) -> dict[str, pa.Array]:
    """Return the columns of a table by name, each in one piece."""
    return dict(zip(rows.column_names, map(one_array, rows.columns), strict=True))


def plain_integers(column: pa.ChunkedArray | pa.Array) -> Integers | None:
    """Return what is stored as integers, so that equal values are equal; None for other types.

    Where a value is NULL there is any integer.

    Examples
    --------
    >>> plain_integers(pa.array([7, 8], pa.uint16())).tolist(), plain_integers(pa.array(["x"]))
    ([7, 8], None)
    """
    width = _plain_width(column.type)
    if not width or pa.types.is_floating(column.type):
        return None
    array = one_array(column)
    if not len(array):
        return np.zeros(0, np.int64)
    return np.frombuffer(array.buffers()[1], f"i{width}")[array.offset :][: len(array)].astype(
        np.int64
    )


def _plain_width(data_type: pa.DataType) -> int:
    """Return the bytes of a value that lies in a plain buffer; 0 for all other types."""
    return _WIDTHS.get(data_type.id, 0)


@dataclass(frozen=True)
class Grouping:
    """Rows by key: their order (None: as they are), the bounds of groups, where each row goes."""

    order: RowNumbers | None
    segments: Integers
    scatter: Scatter | None = None


def group_codes(codes: npt.NDArray[np.int32], groups: int) -> Grouping:
    """Group rows by a code below `groups`; there may be groups without rows.

    Examples
    --------
    >>> grouping = group_codes(np.array([2, 0, 2], np.int32), 3)
    >>> grouping.order.tolist(), grouping.segments.tolist()
    ([1, 0, 2], [0, 1, 1, 3])
    """
    if is_ascending(codes):
        return Grouping(None, np.searchsorted(codes, np.arange(groups + 1)).astype(np.int64))
    order = np.empty(len(codes), row_type(len(codes)))
    bounds, scatter = scatter_of(codes, groups)
    order_rows(scatter, order)
    return Grouping(order, bounds, scatter)


def _group(table: pa.Table, keys: tuple[str, ...]) -> Grouping:
    size = table.num_rows
    if not keys or not size:
        return Grouping(None, np.array([0, size] if size else [0], np.int64))
    codes, firsts = key_codes([table.column(name) for name in keys])
    return group_codes(codes, len(firsts))


def row_type(size: int) -> type[np.int32] | type[np.int64]:
    """Return the narrowest type for the numbers of so many rows."""
    return np.int32 if size <= _INT32_MAX else np.int64


def place_rows(
    array: pa.Array, order: RowNumbers | None, scatter: Scatter | None = None
) -> pa.Array:
    """Return a column in sorted order.

    Parameters
    ----------
    array
        The column.
    order
        Row numbers in sorted order; None where nothing moves.
    scatter
        Where each row goes, if sorting was grouping alone.
    """
    if order is None or not len(array):
        return array
    width = _plain_width(array.type)
    if width and array.null_count and len(order) > _FEW_ROWS:
        return _place_nullable(array, width, order, scatter)
    if not width or array.null_count:
        if is_text(array.type) and not array.null_count:
            short = without_offsets(array)
            if short.type != array.type:
                return with_offsets(short.take(pa.array(order)), array.type)
        return array.take(pa.array(order))
    values = np.frombuffer(array.buffers()[1], f"i{width}")[array.offset :][: len(array)]
    if len(order) <= _FEW_ROWS:
        out = values.take(order)
    else:
        out = _placed(values, order, scatter)
    return pa.Array.from_buffers(array.type, len(out), [None, pa.py_buffer(out)])


def _placed(
    values: npt.NDArray[Any], order: RowNumbers, scatter: Scatter | None
) -> npt.NDArray[Any]:
    """Return values in sorted order, as `place_rows` says."""
    out = pooled(len(order), values.dtype)
    if scatter is None:
        gather_rows(values, order, out)
    else:
        scatter_rows(values, scatter, out)
    return out


def _place_nullable(
    array: pa.Array, width: int, order: RowNumbers, scatter: Scatter | None
) -> pa.Array:
    """Return a column in sorted order: its values, and by themselves whether they are there."""
    bits, buffer = array.buffers()
    size, offset = len(array), array.offset
    values = np.frombuffer(buffer, f"i{width}")[offset:][:size]
    stored = np.frombuffer(bits, np.uint8)[: (offset + size + 7) // 8]
    there = np.unpackbits(stored, bitorder="little")[offset:][:size].view(np.int8)
    valid_bits = _placed(there, order, scatter).view(np.uint8)
    packed = pa.py_buffer(np.packbits(valid_bits, bitorder="little"))
    data = pa.py_buffer(_placed(values, order, scatter))
    return pa.Array.from_buffers(array.type, len(order), [packed, data])


def _repeated(firsts: pa.Array, segments: Integers) -> pa.Array:
    """Return one value for each partition as a column."""
    sizes = np.diff(segments)
    if firsts.null_count or not (width := _plain_width(firsts.type)):
        return firsts.take(pa.array(np.repeat(np.arange(len(sizes)), sizes)))
    values = np.frombuffer(firsts.buffers()[1], f"i{width}")[firsts.offset :][: len(firsts)]
    column = np.repeat(values, sizes)
    return pa.Array.from_buffers(firsts.type, len(column), [None, pa.py_buffer(column)])


def column_codes(column: pa.Array) -> tuple[npt.NDArray[np.int32], Integers]:
    """Return a number for each value of a column, NULL among them, and where each is first."""
    values = _small_integers(column)
    if values is not None:
        coded = _codes_by_range(values)
        if coded is not None:
            return coded
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return _codes_by_value(column)
    if pa.types.is_dictionary(kind):
        # Equal values may stand twice in a dictionary, so its own numbers do not serve.
        column = column.cast(value_type(kind))
    if pa.types.is_floating(column.type):
        # Zero and negative zero are equal, and all NaNs, but they have different bits.
        column = pc.add(column.cast(pa.float64()), 0.0)
        unordered = pc.is_nan(column)
        if pc.any(unordered).as_py():
            column = pc.if_else(unordered, math.nan, column)
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return _with_firsts(np.asarray(encoded.indices.to_numpy(zero_copy_only=False)))


def _small_integers(column: pa.Array) -> npt.NDArray[np.int64] | None:
    kind = column.type
    if column.null_count or not (pa.types.is_integer(kind) or pa.types.is_date32(kind)):
        return None
    if pa.types.is_uint64(kind):
        return None
    plain = column.cast(pa.int32()) if pa.types.is_date32(kind) else column
    return np.asarray(plain.to_numpy(zero_copy_only=False))


def _codes_by_range(
    values: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int32], Integers] | None:
    if not len(values):
        return np.zeros(0, np.int32), np.zeros(0, np.int64)
    low, high = int(values.min()), int(values.max())
    span = high - low + 1
    if span > max(_RANGE_MIN, len(values)):
        return None
    table = np.full(span, -1, np.int32)
    codes = np.empty(len(values), np.int32)
    firsts = np.empty(min(span, len(values)), np.int64)
    count = encode_range(values, low, table, codes, firsts)
    return codes, firsts[:count].copy()


def _with_firsts(codes: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], Integers]:
    """Renumber codes by first appearance and find the first row of each."""
    coded = _codes_by_range(codes.astype(np.int64, copy=False))
    assert coded is not None, "codes are dense"
    return coded


def _codes_by_value(column: pa.Array) -> tuple[npt.NDArray[np.int32], Integers]:
    numbers: dict[Hashable, int] = {}
    firsts: list[int] = []
    codes = np.empty(len(column), np.int32)
    for row, value in enumerate(column.to_pylist()):
        key = _hashable(value)
        if key not in numbers:
            numbers[key] = len(firsts)
            firsts.append(row)
        codes[row] = numbers[key]
    return codes, np.array(firsts, np.int64)


def _hashable(value: object) -> Hashable:
    if isinstance(value, dict):
        return tuple((name, _hashable(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(_hashable(part) for part in value)
    if isinstance(value, float) and math.isnan(value):
        return _NOT_A_NUMBER
    assert isinstance(value, Hashable)
    return value


def _in_order(
    table: pa.Table, bound: BoundQuery, order: RowNumbers | None, segments: Integers
) -> bool:
    """Say whether grouping alone left each partition in order, as far as that is cheap to see."""
    if len(bound.order_by) > 1 or bound.descending[0]:
        return False
    values = comparable(one_array(table.column(bound.order_by[0])))
    if values is None:
        return False
    if is_ascending(values):
        return True
    if order is None and len(segments) == 2:
        return False
    numbers = np.arange(len(values), dtype=np.int32) if order is None else order
    return is_ascending_in_groups(values, numbers, segments)


def comparable(column: pa.Array) -> npt.NDArray[np.int64] | None:
    """Return the values as numbers with the same order, or None."""
    kind = column.type
    if column.null_count:
        return None
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind) or pa.types.is_time64(kind):
        column = column.view(pa.int64())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        column = column.view(pa.int32())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _ranked(
    table: pa.Table, bound: BoundQuery, order: RowNumbers | None, segments: Integers
) -> RowNumbers:
    """Return the places of rows by partition when all order columns sort them, stably."""
    fields: dict[str, pa.Array] = {}
    keys: list[tuple[str, str]] = []

    def sort_by(values: pa.Array, descending: bool) -> None:
        name = f"key{len(fields)}"
        fields[name] = values
        keys.append((name, "descending" if descending else "ascending"))

    if len(segments) > 2:
        group = np.repeat(np.arange(len(segments) - 1, dtype=np.int32), np.diff(segments))
        sort_by(pa.array(group), False)
    for name, descending, nulls_first in zip(
        bound.order_by, bound.descending, bound.nulls_first, strict=True
    ):
        column = gather(table.column(name), order)
        if pa.types.is_dictionary(column.type):
            column = column.cast(value_type(column.type))
        # Where NULL and NaN go does not depend on the direction in Arrow, so they get own keys.
        if column.null_count:
            sort_by(column.is_null(), nulls_first)
        if pa.types.is_floating(column.type):
            sort_by(pc.fill_null(pc.is_nan(column), False), descending)
        sort_by(column, descending)
    ranked = np.asarray(pc.sort_indices(pa.table(fields), sort_keys=keys))
    return ranked.astype(row_type(len(ranked)))
