"""Events that no step can use do not wait with LDOP, and nobody can tell from the matches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.engine.operator_spec import OperatorSpec

SCHEMA = pa.schema(
    [("ts", pa.int64()), ("at", pa.int64()), ("key", pa.string()), ("type", pa.string())]
)

PLAIN = (
    op.Query("q")
    .order_by("ts")
    .define(A="type = 'a'", B="type = 'b' AND ts > A.ts")
    .disorder(op.LDOP(window=20, arrival="at"))
)

#: Queries that match the same without events of other types.
LOOSE = {
    "skip to next": PLAIN.pattern("A -> B").measures(a="A.ts", b="B.ts"),
    "all": PLAIN.pattern("A ->> B").within(12).measures(a="A.ts", b="B.ts"),
    "by key": PLAIN.partition_by("key").pattern("A -> B+ -> A").within(30).measures(n="COUNT(*)"),
    "absence": PLAIN.pattern("A -> !B").within(9).measures(a="A.ts"),
    "windows of time": PLAIN.pattern("A -> B").over(op.windows.time(10)).measures(a="A.ts"),
    "passed": PLAIN.pattern("A -> B")
    .disorder(op.LDOP(window=20, low=0.2, high=0.3, late="pass"))
    .measures(a="A.ts", b="B.ts"),
    "set aside": PLAIN.pattern("A -> B")
    .disorder(op.LDOP(window=20, low=0.2, high=0.3, late="side", arrival="at"))
    .measures(a="A.ts", b="B.ts"),
}

#: Queries to which every event counts.
STRICT = {
    "next event": PLAIN.pattern("A B").measures(a="A.ts", b="B.ts"),
    "neighbour": PLAIN.pattern("A -> B").measures(a="A.ts", before="PREV(B.type)"),
    "any event": PLAIN.pattern("A -> X -> B").measures(a="A.ts", x="X.ts"),
    "windows of events": PLAIN.pattern("A -> B").over(op.windows.count(4)).measures(a="A.ts"),
}

EVENTS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([0, 0, 0, 1, 3, 9]), st.sampled_from("aabbxxx")),
    max_size=40,
)


@contextmanager
def unfiltered() -> Iterator[None]:
    """Let every event wait."""
    with mock.patch.object(op.LDOP, "filters", False):
        yield


def stream_of(drawn: list[tuple[int, int, str]]) -> pa.Table:
    """Return events in the order of arrival."""
    time, events = 0, []
    for number, (step, delay, kind) in enumerate(drawn):
        time += step
        events.append({"ts": time, "at": time + delay, "key": "kl"[number % 2], "type": kind})
    return pa.Table.from_pylist(sorted(events, key=lambda event: int(event["at"])), SCHEMA)


def matched(
    query: op.Query, stream: pa.Table, size: int, *, resumed: bool = False
) -> tuple[list[object], list[int]]:
    """Return what each piece gives and what was late, and how many events waited after each."""
    matcher = op.open(query, schema=stream.schema)
    given, waiting = [], []
    for begin in range(0, stream.num_rows, size):
        found = matcher.push(stream.slice(begin, size)).to_pylist()
        given.append((found, matcher.order.late, matcher.order.slack))
        waiting.append(matcher.order.buffered)
        if resumed:
            matcher = op.resume(query, matcher.state())
    given.append((matcher.finish().to_pylist(), 0, 0))
    return given, waiting


@pytest.mark.parametrize("name", [*LOOSE, *STRICT])
@examples(12)
@given(EVENTS, st.integers(1, 7), st.booleans())
def test_matches_are_those_of_an_order_that_keeps_all(name, drawn, size, resumed):
    query, stream = {**LOOSE, **STRICT}[name], stream_of(drawn)
    with unfiltered():
        expected, waited = matched(query, stream, size, resumed=resumed)
    found, waiting = matched(query, stream, size, resumed=resumed)
    assert found == expected
    assert all(fewer <= all_of for fewer, all_of in zip(waiting, waited, strict=True))
    if name in STRICT:
        assert waiting == waited


@pytest.mark.parametrize("name", [*LOOSE, *STRICT])
def test_only_what_a_step_can_use_waits(name):
    query = {**LOOSE, **STRICT}[name].disorder(op.LDOP(window=20, at_least=100))
    kinds = "axxxbxxxax"
    events = {"ts": list(range(10)), "at": list(range(10)), "key": ["k"] * 10, "type": list(kinds)}
    matcher = op.open(query, schema=SCHEMA)
    matcher.push(pa.table(events, schema=SCHEMA))
    assert matcher.order.buffered == (10 if name in STRICT else 3)


def test_time_goes_on_with_events_that_do_not_wait():
    query = LOOSE["absence"].disorder(op.LDOP(window=20))
    matcher = op.open(query, schema=SCHEMA)

    def push(*events: tuple[int, str]) -> list[int]:
        rows = [{"ts": time, "at": time, "key": "k", "type": kind} for time, kind in events]
        return [row["a"] for row in matcher.push(pa.Table.from_pylist(rows, SCHEMA)).to_pylist()]

    assert push((1, "a")) == []
    assert push((5, "x")) == []
    assert push((20, "x")) == [1], "nine units have passed, as an event that nobody uses tells"


def test_events_of_several_sources_are_dropped_where_each_has_its_order():
    query = LOOSE["skip to next"].disorder(op.LDOP(window=20, at_least=5))
    found = []
    for keep in (True, False):
        with mock.patch.object(op.LDOP, "filters", not keep):
            matcher = op.open(query, schema=SCHEMA, sources=["s", "t"])
            rows = []
            for time, kind, source in [(1, "a", "s"), (2, "x", "t"), (3, "b", "t"), (9, "x", "s")]:
                event = {"ts": time, "at": time, "key": "k", "type": kind}
                piece = pa.Table.from_pylist([event], SCHEMA)
                rows += matcher.push(piece, source=source).to_pylist()
            rows += matcher.finish().to_pylist()
            found.append(rows)
    assert found[0] == found[1] == [{"a": 1, "b": 3}]


def test_other_reorderers_let_every_event_wait():
    assert op.LDOP.filters
    for kind in (op.KSlack, op.MPKSlack, op.Quantile, op.AQKSlack, op.Sequence, op.Punctuation):
        assert not kind.filters


def test_a_query_whose_steps_take_any_event_drops_none():
    assert OperatorSpec(STRICT["any event"], SCHEMA).useful is None
    useful = OperatorSpec(LOOSE["skip to next"], SCHEMA).useful
    assert useful is not None
    rows = pa.table({"type": ["a", "x", None, "b"], "ts": [1, 2, 3, 4]})
    assert useful.used(rows).tolist() == [True, False, False, True]
