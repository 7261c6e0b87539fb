"""How fast a stream on Spark is whose K adapts itself, or which speculates, beside a fixed K.

Run `python bench/stream_order.py`; `--help` lists the options. One event in five is out of order:
late by an exponential delay with a mean of 50 events. The events lie in a log; a streaming query
reads it as blocks, brings them into order, matches and writes to Spark's Parquet sink, from start
to end, as in `outpace bench --host stream`; one that speculates writes its changes. Any event may
be of use to the pattern, so all travel; with `--selective` three in a hundred may, and of the
others only the times travel, with `aq` its column, too. By key, a fixed K brings the events of each
key into order where the key is; an adaptive one looks at all events in one place first.

Each turn runs two sizes with the fixed K and with each adaptive one. A rate is that of the events
that the larger run has more, so the start of a query does not count; its ratio to that of the fixed
K is taken turn by turn, and the median counts. Beside other programs believe the ratio of processor
times, of Java and Python together. Prints a JSON object for each kind.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import outpace as op

#: Microseconds from one event to the next, and events of a micro-batch.
STEP = 10
BATCH_EVENTS = 1 << 20

FIXED = op.KSlack("5 ms")
ADAPTIVE = {
    "mp": op.MPKSlack(at_most="10 ms"),
    "quantile": op.Quantile(0.999, at_most="10 ms"),
    "ldop": op.LDOP(window="1 s", low=5, high=5, at_most="10 ms"),
    "aq": op.AQKSlack(aggregate="sum", column="v", window="1 s", at_most="10 ms"),
    "aq-count": op.AQKSlack(aggregate="count", window="1 s", at_most="10 ms"),
    "sequence": op.Sequence("10 ms", arrival="at"),
    # Nothing waits, and what is late within the same K corrects what came out.
    "speculative": op.Speculative("5 ms", alpha=0),
    "speculative-half": op.Speculative("5 ms", alpha=0.5),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=20_000_000, help="events of the larger run")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--only", default=",".join(ADAPTIVE), help="kinds, with commas")
    parser.add_argument("--keys", default="0,1000", help="numbers of keys, with commas; 0: none")
    parser.add_argument("--selective", action="store_true", help="few events are of use")
    options = parser.parse_args()
    kinds = {"fixed": FIXED, **{name: ADAPTIVE[name] for name in options.only.split(",")}}
    conf = {"spark.sql.shuffle.partitions": str(options.cores)}
    spark = op.spark.session(master=f"local[{options.cores}]", conf=conf)
    sizes = options.n // 5, options.n
    with tempfile.TemporaryDirectory() as folder:
        for keys in map(int, options.keys.split(",")):
            logs = [written(Path(folder), size, keys) for size in sizes]
            asked = query(keys, selective=options.selective)
            taken(spark, logs[0], asked.disorder(FIXED))
            rates = {name: [] for name in kinds}
            for _ in range(options.repeat):
                for name, disorder in kinds.items():
                    small, large = (taken(spark, log, asked.disorder(disorder)) for log in logs)
                    rates[name].append((sizes[1] - sizes[0]) / (large - small))
            for name, own in rates.items():
                wall, processor = np.median(np.array(own) / np.array(rates["fixed"]), axis=0)
                result = {"kind": name, "keys": keys, "n": options.n, "cores": options.cores}
                result |= {"events_per_s": [round(rate[0]) for rate in own]}
                result |= {"events_per_processor_s": [round(rate[1]) for rate in own]}
                result |= {"of_fixed": round(wall, 3), "of_fixed_processor": round(processor, 3)}
                print(json.dumps(result), flush=True)
    spark.stop()


def query(keys, *, selective):
    few = {"A": "v = 50", "B": "v = 60", "C": "v = 70"}
    any_one = {"A": "v < 50", "B": "v > A.v + 90", "C": "v < B.v - 95"}
    chain = (
        op.Query("chain")
        .order_by("ts")
        .pattern("A -> B -> C")
        .define(few if selective else any_one)
        .measures(end="LAST(ts)")
        .within("1 ms" if not keys else "100 ms")
    )
    return chain.partition_by("key") if keys else chain


def written(folder, size, keys):
    """Return a log with events as they arrive."""
    random = np.random.default_rng(1)
    times = np.arange(size) * STEP
    late = random.random(size) < 0.2
    arrival = times + np.where(late, random.exponential(50 * STEP, size), 0).astype(np.int64)
    order = np.argsort(arrival, kind="stable")
    events = pa.table(
        {
            "ts": pa.array(times[order], pa.timestamp("us", "UTC")),
            "key": random.integers(0, max(1, keys), size).astype(np.int32),
            "v": random.integers(0, 100, size).astype(np.int32),
            "seq": order,
            "at": pa.array(arrival[order], pa.timestamp("us", "UTC")),
        }
    )
    path = folder / f"{keys}-{size}"
    with op.log.create(path, events.schema).writer(sync="never") as writer:
        for low in range(0, size, 1 << 16):
            writer.append(events.slice(low, 1 << 16))
    return path


def taken(spark, log, asked):
    """Return the seconds of a streaming query over all of a log, and those of processors."""
    with tempfile.TemporaryDirectory() as folder:
        source = spark.readStream.format("outpace.log").option("form", "blocks")
        events = source.option("maxEventsPerTrigger", BATCH_EVENTS).load(str(log))
        began = np.array([time.perf_counter(), processor_seconds()])
        running = (
            op.match(events, asked)
            .writeStream.format("parquet")
            .option("path", str(Path(folder, "matches")))
            .option("checkpointLocation", str(Path(folder, "checkpoint")))
            .trigger(availableNow=True)
            .start()
        )
        running.awaitTermination()
        return np.array([time.perf_counter(), processor_seconds()]) - began


def processor_seconds():
    """Return what this process and all that it has started, Java and its workers, have used."""
    ticks, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has ended.
        pid = int(path.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks[pid] for pid in own) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
