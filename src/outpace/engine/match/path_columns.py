"""The columns that compiled predicates read, as arrays of integers and floats, block by block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outpace.engine.arrays import Numbers
from outpace.engine.evaluate.columns import evaluate_columns
from outpace.engine.evaluate.frame import PredicateFrame
from outpace.engine.evaluate.numbers import numbers_of
from outpace.engine.kernels.search import PathInput
from outpace.engine.match.codegen_layout import RecordLayout
from outpace.engine.match.contract import Block
from outpace.engine.match.joins import Join, join_arrays
from outpace.errors import DataError
from outpace.pattern.functions.function import CompiledType


def path_columns(
    layout: RecordLayout,
    joins: Sequence[Join | None],
    block: Block,
    masks: Numbers,
    asked: int,
) -> PathInput | None:
    """Return the columns and the first registers that a step function reads, and the joined rows.

    None where a column cannot be computed for all rows, which a search need not ask about, or has
    numbers that do not fit: then only the twin can tell what comes of it. Behind the columns of
    integers are the address of what is asked where there is no compiled condition, and the number
    of the match that is searched for.
    """
    size, kinds = block.size, layout.kinds
    frame = PredicateFrame(block.columns, block.segments)
    try:
        columns = [evaluate_columns(expression, frame) for expression in layout.columns]
    except DataError:
        return None
    floats = sum(kind is CompiledType.FLOAT for kind in kinds)
    integer_columns = np.zeros((len(kinds) - floats) * size + 2, np.int64)
    integer_columns[-2] = asked
    float_columns = np.zeros(floats * size, np.float64)
    valid = np.ones(len(kinds) * size, np.uint8)
    for number, values in enumerate(numbers_of(columns, ordered=layout.ordered)):
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
