"""Random texts of meaningful pieces: each is read and printed back, or refused with its place."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outpace.errors import OutpaceError
from outpace.pattern.duration import parse_duration, print_duration
from outpace.pattern.notation.parse_expression import parse_expression
from outpace.pattern.notation.parse_match_recognize import parse_match_recognize
from outpace.pattern.notation.parse_pattern import parse_pattern
from outpace.pattern.notation.parse_type import parse_type, print_type
from outpace.pattern.notation.print_expression import print_expression
from outpace.pattern.notation.print_pattern import print_pattern
from outpace.pattern.notation.print_query import print_match_recognize

SIGNS = [*"ABab()[]{}|!?+*^$.,;-=<>%/:'\"`\\ \n1", "->", "->>", "{-", "-}", "(->)+", "{2,3}", "()"]
WORDS = """
    PERMUTE( UNTIL AND OR NOT IS NULL TRUE BETWEEN IN LIKE ESCAPE CASE WHEN THEN ELSE END CAST(A AS
    bigint) f( PREV( FIRST( CLASSIFIER() RUNNING FINAL count(*) EXTRACT( FROM TRIM( (SELECT EXISTS
    INTERVAL '5' MINUTE DATE '2026-01-31' TIMESTAMP X'00' 1.5 1e3 :: AT TIME ZONE DISTINCT ARRAY[
    PATTERN PATTERN(A) DEFINE MEASURES x AS ORDER BY PARTITION ALL ROWS PER MATCH AFTER SKIP TO
    NEXT ROW LAST SUBSET U = WITHIN LIMIT SELECT MATCHES CONSUME SEEK INITIAL
    hours days row( map( decimal( timestamp with zone
""".split()  # noqa: SIM905
TEXTS = st.lists(st.sampled_from(SIGNS + WORDS), max_size=12).map(" ".join) | st.lists(
    st.sampled_from(SIGNS + WORDS), max_size=12
).map("".join)
PARSERS = [
    (parse_pattern, print_pattern),
    (parse_expression, print_expression),
    (parse_match_recognize, print_match_recognize),
    (parse_type, print_type),
]


def outcome(parse, text, **options):
    """Return the tree and None, or None and the error; any other exception is a failure."""
    try:
        return parse(text, **options), None
    except OutpaceError as error:
        return None, error


@pytest.mark.parametrize(("parse", "write"), PARSERS, ids=lambda function: function.__name__)
@given(text=TEXTS)
@example(text="A(->")
@example(text="INTERVAL '5' TO")
def test_any_text_is_read_or_refused_with_its_place(parse, write, text):
    tree, error = outcome(parse, text)
    if error is None:
        assert parse(write(tree)) == tree
    else:
        assert error.text == text
        assert error.span is not None
        assert error.span.end <= len(text)
        assert str(error).startswith(f"[{error.code}] ")


@given(text=TEXTS | st.text())
def test_any_duration_is_read_or_refused_with_its_place(text):
    duration, error = outcome(parse_duration, text)
    if error is None:
        assert parse_duration(print_duration(duration)) == duration
    else:
        assert error.text == text
        assert error.span is not None


@pytest.mark.parametrize("dialect", ["spark", "trino"])
@given(text=TEXTS)
def test_other_dialects_read_or_refuse_with_the_place(dialect, text):
    node, error = outcome(parse_expression, text, dialect=dialect)
    if error is None:
        assert parse_expression(print_expression(node, dialect), dialect=dialect) == node
    else:
        assert error.text == text
