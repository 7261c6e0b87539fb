"""The subqueries of MEASURES and DEFINE: run once before matching, then values like any other.

They cannot refer to the rows of the match, so each has one answer for the whole statement. SQL's
rules for NULL hold: a value of no rows is NULL, and IN over a list with a NULL is never false.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from outpace.errors import BindError, DataError, OutpaceError, UnsupportedError
from outpace.pattern.expression import (
    Cast,
    Expression,
    InList,
    Literal,
    Subquery,
    transform,
)
from outpace.pattern.query import Query
from outpace.statement.split import Lookup, Step


def answer_subqueries(step: Step, run: Callable[[str], pa.Table]) -> Query:
    """Return the query of a step with values in place of its subqueries.

    Parameters
    ----------
    step
        Its lookups say which subqueries there are.
    run
        Runs a query in the database.
    """
    if not step.lookups:
        return step.query
    answers = {(lookup.node.kind, lookup.node.text): _rows(lookup, run) for lookup in step.lookups}

    def change(node: Expression) -> Expression:
        return _answer(node, answers[node.kind, node.text]) if isinstance(node, Subquery) else node

    def changed(named: tuple[tuple[str, Expression], ...]) -> tuple[tuple[str, Expression], ...]:
        return tuple((name, transform(node, change)) for name, node in named)

    query = step.query
    return replace(query, outputs=changed(query.outputs), definitions=changed(query.definitions))


def _rows(lookup: Lookup, run: Callable[[str], pa.Table]) -> pa.Table:
    """Run a subquery as far as its use needs it."""
    if lookup.node.kind == "in":
        query = f"SELECT DISTINCT * FROM ({lookup.query})"
    else:
        most = 1 if lookup.node.kind == "exists" else 2
        query = f"SELECT * FROM ({lookup.query}) LIMIT {most}"
    try:
        return run(query)
    except OutpaceError as error:
        error.span = error.span or lookup.node.span
        raise


def _answer(node: Subquery, rows: pa.Table) -> Expression:
    if node.kind == "exists":
        return Literal((rows.num_rows > 0) != node.negated, span=node.span)
    if rows.num_columns != 1:
        message = f"a subquery here gives one column, not {rows.num_columns}"
        raise BindError(message, span=node.span)
    values = [_constant(node, value) for value in rows.column(0)]
    if node.kind == "in":
        assert node.operand is not None, "IN has a left side"
        if not values:
            return Literal(node.negated, span=node.span)
        return InList(node.operand, tuple(values), node.negated, span=node.span)
    if len(values) > 1:
        raise DataError("the subquery gives more than one row", span=node.span)
    return values[0] if values else _constant(node, pa.scalar(None, rows.schema.field(0).type))


def _constant(node: Subquery, value: pa.Scalar) -> Expression:
    """Return a value of the database as a literal of the same type."""
    kind = value.type
    if pa.types.is_nested(kind) or pa.types.is_interval(kind):
        message = f"a subquery here cannot give a value of the type {kind}"
        raise UnsupportedError(message, span=node.span)
    literal = Literal(value.as_py(), span=node.span)
    if pa.types.is_null(kind) or (value.is_valid and not _needs_cast(kind)):
        return literal
    return Cast(literal, kind, span=node.span)


def _needs_cast(kind: pa.DataType) -> bool:
    """Whether a literal alone would get another type: numbers come in many widths."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
