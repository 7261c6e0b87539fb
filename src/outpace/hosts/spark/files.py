"""Matching Parquet files on Spark: tasks read row groups with PyArrow, and only matches cross.

Spark divides ids among its tasks and nothing else; a task reads the row groups of its ids. Keyed
queries are packed and shuffled as blocks, unkeyed ones are cut into cores that need no merging, and
where the order of the rows is not known Spark sorts them. The memory of a task is that of
`files.match`; where blocks travel, a packing task holds one unit of row groups
(`files.blocks.UNIT_ROWS`) twice, a matching task one bucket (`BUCKET_ROWS`) or one range, in blocks
and in order, and its matches. A key that cannot be cut is held whole by one task.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from outpace.engine.codec.pack import PACKED, unpack
from outpace.engine.divide.ranges import Ranges, pack_ranges
from outpace.files.match import FileWindows, match_core, match_in_order, read_unit
from outpace.files.order import measure_group
from outpace.files.parquet import FileList, ParquetFiles, Statistics, list_files
from outpace.files.plan import FileDivision, Way, broken_order, for_tasks, packer_of, plan_files
from outpace.hosts.spark.frame import (
    BATCH_ROWS,
    BatchFunction,
    RecordBatches,
    in_batches,
    map_blocks,
    match_frame,
    match_packed,
)
from outpace.hosts.spark.frame_windows import placed_batches, placed_buckets
from outpace.pattern.query import Query
from outpace.plan.plan import Plan
from outpace.plan.window_task import BATCHES, NUMBERED, WindowTask


def match_files(session: SparkSession, files: ParquetFiles, query: Query) -> DataFrame:
    """Find the matches of a query in files; matching waits until the result is used.

    Footers are read now, and a sample of keys where a key may have too many rows for a task. Where
    an order is declared that no footer tells, a job reads that column.

    Where row groups are in the query's order only matches cross, and what says which rows a batch
    has. Keyed rows travel as blocks: tasks pack row groups by key bucket, Spark brings the blocks
    of a bucket to one partition, and a task there puts them together and matches; Spark sorts no
    rows. Where one key has too many rows for a task, blocks are cut by time range as well, as those
    of a DataFrame are.
    """
    plan = plan_session_files(session, files, query)
    division, tasks, sent = plan.division, plan.division.tasks, for_tasks(plan)
    one = session.range(0, 1, 1, 1)
    work: Callable[[Plan[FileDivision], RecordBatches], Iterator[pa.RecordBatch]]
    given: pa.Schema | None = None
    match division.way:
        case Way.ROWS:
            rows = rows_frame(session, division.files, plan.crossing.columns)
            return match_frame(rows, query, placed=plan.crossing.brings_places)
        case Way.SHARES if plan.windows is None:
            parts, work = session.range(0, len(division.units)), _match_core
        case Way.SHARES:
            parts, work = session.range(0, len(division.shares), 1, tasks), _match_shares
        case Way.IN_ORDER:
            parts, work = one, _match_in_order
        case Way.DESCRIBED:
            described = _mapped(one, partial(_describe, sent), BATCHES)
            parts, work, given = placed_batches(described, tasks), _match_described, BATCHES
        case Way.NUMBERED:
            numbered = _mapped(one, partial(_number, sent), NUMBERED)
            parts, work, given = placed_buckets(numbered, division), _match_numbered, NUMBERED
        case Way.PACKED if division.cut.by_range:
            units = session.range(0, len(division.units))
            return match_packed(_mapped(units, partial(_pack_ranges, sent), PACKED), plan)
        case Way.PACKED:
            units = session.range(0, len(division.units))
            packed = _mapped(units, partial(_pack, sent), PACKED)
            parts, work = packed.repartitionById(division.buckets, "bucket"), _match_bucket
            given = PACKED
    if given is not None:
        return map_blocks(parts, partial(work, sent), given, plan.bound.output)
    return _mapped(parts, partial(work, sent), plan.bound.output)


def plan_session_files(
    session: SparkSession, files: ParquetFiles, query: Query
) -> Plan[FileDivision]:
    """Plan a query over files; an order that is declared is measured where no footer tells it."""
    listing = list_files(files)
    plan = plan_files(listing, query)
    order = plan.division.order
    if files.ordered and order is not None and order.measurable:
        plan = plan_files(_measured(session, listing, plan.bound.order_by[0]), query)
    if files.ordered and (broken := broken_order(plan)):
        warnings.warn(broken, stacklevel=3)
    return plan


def rows_frame(session: SparkSession, files: FileList, columns: Sequence[str]) -> DataFrame:
    """Return the rows of files as a DataFrame, read by PyArrow in the tasks."""
    schema = pa.schema([files.schema.field(name) for name in columns])
    read = partial(_read, files.only(()), tuple(columns))
    return _mapped(session.range(0, len(files.groups)), read, schema)


def _read(
    files: FileList, columns: Sequence[str], batches: RecordBatches
) -> Iterator[pa.RecordBatch]:
    for number in _ids(batches):
        for piece in files.batches(files.groups[number], columns):
            yield from piece.to_batches()


def _ids(batches: RecordBatches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _measured(session: SparkSession, files: FileList, column: str) -> FileList:
    """Return the files with statistics of a column that were read from the rows."""
    schema = _measures(files, column)
    measure = partial(_measure, files.only(()), column)
    frame = _mapped(session.range(0, len(files.groups)), measure, schema)
    known = {row["group"]: row for row in frame.toArrow().cast(schema).to_pylist()}
    groups = []
    for number, group in enumerate(files.groups):
        row = known[number]
        measured = Statistics(row["least"], row["greatest"], row["nulls"])
        groups.append(replace(group, statistics={**group.statistics, column: measured}))
    return replace(files, groups=tuple(groups))


def _measure(files: FileList, column: str, batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    schema = _measures(files, column)
    for number in _ids(batches):
        known = measure_group(files, files.groups[number], column).statistics[column]
        row = {
            "group": number,
            "least": known.least,
            "greatest": known.greatest,
            "nulls": known.null_count,
        }
        yield pa.RecordBatch.from_pylist([row], schema)


def _measures(files: FileList, column: str) -> pa.Schema:
    kind = files.schema.field(column).type
    numbers = [("group", pa.int64()), ("nulls", pa.int64())]
    return pa.schema([*numbers, ("least", kind), ("greatest", kind)])


def _match_core(plan: Plan[FileDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    # A partition of a range has consecutive numbers: together they are one core.
    units = list(_ids(batches))
    if units:
        yield from in_batches(match_core(plan, units[0], units[-1] + 1))


def _match_shares(plan: Plan[FileDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    yield from in_batches(map(FileWindows(plan).match_share, _ids(batches)))


def _match_in_order(plan: Plan[FileDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for _ in _ids(batches):
        yield from in_batches(match_in_order(plan))


def _describe(plan: Plan[FileDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for _ in _ids(batches):
        yield from FileWindows(plan).split()


def _match_described(plan: Plan[FileDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    yield from in_batches(FileWindows(plan).match_described(batches))


def _number(plan: Plan[FileDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for _ in _ids(batches):
        yield from FileWindows(plan).number()


def _match_numbered(plan: Plan[FileDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    yield from in_batches(WindowTask(plan).match_numbered(batches))


def _pack(plan: Plan[FileDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    packer = packer_of(plan)
    for number in _ids(batches):
        yield packer.pack(read_unit(plan, number), number)


def _pack_ranges(plan: Plan[FileDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    packer = packer_of(plan)
    ranges = Ranges(plan.task, plan.division.width)
    for number in _ids(batches):
        yield pack_ranges(ranges, packer.select(read_unit(plan, number)), number)


def _match_bucket(plan: Plan[FileDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    blocks = [
        (position.as_py(), block.as_buffer())
        for batch in batches
        for position, block in zip(batch["position"], batch["block"], strict=True)
    ]
    if blocks:
        task = WindowTask(plan)
        yield from task.work().whole(unpack(blocks, task.rows)).to_batches(BATCH_ROWS)


def _mapped(frame: DataFrame, change: BatchFunction, output: pa.Schema) -> DataFrame:
    return frame.mapInArrow(change, from_arrow_schema(output))
