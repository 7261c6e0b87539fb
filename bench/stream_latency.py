"""How long it takes on Spark from an event's arrival in the log to its match in the sink.

Run `python bench/stream_latency.py`; `--help` lists the options. A process of its own appends
events to a log at a fixed rate, in pieces of a hundredth of a second; each event carries the time
of its arrival. A streaming query reads the log as blocks and writes its matches to Spark's Parquet
sink, exactly once. The latency of a match is from the arrival of its last event to the moment at
which Spark commits the batch that wrote it, when readers of the sink see it. Before anything counts
a query runs for a while (`--warm`), because Java compiles what it runs often for about a minute and
takes a core for that; of each measurement the first seconds (`--settle`), with the start of the
query, do not count. Prints a JSON object for each query and rate, with what a
micro-batch spends its time on (medians, in milliseconds).
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import outpace as op

SCHEMA = pa.schema(
    {"ts": pa.timestamp("us", "UTC"), "key": pa.int32(), "type": pa.int8(), "arrived": pa.int64()}
)
TURNS_PER_SECOND = 100


def chain(name):
    return (
        op.Query(name)
        .order_by("ts")
        .pattern("A -> B -> C")
        .define(A="type = 0", B="type = 1", C="type = 2")
        .measures(arrived="LAST(arrived)")
    )


QUERIES = {
    "keyed": chain("keyed").partition_by("key").within("10 s"),
    "windows": chain("windows").over(op.windows.time("1 s", slide="100 ms")),
    "windows, 2 instances": chain("windows2")
    .over(op.windows.time("1 s", slide="100 ms"))
    .instances(2),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", default="1000,10000,100000", help="events/s, with commas")
    parser.add_argument("--queries", default=";".join(QUERIES), help="names, with semicolons")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--settle", type=int, default=25, help="of which so many do not count")
    parser.add_argument("--warm", type=int, default=90, help="seconds before anything counts")
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    conf = {"spark.sql.shuffle.partitions": str(options.cores)}
    spark = op.spark.session(master=f"local[{options.cores}]", conf=conf)
    measured(spark, QUERIES["keyed"], 10_000, options.warm, 0)
    for name in options.queries.split(";"):
        for rate in map(int, options.rates.split(",")):
            result = measured(spark, QUERIES[name], rate, options.seconds, options.settle)
            print(json.dumps({"query": name, "rate": rate, **result}), flush=True)
    spark.stop()


def measured(spark, query, rate, seconds, settle):
    with tempfile.TemporaryDirectory() as folder:
        log, out = Path(folder, "log"), Path(folder, "out")
        op.log.create(log, SCHEMA)
        events = spark.readStream.format("outpace.log").option("form", "blocks").load(str(log))
        running = (
            op.match(events, query)
            .writeStream.format("parquet")
            .option("path", str(out))
            .option("checkpointLocation", str(Path(folder, "checkpoint")))
            .start()
        )
        feeder = multiprocessing.get_context("spawn").Process(
            target=feed, args=(str(log), rate, seconds)
        )
        feeder.start()
        feeder.join()
        running.processAllAvailable()
        batches = [progress for progress in running.recentProgress if progress["numInputRows"]]
        running.stop()
        return latencies(out, settle) | spent(batches[len(batches) * settle // seconds :])


def feed(log, rate, seconds):
    """Append events at a rate; a piece is appended when its time has come."""
    size = max(1, rate // TURNS_PER_SECOND)
    turns = rate * seconds // size
    rng = np.random.default_rng(1)
    with op.log.open(log).writer() as writer:
        began = time.time()
        for turn in range(turns):
            while (left := began + (turn + 1) * size / rate - time.time()) > 0:
                time.sleep(left)
            now = time.time_ns() // 1000
            writer.append(
                pa.table(
                    {
                        "ts": pa.array(np.full(size, now), pa.int64()),
                        "key": rng.integers(0, 1000, size).astype(np.int32),
                        "type": rng.integers(0, 10, size).astype(np.int8),
                        "arrived": np.full(size, now),
                    }
                ).cast(SCHEMA)
            )


def latencies(out, settle):
    """Return how old matches were when the batch that wrote them was committed."""
    arrived, waited = [], []
    for commit in sorted(
        (out / "_spark_metadata").iterdir(), key=lambda path: path.stat().st_mtime
    ):
        if not commit.name.isdigit():
            continue
        committed = commit.stat().st_mtime_ns // 1000
        for line in commit.read_text().splitlines()[1:]:
            path = json.loads(line)["path"].removeprefix("file://")
            arrived.append(np.asarray(pq.read_table(path)["arrived"]))
            waited.append(committed - arrived[-1])
    arrived, waited = np.concatenate(arrived), np.concatenate(waited)
    waited = waited[arrived >= arrived.min() + settle * 1_000_000]
    p50, p99, most = np.percentile(waited, [50, 99, 100]) / 1e6
    return {
        "matches": len(waited),
        "p50_s": round(p50, 3),
        "p99_s": round(p99, 3),
        "max_s": round(most, 3),
    }


def spent(batches):
    """Return the medians of what micro-batches spent their time on."""
    names = sorted({name for batch in batches for name in batch["durationMs"]})
    medians = {
        name: round(statistics.median(batch["durationMs"].get(name, 0) for batch in batches))
        for name in names
    }
    events = statistics.median(batch["numInputRows"] for batch in batches)
    return {"batches": len(batches), "median_blocks": events, "batch_ms": medians}


if __name__ == "__main__":
    main()
