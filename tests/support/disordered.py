"""Queries and events for streams whose late events correct what came out."""

from __future__ import annotations

from random import Random

import pyarrow as pa
from hypothesis import strategies as st

import outpace as op

SCHEMA = pa.schema(
    [("ts", pa.int64()), ("seq", pa.int64()), ("key", pa.string()), ("v", pa.int64())]
)

PATTERNS = st.sampled_from(
    [
        ("A B+", {"B": "v > A.v"}),
        ("A -> !B", {"A": "v > 3", "B": "v < 3"}),
        ("A ->> B", {"B": "v > A.v"}),
        ("A B*", {"A": "v > 2", "B": "v < PREV(v)"}),
        ("A B", {"B": "v > NEXT(v)"}),
    ]
)

WINDOWS = st.sampled_from(
    [None, None, op.windows.time(10, slide=5), op.windows.count(6, slide=3), op.windows.session(3)]
)


@st.composite
def queries(draw: st.DrawFn) -> op.Query:
    pattern, conditions = draw(PATTERNS)
    query = op.Query("q").order_by("ts").pattern(pattern).define(**conditions).within(7)
    query = query.measures(seqs="ARRAY_AGG(seq)", number="MATCH_NUMBER()")
    if draw(st.booleans()):
        query = query.partition_by("key")
    if draw(st.booleans()):
        query = query.skip_to_next_row()
    if draw(st.booleans()):
        query = query.all_rows_per_match()
    windows = draw(WINDOWS)
    return query if windows is None else query.over(windows, numbered=draw(st.booleans()))


def drawn_events(random: Random) -> pa.Table:
    """Some events in order."""
    time, found = 0, []
    for seq in range(random.randint(2, 25)):
        time += random.choice([0, 1, 1, 3])
        found.append(
            {"ts": time, "seq": seq, "key": random.choice("uvw"), "v": random.randrange(8)}
        )
    return pa.Table.from_pylist(found, SCHEMA)
