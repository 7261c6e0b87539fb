"""A streaming query from an event log into a sink, as a program that can be killed at any moment.

It is given a folder with `run.json`, goes on where the checkpoint in it ends, and stops cleanly
once there is a file `stop`. What lies in files in the end, of Spark's sink or of the matches that
are there, goes into `found.parquet`. The file `metrics` says where its metrics are served.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow.parquet as pq
from chaos.streams import REPLAYED, TAKEN_BACK, found_in
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import outpace as op
from outpace.hosts.spark.session import ROCKSDB

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A kill of a worker fails a task; only the harness decides when a query has failed.
    "spark.task.maxFailures": "20",
}


def main(folder: Path) -> None:
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = op.spark.session("outpace chaos", master=run["master"], conf=SETTINGS)
    watched = op.spark.metrics.watch(spark, 0)
    (folder / "metrics").write_text(watched.url, encoding="utf-8")
    stream = (
        spark.readStream.format("outpace.log")
        .option("form", run["form"])
        .option("maxEventsPerTrigger", run["events_per_batch"])
    )
    if run["form"] == "rows" and run["query"] in REPLAYED:
        stream = stream.option("offsetColumn", "place")
    stream = stream.load(str(folder / "log"))
    found = found_in(stream, run["query"])
    query = (
        to_sink(found, folder, run).option("checkpointLocation", str(folder / "checkpoint")).start()
    )
    while not (folder / "stop").exists():
        query.awaitTermination(1)
    query.stop()
    if run["sink"] == "files":
        written = spark.read.parquet(str(folder / "out")).toArrow()
        pq.write_table(written, folder / "found.parquet")
    spark.stop()


def to_sink(found: DataFrame, folder: Path, run: dict[str, str]) -> DataStreamWriter:
    current = run["query"] in TAKEN_BACK
    if run["sink"] == "postgres":
        to_table = op.spark.postgres.writer(run["dsn"], run["table"], current=current)
        return found.writeStream.foreachBatch(to_table)
    if current:
        return found.writeStream.foreachBatch(op.spark.current.writer(folder / "out"))
    return found.writeStream.format("parquet").option("path", str(folder / "out"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
