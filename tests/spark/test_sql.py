"""Statements on Spark, classic and Connect, give what they give in process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from statements import DIP, PARITY, answer, public_cases, read_public_cases, ticks

import outpace as op

PROGRAM = Path(__file__).resolve().parents[1] / "connect_session.py"
#: Statements that are refused: the error, what it says, and what it underlines.
ERRORS = [
    (f"SELECT * FROM tiks {DIP} m", op.BindError, "Spark: the table or view", "tiks"),
    (f"SELECT lw FROM ticks {DIP} m", op.BindError, "Spark: a column", "lw"),
    (f"SELECT * FROM ticks {DIP} m HAVIN low", op.PatternSyntaxError, "Spark: syntax", "HAVIN"),
    (
        "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts PATTERN (A) DEFINE A AS pric > 1)",
        op.BindError,
        "unknown column 'pric'",
        "pric",
    ),
    (
        """SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts PATTERN (A)
        DEFINE A AS price > (SELECT ts FROM ticks))""",
        op.DataError,
        "more than one row",
        "(SELECT ts FROM ticks)",
    ),
    (
        """SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts PATTERN (A)
        DEFINE A AS price > (SELECT max(A.prize)))""",
        op.BindError,
        "Spark: a column",
        "prize",
    ),
    ("CREATE VIEW v AS SELECT * FROM ticks " + DIP, op.UnsupportedError, "view", "CREATE"),
]


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


@pytest.mark.parametrize("case", public_cases())
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


@pytest.mark.parametrize("name", PARITY)
def test_parity_of_classic(
    session: SparkSession, connection: duckdb.DuckDBPyConnection, name: str
) -> None:
    expected = op.sql(connection, PARITY[name])
    assert expected.num_rows
    found = op.sql(session, PARITY[name]).toArrow()
    assert found.column_names == expected.column_names
    assert answer(found) == answer(expected)


def test_parity_and_public_cases_on_connect(
    java: None, connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    cases = {case["id"]: case for case in read_public_cases()}
    questions = [(name, "outpace", text) for name, text in PARITY.items()]
    questions += [(name, "trino", case["sql"]) for name, case in cases.items()]
    refused = [(f"error {number}", "outpace", row[0]) for number, row in enumerate(ERRORS)]
    found = on_connect(questions + refused, tmp_path)
    for (name, _, _), (_, error, message, place) in zip(refused, ERRORS, strict=True):
        said = str(found[name].get("error"))
        assert said.startswith(f"{error.__name__}: "), said
        assert message in said
        assert "^" * len(place) in said
    for name, dialect, text in questions:
        if "error" in cases.get(name, {}):
            for kind, message in cases[name]["error"]:
                if kind.startswith("hasMessage"):
                    assert message.lower() in str(found[name]["error"]).lower(), name
            continue
        expected = op.sql(connection, text, dialect)
        assert "error" not in found[name], f"{name}: {found[name]}"
        assert found[name]["rows"] == answer(expected), name
        if name in PARITY:
            assert found[name]["columns"] == expected.column_names, name


def on_connect(questions: list[tuple[str, str, str]], folder: Path) -> dict[str, dict[str, Any]]:
    """Run statements in a process with a Connect session and return what each gives."""
    asked, answered = folder / "asked.json", folder / "answered.json"
    asked.write_text(json.dumps(questions), encoding="utf-8")
    # With SPARK_TESTING the server listens on a free port, so several can run at once.
    environment = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    environment |= {"SPARK_TESTING": "1", "PYSPARK_PYTHON": sys.executable}
    if "SPARK_HOME" in os.environ:
        environment["SPARK_HOME"] = os.environ["SPARK_HOME"]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(asked), str(answered)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(answered.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


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
            op.sql(wrong, "SELECT 1")  # type: ignore[call-overload]
