"""Matches of different keys whose windows close together come in one order, however events come."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
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
    return whole | st.sampled_from(
        [uncertain, drifting.over(windows.session(4), drift=2, numbered=True)]
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
    assert all(row["key"] == "z" for row in expected[len(found) :])


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
