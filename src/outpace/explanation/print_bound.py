"""Bound expressions as SQL text, with columns by their names or by the values that they have.

A read is printed the way that a user writes it: `PREV(price)`, `LAST(A.price, 1)`. The casts that
binding adds between numbers are left out, because no user wrote them.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from outpace.pattern import types
from outpace.pattern.bound import (
    Aggregate,
    Apply,
    BoundExpression,
    BoundSortKey,
    Constant,
    Label,
    MatchIdentity,
    MatchOrdinal,
    Read,
    ReadPlace,
    guarded,
)
from outpace.pattern.duration import print_duration
from outpace.pattern.functions.condition import COMPARISONS
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.types import type_name

#: Gives the text to show in place of a leaf.
Substitute = Callable[[BoundExpression], str]

_LEVELS = {
    "or": 1,
    "and": 2,
    "not": 3,
    "is null": 4,
    "in": 4,
    "like": 4,
    **dict.fromkeys((*COMPARISONS, "is distinct from", "is not distinct from"), 4),
    "||": 5,
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "%": 6,
    "div": 6,
    "negate": 7,
}
_LEAF = 9
_TEXT_MAX = 60
_PREFIXES = ("not", "negate", "is null")


@dataclass(frozen=True)
class BoundPrinter:
    """Prints the expressions of one query.

    Parameters
    ----------
    names
        The names of the variables by number.
    subsets
        SUBSET names and the numbers that they stand for.

    Examples
    --------
    >>> import pyarrow as pa
    >>> price = Read(pa.float64(), "price", (), ReadPlace("last"))
    >>> before = Read(pa.float64(), "price", (), ReadPlace("last", shift=-1))
    >>> BoundPrinter(("A",)).text(Apply(pa.bool_(), "<", (price, before)))
    'price < PREV(price)'
    """

    names: Sequence[str]
    subsets: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def text(self, node: BoundExpression, substitute: Substitute | None = None) -> str:
        """Return an expression as text; `substitute` is asked for the text of each leaf."""
        return self._part(node, 0, substitute)

    def _part(self, node: BoundExpression, level: int, substitute: Substitute | None) -> str:
        own, text = self._levelled(node, substitute)
        return f"({text})" if own < level else text

    def _levelled(self, node: BoundExpression, substitute: Substitute | None) -> tuple[int, str]:
        match node:
            case Constant(value=value):
                return _LEAF, value_text(value)
            case Apply() if guarded(node) is not None:
                return _LEAF, self.leaf(node) if substitute is None else substitute(node)
            case Apply(function="cast", arguments=(inner,)) if _between_numbers(inner, node):
                return self._levelled(inner, substitute)
            case Apply():
                return self._apply(node, substitute)
            case _:
                return _LEAF, self.leaf(node) if substitute is None else substitute(node)

    def _apply(self, node: Apply, substitute: Substitute | None) -> tuple[int, str]:
        level = _LEVELS.get(node.function, _LEAF)
        if level == _LEAF or len(node.arguments) < (1 if node.function in _PREFIXES else 2):
            parts = [self._part(argument, 0, substitute) for argument in node.arguments]
            return self._called(node, parts)
        # `a - (b - c)` needs its parentheses, `(a - b) - c` does not.
        chained = level in (1, 2, 5, 6)
        levels = [level if chained else level + 1, *[level + 1] * (len(node.arguments) - 1)]
        parts = [
            self._part(argument, need, substitute)
            for argument, need in zip(node.arguments, levels, strict=True)
        ]
        return level, _joined(node.function, parts)

    def _called(self, node: Apply, parts: list[str]) -> tuple[int, str]:
        match node.function:
            case "cast" | "try_cast":
                return _LEAF, f"{node.function.upper()}({parts[0]} AS {type_name(node.type)})"
            case "case":
                pairs = zip(parts[0::2], parts[1::2], strict=False)
                whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
                otherwise = f" ELSE {parts[-1]}" if len(parts) % 2 else ""
                return _LEAF, f"CASE {whens}{otherwise} END"
            case "array":
                return _LEAF, f"ARRAY[{', '.join(parts)}]"
            case "element_at":
                return _LEAF, f"{parts[0]}[{parts[1]}]"
            case name:
                return _LEAF, f"{name.upper()}({', '.join(parts)})"

    def leaf(self, node: BoundExpression) -> str:
        """Return the text of a read, label, match number, aggregate or guarded navigation."""
        navigation = guarded(node)
        if navigation is not None:
            return self._guarded(*navigation)
        match node:
            case Read(column=column, path=path, place=place):
                return self._placed(".".join(map(print_name, (column, *path))), place)
            case Label(place=place):
                inner = "" if place.variables is None else self._variable(place.variables)
                return _navigated(f"CLASSIFIER({inner})", place)
            case MatchOrdinal():
                return "MATCH_NUMBER()"
            case MatchIdentity():
                return "MATCH_ID()"
            case Aggregate():
                return self._aggregate(node)
            case _:
                raise AssertionError(f"no leaf: {node!r}")

    def _guarded(self, place: ReadPlace, operand: BoundExpression) -> str:
        """Return a navigation around more than a read, as the user wrote it."""

        def here(leaf: BoundExpression) -> str:
            if isinstance(leaf, Read | Label):
                leaf = replace(leaf, place=ReadPlace("last", place.variables))
            return self.leaf(leaf)

        text = self.text(operand, here)
        navigated = _navigated(text, place)
        return f"LAST({text})" if navigated == text else navigated

    def _placed(self, column: str, place: ReadPlace) -> str:
        prefix = "" if place.variables is None else f"{self._variable(place.variables)}."
        return _navigated(prefix + column, place)

    def _variable(self, numbers: frozenset[int]) -> str:
        if len(numbers) == 1:
            return print_name(self.names[next(iter(numbers))])
        return next(
            (print_name(name) for name, members in self.subsets.items() if members == numbers),
            "|".join(self.names[number] for number in sorted(numbers)),
        )

    def _aggregate(self, node: Aggregate) -> str:
        prefix = "" if node.variables is None else f"{self._variable(node.variables)}."

        def of_variable(leaf: BoundExpression) -> str:
            return prefix + self.leaf(leaf) if isinstance(leaf, Read) else self.leaf(leaf)

        arguments = ", ".join(self.text(argument, of_variable) for argument in node.arguments)
        distinct = "DISTINCT " if node.distinct else ""
        order = ", ".join(self._sort_key(key, of_variable) for key in node.order)
        given = f"{distinct}{arguments or prefix + '*'}{' ORDER BY ' if order else ''}{order}"
        call = f"{node.function.upper()}({given})"
        if node.condition is None:
            return call
        return f"{call} FILTER (WHERE {self.text(node.condition, of_variable)})"

    def _sort_key(self, key: BoundSortKey, leaf: Substitute) -> str:
        direction = " DESC" if key.descending else ""
        nulls = " NULLS FIRST" if key.nulls_first else ""
        return f"{self.text(key.operand, leaf)}{direction}{nulls}"


def conjuncts(node: BoundExpression) -> tuple[BoundExpression, ...]:
    """Return the conditions that must all hold, in text order.

    Examples
    --------
    >>> import pyarrow as pa
    >>> true = Constant(pa.bool_(), True)
    >>> len(conjuncts(Apply(pa.bool_(), "and", (true, Apply(pa.bool_(), "and", (true, true))))))
    3
    """
    found: list[BoundExpression] = []
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, Apply) and current.function == "and":
            stack += reversed(current.arguments)
        else:
            found.append(current)
    return tuple(found)


def value_text(value: object) -> str:
    """Return a value as it is written in SQL, cut where it is very long.

    Examples
    --------
    >>> value_text(None), value_text("it's"), value_text(8.5), value_text(True)
    ('NULL', "'it''s'", '8.5', 'true')
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case str():
            shown = value if len(value) <= _TEXT_MAX else value[: _TEXT_MAX - 1] + "…"
            return "'" + shown.replace("'", "''") + "'"
        case datetime.timedelta():
            return print_duration(value)
        case datetime.datetime() | datetime.date():
            return f"'{value}'"
        case decimal.Decimal():
            return format(value, "f")
        case _:
            text = str(value)
            return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 1] + "…"


def _joined(function: str, parts: list[str]) -> str:
    match function:
        case "not":
            return f"NOT {parts[0]}"
        case "negate":
            return f"-{parts[0]}"
        case "is null":
            return f"{parts[0]} IS NULL"
        case "in":
            return f"{parts[0]} IN ({', '.join(parts[1:])})"
        case "like":
            escape = f" ESCAPE {parts[2]}" if len(parts) == 3 else ""
            return f"{parts[0]} LIKE {parts[1]}{escape}"
        case _:
            return f" {function.upper()} ".join(parts)


def _navigated(inner: str, place: ReadPlace) -> str:
    text = inner
    if place.origin == "first" or place.steps:
        steps = f", {place.steps}" if place.steps else ""
        text = f"{place.origin.upper()}({text}{steps})"
    if place.shift:
        kind = "PREV" if place.shift < 0 else "NEXT"
        distance = f", {abs(place.shift)}" if abs(place.shift) > 1 else ""
        text = f"{kind}({text}{distance})"
    return text


def _between_numbers(inner: BoundExpression, outer: BoundExpression) -> bool:
    return types.is_numeric(inner.type) and types.is_numeric(outer.type)
