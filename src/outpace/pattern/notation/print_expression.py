"""The expression tree as SQL text, with no more parentheses and quotes than needed.

`parse_expression(print_expression(node)) == node` for every tree that text can express.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal

from outpace.errors import BindError, UnsupportedError
from outpace.pattern.duration import whole_units
from outpace.pattern.expression import (
    Array,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Classifier,
    Expression,
    Field,
    InList,
    IsNull,
    Like,
    Literal,
    MatchId,
    MatchNumber,
    Name,
    Navigate,
    Scalar,
    Semantics,
    SortKey,
    Star,
    Subquery,
    Subscript,
    Unary,
)
from outpace.pattern.notation.lexer import BACKSLASH_DIALECTS
from outpace.pattern.notation.parse_expression import INTEGER_DIVISION, LONGEST_CHAIN
from outpace.pattern.notation.parse_type import print_type
from outpace.pattern.notation.print_name import RESERVED, print_name
from outpace.pattern.size import MOST_LEVELS, expression_is_too_deep

# How tightly a form binds; the operands of an operator bind more tightly, or stand in parentheses.
_OR, _AND, _NOT, _COMPARE, _CONCAT, _SUM, _PRODUCT, _SIGN, _POSTFIX = range(1, 10)
_POWERS = {
    "or": _OR,
    "and": _AND,
    "||": _CONCAT,
    "+": _SUM,
    "-": _SUM,
    "*": _PRODUCT,
    "/": _PRODUCT,
    "%": _PRODUCT,
    "div": _PRODUCT,
}
#: Functions whose names the parser gives a meaning of their own: quoted, they are plain calls.
_SPECIAL = RESERVED | {
    "FIRST", "LAST", "PREV", "NEXT", "CLASSIFIER", "MATCH_NUMBER", "MATCH_ID", "CAST", "TRY_CAST",
    "EXTRACT",
}  # fmt: skip


def print_expression(
    node: Expression,
    dialect: str = "outpace",
    *,
    variable: Callable[[str], str] | None = None,
    qualifier: Callable[[str], str] | None = None,
) -> str:
    """Write an expression as SQL text.

    Parameters
    ----------
    node
        The tree.
    dialect
        The SQL dialect: how names are quoted, and what `/` does with integers.
    variable, qualifier
        How a pattern variable is written, and the first part of a name such as `A.price`.

    Examples
    --------
    >>> from outpace.pattern.notation.parse_expression import parse_expression
    >>> print_expression(parse_expression("((a + b)) * c - (d - 1)"))
    '(a + b) * c - (d - 1)'
    >>> print_expression(parse_expression("final last(A.price) is not null and not x in (1, 2)"))
    'FINAL LAST(A.price) IS NOT NULL AND NOT x IN (1, 2)'
    """
    if expression_is_too_deep(node):
        raise BindError(f"the expression is nested deeper than {MOST_LEVELS} levels")
    plain = _plain_names(dialect)
    return _ExpressionPrinter(dialect, variable or plain, qualifier or plain).text(node)


def _plain_names(dialect: str) -> Callable[[str], str]:
    return lambda name: print_name(name, dialect=dialect)


class _ExpressionPrinter:
    def __init__(
        self, dialect: str, variable: Callable[[str], str], qualifier: Callable[[str], str]
    ) -> None:
        self.dialect = dialect
        self.variable = variable
        self.qualifier = qualifier

    def text(self, node: Expression, floor: int = 0) -> str:
        """Write a node, in parentheses where it binds less tightly than `floor`."""
        text, power = self._form(node)
        return text if power >= floor else f"({text})"

    def _form(self, node: Expression) -> tuple[str, int]:
        match node:
            case Literal(value=value):
                return self._literal(value)
            case Unary(operator="not", operand=operand):
                return f"NOT {self.text(operand, _NOT)}", _NOT
            case Unary(operand=operand):
                return self._negative(operand), _SIGN
            case Binary():
                return self._binary(node)
            case IsNull(operand=operand, negated=negated):
                return f"{self.text(operand, _CONCAT)} IS {_not(negated)}NULL", _COMPARE
            case Between() | InList() | Like():
                return self._predicate(node), _COMPARE
            case Subquery(kind="in"):
                assert node.operand is not None, "IN has a left side"
                left = self.text(node.operand, _CONCAT)
                return f"{left} {_not(node.negated)}IN ({node.text})", _COMPARE
            case Subquery(kind="exists"):
                power = _NOT if node.negated else _POSTFIX
                return f"{_not(node.negated)}EXISTS ({node.text})", power
            case Field(item=item, name=name):
                return f"{self._base(item)}.{print_name(name, dialect=self.dialect)}", _POSTFIX
            case Subscript(item=item, index=index):
                return f"{self.text(item, _POSTFIX)}[{self.text(index)}]", _POSTFIX
            case _:
                return self._closed(node), _POSTFIX

    def _base(self, item: Expression) -> str:
        """Write what a field is taken of."""
        # A name followed by a field would be read as a longer name; a number would take the dot.
        text = self.text(item, _POSTFIX)
        return f"({text})" if isinstance(item, Literal | Name) and text[0] != "(" else text

    def _closed(self, node: Expression) -> str:
        """Write a form that has its own beginning and end."""
        match node:
            case Name(parts=parts):
                return self._name(parts)
            case Star(variable=variable):
                return "*" if variable is None else f"{self.variable(variable)}.*"
            case Subquery(text=text):
                return f"({text})"
            case Call():
                return self._call(node)
            case Navigate(kind=kind, operand=operand, offset=offset):
                distance = "" if offset is None else f", {offset}"
                return f"{kind.upper()}({self.text(operand)}{distance})"
            case Semantics(kind=kind, operand=operand):
                text = self.text(operand)
                call = isinstance(operand, Call)
                if call or (isinstance(operand, Navigate) and operand.kind in ("first", "last")):
                    return f"{kind.upper()} {text}"
                return f"{kind.upper()} ({text})"
            case Classifier(variable=variable):
                return f"CLASSIFIER({'' if variable is None else self.variable(variable)})"
            case MatchNumber():
                return "MATCH_NUMBER()"
            case MatchId():
                return "MATCH_ID()"
            case Array(items=items):
                return f"ARRAY[{', '.join(self.text(item) for item in items)}]"
            case Case():
                return self._case(node)
            case Cast(operand=operand, type=kind, safe=safe):
                word = "TRY_CAST" if safe else "CAST"
                return f"{word}({self.text(operand)} AS {print_type(kind, self.dialect)})"
            case _:
                raise TypeError(f"{type(node).__name__} is no expression node")

    def _name(self, parts: tuple[str, ...]) -> str:
        rest = [print_name(part, dialect=self.dialect) for part in parts[1:]]
        if not rest:
            return print_name(parts[0], dialect=self.dialect)
        return ".".join([self.qualifier(parts[0]), *rest])

    def _negative(self, operand: Expression) -> str:
        text = self.text(operand, _POSTFIX)
        # `-1` is one number, so that the sign of a number is kept apart from it.
        return (
            f"-({text})"
            if isinstance(operand, Literal) and not text.startswith("(")
            else f"-{text}"
        )

    def _binary(self, node: Binary) -> tuple[str, int]:
        operator = node.operator
        if operator in ("and", "or"):
            return self._chain(node), _POWERS[operator]
        power = _POWERS.get(operator)
        if power is None:
            left, right = self.text(node.left, _CONCAT), self.text(node.right, _CONCAT)
            return f"{left} {operator.upper()} {right}", _COMPARE
        left, right = self.text(node.left, power), self.text(node.right, power + 1)
        return f"{left} {self._sign(operator)} {right}", power

    def _sign(self, operator: str) -> str:
        keeps_integers = self.dialect in INTEGER_DIVISION
        if operator == "/" and keeps_integers:
            raise UnsupportedError(
                f"a division that gives a fraction has no exact form in {self.dialect}",
                hint="cast one side to double and divide with div",
            )
        if operator == "div":
            return "/" if keeps_integers else "DIV"
        return operator

    def _chain(self, node: Binary) -> str:
        """Write a chain of ANDs or ORs, at most as long as one that is read from left to right."""
        power = _POWERS[node.operator]
        rights: list[str] = []
        left: Expression = node
        while (
            isinstance(left, Binary)
            and left.operator == node.operator
            and len(rights) < LONGEST_CHAIN - 1
        ):
            rights.append(self.text(left.right, power + 1))
            left = left.left
        pieces = [self.text(left, power + 1), *reversed(rights)]
        return f" {node.operator.upper()} ".join(pieces)

    def _predicate(self, node: Between | InList | Like) -> str:
        left = f"{self.text(node.operand, _CONCAT)} {_not(node.negated)}"
        match node:
            case Between(low=low, high=high, symmetric=symmetric):
                kind = "BETWEEN SYMMETRIC" if symmetric else "BETWEEN"
                return f"{left}{kind} {self.text(low, _CONCAT)} AND {self.text(high, _CONCAT)}"
            case InList(items=items):
                return f"{left}IN ({', '.join(self.text(item) for item in items)})"
            case Like(pattern=pattern, escape=escape):
                last = "" if escape is None else f" ESCAPE {self.text(escape, _CONCAT)}"
                return f"{left}LIKE {self.text(pattern, _CONCAT)}{last}"

    def _call(self, node: Call) -> str:
        name = node.name.upper()
        plain = name not in _SPECIAL
        shown = name if plain and print_name(name) == name else None
        if shown is None:
            shown = print_name(node.name, dialect=self.dialect, quoted=True)
        floor = _CONCAT if node.name == "position" else 0
        given = ", ".join(self.text(argument, floor) for argument in node.arguments)
        order = ", ".join(map(self._sort_key, node.order))
        inside = f"{'DISTINCT ' if node.distinct else ''}{given}"
        call = f"{shown}({inside}{' ORDER BY ' if order else ''}{order})"
        if node.condition is None:
            return call
        return f"{call} FILTER (WHERE {self.text(node.condition)})"

    def _sort_key(self, key: SortKey) -> str:
        direction = " DESC" if key.descending else ""
        return f"{self.text(key.operand)}{direction}{' NULLS FIRST' if key.nulls_first else ''}"

    def _case(self, node: Case) -> str:
        pieces = ["CASE"]
        if node.operand is not None:
            pieces.append(self.text(node.operand))
        for condition, result in node.branches:
            pieces.append(f"WHEN {self.text(condition)} THEN {self.text(result)}")
        if node.otherwise is not None:
            pieces.append(f"ELSE {self.text(node.otherwise)}")
        return " ".join([*pieces, "END"])

    def _literal(self, value: Scalar) -> tuple[str, int]:
        match value:
            case None:
                return "NULL", _POSTFIX
            case bool():
                return str(value).upper(), _POSTFIX
            case int() | float() | Decimal():
                text = _number(value)
                return text, _SIGN if text.startswith("-") else _POSTFIX
            case str():
                return self._string(value), _POSTFIX
            case bytes():
                return f"X'{value.hex()}'", _POSTFIX
            case datetime.datetime():
                return f"TIMESTAMP '{_timestamp(value)}'", _POSTFIX
            case datetime.date():
                return f"DATE '{value.isoformat()}'", _POSTFIX
            case datetime.timedelta():
                return _interval(value), _POSTFIX
        raise TypeError(f"{type(value).__name__} is no constant")

    def _string(self, value: str) -> str:
        if self.dialect in BACKSLASH_DIALECTS:
            value = value.replace("\\", "\\\\")
        return "'" + value.replace("'", "''") + "'"


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def _number(value: int | float | Decimal) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        text = format(value, "f")
        return text if "." in text else f"DECIMAL '{text}'"
    text = repr(value)
    if value != value or value in (float("inf"), float("-inf")):
        return f"DOUBLE '{text}'"
    return text if "e" in text else f"{text}e0"


def _timestamp(value: datetime.datetime) -> str:
    offset = value.utcoffset()
    if offset is None:
        return value.isoformat(" ")
    # Zones before standard time differ from UTC by seconds, which the text cannot say.
    if offset % datetime.timedelta(minutes=1):
        value = value.astimezone(datetime.UTC)
    moment = value.isoformat(" ")
    return f"{moment[:-6]} {moment[-6:]}"


def _interval(value: datetime.timedelta) -> str:
    amount, unit = whole_units(value)
    if unit in ("day", "hour", "minute", "second"):
        return f"INTERVAL '{amount}' {unit.upper()}"
    seconds = Decimal(value // datetime.timedelta(microseconds=1)).scaleb(-6).normalize()
    return f"INTERVAL '{seconds:f}' SECOND"
