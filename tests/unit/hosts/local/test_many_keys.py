"""Keys that fall silent, die and come back: a stream gives what a table gives, and as early."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.operators import FedOperator
from support.properties import examples

import outpace as op
from outpace.engine.match.task import prepare
from outpace.engine.match.twin import TwinMatcher

SCHEMA = pa.schema({"ts": pa.int64(), "id": pa.int64(), "kind": pa.string(), "key": pa.int64()})


def query(pattern: str) -> op.Query:
    return (
        op.Query("q")
        .partition_by("key")
        .order_by("ts")
        .pattern(pattern)
        .define({name: f"kind = '{name.lower()}'" for name in "ABC" if name in pattern})
        .measures(first="FIRST(id)", last="LAST(id)", labels="ARRAY_AGG(CLASSIFIER())")
    )


def numbered(asked: op.Query) -> op.Query:
    return asked.measures(n="MATCH_NUMBER()", last="LAST(id)")


QUERIES = {
    "strict": query("A B+ C").within(6),
    "next": query("A -> B -> C").within(6),
    "every start": query("A -> B").within(6).skip_to_next_row(),
    "all matches": query("A ->> B ->> C").within(6).select("all"),
    "absence at the end": query("A -> !B").within(6),
    "absence of all": query("A ->> B -> !C").within(6).select("all"),
    "absence right after": query("A !B").within(6),
    "step by step": query("A -> B+ -> C").within(4, "previous to current"),
    "absence step by step": query("A -> B -> !C").within(4, "previous to current"),
    "consumed": query("A ->> B").within(6).select("all").consume("selected"),
    "numbered": numbered(query("A -> B").within(6)),
    "limited": query("A -> B").within(6).limit(2, per="partition"),
    "first rows": query("^ A -> B").within(6),
    "last rows": query("A B $").within(6),
    "looking back": query("A B").define(A="kind = 'a'", B="PREV(kind, 2) = 'c'").within(6),
    "looking ahead": query("A B").define(A="kind = 'a'", B="NEXT(kind) = 'c'").within(6),
    "no bound": query("A B"),
    "no bound, numbered": numbered(query("A B")),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Return few events of few keys, with silences in which all that waits dies."""
    size = draw(st.sampled_from([0, 6, 12, 18]))
    gaps = draw(st.lists(st.sampled_from([0, 1, 1, 2, 6]), min_size=size, max_size=size))
    kinds = draw(st.lists(st.sampled_from("abababc"), min_size=size, max_size=size))
    keys = draw(st.lists(st.sampled_from([0, 0, 0, 1, 1, 2]), min_size=size, max_size=size))
    times = list(itertools.accumulate(gaps))
    return pa.table([times, list(range(size)), kinds, keys], SCHEMA)


def known_early(asked: op.Query, table: pa.Table, time: int) -> list[dict[str, object]]:
    """Return what is final of a beginning of a stream, when it is all matched at once."""
    matcher = op.open(asked, schema=SCHEMA)
    return matcher.push(table).to_pylist() + matcher.advance(time).to_pylist()


@pytest.mark.parametrize("name", QUERIES)
@examples(12)
@given(
    table=tables(),
    rows=st.sampled_from([1, 2, 7]),
    waits=st.lists(st.sampled_from([0, 1, 4, 6]), min_size=1, max_size=3),
    resumed=st.lists(st.booleans(), min_size=1, max_size=2),
)
def test_any_cut_gives_the_same_matches_and_none_later(
    name: str, table: pa.Table, rows: int, waits: list[int], resumed: list[bool]
) -> None:
    """After each piece time passes, up to the next event, and another process may go on."""
    asked = QUERIES[name]
    times = table.column("ts").to_pylist()
    matcher = op.open(asked, schema=SCHEMA)
    found: list[dict[str, object]] = []
    turns = zip(itertools.cycle(waits), itertools.cycle(resumed), strict=False)
    for begin, (wait, again) in zip(range(0, len(times), rows), turns, strict=False):
        found += matcher.push(table.slice(begin, rows)).to_pylist()
        end = min(begin + rows, len(times))
        time = min([times[end - 1] + wait, *times[end : end + 1]])
        found += matcher.advance(time).to_pylist()
        early = known_early(asked, table.slice(0, end), time)
        assert sorted(map(repr, found)) == sorted(map(repr, early))
        if again:
            matcher = op.resume(asked, matcher.state())
    found += matcher.finish().to_pylist()
    whole = op.match(table, asked).to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, whole))


@pytest.mark.parametrize("name", ["next", "absence at the end", "step by step", "every start"])
@examples(40)
@given(table=tables(), cuts=st.lists(st.integers(0, 16), max_size=5), resumed=st.booleans())
def test_partial_matches_time_out_in_one_order_however_a_stream_is_cut(
    name: str, table: pa.Table, cuts: list[int], resumed: bool
) -> None:
    task = prepare(QUERIES[name], SCHEMA, timeouts=True)

    def late(places: list[int]) -> list[dict[str, object]]:
        operator = FedOperator(task.bound.query, SCHEMA, given=task, choose=TwinMatcher)
        found = []
        for begin, end in itertools.pairwise([0, *places, table.num_rows]):
            found += operator.push(table.slice(begin, end - begin)).timed_out.to_pylist()
            if resumed:
                state = operator.state()
                operator = FedOperator(task.bound.query, SCHEMA, given=task, choose=TwinMatcher)
                operator.restore(state)
        return found + operator.advance(1000).timed_out.to_pylist()

    assert late(sorted(min(cut, table.num_rows) for cut in cuts)) == late([])


@pytest.mark.parametrize("name", [name for name in QUERIES if QUERIES[name].bound is not None])
@examples(8)
@given(table=tables(), rows=st.sampled_from([1, 5, 18]))
@example(table=pa.table([[1, 2, 9], range(3), [*"aab"], [0, 0, 1]], SCHEMA), rows=3)
def test_a_table_has_the_partial_matches_that_time_out_in_its_stream(
    name: str, table: pa.Table, rows: int
) -> None:
    matcher = op.open(QUERIES[name], schema=SCHEMA, timeouts=True)
    found = []
    for begin in range(0, table.num_rows, rows):
        matcher.push(table.slice(begin, rows))
        found += matcher.timed_out.to_pylist()
    matcher.finish()
    found += matcher.timed_out.to_pylist()
    whole = op.search(table, QUERIES[name]).timed_out().to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, whole))


#: Both starts of a key become final with the second event of another; both ends do for each start.
TOGETHER = pa.table([[26, 27, 30, 31, 36], range(5), [*"aabbc"], [0, 0, 0, 0, 1]], SCHEMA)


@pytest.mark.parametrize("name", ["absence at the end", "absence of all"])
@examples(40)
@given(table=tables(), cuts=st.lists(st.integers(0, 16), max_size=5))
@example(table=TOGETHER, cuts=[])
@example(table=TOGETHER, cuts=[1, 2, 3, 4])
def test_matches_come_in_one_order_however_a_stream_is_cut(
    name: str, table: pa.Table, cuts: list[int]
) -> None:
    asked = numbered(QUERIES[name])
    matcher = op.open(asked, schema=SCHEMA)
    found = []
    places = sorted(min(cut, table.num_rows) for cut in cuts)
    for begin, end in itertools.pairwise([0, *places, table.num_rows]):
        found += matcher.push(table.slice(begin, end - begin)).to_pylist()
    assert found == known_early(asked, table, 0)
    found += matcher.finish().to_pylist()
    # Keys come as they become final; each has the order that it has in a table.
    by_key = sorted(found, key=lambda row: row["key"])
    assert by_key == sorted(op.match(table, asked).to_pylist(), key=lambda row: row["key"])


def operator_of(name: str) -> FedOperator:
    return FedOperator(QUERIES[name], SCHEMA)


def one_event_each(keys: range, kind: str, time: int) -> pa.Table:
    columns = [[time] * len(keys), list(keys), [kind] * len(keys), list(keys)]
    return pa.table(columns, SCHEMA)


@pytest.mark.parametrize(
    "name", ["strict", "next", "all matches", "absence at the end", "step by step", "numbered"]
)
@pytest.mark.parametrize("passes", ["by watermark", "by an event"])
def test_nothing_is_kept_of_a_key_after_its_time(name: str, passes: str) -> None:
    operator = operator_of(name)
    for first in range(0, 3000, 100):
        operator.push(one_event_each(range(first, first + 100), "a", first // 1000))
    assert operator.rows_kept == operator.partitions_kept == 3000
    if passes == "by watermark":
        operator.advance(8)
    else:
        operator.push(one_event_each(range(5000, 5001), "x", 8))
    assert operator.rows_kept == operator.partitions_kept == 0
    fresh = operator_of(name)
    fresh.push(one_event_each(range(5000, 5001), "x", 8))
    assert abs(len(operator.state()) - len(fresh.state())) < 16


def test_keys_go_as_their_time_passes_not_all_at_once() -> None:
    operator = operator_of("next")
    for time in range(20):
        operator.push(one_event_each(range(time * 10, time * 10 + 10), "a", time))
        assert operator.partitions_kept == min(time + 1, 6) * 10


@pytest.mark.parametrize(
    ("name", "partitions", "rows"),
    [("numbered", 1, 0), ("limited", 1, 0), ("first rows", 3, 0), ("looking back", 3, 5)],
)
def test_of_silent_keys_only_what_later_rows_need_is_kept(
    name: str, partitions: int, rows: int
) -> None:
    operator = operator_of(name)
    operator.push(pa.table([[0] * 5, list(range(5)), list("abacx"), [1, 1, 2, 2, 3]], SCHEMA))
    operator.advance(100)
    assert (operator.partitions_kept, operator.rows_kept) == (partitions, rows)


def test_keys_of_refused_rows_are_not_kept() -> None:
    operator = operator_of("next")
    operator.push(one_event_each(range(3), "a", 5))
    with pytest.raises(op.DataError, match="comes before rows that were already taken"):
        operator.push(one_event_each(range(10, 20), "a", 4))
    assert operator.partitions_kept == 3


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([math.nan, 0.0, math.nan, -0.0]),
        pa.array(np.array([0x7FF8 << 48, 0, 0xFFF8 << 48, 1 << 63], np.uint64).view(np.float64)),
        pa.DictionaryArray.from_arrays([0, 1, 2, 3], pa.array([math.nan, 0.0, -math.nan, -0.0])),
        pa.array([1, None, 1, None]),
        pa.array(["a", "b", "a", "b"]).dictionary_encode(),
    ],
)
@pytest.mark.parametrize("resumed", [False, True])
def test_a_key_is_the_same_in_every_piece(keys: pa.Array, resumed: bool) -> None:
    table = pa.table({"ts": [1, 2, 3, 4], "kind": list("aabb"), "id": range(4), "key": keys})
    matcher = op.open(QUERIES["every start"], schema=table.schema)
    found = []
    for row in range(4):
        found += matcher.push(table.slice(row, 1)).to_pylist()
        if resumed:
            matcher = op.resume(QUERIES["every start"], matcher.state())
    whole = op.match(table, QUERIES["every start"]).to_pylist()
    for result in (found, whole):
        assert [(match["first"], match["last"]) for match in result] == [(0, 2), (1, 3)]
