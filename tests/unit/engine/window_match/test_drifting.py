"""Windows with a drift give LOW, MIDDLE, HIGH and their average, as they are defined."""

from __future__ import annotations

import datetime
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.engine.message import EventsArrived, SourceEnded
from outpace.engine.operator import WholeOperator, emit_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.whole import match_whole
from outpace.engine.window_match.result import WindowMatches
from outpace.testing.simulation.meaning import cut_windows
from outpace.testing.window_matches import drifted_rows

WINDOWS = (
    (op.windows.time(6), 2),
    (op.windows.time(6), 5),
    (op.windows.time(7, slide=2, offset=1), 3),
    (op.windows.time(3, slide=5), 1),
    (op.windows.count(3), 2),
    (op.windows.count(4, slide=2, offset=-3), 3),
    (op.windows.count(2, slide=5), 1),
    (op.windows.session(4), 2),
    (op.windows.session(3), 1),
)
MEASURES = {
    "total": "SUM(v)",
    "mean": "AVG(v)",
    "least": "MIN(v)",
    "most": "MAX(v)",
    "rows": "COUNT(*)",
}
PATTERNS = (
    op.Query("all").pattern("A+"),
    op.Query("part").pattern("^ X* -> (A | X)+").define(A="kind = 1", X="kind <> 1"),
    op.Query("first").pattern("A -> B").define(A="kind = 0", B="kind = 1").limit(1),
    op.Query("any").pattern("A ->> B").define(A="kind = 0", B="kind = 1").limit(1),
)
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 4), st.integers(0, 2), st.integers(0, 1), st.none() | st.integers(0, 9)
    ),
    min_size=1,
    max_size=30,
)


@st.composite
def cases(draw) -> tuple[op.Query, pa.Table]:
    windows, drift = draw(st.sampled_from(WINDOWS))
    query = draw(st.sampled_from(PATTERNS)).order_by("ts").measures(MEASURES)
    query = query.over(windows, drift=drift, numbered=draw(st.booleans()))
    if draw(st.booleans()):
        query = query.partition_by("key")
    waits, kinds, keys, values = zip(*draw(EVENTS), strict=True)
    times = [sum(waits[: place + 1]) for place in range(len(waits))]
    columns = {"ts": times, "kind": kinds, "key": keys, "v": pa.array(values, pa.int64())}
    return query, pa.table(columns)


@examples(60)
@given(cases())
def test_a_table_gives_what_the_three_windows_mean(case) -> None:
    query, table = case
    expected = drifted_rows(query, table, cut_windows(query, table))
    assert op.match(table, query).to_pylist() == expected
    assert op.search(table, query).count() == len(expected)


@examples(40)
@given(cases(), st.lists(st.integers(0, 30), max_size=5), st.booleans())
def test_a_stream_gives_the_same_with_the_same_ids_however_it_is_cut(case, cuts, saved) -> None:
    query, table = case
    spec = OperatorSpec(query, table.schema)
    operator, found = WholeOperator(spec), []
    bounds = [0, *sorted(min(cut, len(table)) for cut in cuts), len(table)]
    pieces = [EventsArrived(table.slice(low, high - low)) for low, high in pairwise(bounds)]
    for stimulus in (*pieces, SourceEnded()):
        found.append(emit_of(operator.step(stimulus)).matches)
        if saved:
            state, operator = operator.state(), WholeOperator(spec)
            operator.restore(state)
    given_matches, whole = WindowMatches.joined(spec.bound.output, found), match_whole(spec, table)
    assert given_matches == whole
    assert len({tuple(words) for words in whole.ids.words.tolist()}) == len(whole)


@examples(30)
@given(cases())
def test_windows_by_time_and_count_are_three_plain_queries(case) -> None:
    drifting, table = case
    windows, drift = drifting.windows, drifting.drift
    if isinstance(windows, type(op.windows.session(1))):
        return
    make = op.windows.time if isinstance(windows, type(op.windows.time(1))) else op.windows.count
    expected: dict[tuple[object, ...], dict[str, object]] = {}
    shifts = {"low": -(drift // 2), "middle": 0, "high": drift - drift // 2}
    for name, shift in shifts.items():
        shifted = make(windows.size, windows.slide, windows.offset + shift)
        plain = drifting.over(shifted, duplicates=True, numbered=True)
        for row in op.match(table, plain).to_pylist():
            expected.setdefault((row.get("key"), row["window"]), {})[name] = row["rows"]
    given_rows = op.match(table, drifting.over(windows, drift=drift, numbered=True)).to_pylist()
    assert {
        (row.get("key"), row["window"]): {
            name: row[f"rows_{name}"] for name in shifts if row[f"rows_{name}"] is not None
        }
        for row in given_rows
    } == expected


def test_the_average_leaves_out_what_is_not_there() -> None:
    table = pa.table({"ts": [95, 205], "v": [1.0, None]})
    query = op.Query().order_by("ts").pattern("A+").measures(v="SUM(A.v)")
    rows = op.match(table, query.over(op.windows.time(100), drift=20)).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (1.0, None, 1.0, 1.0, 0.0),
        (1.0, 1.0, None, None, None),
        (None, None, None, None, None),
    ]


def test_a_row_comes_when_the_latest_window_has_closed() -> None:
    query = op.Query().order_by("ts").pattern("A+").measures(v="SUM(A.v)")
    stream = op.open(query.over(op.windows.time(100), drift=20))
    assert stream.push({"ts": [50, 109], "v": [1, 2]}).num_rows == 0
    assert stream.open_windows == 2
    (row,) = stream.push({"ts": [110], "v": [4]}).to_pylist()
    assert row == {"v": 5 / 3, "v_low": 1, "v_middle": 1, "v_high": 3, "v_spread": 2.0}


def test_durations_are_halved_to_the_microsecond() -> None:
    instants = [
        datetime.datetime(2026, 1, 1) + datetime.timedelta(microseconds=us) for us in (3, 4)
    ]
    table = pa.table({"ts": pa.array(instants, pa.timestamp("us")), "v": [1, 2]})
    query = op.Query().order_by("ts").pattern("A+").measures(v="SUM(A.v)")
    drifting = query.over(op.windows.time("1 s"), drift=datetime.timedelta(microseconds=7))
    rows = op.match(table, drifting).to_pylist()
    # HIGH begins 3.5 microseconds later: the event at 3 is before it.
    assert [(row["v_low"], row["v_middle"], row["v_high"]) for row in rows] == [
        (None, None, 1),
        (3, 3, 2),
    ]


def test_many_keys_give_what_each_gives_alone() -> None:
    count = 1200
    table = pa.table(
        {"ts": range(count), "key": [n * 7919 % 400 for n in range(count)], "v": range(count)}
    )
    query = op.Query().order_by("ts").partition_by("key").pattern("A+").measures(v="SUM(A.v)")
    for windows, drift in ((op.windows.time(900), 200), (op.windows.session(500), 100)):
        drifting = query.over(windows, drift=drift)
        stream = op.open(drifting)
        parts = [stream.push(table.slice(low, 8)) for low in range(0, count, 8)]
        found = pa.concat_tables([*parts, stream.finish()])
        assert found.equals(op.match(table, drifting))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.decimal128(9, 2)])
def test_measures_of_every_kind_of_number(kind) -> None:
    table = pa.table({"ts": [1, 9], "v": pa.array([1, 2], pa.int8()).cast(kind)})
    query = op.Query().order_by("ts").pattern("A+").measures(v="MAX(A.v)")
    found = op.match(table, query.over(op.windows.time(10), drift=4))
    assert found.schema.field("v_low").type == kind
    assert found.column("v").to_pylist()[-2:] == [pytest.approx(5 / 3), 2.0]
