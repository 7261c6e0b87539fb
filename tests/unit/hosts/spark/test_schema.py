"""Whether a DataFrame of Spark Connect is a stream is read from its plan."""

from __future__ import annotations

import pytest

plans = pytest.importorskip("pyspark.sql.connect.plan")

from outpace.hosts.spark.schema import reads_stream  # noqa: E402  # needs Spark Connect


@pytest.mark.parametrize("streaming", [False, True])
def test_a_plan_tells_whether_it_reads_a_stream(streaming: bool) -> None:
    table = plans.Read("ticks", {"a": "b"}, is_streaming=streaming)
    assert reads_stream(table.plan(None)) is streaming
    below = plans.Limit(plans.SubqueryAlias(table, "t"), 3)
    assert reads_stream(below.plan(None)) is streaming
