"""Programs: the order of moves, loops that take nothing, and the guards on the way."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st
from support.matching import cases
from support.properties import examples
from support.strategies import patterns

from outpace.engine.match.program import (
    ACCEPT,
    Hold,
    Negation,
    compile_program,
)
from outpace.errors import UnsupportedError
from outpace.pattern.ast import Link, Repeat, Var
from outpace.pattern.notation.parse_pattern import parse_pattern
from outpace.pattern.size import size_of
from outpace.testing.oracle import answer

NAMES = ("A", "B", "C", "D")


def program_of(text):
    return compile_program(parse_pattern(text), NAMES)


def ways(program, moves):
    """Write moves as variable names, `.` for ACCEPT."""
    variables = [NAMES[position.variable] for position in program.positions]
    return " ".join("." if move.target == ACCEPT else variables[move.target] for move in moves)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A", "A"),
        ("A | B", "A B"),
        ("(B | A) C", "B A"),
        ("A? B", "A B"),
        ("A?? B", "B A"),
        ("A*", "A ."),
        ("A*?", ". A"),
        ("A{0,2} B", "A B"),
        ("()", "."),
        ("PERMUTE(B, A)", "B A"),
        ("(A | B?) C", "A B C"),
        ("(A* B*)*", "A B ."),
        ("((A?)*)*", "A ."),
        ("(A??)*", ". A"),
    ],
)
def test_first_moves_are_in_order_of_preference(text, expected):
    program = program_of(text)
    assert ways(program, dict.fromkeys(program.initial)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A+", "A ."),
        ("A+?", ". A"),
        ("A+ B", "A B"),
        ("A+? B", "B A"),
        ("A{2}", "A"),
        ("(A??)+?", ". A"),
        ("(A??)+", "A ."),
        ("(A | B)* C", "A B C"),
        ("(A B?)+", "B A ."),
        ("(A B??)+", "A . B"),
        ("PERMUTE(A, B, C)", "B C"),
        ("A $", "."),
        ("A ^", ""),
        ("A $ B", ""),
    ],
)
def test_moves_after_the_first_position_are_in_order_of_preference(text, expected):
    program = program_of(text)
    assert ways(program, program.follow[program.initial[0].target]) == expected


def test_bounded_repetitions_are_written_out():
    assert len(program_of("A{2,4}").positions) == 4
    assert len(program_of("A{3,}").positions) == 3


def test_orders_of_permute_share_what_is_left():
    names = tuple("ABCDEFGH")
    program = compile_program(parse_pattern("PERMUTE(A, B, C, D, E, F, G, H)"), names)
    assert len(program.positions) == 8 * 2**7


def test_a_repetition_enters_by_the_link_before_it_and_goes_on_by_its_own():
    program = program_of("A B(->>)+ C")
    (into,) = program.follow[0]
    again, leave = program.follow[1]
    assert (into.link, again.link, leave.link) == (Link.STRICT, Link.ANY, Link.STRICT)


def test_the_last_link_on_the_way_counts_when_an_item_is_left_out():
    program = program_of("A -> B? C")
    into, past = program.follow[0]
    assert (into.link, past.link) == (Link.NEXT, Link.STRICT)


def test_anchors_stand_on_moves():
    program = program_of("^ A $")
    assert program.initial[0].at_start
    assert program.follow[0][0].at_end
    assert not program_of("A").initial[0].at_start


def test_leaving_a_possessive_repetition_holds_its_first_variables():
    program = program_of("A (B | C)++ D")
    leave = program.follow[1][-1]
    assert set(leave.holds) == {Hold(1), Hold(2)}
    assert program.follow[0][0].holds == ()


def test_an_until_guards_every_way_into_the_repetition():
    tree = parse_pattern("A -> B")
    repeated = Repeat(Var("B"), 1, None, link=Link.NEXT, until="C")
    tree = type(tree)((tree.items[0], repeated), tree.links)
    program = compile_program(tree, NAMES)
    assert program.follow[0][0].untils == (2,)
    assert [move.untils for move in program.follow[1]] == [(2,), ()]


def test_a_negation_is_immediate_after_a_strict_link_only():
    assert program_of("A !B C").follow[0][0].negations == (Negation(1, immediate=True),)
    assert program_of("A -> !B -> C").follow[0][0].negations == (Negation(1, immediate=False),)


@pytest.mark.parametrize("text", ["A+ -> !B -> C", "A{2} -> !B -> C", "(A{2})? -> !B -> C"])
def test_a_negation_after_a_repetition_ends_it_from_its_first_event_on(text):
    program = program_of(text)
    assert Negation(1, immediate=False) in program.ends[0]


def test_a_negation_after_a_group_does_not_end_the_group():
    program = program_of("(A D)+ -> !B -> C")
    assert program.ends[0] == ()
    assert program.ends[1] == (Negation(1, immediate=False),)


def test_excluded_positions_are_marked():
    program = program_of("A {- B -} C")
    assert [position.excluded for position in program.positions] == [False, True, False]


def test_a_pattern_that_is_too_large_is_refused():
    nested = Var("A")
    for _ in range(4):
        nested = Repeat(nested, 100, 100)
    with pytest.raises(UnsupportedError, match="the pattern is too large"):
        compile_program(nested, NAMES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A -> B+ -> C", True),
        ("A ->> (B | C){2} -> D", True),
        ("A -> !B -> C", True),
        ("PERMUTE(A)", True),
        ("PERMUTE(A, B)", False),
        ("A? -> PERMUTE(A, B)", False),
        ("A -> B !C -> D", False),
        ("A -> B !C", False),
        ("A -> B C?", False),
        ("A -> B(.)*", False),
        ("^ A -> B", False),
        ("A -> B $", False),
        ("A*", False),
    ],
)
def test_rows_that_fit_no_variable_count_where_the_very_next_row_does(text, expected):
    assert program_of(text).skips_unused is expected


@examples(200)
@given(
    cases(size=5, links=(Link.NEXT, Link.NEXT, Link.ANY, Link.STRICT), reading_run=frozenset()),
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
)
def test_rows_that_fit_no_variable_leave_no_trace_where_a_program_skips_them(case, places):
    """A construct that no one thought of here fails: all of them are drawn."""
    note(repr(case.pattern))
    assume(compile_program(case.pattern, NAMES).skips_unused)
    table, times = list(case.table), list(case.times)
    for place in sorted((min(place, len(table)) for place in places), reverse=True):
        table.insert(place, (False,) * len(NAMES))
        times.insert(place, times[place - 1] if place else times[0] if times else 0)
    noisy = replace(case, table=tuple(table), times=tuple(times))
    used = [row for row, fits in enumerate(table) if any(fits)]
    quiet = replace(
        case, table=tuple(table[row] for row in used), times=tuple(times[row] for row in used)
    )
    expected = [
        (used[start], tuple((used[event], name) for event, name in run))
        for start, run in answer(quiet.question()).matches
    ]
    assert answer(noisy.question()).matches == expected


@pytest.mark.parametrize(
    "text",
    [
        "((){1000000}){1000000}",
        "((^){1000}){1000} A",
        "(A?){1400}",
        "A{0,20000}",
        "A* " * 1000,
        "A*+ " * 2000,
        "A? ->> " * 1000 + "B",
        f"PERMUTE({', '.join(['()'] * 30)})",
    ],
)
def test_what_would_take_long_to_compile_is_refused(text):
    pattern = parse_pattern(text)
    with pytest.raises(UnsupportedError, match="the pattern is too large"):
        compile_program(pattern, NAMES)


@examples(200)
@given(patterns(anchors=False))
def test_the_size_of_a_pattern_is_there_in_its_program(pattern):
    program = compile_program(pattern, ("A", "B", "C"))
    pairs = sum(len({move.target for move in moves} - {ACCEPT}) for moves in program.follow)
    size = size_of(pattern)
    assert size.positions == len(program.positions)
    assert size.ways <= pairs
    assert size.empty is program.matches_empty


def test_nested_possessive_groups_cost_no_more_than_others():
    """Before the fix each level doubled the work: sixty levels would never have ended."""
    nested = parse_pattern("(" * 60 + "A" + ")++" * 60)
    program = compile_program(nested, NAMES)
    assert ways(program, program.initial) == "A"
