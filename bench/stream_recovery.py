"""What a batch of a stream on Spark saves and takes with savepoints alone, beside saved state.

Run `python bench/stream_recovery.py`; `--help` lists the options. The events lie in a log; a
streaming query reads it as blocks, matches and writes to Spark's Parquet sink. `kept` has a search
that holds most of the rows that came, without a bound; `windows` has 1000 open windows whose rows
may still be needed, `chain` as many of which the events of matches are.

Each turn runs every query with saved state and with `recovery="replay"`. Of the batches of the
second half of each run the medians count. Prints a JSON object for each query and way: the bytes
that instances saved in a batch, those that Spark added to the checkpoint's state folder in a batch,
the milliseconds of a batch (median and 99th percentile), of reading and of writing the state; how
many of the steps began with a replay, and how many events these took.

With `--alone` there is no Spark: one instance takes the same batches, and the last of them counts.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

import outpace as op
from outpace.engine.codec.cell import COUNTERS
from outpace.engine.recover.log_places import LogPiece
from outpace.engine.stage import restore_stage, save_stage
from outpace.engine.state import State
from outpace.plan.stream_plan import plan_stream

WAYS = {"state": None, "replay": "replay"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1_500_000, help="events of a run")
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--only", default="kept,windows,chain", help="queries, with commas")
    parser.add_argument("--alone", action="store_true", help="an instance without Spark")
    options = parser.parse_args()
    if options.alone:
        for name in options.only.split(","):
            for way in WAYS:
                print(json.dumps(alone(name, way, options.n, options.batches)), flush=True)
        return
    conf = {"spark.sql.shuffle.partitions": str(options.cores)}
    spark = op.spark.session(master=f"local[{options.cores}]", conf=conf)
    with tempfile.TemporaryDirectory() as folder:
        log = written(Path(folder, "log"), options.n)
        for name in options.only.split(","):
            found = {way: [] for way in WAYS}
            for _ in range(options.repeat):
                for way in WAYS:
                    found[way] += batches(spark, log, query(name, options.n), way, options)
            for way, own in found.items():
                print(json.dumps({"query": name, "way": way, **summary(own)}), flush=True)
    spark.stop()


def query(name, size):
    asked = op.Query(name).order_by("ts").measures(end="LAST(ts)")
    if name == "kept":
        return asked.pattern("A -> B").define(A="kind < 7", B="kind = 10").skip_to_next_row()
    windows = op.windows.count(size // 5, slide=size // 5000)
    kinds = {"A": "kind = 1", "B": "kind = 2", "C": "kind = 3"}
    text = "A -> B -> C" if name == "chain" else "A B"
    return (
        asked.pattern(text).define({one: kinds[one] for one in kinds if one in text}).over(windows)
    )


def made(size):
    """Return events in order."""
    random = np.random.default_rng(1)
    return pa.table({"ts": np.arange(size), "kind": random.integers(0, 10, size)})


def alone(name, way, size, count):
    """Return what an instance saves after the last batch, and how soon it is there again."""
    events, batch = made(size), -(-size // count)
    plan = plan_stream(query(name, size), events.schema, 1, log=7 if WAYS[way] else None)
    [spec], stage = plan.division.stages, plan.division.stages[0].make()
    for low in range(0, size, batch):
        cells = plan.division.packing.pack(events.slice(low, batch))
        own = [replace(one, first=low, stop=min(low + batch, size)) for one in cells]
        stage.step([one for one in own if one.kind in stage.takes])
        began = time.perf_counter()
        saved = save_stage(spec, stage)
        save = time.perf_counter() - began
    result = {"query": name, "way": way, "kept": stage.counters.kept}
    result |= {"open_windows": stage.counters.open_windows, "saved_bytes": len(saved)}
    result |= {"save_ms": round(1e3 * save, 1)}
    if not WAYS[way]:
        return result | {"restore_ms": milliseconds(lambda: restore_stage(spec, saved))}

    def read(first, stop):
        for low in range(first, stop, 1 << 16):
            yield LogPiece(
                events.slice(low, min(1 << 16, stop - low)), low, min(low + (1 << 16), stop)
            )

    file = stage.soft.encode()
    return result | {
        "file_bytes": len(file),
        "file_ms": milliseconds(lambda: stage.soft.encode()),
        "from_file_ms": milliseconds(
            lambda: restore_stage(spec, saved, 0, read, State.decode(file))
        ),
        "from_log_ms": milliseconds(lambda: restore_stage(spec, saved, 0, read)),
        "needed": stage.soft.tables[0].num_rows,
    }


def milliseconds(act):
    """Return the least that something took, of three times."""
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return round(1e3 * min(taken), 1)


def written(path, size):
    """Return a log with events in order."""
    events = made(size)
    with op.log.create(path, events.schema).writer(sync="never") as writer:
        for low in range(0, size, 1 << 14):
            writer.append(events.slice(low, 1 << 14))
    return path


def batches(spark, log, asked, way, options):
    """Return what is known of each batch of the second half of a run."""
    with tempfile.TemporaryDirectory() as folder:
        source = spark.readStream.format("outpace.log").option("form", "blocks")
        most = -(-options.n // options.batches)
        events = source.option("maxEventsPerTrigger", most).load(str(log))
        running = (
            op.match(events, asked, recovery=WAYS[way])
            .writeStream.format("parquet")
            .option("path", str(Path(folder, "matches")))
            .option("checkpointLocation", str(Path(folder, "checkpoint")))
            .trigger(availableNow=True)
            .start()
        )
        running.awaitTermination()
        told = [json.loads(one.json) for one in running.recentProgress]
        state = [path for path in Path(folder, "checkpoint", "state").rglob("*") if path.is_file()]
        added = sum(path.stat().st_size for path in state) / len(told)
        return [{**counted(one), "added": added} for one in told[len(told) // 2 :]]


def counted(progress):
    """Return what the stage of a query counted in a batch, and how long that took."""
    (chain,) = progress["observedMetrics"].values()
    (reports,) = chain.values()
    own = [dict(zip(COUNTERS, numbers, strict=True)) for place, *numbers in reports if place == 1]
    total = {name: sum(one[name] for one in own) for name in COUNTERS}
    return {**total, "ms": progress["durationMs"]["triggerExecution"], "steps": len(own)}


def summary(found):
    def median(name, share=0.5):
        return float(np.quantile([one[name] for one in found], share))

    replays, steps = (sum(one[name] for one in found) for name in ("replays", "steps"))
    return {
        "kept": round(median("kept")),
        "open_windows": round(median("open_windows")),
        "saved_bytes": round(median("state_bytes")),
        "added_bytes": round(median("added")),
        "batch_ms": round(median("ms")),
        "batch_ms_p99": round(median("ms", 0.99)),
        "restore_ms": round(median("restore_us") / 1e3, 1),
        "save_ms": round(median("save_us") / 1e3, 1),
        "replays_of_steps": [replays, steps],
        "replayed": sum(one["replayed"] for one in found),
    }


if __name__ == "__main__":
    main()
