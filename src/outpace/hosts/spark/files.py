"""Matching Parquet files on Spark: tasks read row groups with PyArrow, and only matches cross.

Spark divides ids among its tasks and nothing else; a task reads the row groups of its ids. Keyed
queries are packed and shuffled as blocks, unkeyed ones are cut into cores that need no merging, and
where the order of the rows is not known Spark sorts them. The memory of a task is that of
`plan.file_match`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from outpace.errors import DataError
from outpace.files.match import FilesPlan, match_all, match_core, plan_files
from outpace.files.order import measure_group
from outpace.files.parquet import FileList, ParquetFiles, Statistics, list_files
from outpace.files.windows import WindowFilesPlan, plan_window_files
from outpace.hosts.spark.blocks import match_blocks
from outpace.hosts.spark.file_windows import match_window_files
from outpace.hosts.spark.frame import BATCH_ROWS, match_frame
from outpace.pattern.query import Query
from outpace.plan.batch import Cut
from outpace.plan.windows import by_windows

Batches = Iterable[pa.RecordBatch]


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
        return match_window_files(session, plan)
    if plan.cut is Cut.KEY:
        return match_blocks(session, plan.files, query)
    sent = plan.for_tasks()
    if plan.cut is Cut.NONE:
        ids, run = session.range(0, 1, 1, 1), partial(_match_all, sent)
    else:
        ids, run = session.range(0, plan.cores), partial(_match_core, sent)
    return ids.mapInArrow(run, from_arrow_schema(plan.bound.output))


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
    return session.range(0, len(files.groups)).mapInArrow(read, from_arrow_schema(schema))


def _read(files: FileList, columns: Sequence[str], batches: Batches) -> Iterator[pa.RecordBatch]:
    for number in _ids(batches):
        for piece in files.batches(files.groups[number], columns):
            yield from piece.to_batches()


def _match_all(plan: FilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    for _ in _ids(batches):
        for found in match_all(plan):
            yield from found.to_batches(BATCH_ROWS)


def _match_core(plan: FilesPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    # A partition of a range has consecutive numbers: together they are one core.
    units = list(_ids(batches))
    if units:
        for found in match_core(plan, units[0], units[-1] + 1):
            yield from found.to_batches(BATCH_ROWS)


def _ids(batches: Batches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _measured(session: SparkSession, files: FileList, column: str) -> FileList:
    """Return the files with statistics of a column that were read from the rows."""
    schema = _measures(files, column)
    measure = partial(_measure, files.only(()), column)
    frame = session.range(0, len(files.groups)).mapInArrow(measure, from_arrow_schema(schema))
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
