"""Watches a stream on a Connect session with a server of its own: a program for a test.

A process has either classic or Connect sessions, so this one is started by a test. It writes to
`answered.json` in the folder that it is given what is served while a stream runs, and after that it
has ended; the watch is closed while a stream still runs, and another is started after it.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import outpace as op
from outpace.engine.codec.cell import COUNTERS


def observed(session: SparkSession) -> DataFrame:
    """A stream of 300 events in two batches or more, observed as a stage would be."""
    stream = (
        session.readStream.format("outpace.events")
        .options(limit="300", paced="false", maxEventsPerTrigger="200")
        .load()
    )
    last = sf.when(sf.col("seq") == 299, sf.col("seq")).otherwise(0)
    numbers = {"events": sf.lit(1), "buffered": last}
    counters = [numbers.get(name, sf.lit(0)).cast("bigint") for name in COUNTERS]
    report = sf.collect_list(sf.array(sf.lit(0).cast("bigint"), *counters))
    return stream.observe("outpace:dips:1", report.alias("pack"))


def served(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def main(folder: Path) -> None:
    settings = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"}
    session = op.spark.session(remote="local[2]", conf=settings)
    assert type(session).__module__ == "pyspark.sql.connect.session"
    watched = op.spark.metrics.watch(session, port=0)
    writer = (
        observed(session)
        .writeStream.format("noop")
        .queryName("dips")
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = writer.start()
    deadline = time.monotonic() + 240
    while "outpace_batches_total" not in (text := served(watched.url)) or " 300\n" not in text:
        assert time.monotonic() < deadline, text
        time.sleep(0.2)
    watched.close()
    query.stop()
    writer.trigger(availableNow=True).start().awaitTermination(120)
    (folder / "answered.json").write_text(json.dumps({"text": text}), encoding="utf-8")
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
