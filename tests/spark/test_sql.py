"""Statements on Spark give what they give in process; `test_connect.py` asks Connect the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from support.statements import DIP, ERRORS, PARITY, WINDOW, answer, public_cases, ticks

import outpace as op


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the view `ticks`."""
    spark.createDataFrame(ticks()).createOrReplaceTempView("ticks")
    yield spark
    spark.catalog.dropTempView("ticks")


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.register("ticks", ticks())
        yield opened


@pytest.mark.parametrize("case", public_cases(sampled=True))
def test_public_case_on_classic(
    spark: SparkSession, connection: duckdb.DuckDBPyConnection, case: dict[str, Any]
) -> None:
    if "error" in case:
        with pytest.raises(PySparkException) as caught:
            op.sql(spark, case["sql"], dialect="trino").collect()
        for kind, message in case["error"]:
            if kind.startswith("hasMessage"):
                assert message.lower() in str(caught.value).lower()
        return
    found = op.sql(spark, case["sql"], dialect="trino").toArrow()
    assert answer(found) == answer(op.sql(connection, case["sql"], dialect="trino"))


@pytest.mark.parametrize("case", public_cases(WINDOW, sampled=True))
def test_public_case_of_windows(
    spark: SparkSession, connection: duckdb.DuckDBPyConnection, case: dict[str, Any]
) -> None:
    found = op.sql(spark, case["sql"], dialect="trino").toArrow()
    assert answer(found) == answer(op.sql(connection, case["sql"], dialect="trino"))


def test_a_row_pattern_in_a_window_over_a_stream_is_refused(spark: SparkSession) -> None:
    spark.readStream.format("rate").load().createOrReplaceTempView("rates")
    text = """SELECT value, count(*) OVER w FROM rates WINDOW w AS (ORDER BY value
        ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING PATTERN (A B))"""
    with pytest.raises(op.UnsupportedError, match="window does not go with a stream"):
        op.sql(spark, text)
    spark.catalog.dropTempView("rates")


@pytest.mark.parametrize("name", PARITY)
def test_parity_of_classic(
    session: SparkSession, connection: duckdb.DuckDBPyConnection, name: str
) -> None:
    expected = op.sql(connection, PARITY[name])
    assert expected.num_rows
    found = op.sql(session, PARITY[name]).toArrow()
    assert found.column_names == expected.column_names
    assert answer(found) == answer(expected)


def test_nothing_stays_in_the_catalog_and_the_result_can_be_used_again(
    session: SparkSession, connection: duckdb.DuckDBPyConnection
) -> None:
    before = {table.name for table in session.catalog.listTables()}
    found = op.sql(session, f"SELECT symbol, low FROM ticks {DIP} m")
    assert {table.name for table in session.catalog.listTables()} == before
    expected = op.sql(connection, f"SELECT symbol, low FROM ticks {DIP} m")
    assert found.count() == expected.num_rows
    assert answer(found.toArrow()) == answer(expected)


def test_nothing_is_matched_before_the_result_is_used(session: SparkSession) -> None:
    text = """SELECT * FROM (SELECT id, raise_error('ran') AS kind FROM range(3)) MATCH_RECOGNIZE (
        ORDER BY id MEASURES LAST(kind) AS kind PATTERN (A+))"""
    found = op.sql(session, text)
    assert found.columns == ["kind"]
    with pytest.raises(PySparkException, match="ran"):
        found.collect()


def test_own_dialect_is_sparks(session: SparkSession) -> None:
    text = r"""SELECT `n` FROM ticks MATCH_RECOGNIZE (
        ORDER BY `ts` MEASURES COUNT(*) AS n, 'it\'s' AS s PATTERN (A+) DEFINE A AS symbol <> "z")
        WHERE "(" <> ')' AND s = 'it\'s'"""
    assert op.sql(session, text).collect()[0].n == ticks().num_rows


def test_a_statement_without_the_clause_is_sparks(session: SparkSession) -> None:
    assert op.sql(session, "FROM ticks SELECT '{x}' AS x LIMIT 1").collect()[0].x == "{x}"
    found = op.sql(session, "SELECT array_agg(x) AS l FROM (VALUES 7 / 2) t(x)", dialect="trino")
    assert found.collect()[0].l == [3]


@pytest.mark.parametrize(
    "text",
    [
        """SELECT * FROM (SELECT symbol AS "a.b", ts AS "c d", price AS "`" FROM ticks) t
        MATCH_RECOGNIZE (PARTITION BY "a.b" ORDER BY "c d"
            MEASURES LAST("`") AS "x.y", COUNT(*) AS n PATTERN (A B+)
            DEFINE B AS "`" < PREV("`")) m""",
        """SELECT * FROM (SELECT ts AS "t.s", price FROM ticks) t
        MATCH_RECOGNIZE (ORDER BY "t.s" MEASURES FIRST("t.s") AS "f.t" PATTERN (A -> B) WITHIN 9
            DEFINE A AS price > 70, B AS price < A.price) m""",
        """SELECT x FROM (VALUES (1, DECIMAL '1.25'), (2, DECIMAL '3')) t(id, v)
        MATCH_RECOGNIZE (ORDER BY id MEASURES SUM(v) + DECIMAL '0.125' AS x PATTERN (A+)) m""",
    ],
    ids=["names with dots", "time with a dot", "decimal literals"],
)
def test_parity_in_another_dialect(
    session: SparkSession, connection: duckdb.DuckDBPyConnection, text: str
) -> None:
    expected = op.sql(connection, text, dialect="trino")
    assert expected.num_rows
    found = op.sql(session, text, dialect="trino").toArrow()
    assert found.column_names == expected.column_names
    assert answer(found) == answer(expected)


@pytest.mark.parametrize(("text", "kind", "message", "place"), ERRORS)
def test_errors_show_the_place_in_the_statement(
    session: SparkSession, text: str, kind: type[op.OutpaceError], message: str, place: str
) -> None:
    with pytest.raises(kind) as caught:
        op.sql(session, text)
    error = caught.value
    assert message in error.message
    assert "pyspark" not in str(error)
    assert "__outpace" not in str(error)
    assert error.span is not None
    assert text[error.span.start : error.span.end] == place


def test_something_else_than_a_session_is_refused(session: SparkSession) -> None:
    for wrong in ("spark", session.table("ticks"), None):
        with pytest.raises(op.DataError, match="expected a Spark session or a DuckDB connection"):
            op.sql(wrong, "SELECT 1")  # type: ignore[call-overload]  # the point of the test
