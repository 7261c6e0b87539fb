"""Windows and user-defined operators on Spark give what they give in process."""

from __future__ import annotations

import numpy as np
from pyspark.sql import SparkSession
from windowed_parity import events, in_process, on_spark


def test_windows_of_a_frame_give_what_those_of_a_table_give(spark: SparkSession) -> None:
    expected = in_process()
    assert all(len(matches) > 5 for matches in expected.values()), {
        name: len(matches) for name, matches in expected.items()
    }
    table = events()
    mixed = table.take(np.random.default_rng(4).permutation(table.num_rows))
    frame = spark.createDataFrame(mixed).repartition(3)
    found = on_spark(frame)
    for name, matches in expected.items():
        assert found[name] == matches, name
