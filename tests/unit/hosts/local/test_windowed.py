"""Queries over windows in process: tables and streams give what windows and matches mean."""

from __future__ import annotations

import datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outpace as op
from outpace.engine.match.task import prepare
from outpace.engine.split.number import EventNumbers
from outpace.pattern.bind.window_kinds import bind_windows
from outpace.testing.window_definition import windows_by_definition
from outpace.testing.window_matches import CutWindow, windowed_matches


class EveryThird(op.windows.Predicate):
    """Opens at each event of kind 0, closes after as many events as the window's number says."""

    def opens(self, event, windows):
        return event["kind"] == 0

    def closes(self, event, window):
        return window.events > window.number % 4

    def clone(self):
        return EveryThird()


WINDOWS = (
    op.windows.count(5, slide=2),
    op.windows.count(3),
    op.windows.count(2, slide=5),
    op.windows.count(7, slide=1, offset=-4),
    op.windows.time(6, slide=2),
    op.windows.time(9, slide=1, offset=1),
    op.windows.time(4),
    op.windows.session(2),
    op.windows.between(open="kind = 0", close="kind = 2"),
    op.windows.between(predicate=EveryThird()),
    op.windows.landmark(),
    op.windows.landmark(at="kind = 1"),
)

DEFINED = {
    "A": "kind = 0",
    "B": "kind = 1",
    "C": "kind = 2",
    "DOWN": "kind < PREV(kind)",
    "UP": "kind > PREV(kind)",
}


def query_of(text: str, *names: str) -> op.Query:
    query = op.Query("windowed").order_by("ts").pattern(text)
    return query.define({name: DEFINED[name] for name in names}).measures(
        first="FIRST(ts)", last="LAST(ts)", count="COUNT(*)"
    )


QUERIES = (
    query_of("A -> B -> C", "A", "B", "C"),
    query_of("A -> B -> C", "A", "B", "C").no_skip(),
    query_of("A B+", "A", "B"),
    query_of("X DOWN+ UP+", "DOWN", "UP"),
    query_of("A -> B -> !C", "A", "B", "C").within(5),
    query_of("A ->> B", "A", "B"),
    query_of("A ->> B", "A", "B").limit(1, per="partition"),
)

TABLES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)), max_size=20
).map(
    lambda rows: pa.table(
        {
            "ts": np.cumsum([0, *(step for step, _, _ in rows)])[1:],
            "kind": pa.array([kind for _, kind, _ in rows], pa.int8()),
            "key": pa.array([key for *_, key in rows], pa.int64()),
        }
    )
)


def expected_rows(query: op.Query, table: pa.Table) -> list[dict[str, object]]:
    bound = prepare(query, table.schema).bound
    windows = bind_windows(query, table.schema)
    time = windows.time if bound.within is None else bound.time
    events = EventNumbers(bound.schema, bound.partition_by, time).number(table)
    arrivals = [np.flatnonzero(events.partition == number) for number in range(table.num_rows or 1)]
    timed = isinstance(query.windows, type(op.windows.time(1)))
    cut = [
        CutWindow(
            window.partition,
            window.number,
            arrivals[window.partition][window.first : window.stop].tolist(),
            window.closed_at,
            window.start_time,
            window.end_time if timed else None,
        )
        for window in windows_by_definition(windows, events)
    ]
    return [row for match in windowed_matches(query, table, cut) for row in match.output]


@st.composite
def queries(draw: st.DrawFn) -> op.Query:
    query = draw(st.sampled_from(QUERIES))
    query = query.over(
        draw(st.sampled_from(WINDOWS)), duplicates=draw(st.booleans()), numbered=draw(st.booleans())
    )
    return query.partition_by("key") if draw(st.booleans()) else query


@given(queries(), TABLES, st.randoms(use_true_random=False))
def test_a_table_gives_what_its_windows_mean(query, table, random) -> None:
    expected = expected_rows(query, table)
    assert op.match(table, query).to_pylist() == expected
    assert op.search(table, query).count() == len(expected)
    # Rows with different times may come in any order.
    order = list(range(table.num_rows))
    if len(set(table["ts"].to_pylist())) == len(order):
        random.shuffle(order)
        assert op.match(table.take(pa.array(order, pa.int64())), query).to_pylist() == expected


@given(queries(), TABLES, st.lists(st.integers(0, 20), max_size=5), st.booleans())
def test_a_stream_gives_the_same_however_it_is_cut(query, table, cuts, saved) -> None:
    matcher = op.open(query, schema=table.schema)
    bounds = sorted({0, table.num_rows, *(cut for cut in cuts if cut < table.num_rows)})
    rows = []
    for low, high in pairwise(bounds):
        rows += matcher.push(table.slice(low, high - low)).to_pylist()
        if saved:
            matcher = op.resume(query, matcher.state())
        if high < table.num_rows:
            rows += matcher.advance(table["ts"][high].as_py()).to_pylist()
    rows += matcher.finish().to_pylist()
    assert rows == expected_rows(query, table)
    assert matcher.rows_kept == 0


def test_numbers_name_the_event_and_the_window() -> None:
    table = pa.table({"ts": pa.array([0, 1_000_000, 2_000_000, 3_000_000], pa.timestamp("us"))})
    query = op.Query("pairs").order_by("ts").pattern("A B").measures(at="A.ts")
    query = query.over(op.windows.time("2 s", slide="1 s"), numbered=True, duplicates=True)
    second = datetime.timedelta(seconds=1)
    epoch = datetime.datetime(1970, 1, 1)
    assert op.match(table, query).to_pylist() == [
        {
            "at": epoch + number * second,
            "match_event": number + 1,
            "window": number,
            "window_start": epoch + number * second,
            "window_end": epoch + (number + 2) * second,
        }
        for number in range(3)
    ]


def test_a_number_may_not_have_the_name_of_another_column() -> None:
    query = op.Query("pairs").order_by("ts").pattern("A").measures(window="A.ts")
    with pytest.raises(op.BindError, match="has a column 'window' already"):
        op.match({"ts": [1]}, query.over(op.windows.count(2), numbered=True))


def test_time_closes_windows_without_events() -> None:
    query = query_of("A B*", "A", "B").over(op.windows.session(5))
    matcher = op.open(query)
    assert matcher.push({"ts": [1, 2], "kind": [0, 1]}).num_rows == 0
    assert matcher.advance(6).num_rows == 0
    assert matcher.advance(7).to_pylist() == [{"first": 1, "last": 2, "count": 2}]


def test_rows_that_go_back_are_refused_and_not_taken() -> None:
    matcher = op.open(query_of("A -> B", "A", "B").over(op.windows.count(9)))
    matcher.push({"ts": [1, 2], "kind": [0, 0]})
    with pytest.raises(op.DataError, match="row 1 of the pushed table comes before"):
        matcher.push({"ts": [3, 1], "kind": [1, 1]})
    assert matcher.push({"ts": [3], "kind": [1]}).num_rows == 1


def test_a_stream_that_failed_takes_no_more() -> None:
    query = op.Query("number").order_by("ts").pattern("A").define(A="CAST(text AS INT) > 0")
    matcher = op.open(query.measures(at="A.ts").over(op.windows.count(2)))
    with pytest.raises(op.OutpaceError, match="cast"):
        matcher.push({"ts": [1], "text": ["x"]})
    with pytest.raises(op.DataError, match="an earlier push failed"):
        matcher.push({"ts": [2], "text": ["1"]})


@pytest.mark.parametrize("asked", ["timed_out", "why", "why_not"])
def test_what_looks_at_partitions_is_refused_for_windows(asked: str) -> None:
    found = op.search({"ts": [1], "kind": [0]}, QUERIES[0].over(op.windows.count(2)))
    arguments = {"timed_out": (), "why": (0,), "why_not": ([0],)}[asked]
    with pytest.raises(op.UnsupportedError, match=f"{asked} looks at partitions"):
        getattr(found, asked)(*arguments)


def test_timeouts_in_windows_are_refused() -> None:
    with pytest.raises(op.UnsupportedError, match="do not time out"):
        op.open(QUERIES[0].over(op.windows.count(2)), timeouts=True)


def test_the_state_of_a_query_without_windows_is_refused() -> None:
    query = op.Query("q").order_by("ts").pattern("A B").measures(at="A.ts")
    matcher = op.open(query)
    matcher.push({"ts": [1]})
    with pytest.raises(op.StateError, match="belongs to a query without windows"):
        op.resume(query.over(op.windows.count(2)), matcher.state())


@pytest.mark.parametrize(
    ("time", "windows"),
    [
        (2**62 - 1, op.windows.time(5, slide=1)),
        (-(2**62), op.windows.time(5, slide=1, offset=3)),
        (2**62 - 1, op.windows.time(2**60, slide=2**56, offset=-(2**60))),
        (2**62 - 1, op.windows.time(1, offset=-(2**60))),
        (-(2**62), op.windows.time(1, offset=2**60)),
    ],
)
def test_a_stream_goes_on_from_its_state_at_the_ends_of_time(time, windows) -> None:
    query = op.Query().order_by("ts").over(windows).pattern("A").measures(at="A.ts")
    stream = op.open(query)
    stream.push({"ts": [time]})
    went_on = op.resume(query, stream.state())
    assert went_on.finish().equals(stream.finish())
