"""How fast many sources become one ordered stream, from 1 source to 128.

Run `python bench/order.py`; `--help` lists the options. The same number of SimpleEvents comes from
any number of sources that send at the same times, so neighbours in the order are nearly always of
different sources. Blocks are made before. Measured in turn, five times, in seconds of one core; the
best counts:

- order: blocks in, ordered rows out; one source passes through;
- split: the same, and the rows are split into windows of 1000, as the paper measures (5.4.2);
- wire: order with blocks that are read from their bytes first, as they come through a pipe.

Prints a JSON object for each number of sources: events per second, and the ratios to one source.
"""

import argparse
import json
import time

import pyarrow as pa

from outpace.engine.order.merge import SourceMerge
from outpace.engine.wire import read_events, write_events
from outpace.ingest.generators import simple_events
from outpace.pattern.query import Query
from outpace.pattern.windows import CountWindows
from outpace.studies.space_stream import SplitStream

KINDS = ("order", "split", "wire")
WINDOWS = Query("split").order_by("ts").over(CountWindows(1000, 1000))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=7_680_000, help="the number of events in all")
    parser.add_argument("--block", type=int, default=60_000, help="events of a block")
    parser.add_argument("--sources", default="1,2,4,8,16,32,64,128", help="numbers, with commas")
    options = parser.parse_args()
    counts = [int(count) for count in options.sources.split(",")]
    inputs = {count: blocks(options.n, count, options.block) for count in counts}
    best = {count: dict.fromkeys(KINDS, float("inf")) for count in counts}
    for _ in range(5):
        for count in counts:
            for kind in KINDS:
                best[count][kind] = min(best[count][kind], seconds(inputs[count], kind))
    for count in counts:
        rates = {kind: options.n / taken for kind, taken in best[count].items()}
        first = {kind: options.n / taken for kind, taken in best[counts[0]].items()}
        ratios = {f"{kind}_ratio": round(rates[kind] / first[kind], 2) for kind in rates}
        print(json.dumps({"sources": count, **{k: round(v) for k, v in rates.items()}, **ratios}))


def blocks(n, count, rows):
    """Return for each source its blocks, as batches and as bytes."""
    sources = [
        simple_events(n // count, seed=seed, rate=1_000_000 // count, id=f"s{seed:03}")
        for seed in range(count)
    ]
    return {
        source.id: [
            (table, write_events("bench", source.id, table))
            for table in map(pa.Table.from_batches, ([batch] for batch in source.batches(rows)))
        ]
        for source in sources
    }


def seconds(inputs, kind):
    """Push a block of every source, take what is ready, and so on to the end."""
    first = next(iter(inputs.values()))[0][0]
    stream = SplitStream(WINDOWS, [first])
    merge = SourceMerge(list(inputs))
    rounds = list(zip(*inputs.values(), strict=True))
    taken = 0
    started = time.process_time()
    for round in rounds:
        for source, (batch, block) in zip(inputs, round, strict=True):
            rows = read_events(block, first.schema) if kind == "wire" else batch
            merge.push(source, rows)
        ordered = merge.take()
        taken += len(ordered)
        if kind == "split":
            stream.take(ordered.rows)
    for source in inputs:
        merge.finish(source)
    taken += len(merge.take())
    assert taken == sum(batch.num_rows for many in inputs.values() for batch, _ in many)
    return time.process_time() - started


if __name__ == "__main__":
    main()
