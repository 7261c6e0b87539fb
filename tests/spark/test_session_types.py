"""Rows may reach a task with other types than were planned: the session's settings have changed."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest

import outpace as op
from outpace.engine.divide.groups import ROWS_AT_ONCE
from outpace.hosts.spark.frame import _work, match_sorted
from outpace.plan.row_plan import plan_query

SIZE = ROWS_AT_ONCE + 10
PLANNED = pa.schema([("at", pa.timestamp("us", "UTC")), ("kind", pa.string())])


@pytest.mark.parametrize(
    ("zone", "text"), [("Europe/Paris", pa.string()), ("UTC", pa.large_string())]
)
def test_a_large_partition_takes_rows_of_another_session(zone: str, text: pa.DataType) -> None:
    """So many rows are streamed, and a stream wants the types that it began with."""
    kinds = np.array(["a", "b"])[np.arange(SIZE) % 2]
    times = pa.array(np.arange(SIZE), pa.timestamp("us", zone))
    sent = pa.table({"at": times, "kind": pa.array(kinds, text)})
    query = (
        op.Query("q")
        .order_by("at")
        .pattern("A B")
        .define(A="kind = 'a'", B="kind <> PREV(kind)")
        .measures(at="LAST(at)", kind="LAST(kind)")
    )
    found = pa.Table.from_batches(
        match_sorted(partial(_work, plan_query(query, PLANNED)), sent.to_batches(1 << 18))
    )
    assert found.schema == PLANNED
    assert found.num_rows == SIZE // 2
