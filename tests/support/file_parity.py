"""Queries over Parquet files that every host must answer alike: in process, classic and Connect."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import outpace as op
from outpace.files import blocks

SIZE = 1200

CHAIN = (
    op.Query("chain")
    .order_by("ts")
    .pattern("A -> B -> C")
    .define(A="kind = 'a'", B="kind = 'b'", C="kind = 'c' AND v > A.v")
    .measures(first="FIRST(ts)", last="LAST(ts)", n="COUNT(*)")
    .within(20)
)
STRICT = CHAIN.pattern("A B+ C").within(9).skip_to_last("B")
PAIRS = (
    op.Query("pairs")
    .order_by("first")
    .pattern("SHORT -> LONG")
    .define(SHORT="last - first < 10", LONG="last - first > 11")
    .measures(first="SHORT.first", last="LONG.last", n="COUNT(*)")
    .within(40)
)

#: By name: the folder of the files, the query, and what its plan says.
QUERIES = {
    "by range": ("ordered", CHAIN, "divided by time range: at most 6 tasks"),
    "strict by range": ("ordered", STRICT, "order: statistics of ts"),
    "one task": ("ordered", CHAIN.limit(9), "in order\n  divided not at all: there is a limit"),
    "sorted by Spark": ("mixed", CHAIN, "a DataFrame, which Spark sorts"),
    "declared": ("bare", CHAIN, "order: statistics of ts\n  each task reads"),
    "by key": ("mixed", CHAIN.partition_by("many").within(90), "divided by key: many; 4 buckets"),
    "large key": ("mixed", CHAIN.partition_by("few"), "divided by key and time range: few"),
}


def events() -> pa.Table:
    """Rows in order, without equal times."""
    numbers = np.random.default_rng(11)
    return pa.table(
        {
            "ts": np.cumsum(numbers.integers(1, 3, SIZE)),
            "kind": numbers.choice(list("abcd"), SIZE),
            "few": numbers.choice(["x", "y"], SIZE),
            "many": numbers.integers(0, 200, SIZE) % 17,
            "v": numbers.random(SIZE),
        }
    )


def write_files(folder: Path) -> None:
    """Write the same rows in order, in any order, and in order without saying so."""
    table = events()
    (folder / "ordered").mkdir()
    for number in range(2):
        part = table.slice(number * SIZE // 2, SIZE // 2)
        pq.write_table(part, folder / "ordered" / f"{number}.parquet", row_group_size=200)
    mixed = table.take(np.random.default_rng(12).permutation(SIZE))
    (folder / "mixed").mkdir()
    pq.write_table(mixed, folder / "mixed" / "0.parquet", row_group_size=200)
    (folder / "bare").mkdir()
    pq.write_table(
        table, folder / "bare" / "0.parquet", row_group_size=200, write_statistics=["kind"]
    )


def from_files(session: SparkSession, folder: Path) -> dict[str, list[list[int]]]:
    """Return what a session finds in the files, each way that there is, in one job."""
    frames = {}
    with pytest.MonkeyPatch.context() as patch:
        # As if there were many rows: each row group is read on its own, and one key is large.
        patch.setattr(blocks, "UNIT_ROWS", 200)
        patch.setattr(blocks, "BUCKET_ROWS", SIZE // 3)
        patch.setattr(blocks, "_SPREAD_ROWS", SIZE // 4)
        for name, (kind, query, said) in QUERIES.items():
            files = op.parquet(folder / kind, ordered=kind == "bare")
            text = op.explain(query, files).text
            assert said in text, f"{name}: {text}"
            frames[name] = op.match(files, query)
        files = op.parquet(f"file://{folder}/ordered/*.parquet")
        frames["matches of matches"] = op.match(op.match(files, CHAIN), PAIRS)
    rows = session.read.parquet(str(folder / "mixed"))
    frames["rows"] = rows.transform(op.match, CHAIN)
    source = session.read.format("outpace.matches").option("query", CHAIN.to_sql())
    frames["data source"] = source.load(str(folder / "ordered"))
    labelled = [
        frame.select(sf.lit(name).alias("name"), "first", "last", "n")
        for name, frame in frames.items()
    ]
    found: dict[str, list[list[int]]] = {name: [] for name in frames}
    for name, *match in reduce(DataFrame.union, labelled).collect():
        found[name].append(match)
    return {name: sorted(matches) for name, matches in found.items()}


def in_process() -> dict[str, list[list[int]]]:
    """Return what is found in one table."""
    table = events()
    found = {name: op.match(table, query) for name, (_, query, _) in QUERIES.items()}
    found["matches of matches"] = op.match(op.match(table, CHAIN), PAIRS)
    found["rows"] = found["data source"] = op.match(table, CHAIN)
    return {
        name: sorted([row["first"], row["last"], row["n"]] for row in matches.to_pylist())
        for name, matches in found.items()
    }
