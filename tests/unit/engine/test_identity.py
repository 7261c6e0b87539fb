"""Ids of matches: an event that comes in anywhere changes none but those of its own matches."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

import outpace as op
from outpace.engine.message import Emit, EventsArrived, SourceEnded
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.whole import match_whole
from outpace.engine.window_match.result import WindowMatches
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.query import Query
from outpace.plan.row_plan import plan_query

SCHEMA = pa.schema([("ts", pa.int64()), ("key", pa.string()), ("kind", pa.int64()), ("name", "i8")])
INSERTED = -1

#: Patterns, and the variables that their matches have.
PATTERNS = {
    "A B": "AB",
    "A -> B": "AB",
    "A ->> B": "AB",
    "A B? C": "ABC",
    "A -> !C -> B": "AB",
    "PERMUTE(A, B)": "AB",
}
WINDOWS = {
    "none": None,
    "time": op.windows.time(8, slide=3),
    "count": op.windows.count(5, slide=2),
    "session": op.windows.session(4),
    "between": op.windows.between(open="kind = 0", close="kind = 2"),
}

events = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from("kl"), st.integers(0, 2)),
    min_size=1,
    max_size=25,
    unique_by=lambda event: event[0],
)


class Counted(op.Operator):
    """Counts events."""

    output = pa.schema([("n", pa.int64())])

    def __init__(self) -> None:
        self._count = 0

    def process(self, events: pa.Table) -> None:
        self._count += events.num_rows

    def close(self) -> dict[str, list[int]]:
        return {"n": [self._count]}


APPLIED = Query("q").partition_by("key").order_by("ts").apply(Counted)


def query_of(pattern: str, windows: str, *, keyed: bool, duplicates: bool) -> Query:
    shown = PATTERNS[pattern]
    query = (
        Query("q")
        .order_by("ts")
        .pattern(pattern)
        .within(9)
        .disorder(op.KSlack(1000))
        .define(**{name: f"kind = {'ABC'.index(name)}" for name in "ABC" if name in pattern})
        .measures(**{name.lower(): f"{name}.name" for name in shown}, id="MATCH_ID()")
    )
    if duplicates:
        query = replace(query, outputs=query.outputs[:-1])
    if keyed:
        query = query.partition_by("key")
    kind = WINDOWS[windows]
    return query if kind is None else query.over(kind, duplicates=duplicates)


def rows_of(found: list[tuple[int, str, int]], names: range | list[int]) -> pa.Table:
    columns = zip(*((*event, name) for event, name in zip(found, names, strict=True)), strict=True)
    return pa.table([list(column) for column in columns], schema=SCHEMA)


def matches_of(query: Query, pushed: list[tuple[pa.Table, str | None]]) -> list[WindowMatches]:
    sources = tuple(dict.fromkeys(source for _, source in pushed if source is not None)) or None
    disorder = None if query.order_of_arrival is None else bind_disorder(query, SCHEMA)
    operator = WholeOperator(OperatorSpec(query, SCHEMA, disorder=disorder, sources=sources))
    stimuli = [*(EventsArrived(rows, source) for rows, source in pushed), SourceEnded()]
    said = [one for stimulus in stimuli for one in operator.step(stimulus)]
    return [one.matches for one in said if isinstance(one, Emit)]


def ids_of(found: list[WindowMatches]) -> dict[tuple[object, ...], set[bytes]]:
    """Return the ids of matches by the events that these have."""
    ids = defaultdict(set)
    for matches in found:
        assert (matches.diff == 1).all()
        assert matches.confirmed.all()
        rows = matches.table.select([n for n in matches.table.column_names if n in "abc"])
        keys = matches.ids.array.to_pylist()
        if "id" in matches.table.column_names:
            assert matches.table["id"].to_pylist() == [key.hex() for key in keys]
        for row, key in zip(rows.to_pylist(), keys, strict=True):
            ids[tuple(row.values())].add(key)
    return ids


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("windows", WINDOWS)
def test_an_event_changes_the_ids_of_no_match_without_it(windows: str, keyed: bool) -> None:
    @given(events, st.sampled_from(sorted(PATTERNS)), st.booleans(), st.booleans(), st.data())
    def check(
        found: list[tuple[int, str, int]],
        pattern: str,
        duplicates: bool,
        several: bool,
        data: st.DataObject,
    ) -> None:
        # The start of a window by time is its own; others start with events, which may change.
        duplicates = duplicates and windows == "time"
        query = query_of(pattern, windows, keyed=keyed, duplicates=duplicates)
        time = data.draw(st.integers(0, 30).filter(lambda ts: ts not in [e[0] for e in found]))
        inserted = rows_of(
            [(time, data.draw(st.sampled_from("kl")), data.draw(st.integers(0, 2)))], [INSERTED]
        )
        rows = rows_of(found, range(len(found)))
        first, second = ("one", "two") if several else (None, None)
        without = ids_of(matches_of(query, [(rows, first), (inserted.slice(0, 0), second)]))
        with_it = ids_of(matches_of(query, [(rows, first), (inserted, second)]))
        every = [key for keys in with_it.values() for key in keys]
        assert len(set(every)) == len(every)
        for events_of, keys in with_it.items():
            if INSERTED not in events_of and events_of in without:
                assert keys == without[events_of]

    check()


def test_an_id_depends_on_what_the_query_means_and_not_on_how_it_runs() -> None:
    rows = rows_of([(1, "k", 0), (2, "k", 1), (3, "k", 0), (4, "k", 1)], range(4))
    query = query_of("A B", "none", keyed=False, duplicates=False)

    def ids(query: Query, *cuts: int) -> list[bytes]:
        ends = [*cuts, rows.num_rows]
        parts = [rows.slice(low, high - low) for low, high in zip([0, *cuts], ends, strict=True)]
        found = matches_of(query, [(part, None) for part in parts])
        return [key for matches in found for key in matches.ids.array.to_pylist()]

    assert len(set(ids(query))) == 2
    assert ids(query) == ids(query, 1, 3) == ids(query.disorder(op.KSlack(7)))
    assert not set(ids(query)) & set(ids(query.within(8)))


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("windows", WINDOWS)
def test_a_table_gives_the_ids_that_a_stream_of_its_rows_gives(windows: str, keyed: bool) -> None:
    @examples(6)
    @given(events, st.sampled_from(sorted(PATTERNS)), st.booleans(), st.booleans())
    def check(
        found: list[tuple[int, str, int]], pattern: str, duplicates: bool, ordered: bool
    ) -> None:
        query = query_of(pattern, windows, keyed=keyed, duplicates=duplicates)
        rows = rows_of(sorted(found) if ordered else found, range(len(found)))
        whole = match_whole(OperatorSpec(query, SCHEMA), rows)
        assert ids_of([whole]) == ids_of(matches_of(query, [(rows, None)]))
        plain = replace(query, order_of_arrival=None)
        if ordered:
            assert ids_of([whole]) == ids_of(matches_of(plain, [(rows, None)]))
        assert (len(whole), whole.table.num_rows) == (len(whole.ids), whole.offsets[-1])

    check()


def test_every_row_of_a_match_shows_its_id() -> None:
    rows = rows_of([(2, "k", 0), (1, "l", 2), (3, "k", 1), (4, "l", 0)], range(4))
    query = query_of("A B", "none", keyed=False, duplicates=False)
    (one,) = op.match(rows, query)["id"].to_pylist()
    shown = op.match(rows, query.all_rows_per_match(unmatched=True))
    assert [len(text or "") for text in shown["id"].to_pylist()] == [0, 32, 32, 0]
    assert len({*shown["id"].to_pylist(), None, one}) == 3  # The query is another one.
    doubled = op.match(rows, query.measures(id="'m-' || MATCH_ID()"))["id"].to_pylist()
    assert [text[:2] for text in doubled] == ["m-"]


@pytest.mark.parametrize("clause", ["define", "aggregate", "windows", "duplicates"])
def test_an_id_is_refused_where_nobody_knows_it(clause: str) -> None:
    query = query_of("A B", "none", keyed=False, duplicates=False)
    queries = {
        "define": query.define(A="MATCH_ID() = 'a'"),
        "aggregate": query.measures(n="COUNT(MATCH_ID())"),
        "windows": query.over(op.windows.between(open="MATCH_ID() = 'a'", close="kind = 1")),
        "duplicates": query.over(op.windows.time(9, slide=3), duplicates=True),
    }
    with pytest.raises(op.BindError):
        plan_query(queries[clause], SCHEMA)
    with pytest.raises(op.BindError):
        op.match(SCHEMA.empty_table(), queries[clause])


def test_rows_of_an_operator_have_the_ids_of_a_stream() -> None:
    rows = rows_of([(2, "k", 0), (1, "l", 1), (3, "k", 0), (4, "l", 1)], range(4))
    for query in (APPLIED, APPLIED.over(op.windows.count(2)), APPLIED.over(op.windows.time(2))):
        stream = matches_of(query.disorder(op.KSlack(9)), [(rows, None)])
        whole = match_whole(OperatorSpec(query, SCHEMA), rows)
        found = [key for matches in stream for key in matches.ids.array.to_pylist()]
        assert len(found) > 1
        assert sorted(whole.ids.array.to_pylist()) == sorted(found)


FOLLOWS = {
    "plain": lambda query: query,
    "disorder": lambda query: query.disorder(op.KSlack(9)),
    "windows": lambda query: query.over(op.windows.time(12, slide=4)),
    "duplicates": lambda query: query.over(op.windows.time(12, slide=4), duplicates=True),
}


@pytest.mark.parametrize("all_rows", [False, True])
@pytest.mark.parametrize("how", FOLLOWS)
def test_matches_of_matches_keep_their_ids_where_others_come_in(how: str, all_rows: bool) -> None:
    first = query_of("A -> B", "none", keyed=True, duplicates=False).measures(
        a="A.name", b="FINAL LAST(B.name)", at="A.ts"
    )
    if all_rows:
        first = first.all_rows_per_match()
    second = FOLLOWS[how](
        Query("second")
        .order_by("at")
        .pattern("C ->> D")
        .within(12)
        .measures(c="C.a", ca="C.b", d="D.a", b="D.b", **({"x": "D.name"} if all_rows else {}))
    )

    def ids_found(pushed: list[pa.Table], *, resumed: bool) -> dict[tuple[object, ...], set[bytes]]:
        one, two = op.open(first), op.open(second)
        ids = defaultdict(set)
        given = [one.push(piece) for piece in pushed]
        for table in [*given, one.finish(), None]:
            if resumed:
                two = op.resume(second, two.state())
            found = two.finish() if table is None else two.push(table)
            (emit,) = two._emits.values()
            keys = emit.matches.ids.array.to_pylist()
            for row, key in zip(found.to_pylist(), keys, strict=True):
                ids[tuple(row.values())].add(key)
        return ids

    @examples(5)
    @given(st.permutations(range(20)), st.integers(0, 20), st.sampled_from("kl"), st.integers(0, 1))
    def check(order: list[int], time: int, key: str, kind: int) -> None:
        found = [(row, "kl"[row % 5 % 2], row % 3 % 2) for row in order]
        rows = rows_of(found, range(len(found)))
        inserted = rows_of([(time, key, kind)], [INSERTED])
        without = ids_found([rows, inserted.slice(0, 0)], resumed=False)
        with_it = ids_found([rows, inserted], resumed=True)
        for content, keys in with_it.items():
            if INSERTED not in content and content in without:
                assert keys == without[content]

    check()
