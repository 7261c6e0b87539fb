"""Windows and user-defined operators on Spark give what they give in process."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from windowed_parity import from_files, from_frame, in_process, write_files


def test_windows_on_spark_give_what_those_of_a_table_give(
    spark: SparkSession, tmp_path: Path
) -> None:
    expected = in_process()
    assert {name for name, matches in expected.items() if len(matches) < 6} == set()
    write_files(tmp_path)
    for found in (from_files(spark, tmp_path), from_frame(spark, tmp_path)):
        for name, matches in found.items():
            assert matches == expected[name], name
