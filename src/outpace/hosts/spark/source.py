"""The data source `outpace.matches`: a query over Parquet files, read like a table.

    spark.read.format("outpace.matches").option("query", "ORDER BY ts PATTERN (A B+)").load(path)

Options: `query` (what stands in MATCH_RECOGNIZE), `dialect` (what it is written in) and `ordered`
(see `op.parquet`; where no footer tells the order, the driver reads that column first). A source
cannot shuffle or sort. So a task of a keyed query reads the key columns of all row groups, and of
those that have keys of its own bucket the other columns too: the files are read once for each
bucket. Where that is too much, `op.match` packs and shuffles instead. Rows of an unkeyed query have
to be in order by the statistics of their row groups. Windows that only a pass over all rows can
tell are one task.

A task holds the rows of one bucket, or what `files.match` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from outpace.engine.match.task import prepare
from outpace.errors import BindError, DataError, OutpaceError, did_you_mean
from outpace.files.match import match_part, parts_apart
from outpace.files.parquet import ParquetFiles, list_files, parquet
from outpace.files.plan import FileDivision, Way, for_tasks, packer_of, plan_apart
from outpace.hosts.spark.frame import BATCH_ROWS
from outpace.pattern.query import Query
from outpace.plan.plan import Plan
from outpace.plan.window_task import WindowTask

#: An unkeyed query becomes at most so many tasks: each has to find where its search enters.
_TASKS_MAX: Final = 16

_OPTIONS: Final = ("query", "dialect", "ordered", "path", "paths")


@dataclass
class MatchShare(InputPartition):
    """What one task does: some units, a share of the windows, or the keys of one bucket."""

    first: int
    stop: int


def matches_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of the matches that the options ask for."""
    files, query = read_options(options)
    return from_arrow_schema(prepare(query, list_files(files).schema).bound.output)


class MatchesReader(DataSourceReader):
    """Finds the matches, task by task."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        files, query = read_options(options)
        plan = plan_apart(list_files(files), query, ordered=files.ordered)
        order = plan.division.order
        if plan.division.way is Way.ROWS:
            assert order is not None
            raise DataError(
                "the rows are not known to be in the query's order, and a data source cannot sort",
                detail=order.reason,
                hint="op.match(op.parquet(path), query) lets Spark sort them",
            )
        self._plan = for_tasks(plan)
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        return [MatchShare(one.start, one.stop) for one in parts_apart(self._plan, _TASKS_MAX)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the matches of a task."""
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        if not isinstance(partition, MatchShare):
            return  # there are no row groups, so there is no task of ours
        for found in self._matches(partition):
            yield from found.cast(wanted).to_batches(BATCH_ROWS)

    def _matches(self, share: MatchShare) -> Iterator[pa.Table]:
        if self._plan.division.way is Way.PACKED:
            return match_bucket(self._plan, share.first)
        return match_part(self._plan, range(share.first, share.stop))


def match_bucket(plan: Plan[FileDivision], bucket: int) -> Iterator[pa.Table]:
    """Yield the matches of the keys of one bucket, reading what has rows of it."""
    packer = packer_of(plan)
    rows, files = [], plan.division.files
    for group in files.groups:
        keys = files.read(group, plan.bound.partition_by)
        if (packer.buckets(keys) == bucket).any():
            rows.append(packer.select(files.read(group, plan.crossing.columns), bucket))
    if sum(table.num_rows for table in rows):
        yield WindowTask(plan).work().whole(pa.concat_tables(rows))


def read_options(options: Mapping[str, str]) -> tuple[ParquetFiles, Query]:
    """Return the files and the query that options name.

    Examples
    --------
    >>> files, query = read_options({"path": "ticks", "query": "ORDER BY ts PATTERN (A B)"})
    >>> files.paths, query.order[0].column
    (('ticks',), 'ts')
    """
    for name in options:
        if name.lower() not in _OPTIONS:
            raise BindError(
                f"outpace.matches has no option '{name}'",
                hint=did_you_mean(name.lower(), _OPTIONS) or f"it has {', '.join(_OPTIONS[:3])}",
            )
    text = options.get("query", "")
    if not text.strip():
        raise BindError(
            "outpace.matches needs the option 'query'",
            hint="give it what stands in MATCH_RECOGNIZE: ORDER BY, MEASURES, PATTERN, DEFINE",
        )
    try:
        query = Query.from_sql(text, dialect=options.get("dialect", "outpace"))
    except OutpaceError as error:
        error.where = "option query" if error.where is None else f"option query: {error.where}"
        raise
    ordered = options.get("ordered", "false").lower()
    if ordered not in ("true", "false"):
        raise BindError(f"the option 'ordered' is true or false, not '{options['ordered']}'")
    try:
        paths = json.loads(options.get("paths", "[]"))
    except (ValueError, RecursionError) as error:
        raise BindError("the option 'paths' is no list in JSON", detail=str(error)) from error
    if not isinstance(paths, list):
        raise BindError("the option 'paths' is no list in JSON", hint="name one with .load(path)")
    paths += [options["path"]] if "path" in options else []
    if not paths:
        raise BindError("outpace.matches needs a path", hint='end with .load("folder or file")')
    return parquet(paths, ordered=ordered == "true"), query
