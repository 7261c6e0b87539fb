import pytest

from outpace.errors import PatternSyntaxError, Span
from outpace.pattern.ast import (
    Alternate,
    AtEnd,
    AtStart,
    Concat,
    Empty,
    Exclude,
    Link,
    Mode,
    Not,
    Permute,
    Repeat,
    Var,
    concat,
    walk,
)
from outpace.pattern.notation.lexer import SourceText, TokenCursor
from outpace.pattern.notation.parse_pattern import parse_pattern, read_pattern
from outpace.pattern.size import MOST_NESTED

A, B, C, D = Var("A"), Var("B"), Var("C"), Var("D")
STRICT, NEXT, ANY = Link.STRICT, Link.NEXT, Link.ANY


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("A", A),
        ("(A)", A),
        ("((A))", A),
        ("A B C", Concat((A, B, C), (STRICT, STRICT))),
        ("A -> B ->> C", Concat((A, B, C), (NEXT, ANY))),
        ("A(B -> C)D", Concat((A, B, C, D), (STRICT, NEXT, STRICT))),
        ("A ->> (B C)", Concat((A, B, C), (ANY, STRICT))),
        ("A | B C | D", Alternate((A, Concat((B, C), (STRICT,)), D))),
        ("A | (B | C)", Alternate((A, B, C))),
        ("A (B | C)", Concat((A, Alternate((B, C))), (STRICT,))),
        ("()", Empty()),
        ("(())", Empty()),
        ("A ()", Concat((A, Empty()), (STRICT,))),
        ("() | A", Alternate((Empty(), A))),
        ("^ A $", Concat((AtStart(), A, AtEnd()), (STRICT, STRICT))),
        ("$A$", Concat((AtEnd(), A, AtEnd()), (STRICT, STRICT))),
        ("{- A | B -}", Exclude(Alternate((A, B)))),
        ("{-A-}B", Concat((Exclude(A), B), (STRICT,))),
        ("PERMUTE(A, B C, D | A)", Permute((A, Concat((B, C), (STRICT,)), Alternate((D, A))))),
        ("permute(A)", Permute((A,))),
        ("PERMUTE A", Concat((Var("PERMUTE"), A), (STRICT,))),
        ("PERMUTE", Var("PERMUTE")),
        ('"PERMUTE" (A)', Concat((Var("PERMUTE"), A), (STRICT,))),
        ("A !B C", Concat((A, Not("B"), C), (STRICT, STRICT))),
        ("A -> !B -> C", Concat((A, Not("B"), C), (NEXT, NEXT))),
        ("A -> !B", Concat((A, Not("B")), (NEXT,))),
        ("A !B !C", Concat((A, Not("B"), Not("C")), (STRICT, STRICT))),
        ('"x y" `z`', Concat((Var("x y"), Var("z")), (STRICT,))),
        ("A -- B\n C /* D */", Concat((A, C), (STRICT,))),
        ("UNTIL A", Concat((Var("UNTIL"), A), (STRICT,))),
        ("A UNTIL B", Concat((A, Var("UNTIL"), B), (STRICT, STRICT))),
    ],
)
def test_reads_structure(text, tree):
    assert parse_pattern(text) == tree


@pytest.mark.parametrize(
    ("sign", "bounds"),
    [
        ("*", (0, None)),
        ("+", (1, None)),
        ("?", (0, 1)),
        ("{3}", (3, 3)),
        ("{3,}", (3, None)),
        ("{,3}", (0, 3)),
        ("{0,3}", (0, 3)),
        ("{2,3}", (2, 3)),
        ("{,}", (0, None)),
        ("{ 2 , 3 }", (2, 3)),
        ("{1000000}", (1_000_000, 1_000_000)),
    ],
)
@pytest.mark.parametrize(
    ("suffix", "mode"), [("", Mode.GREEDY), ("?", Mode.RELUCTANT), ("+", Mode.POSSESSIVE)]
)
def test_reads_quantifiers(sign, bounds, suffix, mode):
    assert parse_pattern(f"A{sign}{suffix}") == Repeat(A, *bounds, mode)


def test_a_repetition_of_a_repetition_needs_parentheses():
    assert parse_pattern("(A+)*") == Repeat(Repeat(A, 1, None), 0, None)


def test_reads_quantified_groups_and_anchors():
    assert parse_pattern("(A B){2}") == Repeat(concat([A, B]), 2, 2)
    assert parse_pattern("(){5,} | ^* | $+") == Alternate(
        (Repeat(Empty(), 5, None), Repeat(AtStart(), 0, None), Repeat(AtEnd(), 1, None))
    )
    assert parse_pattern("A ()*") == concat([A, Repeat(Empty(), 0, None)])


def test_reads_until():
    assert parse_pattern("A+? UNTIL B C") == concat(
        [Repeat(A, 1, None, Mode.RELUCTANT, STRICT, "B"), C]
    )


def own_links(text):
    return [node.link.value for node in walk(parse_pattern(text)) if isinstance(node, Repeat)]


@pytest.mark.parametrize(
    ("text", "links"),
    [
        # The link that leads to the item.
        ("A -> B+", ["next"]),
        ("A ->> B+ C", ["any"]),
        ("A B+ -> C", ["strict"]),
        ("A -> B+ ->> C+ D+", ["next", "any", "strict"]),
        ("A -> !B ->> C+", ["any"]),
        # The first item: the link that follows it.
        ("A+ -> B", ["next"]),
        ("A+ ->> B -> C", ["any"]),
        ("A+ B", ["strict"]),
        ("A+ -> !B -> C", ["next"]),
        # Nothing around it.
        ("A+", ["strict"]),
        ("A+ | B ->> C", ["strict"]),
        ("(A | B)+", ["strict"]),
        # Said in the text.
        ("A B(->)+ C", ["next"]),
        ("A -> B(->>)* C", ["any"]),
        ("A -> B(.){2,} -> C", ["strict"]),
        ("(A -> B)(->>)+", ["any"]),
        ("A(->)+? -> B", ["next"]),
        # At most one repetition has nothing between repetitions.
        ("A -> B? -> C{1} -> D{,1}", ["strict", "strict", "strict"]),
        ("A -> B(->)?", ["next"]),
        # Parentheses that only group change nothing.
        ("A -> (B+ C)", ["next"]),
        ("A -> (B+)", ["next"]),
        ("(A+ -> B) C", ["next"]),
        ("(A+) -> B", ["next"]),
        # A sequence in a quantified group counts for itself: outer first, then inner.
        ("A -> (B+ C)+", ["next", "strict"]),
        ("A (B+ ->> C)+", ["strict", "any"]),
        ("(A+ -> B)+ ->> C", ["any", "next"]),
        # A single item there takes the link around the group.
        ("A -> (B+)+", ["next", "next"]),
        ("A -> (B+ | C+ D)", ["next", "strict"]),
        ("A ->> {- B+ -}", ["any"]),
        ("A -> PERMUTE(B+, C+ D)", ["next", "strict"]),
        ("A -> (B+)(.)+", ["strict", "next"]),
        # Anchors and the empty pattern take no event.
        ("^ A+ -> B", ["next"]),
        ("() A+ ->> B", ["any"]),
        ("A -> $ B+", ["strict"]),
    ],
)
def test_own_link_of_a_quantifier(text, links):
    assert own_links(text) == links


def test_names_are_folded_as_asked():
    cursor = TokenCursor(SourceText('a "b" !c d+ UNTIL e', is_pattern=True))
    tree = read_pattern(cursor, lambda name, quoted: f"{name}{quoted:d}")
    assert tree == concat([Var("a0"), Var("b1"), Not("c0"), Repeat(Var("d0"), 1, None, until="e0")])


def test_every_node_has_its_place():
    text = "A -> (B C | D)+ {- A -} !B PERMUTE(A, B{2})"
    for node in walk(parse_pattern(text)):
        assert node.span is not None
        shown = text[node.span.start : node.span.end]
        match node:
            case Var(name=name):
                assert shown == name
            case Not(name=name):
                assert shown == f"!{name}"
            case Repeat(item=Var()):
                assert shown == "B{2}"
            case Repeat():
                assert shown == "(B C | D)+"
            case Exclude():
                assert shown == "{- A -}"
            case Permute():
                assert shown == "PERMUTE(A, B{2})"


def test_an_offset_moves_places_and_errors():
    def read(text, **place):
        return read_pattern(TokenCursor(SourceText(text, is_pattern=True, **place)))

    assert read("A", offset=10).span == Span(10, 11)
    with pytest.raises(PatternSyntaxError) as caught:
        read("A |", offset=10)
    assert caught.value.span == Span(13, 13)
    assert caught.value.text is None
    with pytest.raises(PatternSyntaxError) as caught:
        read("A |", offset=9, whole="PATTERN (A |)")
    assert caught.value.text == "PATTERN (A |)"
    assert caught.value.span == Span(12, 12)


def test_a_long_flat_pattern_is_read():
    tree = parse_pattern("A -> " * 9_000 + "B")
    assert isinstance(tree, Concat)
    assert len(tree.items) == 9_001
    tree = parse_pattern(" | ".join(["A B"] * 6_000))
    assert isinstance(tree, Alternate)
    assert len(tree.options) == 6_000


def test_the_deepest_pattern_can_be_compared_hashed_shown_and_printed():
    from outpace.pattern.notation.print_pattern import print_pattern

    text = "A"
    for _ in range(MOST_NESTED):
        text = f"(B | {text} C)+"
    first, second = parse_pattern(text), parse_pattern(text)
    assert first == second
    assert hash(first) == hash(second)
    assert "Repeat" in repr(first)
    assert print_pattern(first) == text


@pytest.mark.parametrize("opener", ["(", "{-", "PERMUTE(", "(A ", "(A | "])
@pytest.mark.parametrize("depth", [MOST_NESTED + 1, 3_000])
def test_deep_nesting_is_refused(opener, depth):
    with pytest.raises(PatternSyntaxError, match="nested deeper"):
        parse_pattern(opener * depth + "A" + ")" * depth)


@pytest.mark.parametrize("text", ["A " * 60_000, "A | " * 60_000 + "A"])
def test_a_text_with_very_many_steps_is_refused(text):
    with pytest.raises(PatternSyntaxError, match="the text has more than 20000 words"):
        parse_pattern(text)
