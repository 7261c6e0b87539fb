"""Counts equal the number of enumerated matches, however large they are."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st
from support.matching import LETTERS, Case, block_of, cases, push_all

from outpace.engine.kernels.count_rows import BY_WINDOWS, ONE_LANE, Spans
from outpace.engine.match import graph as graph_module
from outpace.engine.match.contract import Block, Resume
from outpace.engine.match.count_ambiguity import is_ambiguous
from outpace.engine.match.count_candidates import (
    NO_SPANS,
    count_candidates,
    count_rows_exactly,
    exact_sum,
    lane_mode,
    number_symbols,
)
from outpace.engine.match.count_machine import build_machine
from outpace.engine.match.graph import make_graph_matcher
from outpace.engine.match.partitions import count_matches
from outpace.engine.match.program import compile_program
from outpace.errors import MatchError
from outpace.pattern import ast
from outpace.pattern.ast import Link, Mode
from outpace.pattern.bound import Predicate, PredicateClass
from outpace.pattern.notation.parse_pattern import parse_pattern
from outpace.pattern.query import AfterMatch, Consume, Selection, Skip

FREE = {
    "selection": Selection.ALL,
    "after": AfterMatch(Skip.NONE),
    "consume": Consume.NONE,
    "per_start": None,
    "per_partition": None,
    "reading_run": frozenset(),
}


def truth_of(case, block):
    rows = [case.table[ordinal] for ordinal in block.ordinals]
    return np.array(rows, np.bool_).reshape(len(rows), 4)


def counted(case, spans=NO_SPANS):
    block = block_of(case, 0, case.size, ended=True)
    truth = truth_of(case, block)
    return count_candidates(case.task(), block, Resume.fresh(1), truth, spans)


def with_floors(block, floors):
    return replace(block, floors=np.array(floors, np.int64))


def counted_exactly(case, spans=NO_SPANS):
    block = block_of(case, 0, case.size, ended=True)
    symbols, kinds = number_symbols(truth_of(case, block), block)
    machine = build_machine(case.task().program, kinds)
    bounds = np.array([[0, case.size]])
    mode = lane_mode(case.task())
    if len(spans.opened) and mode == ONE_LANE:
        mode = BY_WINDOWS
    within = case.within or 0
    return count_rows_exactly(machine, symbols, block.times, mode, within, spans, bounds)


def equal_rows(size, **options):
    return {"table": ((True,) * 4,) * size, "times": tuple(range(size)), **FREE, **options}


@given(cases(size=8, **FREE))
def test_each_row_completes_as_many_matches_as_the_twin_finds(case):
    note(repr(case.pattern))
    counts = counted(case)
    assume(counts is not None)
    completing = [run[-1][0] for _, run in push_all(case, []).matches]
    assert counts.tolist() == np.bincount(completing, minlength=case.size).tolist()


@given(cases(size=8, **FREE))
def test_the_kernel_counts_as_its_twin(case):
    note(repr(case.pattern))
    counts = counted(case)
    assume(counts is not None)
    assert counts.tolist() == counted_exactly(case).tolist()


@given(cases(size=8, **FREE), st.lists(st.integers(-3, 1), min_size=8, max_size=8))
def test_candidates_that_start_before_the_floor_of_a_row_are_not_counted(case, behind):
    note(repr(case.pattern))
    floors = np.maximum.accumulate(np.maximum(np.arange(8) + behind, 0))[: case.size]
    block = with_floors(block_of(case, 0, case.size, ended=True), floors)
    counts = count_candidates(case.task(), block, Resume.fresh(1), truth_of(case, block))
    assume(counts is not None and case.size)
    inside = [
        run[-1][0] for start, run in push_all(case, []).matches if start >= floors[run[-1][0]]
    ]
    assert counts.tolist() == np.bincount(inside, minlength=case.size).tolist()


@given(
    cases(size=8, **FREE),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=8, max_size=8),
    st.booleans(),
)
def test_candidates_count_once_or_for_each_window_that_they_lie_in(case, steps, every):
    note(repr(case.pattern))
    opened, closed = (np.cumsum(some) for some in np.array(steps).T[:, : case.size])
    spans = Spans(opened, np.minimum(closed, opened + 1), 2**60 if every else 0)
    counts = counted(case, spans)
    assume(counts is not None and case.size)
    expected = [0] * case.size
    for start, run in push_all(case, []).matches:
        windows = max(spans.opened[start] - spans.closed[run[-1][0]], 0)
        expected[run[-1][0]] += windows if every else min(windows, 1)
    assert counts.tolist() == expected
    assert counted_exactly(case, spans).tolist() == expected


def test_too_many_matches_of_windows_are_refused_with_the_number_that_windows_hold(monkeypatch):
    # The twin, which answers as long as nothing is compiled, writes what so few rows have.
    monkeypatch.setattr(graph_module, "_SMALL", -1)
    chain = ast.concat([ast.Var("A")] * 3, [Link.ANY] * 2)
    case = Case(chain, **equal_rows(40))
    block = with_floors(block_of(case, 0, 40, ended=True), np.maximum(np.arange(40) - 9, 0))
    matcher = make_graph_matcher(case.task(), partial(truth_of, case), takes_max=100)
    with pytest.raises(MatchError, match="there are 1200 matches, with more than 100 rows"):
        matcher(block, Resume.fresh(1))


@given(cases(size=8, **FREE), st.integers(0, 8))
def test_a_resumed_count_leaves_out_what_was_counted(case, cut):
    block = block_of(case, 0, case.size, ended=True)
    resume = Resume.fresh(1)
    resume.completed_to[:] = cut
    counts = count_candidates(case.task(), block, resume, truth_of(case, block))
    assume(counts is not None)
    assert counts.tolist() == [0] * min(cut, case.size) + counted(case).tolist()[cut:]


@pytest.mark.parametrize("within", [None, 10**6])
def test_counts_beyond_64_bits_are_exact(within):
    several = ast.Repeat(ast.Var("A"), 1, None, Mode.GREEDY, Link.ANY)
    case = Case(several, **equal_rows(300, within=within))
    assert exact_sum(counted(case)) == 2**300 - 1


@pytest.mark.parametrize("size", [20, 60, 62, 63, 64])
def test_counts_in_many_windows_beyond_64_bits_are_exact(size):
    several = ast.Repeat(ast.Var("A"), 1, None, Mode.GREEDY, Link.ANY)
    case = Case(several, **equal_rows(size))
    windows = 11
    spans = Spans(np.full(size, windows), np.zeros(size, np.int64), (2**63 - 1) // windows)
    assert exact_sum(counted(case, spans)) == windows * (2**size - 1)


def test_a_chain_counts_combinations():
    chain = ast.concat([ast.Var("A")] * 5, [Link.ANY] * 4)
    case = Case(chain, **equal_rows(400))
    assert exact_sum(counted(case)) == math.comb(400, 5)


def test_an_ambiguous_pattern_counts_each_match_once():
    several = ast.Repeat(ast.Var("A"), 1, None, Mode.GREEDY, Link.ANY)
    case = Case(ast.concat([several, several], [Link.ANY]), **equal_rows(10))
    assert exact_sum(counted(case)) == 2**10 - 1 - 10


@pytest.mark.parametrize(
    ("text", "ambiguous"),
    [
        ("A ->> B ->> C", False),
        ("A{2,4}", False),
        ("(A | B)+", False),
        ("(A+)+", False),
        ("PERMUTE(A, B, C)", False),
        ("(A | A)", True),
        ("(A | A) B", True),
        ("A+ A+", True),
        ("A? A", False),  # the length tells which A it was
        ("A? A?", True),
        ("(A B | A C)", False),
        ("A* B A*", False),
        ("(A(->)+)(.)+", True),
        ("(A(->)+)(->)+ B", False),
    ],
)
def test_ambiguity_is_seen_in_the_pattern(text, ambiguous):
    assert is_ambiguous(compile_program(parse_pattern(text), LETTERS)) is ambiguous


def bound_case(case):
    """Return a task whose predicates are columns, and its block, for the whole way to a count."""
    task = case.task()
    always = tuple(Predicate(name, None, PredicateClass.ALWAYS) for name in LETTERS)
    block = block_of(case, 0, case.size, ended=True)
    return replace(task, bound=replace(task.bound, predicates=always)), block


@pytest.mark.parametrize(
    ("rules", "count"),
    [
        ({}, 45),
        ({"per_partition": 7}, 7),
        ({"per_start": 2}, 8 * 2 + 1),
        ({"after": AfterMatch(Skip.TO_NEXT_ROW)}, 9),
        ({"after": AfterMatch(Skip.PAST_LAST_ROW)}, 5),
        ({"consume": Consume.SELECTED}, 5),
    ],
)
def test_count_matches_follows_the_rules_of_the_query(rules, count):
    pair = ast.concat([ast.Var("A"), ast.Var("B")], [Link.ANY])
    task, block = bound_case(Case(pair, **equal_rows(10, **rules)))
    assert count_matches(task, block, Resume.fresh(1)) == count


def test_a_count_of_many_segments_limits_each():
    pair = ast.concat([ast.Var("A"), ast.Var("B")], [Link.ANY])
    task, block = bound_case(Case(pair, **equal_rows(10, per_partition=7)))
    parts = np.array([0, 3, 10])
    split = Block(
        columns={}, segments=parts, visible=parts[1:], ordinals=np.array([0, 1, 2, *range(7)]),
        arrivals=block.arrivals, times=block.times, ended=True,
    )  # fmt: skip
    assert count_matches(task, split, Resume.fresh(2)) == 3 + 7


def test_sums_of_counts_do_not_overflow():
    assert exact_sum(np.full(100, 2**62)) == 100 * 2**62
    assert exact_sum(np.array([10**30, 1], object)) == 10**30 + 1


def test_the_table_of_truth_takes_null_as_false():
    from outpace.engine.match.count_candidates import truth_table
    from outpace.pattern.bound import Constant

    task, block = bound_case(Case(ast.Var("A"), **equal_rows(2)))
    null = Predicate("A", Constant(pa.bool_(), None), PredicateClass.LOCAL)
    bound = replace(task.bound, predicates=(null, *task.bound.predicates[1:]))
    assert (
        truth_table(replace(task, bound=bound), block).tolist() == [[False, True, True, True]] * 2
    )
