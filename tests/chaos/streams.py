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
}
#: Those of which the events are out of order.
DISORDER: dict[str, Query] = {
    "disorder": QUERIES["keyed"].disorder(op.KSlack(SLACK)),
    "quantile": QUERIES["keyed"].disorder(op.Quantile(0.9)),
    "sequence": QUERIES["keyed"].disorder(op.Sequence("20 us", arrival="at")),
    "corrected": QUERIES["negation"].disorder(op.KSlack(0, late="correct", horizon=20 * SLACK)),
}
QUERIES |= DISORDER


@dataclass(frozen=True)
class Stream:
    """A query, its events in the order of their arrival, and its matches in process."""

    query: Query
    arriving: pa.Table
    expected: pa.Table


def make_stream(name: str, size: int, seed: int, piece: int) -> Stream:
    """Return the stream of a query; its last event lets all deadlines pass.

    Which events are late may depend on what comes together: so many do.
    """
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
    if name not in DISORDER:
        return Stream(query, table, op.match(table, query))
    most = 10 * SLACK if query.corrects else SLACK
    arrivals = times + rng.integers(0, most + 1, size + 1)
    table = table.append_column("seq", pa.array(np.arange(size + 1)))
    table = table.append_column("at", pa.array(arrivals))
    arriving = table.take(np.argsort(arrivals, kind="stable"))
    stream = op.open(query)
    found = [stream.push(arriving.slice(low, piece)) for low in range(0, size + 1, piece)]
    return Stream(query, arriving, pa.concat_tables(found))
