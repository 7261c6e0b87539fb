"""Windows and user-defined operators over a Spark DataFrame: pack, order, split, match.

Windows of time: rows are packed by batch of windows as soon as they cross, each also for the
batches whose windows overlap it, Spark brings the blocks of a batch to one task, and the task
splits and matches them. Keyed windows of other kinds are shuffled by key and sorted by Spark.
Without keys Spark sorts the rows in parallel, tasks pack them in that order, one task takes the
blocks and splits them into batches, and the batches are matched in parallel.

A task knows all windows that overlap those of its batch, so it gives each match once and nothing is
merged. Memory: packing holds `PACK_ROWS` rows or `PACK_BYTES`; splitting the rows of the batches
that are not complete; matching those of one batch, or of keys together up to `ROWS_AT_ONCE`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from outpace.engine.codec.pack import PACKED
from outpace.engine.divide.groups import PartitionWork
from outpace.errors import DataError
from outpace.hosts.spark.frame import (
    RecordBatches,
    as_planned,
    in_batches,
    map_blocks,
    map_rows,
    match_sorted,
    order_columns,
    pieces,
)
from outpace.plan.crossing import quoted
from outpace.plan.division import Cut
from outpace.plan.plan import Plan
from outpace.plan.row_plan import RowDivision
from outpace.plan.window_task import (
    BATCHES,
    COUNTED,
    NUMBERED,
    ORDERED,
    WindowTask,
)

#: Packed batches of time with the number of rows before each.
COUNTED_PACKED: Final = PACKED.append(pa.field("before", pa.int64()))


def match_windows(rows: DataFrame, plan: Plan[RowDivision]) -> DataFrame:
    """Run a query with windows or a user-defined operator over the rows that cross."""
    if plan.division.cut is Cut.TIME:
        return _by_time(rows, plan)
    if plan.division.cut in (Cut.SPLIT, Cut.NUMBERED):
        return _in_order(rows, plan)
    keys = [sf.col(quoted(name)) for name in plan.bound.partition_by]
    order = order_columns(plan.bound)
    if plan.division.cut is Cut.KEY:
        tasks = plan.division.tasks
        partitions = rows.repartition(tasks, *keys) if tasks else rows.repartition(*keys)
        partitions = partitions.sortWithinPartitions(*keys, *order)
    else:
        partitions = rows.repartition(1)
        partitions = partitions.sortWithinPartitions(*order) if order else partitions
    match = partial(match_sorted, partial(_work, plan))
    return map_rows(partitions, match, plan.crossing.row_schema, plan.bound.output)


def _by_time(rows: DataFrame, plan: Plan[RowDivision]) -> DataFrame:
    packed = map_rows(rows, partial(_pack, plan), plan.crossing.row_schema, PACKED)
    given = PACKED
    if plan.bound.query.numbered:
        packed, given = _with_counts(packed, rows, plan), COUNTED_PACKED
    bucket, number, position = PACKED.names[:3]
    tasks = plan.division.tasks
    if tasks is None:
        partitions = packed.repartition(bucket, number)
    else:
        share = sf.pmod(sf.col(bucket) + sf.col(number), sf.lit(tasks)).cast("int")
        partitions = packed.repartitionById(tasks, share)
    # Every other batch first: those next to each other have rows in common, others go together.
    partitions = partitions.sortWithinPartitions(sf.pmod(number, sf.lit(2)), number, position)
    return map_blocks(partitions, partial(_match_times, plan), given, plan.bound.output)


def _with_counts(packed: DataFrame, rows: DataFrame, plan: Plan[RowDivision]) -> DataFrame:
    """Add to each block of a batch how many rows, of all keys, come before the batch."""
    assert plan.windows is not None
    assert plan.windows.time is not None
    time = plan.windows.time
    counts = map_rows(
        rows.select(sf.col(quoted(time)).alias(time)),
        partial(_count, plan),
        pa.schema([plan.crossing.row_schema.field(time)]),
        COUNTED,
    )
    earlier = Window.orderBy("range").rowsBetween(Window.unboundedPreceding, -1)
    before = (
        counts.groupBy("range")
        .agg(sf.sum("rows").alias("rows"))
        .select("range", sf.coalesce(sf.sum("rows").over(earlier), sf.lit(0)).alias("before"))
    )
    return packed.join(sf.broadcast(before), "range", "left").select(*COUNTED_PACKED.names)


def _in_order(rows: DataFrame, plan: Plan[RowDivision]) -> DataFrame:
    """Let one task go over all rows, packed in order by others."""
    order = order_columns(plan.bound)
    ordered = rows.orderBy(*order) if order else rows
    packed = map_rows(ordered, partial(_pack_in_order, plan), plan.crossing.row_schema, ORDERED)
    one = packed.repartition(1).sortWithinPartitions("position")
    if plan.division.cut is Cut.NUMBERED:
        numbered = map_blocks(one, partial(_number, plan), ORDERED, NUMBERED)
        partitions = placed_buckets(numbered, plan.division)
        match = partial(_match_numbered, plan)
        return map_blocks(partitions, match, NUMBERED, plan.bound.output)
    batches = map_blocks(one, partial(_split, plan), ORDERED, BATCHES)
    partitions = placed_batches(batches, plan.division.tasks)
    return map_blocks(partitions, partial(_match_split, plan), BATCHES, plan.bound.output)


def placed_buckets(numbered: DataFrame, division: RowDivision) -> DataFrame:
    """Bring the events of each bucket of keys to a task, in order."""
    partitions = numbered.repartitionById(division.numbered_buckets, "bucket")
    return partitions.sortWithinPartitions("bucket", "position")


def placed_batches(batches: DataFrame, tasks: int | None) -> DataFrame:
    """Give batches to so many tasks in turn, or to as many as Spark takes."""
    if tasks is None:
        return batches.repartition("batch")
    return batches.repartitionById(tasks, sf.pmod("batch", sf.lit(tasks)).cast("int"))


def _work(plan: Plan[RowDivision]) -> tuple[PartitionWork, pa.Schema]:
    task = WindowTask(plan)
    return task.work(), task.rows


def _pack(plan: Plan[RowDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    task = WindowTask(plan)
    for position, table in pieces(batches):
        yield task.pack_times(as_planned(table, task.rows), position)


def _count(plan: Plan[RowDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    task = WindowTask(plan)
    for _, table in pieces(batches):
        yield task.count_times(as_planned(table, task.rows))


def _match_times(plan: Plan[RowDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    blocks = groupby(_packed(batches), key=itemgetter(0, 1))
    packed = (
        (number, before, (block for _, _, block in same)) for (number, before), same in blocks
    )
    yield from in_batches(WindowTask(plan).match_times(packed))


def _packed(batches: RecordBatches) -> Iterator[tuple[int, int | None, pa.Buffer]]:
    """Yield blocks with the number of their batch, and how many rows come before it."""
    for batch in batches:
        _, numbers, _, blocks, *counted = batch.columns
        before = counted[0].to_pylist() if counted else [None] * batch.num_rows
        if counted and None in before:
            raise DataError(
                "the DataFrame does not have the same rows each time that it is read",
                hint="cache it, or write it to a table first, to number the matches",
            )
        for number, rows, block in zip(numbers.to_pylist(), before, blocks, strict=True):
            yield number, rows, block.as_buffer()


def _pack_in_order(plan: Plan[RowDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    task = WindowTask(plan)
    for position, table in pieces(batches):
        yield task.pack(as_planned(table, task.rows), position)


def _split(plan: Plan[RowDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    task = WindowTask(plan)
    yield from task.split(_ordered(task, batches))


def _number(plan: Plan[RowDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    task = WindowTask(plan)
    yield from task.number(_ordered(task, batches), plan.division.numbered_buckets)


def _ordered(task: WindowTask, batches: RecordBatches) -> Iterator[pa.Table]:
    return (task.unpack([block.as_buffer()]) for part in batches for block in part.column(1))


def _match_numbered(plan: Plan[RowDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    yield from in_batches(WindowTask(plan).match_numbered(batches))


def _match_split(plan: Plan[RowDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    yield from in_batches(WindowTask(plan).match_split(batches))
