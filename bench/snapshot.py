"""What a snapshot of an instance costs after a block of events: processor time, and bytes copied.

Run `python bench/snapshot.py [--open 100000] [--block 1000]`: for each kind of windows, and for
rows that are kept without windows, it prints the least and the median of the milliseconds that a
snapshot takes, and how many bytes it copies. The last snapshot is held until the next is taken, as
a mark is.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import pyarrow as pa

import outpace as op
from outpace.engine.message import EventsArrived
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec

SCHEMA = pa.schema([("ts", pa.int64()), ("key", pa.int64()), ("kind", pa.int64())])
#: Events that are taken at once until all windows are open.
FILLING = 50_000


def queries(opened: int) -> dict[str, tuple[op.Query, int]]:
    """Return queries, and how many events each takes until it keeps all that it will."""
    chain = (
        op.Query("q")
        .order_by("ts")
        .pattern("A -> B")
        .define(A="kind = 0", B="kind = 1")
        .measures(a="A.ts")
    )
    rows = chain.define(A="kind < 60", B="kind = 61").within(10 * opened)
    keyed = chain.partition_by("key")
    return {
        "count": (chain.over(op.windows.count(opened, slide=1)), opened),
        "count by key": (keyed.over(op.windows.count(opened // 100, slide=1)), opened),
        "time": (chain.over(op.windows.time(opened, slide=1)), opened),
        "between": (
            chain.over(op.windows.between(open="kind >= 0", close="kind = 99")),
            opened,
        ),
        "rows by key": (rows.partition_by("key"), 10 * opened),
    }


def block(begin: int, size: int) -> EventsArrived:
    """Return some events, of fifty kinds and a hundred keys."""
    at = np.arange(begin, begin + size)
    kind = np.random.default_rng(begin).integers(0, 50, size)
    return EventsArrived(pa.table({"ts": at, "key": at % 100, "kind": kind}, SCHEMA))


def measure(query: op.Query, before: int, size: int, turns: int) -> tuple[list[float], int, int]:
    """Return milliseconds of snapshots, the bytes of the last one, and how many windows it has."""
    operator, at = WholeOperator(OperatorSpec(query, SCHEMA)), 0
    while at < before:
        operator.step(block(at, FILLING))
        at += FILLING
    held, spent = operator.instance.snapshot(), []
    for _ in range(turns):
        operator.step(block(at, size))
        at += size
        begun = time.thread_time()
        taken = operator.instance.snapshot()
        spent.append(1000 * (time.thread_time() - begun))
        held = taken
    return spent, operator.instance.copied_bytes, held.open_windows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--open", type=int, default=100_000, help="windows that are open")
    options.add_argument("--block", type=int, default=1000, help="events between two snapshots")
    options.add_argument("--turns", type=int, default=40, help="snapshots that are timed")
    options.add_argument("--only", help="one kind alone")
    chosen = options.parse_args()
    for name, (query, before) in queries(chosen.open).items():
        if chosen.only in (None, name):
            spent, copied, opened = measure(query, before, chosen.block, chosen.turns)
            print(
                f"{name:<14}{opened:>9} open  least {min(spent):.3f} ms"
                f"  median {statistics.median(spent):.3f} ms  {copied:>9} bytes copied",
                flush=True,
            )


if __name__ == "__main__":
    main()
