"""How long it takes from the arrival of an event to the matches that it completes, in process.

Run `python bench/latency.py`; `--help` lists the options. Events arrive at a fixed rate and are
pushed in blocks, each as soon as its last event has arrived. The latency of a block is the time
from then until `push` has returned its matches, waiting for earlier blocks included. The first
tenth does not count. Prints a JSON object for each size of blocks.
"""

import argparse
import json
import time

import numpy as np
import pyarrow as pa

import outpace as op


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=100_000, help="events per second")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--blocks", default="100,200,500", help="events of a block, with commas")
    parser.add_argument("--size", type=int, default=1000, help="events of a window")
    parser.add_argument("--slide", type=int, default=100)
    options = parser.parse_args()
    for block in map(int, options.blocks.split(",")):
        print(json.dumps(measured(options, block)), flush=True)


def measured(options, block):
    size = options.rate * options.seconds
    kinds = np.random.default_rng(1).integers(0, 10, size)
    events = pa.table({"ts": np.arange(size), "type": kinds})
    query = (
        op.Query("chain")
        .order_by("ts")
        .pattern("A -> B -> C")
        .define(A="type = 0", B="type = 1", C="type = 2")
        .measures(first="A.ts", last="C.ts")
        .over(op.windows.count(options.size, slide=options.slide))
    )
    stream = op.open(query, schema=events.schema)
    waited, matches = [], 0
    started = time.perf_counter()
    for first in range(0, size, block):
        arrived = started + (first + block) / options.rate
        while (left := arrived - time.perf_counter()) > 0:
            time.sleep(left)
        found = stream.push(events.slice(first, block)).num_rows
        if found:
            waited.append(time.perf_counter() - arrived)
        matches += found
    p50, p99, p100 = np.percentile(waited[len(waited) // 10 :], [50, 99, 100]) * 1e3
    return {
        "rate": options.rate,
        "block": block,
        "matches": matches,
        "p50_ms": round(p50, 2),
        "p99_ms": round(p99, 2),
        "max_ms": round(p100, 2),
    }


if __name__ == "__main__":
    main()
