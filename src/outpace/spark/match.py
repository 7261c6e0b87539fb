"""Matching a Spark DataFrame: project and filter in Catalyst, cross once, match, merge.

Keyed queries are shuffled by key and sorted by Spark, so a task holds one stretch of rows at a
time. Unkeyed queries with WITHIN are cut into time ranges; each row goes to its range and, near a
border, to the range before it as well (the halo), so every match lies whole in the range of its
first event. Ranges match every start; where the query skips, one task goes over the matches, not
the rows, and drops those that an earlier match rules out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from outpace.engine.match.groups import SortedGroups
from outpace.engine.match.operator import prepare
from outpace.engine.ranges import (
    FIRST_RANK,
    FIRST_TIME,
    RANGE,
    RANK,
    RangeFilter,
    Ranks,
    core_matches,
    range_query,
)
from outpace.pattern.query import AfterMatch, Query, Skip
from outpace.plan.batch import MASK, BatchPlan, Cut, plan_batch, quoted
from outpace.spark.schema import arrow_schema, with_schema

Batches = Iterable[pa.RecordBatch]

#: Matches go back to Spark in batches of this many rows.
_BATCH_ROWS: Final = 65_536


def match_frame(frame: DataFrame, query: Query) -> DataFrame:
    """Find the matches of a query in a DataFrame; nothing runs before the result is used."""
    plan = plan_batch(query, arrow_schema(frame))
    crossing = _project(frame, plan)
    if plan.cut is Cut.RANGE:
        return _by_range(crossing, plan)
    order = [_order_column(plan, index) for index in range(len(plan.bound.order_by))]
    keys = [sf.col(quoted(name)) for name in plan.bound.partition_by]
    placed = crossing.repartition(*keys) if keys else crossing.repartition(1)
    if keys or order:
        placed = placed.sortWithinPartitions(*keys, *order)
    return _map(placed, partial(_match_groups, plan.query), plan.bound.output)


def _project(frame: DataFrame, plan: BatchPlan) -> DataFrame:
    columns = [sf.col(quoted(name)) for name in plan.columns]
    if plan.bits:
        columns.append(sf.expr(plan.mask_sql).alias(MASK))
    elif not columns:
        # Rows without any column would not be counted on the way.
        columns.append(sf.lit(0).cast("tinyint").alias(MASK))
    fields = [frame.schema[name] for name in plan.columns]
    if len(columns) > len(fields):
        fields += from_arrow_schema(pa.schema([(MASK, plan.mask_type)])).fields
    projected = with_schema(frame.select(*columns), StructType(fields))
    return projected.filter(sf.col(MASK) != 0) if plan.drop_unused else projected


def _order_column(plan: BatchPlan, index: int) -> Column:
    column = sf.col(quoted(plan.bound.order_by[index]))
    first = plan.bound.nulls_first[index]
    if plan.bound.descending[index]:
        return column.desc_nulls_first() if first else column.desc_nulls_last()
    return column.asc_nulls_first() if first else column.asc_nulls_last()


def _by_range(crossing: DataFrame, plan: BatchPlan) -> DataFrame:
    assert plan.bound.time is not None
    assert plan.bound.within is not None
    time = sf.col(quoted(plan.bound.time))
    kind = plan.bound.schema.field(plan.bound.time).type
    if pa.types.is_timestamp(kind):
        time = sf.unix_micros(time) if kind.tz else sf.unix_micros(sf.to_utc_timestamp(time, "UTC"))
    elif pa.types.is_date(kind):
        time = sf.unix_micros(time.cast("timestamp"))
    own = _floor(time, plan.width)
    earliest = _floor(time - sf.lit(plan.bound.within - 1), plan.width)
    ranges = sf.when(earliest < own, sf.array(earliest, own)).otherwise(sf.array(own))
    copies = crossing.select("*", sf.explode(ranges).alias(RANGE))
    fields = [*crossing.schema.fields, StructField(RANGE, LongType())]
    placed = with_schema(copies, StructType(fields)).repartition(RANGE)
    order = [_order_column(plan, index) for index in range(len(plan.bound.order_by))]
    # Rows that are equal in the query's order must come in the same order in both ranges.
    rest = [sf.col(quoted(c)) for c in crossing.columns if c not in plan.bound.order_by]
    placed = placed.sortWithinPartitions(sf.col(RANGE), *order, *rest)
    ranged = range_query(plan.query, plan.bound)
    schema = arrow_schema(placed).append(pa.field(RANK, pa.int64()))
    output = prepare(ranged, schema).bound.output
    found = _map(placed, partial(_match_ranges, ranged, plan.bound.time, plan.width), output)
    if plan.query.effective_skip.skip not in (Skip.NONE, Skip.TO_NEXT_ROW):
        merged = found.repartition(1).sortWithinPartitions(FIRST_TIME, FIRST_RANK)
        found = _map(merged, partial(_merge, plan.query.effective_skip), output)
    named = found.select(*[sf.col(quoted(name)) for name in plan.bound.output.names])
    return with_schema(named, from_arrow_schema(plan.bound.output))


def _floor(time: Column, width: int) -> Column:
    step = sf.lit(width).cast("bigint")
    return ((time - sf.pmod(time, step)) / step).cast("bigint")


def _map(
    frame: DataFrame, change: Callable[[Batches], Iterator[pa.RecordBatch]], output: pa.Schema
) -> DataFrame:
    """Let Python change the rows of a DataFrame."""
    names = frame.columns
    if any("." in name or "`" in name for name in names):
        # PySpark would take such a name for a path, so it gets another one on the way.
        fields = [
            StructField(f"_{number}", field.dataType)
            for number, field in enumerate(frame.schema.fields)
        ]
        renamed = frame.toDF(*(field.name for field in fields))
        frame = with_schema(renamed, StructType(fields))
        change = partial(_renamed, change, names)
    return frame.mapInArrow(change, schema=from_arrow_schema(output))


def _renamed(
    change: Callable[[Batches], Iterator[pa.RecordBatch]], names: list[str], batches: Batches
) -> Iterator[pa.RecordBatch]:
    return change(batch.rename_columns(names) for batch in batches)


def _match_groups(query: Query, batches: Batches) -> Iterator[pa.RecordBatch]:
    tables = (pa.Table.from_batches([batch]) for batch in batches)
    for found in _matches(query, tables):
        yield from found.to_batches(_BATCH_ROWS)


def _match_ranges(
    query: Query, time: str, width: int, batches: Batches
) -> Iterator[pa.RecordBatch]:
    ranks = Ranks(time)
    tables = (ranks.add(pa.Table.from_batches([batch])) for batch in batches)
    for found in _matches(query, tables):
        yield from core_matches(found, width).to_batches(_BATCH_ROWS)


def _matches(query: Query, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    groups: SortedGroups | None = None
    for table in tables:
        if groups is None:
            groups = SortedGroups(prepare(query, table.schema))
        yield from groups.push(table)
    if groups is not None:
        yield from groups.finish()


def _merge(after: AfterMatch, batches: Batches) -> Iterator[pa.RecordBatch]:
    ranges = RangeFilter(after)
    for batch in batches:
        yield from ranges.keep(pa.Table.from_batches([batch])).to_batches(_BATCH_ROWS)
