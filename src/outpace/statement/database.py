"""Running a split statement on a database, and telling what the database says about it.

A host brings three things: a way to ask a small query, a way to match a step, and a way to run what
is left. The order of the steps, the answers to subqueries and the places of errors are the same on
every host and are decided here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

import pyarrow as pa

from outpace.errors import BindError, DataError, OutpaceError, Span, UnsupportedError
from outpace.pattern.expression import Cast, Expression, InList, Literal, Subquery, transform
from outpace.pattern.notation.lexer import SourceText, tokenize
from outpace.pattern.query import Query
from outpace.statement.join_step import JoinedTables, filled
from outpace.statement.step import Lookup, Statement, Step
from outpace.statement.window_clause import WindowColumns

Output = TypeVar("Output", covariant=True)

#: What goes with a name in a subquery that the database does not know.
SUBQUERY_HINT = "a subquery cannot read the match's rows"


class Database(Protocol[Output]):
    """What a host does for a statement; failures are errors of Outpace."""

    def ask(self, query: str) -> pa.Table:
        """Return the few rows of a subquery of MEASURES or DEFINE."""

    def match(self, step: Step, query: Query) -> None:
        """Match a step's input and let what comes after it read the result."""

    def measure(self, step: Step, window: WindowColumns, query: Query) -> None:
        """Match a window's input and let what comes after it read its rows with their measures."""

    def join(self, step: Step, joined: JoinedTables) -> Mapping[str, str]:
        """Join a step's inputs, let what comes after it read the result, and say how."""

    def run(self, query: str) -> Output:
        """Run what is left of the statement."""


def run_statement(statement: Statement, database: Database[Output]) -> Output:
    """Run the steps of a statement in their order, then what is left of it."""
    columns: dict[str, str] = {}
    for step in statement.steps:
        try:
            step = _with_columns(step, columns)
            if step.joined is not None:
                columns.update(database.join(step, step.joined))
            elif step.window is not None:
                database.measure(step, step.window, _answer_subqueries(step, database.ask))
            else:
                database.match(step, _answer_subqueries(step, database.ask))
        except OutpaceError as error:
            raise statement.located(error, step) from error.__cause__
    return database.run(filled(statement.outer, columns))


def _with_columns(step: Step, columns: Mapping[str, str]) -> Step:
    """Return a step that reads columns of joined tables by the names that these have by now."""
    if not columns:
        return step
    lookups = (replace(one, query=filled(one.query, columns)) for one in step.lookups)
    joined = step.joined and replace(step.joined, right=filled(step.joined.right, columns))
    source = filled(step.source, columns)
    return replace(step, source=source, lookups=tuple(lookups), joined=joined)


def database_error(
    kind: type[OutpaceError],
    statement: Statement,
    *,
    database: str,
    message: str,
    names: re.Pattern[str],
    hint: str | None = None,
) -> OutpaceError:
    r"""Say what a database says, in terms of the user's own text.

    Parameters
    ----------
    kind
        The error to make.
    statement
        What the user wrote.
    database
        Who says it.
    message
        The message: its first line, then details.
    names
        Finds the names that a message quotes, in one of its groups.
    hint
        What to try.

    Examples
    --------
    >>> from outpace.errors import BindError
    >>> from outpace.statement.split import split
    >>> print(database_error(BindError, split("SELECT pirce FROM ticks"), database="DuckDB",
    ...       message='Column "pirce" not found!', names=re.compile('"([^"]+)"')))
    [bind] DuckDB: column "pirce" not found
      statement, line 1, column 8
        SELECT pirce FROM ticks
               ^^^^^
    """
    for step in statement.steps:
        message = re.sub(rf"\b{step.table}\b", step.query.name, message)
    first, *rest = message.splitlines() or ["unknown error"]
    return kind(
        f"{database}: {first[:1].lower()}{first[1:].rstrip('.!')}",
        span=_named_place(first, statement, names),
        text=statement.text,
        where="statement",
        detail="\n".join(rest) or None,
        hint=hint,
    )


def _named_place(message: str, statement: Statement, names: re.Pattern[str]) -> Span | None:
    """Return where the last name that a message quotes stands, if it stands in one place only."""
    tokens = tokenize(SourceText(statement.text, dialect=statement.dialect))
    for found in reversed(list(names.finditer(message))):
        name = next(group for group in found.groups() if group is not None).lower()
        places = [token.span for token in tokens if token.value.lower() == name]
        if len(places) == 1:
            return places[0]
    return None


def _answer_subqueries(step: Step, run: Callable[[str], pa.Table]) -> Query:
    """Return the query of a step with values in place of the subqueries of MEASURES and DEFINE.

    They cannot refer to the rows of the match, so each has one answer for the whole statement.
    SQL's rules for NULL hold: a value of no rows is NULL, and IN over a list with a NULL is never
    false.
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
