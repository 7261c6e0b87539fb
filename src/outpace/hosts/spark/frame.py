"""Matching a Spark DataFrame: project and filter in Catalyst, cross, match, merge.

Queries with WITHIN are cut by time range, and by key where they have keys: rows are packed into
blocks as soon as they cross, each near a border also for the range before (the halo), Spark brings
the blocks of a range to one task, and the task finds every match that starts in the range. Where
the query skips, a last pass goes over the matches of a key, not its rows, and drops those that an
earlier match rules out. Other keyed queries are shuffled by key and sorted by Spark.

Memory: packing holds `PACK_ROWS` rows or `PACK_BYTES`; matching one range of a bucket of keys, or,
of rows that Spark sorts, one stretch of them and what WITHIN leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from outpace.engine.codec.block import read_block
from outpace.engine.codec.pack import PACKED
from outpace.engine.divide.groups import PartitionWork, SortedGroups
from outpace.engine.divide.ranges import (
    PackedRange,
    RangeFilter,
    RangeMatcher,
    Ranges,
    merged_schema,
    pack_ranges,
)
from outpace.engine.event import EVENT_ID
from outpace.hosts.spark.nested_keys import NestedKeys
from outpace.hosts.spark.schema import arrow_schema, is_streaming, with_schema
from outpace.pattern.bind.disorder import missing_flag
from outpace.pattern.bound import BoundQuery
from outpace.pattern.query import Query
from outpace.plan.crossing import Crossing, quoted
from outpace.plan.division import by_windows
from outpace.plan.plan import Plan
from outpace.plan.row_plan import RowDivision, plan_query

RecordBatches = Iterable[pa.RecordBatch]
BatchFunction = Callable[[RecordBatches], Iterator[pa.RecordBatch]]

#: Matches go back to Spark in batches of this many rows.
BATCH_ROWS: Final = 65_536

#: Rows are packed when there are so many of them, or so many bytes.
PACK_ROWS: Final = 1 << 19
PACK_BYTES: Final = 64 << 20

#: Spark numbers the rows of a partition in the lower bits of a number.
_PLACE_BITS: Final = 33
_OTHER_ROWS: Final = (
    "the DataFrame does not have the same rows in the same partitions each time that it is read, so"
    " MATCH_ID() does not know their places; cache it, or write it to a table first"
)

#: The columns that say of each row in which part of a log it lies, and where there.
PLACED: Final = pa.schema([("__outpace_part", pa.string()), ("__outpace_offset", pa.int64())])

#: Spark counts the rows that it sends at a time, so a block counts as a row for each page.
_PAGE_BYTES: Final = 8192
_PAGE: Final = "__outpace_page"

#: Blocks of one partition are numbered from its number times this.
_BLOCKS_MAX: Final = 1 << 32


def match_frame(
    frame: DataFrame,
    query: Query,
    sources: tuple[str, ...] | None = None,
    *,
    placed: bool = False,
) -> DataFrame:
    """Find the matches of a query in a DataFrame; nothing runs before the result is used.

    Only a stream has several sources. Rows that are placed bring their places among all.
    """
    if is_streaming(frame):
        from outpace.hosts.spark.stream_search import StreamSearch

        return StreamSearch(frame, query, sources).matches()
    if nested := NestedKeys(frame, query):
        return nested.restored(match_frame(nested.frame, nested.query, placed=placed))
    frame = flagged(frame, query)
    schema = arrow_schema(frame)
    if placed:
        schema = pa.schema([field for field in schema if field.name != EVENT_ID.name])
    plan = plan_query(query, schema)
    if plan.crossing.brings_places and not placed:
        frame = with_places(frame)
    rows = crossing_rows(frame, plan.crossing)
    if by_windows(query):
        from outpace.hosts.spark.frame_windows import match_windows

        return match_windows(rows, plan)
    crossed = plan.crossing.row_schema
    if plan.division.cut.by_range:
        return match_packed(map_rows(rows, partial(_pack, plan), crossed, PACKED), plan)
    keys = [sf.col(quoted(name)) for name in plan.bound.partition_by]
    order = order_columns(plan.bound)
    partitions = rows.repartition(*keys) if keys else rows.repartition(1)
    if keys or order:
        partitions = partitions.sortWithinPartitions(*keys, *order)
    match = partial(match_sorted, partial(_work, plan))
    return map_rows(partitions, match, crossed, plan.bound.output)


def flagged(frame: DataFrame, query: Query) -> DataFrame:
    """Return a DataFrame that is no stream with the flag of a query: no time was up for any row."""
    flag = missing_flag(query, frame.columns)
    return frame if flag is None else frame.withColumn(flag, sf.lit(False))


def with_places(frame: DataFrame) -> DataFrame:
    """Return the rows with their places among all, as `toArrow` gives them: the ids of events.

    Spark numbers the rows of each partition, and another pass over the DataFrame counts them. Where
    that finds other partitions, the places are not known, which is an error.
    """
    partition, rows, before = "__outpace_partition", "__outpace_rows", "__outpace_before"
    earlier = Window.orderBy(partition).rowsBetween(Window.unboundedPreceding, -1)
    counts = (
        frame.groupBy(sf.spark_partition_id().alias(partition))
        .agg(sf.count(sf.lit(1)).alias(rows))
        .select(
            sf.col(partition).cast("long").alias(partition),
            rows,
            sf.coalesce(sf.sum(rows).over(earlier), sf.lit(0)).alias(before),
        )
    )
    number = "__outpace_number"
    numbered = frame.withColumn(number, sf.monotonically_increasing_id())
    numbered = numbered.withColumn(partition, sf.shiftright(number, _PLACE_BITS))
    place = sf.col(number) - sf.shiftleft(partition, _PLACE_BITS)
    known = sf.when(place < sf.col(rows), sf.col(before) + place)
    known = known.otherwise(sf.raise_error(sf.lit(_OTHER_ROWS)).cast("long"))
    joined = numbered.join(sf.broadcast(counts), partition, "left")
    columns = [sf.col(quoted(name)) for name in frame.columns]
    fields = [*frame.schema.fields, *from_arrow_schema(pa.schema([EVENT_ID])).fields]
    return with_schema(joined.select(*columns, known.alias(EVENT_ID.name)), StructType(fields))


def crossing_rows(frame: DataFrame, crossing: Crossing, places: Sequence[Column] = ()) -> DataFrame:
    """Return what of a DataFrame crosses to Python: bits, the columns that are used, used rows.

    Columns that say where rows lie, as `PLACED` has them, come last.
    """
    binary = _without_collations(frame)
    used = binary if crossing.used_sql is None else binary.filter(sf.expr(crossing.used_sql))
    columns = [sf.col(quoted(name)) for name in crossing.columns]
    columns += [sf.expr(sql).alias(name) for name, sql in crossing.bit_columns.items()]
    if not columns:
        columns.append(sf.lit(0).cast("tinyint").alias(crossing.row_schema.names[0]))
    fields = [binary.schema[name] for name in crossing.columns]
    fields += from_arrow_schema(crossing.row_schema).fields[len(fields) :]
    if places:
        columns += [one.alias(name) for name, one in zip(PLACED.names, places, strict=True)]
        fields += from_arrow_schema(PLACED).fields
    return with_schema(used.select(*columns), StructType(fields))


def _without_collations(frame: DataFrame) -> DataFrame:
    """Return the DataFrame with text that compares byte by byte, as it does in process."""
    if not any(_collated(field) for field in frame.schema.fields):
        return frame
    fields = [
        StructField(field.name, StringType()) if _collated(field) else field
        for field in frame.schema.fields
    ]
    columns = [
        sf.collate(quoted(field.name), "UTF8_BINARY").alias(field.name)
        if _collated(field)
        else sf.col(quoted(field.name))
        for field in frame.schema.fields
    ]
    return with_schema(frame.select(*columns), StructType(fields))


def _collated(field: StructField) -> bool:
    kind = field.dataType
    return isinstance(kind, StringType) and kind.collation != "UTF8_BINARY"


def order_columns(bound: BoundQuery) -> list[Column]:
    """Return what sorts rows in the query's order."""
    columns = []
    for name, descending, nulls_first in zip(
        bound.order_by, bound.descending, bound.nulls_first, strict=True
    ):
        up, down = (
            (sf.asc_nulls_first, sf.desc_nulls_first)
            if nulls_first
            else (sf.asc_nulls_last, sf.desc_nulls_last)
        )
        columns.append((down if descending else up)(sf.col(quoted(name))))
    return columns


def match_packed(packed: DataFrame, plan: Plan[RowDivision]) -> DataFrame:
    """Find the matches of a query in packed ranges."""
    bucket, number, position, _ = PACKED.names
    partitions = packed.repartition(bucket, number).sortWithinPartitions(bucket, number, position)
    output, query = plan.bound.output, plan.bound.query
    if not plan.division.merges:
        return map_blocks(partitions, partial(_match_ranges, plan), PACKED, output)
    found = map_blocks(partitions, partial(_possible_matches, plan), PACKED, PACKED)
    by_key = found.repartition(bucket).sortWithinPartitions(bucket, number)
    merge = partial(_merge, query, plan.bound.partition_by, output)
    return map_blocks(by_key, merge, PACKED, output)


def map_blocks(
    frame: DataFrame, change: BatchFunction, given: pa.Schema, output: pa.Schema
) -> DataFrame:
    """Let Python change rows with a block each; the larger these are, the fewer come at a time.

    Where a session limits batches by rows alone, all blocks of a partition would come at once.
    """
    (block,) = (field.name for field in given if field.type == pa.binary())
    pages = sf.expr(f"explode(sequence(0, CAST(length({block}) DIV {_PAGE_BYTES} AS INT)))")
    first = sf.when(sf.col(_PAGE) == 0, sf.col(block)).alias(block)
    columns = [first if name == block else sf.col(name) for name in given.names]
    paged = frame.select("*", pages.alias(_PAGE)).select(*columns)
    return map_rows(paged, partial(_first_pages, change, block), given, output)


def _first_pages(
    change: BatchFunction, block: str, batches: RecordBatches
) -> Iterator[pa.RecordBatch]:
    return change(batch.filter(batch.column(block).is_valid()) for batch in batches)


def map_rows(
    frame: DataFrame, change: BatchFunction, given: pa.Schema, output: pa.Schema
) -> DataFrame:
    """Let Python change the rows of a DataFrame, which has the columns that are given."""
    names = given.names
    if any("." in name or "`" in name for name in names):
        # PySpark would take such a name for a path, so it gets another one on the way.
        fields = [
            StructField(f"_{number}", field.dataType)
            for number, field in enumerate(from_arrow_schema(given).fields)
        ]
        renamed = frame.toDF(*(field.name for field in fields))
        frame = with_schema(renamed, StructType(fields))
        change = partial(_renamed, change, names)
    output_type = from_arrow_schema(output)
    return with_schema(frame.mapInArrow(change, schema=output_type), output_type)


def _renamed(
    change: BatchFunction, names: list[str], batches: RecordBatches
) -> Iterator[pa.RecordBatch]:
    return change(batch.rename_columns(names) for batch in batches)


def match_sorted(
    work: Callable[[], tuple[PartitionWork, pa.Schema]], batches: RecordBatches
) -> Iterator[pa.RecordBatch]:
    """Match rows that come sorted; what is to be done, with which types, is asked of the first."""
    groups: SortedGroups | None = None
    for batch in batches:
        if groups is None:
            partitions, schema = work()
            groups = SortedGroups(partitions)
        rows = as_planned(pa.Table.from_batches([batch]), schema)
        yield from in_batches(groups.push(rows))
    if groups is not None:
        yield from in_batches(groups.finish())


def in_batches(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Yield tables in pieces that Spark takes at once."""
    for table in tables:
        yield from table.to_batches(BATCH_ROWS)


def _work(plan: Plan[RowDivision]) -> tuple[PartitionWork, pa.Schema]:
    bound = plan.operator.bound
    return PartitionWork(plan.operator, bound.partition_by), bound.schema


def _pack(plan: Plan[RowDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    ranges = Ranges(plan.task, plan.division.width)
    for position, table in pieces(batches):
        yield pack_ranges(ranges, as_planned(table, ranges.task.bound.schema), position)


def pieces(batches: RecordBatches) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of a partition in pieces to be packed, each with its place among all rows."""
    context = TaskContext.get()
    position = (0 if context is None else context.partitionId()) * _BLOCKS_MAX
    yield from enumerate(_collected(batches), position)


def _collected(batches: RecordBatches) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= PACK_ROWS or size >= PACK_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(waiting)


def as_planned(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the types that were planned.

    Bytes of bits lose their sign. The session may have another time zone by now, or send text and
    bytes with longer offsets.
    """
    for place, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        index = schema.get_field_index(name)
        if index >= 0 and column.type != schema.field(index).type:
            cast = column.cast(schema.field(index).type, safe=False)
            table = table.set_column(place, name, cast)
    return table


def _match_ranges(plan: Plan[RowDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    matcher = RangeMatcher(Ranges(plan.task, plan.division.width))
    yield from in_batches(matcher.matches(_blocks(batches)))


def _possible_matches(plan: Plan[RowDivision], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    matcher = RangeMatcher(Ranges(plan.task, plan.division.width))
    yield from matcher.possible_matches(_blocks(batches))


def _blocks(batches: RecordBatches) -> Iterator[PackedRange]:
    for batch in batches:
        buckets, numbers, _, blocks = batch.columns
        for bucket, number, block in zip(
            buckets.to_pylist(), numbers.to_pylist(), blocks, strict=True
        ):
            yield PackedRange(bucket, number, block.as_buffer())


def _merge(
    query: Query, keys: tuple[str, ...], output: pa.Schema, batches: RecordBatches
) -> Iterator[pa.RecordBatch]:
    schema = merged_schema(output)
    bucket: int | None = None
    for part in _blocks(batches):
        if part.bucket != bucket:
            bucket, merge = part.bucket, RangeFilter(query.effective_skip, keys)
        found = pa.table(read_block(part.block, schema), schema=schema)
        yield from merge.keep(found).to_batches(BATCH_ROWS)
