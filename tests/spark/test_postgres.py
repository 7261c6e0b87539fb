"""The sink into PostgreSQL, with a real server: every value arrives, and every batch once."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import math
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from psycopg import sql
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from support.properties import examples

import outpace as op
from outpace.hosts.spark import postgres as sink

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "postgres" / "dips_to_postgres.py"
PROGRAM = Path(__file__).resolve().parents[1] / "support" / "connect_postgres.py"
COUNTER = itertools.count()


@pytest.fixture
def table() -> str:
    """The name of a table that no other test has."""
    return f"Matches {next(COUNTER)}"


@pytest.fixture
def database(postgres: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        yield connection


def rows(database: psycopg.Connection, table: str) -> list[tuple[object, ...]]:
    return database.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))).fetchall()


def numbers(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end, 1, 2).withColumnRenamed("id", "number")


def test_a_batch_that_runs_again_is_written_once(
    spark: SparkSession, postgres: str, database: psycopg.Connection, table: str
) -> None:
    write = op.spark.postgres.writer(postgres, f'"{table}"', stream="s")
    write(numbers(spark, 0, 5), 0)
    write(numbers(spark, 0, 5), 0)
    write(numbers(spark, 5, 5), 1)
    write(numbers(spark, 5, 7), 2)
    write(numbers(spark, 5, 7), 2)
    assert sorted(rows(database, table)) == [(number,) for number in range(7)]


def test_streams_into_one_table_are_told_apart(
    spark: SparkSession, postgres: str, database: psycopg.Connection, table: str
) -> None:
    for stream in ("first", "second"):
        op.spark.postgres.writer(postgres, f'"{table}"', stream=stream)(numbers(spark, 0, 2), 0)
    assert sorted(rows(database, table)) == [(0,), (0,), (1,), (1,)]


@pytest.mark.parametrize("batch", [3, 6])
def test_a_batch_of_another_checkpoint_is_refused(
    spark: SparkSession, postgres: str, database: psycopg.Connection, table: str, batch: int
) -> None:
    write = op.spark.postgres.writer(postgres, f'"{table}"', stream="s")
    write(numbers(spark, 0, 1), 4)
    with pytest.raises(op.StateError, match=rf"batch {batch} cannot be written after batch 4"):
        write(numbers(spark, 1, 2), batch)
    assert rows(database, table) == [(0,)]


def test_rows_that_lost_tasks_left_behind_are_not_moved(
    spark: SparkSession, postgres: str, database: psycopg.Connection, table: str
) -> None:
    write = op.spark.postgres.writer(postgres, f'"{table}"', stream="s")
    write(numbers(spark, 0, 1), 0)
    staging = sql.Identifier(*sink._TargetTable((table,), "s").staging)
    left = sql.SQL("INSERT INTO {} VALUES (gen_random_uuid(), 99)").format(staging)
    database.execute(left)
    write(numbers(spark, 1, 2), 1)
    assert sorted(rows(database, table)) == [(0,), (1,)]
    assert not database.execute(sql.SQL("SELECT * FROM {}").format(staging)).fetchall()


def test_staged_rows_that_are_gone_fail_the_batch(
    spark: SparkSession, postgres: str, database: psycopg.Connection, table: str
) -> None:
    """A crash of the server empties the staging table."""
    target = sink._TargetTable((table,), "s")
    write = op.spark.postgres.writer(postgres, f'"{table}"', stream="s")
    write(numbers(spark, 0, 1), 0)
    token = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(op.StateError, match="3 rows of batch 1 are not in the staging table"):
        sink._finish(database, target, ("number",), 1, {token: 3})
    write(numbers(spark, 1, 2), 1)
    assert sorted(rows(database, table)) == [(0,), (1,)]


def test_a_writer_that_is_late_waits_and_finds_the_batch_finished(
    spark: SparkSession,
    postgres: str,
    database: psycopg.Connection,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink, "_LOCK_SECONDS_MAX", 1)
    target = sink._TargetTable((table,), "s")
    write = op.spark.postgres.writer(postgres, f'"{table}"', stream="s")
    write(numbers(spark, 0, 1), 0)
    with database.transaction():
        sink._is_finished(database, target, 1, lock=True)
        with pytest.raises(op.StateError, match="another program writes the same stream"):
            write(numbers(spark, 1, 2), 1)
    write(numbers(spark, 1, 2), 1)
    assert sorted(rows(database, table)) == [(0,), (1,)]


VALUES = st.tuples(
    st.none() | st.booleans(),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.decimals(-(10**20), 10**20, places=5),
    st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    st.none() | st.binary(),
    st.none() | st.dates(),
    st.none()
    | st.datetimes(
        datetime.datetime(1900, 1, 2),
        datetime.datetime(2200, 1, 1),
        timezones=st.just(datetime.UTC),
    ),
    st.none() | st.datetimes(),
    st.none() | st.lists(st.integers(-9, 9), max_size=3),
)
SCHEMA = (
    "flag boolean, count bigint, price double, exact decimal(38, 5), name string, raw binary, "
    "day date, ts timestamp, local timestamp_ntz, parts array<int>"
)


# No shrinking: an example is a job of Spark.
@settings(examples(5), phases=[Phase.generate])
@given(st.lists(VALUES, min_size=20, max_size=100))
def test_every_value_arrives_unchanged(
    spark: SparkSession, postgres: str, values: list[tuple[object, ...]]
) -> None:
    name = f"values {next(COUNTER)}"
    frame = spark.createDataFrame(values, SCHEMA)
    op.spark.postgres.writer(postgres, f'"{name}"', stream="s")(frame, 0)
    with psycopg.connect(postgres) as connection:
        connection.execute("SET timezone TO 'UTC'")
        found = [tuple(_plain(value) for value in row) for row in rows(connection, name)]
    wanted = [tuple(_plain(value) for value in row) for row in values]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))


def _plain(value: object) -> object:
    """A time in Python's own zone, without what a clock set back means."""
    if isinstance(value, datetime.datetime):
        moment = value.replace(fold=0)
        return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC)
    return value


def test_numbers_that_are_none_and_small_types(
    spark: SparkSession, postgres: str, database: psycopg.Connection, table: str
) -> None:
    schema = "a tinyint, b smallint, c int, d float, e double, f struct<x: int, y: string>"
    frame = spark.createDataFrame(
        [(1, 2, 3, 0.5, math.nan, (7, "s")), (-1, -2, -3, math.inf, -math.inf, None)], schema
    )
    op.spark.postgres.writer(postgres, f'"{table}"', stream="s")(frame, 0)
    first, second = sorted(rows(database, table), key=str, reverse=True)
    assert str(first) == str((1, 2, 3, 0.5, math.nan, {"x": 7, "y": "s"}))
    assert second == (-1, -2, -3, math.inf, -math.inf, None)


def test_a_table_that_is_there_keeps_its_types_and_defaults(
    spark: SparkSession, postgres: str, database: psycopg.Connection, table: str
) -> None:
    made = "CREATE TABLE {} (note text DEFAULT 'new', number numeric(5, 1) PRIMARY KEY)"
    database.execute(sql.SQL(made).format(sql.Identifier(table)))
    op.spark.postgres.writer(postgres, f'"{table}"', stream="s")(numbers(spark, 7, 8), 0)
    assert rows(database, table) == [("new", decimal.Decimal("7.0"))]
    # A row that its key refuses stops the batch, and leaves nothing of it.
    write = op.spark.postgres.writer(postgres, f'"{table}"', stream="s")
    with pytest.raises(op.DataError, match="PostgreSQL does not take a row"):
        write(numbers(spark, 6, 8), 1)
    write(numbers(spark, 8, 9), 1)
    assert len(rows(database, table)) == 2


def test_a_column_may_be_added_between_two_batches(
    spark: SparkSession, postgres: str, database: psycopg.Connection, table: str
) -> None:
    write = op.spark.postgres.writer(postgres, f'"{table}"', stream="s")
    write(numbers(spark, 0, 1), 0)
    database.execute(sql.SQL("ALTER TABLE {} ADD COLUMN double int").format(sql.Identifier(table)))
    write(numbers(spark, 1, 2).selectExpr("number", "cast(2 * number as int) as double"), 1)
    assert sorted(rows(database, table), key=str) == [(0, None), (1, 2)]


def test_what_cannot_be_written_is_named(
    spark: SparkSession, postgres: str, database: psycopg.Connection, table: str
) -> None:
    write = op.spark.postgres.writer(postgres, f'"{table}"', stream="s")
    with pytest.raises(op.UnsupportedError, match="the column 'd' has a type that is not written"):
        write(spark.sql("SELECT INTERVAL '1' DAY AS d"), 0)
    write(numbers(spark, 0, 1), 0)
    with pytest.raises(op.DataError, match="has no column 'other'"):
        write(spark.sql("SELECT 1 AS other"), 1)
    with pytest.raises(Exception, match="invalid input syntax for type bigint") as refused:
        write(spark.sql("SELECT 'x' AS number"), 1)
    assert "[data] PostgreSQL does not take a row" in str(refused.value)
    # And the stream goes on once the cause is removed.
    write(numbers(spark, 1, 2), 1)
    assert sorted(rows(database, table)) == [(0,), (1,)]


def test_addresses_and_names_are_checked_at_once(postgres: str, spark: SparkSession) -> None:
    with pytest.raises(op.OutpaceError, match=r"(?s)PostgreSQL cannot be read.*write postgresql"):
        op.spark.postgres.writer("host", "dips")
    for name in ("", ".", "a.", "a b", "a.b.c", "dips; DROP TABLE x", '"a', 'a"b"'):
        with pytest.raises(op.OutpaceError, match="is not the name of a table"):
            op.spark.postgres.writer(postgres, name)
    write = op.spark.postgres.writer("host=/nowhere password=secret", "dips", stream="s")
    assert "secret" not in repr(write)
    with pytest.raises(op.OutpaceError, match="PostgreSQL did not do what") as refused:
        write(numbers(spark, 0, 1), 0)
    assert "secret" not in str(refused.value)
    with pytest.raises(op.UnsupportedError, match="the rows are not a batch of a stream"):
        op.spark.postgres.writer(postgres, "dips")(numbers(spark, 0, 1), 0)


def test_a_crash_after_the_transaction_neither_doubles_rows_nor_stops_the_state(
    spark: SparkSession, postgres: str, database: psycopg.Connection, table: str, tmp_path: Path
) -> None:
    """The batch is in PostgreSQL but not in the checkpoint: Spark runs it again."""
    write = op.spark.postgres.writer(postgres, f'"{table}"')
    (tmp_path / "in").mkdir()

    def run(crash: int | None) -> None:
        def both(frame: DataFrame, batch: int) -> None:
            write(frame, batch)
            if batch == crash:
                raise RuntimeError("killed here")

        stream = spark.readStream.schema("number bigint").json(str(tmp_path / "in"))
        query = (
            stream.dropDuplicates(["number"])
            .writeStream.foreachBatch(both)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def add(number: int, values: list[int]) -> None:
        lines = "".join(json.dumps({"number": value}) + "\n" for value in values)
        (tmp_path / "in" / f"{number}.json").write_text(lines, encoding="utf-8")

    add(0, [1, 2, 2])
    run(None)
    add(1, [2, 3])
    with pytest.raises(StreamingQueryException, match="killed here"):
        run(crash=1)
    run(None)
    add(2, [3, 4])
    run(None)
    assert sorted(rows(database, table)) == [(1,), (2,), (3,), (4,)]


@pytest.mark.soak
def test_the_example_goes_on_where_it_was(postgres: str, java: None, tmp_path: Path) -> None:
    said = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), postgres],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    ticks = op.log.read(tmp_path / "dips" / "trades.log")
    dip = runpy.run_path(str(EXAMPLE))["dip"]
    with psycopg.connect(postgres) as connection:
        connection.execute("SET timezone TO 'UTC'")
        found = connection.execute("SELECT symbol, starts, bottom FROM dips").fetchall()
    table = op.match(ticks, dip).select(["symbol", "starts", "bottom"]).to_pylist()
    wanted = {tuple(_plain(value) for value in row.values()) for row in table}
    there = [tuple(_plain(value) for value in row) for row in found]
    assert len(there) > 10
    # What is still open at the end is not final yet, so the table may have some more.
    assert set(there) <= wanted
    assert len(set(there)) == len(there)
    assert f"{len(found)} dips in {ticks.num_rows} trades" in said[1]


@pytest.mark.soak
def test_a_stream_on_connect_is_written_once(
    postgres: str, java: None, database: psycopg.Connection, tmp_path: Path, table: str
) -> None:
    for _ in range(2):
        subprocess.run(
            [sys.executable, str(PROGRAM), str(tmp_path), postgres, f'"{table}"'],
            cwd=tmp_path,
            check=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
    assert sorted(rows(database, table)) == [(1,), (2,), (3,), (4,)]
    assert "killed here" in (tmp_path / "checkpoint.said").read_text(encoding="utf-8")
    unnamed = (tmp_path / "unnamed.said").read_text(encoding="utf-8")
    assert "Spark Connect does not tell the function which query" in unnamed
