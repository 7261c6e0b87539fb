"""Masks: for each row of a block, one bit per variable that says whether the row fits it.

Predicates over one column of few values (bytes, dictionaries) are evaluated once per value and
looked up for all rows in one pass; the rest are evaluated over whole columns. For a predicate that
reads the match, the bit stands for the part of it that does not: where it is 0 the predicate
cannot hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.evaluate.columns import predicate_mask
from outpace.engine.evaluate.mask import stored_values
from outpace.engine.kernels.mask_bits import (
    add_by_table,
    add_compared,
    add_compared_to,
    add_where,
)
from outpace.engine.match.contract import Block
from outpace.errors import DataError
from outpace.pattern import types
from outpace.pattern.bound import Apply, Constant, Predicate, PredicateClass, Read, walk
from outpace.pattern.values import computed

#: A dictionary with more values is not worth evaluating apart from its rows.
_VALUES_MAX = 1 << 16

#: One with more values than the block has rows is not either, unless it has few.
_VALUES_FEW = 1 << 8


def mask_type(predicates: int) -> npt.DTypeLike:
    """Return a small type with a bit for each predicate; there are few, as kernels know each."""
    for kind in (np.uint8, np.uint32):
        if predicates <= np.iinfo(kind).bits:
            return kind
    return np.int64


class BlockMasks:
    """Makes the masks of blocks; what does not depend on the rows is computed once.

    Parameters
    ----------
    predicates
        Those that need no run, by variable.
    """

    def __init__(self, predicates: Sequence[Predicate]) -> None:
        self._predicates = predicates
        self._kind = np.dtype(mask_type(len(predicates)))
        self._always = sum(
            1 << number
            for number, predicate in enumerate(predicates)
            if predicate.kind is PredicateClass.ALWAYS
        )
        self._by_column: dict[str | None, list[int]] = defaultdict(list)
        for number, predicate in enumerate(predicates):
            if predicate.kind is not PredicateClass.ALWAYS:
                self._by_column[_only_column(predicate)].append(number)
        self._tables: dict[tuple[str, pa.DataType], npt.NDArray[Any] | None] = {}

    def __call__(self, block: Block) -> npt.NDArray[Any]:
        """Return the masks of all rows."""
        masks = np.full(block.size, self._always, self._kind)
        for name, numbers in self._by_column.items():
            table = None if name is None else self._table(name, block.columns[name], numbers)
            if table is not None and name is not None:
                add_by_table(_codes(block.columns[name], len(table) - 1), table, masks)
                continue
            for number in numbers:
                self._add_single(number, block, masks)
        return masks

    def _add_single(self, number: int, block: Block, masks: npt.NDArray[Any]) -> None:
        predicate = self._predicates[number]
        if not _add_comparison(predicate, number, block, masks):
            holds = predicate_mask(predicate, block.columns, block.segments)
            add_where(holds.view(np.uint8), 1 << number, masks)

    def _table(
        self, name: str, column: pa.Array, numbers: Sequence[int]
    ) -> npt.NDArray[Any] | None:
        """Return the bits of each value that a column can have, by code, if they are few."""
        if pa.types.is_dictionary(column.type):
            return self._new_table(name, column, numbers)
        key = name, column.type
        if key not in self._tables:
            self._tables[key] = self._new_table(name, column, numbers)
        return self._tables[key]

    def _new_table(
        self, name: str, column: pa.Array, numbers: Sequence[int]
    ) -> npt.NDArray[Any] | None:
        values = _values(column)
        if values is None:
            return None
        # The last entry is for NULL.
        domain = pa.concat_arrays([values, pa.nulls(1, values.type)])
        table = np.zeros(len(domain), self._kind)
        try:
            for number in numbers:
                holds = predicate_mask(self._predicates[number], {name: domain})
                table |= holds.astype(self._kind) * self._kind.type(1 << number)
        except DataError:
            # A value that no row has may be one that the predicate fails on.
            return None
        return table


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
    """Add `price < PREV(price)` without making the shifted column, and `price < 3` at once."""
    node = predicate.expression
    if not isinstance(node, Apply) or node.function not in _COMPARE:
        return False
    left, right = node.arguments
    if isinstance(left, Constant) or isinstance(right, Constant):
        return _add_compared_to(node, number, block, masks)
    operator, swapped = _COMPARE[node.function]
    if swapped:
        left, right = right, left
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


#: Comparisons with a constant: the operator's number, and that of the one with sides exchanged.
_COMPARE_TO = {"<": (0, 4), "<=": (1, 5), "=": (2, 2), "<>": (3, 3), ">": (4, 0), ">=": (5, 1)}


def _add_compared_to(node: Apply, number: int, block: Block, masks: npt.NDArray[Any]) -> bool:
    """Add the comparison of a column of numbers with a constant."""
    (left, right), (operator, exchanged) = node.arguments, _COMPARE_TO[node.function]
    if isinstance(left, Constant):
        left, right, operator = right, left, exchanged
    if not isinstance(left, Read) or not isinstance(right, Constant) or left.place.shift:
        return False
    kind = right.type
    plain = types.is_integer(kind) or (types.is_floating(kind) and kind != pa.float16())
    if right.value is None or left.type != kind or not plain:
        return False
    values = _stored(left, block)
    if values is None:
        return False
    add_compared_to(values, values.dtype.type(right.value), operator, 1 << number, masks)
    return True


def _stored(node: Read, block: Block) -> npt.NDArray[Any] | None:
    """Return a column's numbers, if they are that and none is NULL."""
    column, kind = block.columns[node.column], node.type
    if node.path or column.null_count:
        return None
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(column.type):
        return stored_values(computed(column, kind).view(pa.int64()))
    if column.type == kind and (types.is_integer(kind) or types.is_floating(kind)):
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
        worth = min(_VALUES_MAX, max(_VALUES_FEW, len(column)))
        return column.dictionary if len(column.dictionary) <= worth else None
    if column.type == pa.int8():
        return pa.array(np.arange(256).astype(np.uint8).view(np.int8))
    if column.type == pa.uint8():
        return pa.array(np.arange(256, dtype=np.uint8))
    return None


def _codes(column: pa.Array, null_code: int) -> npt.NDArray[Any]:
    codes = column.indices if pa.types.is_dictionary(column.type) else column.view(pa.uint8())
    if codes.null_count:
        return np.asarray(codes.cast(pa.int32()).fill_null(null_code).to_numpy())
    return np.asarray(codes.to_numpy())
