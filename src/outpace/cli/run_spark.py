"""`outpace run` on Spark: how inputs are read there, what is found, and how Spark writes it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

import outpace as op
from outpace.cli.run_input import DataFormat, Input
from outpace.cli.run_query import SqlText
from outpace.errors import DataError, OutpaceError, UnsupportedError
from outpace.files.parquet import FileList
from outpace.files.text import TextList
from outpace.hosts.spark.files import rows_frame
from outpace.hosts.spark.schema import TIME_FORMATS, arrow_schema
from outpace.hosts.spark.sql import sql
from outpace.pattern.query import Query

#: How Spark writes text, so that what is written can be read again without loss.
TEXT_OPTIONS: Final = {
    DataFormat.CSV: {
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        **TIME_FORMATS,
    },
    DataFormat.JSON: {"ignoreNullFields": "false", **TIME_FORMATS},
    DataFormat.PARQUET: {},
}


@dataclass(frozen=True)
class SparkResult:
    """The rows of a DataFrame; each question runs its jobs.

    Parameters
    ----------
    frame
        The rows of the result.
    """

    frame: DataFrame

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns."""
        return arrow_schema(self.frame)

    def write_parts(self, folder: Path, format: DataFormat, *, header: bool) -> int:
        """Let Spark write the rows as parts and return how many rows there are."""
        counter = Observation()
        counted = self.frame.observe(counter, sf.count(sf.lit(1)).alias("rows"))
        writer = counted.write.options(**TEXT_OPTIONS[format])
        if format is DataFormat.CSV:
            writer = writer.option("header", header)
        writer.format(format.value).save(folder.as_uri())
        if not folder.is_dir():
            raise DataError(
                "Spark has written its parts to another machine",
                detail=f"they are not at '{folder}'",
                hint="write to a folder that this machine and Spark's share",
            )
        return int(counter.get["rows"])

    def first_rows(self, limit: int) -> tuple[pa.Table, int]:
        """Return the first rows, and how many there are.

        Each part sends its first `limit` rows, so the driver holds that many times the parts.
        """
        # PySpark would take a name with a dot for a path, so columns are numbered on the way.
        numbered = self.frame.toDF(*(f"_{number}" for number in range(len(self.schema))))
        heads = numbered.mapInArrow(
            partial(_head, limit), schema="part int, count bigint, head binary"
        ).collect()
        tables = []
        for head in sorted(heads, key=lambda row: int(row["part"])):
            with pa.ipc.open_stream(bytes(head["head"])) as reader:
                tables.append(reader.read_all().rename_columns(self.schema.names))
        found = pa.concat_tables(tables) if tables else self.schema.empty_table()
        return found.slice(0, limit), sum(int(head["count"]) for head in heads)


def found_on_spark(
    session: SparkSession, request: Query | SqlText, inputs: Sequence[Input]
) -> DataFrame:
    """Return what a query finds in inputs; matching waits until the rows are asked for."""
    if isinstance(request, Query):
        return _match(session, inputs[0], request)
    for one in inputs:
        assert one.name is not None
        frame_of(session, one).createOrReplaceTempView(one.name)
    matchers = {
        one.name: partial(_match, session, one)
        for one in inputs
        if one.name is not None and isinstance(one.content, FileList)
    }
    try:
        return sql(session, request.text, request.dialect, matchers)
    except OutpaceError as error:
        raise request.located(error) from error.__cause__


def _match(session: SparkSession, source: Input, query: Query) -> DataFrame:
    if isinstance(source.content, FileList):
        return op.match(source.content.files, query)
    return op.match(frame_of(session, source), query)


def frame_of(session: SparkSession, source: Input) -> DataFrame:
    """Return the rows of an input as they are."""
    content = source.content
    if isinstance(content, TextList):
        return _read_text(session, content)
    local = not any("://" in path for path in content.files.paths)
    if local and not any(group.constants for group in content.groups):
        # Spark's own reader leaves out what a statement does not use.
        return session.read.parquet(*(Path(file).as_uri() for file in source.files))
    return rows_frame(session, content, content.schema.names)


def _head(limit: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one row: the number of a part, how many rows it has, and the first ones."""
    kept: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if count < limit or not kept:
            kept.append(batch.slice(0, limit - count))
        count += batch.num_rows
    if not kept:
        return
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, kept[0].schema) as writer:
        for batch in kept:
            writer.write_batch(batch)
    context = TaskContext.get()
    assert context is not None
    yield pa.RecordBatch.from_pydict(
        {"part": [context.partitionId()], "count": [count], "head": [sink.getvalue()]},
        schema=pa.schema([("part", pa.int32()), ("count", pa.int64()), ("head", pa.binary())]),
    )


def _read_text(session: SparkSession, files: TextList) -> DataFrame:
    """Return the rows of text files; nothing is read before they are asked for.

    PyArrow reads them inside the tasks, a piece of a file in each: Spark's own readers do not say
    in which line of which file a bad value stands.
    """
    try:
        schema = from_arrow_schema(files.schema)
    except PySparkException as error:
        raise UnsupportedError(
            "a column has a type that Spark does not have", detail=str(files.schema)
        ) from error
    if not files.pieces:
        return session.createDataFrame([], schema)
    count = len(files.pieces)
    return session.range(0, count, 1, count).mapInArrow(partial(_read, files), schema=schema)


def _read(files: TextList, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from files.read(files.pieces[number])
