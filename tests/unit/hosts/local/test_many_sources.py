"""A stream of many sources gives what the sorted table gives, whoever speaks when."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

import outpace as op

CHAIN = (
    op.Query("chain")
    .order_by("ts")
    .pattern("A -> B -> C")
    .define({name: f"kind = '{name.lower()}'" for name in "ABC"})
    .measures(first="A.ts", mid="B.seq", last="C.ts")
)
ABSENCE = (
    op.Query("absence")
    .order_by("ts")
    .pattern("A -> !B")
    .define(A="kind = 'a'", B="kind = 'b'")
    .measures(first="A.ts")
    .within(3)
)


def test_a_heartbeat_releases_what_waits():
    matcher = op.open(CHAIN, sources=["a", "b"])
    rows = {"ts": [1, 2, 3], "kind": ["a", "b", "c"], "seq": [0, 1, 2]}
    assert matcher.push(rows, source="a").num_rows == 0
    assert matcher.heartbeat("b", 3).num_rows == 0
    assert matcher.heartbeat("b", 4).to_pylist() == [{"first": 1, "mid": 1, "last": 3}]


def test_a_source_that_ends_releases_what_waits():
    matcher = op.open(CHAIN, sources=["a", "b"])
    rows = {"ts": [1, 2, 3], "kind": ["a", "b", "c"], "seq": [0, 1, 2]}
    assert matcher.push(rows, source="a").num_rows == 0
    assert matcher.finish("b").num_rows == 1
    assert matcher.finish().num_rows == 0


def test_heartbeats_of_all_sources_let_a_deadline_pass():
    matcher = op.open(ABSENCE, sources=["a", "b"])
    matcher.push({"ts": [1], "kind": ["a"], "seq": [0]}, source="a")
    assert matcher.heartbeat("a", 4).num_rows == 0
    assert matcher.heartbeat("b", 3).num_rows == 0
    assert matcher.heartbeat("b", 4).to_pylist() == [{"first": 1}]


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_heartbeats_are_times_of_the_column(unit):
    matcher = op.open(CHAIN, sources=["a", "b"])
    start = datetime.datetime(2026, 1, 1)
    times = pa.array([start + datetime.timedelta(seconds=n) for n in range(3)], pa.timestamp(unit))
    matcher.push(pa.table({"ts": times, "kind": list("abc"), "seq": [0, 1, 2]}), source="a")
    assert matcher.heartbeat("b", start + datetime.timedelta(seconds=2)).num_rows == 0
    assert matcher.heartbeat("b", start + datetime.timedelta(seconds=2.5)).num_rows == 1


def test_events_without_numbers_are_counted():
    kinds = {name: f"kind = '{name.lower()}'" for name in "ABC"}
    query = op.Query().order_by("ts").pattern("A -> B -> C").define(kinds).measures(last="C.ts")
    matcher = op.open(query, sources=["a", "b"])
    matcher.push({"ts": [1, 1], "kind": ["x", "b"]}, source="b")
    found = matcher.push({"ts": [1, 1, 1], "kind": ["a", "x", "c"]}, source="a")
    assert found.to_pylist() == [{"last": 1}]


def test_what_does_not_fit_the_sources_is_refused():
    rows = {"ts": [1], "kind": ["a"], "seq": [0]}
    with pytest.raises(op.DataError, match="opened without sources"):
        op.open(CHAIN).push(rows, source="a")
    matcher = op.open(CHAIN, sources=["a", "b"])
    with pytest.raises(op.DataError, match="before the first push"):
        matcher.heartbeat("a", 1)
    with pytest.raises(op.DataError, match="the source of the rows is missing"):
        matcher.push(rows)
    with pytest.raises(op.DataError, match="there is no source 'c'"):
        matcher.push(rows, source="c")
    with pytest.raises(op.DataError, match="time passes by source"):
        matcher.advance(1)
    matcher.push(rows, source="a")
    with pytest.raises(op.DataError, match="event 0 of source 'a' is late"):
        matcher.push(rows, source="a")
    with pytest.raises(op.BindError, match="rising time"):
        op.open(CHAIN.order_by("ts desc"), sources=["a"]).push(rows, source="a")
    with pytest.raises(op.DataError, match="identifiers that differ"):
        op.open(CHAIN, sources=["a", "a"])


@pytest.mark.parametrize("time", ["1", 1.5, datetime.datetime(2020, 1, 1), 1 << 63])
def test_what_is_no_time_of_the_column_is_refused(time):
    rows = {"ts": [1], "kind": ["a"], "seq": [0]}
    matcher = op.open(CHAIN, sources=["a"])
    matcher.push(rows, source="a")
    with pytest.raises(op.DataError, match="is no time of a column of type bigint"):
        matcher.heartbeat("a", time)
    alone = op.open(CHAIN.over(op.windows.time(5)))
    alone.push(rows)
    with pytest.raises(op.DataError, match="is no time of a column of type bigint"):
        alone.advance(time)


def test_only_a_query_can_be_opened():
    with pytest.raises(op.BindError, match="a query is expected, not an object of type str"):
        op.open("A B", sources=["a"])


def test_who_is_too_far_ahead_is_told():
    matcher = op.open(CHAIN, sources=["a", "b"])
    rows = {"ts": [1, 2, 3], "kind": ["a", "b", "c"], "seq": [0, 1, 2]}
    assert matcher.wants("a")
    assert not matcher.wants("c")
    matcher.push(rows, source="a")
    assert matcher.wants("a")
    assert matcher.wants("b")


def test_the_end_of_the_last_source_decides_nothing_but_the_order():
    """That the input ends is said by `finish()`, which closes windows and settles the rest."""
    windows = CHAIN.over(op.windows.time(10))
    matcher = op.open(windows, sources=["a", "b"])
    rows = {"ts": [-3, 2, 3, 4], "kind": ["x", "a", "b", "c"], "seq": [0, 1, 2, 3]}
    found = matcher.push(rows, source="a").to_pylist() + matcher.finish("a").to_pylist()
    found += matcher.finish("b").to_pylist() + matcher.finish().to_pylist()
    assert found == op.match(pa.table(rows), windows).to_pylist()
    assert found


@pytest.mark.filterwarnings("error")
def test_an_event_without_a_time_that_waits_for_its_number_is_put_aside_in_turn():
    query = op.Query("all").order_by("ts").pattern("A").measures(ts="A.ts")
    gapless = op.Sequence("1 s", arrival="at", invalid="quarantine")
    stream = op.open(query.disorder(gapless), sources=["east", "west"])
    columns = pa.schema(dict.fromkeys(("ts", "seq", "at"), pa.int64()) | {"source": pa.string()})
    found, invalid = [], []
    for at, east, west in ((1, (1, 0), (1, 0)), (2, (None, 2), (3, 1)), (3, (2, 1), (5, 2))):
        sent = zip(("east", "west"), (east, west), strict=True)
        events = [{"ts": ts, "seq": seq, "at": at, "source": one} for one, (ts, seq) in sent]
        found += stream.push(pa.Table.from_pylist(events, columns))["ts"].to_pylist()
        invalid.append(stream.invalid["seq"].to_pylist())
    assert found + stream.finish()["ts"].to_pylist() == [1, 1, 2, 3, 5]
    assert invalid == [[], [], [2]]
