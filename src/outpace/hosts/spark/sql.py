"""SQL with MATCH_RECOGNIZE on a Spark session, classic or Connect.

Spark runs what is not MATCH_RECOGNIZE; matches go into the rest of the statement as DataFrames, so
the result is one lazy DataFrame. Nothing stays behind in the session's catalog.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from outpace.errors import (
    BindError,
    DataError,
    OutpaceError,
    PatternSyntaxError,
    UnsupportedError,
)
from outpace.hosts.spark.frame import match_frame
from outpace.hosts.spark.join import join_sides
from outpace.hosts.spark.schema import arrow_schema
from outpace.pattern.bind.join import bind_join
from outpace.pattern.notation.dialect import OWN
from outpace.pattern.query import Query, RowsPerMatch
from outpace.plan.crossing import quoted
from outpace.statement.database import SUBQUERY_HINT, database_error, run_statement
from outpace.statement.join_step import JoinedTables
from outpace.statement.split import split
from outpace.statement.step import Statement, Step, whole_table
from outpace.statement.window_clause import WindowColumns

#: Finds the matches of a query in a table.
QueryMatch = Callable[[Query], DataFrame]


def sql(
    session: SparkSession,
    text: str,
    dialect: str = OWN,
    matchers: Mapping[str, QueryMatch] | None = None,
) -> DataFrame:
    """Run a statement on a Spark session, as `outpace.sql` says.

    Matching runs when the rows of the result are asked for. Subqueries of MEASURES and DEFINE, and
    statements that store rows, run at once. `matchers` match tables, by name, that need not become
    DataFrames first, such as files, where MATCH_RECOGNIZE reads such a table as it is.
    """
    written = "spark" if dialect.lower() == OWN else dialect
    prefix = f"__outpace_{uuid.uuid4().hex[:12]}_"
    statement = split(text, written, database="spark", prefix=prefix)
    lower = {name.lower(): matcher for name, matcher in (matchers or {}).items()}
    return run_statement(statement, _Spark(session, statement, lower))


@dataclass(frozen=True)
class _Spark:
    """A session while it runs a statement, with the matches of the steps so far."""

    session: SparkSession
    statement: Statement
    matchers: Mapping[str, QueryMatch] = field(default_factory=dict)
    matches: dict[str, DataFrame] = field(default_factory=dict)

    def ask(self, query: str) -> pa.Table:
        try:
            return self._frame(query).toArrow()
        except PySparkException as error:
            raise _spark_error(error, self.statement, SUBQUERY_HINT) from error

    def match(self, step: Step, query: Query) -> None:
        matcher = self.matchers.get(whole_table(step) or "")
        try:
            if matcher is not None:
                self.matches[step.table] = matcher(query)
            else:
                found = match_frame(self._frame(step.source), query)
                self.matches[step.table] = found.drop(*step.helpers)
        except PySparkException as error:
            raise _spark_error(error, self.statement) from error

    def measure(self, step: Step, window: WindowColumns, query: Query) -> None:
        try:
            rows = _numbered(self._frame(step.source), window)
            if rows.isStreaming:
                message = "a row pattern in a window does not go with a stream"
                raise UnsupportedError(message, span=step.span, hint="write MATCH_RECOGNIZE")
            found = match_frame(rows, query)
        except PySparkException as error:
            raise _spark_error(error, self.statement) from error
        place = sf.col(window.row_of)
        if query.rows is not RowsPerMatch.ONE:
            place = sf.col(window.row)
            found = found.where(sf.coalesce(sf.col(window.row_of), place) == place)
        keys = [f"{name}_of_match" for name in window.partitions]
        found = found.select(
            place.alias("number"),
            *(sf.col(name).alias(key) for name, key in zip(window.partitions, keys, strict=True)),
            *window.measures,
        )
        same = sf.col(window.row) == sf.col("number")
        for name, key in zip(window.partitions, keys, strict=True):
            same &= sf.col(name).eqNullSafe(sf.col(key))
        joined = rows.join(found, same, "left")
        self.matches[step.table] = joined.drop("number", *keys, *step.helpers)

    def join(self, step: Step, joined: JoinedTables) -> Mapping[str, str]:
        try:
            left, right = self._frame(step.source), self._frame(joined.right)
            names = right.columns
            right = right.toDF(*joined.right_names(left.columns, names))
            bound = bind_join(joined.join, arrow_schema(left), arrow_schema(right))
            texts, keys = joined.expanded(bound, names, step.table, quoted)
            found = join_sides(left, right, bound)
        except PySparkException as error:
            raise _spark_error(error, self.statement) from error
        partner = sf.col(quoted(bound.partner)).isNotNull()
        for name, key in keys.items():
            found = found.withColumn(name, sf.when(partner, sf.col(quoted(key))))
        self.matches[step.table] = found
        return texts

    def run(self, query: str) -> DataFrame:
        try:
            return self._frame(query)
        except PySparkException as error:
            raise _spark_error(error, self.statement) from error

    def _frame(self, query: str) -> DataFrame:
        """Return a query's result; it reads the matches as arguments, not as views of the session.

        A view would have to live as long as the result on Connect, where a name is looked up again
        each time the rows are asked for.
        """
        used = {name: frame for name, frame in self.matches.items() if _reads(query, name)}
        if not used:
            return self.session.sql(query)
        query = query.replace("{", "{{").replace("}", "}}")
        for name in used:
            query = re.sub(rf"\b{name}\b", f"{{{name}}}", query)
        return self.session.sql(query, None, **used)


#: Types whose values have no order.
_UNORDERED = re.compile(r"\b(?:map<|variant\b)|^interval$")


def _numbered(rows: DataFrame, window: WindowColumns) -> DataFrame:
    """Number the rows that have one number so far in an order that all their columns decide."""
    ordered = [
        one.name for one in rows.schema if not _UNORDERED.search(one.dataType.simpleString())
    ]
    partition = Window.partitionBy(*window.partitions).orderBy(
        window.row, *(quoted(name) for name in ordered)
    )
    return rows.withColumn(window.row, sf.row_number().over(partition).cast("long"))


def _reads(query: str, table: str) -> bool:
    return re.search(rf"\b{table}\b", query) is not None


#: How an error of Spark begins: its condition.
_CONDITION = re.compile(r"^\s*(?:\[[A-Z0-9_.]+\]\s*)+")
#: Where what Spark says ends: after it come a code and a text that the user has not written.
_END = re.compile(r"\s*SQLSTATE:|\s*== SQL|\n\n?JVM stacktrace|;\s*\n")
#: The name that PySpark gives to a DataFrame in a statement, in front of a column.
_ARGUMENT = re.compile(r"`?_pyspark_\w+`?\.")
#: What an error of Spark names.
_NAMED = re.compile(r"`([^`]+)`|'([^']+)'")


def _spark_error(
    error: PySparkException, statement: Statement, hint: str | None = None
) -> OutpaceError:
    """Return an error of Spark as one of Outpace; `hint` goes with a name that it does not know."""
    kind: type[OutpaceError] = DataError
    if isinstance(error, ParseException):
        kind = PatternSyntaxError
    elif isinstance(error, AnalysisException):
        kind = BindError
    message = _ARGUMENT.sub("", _END.split(_CONDITION.sub("", error.getMessage()))[0])
    return database_error(
        kind,
        statement,
        database="Spark",
        message=message.strip().replace(". ", ".\n", 1),
        names=_NAMED,
        hint=hint if kind is BindError else None,
    )
