"""MATCH_ID() of batches on Spark is that of the table in process, however rows come to tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from _pytest.mark import ParameterSet
from pyspark.sql import SparkSession

import outpace as op
from outpace import windows
from outpace.pattern.query import Query

SIZE = 600


def events(*, ordered: bool) -> pa.Table:
    numbers = np.random.default_rng(3)
    times = np.arange(SIZE) if ordered else numbers.permutation(SIZE)
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()),
            "kind": pa.array(numbers.integers(0, 5, SIZE), pa.int64()),
            "key": pa.array(numbers.integers(0, 4, SIZE).astype(str)),
        }
    )


def pairs() -> Query:
    query = Query("pairs").order_by("ts").pattern("A -> B").define(A="kind = 0", B="kind = 1")
    return query.measures(id="MATCH_ID()", first="FIRST(ts)", last="LAST(ts)")


QUERIES = {
    "ranges": pairs().within(20),
    "every start, in ranges": pairs().within(20).no_skip(),
    "ranges by key": pairs().within(20).partition_by("key"),
    "by key": pairs().partition_by("key"),
    "one task": pairs(),
    "all rows": pairs().within(20).all_rows_per_match(),
    "windows of time": pairs().over(windows.time(30, slide=10)),
    "windows of time, by key, numbered": (
        pairs().partition_by("key").over(windows.time(30, slide=10), numbered=True)
    ),
    "windows of events": pairs().over(windows.count(30, slide=10)),
    "windows of events, by key": pairs().partition_by("key").over(windows.count(9, slide=3)),
    "windows between events": pairs().over(windows.between(open="kind = 2", close="kind = 3")),
}


def in_any_order(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.to_pylist())


def cases(*quick: str) -> list[ParameterSet]:
    """Return all queries, of which a few are tried in every run."""
    soak = pytest.mark.soak
    return [pytest.param(name, marks=() if name in quick else soak) for name in QUERIES]


@pytest.mark.parametrize("name", cases("ranges by key", "windows of time, by key, numbered"))
def test_a_dataframe_gives_the_ids_of_its_table(spark: SparkSession, name: str) -> None:
    query, table = QUERIES[name], events(ordered=False)
    frame = spark.createDataFrame(table.to_pandas()).repartition(5)
    # Spark fixes no order of rows that were shuffled, but what is cached has one.
    frame = frame.cache()
    try:
        expected = op.match(frame.toArrow(), query)
        assert in_any_order(op.match(frame, query).toArrow()) == in_any_order(expected)
        assert len(set(expected["id"].to_pylist())) > 9
    finally:
        frame.unpersist()


@pytest.mark.parametrize("name", cases("all rows", "by key"))
def test_files_in_order_give_the_ids_of_their_table(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    files_give_the_ids_of_their_table(tmp_path, name, ordered=True)


@pytest.mark.parametrize("name", cases("ranges"))
def test_files_in_any_order_give_the_ids_of_their_table(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    files_give_the_ids_of_their_table(tmp_path, name, ordered=False)


def files_give_the_ids_of_their_table(tmp_path: Path, name: str, *, ordered: bool) -> None:
    query, table = QUERIES[name], events(ordered=ordered)
    for number, low in enumerate(range(0, SIZE, 250)):
        pq.write_table(table.slice(low, 250), tmp_path / f"{number}.parquet", row_group_size=70)
    found = op.match(op.parquet(tmp_path), query).toArrow()
    assert in_any_order(found) == in_any_order(op.match(table, query))


def test_places_that_are_not_known_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """The DataFrame has a row more each time that it is read."""
    reads = tmp_path / "reads"

    def grow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            with reads.open("a") as file:
                file.write("x")
            yield pa.record_batch({"id": np.arange(reads.stat().st_size)})

    frame = spark.range(0, 1, 1, 1).mapInArrow(grow, "id long")
    query = Query("q").order_by("id").pattern("A B").measures(mine="MATCH_ID()")
    with pytest.raises(Exception, match="MATCH_ID\\(\\) does not know their places"):
        op.match(frame, query).toArrow()


def test_the_plan_says_what_ids_cost(spark: SparkSession) -> None:
    query = Query("q").order_by("id").pattern("A B").measures(mine="MATCH_ID()")
    shown = op.explain(query, spark.range(9))
    assert "match ids: another pass counts the rows of each partition" in str(shown)
    assert "columns that cross to Python: id, and the places of rows" in str(shown)
