"""Sources that are each out of order: one order of all, however they are cut and mixed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.engine.message import EventsArrived
from outpace.engine.order.choose import make_order
from outpace.engine.order.contract import Order
from outpace.engine.order.reordered_sources import ReorderedSources
from outpace.engine.state import State
from outpace.errors import StateError
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.bind.query import bind

SLACK = 3
SOURCES = ("east", "north", "west")
SCHEMA = pa.schema([("ts", pa.int64()), ("rank", pa.int64()), ("seq", pa.int64())])
QUERY = op.Query("q").order_by("ts").pattern("A")


def order_of(query: op.Query = QUERY, sources: tuple[str, ...] = SOURCES) -> Order:
    query = query.disorder(query.order_of_arrival or op.KSlack(SLACK))
    return make_order(bind(query, SCHEMA), bind_disorder(query, SCHEMA), SCHEMA, sources)


def rows(*events: tuple[int, int, int]) -> pa.Table:
    names = SCHEMA.names
    return pa.Table.from_pylist([dict(zip(names, one, strict=True)) for one in events], SCHEMA)


def keys(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[str, list[tuple[int, int, int]]]]:
    """Draw what sources send, each never more than the slack behind, in pieces that are mixed."""
    greatest = dict.fromkeys(SOURCES, 0)
    pieces = []
    for source in draw(st.lists(st.sampled_from(SOURCES), max_size=12)):
        events = []
        for behind, ahead in draw(
            st.lists(st.tuples(st.integers(0, SLACK), st.integers(0, 3)), max_size=4)
        ):
            time = max(greatest[source] - behind + ahead, 0)
            greatest[source] = max(greatest[source], time)
            # Numbers that nothing binds to time: a source counts as it sends, or starts anew.
            events.append((time, draw(st.integers(0, 1)), draw(st.integers(0, 2))))
        pieces.append((source, events))
    return pieces


@pytest.mark.parametrize("columns", [("ts",), ("ts", "rank")])
@examples(60)
@given(pieces=streams(), saved=st.booleans())
def test_events_come_in_the_order_of_all_sources(columns, pieces, saved):
    query = QUERY.order_by(*columns)
    order = order_of(query)
    ordered = [SCHEMA.names.index(name) for name in (*columns, "seq")]
    sent = {
        source: [one for who, part in pieces if who == source for one in part] for source in SOURCES
    }
    expected = sorted(
        (one for source in SOURCES for one in sent[source]),
        key=lambda one: [one[place] for place in ordered],
    )
    found = []
    greatest: dict[str, int] = {}
    for source, events in pieces:
        released = order.push(EventsArrived(rows(*events), source))
        assert released.late is None
        found += keys(released.rows)
        times = [time for time, *_ in events]
        if times:
            greatest[source] = max(greatest.get(source, 0), *times)
        if len(greatest) == len(SOURCES):
            assert released.watermark == order.watermark == min(greatest.values()) - SLACK
            # What has its turn is all that can have: no more, and no less.
            assert found == [one for one in expected if one[0] < order.watermark]
        else:
            assert not found
        if saved:
            state = State.decode(order.state().encode())
            order = order_of(query)
            order.restore(state)
    found += keys(order.finish().rows)
    assert found == expected
    assert not order.buffered


def test_numbers_need_not_rise_with_time():
    order = order_of(sources=("a", "b"))
    order.push(EventsArrived(rows((5, 0, 0), (3, 0, 1)), "a"))
    order.push(EventsArrived(rows((20, 0, 2)), "a"))
    assert keys(order.push(EventsArrived(rows((20, 0, 0)), "b")).rows) == [(3, 0, 1), (5, 0, 0)]


def test_late_events_that_pass_take_part_whatever_their_number():
    order = order_of(QUERY.disorder(op.KSlack(1, late="pass")), sources=("a", "b"))
    order.push(EventsArrived(rows((5, 0, 1), (20, 0, 3)), "a"))
    order.push(EventsArrived(rows((4, 0, 0), (30, 0, 4)), "a"))
    released = order.push(EventsArrived(rows((25, 0, 0)), "b"))
    assert keys(released.rows) == [(5, 0, 1), (19, 0, 0), (20, 0, 3)]


def test_a_source_that_has_ended_holds_nobody_back():
    order = order_of(sources=("a", "b"))
    order.push(EventsArrived(rows((9, 0, 0)), "a"))
    assert not order.finish("b").rows.num_rows
    assert keys(order.push(EventsArrived(rows((13, 0, 1)), "a")).rows) == [(9, 0, 0)]
    released = order.finish("a")
    assert (keys(released.rows), released.watermark) == ([(13, 0, 1)], 13)


@pytest.mark.parametrize("ends", [False, True])
def test_what_a_timer_or_the_end_finds_late_or_invalid_is_told(ends):
    query = QUERY.disorder(op.Sequence("1 s", late="side", invalid="quarantine"))
    order = order_of(query, sources=("a", "b"))
    held = pa.Table.from_pylist([{"ts": 3, "seq": 2}, {"ts": None, "seq": 3}], SCHEMA)
    for source in ("a", "b"):
        order.push(EventsArrived(rows((9, 0, 0)), source, arrival=0))
        order.push(EventsArrived(held, source, arrival=0))
    released = order.finish() if ends else order.fire(1_000_000)
    assert released.late is not None
    assert released.late["ts"].to_pylist() == [3, 3]
    assert released.invalid is not None
    assert released.invalid["seq"].to_pylist() == [3, 3]


def test_a_source_that_is_not_there_is_refused():
    order = order_of()
    for act in (lambda: order.push(EventsArrived(rows(), "wset")), lambda: order.tell(3, "wset")):
        with pytest.raises(op.DataError, match="there is no source 'wset'") as error:
            act()
        assert "west" in (error.value.hint or "")


def test_a_source_that_is_no_text_is_refused():
    query = QUERY.disorder(op.KSlack(1))
    stream = op.open(query, sources=["a", "b"])
    with pytest.raises(op.DataError, match="there is no source '3'"):
        stream.push({"ts": [1], "seq": [1], "source": [3]})


def test_a_state_belongs_to_its_sources():
    order = order_of()
    assert isinstance(order, ReorderedSources)
    with pytest.raises(StateError, match="belongs to other sources"):
        order.restore(order_of(sources=("a", "b", "c")).state())
