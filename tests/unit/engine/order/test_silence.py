"""Sources that are silent: who waits for them how long, and what they send later is late."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.engine.event import SEQUENCE_BITS
from outpace.engine.message import EventsArrived
from outpace.engine.order.choose import make_order
from outpace.engine.order.contract import ReleasedEvents
from outpace.engine.order.identify import EventIds
from outpace.engine.order.reordered_sources import ReorderedSources
from outpace.engine.order.silence import Silence
from outpace.engine.state import State
from outpace.errors import BindError, StateError
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.bind.query import bind
from outpace.pattern.disorder import Late
from outpace.pattern.notation.disorder import disorder_clauses, parse_disorder

SECOND = 1_000_000
SOURCES = ("east", "north", "west")
SCHEMA = pa.schema(
    [("ts", pa.int64()), ("seq", pa.int64()), ("at", pa.int64()), ("source", pa.string())]
)
QUERY = op.Query("q").order_by("ts").pattern("A")


def order_of(disorder: op.disorder.Disorder, sources: tuple[str, ...] = SOURCES) -> Any:
    query = QUERY.disorder(disorder)
    order = make_order(bind(query, SCHEMA), bind_disorder(query, SCHEMA), SCHEMA, sources)
    assert isinstance(order, ReorderedSources)
    return order


def rows(*events: tuple[int, int, int, str]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, one, strict=True)) for one in events], SCHEMA
    )


def piece(source: str, second: float, *times: int, first: int = 0) -> EventsArrived:
    """Return events of a source that arrive at a second, with numbers from a first one on."""
    at = int(second * SECOND)
    events = [(time, first + place, at, source) for place, time in enumerate(times)]
    return EventsArrived(rows(*events), source, arrival=at)


def times(released: ReleasedEvents) -> list[int]:
    return released.rows.column("ts").to_pylist()


def test_nobody_waits_for_a_source_that_is_silent():
    order = order_of(op.InOrder(patience="2 s"), ("a", "b"))
    assert times(order.push(piece("b", 0, 1))) == []
    assert times(order.push(piece("a", 1, 5, 8))) == []
    assert order.timer == 2 * SECOND
    released = order.fire(2 * SECOND)
    # The last one waits: `a` may send others of its time.
    assert (times(released), released.watermark, order.silent) == ([1, 5], 8, {"b"})
    assert order.unawaited == 2
    assert order.unawaited_times == {"b": (1, 5)}
    assert order.timer == 3 * SECOND
    # All are silent: nothing waits any more.
    released = order.fire(3 * SECOND)
    assert (times(released), released.watermark, order.timer) == ([8], 8, None)
    assert order.unawaited == 3
    assert order.unawaited_times == {"b": (1, 8), "a": (8, 8)}
    # Both speak, and one is silent again: what went on without it is another stretch.
    order.push(piece("a", 4, 20))
    order.push(piece("b", 4.5, 21))
    order.push(piece("b", 6, 30))
    assert times(order.fire(6 * SECOND)) == [20, 21]
    assert order.unawaited_times == {"b": (1, 8), "a": (20, 21)}


def test_a_column_of_arrival_tells_who_was_silent_before_a_word():
    """As soon as something has arrived behind the time that is due, however late it is pushed."""
    order = order_of(op.InOrder(patience="2 s", arrival="at"), ("a", "b"))
    order.push(piece("b", 0, 1))
    order.push(piece("a", 1, 5, 8))
    assert times(order.push(piece("a", 2, 9))) == []
    assert "b" not in order.silent, "it may speak yet at the time that is due"
    assert times(order.push(piece("a", 2.5, 11))) == [1, 5, 8, 9]
    assert order.silent == {"b"}
    # Whoever was silent and speaks again is late, also at the moment at which it is noticed.
    released = order.push(EventsArrived(rows((12, 4, 9 * SECOND, "a"), (3, 1, 9 * SECOND, "b"))))
    assert released.late is not None
    assert released.late["ts"].to_pylist() == [3]


def test_each_source_may_be_waited_for_as_long_as_it_deserves():
    order = order_of(op.InOrder(patience={"east": "2 s", "north": "5 s"}))
    order.push(piece("east", 0, 1))
    order.push(piece("north", 0, 2))
    assert times(order.push(piece("west", 1, 9))) == []
    assert order.timer == 2 * SECOND
    assert times(order.fire(2 * SECOND)) == [1]
    assert (order.silent, order.timer) == ({"east"}, 5 * SECOND)
    # `north` holds `west` back until its own time is up.
    assert times(order.fire(5 * SECOND)) == [2]
    assert (order.silent, order.timer) == ({"east", "north"}, None)
    assert [order.unawaited_of(source) for source in SOURCES] == [2, 1, 0]
    # `west`, which is not named, is waited for until it speaks.
    order.push(piece("east", 6, 20, first=1))
    assert order.fire(10_000 * SECOND).rows.num_rows == 0
    assert "west" not in order.silent


def test_patience_by_source_is_written_in_sql_and_in_python():
    disorder = op.KSlack(2, patience={"o'neil": "2 s", "west": "1 min"})
    query = QUERY.disorder(disorder)
    (clause,) = disorder_clauses(query)
    assert clause.endswith(
        "PATIENCE ('o''neil' = INTERVAL '2' SECOND, 'west' = INTERVAL '1' MINUTE)"
    )
    assert parse_disorder(clause.removeprefix("DISORDER "), "test") == disorder
    assert eval(query.to_python(), {"op": op}) == query  # noqa: S307  # the test's own text
    assert hash(disorder) == hash(op.KSlack(2, patience=disorder.patience))


@pytest.mark.parametrize(
    ("patience", "message"),
    [
        ({}, "patience names no source"),
        ({"east": 2}, "patience of 'east' is a duration by the clock, not 2"),
        ({"east": "0 s"}, "patience of 'east' must be longer than nothing"),
        ({2: "1 s"}, "a source of patience"),
    ],
)
def test_patience_by_source_is_checked(patience, message):
    with pytest.raises(BindError, match=message):
        op.InOrder(patience=patience)


def test_patience_names_sources_that_are_there():
    stream = op.open(QUERY.disorder(op.InOrder(patience={"eats": "1 s"})), sources=["east", "west"])
    with pytest.raises(BindError, match="'eats', which is no source") as caught:
        stream.push({"ts": [1]}, source="east")
    assert caught.value.hint == "did you mean 'east'?"


@pytest.mark.parametrize(
    ("late", "taken", "aside"),
    [("drop", [9, 10], [3]), ("side", [9, 10], [3]), ("pass", [8, 9, 10], [3])],
)
def test_a_source_that_returns_is_late_where_the_others_have_passed(late, taken, aside):
    order = order_of(op.InOrder(patience="2 s", late=late), ("a", "b"))
    order.push(piece("b", 0, 1))
    order.push(piece("a", 1.5, 8))
    order.fire(2 * SECOND)
    found = order.push(piece("b", 2.1, 3, 9))
    assert found.late.column("ts").to_pylist() == aside
    assert order.silent == set()
    released = [*times(found), *times(order.push(piece("a", 2.2, 10))), *times(order.finish())]
    assert [time for time in released if time != 8 or late == "pass"][-len(taken) :] == taken


def test_a_heartbeat_breaks_the_silence():
    order = order_of(op.KSlack(0, patience="2 s"), ("a", "b"))
    order.push(piece("b", 0, 1))
    order.push(piece("a", 1, 5))
    order.tell(2, "b", int(1.9 * SECOND))
    order.fire(2 * SECOND)
    assert order.silent == set()
    assert order.timer == 3 * SECOND
    order.fire(int(3.9 * SECOND))
    assert order.silent == {"a", "b"}
    order.tell(9, "b", 4 * SECOND)
    # The next word begins a new count for all that have spoken in the last one.
    assert (order.silent, order.timer) == (set(), 6 * SECOND)


def test_a_source_that_never_speaks_is_waited_for_once():
    order = order_of(op.InOrder(patience="2 s"))
    order.push(piece("east", 10, 1))
    order.push(piece("west", 11, 2))
    assert order.timer == 12 * SECOND
    released = order.fire(12 * SECOND)
    assert (order.silent, times(released)) == ({"north", "east"}, [1])
    order.fire(13 * SECOND)
    order.push(piece("east", 20, 5))
    assert order.silent == {"north"}
    assert times(order.push(piece("west", 20.5, 6))) == []
    assert times(order.push(piece("east", 20.6, 7))) == [5]


def test_a_source_with_a_gap_is_not_silent():
    order = order_of(op.Sequence("5 s", at_least="5 s", patience="2 s"), ("a", "b"))
    order.push(piece("b", 0, 1))
    order.push(piece("b", 1, 4, first=2))
    order.push(piece("a", 1.5, 6))
    order.push(piece("a", 3.4, 7, first=1))
    order.fire(int(3.5 * SECOND))
    assert order.silent == set()
    # The gap is given up at its own time; then nobody has heard of the source for long.
    released = order.fire(6 * SECOND)
    assert order.silent == {"a", "b"}
    assert times(released) == [1, 4, 6, 7]


def test_a_timer_that_fired_is_not_due_once_more():
    order = order_of(op.Sequence("5 s", at_least="5 s", patience="2 s"), ("a", "b"))
    order.push(piece("a", 0, 1))
    order.push(piece("b", 0, 1))
    order.push(piece("a", 0, 5, first=2))
    assert order.timer == 2 * SECOND
    order.fire(2 * SECOND)
    # What is missing of a is waited for, so only when it is given up there is something to do.
    assert order.timer == 5 * SECOND
    order.fire(5 * SECOND)
    assert order.timer is None


def test_events_that_a_silent_source_holds_go_on_in_their_order():
    order = order_of(op.KSlack(5, patience="2 s"), ("a", "b"))
    order.push(piece("b", 0, 8, 10, 9))
    assert times(order.push(piece("a", 1.5, 9, 20, 30))) == []
    released = order.fire(2 * SECOND)
    assert times(released) == [8, 9, 9, 10, 20]
    # `b` had come to 5, `a` holds what lies within its slack.
    assert (released.watermark, order.unawaited, order.buffered) == (25, 5, 1)
    # So it does where all are silent: only events of its own tell that its slack is over.
    released = order.fire(9 * SECOND)
    assert (order.silent, released.watermark, order.buffered) == ({"a", "b"}, 25, 1)
    order.push(piece("a", 10, 40, first=3))
    assert times(order.fire(12 * SECOND)) == [30]


def test_what_arrives_together_counts_together():
    order = order_of(op.InOrder(patience="2 s"), ("a", "b"))
    both = pa.concat_tables([piece("b", 0, 1).rows, piece("a", 0, 1).rows])
    order.push(EventsArrived(both, arrival=0))
    both = pa.concat_tables([piece("b", 60, 7).rows, piece("a", 60, 9).rows])
    # Long after: nobody is behind, as nobody has spoken.
    released = order.push(EventsArrived(both, arrival=60 * SECOND))
    assert (released.late, order.silent, times(released)) == (None, set(), [1, 1])
    order.fire(60 * SECOND)
    assert order.silent == set()


def test_what_is_told_of_time_holds_for_silent_sources_too():
    order = order_of(op.InOrder(patience="2 s"), ("a", "b"))
    both = pa.concat_tables([piece("b", 0, 5).rows, piece("a", 0, 1).rows])
    order.push(EventsArrived(both, arrival=0))
    order.fire(3 * SECOND)
    assert order.silent == {"a", "b"}
    told = order.push(EventsArrived(rows(), watermark=50, arrival=4 * SECOND))
    assert (told.watermark, order.silent) == (50, {"a", "b"})


def test_what_is_told_with_a_piece_makes_none_of_its_events_late():
    order = order_of(op.KSlack(1, patience="2 s", arrival="at"), ("a", "b"))
    # The first is silent meanwhile, so the piece is taken in stretches.
    events = [(1, 0, 0, "a"), (1, 0, 1, "b")]
    events += [(3, 1, 5 * SECOND, "b"), (5, 2, 9 * SECOND, "b"), (7, 3, 20 * SECOND, "b")]
    released = order.push(EventsArrived(rows(*events), watermark=10))
    assert (released.late, released.watermark) == (None, 10)
    assert times(released) == [1, 1, 3, 5, 7]


def test_without_a_clock_nobody_is_silent():
    order = order_of(op.InOrder(patience="2 s"), ("a", "b"))
    order.push(EventsArrived(rows((1, 0, 0, "a")), "a"))
    order.tell(5, "a")
    assert (order.timer, order.silent) == (None, set())


def test_nobody_goes_past_a_source_that_waits_for_missing_events_when_all_else_was_silent():
    order = order_of(op.Sequence("1000 s", patience="5 s"), ("a", "b"))
    found = times(order.push(piece("a", 0, 1, first=1)))
    found += times(order.push(piece("b", 0, 1, first=1)))
    # Number 2 of `a` is missing, so `a` is not silent.
    found += times(order.push(piece("a", 10, 3, 6, first=3)))
    for number, second in enumerate((70, 130, 190), start=2):
        found += times(order.push(piece("b", second, 10 * number, first=number)))
        assert "a" not in order.silent
        assert order.watermark <= 1
    assert found + times(order.finish()) == [1, 1, 3, 6, 20, 30, 40]


@st.composite
def streams(draw: st.DrawFn) -> list[list[tuple[int, int, int, str]]]:
    """Draw events moment by moment, of sources that are a little late or long silent."""
    clock, numbers = 0, dict.fromkeys(SOURCES, 0)
    events = []
    waits = st.sampled_from([0, 0, 1, 1, 2, 3, 9, 30])
    sent = st.tuples(st.sampled_from(SOURCES), waits, st.sampled_from([0, 0, 0, 0, 2, 5, 20]))
    for source, wait, delay in draw(st.lists(sent, max_size=16)):
        clock += wait
        # Some are lost on their way.
        numbers[source] += 1 if delay < 20 else 2
        events.append((clock, numbers[source], clock + delay % 20, source))
    arrivals = sorted({event[2] for event in events})
    return [[event for event in events if event[2] == at] for at in arrivals]


KINDS = [
    op.KSlack(0, patience="0.000010 s", arrival="at"),
    op.KSlack(4, patience="0.000005 s", arrival="at", late="pass"),
    op.Sequence("0.000020 s", patience="0.000010 s", arrival="at"),
    op.Sequence("0.000008 s", patience="0.000020 s", arrival="at", late="side"),
]


@pytest.mark.parametrize("kind", KINDS, ids=["no slack", "slack", "slow gaps", "quick gaps"])
@examples(25)
@given(moments=streams(), data=st.data())
def test_cuts_and_saved_states_change_nothing(kind, moments, data):
    def run(pieces: list[list[tuple[int, int, int, str]]], *, saved: bool) -> tuple[Any, ...]:
        order = order_of(kind)
        given, late = [], []
        for events in pieces:
            released = order.push(EventsArrived(rows(*events)))
            given += released.rows.to_pylist()
            late += [] if released.late is None else released.late.to_pylist()
            if saved:
                state = State.decode(order.state().encode())
                order = order_of(kind)
                order.restore(state)
        silent = order.silent
        last = order.finish()
        given += last.rows.to_pylist()
        late += [] if last.late is None else last.late.to_pylist()
        # Of late events the order is that in which they are told.
        late.sort(key=lambda one: list(one.values()))
        return given, late, silent, last.watermark, order.unawaited

    cuts = data.draw(st.lists(st.booleans(), min_size=len(moments), max_size=len(moments)))
    pieces: list[list[tuple[int, int, int, str]]] = []
    for begins, events in zip(cuts, moments, strict=True):
        if begins or not pieces:
            pieces.append([])
        pieces[-1] += events
    one = run(moments, saved=False)
    assert run(pieces, saved=False) == one
    assert run(pieces, saved=True) == one
    if kind.late is not Late.PASS:
        every = sorted(event for events in moments for event in events)
        found = sorted(tuple(row.values()) for row in [*one[0], *one[1]])
        assert found == every, "an event is lost, or comes twice"
    assert [row["ts"] for row in one[0]] == sorted(row["ts"] for row in one[0])


@pytest.mark.parametrize(
    "kind",
    [
        op.KSlack(2),
        op.Sequence("0.000020 s", arrival="at"),
        op.Sequence("0.000005 s", late="side"),
        op.Sequence("0.000005 s", late="pass"),
    ],
    ids=["slack", "by column", "by clock", "pass"],
)
@examples(25)
@given(moments=streams(), data=st.data())
def test_a_mixed_piece_is_that_of_its_sources(kind, moments, data):
    apart, mixed = (order_of(kind) for _ in range(2))
    # Some pieces have events of several moments, and times that do not rise with numbers.
    if moments and data.draw(st.booleans()):
        first = [(9 - time % 9, *event) for part in moments[:3] for time, *event in part]
        moments = [first, *moments[3:]]
    for events in moments:
        at = max(event[2] for event in events)
        given = mixed.push(EventsArrived(rows(*events), arrival=at))
        found, late = [], []
        for source in SOURCES:
            own = [event for event in events if event[3] == source]
            if own:
                released = apart.push(EventsArrived(rows(*own), source, arrival=at))
                found += released.rows.to_pylist()
                late += [] if released.late is None else released.late.to_pylist()
        assert given.rows.to_pylist() == sorted(
            found, key=lambda row: (row["ts"], row["seq"], row["source"])
        )

        def told(events: list[Any]) -> list[Any]:
            return sorted(events, key=lambda row: list(row.values()))

        assert told(late) == told([] if given.late is None else given.late.to_pylist())
        assert given.watermark == apart.watermark
        assert mixed.buffered == apart.buffered
        assert mixed.timer == apart.timer
        assert [mixed.waiting(one) for one in SOURCES] == [apart.waiting(one) for one in SOURCES]
    assert mixed.finish().rows.to_pylist() == apart.finish().rows.to_pylist()


def test_a_mixed_piece_is_taken_whole_or_not_at_all():
    order = order_of(op.Sequence("1 s"), ("a", "b"))
    before = order.state().encode()
    bad = rows((1, 0, 0, "a"), (2, 0, 0, "b")).set_column(
        1, SCHEMA.field("seq"), pa.array([0, None], pa.int64())
    )
    with pytest.raises(op.DataError, match="is NULL"):
        order.push(EventsArrived(bad))
    for stray, message in [("c", "no source 'c'"), (None, "'source' is NULL")]:
        with pytest.raises(op.DataError, match=message):
            order.push(EventsArrived(rows((1, 0, 0, "a"), (2, 0, 0, stray))))
    with pytest.raises(op.DataError, match="source of the rows is missing"):
        order.push(EventsArrived(rows((1, 0, 0, "a")).drop_columns(["source"])))
    assert order.state().encode() == before
    order = order_of(op.InOrder(invalid="quarantine"), ("a", "b"))
    released = order.push(EventsArrived(rows((1, 0, 0, "a"), (2, 0, 0, "c"))))
    assert released.invalid.column("reason").to_pylist() == ["there is no source 'c'"]


def test_events_of_one_push_have_ids_of_their_sources():
    ids = EventIds(("a", "b"))
    first = rows((1, 0, 0, "b"), (2, 0, 0, "c"), (3, 0, 0, "a"), (4, 0, 0, "b"))
    given = ids.give(first, None).column("__outpace_id").to_pylist()
    ids.accept(None, first)
    again = ids.give(first, None).column("__outpace_id").to_pylist()
    b = 1 << SEQUENCE_BITS
    assert [*given[:1], *given[2:]] == [b, 0, b + 1]
    assert [*again[:1], *again[2:]] == [b + 2, 1, b + 3]
    assert ids.give(rows((5, 0, 0, "a")), "a").column("__outpace_id").to_pylist() == [1]


def test_what_waits_holds_no_memory_of_what_is_held():
    order = order_of(op.Sequence("1 hour"))
    order.push(EventsArrived(rows((1, 0, 0, "east"), (1, 0, 0, "west")), arrival=0))
    for turn in range(1, 9):
        # The north says nothing, so all wait; the west waits for its second event besides.
        held = [(5, turn * 1000 + number, 0, "west") for number in range(50)]
        order.push(EventsArrived(rows((turn, turn, 0, "east"), *held), arrival=turn))
    assert (order.waiting("east"), order.waiting("west")) == (9, 401)
    assert sum(one.rows.num_rows for one in order._waiting._fresh) == 10


def test_the_setting_reads_and_prints():
    disorder = parse_disorder("NONE PATIENCE '2 s'", "here")
    assert disorder == op.InOrder(patience="2 s")
    assert list(disorder_clauses(QUERY.disorder(op.KSlack(5, patience="500 ms")))) == [
        "DISORDER SLACK 5 PATIENCE INTERVAL '0.5' SECOND"
    ]
    for bad in ("0 s", 5, "-1 s"):
        with pytest.raises(op.BindError, match="patience"):
            op.KSlack(5, patience=bad)


def test_patience_needs_sources():
    stream = op.open(QUERY.disorder(op.InOrder(patience="2 s")))
    with pytest.raises(op.BindError, match="the stream has no sources"):
        stream.push(rows((1, 0, 0, "a")))


def test_a_damaged_state_is_refused():
    silence = Silence(["a"], 5)
    for numbers in (
        {"now": 0, "began": 0, "heard": {"b": 1}, "silent": []},
        {"now": 0, "began": 0, "heard": {"a": "x"}, "silent": []},
        {"now": 0, "began": 0, "heard": [], "silent": []},
    ):
        with pytest.raises(StateError):
            silence.restore(State(numbers), ())
