"""The reorderer against its definition, event by event, and what it refuses."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.operators import written
from support.properties import examples

from outpace.engine.arrays import NO_TIME
from outpace.engine.message import EventsArrived
from outpace.engine.order.choose import make_order
from outpace.engine.order.clock import Clock, fixed, spans_of
from outpace.engine.order.contract import Order, ReleasedEvents
from outpace.errors import BindError, DataError, StateError
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.bind.query import bind
from outpace.pattern.disorder import Disorder, InOrder, KSlack, Late, Punctuation
from outpace.pattern.query import Query
from outpace.pattern.values import TIME_LIMIT

DAY = 86_400_000_000

#: Types of time, and what one step of the column is in units of the query: up, then down.
KINDS = {
    "int64": (pa.int64(), 1, 1),
    "int16": (pa.int16(), 1, 1),
    "us": (pa.timestamp("us"), 1, 1),
    "ms": (pa.timestamp("ms", "UTC"), 1000, 1),
    "s": (pa.timestamp("s"), 1_000_000, 1),
    "ns": (pa.timestamp("ns"), 1, 1000),
    "date": (pa.date32(), DAY, 1),
}

Event = dict[str, Any]


def reorderer(order: tuple[str, ...], schema: pa.Schema, disorder: Disorder) -> Order:
    query = Query().order_by(*order).pattern("A").disorder(disorder)
    return make_order(bind(query, schema), bind_disorder(query, schema), schema)


@dataclass
class Model:
    """The definition: a list of events that wait, looked through for every piece."""

    kind: str
    order: tuple[str, ...]
    in_order: bool
    told_only: bool
    slack: int
    ahead: int | None
    late: Late
    watermark: int = int(NO_TIME)
    clock: int | None = None
    waiting: list[Event] = field(default_factory=list)
    last: Event | None = None

    def time(self, event: Event) -> int:
        _, up, down = KINDS[self.kind]
        return int(event["ts"]) * up // down

    def key(self, event: Event) -> tuple[object, ...]:
        parts: list[object] = []
        ties = [name for name in ("seq", "source") if name in event and name not in self.order]
        for column in (*self.order, *ties):
            name, *direction = column.split()
            value = event[name]
            sign = -1 if direction else 1
            parts += [value is None, 0 if value is None else sign * value]
        return tuple(parts)

    def push(self, events: list[Event], told: int) -> tuple[list[Event], list[int], list[int]]:
        before = self.watermark
        known = [event for event in events if event["ts"] is not None]
        invalid = [event["id"] for event in events if event["ts"] is None]
        limit = self.move(sorted(self.time(event) for event in known), told)
        too_far = [event for event in known if limit is not None and self.time(event) > limit]
        invalid += [event["id"] for event in too_far]
        late = []
        for event in known:
            if event in too_far:
                continue
            if not self.is_late(event, before):
                self.waiting.append(event)
                continue
            late.append(event["id"])
            if self.late is Late.PASS:
                self.waiting.append(self.passed(event, before))
        return self.release(everything=self.in_order), late, sorted(invalid)

    def move(self, times: list[int], told: int) -> int | None:
        """Move the clock and return the greatest time that is not too far ahead."""
        limit: int | None = None
        if not self.told_only:
            for time in times:
                if self.clock is None:
                    self.clock = time
                if self.ahead is not None and time > self.clock + self.ahead:
                    break
                self.clock = max(self.clock, time)
            limit = self.clock if self.ahead is not None else None
            if self.clock is not None:
                self.watermark = max(self.watermark, self.clock - self.slack)
        self.watermark = max(self.watermark, told)
        if self.told_only and self.ahead is not None and self.watermark != NO_TIME:
            limit = self.watermark + self.ahead
        return limit

    def is_late(self, event: Event, before: int) -> bool:
        if self.time(event) < before:
            return True
        return self.in_order and self.last is not None and self.key(event) < self.key(self.last)

    def passed(self, event: Event, before: int) -> Event:
        _, up, down = KINDS[self.kind]
        moved = {**event, "ts": before * down if down > 1 else -(-before // up)}
        if self.in_order and self.last is not None:
            moved["ts"] = max(moved["ts"], self.last["ts"])
        return moved

    def release(self, *, everything: bool) -> list[Event]:
        due = [e for e in self.waiting if everything or self.time(e) < self.watermark]
        self.waiting = [event for event in self.waiting if event not in due]
        due.sort(key=self.key)
        if due and not (self.last is not None and self.key(due[-1]) < self.key(self.last)):
            self.last = due[-1]
        return due


@st.composite
def streams(draw: st.DrawFn) -> tuple[Model, Disorder, pa.Schema, list[tuple[list[Event], int]]]:
    """Draw a stream in pieces, each with the time that is told, and what is said of its order."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    column, up, down = KINDS[kind]
    ties = draw(st.sampled_from([(), ("seq",), ("source",), ("seq", "source")]))
    order = draw(st.sampled_from([("ts",), ("ts", "x"), ("ts", "x desc"), ("ts", "seq")]))
    if "seq" in order and "seq" not in ties:
        ties = (*ties, "seq")
    late = draw(st.sampled_from([Late.DROP, Late.PASS, Late.SIDE]))
    ahead = draw(st.sampled_from([None, 0, 3, 10]))
    slack = draw(st.integers(0, 12))
    # Odd slacks put watermarks between the steps of coarse columns.
    odd = draw(st.integers(0, min(up - 1, 3)))
    unit = max(up // down, 1)
    spans = [
        value if value is None or pa.types.is_integer(column) else _microseconds(value)
        for value in (slack * unit + odd, None if ahead is None else ahead * unit)
    ]
    options: dict[str, Any] = {"late": late, "invalid": "quarantine", "ahead": spans[1]}
    which = draw(st.sampled_from(["in order", "slack", "watermark"]))
    disorder: Disorder = KSlack(spans[0], **options)
    if which != "slack":
        disorder = InOrder(**options) if which == "in order" else Punctuation(**options)
    small = st.none() | st.integers(0, 2)
    times = (
        st.none() | st.integers(0, 40)
        if down == 1
        else st.integers(0, 90).map(lambda time: 300 * time)
    )
    event = st.fixed_dictionaries({"ts": times, "x": small, **dict.fromkeys(ties, small)})
    told = st.just(int(NO_TIME)) | st.integers(0, 40).map(lambda time: time * unit + odd)
    pieces = draw(st.lists(st.tuples(st.lists(event, max_size=6), told), max_size=8))
    number = 0
    for piece, _ in pieces:
        for one in piece:
            one["id"] = number
            number += 1
    model = Model(
        kind=kind,
        order=order,
        in_order=which == "in order",
        told_only=which == "watermark",
        slack=slack * unit + odd if which == "slack" else 0,
        ahead=None if ahead is None else ahead * unit,
        late=late,
    )
    fields = [("ts", column), ("x", pa.int32()), *((name, pa.int64()) for name in ties)]
    return model, disorder, pa.schema([*fields, ("id", pa.int64())]), pieces


def _microseconds(count: int) -> datetime.timedelta:
    return datetime.timedelta(microseconds=count)


def table(schema: pa.Schema, events: list[Event]) -> pa.Table:
    columns = {name: [event[name] for event in events] for name in schema.names}
    time = pa.array(
        columns.pop("ts"), pa.int32() if schema.field("ts").type == pa.date32() else pa.int64()
    )
    arrays = [time.cast(schema.field("ts").type)]
    arrays += [pa.array(columns[f.name], f.type) for f in schema if f.name != "ts"]
    return pa.table(arrays, schema=schema)


def events_of(rows: pa.Table) -> list[Event]:
    """Return events with their times as the integers that they are in memory."""
    width = pa.int32() if rows["ts"].type == pa.date32() else pa.int64()
    return rows.set_column(0, "ts", rows["ts"].cast(width)).to_pylist()


def ids(rows: pa.Table | None) -> list[int]:
    return [] if rows is None else rows["id"].to_pylist()


@examples(400)
@given(streams(), st.sets(st.integers(0, 8)))
def test_released_late_and_invalid_events_are_those_of_the_definition(stream, saved):
    model, disorder, schema, pieces = stream
    tested = reorderer(model.order, schema, disorder)
    for number, (events, told) in enumerate(pieces):
        if number in saved:
            state = written(tested.state())
            tested = reorderer(model.order, schema, disorder)
            tested.restore(state)
        got = tested.push(EventsArrived(table(schema, events), watermark=told))
        released, late, invalid = model.push(events, told)
        assert events_of(got.rows) == released
        assert ids(got.late) == late
        assert ids(got.invalid) == invalid
        assert got.watermark == model.watermark
        assert tested.buffered == len(model.waiting)
        assert got.rows.schema == schema
    assert events_of(tested.finish().rows) == model.release(everything=True)


@given(
    st.lists(st.integers(-20, 20), max_size=40),
    st.lists(st.integers(1, 5), min_size=1),
    st.none() | st.integers(0, 9),
    st.integers(1, 4),
)
def test_instances_that_see_parts_of_the_events_have_the_same_clock(times, cuts, ahead, parts):
    whole = Clock(fixed(0), ahead)
    place = 0
    for size in cuts:
        piece = np.array(times[place : place + size], np.int64)
        place += size
        spans = [spans_of(piece[part::parts], ahead) for part in range(parts)]
        divided, single = whole.snapshot(), whole.snapshot()
        divided.follow_spans(np.concatenate(spans))
        single.follow_spans(np.stack([np.sort(piece)] * 2, axis=1))
        whole.follow(np.sort(piece))
        seen = [(one.greatest, one.watermark) for one in (divided, single, whole)]
        assert len(set(seen)) == 1


def pushed(tested: Order, *times: int | None, told: int = int(NO_TIME)) -> ReleasedEvents:
    return tested.push(EventsArrived(pa.table({"ts": pa.array(times, pa.int64())}), watermark=told))


TIMES = pa.schema([("ts", pa.int64())])


def test_an_event_at_the_watermark_is_neither_late_nor_released():
    tested = reorderer(("ts",), TIMES, KSlack(2))
    pushed(tested, 10)
    got = pushed(tested, 8, 7)
    assert got.rows["ts"].to_pylist() == []
    assert got.late["ts"].to_pylist() == [7]
    assert pushed(tested, 11).rows["ts"].to_pylist() == [8]


def test_a_late_event_passes_at_the_watermark():
    tested = reorderer(("ts",), TIMES, KSlack(2, late="pass"))
    pushed(tested, 10)
    got = pushed(tested, 1, 20)
    assert got.rows["ts"].to_pylist() == [8, 10]
    assert got.late["ts"].to_pylist() == [1]


def test_of_a_late_event_that_passes_in_order_the_time_changes_and_nothing_else():
    schema = pa.schema([("ts", pa.int64()), ("n", pa.int64())])
    tested = reorderer(("ts", "n"), schema, InOrder(late="pass"))
    tested.push(EventsArrived(pa.table({"ts": [5], "n": [5]}, schema)))
    got = tested.push(EventsArrived(pa.table({"ts": [5, 3], "n": [4, 1]}, schema)))
    assert got.rows.to_pylist() == [{"ts": 5, "n": 1}, {"ts": 5, "n": 4}]
    # What passed is not the last event: one before that is late, however it compares with others.
    got = tested.push(EventsArrived(pa.table({"ts": [5, 6], "n": [4, 1]}, schema)))
    assert got.late.to_pylist() == [{"ts": 5, "n": 4}]
    assert got.rows.to_pylist() == [{"ts": 5, "n": 4}, {"ts": 6, "n": 1}]


def test_a_late_event_passes_at_a_time_that_is_finer_than_the_watermark():
    schema = pa.schema([("ts", pa.timestamp("ns"))])
    tested = reorderer(("ts",), schema, InOrder(late="pass"))
    tested.push(EventsArrived(pa.table({"ts": [10_005]}, schema)))
    got = tested.push(EventsArrived(pa.table({"ts": [10_001]}, schema)))
    assert got.rows["ts"].cast(pa.int64()).to_pylist() == [10_005]


def test_a_late_event_cannot_pass_beyond_its_type():
    schema = pa.schema([("ts", pa.int8())])
    tested = reorderer(("ts",), schema, Punctuation(late="pass"))
    tested.push(EventsArrived(schema.empty_table(), watermark=1000))
    with pytest.raises(DataError, match="cannot pass at 1000"):
        tested.push(EventsArrived(pa.table({"ts": [1]}, schema)))


def test_an_event_without_a_time_is_refused_and_nothing_is_taken():
    tested = reorderer(("ts",), TIMES, KSlack(0))
    with pytest.raises(DataError, match="the time 'ts' is NULL") as caught:
        pushed(tested, 1, None, 3)
    assert caught.value.detail == "row 1 of a piece of 3, column 'ts'"
    assert (tested.buffered, tested.watermark) == (0, NO_TIME)
    assert pushed(tested, 0, 1).rows["ts"].to_pylist() == [0]


def test_an_event_too_far_ahead_is_refused_or_set_aside_with_both_times():
    with pytest.raises(
        DataError,
        match=r"the time 99 is too far ahead of 5\n  row \d of a piece of \d, column 'ts'",
    ):
        pushed(reorderer(("ts",), TIMES, KSlack(0, ahead=10)), 1, 99, 5)
    schema = pa.schema([("ts", pa.timestamp("s"))])
    disorder = KSlack("1 s", ahead="1 hour", invalid="quarantine")
    tested = reorderer(("ts",), schema, disorder)
    got = tested.push(EventsArrived(pa.table({"ts": pa.array([0, None, 7200], pa.timestamp("s"))})))
    assert got.invalid["reason"].to_pylist() == [
        "the time 'ts' is NULL",
        "the time 1970-01-01 02:00:00 is too far ahead of 1970-01-01 00:00:00",
    ]
    assert got.watermark == -1_000_000


def test_far_times_do_not_overflow():
    last = TIME_LIMIT - 1
    tested = reorderer(("ts",), TIMES, KSlack(10, ahead=last, invalid="quarantine"))
    got = pushed(tested, -last, last)
    assert got.invalid["ts"].to_pylist() == [last]
    assert got.watermark == -last - 10
    tested = reorderer(("ts",), TIMES, InOrder())
    assert pushed(tested, last, -last).rows["ts"].to_pylist() == [-last, last]


@pytest.mark.parametrize(
    ("order", "kind", "disorder", "message"),
    [
        ((), pa.int64(), InOrder(), "a stream needs an order"),
        (("ts desc",), pa.int64(), InOrder(), "'ts' is descending"),
        (("ts",), pa.float64(), InOrder(), "'ts' of type double does not tell the time"),
        (("ts",), pa.string(), KSlack(2), "does not tell the time"),
        (("ts",), pa.timestamp("us"), KSlack(2), "slack is an integer"),
        (("ts",), pa.int64(), KSlack("2 s"), "slack is a duration"),
        (("ts",), pa.int64(), InOrder(ahead="2 s"), "ahead is a duration"),
    ],
)
def test_an_order_that_is_no_rising_time_is_refused(order, kind, disorder, message):
    with pytest.raises(BindError, match=message):
        reorderer(order, pa.schema([("ts", kind)]), disorder)


def test_a_column_that_has_no_order_breaks_no_ties():
    source = pa.struct([("host", pa.string())])
    schema = pa.schema([("ts", pa.int64()), ("source", source)])
    tested = reorderer(("ts",), schema, KSlack(0))
    rows = pa.table({"ts": [1, 1, 2], "source": [{"host": "b"}, {"host": "a"}, None]}, schema)
    assert tested.push(EventsArrived(rows)).rows["source"].to_pylist() == [
        {"host": "b"},
        {"host": "a"},
    ]


def test_a_saved_state_of_another_order_is_refused():
    schema = pa.schema([("ts", pa.int64()), ("n", pa.int64())])
    state = reorderer(("ts",), schema, KSlack(1)).state()
    with pytest.raises(StateError, match="another order"):
        reorderer(("ts", "n"), schema, KSlack(1)).restore(state)
    with pytest.raises(StateError, match="the columns are ts, n"):
        reorderer(("ts",), TIMES, KSlack(1)).restore(state)


def test_a_larger_slack_goes_on_from_a_saved_state():
    tested = reorderer(("ts",), TIMES, KSlack(1))
    pushed(tested, 10, 12)
    resumed = reorderer(("ts",), TIMES, KSlack(5))
    resumed.restore(written(tested.state()))
    assert pushed(resumed, 10).late["ts"].to_pylist() == [10]
    assert pushed(resumed, 11, 18).rows["ts"].to_pylist() == [11, 12]


def test_the_end_releases_what_waits():
    tested = reorderer(("ts",), TIMES, KSlack(1))
    pushed(tested, 3)
    released = tested.finish()
    assert (released.rows["ts"].to_pylist(), released.watermark) == ([3], 3)


def test_rows_that_wait_do_not_keep_the_memory_of_rows_that_went():
    schema = pa.schema([("ts", pa.int64()), ("text", pa.string())])
    tested = reorderer(("ts",), schema, KSlack(10))
    size = 10_000
    for start in range(0, 20 * size, size):
        times = np.arange(start, start + size)
        tested.push(EventsArrived(pa.table({"ts": times, "text": ["x" * 100] * size}, schema)))
    assert tested.buffered == 11
    [run] = tested._runs
    assert run.rows.get_total_buffer_size() < 4 * run.rows.nbytes
