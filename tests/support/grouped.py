"""Groups of queries for tests, and events out of order that come in pieces."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

import pyarrow as pa
from support.disorders import KINDS

import outpace as op

SCHEMA = pa.schema([("ts", pa.int64()), ("key", pa.string()), ("v", pa.int64())])

PATTERNS = [
    ("A B+", {"B": "v > A.v"}),
    ("A -> !B", {"A": "v > 3", "B": "v < 3"}),
    ("A ->> B", {"A": "v = 2", "B": "v > A.v"}),
    ("A -> B", {"A": "v > 6", "B": "v < 2"}),
    ("A B*", {"A": "v > 2", "B": "v < PREV(v)"}),
    ("A -> B", {"A": "ts % 3 > 0", "B": "v < 5 AND ts > 7"}),
]


def drawn_query(random: Random, name: str) -> op.Query:
    """A query of any kind, with any disorder."""
    pattern, conditions = random.choice(PATTERNS)
    query = op.Query(name).order_by("ts").pattern(pattern).define(**conditions)
    measures = {"times": "ARRAY_AGG(ts)", "number": "MATCH_NUMBER()", "id": "MATCH_ID()"}
    if random.random() < 0.5:
        del measures["id"]
    query = query.measures(measures)
    if random.random() < 0.7 or pattern in ("A -> !B", "A ->> B"):
        query = query.within(random.randint(1, 9))
    if random.random() < 0.5:
        query = query.partition_by("key")
    if random.random() < 0.3:
        query = query.skip_to_next_row()
    if random.random() < 0.3:
        windows = [op.windows.time(10, slide=5), op.windows.count(6, slide=3)]
        query = query.over(random.choice(windows), numbered=random.random() < 0.5)
    settings: dict[str, object] = {"late": random.choice(["drop", "side", "pass"])}
    if random.random() < 0.2:
        settings |= {"ahead": 20, "invalid": "quarantine"}
    if random.random() < 0.1:
        settings |= {"late": "correct", "horizon": 9}
    kinds = {name: make for name, make in KINDS.items() if name != "numbers"}
    kinds["slack"] = kinds["other slack"] = partial(op.KSlack, random.randint(0, 5))
    kinds["early"] = partial(op.Speculative, random.randint(0, 5), alpha=random.random())
    if settings["late"] not in ("drop", "side"):
        del kinds["early"]
    return query.disorder(kinds[random.choice(list(kinds))](**settings))


def drawn_alike(random: Random, query: op.Query, name: str) -> op.Query:
    """A query as another one, but for conditions on single rows, and maybe for WITHIN."""
    low, high = random.randrange(8), random.randrange(8)
    other = replace(query, name=name).define(A=f"v > {low}", B=f"v < {high}")
    if query.bound is None or random.random() < 0.5:
        return other
    return other.within(random.randint(1, 9), query.bound.kind)


def drawn_pieces(random: Random) -> list[pa.Table]:
    """Events, of which some come late, in pieces."""
    time, events = 0, []
    for _ in range(random.randint(2, 20)):
        time += random.choice([0, 1, 1, 3])
        events.append({"ts": time, "key": random.choice("uvw"), "v": random.randrange(8)})
    events.sort(key=lambda one: one["ts"] + random.randint(0, 8))
    pieces = []
    while events:
        size = random.randint(1, 9)
        pieces.append(pa.Table.from_pylist(events[:size], SCHEMA))
        events = events[size:]
    return pieces
