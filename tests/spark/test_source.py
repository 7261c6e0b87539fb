"""The data source `outpace.matches` gives what the same rows give in process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrameReader, SparkSession

import outpace as op
from outpace.files import blocks
from outpace.hosts.spark.source import MatchesReader, matches_schema, read_options

SIZE = 3000

TEXT = """
    {partition} ORDER BY ts
    MEASURES FIRST(ts) AS first, LAST(ts) AS last, COUNT(*) AS n
    PATTERN (A B+ C)
    {within}
    DEFINE A AS kind = 'a', B AS kind = 'b', C AS kind = 'c'
"""
UNKEYED = TEXT.format(partition="", within="WITHIN 20")
UNCUT = TEXT.format(partition="", within="")
KEYED = TEXT.format(partition="PARTITION BY key", within="")


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(9)
    return pa.table(
        {
            "ts": pa.array(np.arange(SIZE)),
            "kind": pa.array(rng.choice(list("abc"), SIZE)),
            "key": pa.array(rng.choice(["x", "y", None], SIZE).tolist()),
        }
    )


@pytest.fixture(scope="module")
def folder(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("events")
    pq.write_table(table.slice(0, 2000), path / "1.parquet", row_group_size=700)
    pq.write_table(table.slice(2000), path / "2.parquet", row_group_size=300)
    return path


def reading(spark: SparkSession, text: str) -> DataFrameReader:
    return spark.read.format("outpace.matches").option("query", text)


def rows(table: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


@pytest.mark.parametrize("text", [UNKEYED, UNCUT, KEYED], ids=["unkeyed", "uncut", "keyed"])
def test_the_source_gives_what_in_process_gives(
    spark: SparkSession, table: pa.Table, folder: Path, text: str
) -> None:
    expected = op.match(table, op.Query.from_sql(text))
    assert expected.num_rows > 20
    found = reading(spark, text).load(str(folder))
    assert found.columns == expected.column_names
    assert rows(found.toArrow()) == rows(expected)


def test_the_source_serves_sql_and_several_paths(
    spark: SparkSession, table: pa.Table, folder: Path
) -> None:
    paths = [str(folder / "1.parquet"), str(folder / "2.parquet")]
    reading(spark, KEYED).load(paths).createOrReplaceTempView("found")
    counted = spark.sql("SELECT key, count(*) AS n FROM found WHERE n > 3 GROUP BY key").collect()
    expected = op.match(table, op.Query.from_sql(KEYED)).to_pylist()
    for row in counted:
        assert row.n == sum(1 for found in expected if found["key"] == row.key and found["n"] > 3)
    assert {row.key for row in counted} == {"x", "y", None}
    quoted = UNKEYED.replace("'", "\\'")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW found USING outpace.matches "
        f"OPTIONS (path '{folder}', query '{quoted}')"
    )
    expected_rows = rows(op.match(table, op.Query.from_sql(UNKEYED)))
    assert rows(spark.table("found").toArrow()) == expected_rows
    spark.catalog.dropTempView("found")


def test_a_declared_order_is_measured(table: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(table, path, row_group_size=500, write_statistics=["kind"])
    options = {"path": str(path), "query": UNKEYED}
    schema = matches_schema(options)
    with pytest.raises(op.DataError, match=r"cannot sort(.|\n)*has no statistics of ts"):
        MatchesReader(options, schema)
    reader = MatchesReader({**options, "ordered": "true"}, schema)
    found = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert rows(pa.Table.from_batches(found)) == rows(op.match(table, op.Query.from_sql(UNKEYED)))
    moved = table.take(np.roll(np.arange(SIZE), 700))
    pq.write_table(moved, path, row_group_size=500, write_statistics=["kind"])
    with pytest.raises(op.DataError, match=r"cannot sort(.|\n)*overlap in ts"):
        MatchesReader({**options, "ordered": "true"}, schema)


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        (UNKEYED.replace("DEFINE", "OVER COUNT (40 SLIDE 15) DEFINE"), 1),
        (UNKEYED.replace("DEFINE", "OVER TIME (50) NUMBERED DEFINE"), 1),
        (UNKEYED.replace("DEFINE", "OVER LANDMARK (kind = 'a') DEFINE"), 1),
        (KEYED.replace("DEFINE", "OVER COUNT (9) DEFINE"), 2),
        (KEYED.replace("DEFINE", "OVER COUNT (9) NUMBERED DEFINE"), 1),
        (KEYED.replace("DEFINE", "OVER TIME (50) DEFINE"), 1),
    ],
    ids=["count", "time, numbered", "landmark", "keyed count", "keyed, numbered", "keyed time"],
)
def test_windows_are_those_of_in_process(
    table: pa.Table, folder: Path, text: str, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_SPREAD_ROWS", SIZE // 2)
    options = {"path": str(folder), "query": text}
    reader = MatchesReader(options, matches_schema(options))
    parts = reader.partitions()
    assert len(parts) == tasks
    found = pa.Table.from_batches([batch for part in parts for batch in reader.read(part)])
    expected = op.match(table, op.Query.from_sql(text))
    assert expected.num_rows > 20
    assert rows(found) == rows(expected.cast(found.schema))


def test_errors_reach_the_user(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(AnalysisException, match="needs the option 'query'"):
        spark.read.format("outpace.matches").load(str(folder))
    descending = UNKEYED.replace("ORDER BY ts", "ORDER BY ts DESC").replace("WITHIN 20", "")
    with pytest.raises(Exception, match="a data source cannot sort"):
        reading(spark, descending).load(str(folder)).collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs the option 'query'"),
        ({"query": " "}, "needs the option 'query'"),
        ({"query": UNKEYED}, "needs a path"),
        ({"query": UNKEYED, "path": "x", "dialct": "trino"}, "no option 'dialct'"),
        ({"query": UNKEYED, "path": "x", "dialect": "trinno"}, "no dialect 'trinno'"),
        ({"query": UNKEYED, "path": "x", "ordered": "maybe"}, "true or false, not 'maybe'"),
        ({"query": "PATTERN (A", "path": "x"}, "option query"),
        ({"query": UNKEYED, "paths": "["}, "the option 'paths' is no list in JSON"),
        ({"query": UNKEYED, "paths": '"a"'}, "the option 'paths' is no list in JSON"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(op.OutpaceError, match=message):
        read_options(options)
