"""Operators over partitions that come sorted: whole ones together, a large one in pieces."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from outpace.engine.divide.groups import PartitionWork, SortedGroups
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.whole import match_whole
from outpace.pattern.operator import Operator
from outpace.pattern.query import Query


class Sums(Operator):
    """The sum of a partition, and how many tables it came in."""

    output = pa.schema([("sum", pa.int64()), ("pieces", pa.int64())])

    def __init__(self) -> None:
        self.sum = self.pieces = 0

    def process(self, events: pa.Table) -> None:
        self.sum += sum(events["v"].to_pylist())
        self.pieces += 1

    def close(self) -> dict[str, list[int]]:
        return {"sum": [self.sum], "pieces": [self.pieces]}


@pytest.mark.parametrize("keys", [("key",), ()], ids=["keyed", "one operator"])
def test_partitions_that_come_sorted_give_what_a_table_gives(keys: tuple[str, ...]) -> None:
    sizes = [3, 40, 2, 5]
    table = pa.table({"key": np.repeat(np.arange(4), sizes), "ts": np.arange(50), "v": range(50)})
    query = Query("sums").partition_by(*keys).order_by("ts").apply(Sums)
    groups = SortedGroups(PartitionWork(OperatorSpec(query, table.schema), keys), rows_at_once=10)
    found = [one for first in range(0, 50, 4) for one in groups.push(table.slice(first, 4))]
    found += groups.finish()
    result = pa.concat_tables(found)
    expected = match_whole(OperatorSpec(query, table.schema), table).table
    assert result.drop_columns("pieces").equals(expected.drop_columns("pieces"))
    # Only the large partition came in pieces, so that it need not be held whole.
    pieces = result.column("pieces").to_pylist()
    assert [count > 1 for count in pieces] == ([False, True, False, False] if keys else [True])
