"""Matching Parquet files on Spark: tasks read row groups with PyArrow, and only matches cross.

Spark divides ids among its tasks and nothing else; a task reads the row groups of its ids. Keyed
queries are packed and shuffled as blocks, unkeyed ones are cut into cores that need no merging, and
where the order of the rows is not known Spark sorts them. The memory of a task is that of
`files.match` and `files.windows`; where blocks travel, a packing task holds one unit of row groups
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

from outpace.engine.codec.pack import PACKED, Packer, pack, unpack
from outpace.engine.divide.ranges import PACKED as PACKED_RANGES
from outpace.engine.divide.ranges import Ranges, pack_ranges
from outpace.engine.match.bits import with_bits
from outpace.engine.match.task import prepare
from outpace.engine.operator import match_whole
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.buckets import key_buckets
from outpace.engine.rows.partition import column_arrays
from outpace.errors import DataError
from outpace.files.blocks import plan_blocks
from outpace.files.match import FilesPlan, match_all, match_core, plan_files
from outpace.files.order import measure_group
from outpace.files.parquet import FileList, ParquetFiles, Statistics, list_files
from outpace.files.windows import FileWindows, Way, WindowFilesPlan, plan_window_files
from outpace.hosts.spark.frame import (
    BATCH_ROWS,
    Batches,
    Change,
    in_batches,
    match_frame,
    match_packed,
)
from outpace.hosts.spark.frame_windows import placed_batches, placed_buckets
from outpace.pattern.query import Query
from outpace.plan.division import Division
from outpace.plan.plan import plan_query
from outpace.plan.window_task import BATCHES, NUMBERED
from outpace.plan.windows import by_windows


def match_files(files: ParquetFiles, query: Query) -> DataFrame:
    """Find the matches of a query in files; matching waits until the result is used.

    Footers are read now, and a sample of keys where a key may have too many rows for a task. Where
    an order is declared that no footer tells, a job reads that column.
    """
    session = active_session()
    plan = plan_session_files(session, files, query)
    if plan.spark_sorts:
        return match_frame(rows_frame(session, plan.files, plan.columns), query)
    if isinstance(plan, WindowFilesPlan):
        return _match_windows(session, plan)
    if plan.division is Division.KEY:
        return _match_blocks(session, plan.files, query)
    sent = plan.for_tasks()
    if plan.division is Division.NONE:
        ids, run = session.range(0, 1, 1, 1), partial(_match_all, sent)
    else:
        ids, run = session.range(0, plan.cores), partial(_match_core, sent)
    return _mapped(ids, run, plan.bound.output)


def plan_session_files(
    session: SparkSession, files: ParquetFiles, query: Query
) -> FilesPlan | WindowFilesPlan:
    """Plan a query over files; an order that is declared is measured where no footer tells it."""
    make: Callable[[FileList, Query], FilesPlan | WindowFilesPlan]
    make = plan_window_files if by_windows(query) else plan_files
    listing = list_files(files)
    plan = make(listing, query)
    if not plan.uses_order or not files.ordered:
        return plan
    if plan.order.measurable:
        plan = make(_measured(session, listing, plan.bound.order_by[0]), query)
    if plan.order.broken is not None:
        sorts = "Spark sorts the rows" if plan.spark_sorts else "row groups are taken in order"
        warnings.warn(
            f"the files are not in the declared order: {plan.order.broken.name} comes before the"
            f" row group ahead of it; {sorts}",
            stacklevel=3,
        )
    return plan


def active_session() -> SparkSession:
    """Return the active Spark session, classic or Connect; none is made here."""
    session = SparkSession.getActiveSession()
    if session is None:
        raise DataError(
            "files are matched on Spark, and there is no active session",
            hint="make one with SparkSession.builder.getOrCreate(), or read the files with"
            " pyarrow.parquet.read_table to match them in process",
        )
    return session


def rows_frame(session: SparkSession, files: FileList, columns: Sequence[str]) -> DataFrame:
    """Return the rows of files as a DataFrame, read by PyArrow in the tasks."""
    schema = pa.schema([files.schema.field(name) for name in columns])
    read = partial(_read, files.only(()), tuple(columns))
    return _mapped(session.range(0, len(files.groups)), read, schema)


def _read(files: FileList, columns: Sequence[str], batches: Batches) -> Iterator[pa.RecordBatch]:
    for number in _ids(batches):
        for piece in files.batches(files.groups[number], columns):
            yield from piece.to_batches()


def _match_all(plan: FilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    for _ in _ids(batches):
        yield from in_batches(match_all(plan))


def _match_core(plan: FilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    # A partition of a range has consecutive numbers: together they are one core.
    units = list(_ids(batches))
    if units:
        yield from in_batches(match_core(plan, units[0], units[-1] + 1))


def _ids(batches: Batches) -> Iterator[int]:
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


def _measure(files: FileList, column: str, batches: Batches) -> Iterator[pa.RecordBatch]:
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


def _match_blocks(session: SparkSession, files: FileList, query: Query) -> DataFrame:
    """Find the matches of a keyed query in files; at most a sample of keys is read now.

    Tasks pack row groups by key bucket; Spark brings the blocks of a bucket to one partition; a
    task there puts them together and matches. Spark sorts no rows. Where one key has too many rows
    for a task, blocks are cut by time range as well, as those of a DataFrame are.
    """
    plan = plan_blocks(files, query)
    units = session.range(0, len(plan.units))
    needed = files.only(())
    if plan.width:
        cut = partial(_ranges, query, files.schema, plan.width)
        ranges = _mapped(
            units, partial(_pack_ranges, needed, query, plan.units, cut), PACKED_RANGES
        )
        return match_packed(ranges, plan_query(query, files.schema), cut)
    packed = _mapped(units, partial(_pack, needed, query, plan.units, plan.buckets), PACKED)
    partitions = packed.repartitionById(plan.buckets, "bucket")
    return _mapped(partitions, partial(_match, files.schema, query), plan.bound.output)


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
    blocks = _blocks(batches)
    if blocks:
        task = with_bits(prepare(query, schema)).task
        rows = unpack(blocks, task.bound.schema)
        found, _ = match_whole(OperatorSpec(query, task.bound.schema, task), rows)
        yield from found.to_batches(BATCH_ROWS)


def _match_windows(session: SparkSession, plan: WindowFilesPlan) -> DataFrame:
    """Run a query with windows or a user-defined operator over files.

    Where row groups are in the query's order only matches cross, and what says which rows a batch
    has; keyed rows that are in no order travel as blocks.
    """
    sent = plan.for_tasks()
    tasks = plan.windows.tasks
    if plan.way is Way.SHARES:
        ids = session.range(0, len(plan.shares), 1, tasks)
        return _mapped(ids, partial(_match_shares, sent), plan.bound.output)
    if plan.way is Way.DESCRIBED:
        described = _mapped(session.range(0, 1, 1, 1), partial(_describe, sent), BATCHES)
        partitions = placed_batches(described, tasks)
        return _mapped(partitions, partial(_match_described, sent), plan.bound.output)
    if plan.way is Way.NUMBERED:
        numbered = _mapped(session.range(0, 1, 1, 1), partial(_number, sent), NUMBERED)
        partitions = placed_buckets(numbered, plan.windows)
        return _mapped(partitions, partial(_match_numbered, sent), plan.bound.output)
    if plan.way is Way.PACKED:
        ids = session.range(0, len(plan.places))
        packed = _mapped(ids, partial(_pack_place, sent), PACKED)
        partitions = packed.repartitionById(plan.buckets, "bucket")
        return _mapped(partitions, partial(_match_bucket, sent), plan.bound.output)
    return _mapped(session.range(0, 1, 1, 1), partial(_match_in_order, sent), plan.bound.output)


def _match_shares(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    files = FileWindows(plan)
    for share in _ids(batches):
        yield from files.match_share(share).to_batches(BATCH_ROWS)


def _describe(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    files = FileWindows(plan)
    for _ in _ids(batches):
        yield from files.split()


def _match_described(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    yield from in_batches(FileWindows(plan).match_described(batches))


def _number(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    files = FileWindows(plan)
    for _ in _ids(batches):
        yield from files.number()


def _match_numbered(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    yield from in_batches(FileWindows(plan).task.match_numbered(batches))


def _match_in_order(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    files = FileWindows(plan)
    for _ in _ids(batches):
        yield from in_batches(files.match_in_order())


def _pack_place(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    files = FileWindows(plan)
    for place in _ids(batches):
        rows = files.read_place(place)
        columns = column_arrays(rows)
        keys = [columns[name] for name in plan.bound.partition_by]
        yield pack(columns, key_buckets(keys, plan.buckets), plan.buckets, place)


def _match_bucket(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    blocks = _blocks(batches)
    if blocks:
        work = FileWindows(plan).task.work()
        found = work.whole(unpack(blocks, plan.files.schema))
        yield from found.to_batches(BATCH_ROWS)


def _blocks(batches: Batches) -> list[tuple[int, pa.Buffer]]:
    """Return the blocks of a bucket, with their positions."""
    return [
        (position.as_py(), block.as_buffer())
        for batch in batches
        for position, block in zip(batch.column(1), batch.column(2), strict=True)
    ]


def _mapped(frame: DataFrame, change: Change, output: pa.Schema) -> DataFrame:
    return frame.mapInArrow(change, from_arrow_schema(output))
