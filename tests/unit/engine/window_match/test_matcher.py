"""Matching in windows equals its definition: each window matched as a table of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from support.windowed import Stream, Window, run

from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Matcher, Pace
from outpace.engine.match.graph import GraphMatcher
from outpace.engine.match.kernel import KernelMatcher
from outpace.engine.match.task import prepare
from outpace.engine.message import EventsArrived
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.split.windows import Split, Windows
from outpace.engine.state import State
from outpace.engine.window_match import matcher as matcher_module
from outpace.engine.window_match.matcher import WindowMatcher
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import BindError, StateError, UnsupportedError
from outpace.pattern import ast
from outpace.pattern.query import Query
from outpace.pattern.windows import BetweenWindows, CountWindows, WindowPredicate
from outpace.testing.window_matches import WindowMatch, windowed_matches


class Someone(WindowPredicate):
    """Stands for windows that open and close as they like: the tests say so, nobody asks it."""

    def opens(self, event, windows):
        raise NotImplementedError

    def closes(self, event, window):
        raise NotImplementedError

    def clone(self):
        return self


#: The windows are made by hand here; the query says whether they close in their order.
IN_ORDER = CountWindows(10, 1)
IN_ANY_ORDER = BetweenWindows(predicate=Someone())

#: Patterns of every kind, with what each needs.
PATTERNS = (
    "A -> B -> C",
    "A B C",
    "A B+",
    "A -> B+ -> C",
    "A -> (B | C -> A)",
    "A+? B*",
    "^ A -> B",
    "A -> B $",
    "A -> !C -> B",
    "A -> B -> !C",
    "A !C",
    "A ->> B",
    "A ->> B ->> C?",
    "DOWN+ UP",
    "A PEAK",
    "A -> RISE+",
    "B?",
)
DEFINED = {
    "A": "kind = 0",
    "B": "kind = 1",
    "C": "kind = 2",
    "DOWN": "kind < PREV(kind)",
    "UP": "kind > PREV(kind)",
    "PEAK": "kind > NEXT(kind)",
    "RISE": "kind >= LAST(A.kind) AND kind > PREV(kind)",
}
MEASURES = {
    "number": "MATCH_NUMBER()",
    "first": "FIRST(ts)",
    "last": "LAST(ts)",
    "before": "PREV(FIRST(kind))",
    "after": "NEXT(LAST(kind))",
    "count": "COUNT(*)",
    "label": "CLASSIFIER()",
}


@dataclass(frozen=True)
class Case:
    """A query, a stream, its windows, and how it is fed."""

    query: Query
    stream: Stream
    windows: list[Window]
    cuts: list[int]
    saved: list[int]


@st.composite
def queries(draw: st.DrawFn) -> Query:
    text = draw(st.sampled_from(PATTERNS))
    query = Query("windowed").order_by("ts").pattern(text)
    assert query.tree is not None
    used = ast.predicates(query.tree)
    query = query.define({name: DEFINED[name] for name in used})
    if draw(st.booleans()) or "!C" in text:
        query = query.within(draw(st.integers(1, 12)), draw(st.sampled_from(WITHINS)))
    chosen = draw(st.sets(st.sampled_from(sorted(MEASURES)), max_size=3))
    query = query.measures({name: MEASURES[name] for name in sorted(chosen)} or {"at": "FIRST(ts)"})
    skip = draw(st.integers(0, 5))
    if skip == 1:
        query = query.no_skip()
    elif skip == 2:
        query = query.skip_to_next_row()
    elif skip == 3:
        query = query.skip_past_last_row()
    elif skip == 4:
        query = query.skip_to_last(used[0])
    selection = draw(st.sampled_from((None, "preferred", "all")))
    query = query if selection is None else query.select(selection)
    if draw(st.integers(0, 5)) == 0:
        query = query.consume(draw(st.sampled_from(("selected", "all"))))
    if draw(st.integers(0, 5)) == 0:
        query = query.limit(draw(st.integers(1, 3)), draw(st.sampled_from(("start", "partition"))))
    if draw(st.booleans()):
        query = query.all_rows_per_match(empty=draw(st.sampled_from(("show", "omit"))))
    return query.over(IN_ORDER, duplicates=draw(st.booleans()), numbered=draw(st.booleans()))


WITHINS = ("first to last", "previous to current")


@st.composite
def streams(draw: st.DrawFn, size: int = 24, keys: int = 3) -> tuple[Stream, bool]:
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, keys - 1)),
            min_size=1,
            max_size=size,
        )
    )
    keyed = draw(st.booleans())
    table = pa.table(
        {
            "ts": np.cumsum([step for step, _, _ in rows]),
            "kind": pa.array([kind for _, kind, _ in rows], pa.int8()),
            "key": pa.array([key for *_, key in rows], pa.int64()),
        }
    )
    return Stream.of(table, [key for *_, key in rows] if keyed else None), keyed


@st.composite
def windows_of(draw: st.DrawFn, stream: Stream) -> list[Window]:
    """Draw sliding windows, or windows that open and close as they like."""
    found = []
    inside = draw(st.booleans())
    sliding = draw(st.booleans())
    size, slide = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    for partition in sorted(set(stream.partition.tolist())):
        arrivals = stream.arrivals(partition)
        firsts = list(range(0, len(arrivals), slide))
        if not sliding:
            firsts = sorted(draw(st.sets(st.integers(0, len(arrivals) - 1), max_size=6)))
        for number, first in enumerate(firsts):
            stop = first + size
            if not sliding:
                stop = first + draw(st.integers(1, 12))
            found.append(_window(stream, partition, 3 + number, first, stop, inside))
    return found


def _window(
    stream: Stream, partition: int, number: int, first: int, stop: int, inside: bool
) -> Window:
    arrivals = stream.arrivals(partition)
    total = stream.table.num_rows
    closed_at = arrivals[stop - 1] if inside and stop <= len(arrivals) else total
    if not inside and stop < len(arrivals):
        closed_at = arrivals[stop]
    return Window(partition, number, first, min(stop, len(arrivals)), closed_at)


@st.composite
def cases(draw: st.DrawFn, asked: st.SearchStrategy[Query] | None = None, size: int = 24) -> Case:
    query = draw(queries() if asked is None else asked)
    stream, keyed = draw(streams(size))
    if keyed:
        query = query.partition_by("key")
    try:
        prepare(query, stream.table.schema)
    except BindError:
        reject()
    windows = draw(windows_of(stream))
    if not _in_order(windows):
        query = replace(query, windows=IN_ANY_ORDER)
    cuts = draw(st.lists(st.integers(1, stream.table.num_rows), max_size=5))
    saved = draw(st.lists(st.sampled_from(cuts), max_size=2)) if cuts else []
    return Case(query, stream, windows, cuts, saved)


def _in_order(windows: list[Window]) -> bool:
    return all(
        one.partition != other.partition
        or (one.stop <= other.stop and one.closed_at <= other.closed_at)
        for one, other in pairwise(windows)
    )


def matcher_of(case: Case, **options: int) -> WindowMatcher:
    """Return a matcher that shares searches wherever it may."""
    # Compiled code pauses wherever it can.
    task = replace(prepare(case.query, case.stream.table.schema), pace=Pace(work=0))
    matcher = WindowMatcher(task, shared=True, **options)
    if isinstance(matcher.matcher, GraphMatcher):
        # Else the twin would answer for these few rows.
        matcher.matcher.compile_now()
    return matcher


def assert_equal(results: list[WindowMatches], expected: list[WindowMatch]) -> None:
    results = [result.by_starts() for result in results]
    found = [
        (x, phase, y, partition)
        for result in results
        for x, phase, y, partition in zip(
            result.event.tolist(),
            result.phase.tolist(),
            result.window.tolist(),
            result.partition.tolist(),
            strict=True,
        )
    ]
    assert found == [(m.event, m.phase, m.window, m.partition) for m in expected]
    rows = [row for result in results for row in result.table.to_pylist()]
    assert rows == [row for match in expected for row in match.output]
    sizes = [int(size) for result in results for size in np.diff(result.offsets)]
    assert sizes == [len(match.output) for match in expected]
    ids = [key for result in results for key in result.ids.array.to_pylist()]
    contents = [(m.partition, m.start, m.taken) for m in expected]
    known = dict(zip(ids, contents, strict=True))
    assert [known[key] for key in ids] == contents


@given(cases())
def test_windows_are_matched_as_tables_of_their_own(case: Case) -> None:
    expected = windowed_matches(case.query, case.stream.table, case.stream.cut(case.windows))
    results = run(matcher_of(case), case.stream, case.windows, case.cuts, saved=case.saved)
    assert_equal(results, expected)


def chains() -> st.SearchStrategy[Query]:
    """Draw queries that the chain kernel answers."""
    query = Query("chain").order_by("ts").pattern("A -> B -> C")
    query = query.define(A="kind = 0", B="kind = 1", C="kind = 2 OR kind = NEXT(kind)")
    query = query.measures(first="FIRST(ts)", after="NEXT(LAST(kind))")
    plain = query.define(C="kind = 2")
    kinds = [query, plain, plain.measures(after="LAST(ts)"), plain.within(7), plain.no_skip()]
    return st.builds(
        Query.over,
        st.sampled_from(kinds),
        st.just(IN_ORDER),
        duplicates=st.booleans(),
        numbered=st.booleans(),
    )


@st.composite
def searches(draw: st.DrawFn) -> Query:
    """Draw queries that share their searches, but are no chains."""
    text = draw(st.sampled_from(PATTERNS))
    query = Query("search").order_by("ts").pattern(text).select("preferred")
    assert query.tree is not None
    used = ast.predicates(query.tree)
    offset = draw(st.sampled_from(("PREV(kind", "PREV(kind, 2", "NEXT(kind")))
    query = query.define({name: DEFINED[name].replace("PREV(kind", offset) for name in used})
    if draw(st.booleans()) or "!C" in text:
        query = query.within(draw(st.integers(1, 12)), draw(st.sampled_from(WITHINS)))
    chosen = draw(st.sampled_from(("first", "after", "before")))
    query = query.measures({chosen: MEASURES[chosen], "last": MEASURES["last"]})
    query = draw(
        st.sampled_from(
            (query, query.no_skip(), query.skip_to_last(used[-1]), query.skip_to_first(used[-1]))
        )
    )
    return query.over(IN_ORDER, duplicates=draw(st.booleans()), numbered=draw(st.booleans()))


@given(cases(searches(), size=40))
def test_searches_are_shared_by_windows(case: Case) -> None:
    expected = windowed_matches(case.query, case.stream.table, case.stream.cut(case.windows))
    results = run(matcher_of(case), case.stream, case.windows, case.cuts, saved=case.saved)
    assert_equal(results, expected)


@st.composite
def all_matches(draw: st.DrawFn) -> Query:
    """Draw queries that want all matches."""
    text = draw(
        st.sampled_from(("A ->> B", "A ->> B ->> C?", "A -> B+ -> C", "A B", "A ->> !C ->> B"))
    )
    query = Query("all").order_by("ts").pattern(text).select("all").no_skip()
    assert query.tree is not None
    query = query.define({name: DEFINED[name] for name in ast.predicates(query.tree)})
    query = query.measures(first=MEASURES["first"], last=MEASURES["last"])
    if draw(st.booleans()):
        query = query.within(draw(st.integers(1, 12)), draw(st.sampled_from(WITHINS)))
    if draw(st.booleans()):
        query = query.all_rows_per_match()
    return query.over(IN_ORDER, duplicates=draw(st.booleans()), numbered=draw(st.booleans()))


@given(cases(all_matches(), size=30))
def test_all_matches_belong_to_the_windows_around_them(case: Case) -> None:
    expected = windowed_matches(case.query, case.stream.table, case.stream.cut(case.windows))
    results = run(matcher_of(case), case.stream, case.windows, case.cuts, saved=case.saved)
    assert_equal(results, expected)


@given(cases(chains(), size=60))
def test_chains_are_searched_once_for_all_windows(case: Case) -> None:
    expected = windowed_matches(case.query, case.stream.table, case.stream.cut(case.windows))
    results = run(matcher_of(case), case.stream, case.windows, case.cuts, saved=case.saved)
    assert_equal(results, expected)


def saved_by(matcher: Matcher, state: State) -> bytes:
    """Return what is saved, but where a graph may keep more rows than the twin."""
    return b"" if isinstance(matcher, GraphMatcher) else state.encode()


class Watched(WindowMatcher):
    """Notes what it gives and what it would save, step by step."""

    def step(self, *given, **more):
        matches = super().step(*given, **more)
        self.noted.append((matches, self.horizon, saved_by(self.matcher, self.state())))
        return matches


def watched(case: Case, *, compiled: bool) -> Watched:
    """Return a matcher as it is before the compiler is done, or after."""
    task = prepare(case.query, case.stream.table.schema)
    matcher = choose_matcher(task)
    if isinstance(matcher, GraphMatcher | KernelMatcher):
        matcher.compile_now()
        object.__setattr__(matcher, "ready", lambda size: compiled)
    watched = Watched(task, matcher)
    watched.noted = []
    return watched


@given(cases(st.one_of(queries(), searches(), chains(), all_matches())), st.booleans())
def test_a_step_does_not_depend_on_when_the_compiler_is_done(case: Case, first: bool) -> None:
    noted = []
    for compiled in (first, not first):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(matcher_module, "is_ready", lambda _, compiled=compiled: compiled)
            matcher = watched(case, compiled=compiled)
            run(matcher, case.stream, case.windows, case.cuts)
        noted.append(matcher.noted)
    assert noted[0] == noted[1]


@given(cases(st.one_of(queries(), searches(), chains(), all_matches())))
def test_a_step_in_partitions_does_not_depend_on_the_compiler_either(case: Case) -> None:
    query = replace(case.query, windows=None, duplicates=False, numbered=False)
    rows, noted = case.stream.table, []
    for compiled in (True, False):
        matcher = watched(case, compiled=compiled).matcher
        task = prepare(query, rows.schema)
        operator = WholeOperator(
            OperatorSpec(query, rows.schema, given=task, choose=lambda _, made=matcher: made)
        )
        cuts = sorted({0, *case.cuts, rows.num_rows})
        noted.append([])
        for low, high in pairwise(cuts):
            said = operator.step(EventsArrived(rows.slice(low, high - low)))
            noted[-1].append((said, saved_by(matcher, operator.state())))
    assert noted[0] == noted[1]


@given(cases())
def test_events_in_no_window_may_be_left_out(case: Case) -> None:
    needed = np.zeros(case.stream.table.num_rows, np.bool_)
    for window in case.stream.cut(case.windows):
        needed[list(window.rows)] = True
    expected = windowed_matches(case.query, case.stream.table, case.stream.cut(case.windows))
    matcher = matcher_of(case, rows_at_once=7, rows_in_step=5)
    results = run(matcher, case.stream, case.windows, case.cuts, saved=case.saved, needed=needed)
    assert_equal(results, expected)


#: The second condition overflows where the first holds; then it is not looked at.
_EITHER = "kind = 2 AND big > 1 OR kind = 1 AND A.big * 4 > 0"


def _chain() -> Query:
    query = Query("chain").order_by("ts").pattern("A -> B").define(A="kind = 0", B="kind = 1")
    return query.measures(at="B.ts").over(IN_ORDER)


def _stream(kinds: list[int]) -> Stream:
    ts = np.arange(len(kinds))
    return Stream.of(pa.table({"ts": ts, "kind": pa.array(kinds, pa.int8()), "key": ts}))


def test_rows_before_the_search_of_every_window_are_dropped() -> None:
    stream = _stream([0, 1] * 50 + [0])
    matcher = WindowMatcher(prepare(_chain(), stream.table.schema))
    opened = Windows(*(np.array([value]) for value in (0, 0, 0, 2**63 - 1, 0, 0, -1)))
    matches = matcher.step(stream.events(0, 101), Split(opened, Windows.none()))
    assert len(matches) == 50
    assert matcher.rows_kept == 1
    assert matcher.open_windows == 1
    assert matcher.horizon == 0


def test_windows_go_apart_where_compiled_arithmetic_gives_up() -> None:
    query = Query("sum").order_by("ts").pattern("A -> B").define(A="kind = 0", B=_EITHER)
    query = query.measures(at="B.ts").over(IN_ORDER)
    kinds = [0, 2, 1, 0, 2, 2, 0, 1, 1, 0, 1]
    big = [1, 1, 1, 2**62, 2**62, 1, 1, 1, 1, 1, 1]
    table = _stream(kinds).table.append_column("big", pa.array(big))
    stream = Stream.of(table)
    windows = [_window(stream, 0, first, first, first + 5, True) for first in range(len(kinds))]
    windows = [window for window in windows if window.closed_at < len(kinds)]
    matcher = WindowMatcher(prepare(query, table.schema), shared=True)
    results = run(matcher, stream, windows, [2, 4, 6, 8])
    assert_equal(results, windowed_matches(query, table, stream.cut(windows)))
    assert matcher._kind == "separate"


def test_rows_before_a_gap_between_windows_are_not_kept() -> None:
    query = Query("rise").order_by("ts").pattern("S A+ B").define(A="kind >= PREV(kind)")
    query = query.define(B="kind = 9").measures(at="S.ts").over(IN_ORDER)
    stream = _stream([0, 5, 7, 0, 2, 3, 9])
    windows = [_window(stream, 0, 0, 0, 2, True), _window(stream, 0, 1, 3, 7, True)]
    # No window holds the third event, so it never comes, and PREV cannot ask for the one before.
    needed = np.array([True, True, False, True, True, True, True])
    matcher = WindowMatcher(prepare(query, stream.table.schema), shared=True)
    results = run(matcher, stream, windows, [5, 6], saved=[5, 6], needed=needed)
    assert_equal(results, windowed_matches(query, stream.table, stream.cut(windows)))


def test_unmatched_rows_are_refused() -> None:
    query = _chain().all_rows_per_match(unmatched=True)
    with pytest.raises(UnsupportedError, match="windows cannot return unmatched rows"):
        WindowMatcher(prepare(query, _stream([0]).table.schema))


def test_state_of_another_query_is_refused() -> None:
    schema = _stream([0]).table.schema
    saved = WindowMatcher(prepare(_chain(), schema)).state()
    other = WindowMatcher(prepare(_chain().measures(more="A.ts"), schema))
    with pytest.raises(StateError, match="another query"):
        other.restore(saved)
