import pytest

from outpace.errors import PatternSyntaxError, Span
from outpace.pattern.notation.lexer import MOST_TOKENS, SourceText, TokenCursor, TokenKind, tokenize


def values(text, dialect="outpace"):
    return [token.value for token in tokenize(SourceText(text, dialect=dialect))][:-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A{2,3}-> {-B-}", ["A", "{", "2", ",", "3", "}", "->", "{-", "B", "-}"]),
        ("{--}", ["{-", "-}"]),
        ("A{2}->>B", ["A", "{", "2", "}", "->>", "B"]),
        ("A$^!B", ["A", "$", "^", "!", "B"]),
        ("a<=b>=c<>d", ["a", "<=", "b", ">=", "c", "<>", "d"]),
        ("d!=e||f::g==h", ["d", "!=", "e", "||", "f", "::", "g", "==", "h"]),
        ("1 1.5 .5 1. 1e0 1.5E-3 1e", ["1", "1.5", ".5", "1.", "1e0", "1.5E-3", "1", "e"]),
        ("A.*", ["A", ".", "*"]),
        ("x[1].y", ["x", "[", "1", "]", ".", "y"]),
        ("a -- b -> c\nd", ["a", "d"]),
        ("a /* b 'c */ d", ["a", "d"]),
        ("größe ñ_1", ["größe", "ñ_1"]),
        ("a ; @ # \\ ?", ["a", ";", "@", "#", "\\", "?"]),
        ("", []),
        (" \t\n", []),
    ],
)  # fmt: skip
def test_splits_text(text, expected):
    assert values(text) == expected


def test_quotes_are_doubled_inside_quotes():
    assert values("'it''s' \"a\"\"b\" `c``d` ''") == ["it's", 'a"b', "c`d", ""]


def test_double_quotes_and_backslashes_make_strings_in_spark():
    tokens = tokenize(SourceText(r""" "it\"s" 'a\'b''c\\' "d""e" '\n' `f` """, dialect="spark"))
    assert [token.value for token in tokens[:-1]] == ['it"s', "a'b'c\\", 'd"e', "\n", "f"]
    assert [token.kind for token in tokens[:-1]] == [TokenKind.STRING] * 4 + [TokenKind.QUOTED]


def test_a_backslash_is_plain_elsewhere():
    assert values(r"'a\' b") == ["a\\", "b"]


def test_every_token_knows_its_place():
    text = "SELECT 'it''s' -- no\n  \"x y\" /* no */ 1.5e0 ->> z"
    for token in tokenize(SourceText(text))[:-1]:
        shown = text[token.start : token.end]
        assert shown.strip("'\"").replace("''", "'") == token.value


def test_an_offset_moves_the_places():
    tokens = tokenize(SourceText("a 'b' c", offset=100))
    assert [(token.start, token.end) for token in tokens] == [
        (100, 101),
        (102, 105),
        (106, 107),
        (107, 107),
    ]


def test_a_quoted_name_is_no_keyword():
    cursor = TokenCursor(SourceText('"AND" and'))
    assert not cursor.at("AND")
    cursor.advance()
    assert cursor.at("AND")


@pytest.mark.parametrize("opener", ["'", '"', "`", "/*"])
def test_long_unclosed_text_is_refused_in_linear_time(opener):
    # A scan that tries every split of the rest would not end.
    with pytest.raises(PatternSyntaxError, match="never closed"):
        tokenize(SourceText(opener + "x''" * 200_000))


def test_a_text_has_a_bound_of_tokens():
    assert len(tokenize(SourceText("x " * MOST_TOKENS))) == MOST_TOKENS + 1
    with pytest.raises(PatternSyntaxError, match="more than 20000 words and signs") as refused:
        tokenize(SourceText("x " * (MOST_TOKENS + 1)))
    assert refused.value.span == Span(2 * MOST_TOKENS, 2 * MOST_TOKENS + 1)
