"""The bound query: names resolved, types known, every read tied to a row of the match.

Binding (`bind/query.py`) turns a `Query` and a schema into these values once; matchers, measures
and `explain()` work from them alone. Navigation is pushed down to the leaves: a `Read` says by its
`ReadPlace` which row it takes its value from, so evaluators need no notion of nesting. A navigated
expression that would have a value although its row does not exist is guarded by a `Present`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from typing import Literal as OneOf

import pyarrow as pa

from outpace.errors import OutpaceError, Span
from outpace.pattern.expression import Scalar
from outpace.pattern.query import Emission, Query

#: The column that says whether a match is new, 1, or wrong now, -1, where late events correct.
DIFF: Final = "diff"

#: The columns that tell matches apart that come before they are certain, and say whether they are.
MATCH: Final = "match_id"
CONFIRMED: Final = "confirmed"

#: The columns of `Query.over(numbered=True)`, behind all others.
NUMBERING: Final = ("match_event", "window", "window_start", "window_end")


def left_out(query: Query) -> frozenset[str]:
    """Return the columns that say what becomes of matches, and do not come out."""
    if not query.corrects or query.emission is Emission.CHANGES:
        return frozenset()
    extra = {CONFIRMED} if query.confirms else set()
    return frozenset(extra | ({DIFF} if query.emission is Emission.CONFIRMED else set()))


@dataclass(frozen=True, slots=True)
class ReadPlace:
    """Which row a leaf reads, relative to a match and the row that is being looked at.

    First the rows of the match are narrowed: to those with a label in `variables` (None: all), and,
    unless `final`, to those up to the row being looked at. Of these the `first` or `last` is taken,
    `steps` further inwards. From there `shift` rows are counted in the partition (negative: PREV).
    Where any step falls off, the value is NULL. `row` is the row that an aggregate is adding.
    """

    origin: OneOf["first", "last", "row"]
    variables: frozenset[int] | None = None
    steps: int = 0
    shift: int = 0
    final: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """Where in the user's query something stands, for errors that only the data bring out."""

    where: str
    span: Span | None = None

    def of(self, problem: OutpaceError) -> OutpaceError:
        """Give an error its place, unless it has one."""
        if problem.where is None and problem.span is None:
            problem.where, problem.span = self.where, self.span
            problem.text = None if self.span is None else self.span.text
        return problem


@dataclass(frozen=True, slots=True)
class BoundExpression:
    """The base of all bound nodes; `type` is the Arrow type of the value."""

    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Constant(BoundExpression):
    """A constant of the given type (the NULL type for an untyped NULL)."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Read(BoundExpression):
    """A column, or a field inside a struct column (`path`), at a place."""

    column: str
    path: tuple[str, ...]
    place: ReadPlace


@dataclass(frozen=True, slots=True)
class Label(BoundExpression):
    """The variable that labels the row at a place; NULL where that row is not in the match."""

    place: ReadPlace


@dataclass(frozen=True, slots=True)
class Present(BoundExpression):
    """Whether there is a row at a place; never NULL."""

    place: ReadPlace


@dataclass(frozen=True, slots=True)
class MatchOrdinal(BoundExpression):
    """The sequence number of the match in its partition."""


@dataclass(frozen=True, slots=True)
class MatchIdentity(BoundExpression):
    """What tells the match from all others, as text."""


@dataclass(frozen=True, slots=True)
class Apply(BoundExpression):
    """A scalar function or operator by its canonical name; `functions` says what it means."""

    function: str
    arguments: tuple[BoundExpression, ...]
    origin: Origin | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Aggregate(BoundExpression):
    """An aggregate over the rows of the match; reads in its parts have the place `row`.

    `variables` None means all rows. Without `final` it takes the rows up to the current one. It
    takes those that satisfy `condition`, in the order of `order`.
    """

    function: str
    arguments: tuple[BoundExpression, ...]
    variables: frozenset[int] | None
    final: bool
    distinct: bool = False
    condition: BoundExpression | None = None
    order: tuple[BoundSortKey, ...] = ()
    origin: Origin | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class BoundSortKey(BoundExpression):
    """What the rows of an aggregate are sorted by."""

    operand: BoundExpression
    descending: bool
    nulls_first: bool


class PredicateClass(Enum):
    """What a predicate needs to know, which decides where it can run."""

    ALWAYS = "always"
    """No DEFINE: every row."""
    LOCAL = "local"
    """Its own row."""
    OFFSET = "offset"
    """Its own row and rows at a fixed distance."""
    PATH = "path"
    """The match so far."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """The bound DEFINE of a variable; `expression` is None for ALWAYS."""

    name: str
    expression: BoundExpression | None
    kind: PredicateClass


@dataclass(frozen=True, slots=True)
class BoundMeasure:
    """A measure and its name in the output."""

    name: str
    expression: BoundExpression


@dataclass(frozen=True, slots=True)
class Gap:
    """Which events must not lie between two: those that fit one of some variables, or every one."""

    variables: tuple[int, ...] = ()
    every: bool = False


@dataclass(frozen=True, slots=True)
class UncertainStep:
    """A step of a pattern over events whose order is uncertain.

    Parameters
    ----------
    variable
        The number of its variable.
    least, most
        How many events it takes; None: any number.
    between
        What must not lie between its events.
    behind
        What must not lie between them and the next step; behind the last step, until WITHIN ends.
    """

    variable: int
    least: int
    most: int | None
    between: Gap
    behind: Gap


@dataclass(frozen=True, slots=True)
class BoundUncertainty:
    """How uncertain the order of events is, in units of the time column.

    Parameters
    ----------
    bound
        Two events at most so far apart may have happened in either order.
    within
        The bound of WITHIN, exclusively.
    source
        The column of the source of an event, or None.
    ways
        The pattern: the steps of each way through it.
    errors
        The column that says how far the time of an event may be off, at most half of the bound; or
        None.
    """

    bound: int
    within: int
    source: str | None
    ways: tuple[tuple[UncertainStep, ...], ...]
    errors: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(name for name in (self.source, self.errors) if name is not None)

    @property
    def delay(self) -> int:
        """How long after the last event of a match another may still change it."""
        trailing = any(way[-1].behind.variables for way in self.ways)
        return self.bound + (self.within if trailing else 0)

    @property
    def reach(self) -> int:
        """How far before the last event of a match the events may lie that decide about it."""
        return self.within + 2 * self.bound


@dataclass(frozen=True)
class BoundQuery:
    """A query that fits a schema.

    Parameters
    ----------
    query, schema
        What was bound to what.
    predicates
        One per name that the pattern uses, negated ones and `until`s included. The position in this
        tuple is the variable's number everywhere in the engine.
    subsets
        SUBSET names and the numbers that they stand for.
    measures
        In output order.
    partition_by, order_by
        Column names as the schema spells them; `descending` and `nulls_first` go with `order_by`.
    time
        The column that WITHIN measures: the first of `order_by`, or None without one.
    within
        In units of the time column (microseconds for timestamps), or None.
    columns
        All columns that the query reads, as the schema spells them.
    output
        The schema of the result table.
    warnings
        What is allowed but looks like a mistake, one line each.
    """

    query: Query
    schema: pa.Schema
    predicates: tuple[Predicate, ...]
    subsets: dict[str, frozenset[int]]
    measures: tuple[BoundMeasure, ...]
    partition_by: tuple[str, ...]
    order_by: tuple[str, ...]
    descending: tuple[bool, ...]
    nulls_first: tuple[bool, ...]
    time: str | None
    within: int | None
    columns: tuple[str, ...]
    output: pa.Schema
    warnings: tuple[str, ...] = ()
    uncertainty: BoundUncertainty | None = None

    @property
    def matched(self) -> pa.Schema:
        """The columns of `output` that a match has by itself, without its numbers in windows."""
        numbered = self.query.windows is not None and self.query.numbered
        return pa.schema(list(self.output)[: -len(NUMBERING)]) if numbered else self.output

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        """What is computed of rows and matches: conditions, then measures."""
        conditions = (p.expression for p in self.predicates if p.expression is not None)
        return (*conditions, *(measure.expression for measure in self.measures))

    def has(self, kind: type[BoundExpression]) -> bool:
        """Say whether anything of a kind is computed."""
        return any(isinstance(node, kind) for tree in self.expressions for node in walk(tree))

    def number_of(self, name: str) -> int:
        """Return the number of a variable by its name."""
        return next(i for i, p in enumerate(self.predicates) if p.name == name)


def parts(node: BoundExpression) -> tuple[BoundExpression, ...]:
    """Return the direct parts of a bound node."""
    match node:
        case Apply(arguments=arguments):
            return arguments
        case Aggregate(arguments=arguments, condition=condition, order=order):
            return (*arguments, *(() if condition is None else (condition,)), *order)
        case BoundSortKey(operand=operand):
            return (operand,)
        case _:
            return ()


def guard(place: ReadPlace, operand: BoundExpression) -> BoundExpression:
    """Return an expression that is the operand where there is a row at the place, else NULL."""
    otherwise = Constant(operand.type, None)
    return Apply(operand.type, "case", (Present(pa.bool_(), place), operand, otherwise))


def guarded(node: BoundExpression) -> tuple[ReadPlace, BoundExpression] | None:
    """Return the place and the operand of what `guard` made; None for any other node.

    Examples
    --------
    >>> before, one = ReadPlace("last", shift=-1), Constant(pa.int32(), 1)
    >>> guarded(guard(before, one)) == (before, one), guarded(one)
    (True, None)
    """
    match node:
        case Apply(
            function="case", arguments=(Present(place=place), operand, Constant(value=None))
        ):
            return place, operand
        case _:
            return None


def walk(node: BoundExpression) -> Iterator[BoundExpression]:
    """Yield the node and everything below it, without recursion."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(parts(current)))
