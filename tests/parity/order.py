"""Cases of order: events out of order, late or invalid, of sources, and of another stream."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, product
from typing import Final

import pyarrow as pa
from parity.case import (
    Advance,
    Case,
    Finish,
    Push,
    Step,
    by_source,
    delayed,
    events,
    fed,
    in_turns,
    kinds,
    merged,
    named,
    timed,
    traced,
)
from parity.operators import Pairs

import outpace as op

EVENTS: Final = events(50, 41)
#: Up to six units late.
LATE: Final = delayed(EVENTS, 45, 6)
SOURCES: Final = ("east", "north", "west")
PARTS: Final = by_source(EVENTS, SOURCES, 46)

QUERIES: Final = {
    "strict": traced("A B+ C?").within(9),
    "next": traced("A -> B -> C").within(12),
    "absence": traced("A -> !B").within(4).no_skip(),
    "any": traced("A ->> B").within(5),
    "time windows": traced("A -> B").over(op.windows.time(8, slide=3), numbered=True),
    "sessions": traced("A ->> B").over(op.windows.session(2), numbered=True),
    "count windows": traced("A -> B").over(op.windows.count(6, slide=2), duplicates=True),
    "content windows": traced("A -> B").over(
        op.windows.between(open="kind = 'a'", close="kind = 'd'"), numbered=True
    ),
    "operator": op.Query("q").order_by("ts").apply(Pairs).over(op.windows.time(7), numbered=True),
}
DISORDER: Final = {
    "enough slack": op.KSlack(6),
    "little slack, dropped": op.KSlack(2, late="drop"),
    "little slack, passed": op.KSlack(2, late="pass"),
    "little slack, aside": op.KSlack(2, late="side"),
    "in order, aside": op.InOrder(late="side"),
    "in order, passed": op.InOrder(late="pass"),
}


def _pushed(table: pa.Table, sizes: tuple[int, ...] = (9, 1, 14, 0, 6)) -> tuple[Step, ...]:
    """Return the pushes of a table alone."""
    return tuple(step for step in fed(table, sizes) if not isinstance(step, Advance))


def _told(table: pa.Table, slack: int) -> Iterator[Step]:
    """Yield pushes, each followed by the time that has come."""
    greatest = 0
    for step in _pushed(table):
        yield step
        if isinstance(step, Push):
            greatest = max([greatest, *step.rows["ts"].to_pylist()])
            yield Advance(greatest - slack)


def _disorder() -> Iterator[Case]:
    asked = product(QUERIES.items(), DISORDER.items())
    for ((name, query), (label, disorder)), keyed in zip(
        asked, cycle((False, True, True, False)), strict=False
    ):
        by_key = query.partition_by("key") if keyed else query
        said = f"{name}, {label}{', by key' if keyed else ''}"
        yield Case(said, by_key.disorder(disorder), EVENTS, _pushed(LATE))
    for name in ("next", "absence", "time windows"):
        query = QUERIES[name].disorder(op.Punctuation(late="side"))
        for slack in (6, 2):
            yield Case(
                f"{name}, time told {slack} behind", query, EVENTS, tuple(_told(LATE, slack))
            )
    several = QUERIES["next"].order_by("ts", "id").disorder(op.KSlack(6))
    yield Case("ordered by time and number", several, EVENTS, _pushed(LATE))
    stamped = timed(LATE)
    seconds = traced("A -> B").within("9 s").disorder(op.KSlack("3 s", late="side"))
    yield Case("timestamps", seconds, timed(EVENTS), _pushed(stamped))


def _invalid() -> Iterator[Case]:
    times = LATE["ts"].to_pylist()
    times[9], times[20], times[33] = None, 5000, None
    wrong = LATE.set_column(0, "ts", pa.array(times, pa.int64()))
    for late in ("drop", "side"):
        disorder = op.KSlack(3, late=late, invalid="quarantine", ahead=100)
        for name in ("next", "time windows"):
            query = QUERIES[name].disorder(disorder)
            yield Case(f"{name}, invalid aside, late {late}", query, None, _pushed(wrong))


def _sources() -> Iterator[Case]:
    for (name, query), keyed in zip(QUERIES.items(), cycle((False, True)), strict=False):
        asked = query.partition_by("key") if keyed else query
        said = f"sources, {name}{', by key' if keyed else ''}"
        yield Case(said, asked, merged(PARTS), in_turns(PARTS), SOURCES)
    one = {"east": PARTS["east"]}
    yield Case("one source", QUERIES["next"], merged(one), in_turns(one), ("east",))
    stamped = {source: timed(part) for source, part in PARTS.items()}
    seconds = traced("A -> !B").within("4 s").no_skip()
    yield Case("sources, timestamps", seconds, merged(stamped), in_turns(stamped), SOURCES)
    early: tuple[Step, ...] = (
        *(Push(part, source) for source, part in PARTS.items()),
        *(Finish(source) for source in SOURCES),
        Finish(),
    )
    yield Case("sources, one after the other", QUERIES["next"], merged(PARTS), early, SOURCES)


def _chained() -> Iterator[Case]:
    first = kinds("A -> B").within(9).measures(at="LAST(ts)", since="A.ts", n="MATCH_NUMBER()")
    falls = op.Query("then").order_by("at").pattern("P -> !Q").within(6).no_skip()
    falls = falls.define(Q="n % 2 = 0").measures(p="P.at", since="P.since")
    pairs = op.Query("then").order_by("at").pattern("P Q").measures(p="P.at", q="Q.at")
    yield Case("matches of matches", first, EVENTS, fed(EVENTS), then=pairs)
    yield Case("absence of matches", first, EVENTS, fed(EVENTS), then=falls)
    keyed = first.partition_by("key")
    yield Case("absence by key", keyed, EVENTS, fed(EVENTS), then=falls.partition_by("key"))
    over = pairs.over(op.windows.time(10, slide=5), numbered=True)
    yield Case("matches in windows", first, EVENTS, fed(EVENTS), then=over)
    slack = first.disorder(op.KSlack(6))
    yield Case("matches out of order", slack, EVENTS, _pushed(LATE), then=pairs)
    yield Case("matches of sources", first, merged(PARTS), in_turns(PARTS), SOURCES, then=falls)


CASES: Final = named((*_disorder(), *_invalid(), *_sources(), *_chained()))
