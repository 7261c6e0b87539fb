"""How fast many sources become one ordered stream, from 1 source to 1024.

Run `python bench/order.py`; `--help` lists the options. The same number of SimpleEvents comes from
any number of sources that send at the same times, so neighbours in the order are nearly always of
different sources. Blocks are made before. Measured in turn, five times, in seconds of one core; the
best counts:

- order: blocks in, ordered rows out; one source passes through;
- split: the same, and the rows are split into windows of 1000, as the paper measures (5.4.2);
- wire: order with blocks that are read from their bytes first, as they come through a pipe.

Prints a JSON object for each number of sources: events per second, and the ratios to one source.

Then what one call costs, a push or a heartbeat and the take that follows it, where all sources are
one group (flat) and where they are groups of 64 (tree), in turn, the best of five:

- turns: all sources push small blocks in turn;
- few: four sources push small blocks, half of the others have events that wait for them;
- beats: one source pushes, all others send heartbeats.

Prints a JSON object for each number of sources: microseconds of one core a call, and flat / tree.
"""

import argparse
import json
import time

import numpy as np
import pyarrow as pa

from outpace.engine.order.merge import FAN_IN, SourceMerge
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
    parser.add_argument(
        "--sources", default="1,2,4,8,16,32,64,128,1024", help="numbers, with commas"
    )
    parser.add_argument(
        "--calls", default="64,128,1024", help="numbers of sources, for single calls"
    )
    options = parser.parse_args()
    measure_rates(options)
    measure_calls([int(count) for count in options.calls.split(",")])


def measure_rates(options):
    """Print the rates of blocks of all sources, taken in rounds."""
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


def measure_calls(counts):
    """Print what one call costs, flat and in a tree."""
    for count in counts:
        names = [f"s{number:04}" for number in range(count)]
        shown = {"sources": count}
        for script in (turns, few, beats):
            calls = list(script(names))
            best = {"flat": float("inf"), "tree": float("inf")}
            for _ in range(5):
                for kind, fan_in in (("flat", count), ("tree", FAN_IN)):
                    taken = call_seconds(SourceMerge(names, fan_in=fan_in), calls)
                    best[kind] = min(best[kind], 1e6 * taken / len(calls))
            shown |= {f"{script.__name__}_{kind}": round(us, 1) for kind, us in best.items()}
            shown[f"{script.__name__}_ratio"] = round(best["flat"] / best["tree"], 2)
        print(json.dumps(shown))


def call_seconds(merge, calls):
    """Make all calls, each followed by a take."""
    started = time.process_time()
    for source, sent in calls:
        if isinstance(sent, int):
            merge.heartbeat(source, sent)
        else:
            merge.push(source, sent)
        merge.take()
    return time.process_time() - started


def turns(names):
    """Yield two blocks at least of every source, in turn."""
    for round in range(max(2, 1024 // len(names))):
        for number, name in enumerate(names):
            yield name, small_block(round * 100 * len(names) + number, len(names))


def few(names):
    """Yield blocks of four sources, after the others have said that they are far ahead."""
    for number, name in enumerate(names[4:]):
        yield name, small_block(10**9, 1) if number % 2 else 10**9
    for turn in range(1024):
        yield names[turn % 4], small_block(turn * 100, 1)


def beats(names):
    """Yield blocks of the first source, and heartbeats of all others after each."""
    for round in range(max(2, 1024 // len(names))):
        yield names[0], small_block(round * 100, 1)
        for name in names[1:]:
            yield name, round * 100


def small_block(start, step):
    times = start + step * np.arange(100)
    return pa.table({"ts": times, "x": times})


if __name__ == "__main__":
    main()
