"""SQL with MATCH_RECOGNIZE on a DuckDB connection, in process.

DuckDB runs what is not MATCH_RECOGNIZE and the matcher the rest; rows go between them as Arrow
tables. The connection is left as it was: the tables of the matches carry names of their own and are
gone when the call returns, also by an error.
"""

from __future__ import annotations

import re
import uuid
from contextlib import ExitStack, suppress
from functools import partial

import duckdb
import pyarrow as pa

from outpace.errors import BindError, DataError, OutpaceError, PatternSyntaxError, Span
from outpace.local.match import match
from outpace.pattern.expression import Literal
from outpace.pattern.lexer import Source, tokenize
from outpace.pattern.query import Query, Rows
from outpace.plan.statement import Statement, Step, split
from outpace.plan.subquery import answer_subqueries


def sql(connection: duckdb.DuckDBPyConnection, text: str, dialect: str = "outpace") -> pa.Table:
    """Run a statement with MATCH_RECOGNIZE on a DuckDB connection.

    Parameters
    ----------
    connection
        An open connection; its tables, views and registered frames can be read. Python variables
        cannot: register them.
    text
        One statement. It may hold any number of MATCH_RECOGNIZE clauses, also in subqueries and
        common table expressions. Their inputs are computed before the rest of the statement runs,
        a common table expression anew for each clause that reads it.
    dialect
        What the statement is written in: "trino", "spark", "flink", "oracle", "snowflake" and the
        like. By default it is DuckDB's SQL around the library's own MATCH_RECOGNIZE.

    Returns
    -------
    pyarrow.Table
        The result of the statement; a table without columns where it has none.

    Examples
    --------
    >>> con = duckdb.connect()
    >>> sql(con, '''
    ...     SELECT m.low
    ...     FROM (VALUES (1, 90), (2, 80), (3, 70), (4, 75)) t(ts, price)
    ...     MATCH_RECOGNIZE (ORDER BY ts MEASURES LAST(DOWN.price) AS low
    ...                      PATTERN (STRT DOWN+ UP)
    ...                      DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)) m
    ... ''').to_pylist()
    [{'low': 70}]
    """
    if not isinstance(connection, duckdb.DuckDBPyConnection):
        message = f"expected a DuckDB connection, not an object of type {type(connection).__name__}"
        raise DataError(message, hint="duckdb.connect() gives one")
    prefix = f"__outpace_{uuid.uuid4().hex[:12]}_"
    statement = split(text, dialect, database="duckdb", prefix=prefix)
    with ExitStack() as cleanup:
        for step in statement.steps:
            _register_matches(connection, statement, step, cleanup)
        return _run(connection, statement, statement.outer)


def _register_matches(
    connection: duckdb.DuckDBPyConnection, statement: Statement, step: Step, cleanup: ExitStack
) -> None:
    """Match one step's input and let what comes after it read the result."""
    lookup = partial(_run, connection, statement, hint="a subquery cannot read the match's rows")
    try:
        query = _with_columns(answer_subqueries(step, lookup))
        found = match(_run(connection, statement, step.source), query)
    except OutpaceError as error:
        raise statement.located(error, step) from error.__cause__
    cleanup.callback(_unregister, connection, step.table)
    connection.register(step.table, found)


def _with_columns(query: Query) -> Query:
    """Add a measure where there would be no column: DuckDB has no tables without columns."""
    if query.rows is Rows.ONE and not query.partitions and not query.outputs:
        return query.measures({"_": Literal(True)})
    return query


def _unregister(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    # After an error inside the user's transaction only ROLLBACK is possible, and that removes the
    # table too.
    with suppress(duckdb.TransactionException):
        connection.unregister(table)


def _run(
    connection: duckdb.DuckDBPyConnection,
    statement: Statement,
    query: str,
    *,
    hint: str | None = None,
) -> pa.Table:
    """Run a query; `hint` goes with a name that DuckDB does not know."""
    try:
        return _fetch(connection, query)
    except duckdb.Error as error:
        raise _database_error(error, statement, hint) from error


def _fetch(_connection: duckdb.DuckDBPyConnection, _query: str) -> pa.Table:
    # DuckDB looks for unknown tables among the variables of this frame, hence the underscores.
    _relation = _connection.sql(_query)
    return pa.table({}) if _relation is None else _relation.to_arrow_table()


#: How an error of DuckDB begins: its kind, then what it says.
_KIND = re.compile(r"^(?:\w+(?: \w+)* Error|TransactionContext Error): ")
#: What an error of DuckDB names.
_NAMED = re.compile(r'"([^"]+)"|with name (\S+)')


def _database_error(error: duckdb.Error, statement: Statement, hint: str | None) -> OutpaceError:
    """Say what DuckDB says, in terms of the user's own text."""
    said = str(error)
    for step in statement.steps:
        said = said.replace(step.table, step.query.name)
    # What follows shows a line of a text that the user has not written.
    first, *rest = _KIND.sub("", said.split("\n\nLINE ")[0]).splitlines() or ["unknown error"]
    kind: type[OutpaceError] = DataError
    if isinstance(error, duckdb.ParserException):
        kind = PatternSyntaxError
    elif isinstance(error, duckdb.BinderException | duckdb.CatalogException):
        kind = BindError
    return kind(
        f"DuckDB: {first[:1].lower()}{first[1:].rstrip('.!')}",
        span=_named_place(first, statement.text),
        text=statement.text,
        where="statement",
        detail="\n".join(rest) or None,
        hint=_hint(error, hint),
    )


def _named_place(message: str, text: str) -> Span | None:
    """Return where the last name that a message quotes stands, if it stands in one place only."""
    for found in reversed(list(_NAMED.finditer(message))):
        name = (found[1] or found[2]).lower()
        places = [token.span for token in tokenize(Source(text)) if token.value.lower() == name]
        if len(places) == 1:
            return places[0]
    return None


def _hint(error: duckdb.Error, unknown_name: str | None) -> str | None:
    if isinstance(error, duckdb.CatalogException) and "Table with name" in str(error):
        return "a frame in a Python variable is found after con.register('name', frame)"
    return unknown_name if isinstance(error, duckdb.BinderException) else None
