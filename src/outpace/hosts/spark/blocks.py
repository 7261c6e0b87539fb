"""Matching a keyed query over Parquet files: rows travel as blocks, one cell for thousands.

Tasks read row groups with PyArrow and pack them by key bucket; Spark brings the blocks of a bucket
to one partition; a task there puts them together and matches. No row crosses to the JVM on its own
and Spark sorts no rows. Where one key has too many rows for a task, blocks are cut by time range as
well, as those of a DataFrame are.

Memory: a packing task holds one unit of row groups (`plan.blocks.UNIT_ROWS`) twice, a matching task
one bucket (`BUCKET_ROWS`) or one range, in blocks and in order, and its matches. A key that cannot
be cut is held whole by one task, whatever its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from outpace.engine.codec.pack import PACKED, BlockMatcher, Packer
from outpace.engine.divide.ranges import PACKED as PACKED_RANGES
from outpace.engine.divide.ranges import Ranges, pack_ranges
from outpace.engine.match.bits import with_bits
from outpace.engine.match.task import prepare
from outpace.files.blocks import plan_blocks
from outpace.files.parquet import FileList
from outpace.hosts.spark.frame import BATCH_ROWS, match_packed
from outpace.pattern.query import Query
from outpace.plan.batch import plan_batch

Batches = Iterable[pa.RecordBatch]


def match_blocks(session: SparkSession, files: FileList, query: Query) -> DataFrame:
    """Find the matches of a keyed query in files; at most a sample of keys is read now."""
    plan = plan_blocks(files, query)
    units = session.range(0, len(plan.units))
    needed = files.only(())
    if plan.width:
        cut = partial(_ranges, query, files.schema, plan.width)
        pack = partial(_pack_ranges, needed, query, plan.units, cut)
        ranges = units.mapInArrow(pack, from_arrow_schema(PACKED_RANGES))
        return match_packed(ranges, plan_batch(query, files.schema), cut)
    pack = partial(_pack, needed, query, plan.units, plan.buckets)
    packed = units.mapInArrow(pack, from_arrow_schema(PACKED))
    placed = packed.repartitionById(plan.buckets, "bucket")
    match = partial(_match, files.schema, query)
    return placed.mapInArrow(match, from_arrow_schema(plan.bound.output))


def _units(
    files: FileList,
    units: tuple[tuple[int, int], ...],
    columns: Sequence[str],
    batches: Batches,
) -> Iterator[tuple[int, pa.Table]]:
    for batch in batches:
        for unit in batch.column(0).to_pylist():
            groups = files.groups[slice(*units[unit])]
            yield unit, pa.concat_tables([files.read(group, columns) for group in groups])


def _pack(
    files: FileList,
    query: Query,
    units: tuple[tuple[int, int], ...],
    buckets: int,
    batches: Batches,
) -> Iterator[pa.RecordBatch]:
    packer = Packer(with_bits(prepare(query, files.schema)), buckets)
    for unit, rows in _units(files, units, packer.reads, batches):
        yield packer.pack(rows, unit)


def _pack_ranges(
    files: FileList,
    query: Query,
    units: tuple[tuple[int, int], ...],
    cut: Callable[[], Ranges],
    batches: Batches,
) -> Iterator[pa.RecordBatch]:
    packer = Packer(with_bits(prepare(query, files.schema)), 1)
    ranges = cut()
    for unit, rows in _units(files, units, packer.reads, batches):
        yield pack_ranges(ranges, packer.select(rows), unit)


def _ranges(query: Query, schema: pa.Schema, width: int) -> Ranges:
    return Ranges(with_bits(prepare(query, schema)).task, width)


def _match(schema: pa.Schema, query: Query, batches: Batches) -> Iterator[pa.RecordBatch]:
    blocks = [
        (position.as_py(), block.as_buffer())
        for batch in batches
        for position, block in zip(batch.column(1), batch.column(2), strict=True)
    ]
    if blocks:
        found = BlockMatcher(with_bits(prepare(query, schema))).match(blocks)
        yield from found.to_batches(BATCH_ROWS)
