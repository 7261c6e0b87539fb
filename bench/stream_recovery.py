"""What a batch of a stream on Spark saves and takes with savepoints alone, beside saved state.

Run `python bench/stream_recovery.py`; `--help` lists the options. The events lie in a log; a
streaming query reads it as blocks, matches and writes to Spark's Parquet sink. `kept` has a search
that holds most of the rows that came, without a bound; `windows` has 1000 open windows whose rows
may still be needed, `chain` as many of which the events of matches are; `w1k`, `w3b` and `w4s` are
the workloads of `outpace bench`.

Each turn runs every query with saved state and with `recovery="replay"`, and `none`: the events are
counted, and nothing is matched. All Python processes are killed in the middle of a run, and what
they left in files is deleted; then it goes on with the second half. Of the batches of the second
half but the first the medians count. Prints a JSON object for each query and way: the bytes that
instances saved in a batch, those that Spark added to the checkpoint's state folder in a batch, the
milliseconds of a batch (median and 99th percentile), of its commit of the state, of reading and of
writing the state; the seconds from the kill to the end of the next batch that has matches, how many
instances were rebuilt by a replay then, and how many events these took.

With `--alone` there is no Spark: one instance takes the same batches, and the last of them counts;
of the bytes, the mean of all but the first.
"""

import argparse
import json
import os
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

import outpace as op
from outpace.engine.codec.cell import COUNTERS, CellKind
from outpace.engine.codec.stretch import LogStretch
from outpace.engine.recover.log_places import LogPiece
from outpace.engine.stage import restore_stage, save_stage
from outpace.engine.state import State
from outpace.ingest.workloads import WORKLOADS, events
from outpace.plan.stream_plan import plan_stream

WAYS = {"state": None, "replay": "replay"}
QUERIES = "w1k,w3b,w4s,windows,chain,kept"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1_500_000, help="events of a run")
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--only", default=QUERIES, help="queries, with commas")
    parser.add_argument("--alone", action="store_true", help="an instance without Spark")
    options = parser.parse_args()
    if options.alone:
        for name in options.only.split(","):
            for way in WAYS:
                print(json.dumps(alone(name, way, options.n, options.batches)), flush=True)
        return
    conf = {"spark.sql.shuffle.partitions": str(options.cores)}
    spark = op.spark.session(master=f"local[{options.cores}]", conf=conf)
    for name in ["none", *options.only.split(",")]:
        ways = WAYS if name != "none" else {"none": None}
        found = {way: [] for way in ways}
        for _ in range(options.repeat):
            for way in ways:
                found[way].append(run(spark, name, way, options))
        for way, runs in found.items():
            print(json.dumps({"query": name, "way": way, **summary(runs)}), flush=True)
    spark.stop()


def query(name, size):
    if name in WORKLOADS:
        return WORKLOADS[name]()
    asked = op.Query(name).order_by("ts").measures(end="LAST(ts)")
    if name == "kept":
        return asked.pattern("A -> B").define(A="kind < 7", B="kind = 10").skip_to_next_row()
    windows = op.windows.count(size // 5, slide=size // 5000)
    kinds = {"A": "kind = 1", "B": "kind = 2", "C": "kind = 3"}
    text = "A -> B -> C" if name == "chain" else "A B"
    return (
        asked.pattern(text).define({one: kinds[one] for one in kinds if one in text}).over(windows)
    )


def made(name, size):
    """Return events in order."""
    if name in WORKLOADS:
        return events(size)
    random = np.random.default_rng(1)
    return pa.table({"ts": np.arange(size), "kind": random.integers(0, 10, size)})


def alone(name, way, size, count):
    """Return what an instance saves after the last batch, and how soon it is there again."""
    rows, batch = made(name, size), -(-size // count)
    plan = plan_stream(query(name, size), rows.schema, 1, log=7 if WAYS[way] else None)
    [spec], stage = plan.division.stages, plan.division.stages[0].make()
    saved_bytes = []
    for low in range(0, size, batch):
        cells = plan.division.packing.pack(rows.slice(low, batch))
        place = (LogStretch("", low, min(low + batch, size)),)
        own = [replace(one, places=place) for one in cells if one.kind is not CellKind.REPORT]
        stage.step([one for one in own if one.kind in stage.takes])
        began = time.perf_counter()
        if WAYS[way]:
            stage.acknowledge()
        saved = save_stage(spec, stage)
        save = time.perf_counter() - began
        saved_bytes.append(len(saved) + (len(stage.anchor) if WAYS[way] and stage.renewed else 0))
    result = {"query": name, "way": way, "kept": stage.counters.kept}
    result |= {
        "open_windows": stage.counters.open_windows,
        "saved_bytes": round(np.mean(saved_bytes[1:])),
    }
    result |= {"save_ms": round(1e3 * save, 1)}
    if not WAYS[way]:
        return result | {"restore_ms": milliseconds(lambda: restore_stage(spec, saved))}

    def read(stretch):
        for low in range(stretch.first, stretch.stop, 1 << 16):
            high = min(low + (1 << 16), stretch.stop)
            yield LogPiece(rows.slice(low, high - low), LogStretch("", low, high))

    file = stage.soft.encode()
    return result | {
        "file_bytes": len(file),
        "file_ms": milliseconds(lambda: stage.soft.encode()),
        "from_file_ms": milliseconds(
            lambda: restore_stage(spec, saved, 0, read, State.decode(file), stage.anchor)
        ),
        "from_log_ms": milliseconds(
            lambda: restore_stage(spec, saved, 0, read, anchor=stage.anchor)
        ),
        "anchor_bytes": len(stage.anchor),
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


def append(log, rows):
    with log.writer(sync="never") as writer:
        for low in range(0, rows.num_rows, 1 << 14):
            writer.append(rows.slice(low, 1 << 14))


def run(spark, name, way, options):
    """Return what is known of the batches of the second half of a run, and of the kill before."""
    rows, half = made(name, options.n), options.n // 2
    with tempfile.TemporaryDirectory() as folder:
        log = op.log.create(Path(folder, "log"), rows.schema)
        append(log, rows.slice(0, half))
        start(spark, name, way, options, folder).awaitTermination()
        before = state_bytes(folder)
        append(log, rows.slice(half))
        kill_workers(spark)
        killed = time.perf_counter()
        running = start(spark, name, way, options, folder)
        while running.isActive and not any(map(has_matches, running.recentProgress)):
            time.sleep(0.02)
        next_match = time.perf_counter() - killed
        running.awaitTermination()
        told = [counted(json.loads(one.json)) for one in running.recentProgress]
        added = (state_bytes(folder) - before) / len(told)
        return {"next_match_s": next_match, "added": added, "first": told[0], "later": told[1:]}


def start(spark, name, way, options, folder):
    source = spark.readStream.format("outpace.log").option("form", "blocks")
    most = -(-options.n // options.batches)
    stream = source.option("maxEventsPerTrigger", most).load(str(Path(folder, "log")))
    if name == "none":
        found = stream.select("events")
    else:
        found = op.match(stream, query(name, options.n), recovery=WAYS[way])
    return (
        found.writeStream.format("parquet")
        .option("path", str(Path(folder, "matches")))
        .option("checkpointLocation", str(Path(folder, "checkpoint")))
        .trigger(availableNow=True)
        .start()
    )


def kill_workers(spark):
    """End all Python processes of tasks, and delete what they have left to others."""

    def own(batches):
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"daemon": [os.getppid()]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(own, "daemon long").collect()
    for process in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(process.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # It has ended.
        if parent == row.daemon:
            os.kill(int(process.parent.name), signal.SIGKILL)
    for file in Path(tempfile.gettempdir(), f"outpace-soft-{os.getuid()}").glob("*"):
        file.unlink(missing_ok=True)


def state_bytes(folder):
    files = Path(folder, "checkpoint", "state").rglob("*")
    return sum(path.stat().st_size for path in files if path.is_file())


def has_matches(progress):
    return counted(json.loads(progress.json))["matches"] > 0


def counted(progress):
    """Return what the stage of a query counted in a batch, and how long that took."""
    total = dict.fromkeys(COUNTERS, 0)
    observed = progress.get("observedMetrics", {})
    for chain in observed.values():
        (reports,) = chain.values()
        for place, *numbers in reports:
            if place == 1:
                own = zip(COUNTERS, numbers, strict=True)
                total = {name: total[name] + count for name, count in own}
    if not observed:
        total["matches"] = progress["numInputRows"]
    commits = sum(one["commitTimeMs"] for one in progress["stateOperators"])
    return {**total, "ms": progress["durationMs"]["triggerExecution"], "commit_ms": commits}


def summary(runs):
    found = [one for run in runs for one in run["later"]]

    def median(name, share=0.5):
        return float(np.quantile([one[name] for one in found], share))

    def after_kill(name):
        return float(np.median([run["first"][name] for run in runs]))

    return {
        "kept": round(median("kept")),
        "open_windows": round(median("open_windows")),
        "saved_bytes": round(median("state_bytes")),
        "added_bytes": round(np.median([run["added"] for run in runs])),
        "batch_ms": round(median("ms")),
        "batch_ms_p99": round(median("ms", 0.99)),
        "commit_ms": round(median("commit_ms"), 1),
        "restore_ms": round(median("restore_us") / 1e3, 1),
        "step_ms": round(median("step_us") / 1e3, 1),
        "save_ms": round(median("save_us") / 1e3, 1),
        "next_match_s": round(float(np.median([run["next_match_s"] for run in runs])), 1),
        "rebuilt": round(after_kill("replays")),
        "replayed": round(after_kill("replayed")),
        "rebuild_ms": round(after_kill("restore_us") / 1e3),
    }


if __name__ == "__main__":
    main()
