"""Every message that travels comes back from its bytes with every field that it has."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.arrays import NO_TIME
from outpace.engine.event import EVENT_ID, SEQUENCE_BITS, Events
from outpace.engine.match.identity import MatchIds
from outpace.engine.message import (
    Answer,
    ClockExchange,
    Deliver,
    EventsArrived,
    SourceEnded,
    Stimulus,
    TimerFired,
    WatermarkArrived,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.split.windows import Split, Windows
from outpace.engine.window_match.result import WindowMatches
from outpace.engine.wire import (
    pack_events,
    read_answer,
    read_delivery,
    read_stimulus,
    write_answer,
    write_delivery,
    write_stimulus,
)
from outpace.errors import StateError
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.disorder import KSlack
from outpace.pattern.query import Query
from outpace.pattern.windows import CountWindows

SCHEMA = pa.schema([("ts", pa.int64()), ("key", pa.string()), ("x", pa.int64())])
QUERY = (
    Query()
    .order_by("ts")
    .pattern("A B")
    .measures(x="B.x", key="A.key")
    .within(10**6)
    .over(CountWindows(4, 2))
    .disorder(KSlack(5))
)
SPEC = OperatorSpec(QUERY, SCHEMA, disorder=bind_disorder(QUERY, SCHEMA), instances=2)

any_integer = st.integers(-(2**63), 2**63 - 1)
naturals = st.integers(0, 2**62)
#: Those that need one byte, several, or all.
ranges_of_integers = st.sampled_from([(0, 0), (-3, 9), (0, 70_000), (-(2**63), 2**63 - 1)])


def same(one: Any, other: Any) -> None:
    """Hold two values to be the same, field by field."""
    if isinstance(one, Deliver):
        one, other = (replace(it, events=it.own_events, ranges=None) for it in (one, other))
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()
    elif isinstance(one, pa.Table):
        assert one.equals(other, check_metadata=True)
    elif isinstance(one, Windows):
        assert [it.tolist() for it in one.columns] == [it.tolist() for it in other.columns]
    elif isinstance(one, WindowMatches):
        same(one.ids, other.ids)
        for field in fields(WindowMatches):
            if field.name != "identify":
                same(getattr(one, field.name), getattr(other, field.name))
    elif is_dataclass(one):
        assert type(one) is type(other)
        for field in fields(one):
            if field.compare:
                same(getattr(one, field.name), getattr(other, field.name))
    else:
        assert type(one) is type(other)
        assert one == other


@st.composite
def integers(draw: st.DrawFn, size: int) -> np.ndarray:
    low, high = draw(ranges_of_integers)
    values = st.lists(st.integers(low, high), min_size=size, max_size=size)
    return np.array(draw(values), np.int64)


@st.composite
def tables(draw: st.DrawFn, size: int) -> pa.Table:
    texts = draw(st.lists(st.text(max_size=3) | st.none(), min_size=size, max_size=size))
    columns = [draw(integers(size)), texts, draw(integers(size))]
    return pa.table(
        [pa.array(it, kind) for it, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA
    )


@st.composite
def windows(draw: st.DrawFn) -> Windows:
    size = draw(st.integers(0, 4))
    return Windows(*(draw(integers(size)) for _ in fields(Windows)))


@st.composite
def deliveries(draw: st.DrawFn) -> Deliver:
    size = draw(st.integers(0, 6))
    arrival = np.cumsum(draw(st.lists(st.integers(1, 3), min_size=size, max_size=size)) or [0])
    arrival = (arrival + draw(st.integers(0, 2**40))).astype(np.int64)[:size]
    times = np.sort(np.abs(draw(integers(size))) >> 2)
    rows = draw(tables(size)).set_column(0, SCHEMA.field(0), pa.array(times))
    sources = np.array(draw(st.lists(st.integers(0, 9), min_size=size, max_size=size)), np.int64)
    rows = rows.append_column(EVENT_ID, pa.array((sources << SEQUENCE_BITS) + arrival))
    keyed = draw(st.booleans())
    partition = np.arange(size) % 3 if keyed else np.zeros(size, np.int64)
    ordinal = np.abs(draw(integers(size))) if keyed else arrival
    ranges = None
    if draw(st.booleans()):
        wanted = np.array([False, *(draw(st.booleans()) for _ in range(size)), False])
        ranges = np.flatnonzero(np.diff(wanted.astype(int))).reshape(-1, 2)
    return Deliver(
        draw(st.integers(0, 99)),
        Events(rows.select(SPEC.kept.names), partition, ordinal, arrival, times),
        ranges,
        Split(draw(windows()), draw(windows())),
        draw(naturals),
        draw(any_integer),
        draw(st.booleans()),
    )


@given(deliveries())
def test_a_delivery_comes_back(delivery: Deliver) -> None:
    same(read_delivery(pa.py_buffer(write_delivery(delivery, SPEC)), SPEC), delivery)


@given(deliveries())
def test_a_delivery_comes_back_whose_events_lie_apart(delivery: Deliver) -> None:
    block = pack_events(delivery.events, SPEC.kept.names) if delivery.size else None
    data = pa.py_buffer(write_delivery(delivery, SPEC, apart=True))
    same(read_delivery(data, SPEC, block), delivery)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    size = draw(st.integers(0, 4))
    sizes = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    rows = draw(tables(sum(sizes))).select(["x", "key"])
    words = draw(st.lists(st.integers(0, 2**64 - 1), min_size=2 * size, max_size=2 * size))
    ids = MatchIds(draw(integers(size)), np.array(words, np.uint64).reshape(-1, 2))
    matches = WindowMatches(
        rows,
        np.cumsum([0, *sizes]).astype(np.int64),
        *(draw(integers(size)) for _ in range(4)),
        lambda: ids,
        turn=draw(integers(size)) if size else None,
    )
    timed_out = pa.table({}) if draw(st.booleans()) else draw(tables(2))
    promises = [draw(any_integer) for _ in range(3)], [draw(naturals) for _ in range(2)]
    return Answer(matches, timed_out, *promises[0], *promises[1], draw(integers(2)))


@given(answers())
def test_an_answer_comes_back(answer: Answer) -> None:
    same(read_answer(pa.py_buffer(write_answer(answer)), SPEC.bound.output), answer)


@st.composite
def stimuli(draw: st.DrawFn) -> Stimulus:
    source = draw(st.none() | st.text(max_size=3))
    times = st.just(NO_TIME) | any_integer
    spans = None if draw(st.booleans()) else draw(integers(4)).reshape(-1, 2)
    weighed = spans is not None and draw(st.booleans())
    weights = draw(integers(len(spans))).astype(np.float64) if weighed else None
    given = st.just(source), st.just(spans), times, times, st.none(), st.just(weights)
    return draw(
        st.builds(EventsArrived, tables(3), *given)
        | st.builds(WatermarkArrived, any_integer, st.just(source), times)
        | st.builds(ClockExchange, st.just(source or ""), *[any_integer] * 4)
        | st.builds(TimerFired, any_integer)
        | st.builds(SourceEnded, st.just(source))
    )


@given(stimuli())
def test_a_stimulus_comes_back(stimulus: Stimulus) -> None:
    same(read_stimulus(pa.py_buffer(write_stimulus(stimulus))), stimulus)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0"])
def test_a_message_of_another_length_is_refused(change: Any) -> None:
    matches = WindowMatches.none(SPEC.bound.output)
    data = write_answer(Answer(matches, pa.table({}), 0, 0, idle=np.arange(3)))
    with pytest.raises(StateError):
        read_answer(pa.py_buffer(change(data)), SPEC.bound.output)
