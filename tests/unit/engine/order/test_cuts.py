"""Where a column says when events arrived, any cut of a stream gives the same."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import disorders
from support.properties import examples

import outpace as op
from outpace.engine.message import EventsArrived
from outpace.engine.order.choose import make_order
from outpace.engine.order.contract import Order, ReleasedEvents
from outpace.engine.state import State
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.bind.query import bind
from outpace.pattern.disorder import Disorder

SOURCES = ("east", "west")
SCHEMA = pa.schema(
    [
        *[(name, pa.int64()) for name in ("ts", "at", "seq", "v", "id")],
        ("source", pa.string()),
        ("timed", pa.bool_()),
    ]
)
QUERY = op.Query("q").pattern("A").within(10)

#: A time, a number, a value and a source.
Event: TypeAlias = "tuple[int, int, int, str]"
#: Events that arrive at once, and what is told of time after them, if anything is.
Moment: TypeAlias = "tuple[list[Event], int | None]"

#: How early events go on depends on the cut.
KINDS: dict[str, Any] = {name: make for name, make in disorders.KINDS.items() if name != "early"}
KINDS |= {
    "coverage of sums": partial(op.AQKSlack, aggregate="sum", column="v", window=5),
    "numbers, quick": partial(op.Sequence, "3 us", at_least="1 us"),
}


@st.composite
def streams(draw: st.DrawFn) -> list[Moment]:
    """Draw events moment by moment: times and numbers mostly rise, and some are repeated."""
    event = st.tuples(
        st.sampled_from([0, 0, 1, 2]),
        st.sampled_from([0, 0, 0, 0, -1, -3, 2]),
        st.sampled_from([0, 0, 0, 1, -1, 2]),
        st.integers(0, 2),
        st.sampled_from(SOURCES),
    )
    told = st.none() | st.none() | st.integers(-3, 2)
    moments: list[Moment] = []
    time, numbers = 0, dict.fromkeys(SOURCES, 0)
    for drawn, off in draw(st.lists(st.tuples(st.lists(event, max_size=4), told), max_size=9)):
        events = []
        for step, aside, skipped, value, source in drawn:
            time += step
            numbers[source] += 1
            events.append((time + aside, numbers[source] + skipped, value, source))
        moments.append((events, None if off is None else time + off))
    return moments


class Run:
    """What an order gives for pieces of a stream."""

    def __init__(self, query: op.Query, sources: tuple[str, ...] | None) -> None:
        self._query, self._sources = query, sources
        self.order = self._made()
        self.given: list[tuple[int, int]] = []
        self.timed: list[int] = []
        self.late: list[int] = []
        #: The watermark that each of them met, where that decides what is corrected.
        self.met: list[tuple[int, int]] = []

    def _made(self) -> Order:
        disorder = bind_disorder(self._query, SCHEMA)
        return make_order(bind(self._query, SCHEMA), disorder, SCHEMA, self._sources)

    def push(self, rows: list[dict[str, Any]], told: int | None) -> None:
        more = {} if told is None else {"watermark": told}
        before = self.order.watermark
        events = EventsArrived(pa.Table.from_pylist(rows, SCHEMA), **more)
        self._take(self.order.push(events), before)

    def finish(self) -> tuple[Any, ...]:
        self._take(self.order.finish(), self.order.watermark)
        # Late events are told in any order.
        return self.given, sorted(self.late), self.order.watermark, sorted(self.met)

    def resume(self) -> None:
        state = State.decode(self.order.state().encode())
        self.order = self._made()
        self.order.restore(state)

    def _take(self, released: ReleasedEvents, before: int) -> None:
        rows = released.rows.to_pylist()
        self.given += [(row["id"], row["ts"]) for row in rows]
        self.timed += [row["id"] for row in rows if row["timed"]]
        if released.late is not None:
            late = released.late["id"].to_pylist()
            self.late += late
            met = [before] * len(late) if released.met is None else released.met.tolist()
            self.met += zip(late, met, strict=True) if self._query.corrects else ()


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(
    moments=streams(),
    joined=st.lists(st.booleans(), min_size=9, max_size=9),
    late=st.sampled_from(["drop", "pass", "side", "correct"]),
    order=st.sampled_from([("ts",), ("ts", "v")]),
    sources=st.sampled_from([None, SOURCES]),
    patience=st.none() | st.just("4 us"),
    saved=st.booleans(),
)
def test_any_cut_between_moments_gives_the_same(
    kind, moments, joined, late, order, sources, patience, saved
):
    settings: dict[str, Any] = {"late": late, "arrival": "at"}
    if late == "correct":
        settings["horizon"] = 2
    if sources is not None:
        settings["patience"] = patience
    if settings.get("patience") is not None or kind.startswith("numbers"):
        settings["flag"] = "timed"
    disorder: Disorder = KINDS[kind](**settings)
    query = QUERY.order_by(*order).disorder(disorder)
    at_once, in_pieces = Run(query, sources), Run(query, sources)
    rows: list[dict[str, Any]] = []
    fresh = 0
    for number, (events, told) in enumerate(moments):
        own = []
        for time, seq, value, source in events:
            one = (time, 2 * number, seq, value, fresh, source, False)
            own.append(dict(zip(SCHEMA.names, one, strict=True)))
            fresh += 1
        at_once.push(own, told)
        rows += own
        if told is not None or not joined[number] or number == len(moments) - 1:
            in_pieces.push(rows, told)
            rows = []
            if saved:
                in_pieces.resume()
    assert in_pieces.finish() == at_once.finish()
    assert in_pieces.timed == at_once.timed


def given_by(disorder: Disorder, *events: tuple[int, int, int, int]) -> tuple[Any, ...]:
    """Return what an order gives for events in one piece: a time, an arrival, a number, a value."""
    run = Run(QUERY.order_by("ts", "v").disorder(disorder), None)
    rows = [
        dict(zip(SCHEMA.names, (*event, place, "east", False), strict=True))
        for place, event in enumerate(events)
    ]
    run.push(rows, None)
    given, late, *_ = run.finish()
    return given, late


def test_events_of_one_time_are_late_by_those_that_arrived_before_them():
    events = (1, 0, 0, 5), (1, 1, 0, 4), (1, 1, 0, 6), (2, 2, 0, 0)
    assert given_by(op.InOrder(arrival="at"), *events) == ([(0, 1), (2, 1), (3, 2)], [1])
    # What passes comes behind the last, though the order puts it before that.
    passed = given_by(op.InOrder(arrival="at", late="pass"), *events)
    assert passed == ([(0, 1), (1, 1), (2, 1), (3, 2)], [1])


def test_numbers_that_rise_do_not_save_times_that_do_not():
    events = (5, 0, 1, 0), (3, 1, 2, 0), (6, 2, 3, 0)
    assert given_by(op.Sequence("1 s", arrival="at"), *events) == ([(0, 5), (2, 6)], [1])
    at_once = [(time, 0, number, value) for time, _, number, value in events]
    assert given_by(op.Sequence("1 s", arrival="at"), *at_once) == ([(1, 3), (0, 5), (2, 6)], [])


def test_what_was_waited_for_goes_on_before_what_arrives_later():
    """Numbers and times do not agree: the third event is waited for until 3, so the fourth is late.

    Where another source has fallen silent, too, however the stream is cut.
    """
    kind = op.Sequence("3 us", arrival="at", patience="4 us")
    query = QUERY.order_by("ts", "v").disorder(kind)
    events = [(10, 0, 1, 0), (12, 8, 2, 0), (40, 20, 4, 0), (12, 22, 1, 0), (20, 24, 5, 0)]
    rows = [
        dict(zip(SCHEMA.names, (*event, place, "east", False), strict=True))
        for place, event in enumerate(events)
    ]
    for cuts in ([0, 5], [0, 2, 5], [0, 1, 2, 3, 4, 5]):
        for sources in (None, SOURCES):
            plain = query.disorder(op.Sequence("3 us", arrival="at"))
            run = Run(plain if sources is None else query, sources)
            for low, high in pairwise(cuts):
                run.push(rows[low:high], None)
            assert run.finish()[:2] == ([(0, 10), (1, 12), (2, 40)], [3, 4]), (cuts, sources)


def test_after_an_error_what_was_waited_for_waits():
    run = Run(QUERY.order_by("ts").disorder(op.Sequence("3 us", arrival="at", ahead=30)), None)
    rows = [(5, 0, 1, 0, 0), (6, 1, 3, 0, 1), (99, 9, 4, 0, 2)]
    table = [dict(zip(SCHEMA.names, (*row, "east", False), strict=True)) for row in rows]
    run.push(table[:2], None)
    with pytest.raises(op.DataError, match="too far ahead"):
        run.push(table[2:], None)
    assert run.order.buffered == 1
    assert run.finish()[:2] == ([(0, 5), (1, 6)], [])


def test_after_an_error_in_a_late_moment_nothing_of_a_piece_is_taken():
    run = Run(QUERY.order_by("ts").disorder(op.InOrder(arrival="at", ahead=10)), None)
    rows = [(5, 0, 1, 0, 0), (3, 1, 2, 0, 1), (99, 2, 3, 0, 2)]
    table = [dict(zip(SCHEMA.names, (*row, "east", False), strict=True)) for row in rows]
    with pytest.raises(op.DataError, match="too far ahead"):
        run.push(table, None)
    run.push(table[:2], None)
    assert run.finish()[:2] == ([(0, 5)], [1])
