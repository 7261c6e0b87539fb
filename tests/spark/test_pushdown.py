"""What Spark lets a Parquet scan skip is never a row that counts."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import outpace as op


@pytest.mark.parametrize(
    ("values", "condition"),
    [
        ([-0.0, -0.0, -0.0], "x >= 0.0"),
        ([-0.0, -0.0, -0.0], "x IN (0.0, 7.5)"),
        ([5.0, math.nan, math.nan], "x <> 5.0"),
        ([1.0, math.nan, math.nan], "NOT (x < 5.0)"),
    ],
)
def test_rows_that_count_are_not_skipped(
    spark: SparkSession, tmp_path: Path, values: list[float], condition: str
) -> None:
    table = pa.table({"ts": [1, 2, 3], "x": values})
    pq.write_table(table, tmp_path / "f.parquet")
    query = (
        op.Query("q")
        .order_by("ts")
        .pattern("A -> B")
        .define(A=condition, B=condition)
        .measures(at="B.ts")
        .no_skip()
    )
    frame = spark.read.parquet(str(tmp_path))
    expected = op.match(table, query).to_pylist()
    assert expected
    assert op.match(frame, query).toArrow().to_pylist() == expected
