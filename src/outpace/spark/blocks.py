"""Matching a keyed query over Parquet files: rows travel as blocks, one cell for thousands.

Tasks read row groups with PyArrow and pack them by key bucket; Spark brings the blocks of a bucket
to one partition; a task there puts them together and matches. No row crosses to the JVM on its own
and Spark sorts nothing. A packing task holds one unit of row groups (`plan.blocks.UNIT_ROWS`), a
matching task one bucket (`BUCKET_ROWS`, more where one key has more) and its matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from outpace.engine.match.bits import with_bits
from outpace.engine.match.operator import prepare
from outpace.engine.pack import PACKED, BlockMatcher, Packer
from outpace.pattern.query import Query
from outpace.plan.blocks import plan_blocks
from outpace.plan.files import FileList

Batches = Iterable[pa.RecordBatch]

#: Matches go back to Spark in batches of this many rows.
_BATCH_ROWS: Final = 65_536


def match_blocks(session: SparkSession, files: FileList, query: Query) -> DataFrame:
    """Find the matches of a keyed query in files; nothing is read before the result is used."""
    plan = plan_blocks(files, query)
    units = session.range(0, len(plan.units))
    needed = files.only(plan.reads)
    packed = units.mapInArrow(
        partial(_pack, needed, query, plan.units, plan.buckets), from_arrow_schema(PACKED)
    )
    placed = packed.repartitionById(plan.buckets, "bucket")
    match = partial(_match, files.schema, query)
    return placed.mapInArrow(match, from_arrow_schema(plan.bound.output))


def _pack(
    files: FileList,
    query: Query,
    units: tuple[tuple[int, int], ...],
    buckets: int,
    batches: Batches,
) -> Iterator[pa.RecordBatch]:
    packer = Packer(with_bits(prepare(query, files.schema)), buckets)
    for batch in batches:
        for unit in batch.column(0).to_pylist():
            first, stop = units[unit]
            groups = [files.read(group, packer.reads) for group in files.groups[first:stop]]
            yield packer.pack(pa.concat_tables(groups), unit)


def _match(schema: pa.Schema, query: Query, batches: Batches) -> Iterator[pa.RecordBatch]:
    blocks = [
        (position.as_py(), block.as_buffer())
        for batch in batches
        for position, block in zip(batch.column(1), batch.column(2), strict=True)
    ]
    if blocks:
        found = BlockMatcher(with_bits(prepare(query, schema))).match(blocks)
        yield from found.to_batches(_BATCH_ROWS)
