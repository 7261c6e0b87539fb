"""Event times in range, and what is refused."""

import datetime

import pyarrow as pa
import pytest

import outpace as op
from outpace.engine.rows.times import time_limits, valid_times
from outpace.errors import BindError, DataError
from outpace.plan.stream_plan import plan_stream

PAIRS = (
    op.Query("pairs")
    .order_by("ts")
    .pattern("A -> B")
    .within(10)
    .define(A="kind = 'a'", B="kind = 'b'")
    .measures(a="A.ts", b="B.ts")
)
FAR = 1 << 62


def events(*times):
    kinds = ["ab"[number % 2] for number in range(len(times))]
    return pa.table({"ts": pa.array(times, pa.int64()), "kind": kinds})


@pytest.mark.parametrize("times", [(-FAR, FAR), (0, 2**63 - 1), (-(2**63), -(2**63) + 1), (5, FAR)])
@pytest.mark.parametrize(
    "query", [PAIRS, PAIRS.over(op.windows.count(2))], ids=["whole", "windows"]
)
def test_times_that_cannot_be_subtracted_are_refused_by_tables_and_streams(query, times):
    wrong = next(time for time in times if not -FAR <= time < FAR)
    for run in (op.match, lambda table, asked: op.open(asked).push(table)):
        with pytest.raises(DataError, match=f"the time 'ts' is out of range: {wrong}"):
            run(events(*times), query)


@pytest.mark.parametrize("query", [PAIRS, PAIRS.select("all"), PAIRS.over(op.windows.time(10))])
def test_the_largest_and_least_times_match_as_others(query):
    times = [-FAR, 3 - FAR, FAR - 5, FAR - 1]
    expected = [(-FAR, 3 - FAR), (FAR - 5, FAR - 1)]
    if query.windows is not None:
        # Windows are aligned to 0.
        expected = [pair for pair in expected if pair[0] // 10 == pair[1] // 10]
    matcher = op.open(query)
    found = [*matcher.push(events(*times)).to_pylist(), *matcher.advance(2**63 - 1).to_pylist()]
    whole = op.match(events(*times), query).to_pylist()
    assert [(match["a"], match["b"]) for match in whole] == expected
    assert [(match["a"], match["b"]) for match in found] == expected


def test_a_refused_push_leaves_the_stream_as_it_was():
    matcher = op.open(PAIRS)
    matcher.push(events(1))
    with pytest.raises(DataError, match="out of range"):
        matcher.push(events(2, FAR))
    assert matcher.push(pa.table({"ts": [3], "kind": ["b"]})).to_pylist() == [{"a": 1, "b": 3}]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_instants_outside_of_the_calendar_are_refused_in_their_own_units(unit):
    kind = pa.timestamp(unit)
    low, stop = time_limits(kind)
    assert valid_times("at", pa.array([low, stop - 1], pa.int64()).view(kind)).tolist() == [
        -62_135_596_800_000_000,
        253_402_300_800_000_000 - 10**6 // {"s": 1, "ms": 10**3, "us": 10**6}[unit],
    ]
    for wrong in (low - 1, stop, 2**63 - 1):
        with pytest.raises(DataError, match=f"the time 'at' is out of range: {wrong}") as caught:
            valid_times("at", pa.array([low, wrong], pa.int64()).view(kind), range(2))
        assert caught.value.detail == "row 1 of the input, counted from 0"


def test_a_stream_sets_times_out_of_range_aside():
    disorder = op.KSlack(2, invalid="quarantine")
    matcher = op.open(PAIRS.disorder(disorder))
    matcher.push(events(1, FAR))
    assert matcher.invalid["reason"].to_pylist() == [f"the time 'ts' is out of range: {FAR}"]
    packing = plan_stream(PAIRS.disorder(disorder), events(1).schema, 1).division.packing
    good, aside = packing._without_invalid(events(1, FAR))
    assert good["ts"].to_pylist() == [1]
    assert aside["reason"].to_pylist() == [f"the time 'ts' is out of range: {FAR}"]


def test_a_bound_that_cannot_be_added_to_a_time_is_refused():
    for query, kind in [
        (PAIRS.within(FAR + 1), pa.int64()),
        (PAIRS.within(datetime.timedelta(days=999_999_999)), pa.timestamp("us")),
    ]:
        with pytest.raises(BindError, match="within is too large"):
            op.match(pa.table({"ts": pa.array([], kind), "kind": pa.array([], pa.string())}), query)
