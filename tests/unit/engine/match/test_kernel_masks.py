"""The masks of blocks say what the conditions say, row by row."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from outpace.engine.evaluate.columns import predicate_mask
from outpace.engine.match.contract import Block
from outpace.engine.match.kernel_masks import BlockMasks
from outpace.engine.match.task import prepare
from outpace.pattern.query import Query

COLUMNS = {
    "i": pa.array([-3, 0, 2, 3, 2**62], pa.int64()),
    "s": pa.array([-3, 0, 2, 3, 9], pa.int32()),
    "u": pa.array([0, 1, 2, 3, 2**64 - 1], pa.uint64()),
    "f": pa.array([-0.0, 2.0, float("nan"), float("inf"), 2.5]),
    "n": pa.array([1, None, 2, 3, None], pa.int64()),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_comparisons_with_constants(name: str) -> None:
    schema = pa.schema({key: column.type for key, column in COLUMNS.items()})
    signs, constants = ("<", "<=", "=", "<>", ">", ">="), ("2", "0", "2.0", "NULL")
    for sign, constant in product(signs, constants):
        for text in (f"{name} {sign} {constant}", f"{constant} {sign} {name}"):
            query = Query("q").order_by("i").pattern("A").define(A=text)
            predicates = prepare(query, schema).bound.predicates
            bounds = np.array([0, 5])
            none = bounds[:0]
            block = Block(COLUMNS, bounds, bounds[1:], none, none, none, ended=True)
            expected = predicate_mask(predicates[0], COLUMNS, bounds)
            assert (BlockMasks(predicates)(block) != 0).tolist() == expected.tolist(), text
