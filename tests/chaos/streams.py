"""The streams of the chaos tests: events, queries of every shape, and what each has to find.

Some are groups of queries, one is a join of two halves of the events, and in one a query takes the
matches of another. Of some Spark keeps savepoints alone, and the log is read again. Where matches
are taken back, what has to be there in the end are those of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from support.streamed import END, kinds

import outpace as op
from outpace.engine.group_spec import joined_rows, joined_schema
from outpace.pattern.bound import DIFF, MATCH
from outpace.pattern.group import QueryGroup
from outpace.pattern.query import Query

#: How far events of the disordered stream change places, in units of time.
SLACK = 60

QUERIES: dict[str, Query] = {
    "keyed": kinds("A -> B -> C").partition_by("key").within(80),
    "unkeyed": kinds("A ->> B").within(9),
    "windowed": kinds("A -> C").over(op.windows.time(24, slide=8)).instances(2),
    "negation": kinds("A -> !B").within(7).no_skip(),
    "uncertain": kinds("A -> !C -> B").within(20).no_skip().uncertain(4),
    "drift": (
        op.Query("q")
        .order_by("ts")
        .pattern("A+")
        .define(A="kind <> 'end'")
        .measures(total="SUM(id)", n="COUNT(*)")
        .limit(1)
        .over(op.windows.time(24), drift=3)
    ),
}
#: Those of which Spark keeps no state but savepoints, and the log is read again.
REPLAYED = ("replayed", "replayed windows", "replayed slack", "replayed sources")
QUERIES |= {
    "replayed": QUERIES["keyed"],
    "replayed windows": kinds("A -> C").over(op.windows.time(24, slide=8)).partition_by("key"),
}
#: Those of which the events are out of order.
DISORDER: dict[str, Query] = {
    "disorder": QUERIES["keyed"].disorder(op.KSlack(SLACK)),
    "quantile": QUERIES["keyed"].disorder(op.Quantile(0.9)),
    "greatest delay": QUERIES["keyed"].disorder(op.MPKSlack()),
    # Of the events that it does not use, what is weighed and when they arrived is sent alone.
    "weighed": QUERIES["unkeyed"].disorder(
        op.AQKSlack(error=0.2, aggregate="sum", column="id", window=50, arrival="at")
    ),
    "latency distance": QUERIES["keyed"].disorder(op.LDOP(window=100)),
    "sequence": QUERIES["keyed"].disorder(op.Sequence("20 us", arrival="at")),
    "replayed slack": QUERIES["negation"].disorder(op.KSlack(SLACK)),
    "corrected": QUERIES["negation"].disorder(op.KSlack(0, late="correct", horizon=20 * SLACK)),
}
QUERIES |= DISORDER
#: Those that take matches back: a table or a folder has what is there.
CHANGING: dict[str, Query] = {
    "speculative": QUERIES["keyed"].disorder(op.Speculative(SLACK, alpha=0)),
    "by load": QUERIES["keyed"].disorder(op.Speculative(SLACK)),
    "early absence": QUERIES["negation"].disorder(op.Speculative(SLACK, alpha=0.5)),
    "early windows": QUERIES["windowed"].disorder(op.Speculative(SLACK, alpha=0.3)),
    "latest": QUERIES["corrected"].emit("latest"),
}
QUERIES |= CHANGING
#: Those whose events are of several sources, of which the last one is silent for a while: the
#: others wait for it for a time, by when events arrive.
PATIENT: dict[str, Query] = {
    "patient": QUERIES["keyed"].disorder(op.KSlack(SLACK, arrival="at", patience="100 ms")),
}
PATIENT["replayed sources"] = PATIENT["patient"]
QUERIES |= PATIENT
SOURCES = ("east", "north", "west")
GROUPS: dict[str, QueryGroup] = {
    # The K differ, so they share a chain.
    "group": op.group(
        replace(QUERIES["disorder"], name="keyed"),
        replace(QUERIES["unkeyed"], name="all").disorder(op.KSlack(2 * SLACK)),
        replace(QUERIES["negation"], name="absent").disorder(op.KSlack(SLACK)),
    ),
    "early group": op.group(
        replace(QUERIES["speculative"], name="keyed"),
        replace(QUERIES["early absence"], name="absent"),
    ),
}
#: Queries of which the second one takes the matches of the first, which tell it the time.
PAIRS = kinds("A -> B").within(30).measures(at="LAST(ts)").disorder(op.KSlack(SLACK))
FOLLOWING = (
    op.Query("following")
    .order_by("at")
    .pattern("P -> !Q")
    .define(P="n > 1", Q="last > P.last + 20")
    .within(40)
    .measures(since="P.at")
    .no_skip()
    .disorder(op.Punctuation())
)
#: The kinds of events that are the left and the right side of the join; the last event is in both.
SIDES = (["a", "b", "end"], ["c", "d", "end"])
JOIN: dict[str, Any] = {"on": "key", "within": 30, "time": "ts", "how": "left"}
NAMES = (*QUERIES, *GROUPS, "join", "told")
#: The streams of which the sink has what is there.
TAKEN_BACK = {*CHANGING, "early group"}


@dataclass(frozen=True)
class Stream:
    """Events in the order of their arrival, and what is found of them in process.

    `unlike` are columns that a stream on Spark may have otherwise.
    """

    arriving: pa.Table
    expected: pa.Table
    unlike: tuple[str, ...] = ()


def found_in(stream: DataFrame, name: str) -> DataFrame:
    """Return what is found in a stream on Spark."""
    if name in GROUPS:
        return op.match(stream, GROUPS[name])
    if name == "told":
        return op.match(op.match(stream, PAIRS), FOLLOWING)
    if name == "join":
        left, right = (stream.where(stream["kind"].isin(kinds)) for kinds in SIDES)
        return op.join(left, right, **JOIN, disorder=op.KSlack(SLACK))
    sources = SOURCES if name in PATIENT else None
    recovery = "replay" if name in REPLAYED else None
    return op.match(stream, QUERIES[name], sources=sources, recovery=recovery)


def make_stream(name: str, size: int, seed: int, piece: int) -> Stream:
    """Return the stream of a query; its last events let all deadlines pass, and make all certain.

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
    if name in QUERIES and name not in (*DISORDER, *CHANGING, *PATIENT):
        return Stream(table, op.match(table, QUERIES[name]))
    most = 10 * SLACK if name in ("corrected", "latest") else SLACK
    arrivals = times + rng.integers(0, most + 1, size + 1)
    table = table.append_column("seq", pa.array(np.arange(size + 1)))
    table = table.append_column("at", pa.array(arrivals))
    arriving = table.take(np.argsort(arrivals, kind="stable"))
    if name in TAKEN_BACK:
        # What a batch decides by its last time is certain once K has passed in a later one.
        after = arriving.take(np.full(piece, size))
        later = END + 10 * SLACK * np.arange(1, piece + 1)
        arriving = pa.concat_tables([arriving, after.set_column(1, "ts", pa.array(later))])
        found = op.match(table, GROUPS.get(name) or QUERIES[name])
        expected = _together(found) if isinstance(found, dict) else found
        # Ids are made of the numbers of events, which are those of their arrival.
        return Stream(arriving, expected.drop_columns([MATCH, DIFF]), (MATCH,))
    if name == "group":
        return Stream(arriving, _together(op.match(table, GROUPS[name])))
    if name == "told":
        return Stream(arriving, op.match(op.match(table, PAIRS), FOLLOWING))
    if name == "join":
        sides = (table.filter(pc.field("kind").isin(kinds)) for kinds in SIDES)
        joined = op.join(*sides, **JOIN)
        return Stream(arriving, joined.filter(pc.field("ts") < END))
    if name in PATIENT:
        # No two events arrive at one time, in whichever pieces they do.
        owners = rng.integers(0, len(SOURCES), size + 1)
        middle = slice(size // 3, size // 2)
        owners[middle] = rng.integers(0, len(SOURCES) - 1, len(owners[middle]))
        table = table.set_column(
            table.schema.get_field_index("at"),
            "at",
            pa.array(1000 * arrivals + np.arange(size + 1)),
        )
        table = table.append_column("source", pa.array(np.array(SOURCES)[owners]))
        arriving = table.take(np.argsort(table["at"].to_numpy()))
    stream = op.open(QUERIES[name], sources=SOURCES if name in PATIENT else None)
    found = [stream.push(arriving.slice(low, piece)) for low in range(0, size + 1, piece)]
    return Stream(arriving, pa.concat_tables(found))


def _together(found: dict[str, pa.Table]) -> pa.Table:
    """Return what queries find as the stream on Spark has it."""
    columns = joined_schema({name: table.schema for name, table in found.items()})
    return joined_rows(found, columns)
