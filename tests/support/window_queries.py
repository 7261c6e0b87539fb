"""Queries over windows of every kind, and tables for them, to test how they are divided."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from outpace.pattern.query import Query
from outpace.pattern.windows import (
    CountWindows,
    OpenWindow,
    TimeWindows,
    WindowPredicate,
    WindowSpec,
)
from outpace.windows import between, landmark, session


def pattern(text: str) -> Query:
    """A query whose variables are kinds of events."""
    query = Query("q").order_by("ts").pattern(text)
    query = query.define({name: f"kind = '{name.lower()}'" for name in "ABC" if name in text})
    return query.measures(first="FIRST(id)", last="LAST(id)", n="COUNT(*)")


PATTERNS = {
    "next": pattern("A -> B+ -> C"),
    "strict": pattern("A B*").skip_to_next_row(),
    "numbered matches": pattern("A B*").measures(m="MATCH_NUMBER()"),
    "numbered pairs": pattern("A -> B").measures(m="MATCH_NUMBER()"),
    "looks around": pattern("A B?").measures(before="PREV(A.id)", after="NEXT(LAST(id))"),
    "within": pattern("A -> C").within(4).no_skip(),
    "any": pattern("A ->> C"),
    "rows": pattern("A -> B").measures(c="CLASSIFIER()").all_rows_per_match(),
}


class Bounded(WindowPredicate):
    """An `a` opens a window where less than three are open; five events or a `d` close it."""

    def opens(self, event: Mapping[str, object], windows: tuple[OpenWindow, ...]) -> bool:
        return event["kind"] == "a" and len(windows) < 3

    def closes(self, event: Mapping[str, object], window: OpenWindow) -> bool:
        return event["kind"] == "d" or window.events >= 5

    def clone(self) -> Bounded:
        return Bounded()


KINDS: dict[str, WindowSpec] = {
    "count": CountWindows(7, 3),
    "count, offset": CountWindows(6, 4, -3),
    "count, gaps": CountWindows(3, 5),
    "time": TimeWindows(8, 3, 1),
    "time, tumbling": TimeWindows(5, 5),
    "time, gaps": TimeWindows(3, 5),
    "session": session(3),
    "between": between(open="kind = 'a'", close="kind = 'd'"),
    "predicate": between(predicate=Bounded()),
    "landmark": landmark("kind = 'd'"),
}


#: Queries whose windows have a drift, of each kind that may have one.
DRIFTS: dict[str, Query] = {
    kind: pattern(text).limit(1).over(KINDS[kind], drift=drift)
    for kind, text, drift in (
        ("count", "A -> B", 2),
        ("count, offset", "D+", 5),
        ("time", "A -> B+", 3),
        ("time, tumbling", "D+", 4),
        ("time, gaps", "A ->> C", 1),
        ("session", "D* B", 2),
    )
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    size = draw(st.integers(0, 40))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    return pa.table(
        {
            "ts": pa.array(np.sort(rng.integers(0, 30, size)), pa.int64()),
            "id": pa.array(np.arange(size)),
            "kind": pa.array(rng.choice(list("abcd"), size), pa.string()),
            "key": pa.array(rng.integers(0, 3, size), pa.int64()),
        }
    )


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))
