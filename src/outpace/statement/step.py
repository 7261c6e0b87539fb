"""What a statement is split into: steps, each after those that it reads from, and the rest.

A step says what its errors are to name: the user wrote neither the names of steps nor those of the
columns that a database computes for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from outpace.errors import BindError, OutpaceError, Span, UnsupportedError
from outpace.pattern.expression import Subquery
from outpace.pattern.query import Query
from outpace.statement.join_step import JoinedTables
from outpace.statement.place import place_in_clause, place_of_name
from outpace.statement.window_clause import WindowColumns

#: A step's input that is a table as it is.
_WHOLE_TABLE = re.compile(
    r"SELECT \* FROM (?P<quote>`?)(?P<table>\w+)(?P=quote)(?:\s+(?:AS\s+)?`?\w+`?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Lookup:
    """A subquery of MEASURES or DEFINE: its node, and the query that the database runs for it."""

    node: Subquery
    query: str


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column that the database computes of the rows of a step, and that no result keeps.

    Parameters
    ----------
    name
        Its name, which stands for nothing else.
    text, span
        The expression, as it is written and where.
    """

    name: str
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Step:
    """One MATCH_RECOGNIZE.

    Parameters
    ----------
    table
        The name under which the rest of the statement reads the matches.
    source
        The query that gives the input rows, in the database's dialect. It may read the tables of
        earlier steps.
    query
        What to match, named as the user named the matches. Subqueries in it are still there.
    span
        Where `MATCH_RECOGNIZE ( ... )` stands in the statement.
    lookups
        Those subqueries; they may read the tables of earlier steps.
    joined
        Of a JOIN … WITHIN, which is no MATCH_RECOGNIZE: what is joined; `source` is its left side.
    window
        Of a window with a pattern: what becomes of the matches, whose table has all rows.
    computed
        Columns that `source` has for the query alone.
    outside
        The names of tables around the clause that its input reads, and where.
    """

    table: str
    source: str
    query: Query
    span: Span
    lookups: tuple[Lookup, ...] = ()
    joined: JoinedTables | None = None
    window: WindowColumns | None = None
    computed: tuple[ComputedColumn, ...] = ()
    outside: tuple[tuple[str, Span], ...] = ()

    @property
    def helpers(self) -> tuple[str, ...]:
        """The names of the columns that no result keeps."""
        return tuple(column.name for column in self.computed)

    @property
    def is_clause(self) -> bool:
        """Whether it is a MATCH_RECOGNIZE as it is written."""
        return self.joined is None and self.window is None

    @property
    def sources(self) -> tuple[str, ...]:
        """The queries that give the input rows: one, or those of the sides of a join."""
        return (self.source,) if self.joined is None else (self.source, self.joined.right)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that is split.

    Parameters
    ----------
    text, dialect
        What the user wrote, and in what.
    steps
        The MATCH_RECOGNIZE clauses, each after those that it reads from.
    outer
        What is left, in the database's dialect; the text itself where it has no MATCH_RECOGNIZE and
        needs no translation.
    """

    text: str
    dialect: str
    steps: tuple[Step, ...]
    outer: str

    def located(self, error: OutpaceError, step: Step) -> OutpaceError:
        """Give an error of a step its place in the statement where it has none, and return it."""
        error = _of_outside(error, step)
        for column in step.computed:
            if column.name in error.message:
                error.message = error.message.replace(column.name, column.text)
                error.span = column.span
        if error.span is None and step.joined is not None:
            error.span = place_of_name(error, self.text, step.span, self.dialect) or step.span
        elif error.span is None:
            error.span = place_in_clause(error, self.text, step.span, self.dialect)
        if step.computed:
            # The user wrote neither the columns of rows nor the names of measures.
            own = re.compile(rf"(?:, | ){re.escape(step.table.rstrip('0123456789'))}\w+")
            error.where = own.sub("", error.where) if error.where else None
            error.hint = own.sub("", error.hint) if error.hint else None
        return error.located(self.text, "statement").in_sql()


def _of_outside(error: OutpaceError, step: Step) -> OutpaceError:
    """Say of a name that a database does not know that it is a table around the clause."""
    for name, span in step.outside if isinstance(error, BindError) else ():
        if re.match(rf"\w+: .*\b{re.escape(name)}\b", error.message, re.IGNORECASE):
            return UnsupportedError(
                f"the input of MATCH_RECOGNIZE cannot read '{name}' of the query around it",
                span=span,
                detail="it is computed once, before the rest of the statement",
                hint="join the tables inside the input, and choose among the matches outside",
            )
    return error


def whole_table(step: Step) -> str | None:
    """Return the name, in lower case, of the table that a step reads as it is; None if it does not.

    Examples
    --------
    >>> from outpace.statement.split import split
    >>> clause = "MATCH_RECOGNIZE (ORDER BY ts PATTERN (A))"
    >>> sources = ["Ticks AS t", "(SELECT 1 AS ts)"]
    >>> texts = [f"SELECT * FROM {source} {clause}" for source in sources]
    >>> [whole_table(split(text, "trino", database="spark").steps[0]) for text in texts]
    ['ticks', None]
    """
    return table_of(step.source)


def table_of(source: str) -> str | None:
    """Return the name, in lower case, of the table that a query is as it is; None if it is not."""
    found = _WHOLE_TABLE.fullmatch(source.strip())
    return found["table"].lower() if found else None
