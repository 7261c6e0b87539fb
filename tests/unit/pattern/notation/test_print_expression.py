import datetime
import zoneinfo

import pytest

from outpace.errors import BindError, UnsupportedError
from outpace.pattern.expression import Binary, Call, Literal, Name, Unary
from outpace.pattern.notation.parse_expression import parse_expression
from outpace.pattern.notation.print_expression import print_expression


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        ("(a)", "a"),
        ("((a + b)) + c", "a + b + c"),
        ("a + (b + c)", "a + (b + c)"),
        ("(a * b) + c", "a * b + c"),
        ("a * (b + c)", "a * (b + c)"),
        ("(a and b) or c", "a AND b OR c"),
        ("a and (b or c)", "a AND (b OR c)"),
        ("a and (b and c)", "a AND (b AND c)"),
        ("not (a = b)", "NOT a = b"),
        ("(not a) = b", "(NOT a) = b"),
        ("(a = b) = c", "(a = b) = c"),
        ("(a is null) is null", "(a IS NULL) IS NULL"),
        ("-(a + b)", "-(a + b)"),
        ("-(-a)", "-(-a)"),
        ("- 1", "-1"),
        ("-(1)", "-(1)"),
        ("a - -1", "a - -1"),
        ("(-1)[1]", "(-1)[1]"),
        ("(a.b).c", "(a.b).c"),
        ("a != b", "a <> b"),
        ("a div b", "a DIV b"),
        ("a between (b) and (c and d)", "a BETWEEN b AND (c AND d)"),
        ("a not between symmetric b and c", "a NOT BETWEEN SYMMETRIC b AND c"),
        ("a between asymmetric b and c", "a BETWEEN b AND c"),
        ("a between symmetric and asymmetric", 'a BETWEEN "symmetric" AND "asymmetric"'),
        ("a between symmetric.x and symmetric", 'a BETWEEN "symmetric".x AND "symmetric"'),
        ("Sum(x)", "SUM(x)"),
        ("extract(hour from ts)", "HOUR(ts)"),
        ("position((a = b) in c)", "POSITION((a = b), c)"),
        ("a is true", "a IS NOT DISTINCT FROM TRUE"),
        ("x::int", "CAST(x AS INTEGER)"),
        ("1.0e0 + 1.50 + 2e10", "1.0e0 + 1.50 + 20000000000.0e0"),
        ("interval '120' minute", "INTERVAL '2' HOUR"),
        ("interval '1500' millisecond", "INTERVAL '1.5' SECOND"),
        ('"order" + "a b" + "x"', '"order" + "a b" + x'),
    ],
)
def test_prints_no_more_than_needed(text, shortest):
    assert print_expression(parse_expression(text)) == shortest


def test_dialects_quote_and_divide_in_their_own_way():
    node = Binary("div", Name(("a b",)), Literal("it's \\ here"))
    assert print_expression(node) == "\"a b\" DIV 'it''s \\ here'"
    assert print_expression(node, "trino") == "\"a b\" / 'it''s \\ here'"
    assert print_expression(node, "spark") == "`a b` DIV 'it''s \\\\ here'"


def test_a_division_that_a_dialect_cannot_say_is_refused():
    with pytest.raises(UnsupportedError, match="no exact form in trino"):
        print_expression(parse_expression("a / b"), "trino")


def test_functions_with_the_name_of_a_keyword_are_quoted():
    node = Call("first", (Name(("x",)),))
    assert print_expression(node) == '"first"(x)'
    assert parse_expression('"first"(x)') == node


def test_a_zone_that_differs_by_seconds_is_printed_in_utc():
    moment = datetime.datetime(1880, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
    text = print_expression(Literal(moment))
    assert text.endswith("+00:00'")
    assert parse_expression(text).value == moment


def test_a_tree_that_is_too_deep_is_refused():
    node = Name(("x",))
    for _ in range(5_000):
        node = Unary("not", node)
    with pytest.raises(BindError, match="nested deeper"):
        print_expression(node)
