"""All matches by the search equal those of the twin, on tables and on streams cut anywhere."""

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st
from support.compiled import (
    LOCAL,
    PATH,
    WORKS,
    outcome_of,
    prefix_of,
    same_partial,
    tables,
    task_of,
)
from support.properties import examples
from support.strategies import patterns

from outpace.engine.arrays import NO_TIME
from outpace.engine.match import kernel_arrays, kernel_search
from outpace.engine.match.candidates import make_candidate_matcher
from outpace.engine.match.choose import choose_matcher, matcher_name
from outpace.engine.match.contract import WORK_AT_ONCE, Pace, Resume
from outpace.engine.match.kernel import make_kernel
from outpace.engine.match.task import match_block, prepare, whole_block
from outpace.engine.match.twin import TwinMatcher
from outpace.errors import MatchError
from outpace.pattern.ast import Link, predicates, variables
from outpace.pattern.query import Query, WithinKind

#: Conditions that ask for the value of an earlier row.
JOINED = (
    "x = A.x",
    "s = A.s AND x > 0",
    "x = LAST(x, 1)",
    "x = LAST(B.x, 1) AND s = A.s",
    "UPPER(s) = A.s",
    "x = FIRST(x)",
    "x = COALESCE(A.x, 1)",
    "x = A.x AND f > A.f",
    "m = A.m",
    "t = A.t AND x = B.x",
)


@pytest.fixture(autouse=True, scope="module")
def compile_at_once():
    """Run compiled predicates on small blocks too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_search, "WORTH_PREDICATES", 0)
        patch.setattr(kernel_search, "WORTH_KERNELS", 0)
        yield


@st.composite
def queries(draw, definitions, *, links=tuple(Link), negation=True):
    tree = draw(patterns(links=links, leaves=5, negation=negation))
    texts = {name: draw(st.none() | st.sampled_from(definitions)) for name in predicates(tree)}
    query = Query().order_by("ts").pattern(tree).select("all").no_skip()
    query = query.define({name: text for name, text in texts.items() if text})
    if draw(st.booleans()):
        kind = draw(st.sampled_from(list(WithinKind)))
        query = query.within(draw(st.integers(1, 8)), kind)
    if draw(st.booleans()):
        query = query.partition_by("key")
    if draw(st.integers(0, 2)) == 0:
        query = query.limit(draw(st.integers(1, 3)), "start")
    return query.measures(n="COUNT(*)")


def _same(one, other, everything):
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
        return
    for name in ("segment", "start", "number", "offsets", "rows", "positions", "settled"):
        assert getattr(one.found, name).tolist() == getattr(other.found, name).tolist(), name
    assert _awaited(one.found) == _awaited(other.found)
    # What only the search for all matches reads of a state counts only there.
    for name in ("next_start", "number", *(("barrier", "completed_to") if everything else ())):
        left, right = (getattr(each.resume, name).tolist() for each in (one, other))
        assert left == right, name
    assert one.keep_from.tolist() == other.keep_from.tolist()
    same_partial(one, other)


def _awaited(found):
    return [NO_TIME] * len(found.start) if found.awaited is None else found.awaited.tolist()


def _compare(query, table, cut, watermark, work, *, everything=True):
    """Compare on the whole, on a part, and on the whole behind that part."""
    task = task_of(query, table, timeouts=query.bound is not None and cut % 2 == 1)
    make = make_candidate_matcher if everything else make_kernel
    matcher = make(replace(task, pace=Pace(work)))
    assert matcher is not None
    twin = TwinMatcher(task)
    block = whole_block(task, table)
    fresh = Resume.fresh(len(block.segments) - 1)
    _same(outcome_of(matcher, block, fresh), outcome_of(twin, block, fresh), everything)
    part = prefix_of(task, table, cut, watermark if len(block.times) else NO_TIME)
    fresh = Resume.fresh(len(part.segments) - 1)
    before = outcome_of(twin, part, fresh)
    _same(outcome_of(matcher, part, fresh), before, everything)
    if not isinstance(before, str) and len(part.segments) == len(block.segments):
        again = (outcome_of(one, block, before.resume) for one in (matcher, twin))
        _same(*again, everything)


@given(queries(LOCAL), tables(9), st.integers(0, 9), st.integers(0, 12), WORKS)
def test_all_matches_equal_the_twins(query, table, cut, watermark, work):
    note(repr(query))
    _compare(query, table, cut, watermark, work)


@examples(40)  # each compiles a predicate of its own
@given(queries((*LOCAL, *PATH, *JOINED)), tables(9), st.integers(0, 9), st.integers(0, 12), WORKS)
def test_all_matches_with_compiled_predicates_equal_the_twins(query, table, cut, watermark, work):
    note(repr(query))
    _compare(query, table, cut, watermark, work)


@examples(40)
@given(queries((*LOCAL, *PATH)), st.booleans(), tables(9), st.integers(0, 9), WORKS)
def test_variables_that_do_not_fit_into_one_mask(query, everything, table, cut, work):
    note(repr(query))
    if not everything:
        query = replace(query.select("preferred"), limits=())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_arrays, "BITS_MAX", 2)
        assume(kernel_arrays.fits_bits(task_of(query, table).program))
        _compare(query, table, cut, 0, work, everything=everything)


@st.composite
def ruled(draw, definitions, **more):
    """Queries whose matches rule out others."""
    query = draw(queries(definitions, **more))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return query.limit(draw(st.integers(1, 4)))
    if kind == 1:
        return query.consume(draw(st.sampled_from(["selected", "all"])))
    if kind == 2:
        return draw(st.sampled_from([query.skip_to_next_row(), query.skip_past_last_row()]))
    names = variables(query.tree)
    assume(names)
    name = draw(st.sampled_from(names))
    strict = draw(st.booleans())
    chosen = draw(st.sampled_from([Query.skip_to_first, Query.skip_to_last]))
    return chosen(query, name, strict=strict)


@given(ruled(LOCAL), tables(9), st.integers(0, 9), st.integers(0, 12), WORKS)
def test_matches_that_rule_out_others_equal_the_twins(query, table, cut, watermark, work):
    note(repr(query))
    _compare(query, table, cut, watermark, work)


@examples(40)
@given(
    ruled((*LOCAL, *PATH, *JOINED)), tables(9), st.integers(0, 9), st.integers(0, 12), WORKS,
)  # fmt: skip
def test_compiled_conditions_and_matches_that_rule_out_others(query, table, cut, watermark, work):
    note(repr(query))
    _compare(query, table, cut, watermark, work)


def test_two_links_between_the_same_steps_make_one_match():
    table = pa.table({"ts": [0, 1, 2], "x": [2, 2, 4]})
    query = Query().order_by("ts").pattern("(A(->)+)(.)+").select("all").no_skip()
    query = query.define(A="SUM(x) < 9").within(9).measures(n="COUNT(*)")
    task = prepare(query, table.schema)
    found = match_block(make_candidate_matcher(task), whole_block(task, table)).found
    labels = [found.rows[low:high].tolist() for low, high in pairwise(found.offsets)]
    assert labels == [[0], [0, 1], [1], [0, 1, 2], [1, 2], [2]]


@pytest.mark.parametrize("pattern", ["A+ B -> !C", "(A -> B?)+ C $", "A+ (B | C) !A"])
def test_long_runs_that_rule_out_others_equal_the_twins(pattern):
    text = "a" * 90 + "b" + "ab" * 40 + "c" + "a" * 3 + "b"
    table = pa.table({"ts": range(len(text)), "key": [0] * len(text), "s": list(text)})
    query = Query().order_by("ts").pattern(pattern).measures(n="COUNT(*)").select("all")
    query = query.define(A="s = 'a'", B="s = 'b'", C="s = 'c'").within(120)
    if pattern.startswith("("):
        query = query.within(7)
    for ruled_query in (query.skip_past_last_row(), query.no_skip().consume("selected")):
        _compare(ruled_query, table, 170, 0, WORK_AT_ONCE)


@examples(40)
@given(
    queries(JOINED, links=(Link.NEXT, Link.ANY)), st.booleans(),
    tables(14), st.integers(0, 14), st.integers(0, 12), WORKS,
)  # fmt: skip
def test_rows_found_by_value_equal_the_twins(query, everything, table, cut, watermark, work):
    note(repr(query))
    if not everything:
        query = query.select("preferred").skip_past_last_row()
        query = replace(query, limits=())
    _compare(query, table, cut, watermark, work, everything=everything)


def _events(text):
    kinds, users = zip(*text.split(), strict=True)
    return pa.table({"ts": range(len(kinds)), "kind": list(kinds), "user": list(users)})


def _joined(pattern="A ->> B", **more):
    conditions = {"A": "kind = 'a'", "B": "kind = 'b' AND user = A.user", **more}
    query = Query().order_by("ts").pattern(pattern).define(conditions).measures(n="COUNT(*)")
    return query.select("all").no_skip()


def _rows(query, table):
    task = prepare(query, table.schema)
    matcher = choose_matcher(task)
    assert matcher_name(matcher) == "search"
    found = match_block(matcher, whole_block(task, table)).found
    rows = found.rows.tolist()
    return [rows[low:high] for low, high in zip(found.offsets[:-1], found.offsets[1:], strict=True)]


def test_matches_come_by_the_event_that_completes_them():
    assert _rows(_joined(), _events("a1 a2 b1 b2 b1 a1 b1")) == [
        [0, 2], [1, 3], [0, 4], [0, 6], [5, 6]
    ]  # fmt: skip


def test_steps_that_all_ask_for_a_value_are_found_by_it():
    table = _events("a1")

    def joins(query):
        return [
            join is not None
            for join in make_candidate_matcher(prepare(query, table.schema)).search.plan.joins
        ]

    assert joins(_joined()) == [False, True, False]
    assert joins(_joined("A ->> B -> !C -> B", C="user = A.user")) == [False, True, True, False]
    assert joins(_joined("A ->> B -> !C -> B", C="kind = 'c'")) == [False, True, False, False]
    assert joins(_joined(B="user = A.user OR kind = 'b'")) == [False, False, False]


def test_the_search_for_a_value_takes_no_time_for_rows_between(monkeypatch):
    size = 20_000
    kinds = ["a", *["b"] * (size - 1)]
    users = [str(n % 1000) for n in range(size)]
    table = pa.table({"ts": range(size), "kind": kinds, "user": users})
    task = prepare(_joined(), table.schema)
    worked = []
    turn = kernel_search.Turns.end
    monkeypatch.setattr(
        kernel_search.Turns, "end", lambda *args: (worked.append(args), turn(*args))
    )
    matcher = make_candidate_matcher(replace(task, pace=Pace(1000)))
    found = match_block(matcher, whole_block(task, table)).found
    assert len(found.start) == size // 1000 - 1
    assert len(worked) < 3


def test_more_matches_than_fit_are_refused(monkeypatch):
    monkeypatch.setattr(kernel_search, "TAKES_MAX", 50)
    with pytest.raises(MatchError, match="the matches have more than 50 rows"):
        _rows(_joined(), _events("a1 " * 10 + "b1 " * 30))
