"""The row evaluator: a bound expression in plain Python, one row of one match at a time.

This is the twin that the vectorised evaluator and the compiled predicates are tested against, and
the fallback for what they do not cover. It follows `bound.Place` word for word.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from outpace.errors import DataError, OutpaceError
from outpace.pattern.bound import (
    Aggregate,
    Apply,
    BoundExpression,
    BoundSortKey,
    Constant,
    Label,
    MatchOrdinal,
    Present,
    Read,
    ReadPlace,
)
from outpace.pattern.functions import function_of
from outpace.pattern.functions.aggregate import distinct_rows, find_aggregate, order_key
from outpace.pattern.functions.function import Signature
from outpace.pattern.values import excerpt


@dataclass(slots=True)
class RowContext:
    """A match (or the run so far) in its partition, and the row that is being looked at.

    Parameters
    ----------
    columns
        Python values by column name, one for each row of the partition (see `column_values`).
    size
        The number of rows of the partition.
    names
        The variables' names by number.
    rows, labels
        The partition rows of the match, and the variable numbers of each; in increasing order, but
        where that is uncertain: there step by step.
    current
        The index into `rows` of the row being looked at: without FINAL, rows after it are not seen.
        -1 for an empty match.
    match_number
        What MATCH_NUMBER() gives.
    row
        The index into `rows` of the row that an aggregate is adding.
    """

    columns: Mapping[str, Sequence[Any]]
    size: int
    names: Sequence[str]
    rows: Sequence[int] = ()
    labels: Sequence[int] = ()
    current: int = -1
    match_number: int = 1
    row: int = field(default=-1, repr=False)


Evaluate = Callable[[RowContext], Any]


def compile_row(expression: BoundExpression) -> Evaluate:
    """Return a function that evaluates an expression, faster than walking it for every row.

    Examples
    --------
    >>> import pyarrow as pa
    >>> last = compile_row(Read(pa.int64(), "x", (), ReadPlace("last")))
    >>> last(RowContext({"x": [7, 8]}, 2, ["A"], rows=[0, 1], labels=[0, 0], current=1))
    8
    """
    return compile_scalar(expression, _leaf)


def compile_scalar(
    expression: BoundExpression, leaf: Callable[[BoundExpression], Callable[[Any], Any]]
) -> Callable[[Any], Any]:
    """Compile an expression with another meaning of its leaves.

    `leaf` is asked for everything but constants and calls; what it returns gets the argument that
    the compiled function is called with.
    """
    match expression:
        case Constant(value=value):
            return lambda _: value
        case Apply(arguments=arguments):
            return _call(expression, [compile_scalar(argument, leaf) for argument in arguments])
        case _:
            return leaf(expression)


def locate(place: ReadPlace, context: RowContext) -> int | None:
    """Return the partition row that a place stands for, or None where there is none."""
    index = _index(place, context)
    if index is None:
        return None
    position = context.rows[index] + place.shift
    return position if 0 <= position < context.size else None


def _index(place: ReadPlace, context: RowContext) -> int | None:
    """Return the index into the match's rows, before the shift."""
    if place.origin == "row":
        return context.row
    end = len(context.rows) if place.final else context.current + 1
    forward = place.origin == "first"
    left = place.steps
    for index in range(end) if forward else range(end - 1, -1, -1):
        if place.variables is None or context.labels[index] in place.variables:
            if left == 0:
                return index
            left -= 1
    return None


def _leaf(node: BoundExpression) -> Evaluate:
    match node:
        case Read():
            return _read(node)
        case Label(place=place):
            return lambda context: _label(place, context)
        case Present(place=place):
            return lambda context: locate(place, context) is not None
        case MatchOrdinal():
            return lambda context: context.match_number
        case Aggregate():
            return _aggregate(node)
        case _:
            raise TypeError(f"no leaf: {node!r}")


def _read(node: Read) -> Evaluate:
    place, column, path = node.place, node.column, node.path

    def read(context: RowContext) -> Any:
        position = locate(place, context)
        value = None if position is None else context.columns[column][position]
        for part in path:
            value = None if value is None else value[part]
        return value

    return read


def _label(place: ReadPlace, context: RowContext) -> str | None:
    if not place.shift:
        index = _index(place, context)
        return None if index is None else context.names[context.labels[index]]
    position = locate(place, context)
    if position is None:
        return None
    index = bisect_left(context.rows, position)
    if index == len(context.rows) or context.rows[index] != position:
        return None
    return context.names[context.labels[index]]


def _aggregate(node: Aggregate) -> Evaluate:
    aggregate = find_aggregate(node.function)
    assert aggregate is not None
    fold = aggregate.python(Signature(tuple(a.type for a in node.arguments), node.type))
    parts = [compile_row(argument) for argument in node.arguments]
    count = len(parts)
    parts += [compile_row(key.operand) for key in node.order]
    condition = None if node.condition is None else compile_row(node.condition)
    skip_null = aggregate.skip_null and count > 0
    variables, final, distinct = node.variables, node.final, node.distinct

    def evaluate(context: RowContext) -> Any:
        taken = []
        for index in range(len(context.rows) if final else context.current + 1):
            if variables is None or context.labels[index] in variables:
                context.row = index
                if condition is not None and condition(context) is not True:
                    continue
                given = tuple(part(context) for part in parts)
                if not (skip_null and given[0] is None):
                    taken.append(given)
        context.row = -1
        if distinct:
            taken = distinct_rows(taken)
        if node.order:
            taken = [row[:count] for row in _sorted(taken, count, node.order)]
        try:
            return fold(taken)
        except Exception as problem:
            raise _failure(node, problem) from problem

    return evaluate


def _sorted(
    rows: Sequence[tuple[Any, ...]], first: int, keys: Sequence[BoundSortKey]
) -> list[tuple[Any, ...]]:
    """Return rows sorted by the values of keys, which are in them from a place on."""
    found = list(rows)
    for place, key in reversed(list(enumerate(keys, first))):
        nulls = [row for row in found if row[place] is None]
        known = [row for row in found if row[place] is not None]
        ranks = [order_key(row[place]) for row in known]
        ranked = sorted(range(len(known)), key=ranks.__getitem__, reverse=key.descending)
        known = [known[at] for at in ranked]
        found = [*nulls, *known] if key.nulls_first else [*known, *nulls]
    return found


def _call(node: Apply, parts: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    function = function_of(node)
    compute = function.python(Signature(tuple(a.type for a in node.arguments), node.type))
    if function.lazy:
        return cast("Evaluate", compute(*parts))
    if function.strict and len(parts) == 2:
        return _strict_pair(node, compute, parts[0], parts[1])
    strict = function.strict

    def call(context: Any) -> Any:
        given = [part(context) for part in parts]
        if strict and any(value is None for value in given):
            return None
        try:
            return compute(*given)
        except Exception as problem:
            raise _failure(node, problem, given) from problem

    return call


def _strict_pair(
    node: Apply,
    compute: Callable[..., Any],
    first: Callable[[Any], Any],
    second: Callable[[Any], Any],
) -> Callable[[Any], Any]:
    def call(context: Any) -> Any:
        left = first(context)
        if left is None:
            return None
        right = second(context)
        if right is None:
            return None
        try:
            return compute(left, right)
        except Exception as problem:
            raise _failure(node, problem, (left, right)) from problem

    return call


def _failure(
    node: Apply | Aggregate, problem: Exception, given: Sequence[Any] = ()
) -> OutpaceError:
    """Return the error that the user sees, whatever a function raised, with its place."""
    error = problem
    if not isinstance(error, OutpaceError):
        of = ", ".join(excerpt(value) for value in given) or "these rows"
        error = DataError(f"{node.function} of {of} cannot be computed", detail=str(problem)[:200])
    return error if node.origin is None else node.origin.of(error)
