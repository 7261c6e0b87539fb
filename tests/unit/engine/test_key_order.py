"""Matches of different keys come in one order, however events and time come."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace import windows
from outpace.engine.codec.cell import CellKind
from outpace.plan.stream_plan import plan_stream
from outpace.testing.simulation.queries import Sums, Total
from outpace.testing.stream_chain import Chain

SCHEMA = pa.schema([("ts", pa.int64()), ("key", pa.string()), ("v", pa.int64())])

#: Events are out of order by less than this.
SLACK = 4

#: A time that closes all windows.
END = 10_000


def by_key() -> op.Query:
    return op.Query("q").partition_by("key").order_by("ts").disorder(op.KSlack(SLACK))


def large() -> op.Query:
    """Events without a value are of no use."""
    query = by_key().pattern("A+ $").define(A="v > 0")
    return query.measures(first="FIRST(A.ts)", n="COUNT(*)")


def shaped(pattern: str) -> op.Query:
    conditions = {"A": "v > 0", "B": "v = 2", "C": "v = 0"}
    used = {name: condition for name, condition in conditions.items() if name in pattern}
    query = by_key().pattern(pattern).define(**used)
    return query.measures(first="FIRST(ts)", last="LAST(ts)", n="COUNT(*)")


def plain() -> st.SearchStrategy[op.Query]:
    """Draw a query without windows, of which rows or time make matches final."""
    bounded = st.builds(
        lambda pattern, bound, after: after(bound(shaped(pattern))),
        st.sampled_from(["A+", "A B*", "A -> B", "A -> !C", "B+? -> A*", "A -> C? -> B"]),
        st.sampled_from(
            [lambda query: query.within(5), lambda query: query.within(6, "previous to current")]
        ),
        st.sampled_from(
            [
                lambda query: query,
                lambda query: query.no_skip(),
                lambda query: query.skip_to_next_row(),
                lambda query: query.select("all"),
                lambda query: query.select("all").no_skip().limit(2, per="start"),
            ]
        ),
    )
    ahead = by_key().pattern("A B").define(A="v > 0", B="NEXT(v) > 0").measures(n="COUNT(*)")
    uncertain = shaped("A -> B").within(5).select("all").uncertain(2)
    return bounded | st.sampled_from([ahead.within(5), uncertain, *endless()])


def endless() -> list[op.Query]:
    """Return queries of which the end alone may make matches final."""
    return [shaped("A+ $").within(4), shaped("A B*")]


def queries() -> st.SearchStrategy[op.Query]:
    one = by_key().pattern("A").define(A="v > 0").measures(at="A.ts", n="COUNT(*)").no_skip()
    numbered = st.booleans()
    over = st.sampled_from(
        [windows.session(3), windows.time(5), windows.time(6, slide=2), windows.time(3, slide=4)]
    )
    whole = st.builds(
        lambda query, kind, shown, every: query.over(kind, numbered=shown, duplicates=every),
        st.sampled_from([large(), one, by_key().apply(Total), by_key().apply(Sums)]),
        over,
        numbered,
        st.booleans(),
    ).filter(lambda query: query.operator is None or not query.duplicates)
    uncertain = one.within(9).over(windows.time(6, slide=2), duplicates=True).uncertain(2)
    drifting = by_key().pattern("A").define(A="v > 0").measures(n="COUNT(*)").limit(1)
    return (
        plain()
        | whole
        | st.sampled_from([uncertain, drifting.over(windows.session(4), drift=2, numbered=True)])
    )


@st.composite
def events(draw: st.DrawFn) -> pa.Table:
    """Draw events out of order by less than the slack."""
    size = draw(st.integers(1, 24))
    gaps = draw(st.lists(st.sampled_from([0, 1, 1, 2, 7]), min_size=size, max_size=size))
    delays = draw(st.lists(st.integers(0, SLACK - 1), min_size=size, max_size=size))
    times = [sum(gaps[: place + 1]) for place in range(size)]
    order = sorted(range(size), key=lambda place: times[place] + delays[place])
    key = draw(st.lists(st.sampled_from("abcd"), min_size=size, max_size=size))
    value = draw(st.lists(st.sampled_from([0, 1, 2]), min_size=size, max_size=size))
    columns = [[some[place] for place in order] for some in (times, key, value)]
    return pa.table(columns, schema=SCHEMA)


def pieces(table: pa.Table, cuts: list[int]) -> list[pa.Table]:
    bounds = [0, *sorted(min(cut, len(table)) for cut in cuts), len(table)]
    return [table.slice(low, high - low) for low, high in pairwise(bounds)]


def at_once(query: op.Query, table: pa.Table) -> list[dict[str, object]]:
    stream = op.open(query)
    return [*stream.push(table).to_pylist(), *stream.finish().to_pylist()]


CUTS = st.lists(st.integers(0, 24), max_size=12)


@examples(50)
@given(queries(), events(), CUTS)
def test_cuts_do_not_matter(query: op.Query, table: pa.Table, cuts: list[int]) -> None:
    stream = op.open(query)
    found = [row for piece in pieces(table, cuts) for row in stream.push(piece).to_pylist()]
    assert [*found, *stream.finish().to_pylist()] == at_once(query, table)


@examples(25)
@given(queries(), events(), CUTS, st.integers(0, 20))
def test_told_times_and_saves_do_not_matter(
    query: op.Query, table: pa.Table, cuts: list[int], ahead: int
) -> None:
    stream, found, done = op.open(query), [], 0
    for piece in pieces(table, cuts):
        found += stream.push(piece).to_pylist()
        done += len(piece)
        # No later event is before the first of the rest.
        rest = table["ts"].slice(done).to_pylist()
        told = min(rest) if rest else max(table["ts"].to_pylist()) + ahead
        found += stream.advance(told).to_pylist()
        if query.operator is None:
            stream = op.resume(query, stream.state())
    assert [*found, *stream.finish().to_pylist()] == at_once(query, table)


@examples(25)
@given(queries(), events(), CUTS)
def test_a_stage_that_forgets_keys_gives_the_same(
    query: op.Query, table: pa.Table, cuts: list[int]
) -> None:
    plan = plan_stream(query, SCHEMA, 1)
    chain, found = Chain(plan.division.stages), []
    last = pa.table([[END, END + SLACK + 1], ["z", "z"], [0, 0]], schema=SCHEMA)
    for piece in (*pieces(table, cuts), last):
        given = chain.run(plan.division.packing.pack(piece))
        found += [row for rows in given.tables(CellKind.MATCHES) for row in rows.to_pylist()]
    # What lies behind the end has not come out.
    expected = at_once(query, pa.concat_tables([table, last]))
    assert found == expected[: len(found)]
    assert query in endless() or all(row["key"] == "z" for row in expected[len(found) :])


@examples(25)
@given(queries(), events(), CUTS)
def test_a_query_of_a_group_gives_what_it_gives_alone(
    query: op.Query, table: pa.Table, cuts: list[int]
) -> None:
    """Events that a query has no use for do not reach it there."""
    other = op.Query("other").order_by("ts").disorder(op.KSlack(SLACK)).pattern("A")
    group = op.open(op.group(query, other))
    found = [row for piece in pieces(table, cuts) for row in group.push(piece)["q"].to_pylist()]
    assert [*found, *group.finish()["q"].to_pylist()] == at_once(query, table)


def rows_of(*rows: tuple[int, str, int]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)


def test_sessions_close_one_after_the_other_whatever_their_numbers() -> None:
    """The third session of `a` is over before the first of `b`, and nothing comes between."""
    query = large().over(windows.session(4), numbered=True)
    table = rows_of(
        (0, "a", 1), (5, "a", 1), (10, "a", 1), (12, "b", 1), (18, "c", 1), (20, "d", 1)
    )
    expected = [("a", 1, 0), ("a", 2, 1), ("a", 4, 2), ("b", 4, 0), ("c", 6, 0), ("d", 6, 0)]
    for cuts in ([], [4, 5]):
        stream = op.open(query)
        found = [row for piece in pieces(table, cuts) for row in stream.push(piece).to_pylist()]
        found += stream.finish().to_pylist()
        assert [(row["key"], row["match_event"], row["window"]) for row in found] == expected


def test_events_of_no_use_give_no_key_its_place() -> None:
    """The first event of `b` reaches its query alone, but not in a group."""
    query = large().over(windows.time(9, slide=3), duplicates=True)
    table = rows_of((0, "b", 0), (1, "a", 1), (2, "b", 1), (40, "a", 0))
    other = op.Query("other").order_by("ts").disorder(op.KSlack(SLACK)).pattern("A")
    group = op.open(op.group(query, other))
    found = [*group.push(table)["q"].to_pylist(), *group.finish()["q"].to_pylist()]
    assert [row["key"] for row in found] == ["a", "b"] * 3
    assert found == at_once(query, table)


def test_deadlines_pass_one_after_the_other_whichever_match_started_first() -> None:
    """That of `b` is at 8, and that of `a`, which started before it, at 13."""
    query = by_key().pattern("B+").define(B="v > 0").within(7, "previous to current")
    query = query.measures(first="FIRST(B.ts)")
    table = rows_of((0, "a", 1), (1, "b", 1), (6, "a", 1), (20, "c", 1))
    expected = [{"key": "b", "first": 1}, {"key": "a", "first": 0}]
    stream = op.open(query)
    last = [{"key": "c", "first": 20}]
    assert stream.push(table).to_pylist() + stream.finish().to_pylist() == [*expected, *last]
    stream = op.open(query)
    assert stream.push(table.slice(0, 3)).to_pylist() == []
    assert stream.advance(8).to_pylist() == expected[:1]
    assert stream.push(table.slice(3)).to_pylist() + stream.advance(13).to_pylist() == expected[1:]
    assert stream.finish().to_pylist() == last


def test_the_end_comes_behind_the_rows_and_the_times_that_it_lets_go() -> None:
    """All rows wait for the end, which no other match than that of `c` needs."""
    query = by_key().pattern("A B | A $").define(A="v = 1", B="v = 2").within(5)
    table = rows_of((0, "c", 1), (1, "b", 1), (2, "a", 1), (3, "a", 2), (3, "b", 2))
    query = query.measures(first="FIRST(ts)").disorder(op.KSlack(10))
    stream = op.open(query)
    assert stream.push(table).num_rows == 0
    assert [row["key"] for row in stream.finish().to_pylist()] == ["a", "b", "c"]


def test_an_end_that_fails_takes_nothing_though_time_has_passed_before_it() -> None:
    """The match of `1` is final by time, that of `x`, which is no number, by the end."""
    query = op.Query("q").partition_by("key").order_by("ts").pattern("A B* | B $").within(5)
    query = query.define(A="v = 1", B="v = 2").measures(number="CAST(LAST(key) AS INT)")
    stream = op.open(query)
    stream.push(rows_of((0, "1", 1), (1, "x", 2)))
    state = stream.state()
    with pytest.raises(op.DataError, match="cannot cast"):
        stream.finish()
    assert stream.state() == state
