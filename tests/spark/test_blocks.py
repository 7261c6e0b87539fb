"""Keyed queries over Parquet files give what the same rows give in process, as packed blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import outpace as op
from outpace.engine.codec.pack import PACKED
from outpace.files import blocks
from outpace.files.parquet import list_files
from outpace.files.plan import plan_files
from outpace.hosts.spark.frame import map_blocks
from outpace.plan.division import RANGE_FACTOR, Cut

SIZE = 6000


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets and units as if there were many rows."""
    monkeypatch.setattr(blocks, "_SPREAD_ROWS", SIZE // 5)
    monkeypatch.setattr(blocks, "UNIT_ROWS", 900)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(3)
    names = [None, "ä", "b" * 20, *(f"key{number}" for number in range(20))]
    return pa.table(
        {
            # Not in order, and with ties: the order of the files decides between them.
            "ts": pa.array(rng.integers(0, SIZE // 2, SIZE)).cast(pa.timestamp("us", "UTC")),
            "id": pa.array(np.arange(SIZE)),
            "name": pa.array(rng.choice(np.array(names, object), SIZE), pa.string()),
            "part": pa.array([Decimal(int(n)) / 4 for n in rng.integers(0, 3, SIZE)]),
            "kind": pa.array(rng.choice(list("abcdef"), SIZE)),
            "v": pa.array(rng.random(SIZE), mask=rng.random(SIZE) < 0.1),
        }
    )


@pytest.fixture(scope="module")
def folder(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("events")
    for number in range(3):
        part = table.slice(number * SIZE // 3, SIZE // 3)
        pq.write_table(part, path / f"part-{number}.parquet", row_group_size=400 + number)
    return path


BASE = (
    op.Query("q")
    .order_by("ts")
    .define(A="kind = 'a'", B="kind = 'b'", C="kind = 'c' AND v > A.v")
    .measures(first="FIRST(id)", last="LAST(id)", n="COUNT(*)", mean="AVG(v)")
)

QUERIES = {
    "next": BASE.partition_by("name").pattern("A -> B -> C").within("1 ms"),
    "strict": BASE.partition_by("part").pattern("A B C").within("1 s"),
    "any": BASE.partition_by("name").pattern("A ->> B -> C").within("500 us").no_skip(),
    "numbered": BASE.partition_by("name", "part")
    .pattern("A -> B+ -> C")
    .measures(number="MATCH_NUMBER()", before="PREV(A.id)"),
    "rows": BASE.partition_by("part").pattern("A B C").all_rows_per_match(unmatched=True),
}


def rows(table: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


@pytest.mark.parametrize("name", QUERIES)
def test_blocks_give_what_in_process_gives(
    spark: SparkSession, table: pa.Table, folder: Path, name: str
) -> None:
    query = QUERIES[name]
    expected = op.match(table, query)
    assert expected.num_rows > 5
    found = op.match(op.parquet(folder), query)
    assert found.columns == expected.column_names
    assert rows(found.toArrow()) == rows(expected)


@pytest.mark.parametrize("name", ["next", "any"])
def test_a_key_with_many_rows_is_cut_by_time(
    spark: SparkSession,
    table: pa.Table,
    folder: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocks, "BUCKET_ROWS", SIZE // 4)
    query = QUERIES[name].partition_by("part").within("30 us")
    files = list_files(op.parquet(folder))
    plan = plan_files(files, query)
    assert plan.division.width == 30 * RANGE_FACTOR
    assert "as well; one key has about 2," in "\n".join(plan.lines())
    even = plan_files(files, query.partition_by("name"))
    assert even.division.cut is Cut.KEY
    assert "not by time range: no key has too many rows" in "\n".join(even.lines())
    expected = op.match(table, query)
    assert expected.num_rows > 5
    found = op.match(op.parquet(folder), query)
    # Only the classic class has `_jdf`.
    executed = found._jdf.queryExecution().executedPlan().toString()  # type: ignore[union-attr]
    assert "hashpartitioning(bucket" in executed
    assert rows(found.toArrow()) == rows(expected)


def test_only_blocks_are_shuffled(spark: SparkSession, folder: Path) -> None:
    found = op.match(op.parquet(folder), QUERIES["next"])
    # Only the classic class has `_jdf`.
    plan = found._jdf.queryExecution().executedPlan().toString()  # type: ignore[union-attr]
    assert plan.count("Exchange ") == 1
    assert "Sort" not in plan
    exchange = next(line for line in plan.splitlines() if "Exchange " in line)
    assert "bucket" in exchange
    assert found.rdd.getNumPartitions() == 5


def test_empty_files_have_no_matches(spark: SparkSession, table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table.slice(0, 0), tmp_path / "none.parquet")
    found = op.match(op.parquet(tmp_path), QUERIES["next"]).toArrow()
    assert found.num_rows == 0
    assert found.column_names == op.match(table, QUERIES["next"]).column_names


def test_large_blocks_come_few_at_a_time(spark: SparkSession) -> None:
    sizes = [50_000] * 8 + [0, 10, 20_000] * 3
    rows = [(number, 0, number, bytes([number % 256]) * size) for number, size in enumerate(sizes)]
    packed = spark.createDataFrame(
        rows, "bucket int not null, range long not null, position long not null, block binary"
    )
    limits = {"maxRecordsPerBatch": "16", "maxBytesPerBatch": "2147483647"}
    for name, limit in limits.items():
        spark.conf.set(f"spark.sql.execution.arrow.{name}", limit)
    try:
        found = map_blocks(packed.repartition(1), _sizes, PACKED, _SIZES).toArrow().to_pylist()
    finally:
        for name in limits:
            spark.conf.unset(f"spark.sql.execution.arrow.{name}")
    assert sorted((row["position"], row["size"]) for row in found) == list(enumerate(sizes))
    assert {row["filled"] for row in found} == {True}
    # 16 rows of 8 KiB, and the block that was begun.
    assert max(row["at_once"] for row in found) <= 16 * 8192 + 50_000


_SIZES = pa.schema(
    [
        ("position", pa.int64()),
        ("size", pa.int64()),
        ("filled", pa.bool_()),
        ("at_once", pa.int64()),
    ]
)


def _sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        cells = batch.column("block").to_pylist()
        yield pa.RecordBatch.from_pylist(
            [
                {
                    "position": position,
                    "size": len(cell),
                    "filled": cell == bytes([position % 256]) * len(cell),
                    "at_once": sum(map(len, cells)),
                }
                for position, cell in zip(batch.column("position").to_pylist(), cells, strict=True)
            ],
            _SIZES,
        )
