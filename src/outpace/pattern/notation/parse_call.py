"""Calls and other forms that begin with a word: CASE, CAST, EXTRACT, navigation, aggregates.

Forms with keywords inside become plain calls: EXTRACT(year FROM x) is `year(x)`, SUBSTRING(x FROM a
FOR b) is `substring(x, a, b)`, POSITION(a IN b) is `position(a, b)`, TRIM(LEADING c FROM x) is
`ltrim(x, c)`. Names of functions are kept in lower case; binding finds out what they mean.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast
from typing import Literal as OneOf

from outpace.pattern.expression import (
    Array,
    Call,
    Case,
    Cast,
    Classifier,
    Expression,
    Literal,
    MatchId,
    MatchNumber,
    Navigate,
    Semantics,
    SortKey,
    Star,
    Subquery,
)
from outpace.pattern.notation.lexer import Token, TokenCursor, TokenKind
from outpace.pattern.notation.parse_type import read_type
from outpace.pattern.notation.print_name import RESERVED

if TYPE_CHECKING:
    from outpace.pattern.notation.parse_expression import ExpressionReader

_NAVIGATION = frozenset({"FIRST", "LAST", "PREV", "NEXT"})
#: What is known of a whole match.
_OF_MATCH: Final = {"MATCH_NUMBER": MatchNumber, "MATCH_ID": MatchId}
#: Words that go on with an expression behind a column.
INFIX: Final = RESERVED | {
    *("AT", "DIV", "COLLATE", "OVER"),
    *("REGEXP", "RLIKE", "SIMILAR", "ILIKE", "GLOB"),
}
#: Behind RUNNING and FINAL these show that the word is a column.
_BEHIND_COLUMN: Final = INFIX | {"ASC", "DESC", "NULLS", "RUNNING", "FINAL"}
#: What RUNNING and FINAL do not stand before, except with others in parentheses.
_OF_ONE_ROW: Final = (Classifier, MatchId, MatchNumber, Literal)
#: Aggregates whose order may stand behind them, in WITHIN GROUP.
_WITHIN_GROUP: Final = frozenset({"listagg", "string_agg", "group_concat"})
#: What Snowflake calls navigation besides.
_SNOWFLAKE = {"LAG": "PREV", "LEAD": "NEXT"}
_PARTS = {
    **{
        part: part
        for part in (
            "year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond",
            "day_of_week", "day_of_year", "year_of_week", "epoch",
        )
    },
    "dow": "day_of_week",
    "doy": "day_of_year",
    "yow": "year_of_week",
    "day_of_month": "day",
    "dayofweek": "day_of_week",
    "dayofyear": "day_of_year",
    "milliseconds": "millisecond",
    "years": "year",
    "months": "month",
    "days": "day",
    "hours": "hour",
    "minutes": "minute",
    "seconds": "second",
}  # fmt: skip


def at_special(cursor: TokenCursor) -> bool:
    """Whether a form with its own syntax comes next, other than a call."""
    key = cursor.token.key
    if key in ("TRUE", "FALSE", "NULL", "CASE"):
        return True
    following = cursor.ahead()
    if key in ("RUNNING", "FINAL"):
        name = following.is_name and following.key not in _BEHIND_COLUMN
        return name or following.key == "("
    if key == "ARRAY":
        return following.key == "["
    return following.key == "(" and key in ("CAST", "TRY_CAST", "EXTRACT", "EXISTS")


def read_special(reader: ExpressionReader) -> Expression:
    """Read what `at_special` found."""
    cursor = reader.cursor
    token = cursor.advance()
    node: Expression
    match token.key:
        case "TRUE" | "FALSE":
            node = Literal(token.key == "TRUE")
        case "NULL":
            node = Literal(None)
        case "CASE":
            node = _case(reader)
        case "RUNNING" | "FINAL":
            node = _semantics(reader, token)
        case "ARRAY":
            cursor.advance()
            node = Array(() if cursor.accept("]") else reader.items("]"))
        case "EXTRACT":
            node = _extract(reader)
        case "EXISTS":
            node = _exists(reader)
        case _:
            node = _cast(reader, safe=token.key == "TRY_CAST")
    return replace(node, span=cursor.span_from(token.start))


def read_call(reader: ExpressionReader) -> Expression:
    """Read a function's name, its arguments and the parentheses around them."""
    cursor = reader.cursor
    token = cursor.advance()
    opener = cursor.advance()
    node: Expression
    key = token.key
    if cursor.source.dialect == "snowflake":
        key = _SNOWFLAKE.get(key, key)
    if key in _NAVIGATION:
        node = _navigate(reader, token, key, opener)
    elif key == "MATCH_SEQUENCE_NUMBER" and cursor.source.dialect == "snowflake":
        # The number of a row in its match is how many rows the match has up to it.
        reader.close(opener)
        node = Semantics("running", Call("count", (Star(),)))
    elif key == "CLASSIFIER":
        node = _classifier(reader, opener)
    elif key in _OF_MATCH:
        if not cursor.at(")"):
            raise cursor.error(f"{key} takes no argument")
        cursor.advance()
        node = _OF_MATCH[key]()
    else:
        node = _function(reader, token, opener)
    return replace(node, span=cursor.span_from(token.start))


def _function(reader: ExpressionReader, token: Token, opener: Token) -> Expression:
    cursor = reader.cursor
    name = token.value.lower()
    if name == "trim" and cursor.token.key in ("LEADING", "TRAILING", "BOTH", "FROM"):
        node: Expression = _trim(reader, cursor.token.key)
        _refuse_window(cursor)
        return node
    distinct = False
    arguments: list[Expression] = []
    order: tuple[SortKey, ...] = ()
    if not cursor.accept(")"):
        distinct = cursor.accept("DISTINCT")
        if not distinct and cursor.at("ALL") and cursor.ahead().key not in (",", ")", "."):
            cursor.advance()
        arguments = _arguments(reader, name)
        order = _order(reader) if cursor.accept("ORDER", "BY") else ()
        reader.close(opener)
    if name in _WITHIN_GROUP and not order and cursor.accept("WITHIN", "GROUP"):
        opener = cursor.expect("(")
        cursor.expect("ORDER")
        cursor.expect("BY")
        order = _order(reader)
        reader.close(opener)
    condition = _condition(reader) if cursor.at("FILTER", "(") else None
    _refuse_window(cursor)
    return Call(name, tuple(arguments), distinct, condition, order)


def _arguments(reader: ExpressionReader, name: str) -> list[Expression]:
    """Read the arguments of a function, which may have words between them."""
    cursor = reader.cursor
    # IN is a keyword of POSITION here, not the predicate.
    arguments = [reader.value() if name == "position" else _argument(reader)]
    if name == "position" and cursor.accept("IN"):
        arguments.append(reader.value())
    while cursor.accept(",") or (
        name in ("substring", "substr") and (cursor.accept("FROM") or cursor.accept("FOR"))
    ):
        arguments.append(_argument(reader))
    if name == "trim" and cursor.accept("FROM"):
        arguments.insert(0, reader.read())
    return arguments


def _order(reader: ExpressionReader) -> tuple[SortKey, ...]:
    """Read what stands behind ORDER BY."""
    keys: list[SortKey] = []
    while not keys or reader.cursor.accept(","):
        start = reader.cursor.token.start
        operand = reader.read()
        descending, nulls_first = read_direction(reader.cursor)
        place = reader.cursor.span_from(start)
        keys.append(SortKey(operand, descending, bool(nulls_first), span=place))
    return tuple(keys)


def read_direction(cursor: TokenCursor) -> tuple[bool, bool | None]:
    """Read ASC or DESC, and NULLS FIRST or LAST: whether it descends, and has NULLs first."""
    descending = cursor.accept("DESC") or (cursor.accept("ASC") and False)
    nulls_first: bool | None = None
    if cursor.accept("NULLS"):
        if not (cursor.at("FIRST") or cursor.at("LAST")):
            raise cursor.unexpected("FIRST or LAST after NULLS")
        nulls_first = cursor.advance().key == "FIRST"
    return descending, nulls_first


def _condition(reader: ExpressionReader) -> Expression:
    """Read FILTER (WHERE condition)."""
    cursor = reader.cursor
    cursor.advance()
    opener = cursor.advance()
    cursor.expect("WHERE")
    condition = reader.read()
    reader.close(opener)
    return condition


def _refuse_window(cursor: TokenCursor) -> None:
    if cursor.at("OVER", "("):
        raise cursor.error("OVER is not supported in row pattern expressions")
    if cursor.at("WITHIN", "GROUP"):
        raise cursor.error(
            "WITHIN GROUP goes with LISTAGG here",
            hint="other aggregates take ORDER BY behind their arguments",
        )


def _argument(reader: ExpressionReader) -> Expression:
    cursor = reader.cursor
    token = cursor.token
    if token.key == "*":
        cursor.advance()
        return Star(span=token.span)
    if token.is_name and cursor.ahead().key == "." and cursor.ahead(2).key == "*":
        cursor.index += 3
        name = reader.variable(token.value, token.kind is TokenKind.QUOTED)
        return Star(name, span=cursor.span_from(token.start))
    return reader.read()


def _trim(reader: ExpressionReader, side: str) -> Expression:
    cursor = reader.cursor
    if side != "FROM":
        cursor.advance()
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "trim")
    characters = [] if cursor.at("FROM") else [reader.read()]
    if not cursor.accept("FROM"):
        cursor.expect(")", "FROM or ')'")
        return Call(name, tuple(characters))
    arguments = (reader.read(), *characters)
    cursor.expect(")")
    return Call(name, arguments)


def _navigate(reader: ExpressionReader, token: Token, key: str, opener: Token) -> Expression:
    cursor = reader.cursor
    operand = reader.read()
    offset: int | None = None
    if cursor.accept(","):
        number = cursor.token
        if (
            number.kind is not TokenKind.NUMBER
            or not number.value.isdigit()
            or len(number.value) > 18
        ):
            raise cursor.unexpected(f"a whole number as the offset of {token.key}")
        offset = int(cursor.advance().value)
    if cursor.at(","):
        raise cursor.error(
            f"{token.key} takes no value for where there is no such row",
            hint=f"it is NULL there: write COALESCE({token.key}(x, {offset or 0}), value)",
        )
    reader.close(opener)
    kind = cast(OneOf["first", "last", "prev", "next"], key.lower())
    return Navigate(kind, operand, offset)


def _classifier(reader: ExpressionReader, opener: Token) -> Expression:
    cursor = reader.cursor
    variable: str | None = None
    if not cursor.at(")"):
        token = cursor.expect_name("a pattern variable or ')'")
        variable = reader.variable(token.value, token.kind is TokenKind.QUOTED)
    reader.close(opener)
    return Classifier(variable)


def _semantics(reader: ExpressionReader, token: Token) -> Expression:
    cursor = reader.cursor
    place = cursor.token
    operand = reader.primary()
    alone = isinstance(operand, _OF_ONE_ROW)
    if isinstance(operand, Navigate):
        alone = operand.kind in ("prev", "next")
    if alone and place.key != "(":
        raise cursor.error(f"{token.key} goes with FIRST, LAST or an aggregate", place.span)
    return Semantics("running" if token.key == "RUNNING" else "final", operand)


def _case(reader: ExpressionReader) -> Expression:
    cursor = reader.cursor
    operand = None if cursor.at("WHEN") else reader.read()
    branches: list[tuple[Expression, Expression]] = []
    while cursor.accept("WHEN"):
        condition = reader.read()
        cursor.expect("THEN")
        branches.append((condition, reader.read()))
    if not branches:
        raise cursor.unexpected("WHEN")
    otherwise = reader.read() if cursor.accept("ELSE") else None
    cursor.expect("END", "WHEN, ELSE or END")
    return Case(operand, tuple(branches), otherwise)


def _cast(reader: ExpressionReader, *, safe: bool) -> Expression:
    cursor = reader.cursor
    opener = cursor.advance()
    operand = reader.read()
    cursor.expect("AS", "AS and a type")
    kind = read_type(cursor)
    reader.close(opener)
    return Cast(operand, kind, safe)


def _extract(reader: ExpressionReader) -> Expression:
    cursor = reader.cursor
    opener = cursor.advance()
    part = cursor.token
    name = _PARTS.get(part.value.lower())
    if name is None:
        raise cursor.unexpected("a part of a date such as YEAR or HOUR")
    cursor.advance()
    cursor.expect("FROM")
    operand = reader.read()
    reader.close(opener)
    return Call(name, (operand,))


def _exists(reader: ExpressionReader) -> Expression:
    cursor = reader.cursor
    cursor.advance()
    if not reader.at_subquery():
        raise cursor.unexpected("a subquery after EXISTS")
    return Subquery("exists", reader.subquery_text())
