import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from outpace.errors import PatternSyntaxError, Span, UnsupportedError
from outpace.pattern.expression import (
    Array,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Classifier,
    Field,
    InList,
    IsNull,
    Like,
    Literal,
    MatchId,
    MatchNumber,
    Name,
    Navigate,
    Semantics,
    SortKey,
    Star,
    Subquery,
    Subscript,
    Unary,
    walk,
)
from outpace.pattern.notation.parse_expression import parse_expression
from outpace.pattern.size import MOST_NESTED

x, y, z = Name(("x",)), Name(("y",)), Name(("z",))
one, two = Literal(1), Literal(2)
UTC = datetime.UTC


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("- 1", -1),
        ("007", 7),
        ("1.50", Decimal("1.50")),
        ("-.5", Decimal("-0.5")),
        ("1.", Decimal("1")),
        ("1e0", 1.0),
        ("-1.5E-3", -0.0015),
        ("'a'", "a"),
        ("''", ""),
        ("'it''s'", "it's"),
        ("TRUE", True),
        ("false", False),
        ("Null", None),
        ("DATE '2026-01-31'", datetime.date(2026, 1, 31)),
        ("timestamp '2026-01-31 10:20:30.25'", datetime.datetime(2026, 1, 31, 10, 20, 30, 250000)),
        ("TIMESTAMP '2026-01-31'", datetime.datetime(2026, 1, 31)),
        ("TIMESTAMP '2026-01-31 10:20 UTC'", datetime.datetime(2026, 1, 31, 10, 20, tzinfo=UTC)),
        ("TIMESTAMP '2026-01-31T12:20+02:00'", datetime.datetime(2026, 1, 31, 10, 20, tzinfo=UTC)),
        ("TIMESTAMP '2026-01-31 11:20:00.000 Europe/Berlin'",
         datetime.datetime(2026, 1, 31, 10, 20, tzinfo=UTC)),
        ("INTERVAL '5' MINUTE", datetime.timedelta(minutes=5)),
        ("INTERVAL 5 MINUTES", datetime.timedelta(minutes=5)),
        ("INTERVAL -'1.5' second", datetime.timedelta(seconds=-1.5)),
        ("INTERVAL '-3' DAY", datetime.timedelta(days=-3)),
        ("INTERVAL '1 hour 30 min'", datetime.timedelta(hours=1.5)),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND",
         datetime.timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("INTERVAL '2:30' HOUR TO MINUTE", datetime.timedelta(hours=2.5)),
        ("VARCHAR 'x'", "x"),
        ("DECIMAL '1.50'", Decimal("1.50")),
        ("DOUBLE '1.5'", 1.5),
        ("BOOLEAN 'true'", True),
        ("X'00fF'", b"\x00\xff"),
    ],
)  # fmt: skip
def test_reads_constants(text, value):
    node = parse_expression(text)
    assert node == Literal(value)
    assert node.span == Span(0, len(text))


def test_a_typed_literal_of_another_type_is_a_cast():
    assert parse_expression("BIGINT '12'") == Cast(Literal(12), pa.int64())
    assert parse_expression("REAL '1.5'") == Cast(Literal(1.5), pa.float32())


def binary(operator, left, right):
    return Binary(operator, left, right)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("x or y and z", binary("or", x, binary("and", y, z))),
        ("x or y or z", binary("or", binary("or", x, y), z)),
        ("(x or y) and z", binary("and", binary("or", x, y), z)),
        ("not x = y", Unary("not", binary("=", x, y))),
        ("not x and y", binary("and", Unary("not", x), y)),
        ("not not x", Unary("not", Unary("not", x))),
        ("x - y - z", binary("-", binary("-", x, y), z)),
        ("x - (y - z)", binary("-", x, binary("-", y, z))),
        ("x + y * z", binary("+", x, binary("*", y, z))),
        ("x * y + z", binary("+", binary("*", x, y), z)),
        ("x % y / z", binary("/", binary("%", x, y), z)),
        ("x || y + z", binary("||", x, binary("+", y, z))),
        ("x || y = z", binary("=", binary("||", x, y), z)),
        ("x div y", binary("div", x, y)),
        ("x // y", binary("div", x, y)),
        ("x == y", binary("=", x, y)),
        ("x != y", binary("<>", x, y)),
        ("x -1", binary("-", x, one)),
        ("x - -1", binary("-", x, Literal(-1))),
        ("-x * y", binary("*", Unary("-", x), y)),
        ("-(1)", Unary("-", one)),
        ("- -1", Unary("-", Literal(-1))),
        ("+x", x),
        ("-1::int", Unary("-", Cast(one, pa.int32()))),
        ("x < y and y < z", binary("and", binary("<", x, y), binary("<", y, z))),
        ("x is null", IsNull(x)),
        ("x is not null and y", binary("and", IsNull(x, True), y)),
        ("x + 1 is null", IsNull(binary("+", x, one))),
        ("not x is null", Unary("not", IsNull(x))),
        ("x is unknown", IsNull(x)),
        ("x is true", binary("is not distinct from", x, Literal(True))),
        ("x is not false", binary("is distinct from", x, Literal(False))),
        ("x is distinct from y", binary("is distinct from", x, y)),
        ("x is not distinct from y + 1", binary("is not distinct from", x, binary("+", y, one))),
        ("x between 1 and 2 and y", binary("and", Between(x, one, two), y)),
        ("x not between y + 1 and z", Between(x, binary("+", y, one), z, True)),
        ("x in (1, 2)", InList(x, (one, two))),
        ("x not in (1)", InList(x, (one,), True)),
        ("x in (y = 1)", InList(x, (binary("=", y, one),))),
        ("x like 'a%'", Like(x, Literal("a%"))),
        ("x not like y escape '!' or z", binary("or", Like(x, y, Literal("!"), True), z)),
        ("case when x then 1 end", Case(None, ((x, one),), None)),
        ("case x when 1 then y else z end", Case(x, ((one, y),), z)),
        ("cast(x as bigint)", Cast(x, pa.int64())),
        ("try_cast(x as bigint)", Cast(x, pa.int64(), True)),
        ("x::bigint::varchar", Cast(Cast(x, pa.int64()), pa.string())),
        ("x.y.z", Name(("x", "y", "z"))),
        ('"x y"."z"', Name(("x y", "z"))),
        ("x[1][2]", Subscript(Subscript(x, one), two)),
        ("x[1].y", Field(Subscript(x, one), "y")),
        ("(x).y", Field(x, "y")),
        ("f(x).y", Field(Call("f", (x,)), "y")),
        ("array[]", Array(())),
        ("ARRAY[1, x]", Array((one, x))),
        ("F(x, 1)", Call("f", (x, one))),
        ("f()", Call("f", ())),
        ("count(*)", Call("count", (Star(),))),
        ("count(A.*)", Call("count", (Star("A"),))),
        ("count(distinct x)", Call("count", (x,), True)),
        ("sum(all x)", Call("sum", (x,))),
        ("if(x, 1, 2)", Call("if", (x, one, two))),
        ("extract(year from x)", Call("year", (x,))),
        ("extract(DOW from x)", Call("day_of_week", (x,))),
        ("substring(x from 1 for 2)", Call("substring", (x, one, two))),
        ("substring(x from 2)", Call("substring", (x, two))),
        ("substring(x, 1, 2)", Call("substring", (x, one, two))),
        ("position('a' in x)", Call("position", (Literal("a"), x))),
        ("position('a', x)", Call("position", (Literal("a"), x))),
        ("trim(x)", Call("trim", (x,))),
        ("trim(x, y)", Call("trim", (x, y))),
        ("trim(both from x)", Call("trim", (x,))),
        ("trim(leading y from x)", Call("ltrim", (x, y))),
        ("trim(trailing from x)", Call("rtrim", (x,))),
        ("trim(y from x)", Call("trim", (x, y))),
        ("x at time zone 'UTC'", Call("at_timezone", (x, Literal("UTC")))),
        ("prev(x)", Navigate("prev", x)),
        ("NEXT(x, 0)", Navigate("next", x, 0)),
        ("first(last(x, 2), 1)", Navigate("first", Navigate("last", x, 2), 1)),
        ("running count(*)", Semantics("running", Call("count", (Star(),)))),
        ("final last(x) + 1", binary("+", Semantics("final", Navigate("last", x)), one)),
        ("RUNNING v + 1", binary("+", Semantics("running", Name(("v",))), one)),
        ("final (x - y)", Semantics("final", binary("-", x, y))),
        ("final (prev(x))", Semantics("final", Navigate("prev", x))),
        ("running is null", IsNull(Name(("running",)))),
        ("final at time zone 'UTC'", Call("at_timezone", (Name(("final",)), Literal("UTC")))),
        ("sum(x) filter (where y)", Call("sum", (x,), condition=y)),
        ("array_agg(distinct x order by y desc, z nulls first)",
         Call("array_agg", (x,), True, None, (SortKey(y, True), SortKey(z, False, True)))),
        ("listagg(x, ',') within group (order by y) filter (where z)",
         Call("listagg", (x, Literal(",")), False, z, (SortKey(y),))),
        ("classifier()", Classifier()),
        ("CLASSIFIER(U)", Classifier("U")),
        ("match_number()", MatchNumber()),
        ("match_id()", MatchId()),
        ("(select 1)", Subquery("value", "select 1")),
        ("( WITH t AS (SELECT ')') SELECT (1) )",
         Subquery("value", "WITH t AS (SELECT ')') SELECT (1)")),
        ("exists (select (1))", Subquery("exists", "select (1)")),
        ("not exists (select 1)", Unary("not", Subquery("exists", "select 1"))),
        ("x in (select 1)", Subquery("in", "select 1", x)),
        ("x not in (values 1)", Subquery("in", "values 1", x, True)),
        # Words that mean something only in their place are names elsewhere.
        ("first", Name(("first",))),
        ("last.date", Name(("last", "date"))),
        ("final and (x)", binary("and", Name(("final",)), x)),
        ("date - interval", binary("-", Name(("date",)), Name(("interval",)))),
        ("array + x", binary("+", Name(("array",)), x)),
        ("x /* y */ -- z", x),
    ],
)  # fmt: skip
def test_reads_structure(text, tree):
    assert parse_expression(text) == tree


def test_division_keeps_integers_where_the_dialect_says_so():
    assert parse_expression("x / y") == Binary("/", x, y)
    assert parse_expression("x / y", dialect="spark") == Binary("/", x, y)
    assert parse_expression("x / y", dialect="duckdb") == Binary("/", x, y)
    assert parse_expression("x / y", dialect="trino") == Binary("div", x, y)


def test_true_and_one_are_different():
    assert parse_expression("TRUE") != parse_expression("1")


def test_places_cover_the_text_of_each_node():
    text = "NOT a.b + 1 < PREV(c, 2) AND d BETWEEN 1 AND f(x) OR e IS NULL"
    shown = {}
    for node in walk(parse_expression(text)):
        assert node.span is not None
        shown.setdefault(type(node).__name__, text[node.span.start : node.span.end])
    assert shown == {
        "Binary": text,
        "Unary": "NOT a.b + 1 < PREV(c, 2)",
        "Name": "a.b",
        "Literal": "1",
        "Navigate": "PREV(c, 2)",
        "Between": "d BETWEEN 1 AND f(x)",
        "Call": "f(x)",
        "IsNull": "e IS NULL",
    }


def test_a_long_chain_of_conditions_is_read():
    node = parse_expression(" AND ".join(f"c{i} = {i}" for i in range(4_000)))
    assert [n.parts[0] for n in walk(node) if isinstance(n, Name)] == [
        f"c{i}" for i in range(4_000)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 9_000,
        "(" * 9_000 + "x" + ")" * 9_000,
        "(" * MOST_NESTED + "x" + ")" * MOST_NESTED,
        "f(" * 5_000,
        "x[" * 5_000,
        "CASE WHEN " * 5_000,
        "ARRAY[" * 5_000,
        "CAST(" * 5_000,
        "RUNNING f(" * 5_000,
        "x IN (" * 5_000,
        "x BETWEEN (" * 5_000,
        "NOT " * 9_000 + "x",
        "- " * 9_000 + "x",
        "x + " * 9_000 + "x",
        "x" + ".f(1)[1]" * 2_000,
        "x" + "[1]" * 5_000,
        "x" + "::int" * 5_000,
        "CAST(x AS " + "ARRAY(" * 5_000,
    ],
    ids=lambda text: f"{text[:12]}... {len(text)}",
)
def test_deep_nesting_is_refused(text):
    with pytest.raises(PatternSyntaxError):
        parse_expression(text)


def test_the_deepest_expressions_can_be_compared_hashed_shown_and_printed():
    from outpace.pattern.notation.print_expression import print_expression

    for form in ("y * ({})", "F({})", "CASE WHEN {} THEN 1 END", "x IN ({})"):
        text = "x + z"
        for _ in range(MOST_NESTED - 1):
            text = form.format(text)
        first, second = parse_expression(text), parse_expression(text)
        assert first == second
        assert hash(first) == hash(second)
        assert repr(first) == repr(second)
        assert print_expression(first) == text


def test_months_are_refused():
    with pytest.raises(UnsupportedError, match="no fixed length"):
        parse_expression("ts + INTERVAL '1' MONTH")
    with pytest.raises(UnsupportedError, match="no fixed length"):
        parse_expression("ts + INTERVAL '1 month'")
