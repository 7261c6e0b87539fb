"""SQL with MATCH_RECOGNIZE on a DuckDB connection, in process.

DuckDB runs what is not MATCH_RECOGNIZE and the matcher the rest; rows go between them as Arrow
tables. The connection is left as it was: the tables of the matches carry names of their own and are
gone when the call returns, also by an error.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.join_tables import join_tables
from outpace.errors import BindError, DataError, OutpaceError, PatternSyntaxError
from outpace.hosts.local.frames import UNFINISHED_HINT, is_unfinished
from outpace.hosts.local.table import match
from outpace.pattern.bind.join import bind_join
from outpace.pattern.notation.dialect import OWN
from outpace.pattern.query import Query, RowsPerMatch
from outpace.statement.ambiguous_names import check_ambiguous, inner_query
from outpace.statement.database import SUBQUERY_HINT, database_error, run_statement
from outpace.statement.join_step import JoinedTables
from outpace.statement.split import split
from outpace.statement.step import Statement, Step
from outpace.statement.window_clause import WindowColumns


def sql(connection: duckdb.DuckDBPyConnection, text: str, dialect: str = "outpace") -> pa.Table:
    """Run a statement on DuckDB, as `outpace.sql` says.

    Tables, views and registered frames of the connection can be read. Python variables cannot.
    """
    if not isinstance(connection, duckdb.DuckDBPyConnection):
        message = f"expected a DuckDB connection, not an object of type {type(connection).__name__}"
        raise DataError(message, hint="duckdb.connect() gives one")
    prefix = f"__outpace_{uuid.uuid4().hex[:12]}_"
    return run_split(connection, split(text, dialect, database="duckdb", prefix=prefix))


def run_split(
    connection: duckdb.DuckDBPyConnection, statement: Statement, *, progress: bool = False
) -> pa.Table:
    """Run a statement that is split, in the words of DuckDB; a bar may show how far matching is."""
    with ExitStack() as cleanup:
        return run_statement(statement, _DuckDB(connection, statement, cleanup, progress))


@dataclass(frozen=True)
class _DuckDB:
    """A connection while it runs a statement; `cleanup` takes the tables of the matches away."""

    connection: duckdb.DuckDBPyConnection
    statement: Statement
    cleanup: ExitStack
    progress: bool

    def ask(self, query: str) -> pa.Table:
        return self._fetched(query, hint=SUBQUERY_HINT)

    def match(self, step: Step, query: Query) -> None:
        self._check_names(step, query)
        found = match(self._fetched(step.source), query, progress=self.progress)
        found = found.drop_columns([name for name in step.helpers if name in found.column_names])
        self.cleanup.callback(_unregister, self.connection, step.table)
        self.connection.register(step.table, found)

    def measure(self, step: Step, window: WindowColumns, query: Query) -> None:
        self._check_names(step, query)
        # The rows come in the order of their numbers, which begin with 1.
        source = f"SELECT * FROM ({step.source}) ORDER BY {window.row}"
        rows = self._fetched(source)
        found = match(rows, query, progress=self.progress)
        if query.rows is not RowsPerMatch.ONE:
            first = pc.equal(found[window.row_of], found[window.row])
            found = found.filter(pc.fill_null(first, True))
        place = window.row_of if query.rows is RowsPerMatch.ONE else window.row
        numbers = np.full(rows.num_rows, -1)
        numbers[found[place].to_numpy() - 1] = np.arange(found.num_rows)
        matches = pa.array(numbers, mask=numbers < 0)
        for name in window.measures:
            rows = rows.append_column(name, found[name].take(matches))
        self.cleanup.callback(_unregister, self.connection, step.table)
        self.connection.register(step.table, rows.drop_columns(list(step.helpers)))

    def join(self, step: Step, joined: JoinedTables) -> Mapping[str, str]:
        left, right = self._fetched(step.source), self._fetched(joined.right)
        names = right.column_names
        right = right.rename_columns(joined.right_names(left.column_names, names))
        bound = bind_join(joined.join, left.schema, right.schema)
        texts, keys = joined.expanded(bound, names, step.table, _quoted)
        found = join_tables(bound, left, right)
        partner = found.column(bound.partner).is_valid()
        for name, key in keys.items():
            column = pc.if_else(partner, found.column(key), pa.scalar(None, found[key].type))
            found = found.append_column(name, column)
        self.cleanup.callback(_unregister, self.connection, step.table)
        self.connection.register(step.table, found)
        return texts

    def run(self, query: str) -> pa.Table:
        return self._fetched(query)

    def _check_names(self, step: Step, query: Query) -> None:
        """Refuse names that stand for several columns, where the dialect is not DuckDB's."""
        dialect = self.statement.dialect
        if dialect in (OWN, "duckdb"):
            return
        inner = inner_query(step.source, "duckdb")
        if inner is not None:
            with suppress(duckdb.Error):  # What is wrong is told when it runs.
                check_ambiguous(step, query, _columns(self.connection, inner), dialect)

    def _fetched(self, query: str, *, hint: str | None = None) -> pa.Table:
        """Run a query; `hint` goes with a name that DuckDB does not know."""
        try:
            return _fetch(self.connection, query)
        except duckdb.Error as error:
            raise _duckdb_error(error, self.statement, hint) from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _unregister(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    # After an error inside the user's transaction only ROLLBACK is possible, and that removes the
    # table too.
    with suppress(duckdb.TransactionException):
        connection.unregister(table)


def _fetch(_connection: duckdb.DuckDBPyConnection, _query: str) -> pa.Table:
    # DuckDB looks for unknown tables among the variables of this frame, hence the underscores.
    _relation = _connection.sql(_query)
    return pa.table({}) if _relation is None else _relation.to_arrow_table()


def _columns(_connection: duckdb.DuckDBPyConnection, _query: str) -> list[str]:
    return _connection.sql(_query).columns


#: How an error of DuckDB begins: its kind, then what it says.
_KIND = re.compile(r"^(?:\w+(?: \w+)* Error|TransactionContext Error): ")
#: What an error of DuckDB names.
_NAMED = re.compile(r'"([^"]+)"|with name (\S+)')


def _duckdb_error(error: duckdb.Error, statement: Statement, hint: str | None) -> OutpaceError:
    """Return an error of DuckDB as one of Outpace."""
    kind: type[OutpaceError] = DataError
    if isinstance(error, duckdb.ParserException):
        kind = PatternSyntaxError
    elif isinstance(error, duckdb.BinderException | duckdb.CatalogException):
        kind = BindError
    # What follows shows a line of a text that the user has not written.
    message = _KIND.sub("", str(error).split("\n\nLINE ")[0])
    hint = _hint(error, hint)
    if is_unfinished(error):
        message, hint = "the connection has an unfinished result", UNFINISHED_HINT
    return database_error(
        kind, statement, database="DuckDB", message=message, names=_NAMED, hint=hint
    )


def _hint(error: duckdb.Error, unknown_name: str | None) -> str | None:
    if isinstance(error, duckdb.CatalogException) and "Table with name" in str(error):
        return "a frame in a Python variable is found after con.register('name', frame)"
    return unknown_name if isinstance(error, duckdb.BinderException) else None
