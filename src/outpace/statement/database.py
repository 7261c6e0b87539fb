"""Running a split statement on a database, and telling what the database says about it.

A host brings three things: a way to ask a small query, a way to match a step, and a way to run what
is left. The order of the steps, the answers to subqueries and the places of errors are the same on
every host and are decided here.
"""

from __future__ import annotations

import re
from typing import Protocol, TypeVar

import pyarrow as pa

from outpace.errors import OutpaceError, Span
from outpace.pattern.notation.lexer import SourceText, tokenize
from outpace.pattern.query import Query
from outpace.statement.split import Statement, Step
from outpace.statement.subquery import answer_subqueries

Result = TypeVar("Result", covariant=True)

#: What goes with a name in a subquery that the database does not know.
SUBQUERY_HINT = "a subquery cannot read the match's rows"


class Database(Protocol[Result]):
    """What a host does for a statement; failures are errors of Outpace."""

    def ask(self, query: str) -> pa.Table:
        """Return the few rows of a subquery of MEASURES or DEFINE."""

    def match(self, step: Step, query: Query) -> None:
        """Match a step's input and let what comes after it read the result."""

    def run(self, query: str) -> Result:
        """Run what is left of the statement."""


def run_statement(statement: Statement, database: Database[Result]) -> Result:
    """Run the steps of a statement in their order, then what is left of it."""
    for step in statement.steps:
        try:
            database.match(step, answer_subqueries(step, database.ask))
        except OutpaceError as error:
            raise statement.located(error, step) from error.__cause__
    return database.run(statement.outer)


def database_error(
    kind: type[OutpaceError],
    statement: Statement,
    *,
    database: str,
    said: str,
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
    said
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
    ...       said='Column "pirce" not found!', names=re.compile('"([^"]+)"')))
    [bind] DuckDB: column "pirce" not found
      statement, line 1, column 8
        SELECT pirce FROM ticks
               ^^^^^
    """
    for step in statement.steps:
        said = re.sub(rf"\b{step.table}\b", step.query.name, said)
    first, *rest = said.splitlines() or ["unknown error"]
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
