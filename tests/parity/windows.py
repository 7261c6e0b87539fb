"""Cases of windows: every kind, keyed or not, each match once or for every window, numbered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Final

import pyarrow as pa
from parity.case import Case, events, fed, kinds, named, timed
from parity.operators import Pairs

import outpace as op
from outpace import schedulers, windows
from outpace.testing.simulation.queries import Total

EVENTS: Final = events(46, 31)


class Bounded(windows.Predicate):
    """An `a` opens a window where less than three are open; five events or a `d` close it."""

    def opens(
        self, event: Mapping[str, object], open_windows: tuple[windows.OpenWindow, ...]
    ) -> bool:
        return event["kind"] == "a" and len(open_windows) < 3

    def closes(self, event: Mapping[str, object], window: windows.OpenWindow) -> bool:
        return event["kind"] == "d" or window.events >= 5

    def clone(self) -> Bounded:
        return Bounded()

    def state(self) -> bytes:
        return b""

    def restore(self, data: bytes) -> None:
        assert data == b""


KINDS: Final = {
    "count": windows.count(9, slide=4),
    "count, tumbling": windows.count(8),
    "count, offset": windows.count(6, slide=4, offset=-3),
    "count, gaps": windows.count(3, slide=5),
    "time": windows.time(9, slide=4, offset=1),
    "time, tumbling": windows.time(7),
    "time, gaps": windows.time(4, slide=6),
    "session": windows.session(2),
    "between": windows.between(open="kind = 'a'", close="kind = 'd'"),
    "predicate": windows.between(predicate=Bounded()),
    "landmark": windows.landmark("kind = 'd' AND v < 12"),
    "one landmark": windows.landmark(),
}


def _counted(pattern: str, **definitions: str) -> op.Query:
    return kinds(pattern, **definitions).measures(first="FIRST(id)", last="LAST(id)", n="COUNT(*)")


PATTERNS: Final = {
    "next": _counted("A -> B+ -> C"),
    "strict": _counted("A (B | C)*").skip_to_next_row().measures(m="MATCH_NUMBER()"),
    "falls": _counted("S D+", D="v < PREV(v)").measures(after="NEXT(LAST(id))"),
    "any": _counted("A ->> C"),
}
MORE: Final = {
    "absence": _counted("A -> !B").within(4).no_skip(),
    "a path": _counted("A -> B -> C", C="kind = 'c' AND v > A.v").no_skip(),
    "anchors": _counted("^ (A | B)+ -> D $"),
    "empty matches": _counted("B*"),
    "limited": _counted("A ->> B").limit(1, per="start").limit(2),
    "rows": _counted("A -> B").measures(c="CLASSIFIER()").all_rows_per_match(),
}
OPERATORS: Final = {
    "operator by event": op.Query("q").order_by("ts").apply(Pairs),
    "operator by table": op.Query("q").order_by("ts").apply(Total),
}
#: Some of each sort: those whose windows overlap, and close by order, by time and by content.
SOME: Final = ("count", "time", "session", "between")

#: By key or not, and whether windows that share a match all give it.
ALL: Final = ((False, False), (False, True), (True, False), (True, True))


def _cases() -> Iterator[Case]:
    for kind, each in KINDS.items():
        for name, query in PATTERNS.items():
            for keyed, duplicates in ALL if name == "next" else ALL[1:3]:
                yield _case(kind, name, query, keyed, each, duplicates, numbered=True)
        for (name, query), keyed in zip(OPERATORS.items(), (True, False), strict=True):
            yield _case(kind, name, query, keyed, each, False, numbered=True)
    for kind in SOME:
        for (name, query), keyed in zip(MORE.items(), cycle((True, False)), strict=False):
            yield _case(kind, name, query, keyed, KINDS[kind], keyed, numbered=not keyed)
    for name, query in OPERATORS.items():
        for keyed in (False, True):
            asked = query.partition_by("key") if keyed else query
            label = f"no windows, {name}{', by key' if keyed else ''}"
            yield Case(label, asked, EVENTS, fed(EVENTS))
    stamped = timed(EVENTS)
    for label, each in {
        "10 s": windows.time("10 s", slide="4 s"),
        "gap": windows.session("2 s"),
    }.items():
        asked = PATTERNS["next"].over(each, numbered=True)
        yield Case(f"timestamps, {label}", asked, stamped, fed(stamped))
    parallel = PATTERNS["next"].over(KINDS["time"], numbered=True)
    yield Case("instances", parallel.instances(1), EVENTS, instances=(2,))
    spread = PATTERNS["strict"].partition_by("key").over(KINDS["count"], duplicates=True)
    spread = spread.instances(1, schedulers.RoundRobin())
    yield Case("instances in turns", spread, EVENTS, instances=(3,))


def _case(
    kind: str,
    name: str,
    query: op.Query,
    keyed: bool,
    over: pa.Table,
    duplicates: bool,
    *,
    numbered: bool,
) -> Case:
    query = query.over(over, duplicates=duplicates, numbered=numbered)
    query = query.partition_by("key") if keyed else query
    said = f"{', by key' if keyed else ''}{', duplicates' if duplicates else ''}"
    return Case(f"{kind}, {name}{said}", query, EVENTS, fed(EVENTS))


CASES: Final = named(_cases())
