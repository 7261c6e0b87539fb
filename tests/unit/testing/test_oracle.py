"""The oracle on cases that are worked out by hand."""

import pytest

from outpace.pattern.ast import Link, Mode, Not, Repeat, Var, concat
from outpace.pattern.notation.parse_pattern import parse_pattern
from outpace.pattern.query import AfterMatch, Consume, Selection, Skip
from outpace.testing.oracle import Question, SkipFailure, answer


def found(pattern, letters, **options):
    """Match letters, each satisfying its own variable; return matches as text with positions."""
    tree = parse_pattern(pattern) if isinstance(pattern, str) else pattern
    asked = Question(
        tree, len(letters), lambda name, event, run: letters[event] == name.lower(), **options
    )
    return ["".join(f"{name}{event}" for event, name in run) for _, run in answer(asked).matches]


ALL = {"selection": Selection.ALL, "after": AfterMatch(Skip.NONE)}


@pytest.mark.parametrize(
    ("pattern", "letters", "expected"),
    [
        ("A B", "abab", ["A0B1", "A2B3"]),
        ("A+", "aab", ["A0A1"]),
        ("A+?", "aa", ["A0", "A1"]),
        ("A*", "ba", ["", "A1"]),
        ("A*?", "a", [""]),
        ("A | A B", "ab", ["A0"]),
        ("(A | B)+ C", "abca", ["A0B1C2"]),
        ("PERMUTE(A, B)", "ba", ["B0A1"]),
        ("^ A", "aa", ["A0"]),
        ("A $", "aa", ["A1"]),
        ("A -> B", "acb", ["A0B2"]),
        ("A !B C", "acabc", ["A0C1"]),
        ("A !B", "aba", ["A2"]),
        ("A -> !B -> C", "abcac", ["A3C4"]),
        ("A++ A", "aa", []),
    ],
)
def test_preferred_matches(pattern, letters, expected):
    assert found(pattern, letters) == expected


@pytest.mark.parametrize(
    ("pattern", "letters", "expected"),
    [
        ("A ->> B", "abb", ["A0B1", "A0B2"]),
        ("A -> B", "abb", ["A0B1"]),
        ("A -> B+", "abb", ["A0B1", "A0B1B2"]),
        ("A B(->>)+", "abbb", ["A0B1", "A0B1B2", "A0B1B2B3", "A0B1B3"]),
        ("A -> B++ -> C", "abxbc", ["A0B1B3C4"]),
        ("A -> B+ -> !C -> D", "abcd", []),
        ("A -> !C -> B+ -> D", "abcd", ["A0B1D3"]),
        ("A*", "a", ["A0"]),
    ],
)
def test_all_matches_by_the_event_that_completes_them(pattern, letters, expected):
    assert found(pattern, letters, **ALL) == expected


def test_until_closes_the_repetition_and_nothing_else():
    tree = concat(
        [Var("A"), Repeat(Var("B"), 1, None, link=Link.NEXT, until="C"), Var("D")],
        [Link.NEXT, Link.NEXT],
    )
    assert found(tree, "abcbd", **ALL) == ["A0B1D4"]


def test_within_is_exclusive_and_a_trailing_negation_ends_with_it():
    assert found("A -> B", "ab", times=[0, 5], within=5) == []
    assert found("A -> B", "ab", times=[0, 4], within=5) == ["A0B1"]
    trailing = concat([Var("A"), Not("B")], [Link.NEXT])
    assert found(trailing, "ab", times=[0, 4], within=5) == []
    assert found(trailing, "ab", times=[0, 5], within=5) == ["A0"]


def test_timed_out_runs_are_the_longest_that_time_ended():
    def holds(name, event, run):
        return "abx"[event] == name.lower()

    asked = Question(parse_pattern("A -> B -> C"), 3, holds, [0, 1, 9], 5)
    assert answer(asked).timed_out == [((0, "A"), (1, "B"))]
    unfinished = Question(parse_pattern("A -> B -> C"), 2, holds, [0, 1], 5)
    assert answer(unfinished).timed_out == []


def test_skips_rule_out_starts():
    overlapping = {"selection": Selection.ALL}
    assert found("A B", "abab", **overlapping, after=AfterMatch(Skip.PAST_LAST_ROW)) == [
        "A0B1",
        "A2B3",
    ]
    assert found("A ->> B", "abb", **overlapping, after=AfterMatch(Skip.TO_NEXT_ROW)) == ["A0B1"]
    assert found("A A", "aaa", after=AfterMatch(Skip.TO_NEXT_ROW)) == ["A0A1", "A1A2"]


def test_a_strict_skip_without_a_row_to_go_to_fails():
    with pytest.raises(SkipFailure, match="first row"):
        found("A B", "ab", after=AfterMatch(Skip.TO_FIRST, "A", True), targets=frozenset("A"))
    with pytest.raises(SkipFailure, match="missing"):
        found("A B?", "a", after=AfterMatch(Skip.TO_LAST, "B", True), targets=frozenset("B"))


def test_consumed_events_are_not_used_again():
    assert found("A ->> B", "aabb", **ALL | {"consume": Consume.SELECTED}) == ["A0B2", "A1B3"]
    assert found("A ->> B", "aabb", **ALL | {"consume": Consume.ALL}) == ["A0B2"]


def test_a_possessive_mode_is_no_other_order():
    tree = Repeat(Var("A"), 1, 3, Mode.POSSESSIVE)
    assert found(tree, "aab") == ["A0A1"]
