"""The expression tree: predicates and measures as frozen values, before names are resolved.

Nodes carry the span of the text that they came from, for errors; it takes no part in equality.
`op.col("price") < 5` and the text `price < 5` give the same tree.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any
from typing import Literal as OneOf

import pyarrow as pa

from outpace.errors import Span

#: What a literal can hold. A `timedelta` is an INTERVAL, None is NULL.
Scalar = (
    None
    | bool
    | int
    | float
    | str
    | bytes
    | decimal.Decimal
    | datetime.date
    | datetime.datetime
    | datetime.timedelta
)

BinaryOperator = OneOf[
    "+",
    "-",
    "*",
    "/",
    "%",
    "div",
    "||",
    "=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "and",
    "or",
    "is distinct from",
    "is not distinct from",
]
"""`/` on two integers gives a double, as in Spark; `div` is SQL's: integers stay integers."""


@dataclass(frozen=True, slots=True)
class Expression:
    """The base of all expression nodes."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """A constant. True and 1 are different literals."""

    value: Scalar

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Literal)
            and type(self.value) is type(other.value)
            and (
                self.value == other.value
                or (self.value != self.value and other.value != other.value)
            )
        )

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Name(Expression):
    """A column, maybe of a variable, maybe a path into structs: `price`, `A.price`, `A.quote.bid`.

    Binding finds out whether the first part is a variable.
    """

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Star(Expression):
    """All rows, as the argument of COUNT: `*`, or `A.*`."""

    variable: str | None = None


@dataclass(frozen=True, slots=True)
class Field(Expression):
    """A field of a struct that an expression gives: `(f(x)).bid`."""

    item: Expression
    name: str


@dataclass(frozen=True, slots=True)
class Subscript(Expression):
    """An element of an array (from 1) or a map: `x[1]`."""

    item: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Unary(Expression):
    """`-x` or `not x`."""

    operator: OneOf["-", "not"]
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary(Expression):
    """An operator between two expressions."""

    operator: BinaryOperator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull(Expression):
    """`x is null`, or `x is not null` when negated."""

    operand: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Between(Expression):
    """`x between low and high`; `symmetric` lets the ends stand in either order."""

    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False
    symmetric: bool = False


@dataclass(frozen=True, slots=True)
class InList(Expression):
    """`x in (a, b)`."""

    operand: Expression
    items: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like(Expression):
    """`x like pattern escape e`."""

    operand: Expression
    pattern: Expression
    escape: Expression | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """`case [operand] when .. then .. else .. end`."""

    operand: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    """`cast(x as type)`; `safe` is TRY_CAST, which gives NULL where the value does not fit."""

    operand: Expression
    type: pa.DataType
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A scalar or aggregate function; names are lower case. Binding tells which it is.

    An aggregate may have a condition on its rows, FILTER, and an order of them, ORDER BY.
    """

    name: str
    arguments: tuple[Expression, ...]
    distinct: bool = False
    condition: Expression | None = None
    order: tuple[SortKey, ...] = ()


@dataclass(frozen=True, slots=True)
class SortKey(Expression):
    """What ORDER BY inside an aggregate sorts by; NULLs come last unless `nulls_first`."""

    operand: Expression
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class Navigate(Expression):
    """FIRST, LAST (in the match) or PREV, NEXT (in the partition) of an expression."""

    kind: OneOf["first", "last", "prev", "next"]
    operand: Expression
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Semantics(Expression):
    """RUNNING or FINAL in front of FIRST, LAST, an aggregate, or what has them in it."""

    kind: OneOf["running", "final"]
    operand: Expression


@dataclass(frozen=True, slots=True)
class Classifier(Expression):
    """CLASSIFIER(), or CLASSIFIER(U) for the rows of one variable or subset."""

    variable: str | None = None


@dataclass(frozen=True, slots=True)
class MatchNumber(Expression):
    """MATCH_NUMBER()."""


@dataclass(frozen=True, slots=True)
class MatchId(Expression):
    """MATCH_ID()."""


@dataclass(frozen=True, slots=True)
class Array(Expression):
    """`array[a, b]`."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Subquery(Expression):
    """An uncorrelated subquery, kept as text; `op.sql` runs it before matching.

    `kind` says how it is used: a single value, EXISTS, or the right side of IN (then `operand` is
    the left side).
    """

    kind: OneOf["value", "exists", "in"]
    text: str
    operand: Expression | None = None
    negated: bool = False


def children(node: Expression) -> Iterator[Expression]:
    """Yield the direct parts of a node."""
    for attribute in fields(node):
        value = getattr(node, attribute.name)
        if isinstance(value, Expression):
            yield value
        elif isinstance(value, tuple):
            for part in value:
                if isinstance(part, Expression):
                    yield part
                elif isinstance(part, tuple):
                    yield from (p for p in part if isinstance(p, Expression))


def walk(node: Expression) -> Iterator[Expression]:
    """Yield the node and everything below it, in text order, without recursion."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(list(children(current))))


def transform(node: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Rebuild a tree bottom-up, with every node replaced by what `change` makes of it.

    Examples
    --------
    >>> transform(Binary("+", Name(("a",)), Literal(1)),
    ...           lambda n: Literal(2) if isinstance(n, Name) else n)
    Binary(operator='+', left=Literal(value=2), right=Literal(value=1))
    """

    def rebuilt(value: object) -> object:
        if isinstance(value, Expression):
            return transform(value, change)
        if isinstance(value, tuple):
            return tuple(rebuilt(part) for part in value)
        return value

    changed: dict[str, Any] = {
        attribute.name: new
        for attribute in fields(node)
        if (new := rebuilt(old := getattr(node, attribute.name))) is not old and new != old
    }
    return change(replace(node, **changed) if changed else node)
