"""What a push costs when many keys have been seen, and what is kept of keys that are silent.

Run `python bench/keys.py`; `--help` lists the options. First every key has an event, in ten blocks;
then blocks of 1000 events, each of another key, go round the keys, and their processor time counts.
Then time passes until nothing of what was seen can match any more, further blocks follow, and the
state is saved. Prints a JSON object for each query and number of keys.
"""

import argparse
import json
import time

import numpy as np
import pyarrow as pa

import outpace as op

#: Events of a block, all of different keys.
BLOCK = 1000

#: Blocks that do not count.
WARM = 5

SCHEMA = pa.schema({"ts": pa.int64(), "key": pa.int64(), "type": pa.int64()})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", default="1000,100000,1000000", help="with commas")
    parser.add_argument("--queries", default=",".join(QUERIES), help="with commas")
    parser.add_argument("--pushes", type=int, default=50, help="blocks that count")
    options = parser.parse_args()
    for keys in map(int, options.keys.split(",")):
        for name in options.queries.split(","):
            print(json.dumps(measured(name, keys, options.pushes)), flush=True)


def measured(name, keys, pushes):
    # All events are A: each waits for a B of its key, for as long as WITHIN or a window allows.
    span = 2 * (keys + (pushes + WARM) * BLOCK)
    stream = op.open(QUERIES[name](span), schema=SCHEMA)
    for first in range(0, keys, keys // 10):
        stream.push(events(first, keys // 10, keys))
    costs = push_all(stream, keys, keys, pushes)
    live = len(stream.state())
    started = time.process_time()
    stream.advance(4 * span)
    expired_ms = (time.process_time() - started) * 1e3
    costs_later = push_all(stream, 4 * span, keys, pushes)
    stream.advance(8 * span)
    return {
        "query": name,
        "keys": keys,
        "push_ms": round(float(np.median(costs)) * 1e3, 2),
        "push_mean_ms": round(float(np.mean(costs)) * 1e3, 2),
        "state_bytes": live,
        "expire_ms": round(expired_ms, 1),
        "push_later_ms": round(float(np.median(costs_later)) * 1e3, 2),
        "state_bytes_expired": len(stream.state()),
    }


def push_all(stream, first, keys, pushes):
    """Push blocks and return the processor seconds of each but the first ones."""
    costs = []
    for block in range(WARM + pushes):
        table = events(first + block * BLOCK, BLOCK, keys)
        started = time.process_time()
        stream.push(table)
        costs.append(time.process_time() - started)
    return costs[WARM:]


def events(first, size, keys):
    number = np.arange(first, first + size)
    # Neighbours in time are far apart by key, as they are in a stream of many.
    key = number * 7919 % keys
    return pa.table({"ts": number, "key": key, "type": np.zeros(size, np.int64)}, SCHEMA)


def chain(name):
    return (
        op.Query(name)
        .partition_by("key")
        .order_by("ts")
        .pattern("A -> B -> C")
        .define(A="type = 0", B="type = 1", C="type = 2")
        .measures(first="A.ts", last="C.ts")
    )


#: By name: a query for a time that no key is silent for.
QUERIES = {
    "within": lambda span: chain("within").within(span),
    "absent": lambda span: (
        op.Query("absent")
        .partition_by("key")
        .order_by("ts")
        .pattern("A -> !B")
        .define(A="type = 0", B="type = 1")
        .measures(first="A.ts")
        .within(span)
    ),
    "sliding": lambda span: chain("sliding").over(op.windows.time(span, slide=span // 8)),
    "tumbling": lambda span: chain("tumbling").over(op.windows.time(span)),
}


if __name__ == "__main__":
    main()
