"""Rows of CSV and JSON lines as a DataFrame, read by PyArrow inside the tasks.

One task per piece of a file, so a large file is read by several; each holds one block at a time.
Spark's own readers do not say in which line of which file a bad value stands; these do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from outpace.errors import UnsupportedError
from outpace.files.text import TextList


def read_text(session: SparkSession, files: TextList) -> DataFrame:
    """Return the rows of text files; nothing is read before they are asked for."""
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
