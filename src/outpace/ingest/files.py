"""Files as sources: Parquet, CSV and JSON lines, replayed in the order of their rows.

Files come in the order of their paths. A file that has a column `seq` brings its own sequence
numbers; else rows are counted from 0. A reader holds one row group, or one block of text.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from outpace.errors import DataError, did_you_mean
from outpace.files.parquet import list_files
from outpace.files.parquet import parquet as parquet_files
from outpace.files.text import list_text, parse_schema
from outpace.files.text_parse import TextFormat
from outpace.ingest.source import BATCH_ROWS, SEQUENCE, Source
from outpace.pattern.argument import a_flag, a_text

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"


def parquet(path: Paths, *, time: str = "ts", id: str | None = None) -> ParquetSource:
    """Replay Parquet files.

    Parameters
    ----------
    path
        A file, a folder, a glob, an address that `pyarrow.fs` reads, or a list of these.
    time
        The column with the time of each event.
    id
        The source's identifier; the name of the first file, without its ending, by default.

    Examples
    --------
    >>> parquet("events/*.parquet", id="plant 1")
    ParquetSource(id='plant 1', time='ts', paths=('events/*.parquet',))
    """
    paths = parquet_files(path).paths
    return ParquetSource(_name(paths) if id is None else id, paths, time=time)


def csv(
    path: Paths,
    *,
    time: str = "ts",
    id: str | None = None,
    schema: str | None = None,
    delimiter: str = ",",
    header: bool = True,
) -> TextSource:
    """Replay CSV files.

    Parameters
    ----------
    path, time, id
        As for `parquet`.
    schema
        The types of some columns, of all without a header: "ts timestamp, price double".
    delimiter, header
        What separates values, and whether the first line names the columns.

    Examples
    --------
    >>> csv("ticks.csv").format
    <TextFormat.CSV: 'CSV'>
    """
    paths = parquet_files(path).paths
    return TextSource(
        _name(paths) if id is None else id,
        paths,
        TextFormat.CSV,
        schema,
        delimiter,
        header,
        time=time,
    )


def json_lines(
    path: Paths, *, time: str = "ts", id: str | None = None, schema: str | None = None
) -> TextSource:
    """Replay files of JSON lines; `schema` tells the types of some columns.

    Parameters
    ----------
    path, time, id
        As for `parquet`.
    schema
        The types of some columns: "ts timestamp, price double".

    Examples
    --------
    >>> json_lines("ticks.jsonl", schema="ts timestamp").schema
    'ts timestamp'
    """
    paths = parquet_files(path).paths
    return TextSource(
        _name(paths) if id is None else id, paths, TextFormat.JSON, schema, ",", True, time=time
    )


@dataclass(frozen=True)
class _RowFiles(Source):
    """Files that are read row by row, in order."""

    paths: tuple[str, ...]

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield all events from the beginning, at most `rows` at a time."""
        count = 0
        for table in self._tables(rows):
            for batch in table.to_batches(max_chunksize=rows):
                yield self._numbered(batch, count)
                count += batch.num_rows

    @abstractmethod
    def _tables(self, rows: int) -> Iterator[pa.Table]:
        """Yield the rows of the files in order."""

    def _numbered(self, batch: pa.RecordBatch, count: int) -> pa.RecordBatch:
        if self.time not in batch.schema.names:
            raise DataError(
                f"source '{self.id}' has no column '{self.time}' of times",
                hint=did_you_mean(self.time, batch.schema.names) or 'name it: time="column"',
            )
        if SEQUENCE in batch.schema.names:
            return batch
        numbers = np.arange(count, count + batch.num_rows, dtype=np.int64)
        return batch.append_column(SEQUENCE, pa.array(numbers))


@dataclass(frozen=True)
class ParquetSource(_RowFiles):
    """See `parquet`."""

    def _tables(self, rows: int) -> Iterator[pa.Table]:
        listed = list_files(parquet_files(self.paths))
        for group in listed.groups:
            yield from listed.batches(group, listed.schema.names, rows)


@dataclass(frozen=True)
class TextSource(_RowFiles):
    """See `csv` and `json_lines`."""

    format: TextFormat
    schema: str | None
    delimiter: str
    header: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schema is not None:
            a_text(self.schema, "the schema of a source", error=DataError)
        if len(a_text(self.delimiter, "a delimiter", error=DataError)) != 1:
            raise DataError(f"the delimiter is one character, not {self.delimiter!r}")
        a_flag(self.header, "header", error=DataError)

    def _tables(self, rows: int) -> Iterator[pa.Table]:
        known = None if self.schema is None else parse_schema(self.schema)
        listed = list_text(
            self.format, self.paths, schema=known, delimiter=self.delimiter, header=self.header
        )
        for piece in listed.pieces:
            for batch in listed.read(piece):
                yield pa.Table.from_batches([batch])


def _name(paths: tuple[str, ...]) -> str:
    return PurePosixPath(paths[0]).stem
