"""The columns that compiled predicates read, as arrays of integers and floats.

Times and intervals are microseconds (dates: days), decimals are counted in units of their last
digit, and texts are numbers that compare as the texts do, within one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import Integers, Numbers
from outpace.engine.evaluate.columns import evaluate_columns
from outpace.engine.evaluate.frame import PredicateFrame
from outpace.engine.kernels.search import PathInput
from outpace.engine.match.codegen_layout import RecordLayout
from outpace.engine.match.contract import Block
from outpace.engine.match.joins import Join, join_arrays
from outpace.errors import DataError
from outpace.pattern import types
from outpace.pattern.functions.function import CompiledType


def path_columns(
    layout: RecordLayout, joins: Sequence[Join | None], block: Block, masks: Numbers
) -> PathInput | None:
    """Return the columns and the first registers that a step function reads, and the joined rows.

    None where a column cannot be computed for all rows, which a search need not ask about, or has
    numbers that do not fit: then only the twin can tell what comes of it.
    """
    size, kinds = block.size, layout.kinds
    frame = PredicateFrame(block.columns, block.segments)
    try:
        columns = [evaluate_columns(expression, frame) for expression in layout.columns]
    except DataError:
        return None
    floats = sum(kind is CompiledType.FLOAT for kind in kinds)
    integer_columns = np.zeros((len(kinds) - floats) * size, np.int64)
    float_columns = np.zeros(floats * size, np.float64)
    valid = np.ones(len(kinds) * size, np.uint8)
    for number, values in enumerate(_numbers(columns, layout.ordered)):
        if values is None:
            return None
        store = float_columns if kinds[number] is CompiledType.FLOAT else integer_columns
        slot = layout.slots[number]
        store[slot * size : (slot + 1) * size] = values
        if columns[number].null_count:
            known = columns[number].is_valid().to_numpy(zero_copy_only=False)
            valid[number * size : (number + 1) * size] = known
    return PathInput(
        integer_columns,
        float_columns,
        valid,
        np.array(layout.integers, np.int64),
        np.array(layout.floats, np.float64),
        join_arrays(joins, layout, integer_columns, valid, masks),
    )


def _numbers(columns: Sequence[pa.Array], ordered: bool) -> list[Numbers | None]:
    """Return columns as numbers; what stands for NULL has no meaning."""
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


def is_text(kind: pa.DataType) -> bool:
    """Say whether values are texts or bytes, of which a block knows only how they compare."""
    return types.is_string(kind) or types.is_binary(kind)


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


def _plain(column: pa.Array) -> Any:
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.fill_null(False).to_numpy(zero_copy_only=False)
    if types.is_decimal(kind):
        return _unscaled(column)
    if types.is_temporal(kind):
        column = column.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    return (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)


def _unscaled(column: pa.Array) -> Integers | None:
    """Return decimals in units of their last digit, None where 64 bits do not hold them."""
    column = column.cast(pa.decimal128(types.MAX_PRECISION, column.type.scale))
    column = column.fill_null(0) if column.null_count else column
    words = np.frombuffer(column.buffers()[1], np.int64) if len(column) else np.zeros(0, np.int64)
    words = words[2 * column.offset : 2 * (column.offset + len(column))]
    low, high = words[0::2], words[1::2]
    fits = high == low >> 63
    return low if fits.all() else None
