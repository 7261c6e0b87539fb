"""Windows and user-defined operators on Spark give what they give in process."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from support.windowed_parity import QUERIES, from_files, from_frame, in_process, write_files

import outpace as op


def test_windows_on_spark_give_what_those_of_a_table_give(
    spark: SparkSession, tmp_path: Path
) -> None:
    expected = in_process()
    assert {name for name, matches in expected.items() if len(matches) < 6} == set()
    write_files(tmp_path)
    for found in (from_files(spark, tmp_path), from_frame(spark, tmp_path)):
        for name, matches in found.items():
            assert matches == expected[name], name


def test_nothing_runs_before_it_is_asked_for_and_only_blocks_move(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_files(tmp_path)
    frame = spark.read.parquet(str(tmp_path / "mixed"))
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup())
    by_time, in_place = QUERIES["time, numbered"][0], QUERIES["count, numbered"][0]
    steps = physical_plan(op.match(frame, by_time))
    crossing = max(place for place, line in enumerate(steps) if "MapInArrow" in line)
    assert not any("Exchange" in line for line in steps[crossing + 1 :])
    assert not any("rangepartitioning" in line for line in steps)
    ordered = op.parquet(tmp_path / "ordered")
    assert not any("Exchange" in line for line in physical_plan(op.match(ordered, in_place)))
    assert "divided by time, in batches of windows: 48 windows" in op.explain(by_time, frame).text
    assert "each task reads its share of the row groups" in op.explain(in_place, ordered).text
    assert len(tracker.getJobIdsForGroup()) == before


def physical_plan(frame: DataFrame) -> list[str]:
    # Only the classic class has `_jdf`.
    text = frame._jdf.queryExecution().executedPlan().toString()  # type: ignore[union-attr]
    return [line for line in text.splitlines() if line.strip()]
