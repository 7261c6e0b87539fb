"""Masks: for each row of a block, one bit per variable that says whether the row fits it.

Predicates over one column of few values (bytes, dictionaries) are evaluated once per value and
looked up for all rows in one pass; the rest are evaluated over whole columns. For a predicate that
reads the match, the bit stands for the part of it that does not: where it is 0 the predicate
cannot hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.kernels.mask_bits import add_by_table, add_compared, add_where
from outpace.engine.match.contract import Block
from outpace.engine.match.evaluate_columns import predicate_mask
from outpace.engine.match.evaluate_mask import stored_values
from outpace.errors import DataError
from outpace.pattern import types
from outpace.pattern.bound import Apply, Predicate, PredicateClass, Read, walk

#: A dictionary with more values is not worth evaluating apart from its rows.
_VALUES_MAX = 1 << 16

_NO_SEGMENTS = np.zeros(1, np.int64)


def mask_type(predicates: int) -> npt.DTypeLike:
    """Return a small type with a bit for each predicate; there are few, as kernels know each."""
    for kind in (np.uint8, np.uint32):
        if predicates <= np.iinfo(kind).bits:
            return kind
    return np.int64


def block_masks(predicates: Sequence[Predicate], block: Block) -> npt.NDArray[Any]:
    """Return the masks of all rows; `predicates` are those that need no run, by variable."""
    kind = mask_type(len(predicates))
    always = sum(1 << n for n, p in enumerate(predicates) if p.kind is PredicateClass.ALWAYS)
    masks = np.full(block.size, always, kind)
    by_column: dict[str, list[int]] = defaultdict(list)
    singles: list[int] = []
    for number, predicate in enumerate(predicates):
        if predicate.kind is PredicateClass.ALWAYS:
            continue
        column = _only_column(predicate)
        if column is not None and _values(block.columns[column]) is not None:
            by_column[column].append(number)
        else:
            singles.append(number)
    for column, numbers in by_column.items():
        if not _add_by_value(predicates, numbers, column, block.columns[column], masks):
            singles.extend(numbers)
    for number in singles:
        if _add_comparison(predicates[number], number, block, masks):
            continue
        holds = predicate_mask(predicates[number], block.columns, block.segments)
        add_where(holds.view(np.uint8), 1 << number, masks)
    return masks


#: Comparisons that one pass over two columns can do: the operator's number, and whether to swap.
_COMPARE = {
    "<": (0, False),
    "<=": (1, False),
    "=": (2, False),
    "<>": (3, False),
    ">": (0, True),
    ">=": (1, True),
}


def _add_comparison(
    predicate: Predicate, number: int, block: Block, masks: npt.NDArray[Any]
) -> bool:
    """Add `price < PREV(price)` and its like without making the shifted column."""
    node = predicate.expression
    if not isinstance(node, Apply) or node.function not in _COMPARE:
        return False
    operator, swapped = _COMPARE[node.function]
    left, right = reversed(node.arguments) if swapped else node.arguments
    if not isinstance(left, Read) or not isinstance(right, Read):
        return False
    first, second = _stored(left, block), _stored(right, block)
    if first is None or second is None or left.type != right.type:
        return False
    add_compared(
        first,
        left.place.shift,
        second,
        right.place.shift,
        operator,
        block.segments,
        1 << number,
        masks,
    )
    return True


def _stored(node: Read, block: Block) -> npt.NDArray[Any] | None:
    """Return a column's numbers, if they are that and none is NULL."""
    column = block.columns[node.column]
    if node.path or column.null_count or column.type != node.type:
        return None
    kind = column.type
    if pa.types.is_timestamp(kind):
        return stored_values(column.view(pa.int64()))
    if types.is_integer(kind) or types.is_floating(kind):
        return stored_values(column)
    return None


def _only_column(predicate: Predicate) -> str | None:
    """Return the one column that a LOCAL predicate reads, or None if there are several."""
    if predicate.kind is not PredicateClass.LOCAL or predicate.expression is None:
        return None
    reads = {node.column for node in walk(predicate.expression) if isinstance(node, Read)}
    return reads.pop() if len(reads) == 1 else None


def _values(column: pa.Array) -> pa.Array | None:
    """Return all values that a column can have, in the order of their codes, or None."""
    if pa.types.is_dictionary(column.type):
        return column.dictionary if len(column.dictionary) <= _VALUES_MAX else None
    if column.type == pa.int8():
        return pa.array(np.arange(256).astype(np.uint8).view(np.int8))
    if column.type == pa.uint8():
        return pa.array(np.arange(256, dtype=np.uint8))
    return None


def _add_by_value(
    predicates: Sequence[Predicate],
    numbers: Sequence[int],
    name: str,
    column: pa.Array,
    masks: npt.NDArray[Any],
) -> bool:
    values = _values(column)
    assert values is not None
    # The last entry is for NULL.
    domain = pa.concat_arrays([values, pa.nulls(1, values.type)])
    columns: Mapping[str, pa.Array] = {name: domain}
    if pa.types.is_dictionary(column.type):
        columns = {name: domain.cast(column.type)}
    table = np.zeros(len(domain), masks.dtype)
    try:
        for number in numbers:
            holds = predicate_mask(predicates[number], columns, _NO_SEGMENTS)
            table |= holds.astype(masks.dtype) * masks.dtype.type(1 << number)
    except DataError:
        # A value that no row has may be one that the predicate fails on.
        return False
    add_by_table(_codes(column, len(values)), table, masks)
    return True


def _codes(column: pa.Array, null_code: int) -> npt.NDArray[Any]:
    codes = column.indices if pa.types.is_dictionary(column.type) else column.view(pa.uint8())
    if codes.null_count:
        return np.asarray(codes.cast(pa.int32()).fill_null(null_code).to_numpy())
    return np.asarray(codes.to_numpy())
