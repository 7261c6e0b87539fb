"""Hold a source that offers twice what the operator can do, and watch its rate and its memory.

Run `python bench/overload.py --seconds 300`; `--help` lists the options. First the source offers
without limit for a while, with rate control and without, and the better rate counts. Then it offers
twice that, with rate control, for as long as asked. Prints the rate of every tenth of that time and
the peak of memory, and ends with exit code 1 where the whole is below 90 % of the best rate. The
paper's framework slows down or breaks down here (figures 5.4 and 5.10).
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from memory import PeakMemory

import outpace as op
from outpace.ingest.pace import paced
from outpace.ingest.source import Source

LEAST = 0.9


@dataclass(frozen=True)
class Endless(Source):
    """SimpleEvents without end: one character each, the same million again and again."""

    def batches(self, rows=65_536) -> Iterator[pa.RecordBatch]:
        size = 1 << 20
        kinds = pa.array(np.random.default_rng(1).integers(0, 10, size).astype(str))
        first = 0
        while True:
            for start in range(0, size, rows):
                kind = kinds.slice(start, rows)
                numbers = pa.array(np.arange(first, first + len(kind)))
                yield pa.record_batch({"ts": numbers, "seq": numbers, "type": kind})
                first += len(kind)


def query(options) -> op.Query:
    return (
        op.Query("overload")
        .order_by("ts")
        .pattern("A B")
        .define(A="type = '0'", B="type = '1'")
        .measures(at="A.seq")
        .over(op.windows.count(1000, slide=options.slide))
        .instances(options.instances)
    )


def measured(options, source, seconds, **settings) -> op.Run:
    with op.run(query(options), source, **settings) as run:
        started = None
        for _ in run:
            started = started or time.perf_counter()
            if time.perf_counter() - started > seconds:
                run.stop()
    return run


def rates(run, parts) -> list[float]:
    """The events per second that came out of instances in equal parts of the run."""
    samples = run.metrics.over_time("instance", "events").group_by("seconds", use_threads=False)
    summed = samples.aggregate([("value", "sum")])
    seconds = summed["seconds"].to_numpy()
    done = summed["value_sum"].to_numpy() / run.metrics.operator.duplication
    # The start of the processes and the rise of the rate are no part of what is compared.
    bounds = np.linspace(min(3.0, seconds[-1] / 4), seconds[-1], parts + 1)
    return (np.diff(np.interp(bounds, seconds, done)) / np.diff(bounds)).tolist()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to overload")
    parser.add_argument("--best-seconds", type=float, default=10.0, help="how long without limit")
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--slide", type=int, default=1000)
    options = parser.parse_args()
    found = {
        name: float(
            np.median(rates(measured(options, Endless("a"), options.best_seconds, **how), 5))
        )
        for name, how in {"controlled": {}, "uncontrolled": {"rate_control": None}}.items()
    }
    # Were the control too careful, the rate under it would be no measure of what is possible.
    best = max(found.values())
    rounded = {name: round(rate) for name, rate in found.items()}
    print(json.dumps({"best_rate": round(best), **rounded}), flush=True)
    with PeakMemory(os.getpid()) as memory:
        run = measured(options, paced(Endless("a"), 2 * best), options.seconds)
    held = rates(run, 10)
    waiting = run.metrics.over_time("instance", "waiting")["value"].to_numpy().max()
    share = float(np.mean(held)) / best
    result = {
        "offered_rate": round(2 * best),
        "rates": [round(rate) for rate in held],
        "share_of_best": round(share, 3),
        "events_waiting_at_most": int(waiting),
        "peak_bytes": memory.peak.total,
    }
    print(json.dumps(result), flush=True)
    return 0 if share >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
