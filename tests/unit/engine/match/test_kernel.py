"""The kernels equal the twin, on tables and on streams cut anywhere."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, note
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

from outpace.compiler.kernel import head_start
from outpace.engine.arrays import NO_TIME
from outpace.engine.match import contract as contract_module
from outpace.engine.match import kernel_search
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Pace, Resume
from outpace.engine.match.kernel import chain_steps, make_kernel
from outpace.engine.match.task import match_block, prepare, whole_block
from outpace.engine.match.twin import TwinMatcher
from outpace.engine.match.twin_search import StepBudget, TooManyStepsError
from outpace.errors import MatchError
from outpace.pattern.ast import Link, predicates, variables
from outpace.pattern.query import Query, WithinKind


@pytest.fixture(autouse=True, scope="module")
def compile_at_once():
    """Run compiled predicates on small blocks too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_search, "WORTH_PREDICATES", 0)
        patch.setattr(kernel_search, "WORTH_KERNELS", 0)
        yield


@st.composite
def queries(draw, definitions, links=tuple(Link), *, consuming=False):
    tree = draw(patterns(links=links))
    names = predicates(tree)
    query = Query().order_by("ts").pattern(tree).select("preferred")
    texts = {name: draw(st.none() | st.sampled_from(definitions)) for name in names}
    query = query.define({name: text for name, text in texts.items() if text})
    if draw(st.booleans()):
        kind = draw(st.sampled_from(list(WithinKind)))
        query = query.within(draw(st.integers(1, 8)), kind)
    if draw(st.booleans()):
        query = query.partition_by("key")
    if draw(st.integers(0, 3)) == 0:
        query = query.limit(draw(st.integers(1, 3)))
    if consuming:
        query = query.consume(draw(st.sampled_from(["selected", "all"])))
    skip = draw(st.integers(0, 4))
    if not variables(tree):
        skip %= 3
    target = draw(st.sampled_from(variables(tree) or ("A",)))
    return [
        query,
        query.no_skip(),
        query.skip_to_next_row(),
        query.skip_to_first(target, strict=draw(st.booleans())),
        query.skip_to_last(target),
    ][skip].measures(n="COUNT(*)")


def _same(one, other):
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
        return
    for name in ("segment", "start", "number", "offsets", "rows", "positions", "settled"):
        left, right = getattr(one.found, name), getattr(other.found, name)
        assert left.tolist() == right.tolist(), name
    assert one.resume.next_start.tolist() == other.resume.next_start.tolist()
    assert one.resume.number.tolist() == other.resume.number.tolist()
    consumed = [list(map(np.ndarray.tolist, each.resume.consumed)) for each in (one, other)]
    assert consumed[0] == consumed[1]
    assert one.keep_from.tolist() == other.keep_from.tolist()
    same_partial(one, other)


def _compare(query, table, cut, watermark, work=0):
    """Compare both, on the whole and on a part; compiled code pauses wherever it can."""
    task = task_of(query, table, timeouts=query.bound is not None and cut % 2 == 1)
    kernel = make_kernel(replace(task, pace=Pace(work)))
    assert kernel is not None
    twin = TwinMatcher(task)
    block = whole_block(task, table)
    fresh = Resume.fresh(len(block.segments) - 1)
    _same(outcome_of(kernel, block, fresh), outcome_of(twin, block, fresh))
    part = prefix_of(task, table, cut, watermark if len(block.times) else NO_TIME)
    fresh = Resume.fresh(len(part.segments) - 1)
    before = outcome_of(twin, part, fresh)
    _same(outcome_of(kernel, part, fresh), before)
    if not isinstance(before, str) and len(part.segments) == len(block.segments):
        resumed = before.resume
        _same(outcome_of(kernel, block, resumed), outcome_of(twin, block, resumed))


@given(queries(LOCAL), tables(), st.integers(0, 14), st.integers(0, 12), WORKS)
def test_the_kernel_equals_the_twin(query, table, cut, watermark, work):
    note(repr(query))
    _compare(query, table, cut, watermark, work)


@examples(40)  # each compiles a predicate of its own
@given(queries((*LOCAL, *PATH)), tables(), st.integers(0, 14), st.integers(0, 12), WORKS)
def test_compiled_predicates_equal_the_twin(query, table, cut, watermark, work):
    note(repr(query))
    _compare(query, table, cut, watermark, work)


@given(
    queries((*LOCAL, "x = A.x"), consuming=True),
    tables(),
    st.integers(0, 14),
    st.integers(0, 12),
    WORKS,
)
def test_events_that_matches_consume_are_those_of_the_twin(query, table, cut, watermark, work):
    note(repr(query))
    _compare(query, table, cut, watermark, work)


@given(
    queries(LOCAL, links=(Link.STRICT,)), tables(20), st.integers(0, 20), st.integers(0, 12), WORKS
)
def test_strict_patterns_equal_the_twin(query, table, cut, watermark, work):
    note(repr(query))
    _compare(query, table, cut, watermark, work)


@given(
    st.sampled_from(["A -> B", "A -> B -> C", "A -> A", "A -> B -> A -> C"]),
    st.lists(st.sampled_from(LOCAL), min_size=3, max_size=3),
    st.none() | st.integers(1, 9),
    st.sampled_from(["past", "none", "next"]),
    st.none() | st.integers(1, 3),
    tables(25),
    st.integers(0, 25),
    st.integers(0, 20),
)
def test_chains_equal_the_twin(pattern, texts, within, skip, limit, table, cut, watermark):
    names = [name for name in "ABC" if name in pattern]
    query = Query().order_by("ts").pattern(pattern).define(dict(zip(names, texts, strict=False)))
    query = query if within is None else query.within(within)
    query = {"past": query, "none": query.no_skip(), "next": query.skip_to_next_row()}[skip]
    query = (query if limit is None else query.limit(limit)).partition_by("key")
    query = query.measures(n="COUNT(*)")
    assert chain_steps(prepare(query, table.schema)) is not None
    _compare(query, table, cut, watermark)


def _letters(text):
    return pa.table({"ts": range(len(text)), "x": list(text)})


def _matched(pattern, table, **definitions):
    used = {name: text for name, text in definitions.items() if name in pattern}
    query = Query().order_by("ts").pattern(pattern).define(used).measures(n="COUNT(*)")
    task = prepare(query, table.schema)
    return match_block(make_kernel(task), whole_block(task, table)).found


@pytest.mark.parametrize("pattern", ["A+ B+", "(A | B)* C", "(A* B*)* C", "(A+)+ C"])
def test_equal_rows_do_not_blow_up(pattern):
    table = _letters("a" * 5000)
    found = _matched(pattern, table, A="x = 'a'", B="x = 'a'", C="x = 'c'")
    assert len(found.start) == (1 if pattern == "A+ B+" else 0)


def test_a_long_run_outgrows_the_first_frames():
    found = _matched("A+ B", _letters("a" * 3000 + "b"), A="x = 'a'", B="x = 'b'")
    assert found.rows.tolist() == list(range(3001))


def test_overlapping_matches_outgrow_the_first_buffers():
    table = _letters("a" * 60)
    query = (
        Query().order_by("ts").pattern("A+").no_skip().define(A="x = 'a'").measures(n="COUNT(*)")
    )
    task = prepare(query, table.schema)
    found = match_block(make_kernel(task), whole_block(task, table)).found
    assert np.diff(found.offsets).tolist() == list(range(60, 0, -1))


def test_what_the_kernel_does_not_cover_is_left_to_the_twin():
    table = _letters("ab")
    query = Query().order_by("ts").pattern("A B").measures(n="COUNT(*)")
    many = query.pattern(f"({' | '.join(f'V{number}' for number in range(63))}) A B")
    assert make_kernel(prepare(many, table.schema)) is None


def test_an_overflow_in_a_compiled_predicate_is_the_twins_error():
    table = pa.table({"ts": [0, 1], "x": [2**62, 2**62]})
    query = Query().order_by("ts").pattern("A B").define(B="A.x + B.x > 0").measures(n="COUNT(*)")
    task = prepare(query, table.schema)
    block = whole_block(task, table)
    with pytest.raises(Exception) as compiled:
        match_block(make_kernel(task), block)
    with pytest.raises(Exception) as plain:
        match_block(TwinMatcher(task), block)
    assert str(compiled.value) == str(plain.value)


def test_a_small_block_does_not_wait_for_the_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("OUTPACE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_search, "WORTH_PREDICATES", 100)
    table = _letters("ab" * 10)
    query = Query().order_by("ts").pattern("A B").define(B="B.ts - A.ts < 7919")
    task = prepare(query.measures(n="COUNT(*)"), table.schema)
    matcher = make_kernel(task)
    assert not matcher.ready(table.num_rows)
    block = whole_block(task, table)
    early = match_block(matcher, block)
    assert not list(tmp_path.rglob("*.nbi"))
    matcher.compile_now()
    assert matcher.ready(table.num_rows)
    _same(match_block(matcher, block), early)


def test_a_small_block_is_matched_before_numba_is_loaded(monkeypatch):
    table = _letters("abbac" * 20)
    query = Query().order_by("ts").pattern("A B+").define(A="x = 'a'", B="x = 'b'")
    for asked in (query, query.pattern("A ->> B")):
        task = prepare(asked.measures(n="COUNT(*)"), table.schema)
        matcher = choose_matcher(task)
        block = whole_block(task, table)
        loaded = match_block(matcher, block)
        with monkeypatch.context() as patch:
            patch.setattr(head_start, "left", 1_000_000)
            _same(match_block(matcher, block), loaded)
            assert 0 < head_start.left < 1_000_000


def test_a_search_that_takes_long_is_left_to_what_is_compiled(monkeypatch):
    table = _letters("a" * 200)
    query = Query().order_by("ts").pattern("A+ B").define(A="A.ts >= FIRST(A.ts)", B="x = 'b'")
    task = prepare(query.measures(n="COUNT(*)"), table.schema)
    matcher = make_kernel(task)
    block = whole_block(task, table)
    monkeypatch.setattr(head_start, "left", 200_000)
    assert TwinMatcher(task).stand_in(block, Resume.fresh(1), lambda _: True) is None
    _same(match_block(matcher, block), match_block(TwinMatcher(task), block))


def test_what_predicates_read_of_a_run_is_counted_as_work():
    """A step over a long run takes as long as many over short ones."""
    table = _letters("a" * 500)
    query = Query().order_by("ts").pattern("A+ B").define(A="A.ts >= FIRST(A.ts)", B="x = 'b'")
    task = prepare(query.measures(n="COUNT(*)"), table.schema)
    steps = StepBudget(4_000)
    with pytest.raises(TooManyStepsError):
        TwinMatcher(task)(whole_block(task, table), Resume.fresh(1), steps)
    assert steps.taken < 1_000


@pytest.mark.parametrize("ready", [True, False])
def test_the_twin_does_not_begin_again_when_its_head_start_is_spent(monkeypatch, ready):
    calls = []

    class Counted(TwinMatcher):
        def __call__(self, *args):
            calls.append(args)
            return super().__call__(*args)

    table = _letters("a" * 200)
    query = Query().order_by("ts").pattern("A+ B").define(A="A.ts >= FIRST(A.ts)", B="x = 'b'")
    task = prepare(query.measures(n="COUNT(*)"), table.schema)
    monkeypatch.setattr(head_start, "left", 200_000)
    outcome = Counted(task).stand_in(whole_block(task, table), Resume.fresh(1), lambda _: ready)
    assert (outcome is None, len(calls)) == (ready, 1)


def test_nanoseconds_are_cut_off_in_compiled_predicates_as_in_the_twin():
    table = pa.table({"ts": pa.array(range(0, 5000, 100), pa.timestamp("ns"))})
    query = (
        Query()
        .order_by("ts")
        .pattern("A B")
        .define(B="ts > A.ts")
        .measures(a="A.ts", b="B.ts + INTERVAL '0' DAY")
    )
    task = prepare(query, table.schema)
    block = whole_block(task, table)
    found = match_block(make_kernel(task), block).found
    assert found.start.tolist() == [9, 19, 29, 39]
    assert match_block(TwinMatcher(task), block).found.start.tolist() == [9, 19, 29, 39]


@pytest.mark.parametrize(
    "condition",
    ["upper(k) = 'A'", "trim(k) = 'a'", "lower(k) LIKE 'a%'", "abs(h) = 1", "exp(h) > 1"],
)
def test_functions_of_columns_with_few_values(condition):
    table = pa.table(
        {
            "ts": [0, 1, 2, 3],
            "k": pa.array(["a", "b", None, "A"]).dictionary_encode(),
            "h": pa.array([1, 0, None, 1], pa.int8()),
        }
    )
    found = _matched("A", table, A=condition)
    assert found.start.tolist() == ([0] if "trim" in condition else [0, 3])


def _paced(pattern, rows, report, toil=None, **definitions):
    """Match equal rows with a kernel that pauses after ten steps."""
    table = _letters("a" * rows)
    query = Query().order_by("ts").pattern(pattern).define(definitions).measures(n="COUNT(*)")
    task = replace(prepare(query, table.schema), pace=Pace(10, report, toil))
    return match_block(make_kernel(task), whole_block(task, table))


@pytest.mark.parametrize(("last", "toils"), [("b", True), ("a", False)])
def test_a_search_that_grows_faster_than_the_rows_is_told(monkeypatch, last, toils):
    monkeypatch.setattr(contract_module, "TOIL_PER_ROW", 20)
    told = []
    defined = {"A": "A.ts >= FIRST(A.ts)", "B": f"x = '{last}'"}
    _paced("A+ B", 200, None, lambda: told.append(True), **defined)
    assert bool(told) == toils


@pytest.mark.parametrize(
    ("pattern", "last"), [("A B+ C", "c"), ("A -> B+ -> C", "c"), ("A -> B -> C", "a")]
)
def test_a_long_search_lets_python_have_the_floor(pattern, last):
    told = []
    defined = {"A": "x = 'a'", "B": "x = 'a'", "C": f"x = '{last}'"}
    _paced(pattern, 60, lambda *place: told.append(place), **defined)
    rows = [row for row, _ in told]
    assert rows == sorted(rows)
    assert len(rows) > 1
    assert {total for _, total in told} == {60}

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _paced(pattern, 60, stop, **defined)


def test_all_starts_together_have_a_budget(monkeypatch):
    monkeypatch.setattr(contract_module, "WORK_BUDGET", 0)
    monkeypatch.setattr(contract_module, "WORK_PER_ROW", 20)
    reads_match = {"A": "x = 'a'", "B": "x = 'a'", "C": "x = 'c' AND COUNT(*) > 1"}
    _paced("A B+ C", 20, None, **reads_match)
    with pytest.raises(MatchError, match="more than 2000 steps for 100 rows"):
        _paced("A B+ C", 100, None, **reads_match)
