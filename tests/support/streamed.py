"""Streams for tests: tables that come one after the other as micro-batches of Spark."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

import outpace as op
from outpace.pattern.query import Query

Rows = list[dict[str, Any]]

#: The setting that names the state store.
PROVIDER = "spark.sql.streaming.stateStore.providerClass"

#: An event of a key of its own that fits no variable, so late that it decides all that time can.
END = 1_000_000


def kinds(text: str) -> Query:
    """A query whose variables are kinds of events."""
    names = [name for name in "ABCD" if name in text]
    query = op.Query("q").order_by("ts").pattern(text)
    query = query.define({name: f"kind = '{name.lower()}'" for name in names})
    return query.measures(first="FIRST(id)", last="LAST(id)", n="COUNT(*)")


#: What comes out of a stream that has passed its last deadline is all that the table has.
QUERIES: dict[str, Query] = {
    "keyed": kinds("A -> B -> C").partition_by("key").within(40).measures(at="LAST(ts)"),
    "keyed, strict, compares": (
        op.Query("q")
        .partition_by("key")
        .order_by("ts")
        .pattern("UP{2,}")
        .within(60)
        .define(UP="v > PREV(v)")
        .measures(first="FIRST(id)", last="LAST(id)")
    ),
    "no key, absence": kinds("A -> !B").within(7).no_skip(),
    # Without measures: what every match has.
    "no key, all": replace(kinds("A ->> B").within(9), outputs=()),
    "rows": kinds("A -> B").within(12).measures(c="CLASSIFIER()").all_rows_per_match(),
    "time windows": kinds("A -> B").over(op.windows.time(30, slide=10)),
    "keyed session windows": kinds("A -> B").partition_by("key").over(op.windows.session(6)),
    "three stages": kinds("A -> C").over(op.windows.time(24, slide=8)).instances(2),
    "uncertain order": (
        kinds("A -> C? -> !D -> B")
        .partition_by("key")
        .within(40)
        .no_skip()
        .select("all")
        .uncertain(3)
    ),
    "windows with a drift": (
        kinds("A -> B").partition_by("key").limit(1).over(op.windows.time(30), drift=8)
    ),
    "uncertain order, windows": (
        kinds("A -> B | C").no_skip().select("all").over(op.windows.time(30), duplicates=True)
    ).uncertain(3),
    "three stages, numbered keys": (
        kinds("A -> B").partition_by("key").over(op.windows.time(30, slide=15), numbered=True)
    ),
}


#: A query over the matches of the keyed one: none follows for so long.
CHAINED = (
    op.Query("chained")
    .partition_by("key")
    .order_by("at")
    .pattern("P -> !Q")
    .within(15)
    .measures(since="P.at")
    .no_skip()
)


def events(size: int, seed: int, *, keys: int = 4) -> pa.Table:
    """Events in order, with a last one that lets all deadlines pass."""
    rng = np.random.default_rng(seed)
    times = np.append(np.sort(rng.integers(0, 3 * size, size)), END)
    return pa.table(
        {
            "id": np.arange(size + 1),
            "ts": times,
            "key": [*(f"k{n}" for n in rng.integers(0, keys, size)), "end"],
            "kind": [*np.array(list("abcd"))[rng.integers(0, 4, size)].tolist(), "end"],
            "v": rng.integers(0, 20, size + 1),
        }
    )


def pieces(table: pa.Table, count: int, seed: int) -> list[pa.Table]:
    """Cut a table; its last row comes last, alone."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.integers(0, table.num_rows - 1, count - 1)).tolist()
    bounds = [0, *cuts, table.num_rows - 1, table.num_rows]
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    return [part for part in parts if part.num_rows]


def write_pieces(parts: Iterable[pa.Table], folder: Path, begin: int = 0) -> None:
    """Write tables as files that Spark takes in this order."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts, begin):
        path = folder / f"{number:04}.parquet"
        pq.write_table(part, path)
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def read_pieces(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the files of a folder as a stream, one in each batch."""
    schema = spark.read.parquet(str(folder)).schema
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return files.parquet(str(folder))


def run(frame: DataFrame, folder: Path) -> StreamingQuery:
    """Run a stream over all that there is, with its checkpoint and its output in a folder."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def rows_of(spark: SparkSession, folder: Path) -> Rows:
    """Return what `run` has written."""
    return [row.asDict(recursive=True) for row in spark.read.parquet(str(folder / "out")).collect()]


def rows_by_batch(folder: Path) -> list[Rows]:
    """Return what each batch of `run` has written, as Spark's file sink notes it."""
    notes = folder / "out" / "_spark_metadata"
    found: list[Rows] = []
    for number in range(len(list(notes.glob("[0-9]*")))):
        version, *files = (notes / str(number)).read_text("utf-8").splitlines()
        assert version == "v1"
        paths = [json.loads(file)["path"].removeprefix("file://") for file in files]
        found.append([row for path in paths for row in pq.read_table(path).to_pylist()])
    return found


def together(frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return the rows of several streams as one, each as JSON with the name of its stream."""
    named = [
        frame.select(sf.lit(name).alias("name"), sf.to_json(sf.struct("*")).alias("row"))
        for name, frame in frames.items()
    ]
    return reduce(DataFrame.union, named)


def apart(rows: Rows, names: Iterable[str]) -> dict[str, Rows]:
    """Return the rows of each stream."""
    found: dict[str, Rows] = {name: [] for name in names}
    for row in rows:
        found[row["name"]].append(json.loads(row["row"]))
    return found


def ordered(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return rows in an order of their own, without NULLs, which JSON leaves out."""
    plain = ({k: v for k, v in row.items() if v is not None} for row in rows)
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in plain)
