"""The streams of the chaos tests: events, queries of every shape, and what each has to find."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from support.streamed import END, kinds

import outpace as op
from outpace.pattern.query import Query

#: How far events of the disordered stream change places, in units of time.
SLACK = 60

QUERIES: dict[str, Query] = {
    "keyed": kinds("A -> B -> C").partition_by("key").within(80),
    "unkeyed": kinds("A ->> B").within(9),
    "windowed": kinds("A -> C").over(op.windows.time(24, slide=8)).instances(2),
    "negation": kinds("A -> !B").within(7).no_skip(),
    "disorder": (kinds("A -> B -> C").partition_by("key").within(80).disorder(op.KSlack(SLACK))),
}


@dataclass(frozen=True)
class Stream:
    """A query, its events in the order of their arrival, and its matches in process."""

    query: Query
    arriving: pa.Table
    expected: pa.Table


def make_stream(name: str, size: int, seed: int) -> Stream:
    """Return the stream of a query; its last event lets all deadlines pass."""
    rng = np.random.default_rng(seed)
    # No two events at one time: their order would be that of their arrival.
    times = np.append(np.cumsum(rng.integers(1, 6, size)), END)
    table = pa.table(
        {
            "id": np.arange(size + 1),
            "ts": times,
            "key": [*(f"k{number}" for number in rng.integers(0, 16, size)), "end"],
            "kind": [*np.array(list("abcd"))[rng.integers(0, 4, size)].tolist(), "end"],
        }
    )
    query = QUERIES[name]
    delays = rng.integers(0, SLACK + 1, size + 1) if name == "disorder" else 0
    arriving = table.take(np.argsort(times + delays, kind="stable"))
    return Stream(query, arriving, op.match(table, query))
