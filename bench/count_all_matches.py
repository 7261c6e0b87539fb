"""Seconds to count all matches of a ->> b ->> c ->> d within 1000, over events of ten types.

Run `python bench/count_all_matches.py [events]`; `count_all_matches` gives the numbers to others.
"""

import json
import sys
import time

import numpy as np
import pyarrow as pa

from outpace.engine.match.contract import Resume
from outpace.engine.match.count import count_matches
from outpace.engine.match.operator import prepare, whole_block
from outpace.pattern.query import Query


def count_all_matches(events=1_000_000, within=1000, seed=1):
    """Return the events, the matches, and the seconds of the best of three runs."""
    types = np.random.default_rng(seed).integers(0, 10, events)
    table = pa.table({"ts": np.arange(events), "type": types})
    query = (
        Query("chain")
        .order_by("ts")
        .pattern("A ->> B ->> C ->> D")
        .define(A="type = 0", B="type = 1", C="type = 2", D="type = 3")
        .within(within)
    )
    task = prepare(query, table.schema)
    block = whole_block(task, table)
    seconds = []
    for _ in range(3):
        begun = time.perf_counter()
        matches = count_matches(task, block, Resume.fresh(1))
        seconds.append(time.perf_counter() - begun)
    return {"events": events, "matches": matches, "seconds": min(seconds)}


if __name__ == "__main__":
    print(json.dumps(count_all_matches(*map(int, sys.argv[1:2]))))
