"""Windows and user-defined operators over Parquet files on Spark.

Spark divides ids among its tasks; tasks read row groups with PyArrow. Where these are in the
query's order only matches cross, and what says which rows a batch has; keyed rows that are in no
order travel as blocks. The memory of a task is that of `files.windows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from outpace.engine.codec.pack import PACKED, pack, unpack
from outpace.engine.rows.buckets import key_buckets
from outpace.engine.rows.partition import column_arrays
from outpace.files.windows import FileWindows, Way, WindowFilesPlan
from outpace.hosts.spark.frame import BATCH_ROWS
from outpace.hosts.spark.frame_windows import placed_batches, placed_buckets
from outpace.plan.window_task import BATCHES, NUMBERED, pack_batch, unpack_batches

Batches = Iterable[pa.RecordBatch]
Change = Callable[[Batches], Iterator[pa.RecordBatch]]


def match_window_files(session: SparkSession, plan: WindowFilesPlan) -> DataFrame:
    """Run a query with windows or a user-defined operator over files."""
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
        packed = _mapped(ids, partial(_pack, sent), PACKED)
        partitions = packed.repartitionById(plan.buckets, "bucket")
        return _mapped(partitions, partial(_match_bucket, sent), plan.bound.output)
    return _mapped(session.range(0, 1, 1, 1), partial(_match_in_order, sent), plan.bound.output)


def _mapped(frame: DataFrame, change: Change, output: pa.Schema) -> DataFrame:
    return frame.mapInArrow(change, from_arrow_schema(output))


def _match_shares(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    files = FileWindows(plan)
    for share in _ids(batches):
        yield from files.match_share(share).to_batches(BATCH_ROWS)


def _describe(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    files = FileWindows(plan)
    for _ in _ids(batches):
        for number, batch in enumerate(files.split()):
            yield pack_batch(number, batch)


def _match_described(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    files = FileWindows(plan)
    for part in batches:
        for batch, _ in unpack_batches(part):
            yield from files.match_batch(batch).to_batches(BATCH_ROWS)


def _number(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    files = FileWindows(plan)
    for _ in _ids(batches):
        yield from files.number()


def _match_numbered(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    for found in FileWindows(plan).task.match_numbered(batches):
        yield from found.to_batches(BATCH_ROWS)


def _match_in_order(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    files = FileWindows(plan)
    for _ in _ids(batches):
        for found in files.match_in_order():
            yield from found.to_batches(BATCH_ROWS)


def _pack(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    files = FileWindows(plan)
    for place in _ids(batches):
        rows = files.read_place(place)
        columns = column_arrays(rows)
        keys = [columns[name] for name in plan.bound.partition_by]
        yield pack(columns, key_buckets(keys, plan.buckets), plan.buckets, place)


def _match_bucket(plan: WindowFilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    blocks = [
        (position.as_py(), block.as_buffer())
        for batch in batches
        for position, block in zip(batch.column(1), batch.column(2), strict=True)
    ]
    if blocks:
        work = FileWindows(plan).task.work()
        found = work.whole(unpack(blocks, plan.files.schema))
        yield from found.to_batches(BATCH_ROWS)


def _ids(batches: Batches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()
