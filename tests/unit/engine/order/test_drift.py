"""Clocks of sources: the drift that exchanges tell, its bound, and the order of all by it."""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.engine.message import ClockExchange, EventsArrived
from outpace.engine.order.choose import make_order
from outpace.engine.order.drift import KEPT, ClockReading, SourceClock
from outpace.engine.state import State
from outpace.errors import StateError
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.bind.query import bind

SECOND = 1_000_000
HOUR = 3600 * SECOND


def exchange(
    at: int, drift: int, there: int = 30, back: int = 30, source: str = "a"
) -> ClockExchange:
    """Return an exchange that begins at a time of reference, by a clock that is behind it."""
    asked, heard = at - drift, at + there + 10 + back - drift
    return ClockExchange(source, asked, at + there, at + there + 10, heard)


def test_the_equations_by_hand():
    # 3.12: (180 - 100) - (1160 - 1150) = 70; 3.13: ((1150 - 100) + (1160 - 180)) / 2 = 1015.
    clock = SourceClock()
    assert clock.compare(ClockExchange("a", 100, 1150, 1160, 180))
    # 3.14: the drift is 1015 +- 35.
    assert clock.reading == ClockReading(drift=1015, bound=35, exchanges=1)
    # The minimum filter takes the exchange that took least, whenever it was.
    assert not clock.compare(ClockExchange("a", 200, 1205, 1215, 240))
    assert not clock.compare(ClockExchange("a", 300, 1380, 1390, 420))
    assert clock.reading == ClockReading(drift=990, bound=15, exchanges=3)


@examples(60)
@given(
    drift=st.integers(-HOUR, HOUR),
    delays=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000)), min_size=1, max_size=12),
)
def test_the_true_drift_is_within_the_bound(drift, delays):
    clock = SourceClock()
    for number, (there, back) in enumerate(delays):
        clock.compare(exchange(number * 10_000, drift, there, back))
        reading = clock.reading
        assert abs(reading.drift - drift) <= reading.bound
        assert (reading.jumps, reading.refused) == (0, 0)
    least = min(sum(pair) for pair in delays[-KEPT:])
    assert least <= 2 * clock.reading.bound <= least + 10
    restored = SourceClock()
    restored.restore(State.decode(clock.state().encode()))
    for one in (clock, restored):
        one.compare(exchange(200_000, drift, 10, 10))
    assert restored.reading == clock.reading


def test_a_clock_that_is_set_is_noticed():
    clock = SourceClock()
    for number in range(5):
        clock.compare(exchange(number * SECOND, 1000))
    assert clock.compare(exchange(6 * SECOND, -HOUR))
    assert clock.reading == ClockReading(drift=-HOUR, bound=30, exchanges=6, jumps=1)
    # Those before do not count any more.
    clock.compare(exchange(7 * SECOND, -HOUR, 5, 5))
    assert (clock.reading.drift, clock.reading.bound, clock.reading.jumps) == (-HOUR, 5, 1)


def test_clocks_that_run_apart_do_not_jump():
    clock = SourceClock()
    # A hundred microseconds in a second: more than the bound of what was measured before.
    for number in range(100):
        clock.compare(exchange(number * 10 * SECOND, number * 1000))
    assert clock.reading.jumps == 0
    assert abs(clock.reading.drift - 99_000) <= 8000


@pytest.mark.parametrize(
    "bad",
    [
        ClockExchange("a", 100, 50, 60, 99),
        ClockExchange("a", 100, 60, 50, 200),
        ClockExchange("a", -(1 << 62), 1 << 62, 1 << 62, -(1 << 62) + 1),
        ClockExchange("a", 0, 0, 0, 1 << 61),
    ],
)
def test_what_cannot_be_true_is_counted(bad):
    clock = SourceClock()
    assert not clock.compare(bad)
    assert clock.reading == ClockReading(refused=1)


def test_a_damaged_state_is_refused():
    known = {"drift": 0, "bound": 0, "exchanges": 1, "refused": 0, "jumps": 0}
    for samples in ([[1, 2]], [[-1, 0, 0]], [[0, 1 << 60, 0]], "x", [[0, 0, 0]] * 9):
        with pytest.raises(StateError):
            SourceClock().restore(State({"samples": samples, **known}))
    with pytest.raises(StateError):
        SourceClock().restore(State({"samples": [], **known, "drift": 1 << 61}))


# --- The order of all sources --------------------------------------------------------------------


def order_of(
    disorder: Any, kind: pa.DataType | None = None, sources: tuple[str, ...] = ("a", "b")
) -> Any:
    kind = kind or pa.timestamp("us")
    schema = pa.schema([("ts", kind), ("id", pa.int64()), ("seq", pa.int64())])
    query = op.Query("q").order_by("ts").pattern("A").disorder(disorder)
    order = make_order(bind(query, schema), bind_disorder(query, schema), schema, sources)
    return order, schema


def table(schema: pa.Schema, *events: tuple[int, int, int]) -> pa.Table:
    """Return events: a time in microseconds, an id and a number."""
    times = pa.array([event[0] for event in events], pa.int64())
    if not pa.types.is_integer(schema.field("ts").type):
        times = times.cast(pa.timestamp("us")).cast(schema.field("ts").type)
    rest = [pa.array([event[place] for event in events], pa.int64()) for place in (1, 2)]
    return pa.table([times, *rest], schema=schema)


@pytest.mark.parametrize("disorder", [op.InOrder(), op.KSlack("0 s"), op.Sequence("1 s")])
@pytest.mark.parametrize(
    "kind", [pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ms"), pa.int64()], ids=str
)
def test_sources_an_hour_apart_come_in_the_order_of_reference(disorder, kind):
    if pa.types.is_integer(kind) and isinstance(disorder, op.KSlack):
        disorder = op.KSlack(0)
    order, schema = order_of(disorder, kind)
    drifts = {"a": HOUR, "b": -5 * SECOND}
    for source, drift in drifts.items():
        order.compare_clocks(exchange(0, drift, source=source))
        assert order.clock_of(source).drift == drift
    found: list[int] = []
    base = 10 * HOUR
    for turn in range(4):
        for source, offset in (("a", 0), ("b", 1)):
            true = [base + (2 * (3 * turn + place) + offset) * SECOND for place in range(3)]
            events = [
                (time - drifts[source], time // SECOND, 3 * turn + place)
                for place, time in enumerate(true)
            ]
            released = order.push(EventsArrived(table(schema, *events), source))
            assert released.late is None
            found += released.rows.column("id").to_pylist()
            state = State.decode(order.state().encode())
            order, _ = order_of(disorder, kind)
            order.restore(state)
    last = order.finish()
    found += last.rows.column("id").to_pylist()
    assert found == [base // SECOND + number for number in range(24)]
    # The time column is that of reference.
    shown = last.rows.column("ts")
    if not pa.types.is_integer(kind):
        shown = shown.cast(pa.timestamp("us")).cast(pa.int64())
    ids = last.rows.column("id").to_pylist()
    assert shown.to_pylist() == [one * SECOND for one in ids]


def test_mixed_pieces_have_the_time_of_reference():
    disorder = op.Sequence("1 s")
    schema = pa.schema([("ts", pa.int64()), ("seq", pa.int64()), ("source", pa.string())])
    query = op.Query("q").order_by("ts").pattern("A").disorder(disorder)
    order = make_order(bind(query, schema), bind_disorder(query, schema), schema, ("a", "b"))
    order.compare_clocks(exchange(0, 100, source="b"))
    rows = {"ts": [101, 2, 103, 4], "seq": [0, 0, 1, 1], "source": ["a", "b", "a", "b"]}
    released = order.push(EventsArrived(pa.table(rows, schema=schema), arrival=0))
    found = [*released.rows.to_pylist(), *order.finish().rows.to_pylist()]
    assert [row["ts"] for row in found] == [101, 102, 103, 104]
    assert [row["source"] for row in found] == ["a", "b", "a", "b"]


def test_a_drift_that_is_measured_anew_makes_nothing_late():
    with pytest.raises(op.DataError, match="may not hold the time of reference"):
        order_of(op.InOrder(), pa.int32())[0].compare_clocks(exchange(0, 1))
    order, schema = order_of(op.InOrder())
    order.compare_clocks(exchange(0, 100, 90, 10, source="a"))
    assert order.clock_of("a").drift == 140
    order.push(EventsArrived(table(schema, (1000, 1, 0)), "b"))
    order.push(EventsArrived(table(schema, (500, 2, 0), (510, 3, 1)), "a"))
    assert order.watermark == 650
    # 40 less: the next event would lie before the watermark, by less than the bound.
    order.compare_clocks(exchange(100, 100, 1, 1, source="a"))
    assert order.clock_of("a") == ClockReading(drift=100, bound=1, exchanges=2)
    released = order.push(EventsArrived(table(schema, (520, 4, 2), (900, 5, 3)), "a"))
    assert released.late is None
    assert released.rows.column("id").to_pylist() == [3, 4]
    times = released.rows.column("ts").cast(pa.int64()).to_pylist()
    assert times == [650, 650]


@pytest.mark.parametrize(("late", "kept"), [("drop", [6]), ("pass", [5, 6])])
def test_what_lies_behind_after_a_jump_is_late(late, kept):
    order, schema = order_of(op.InOrder(late=late))
    order.compare_clocks(exchange(0, 0, source="a"))
    order.push(EventsArrived(table(schema, (5000, 1, 0)), "a"))
    order.push(EventsArrived(table(schema, (6000, 2, 0)), "b"))
    order.compare_clocks(exchange(100, -4000, source="a"))
    assert order.clock_of("a").jumps == 1
    # By the clock of reference the first is at 4500.
    released = order.push(EventsArrived(table(schema, (8500, 5, 1), (10_500, 6, 2)), "a"))
    assert released.late.column("id").to_pylist() == [5]
    left = [*released.rows.column("id").to_pylist(), *order.finish().rows.column("id").to_pylist()]
    assert [one for one in left if one in (5, 6)] == kept


@pytest.mark.parametrize("set_by", [-5000, 5000])
@pytest.mark.parametrize("disorder", [op.InOrder(), op.KSlack("0.0002 s"), op.MPKSlack()])
def test_events_of_a_clock_that_was_set_keep_their_times_of_reference(disorder, set_by):
    order, schema = order_of(disorder)
    order.compare_clocks(exchange(0, 0, source="a"))
    times = [10_000 + 100 * number for number in range(40)]
    rows = []
    for number, time in enumerate(times):
        if number == 20:
            order.compare_clocks(exchange(time - set_by, set_by, source="a"))
            assert order.clock_of("a").jumps == 1
        own = time - (set_by if number >= 20 else 0)
        for source, told in (("a", own), ("b", time)):
            released = order.push(EventsArrived(table(schema, (told, number, number)), source))
            assert released.late is None
            rows.append(released.rows)
    rows.append(order.finish().rows)
    found = pa.concat_tables(rows)
    assert found["ts"].cast(pa.int64()).to_pylist() == sorted(2 * times)
    assert found["id"].to_pylist() == sorted(2 * list(range(40)))


def test_a_silent_source_is_told_the_time_by_its_own_clock():
    order, schema = order_of(op.KSlack("0 s", patience="1 s"))
    order.compare_clocks(exchange(0, HOUR, source="b"))
    order.push(EventsArrived(table(schema, (2 * HOUR, 1, 0)), "a", arrival=0))
    order.push(EventsArrived(table(schema, (HOUR + 5, 2, 0)), "b", arrival=0))
    order.push(EventsArrived(table(schema, (2 * HOUR + 50, 3, 1)), "a", arrival=SECOND - 1))
    released = order.fire(SECOND)
    assert (released.rows.column("id").to_pylist(), order.silent) == ([2], {"b"})
    released = order.push(
        EventsArrived(table(schema, (HOUR + 49, 4, 1), (HOUR + 51, 5, 2)), "b", arrival=SECOND + 1)
    )
    assert released.late.column("id").to_pylist() == [4]


@pytest.mark.parametrize(
    "disorder",
    [op.InOrder(), op.KSlack("0.000020 s", patience="0.000030 s"), op.Sequence("0.000040 s")],
    ids=["in order", "slack", "sequence"],
)
@examples(30)
@given(data=st.data())
def test_clocks_lose_no_event_and_are_saved(disorder, data):
    """Whatever is measured, time does not go back, and each event goes on or is told to be late."""
    happened = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from("ab"),
                st.sampled_from([0, 1, 5, 40]),
                st.none() | st.sampled_from([0, 3, -2, 50, -500]),
            ),
            max_size=20,
        )
    )

    def run(*, saved: bool) -> tuple[list[Any], list[Any]]:
        order, schema = order_of(disorder)
        clock, numbers = 1000, dict.fromkeys("ab", 0)
        given: list[Any] = []
        late: list[Any] = []
        for source, wait, drift in happened:
            clock += wait
            if drift is not None:
                released = order.compare_clocks(exchange(clock, drift, source=source))
            else:
                event = table(
                    schema, (clock, 10 * numbers[source] + (source == "b"), numbers[source])
                )
                numbers[source] += 1
                released = order.push(EventsArrived(event, source, arrival=clock))
            times = released.rows.column("ts").cast(pa.int64()).to_pylist()
            assert all(time <= released.watermark for time in times)
            given += released.rows.to_pylist()
            late += [] if released.late is None else released.late.to_pylist()
            if saved:
                state = State.decode(order.state().encode())
                order, _ = order_of(disorder)
                order.restore(state)
        last = order.finish()
        given += last.rows.to_pylist()
        late += [] if last.late is None else last.late.to_pylist()
        sent = [
            10 * number + (source == "b") for source in "ab" for number in range(numbers[source])
        ]
        assert sorted(row["id"] for row in [*given, *late]) == sorted(sent)
        assert [row["ts"] for row in given] == sorted(row["ts"] for row in given)
        return given, late

    assert run(saved=False) == run(saved=True)


def test_clocks_count_where_sources_have_an_order_of_their_own(tmp_path):
    query = op.Query("q").order_by("ts").pattern("A").measures(id="A.id")
    when = datetime.datetime(2026, 1, 1)
    event = {"ts": [when], "id": [1]}
    stream = op.open(query, sources=["a", "b"])
    stream.push(event, source="a")
    with pytest.raises(op.DataError, match="an order of its own"):
        stream.compare_clocks(exchange(0, 1))
    assert stream.clocks == {}
    stream = op.open(query.disorder(op.InOrder()), sources=["a", "b"], record=tmp_path / "run")
    with pytest.raises(op.DataError, match="before the first push"):
        stream.compare_clocks(exchange(0, 1))
    stream.push({"ts": [when], "id": [0]}, source="b")
    stream.compare_clocks(exchange(0, SECOND))
    stream.push(event, source="a")
    assert stream.clocks == {"a": ClockReading(drift=SECOND, bound=30, exchanges=1)}
    with pytest.raises(op.DataError, match="there is no source 'c'"):
        stream.compare_clocks(exchange(0, 1, source="c"))
    with pytest.raises(op.DataError, match="asked is too large"):
        stream.compare_clocks(ClockExchange("a", 1 << 70, 0, 0, 0))
    with pytest.raises(op.BindError, match="an exchange"):
        stream.compare_clocks((1, 2, 3, 4))
    found = stream.finish()["id"].to_pylist()
    assert found == [0, 1]
    *steps, last = op.replay(tmp_path / "run")
    assert last.matches["id"].to_pylist() == [0, 1]
    assert "clock of a" in [step.title for step in steps]
    assert all(step.as_recorded for step in steps)


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("ms"), pa.timestamp("ns")], ids=str)
def test_late_events_correct_by_the_time_of_reference(kind):
    schema = pa.schema([("ts", kind), ("id", pa.int64())])

    def at(times: list[int]) -> pa.Array:
        times = pa.array([1000 * time for time in times])
        return times if kind == pa.int64() else times.cast(pa.timestamp("us")).cast(kind)

    within, slack, horizon = 8000, 3000, 10**6
    if kind != pa.int64():
        within, slack, horizon = "8 ms", "3 ms", "1 s"
    query = op.Query("q").order_by("ts").pattern("A -> B").define(A="id % 3 = 0", B="id % 3 = 1")
    query = query.measures(a="A.id", b="B.id", ts="B.ts").within(within).no_skip()
    numbers, drifts = np.random.default_rng(4), {"a": 40_000, "b": -25_000}
    correcting = query.disorder(op.KSlack(slack, late="correct", horizon=horizon))
    stream = op.open(correcting, sources=["a", "b"])
    tables = [stream.push(schema.empty_table(), source="a")]
    for source, drift in drifts.items():
        tables.append(stream.compare_clocks(exchange(0, drift, 0, 0, source)))
    true = numbers.permutation(60)
    true = true[np.argsort(true + 20 * numbers.random(60))].tolist()
    for number, time in enumerate(true):
        source = "ab"[number % 2]
        own = time - drifts[source] // 1000
        rows = pa.table([at([own]), pa.array([time])], schema=schema)
        tables.append(stream.push(rows, source=source))
    tables.append(stream.finish())
    left: Counter[str] = Counter()
    given = pa.concat_tables(tables)
    for row in given.to_pylist():
        left[repr({**row, "diff": 1})] += row["diff"]
    whole = pa.table([at(sorted(true)), pa.array(sorted(true))], schema=schema)
    expected = [repr({**row, "diff": 1}) for row in op.match(whole, query).to_pylist()]
    assert +left == Counter(expected)
    assert -1 in given["diff"].to_pylist()
