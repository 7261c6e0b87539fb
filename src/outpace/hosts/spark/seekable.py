"""Logs behind streams on Spark that can be read again: event logs, Parquet files, logs of users.

Each row of a stream says where it lies: in which part of the log, and at which offset there. Blocks
of an event log say it in their own columns. Tasks read stretches of the log again by that.

Memory: a block of an event log, a piece of a row group, or what a log of a user yields.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from outpace.engine.codec.block import read_block
from outpace.engine.codec.stretch import LogStretch
from outpace.engine.recover.log_places import LogPiece
from outpace.engine.recover.protocol import SeekableLog
from outpace.errors import BindError, DataError, UnsupportedError, did_you_mean
from outpace.files.parquet import BATCH_ROWS, folder_values
from outpace.hosts.spark.log_source import LOG_KEY
from outpace.ingest.log.blocks import read_blocks
from outpace.ingest.log.options import check_start
from outpace.ingest.log.reader import Log
from outpace.plan.crossing import quoted


class ReadableLog(Protocol):
    """What tasks read again; `log` tells it from others."""

    @property
    def log(self) -> int:
        """Tells it from other logs."""

    def read(self, schema: pa.Schema, stretch: LogStretch) -> Iterator[LogPiece]:
        """Yield columns of the events in a stretch."""


@dataclass(frozen=True)
class StreamLog:
    """The log that a stream comes from.

    Parameters
    ----------
    log
        Reads it again.
    places
        The columns that say in which part of it each row lies, and where there; none where rows are
        blocks, which say it.
    """

    log: ReadableLog
    places: tuple[Column, ...] = ()


@dataclass(frozen=True)
class EventLog:
    """An event log.

    Parameters
    ----------
    path
        Its folder.
    log
        What tells it from others, wherever it is.
    on_damage
        What becomes of reading where events are lost.
    offsets
        The column of the stream's rows that has their offsets; None where it has blocks.
    """

    path: str
    log: int
    on_damage: str
    offsets: str | None = None

    def read(self, schema: pa.Schema, stretch: LogStretch) -> Iterator[LogPiece]:
        """Yield columns of the events in a stretch."""
        part, first, stop = stretch
        log = Log.open(self.path)
        check_start(log, stop)
        if self.offsets is None:
            for block in read_blocks(log, first, stop, on_damage=self.on_damage):
                place = LogStretch(part, block.first, block.stop)
                yield LogPiece(pa.table(read_block(block.data, schema)), place)
            return
        for low, batch in log.placed(first, stop, on_damage=self.on_damage):
            high = low + batch.num_rows
            rows = pa.Table.from_batches([batch])
            rows = rows.append_column(self.offsets, pa.array(np.arange(low, high)))
            yield LogPiece(_typed(rows, schema), LogStretch(part, low, high))


@dataclass(frozen=True)
class ParquetLog:
    """Parquet files that a stream of Spark lists; each is a part, by its address."""

    #: Saved stretches name the files.
    log: int = 0

    def read(self, schema: pa.Schema, stretch: LogStretch) -> Iterator[LogPiece]:
        """Yield columns of the rows in a stretch; what a file has not its folders say, or NULL."""
        part, first, stop = stretch
        try:
            yield from self._read(schema, part, first, stop)
        except (OSError, pa.ArrowException) as error:
            raise DataError(
                f"cannot read {part} again",
                detail=str(error),
                hint="keep the files that a stream still needs, where they were and as they were",
            ) from error

    def _read(self, schema: pa.Schema, part: str, first: int, stop: int) -> Iterator[LogPiece]:
        address = urlsplit(part)
        scheme, path = address.scheme.replace("s3a", "s3"), unquote(address.path)
        system, path = (
            (fs.LocalFileSystem(), path)
            if scheme in ("", "file")
            else fs.FileSystem.from_uri(f"{scheme}://{address.netloc}{path}")
        )
        with pq.ParquetFile(system.open_input_file(path), pre_buffer=False) as file:
            stored = {name.lower(): name for name in file.schema_arrow.names}
            columns = [stored[name.lower()] for name in schema.names if name.lower() in stored]
            low = 0
            for number in range(file.num_row_groups):
                high = low + file.metadata.row_group(number).num_rows
                if low < stop and first < high:
                    batches = file.iter_batches(
                        BATCH_ROWS, row_groups=[number], columns=columns, use_threads=False
                    )
                    for batch in batches:
                        begin, end = max(first - low, 0), min(stop - low, batch.num_rows)
                        if begin < end:
                            rows = pa.Table.from_batches([batch.slice(begin, end - begin)])
                            place = LogStretch(part, low + begin, low + end)
                            yield LogPiece(_typed(rows, schema, folder_values(path)), place)
                        low += batch.num_rows
                low = high


@dataclass(frozen=True)
class OwnLog:
    """A log of a user; its parts are named by their values as JSON."""

    given: SeekableLog

    @property
    def log(self) -> int:
        """Tells it from other logs."""
        named = hashlib.blake2b(self.given.name.encode(), digest_size=7).digest()
        return int.from_bytes(named, "big")

    def read(self, schema: pa.Schema, stretch: LogStretch) -> Iterator[LogPiece]:
        """Yield columns of the rows in a stretch."""
        part, first, stop = stretch
        for table in self.given.read(json.loads(part), first, stop):
            missing = {self.given.offset, *schema.names} - {*table.column_names}
            if missing:
                raise DataError(
                    f"the log '{self.given.name}' gives no column '{min(missing)}'",
                    hint="read gives the rows as the stream has them, with their offsets",
                )
            offsets = table.column(self.given.offset).cast(pa.int64()).to_numpy()
            inside = (offsets >= first) & (offsets < stop)
            rows, offsets = table.filter(pa.array(inside)), offsets[inside]
            if (np.diff(offsets) != 1).any():
                raise DataError(
                    f"the log '{self.given.name}' gives rows out of their order, or lacks some",
                    detail=f"offsets {first:,} to {stop:,} of {part}",
                )
            if len(offsets):
                place = LogStretch(part, int(offsets[0]), int(offsets[-1]) + 1)
                yield LogPiece(_typed(rows, schema), place)


def log_of(frame: DataFrame, given: SeekableLog | None) -> StreamLog:
    """Return the log that a stream comes from, which is given, or known by the stream.

    Raises
    ------
    UnsupportedError
        It comes from none that can be read again.
    """
    fields = frame.schema.fields
    if given is not None:
        return _own_log(frame, given)
    for field in fields:
        written = field.metadata.get(LOG_KEY)
        if written is not None:
            if field.name == "block":
                return StreamLog(EventLog(**json.loads(written)))
            log = EventLog(**json.loads(written), offsets=field.name)
            return StreamLog(log, (sf.lit(""), sf.col(quoted(field.name))))
    part, offset = (sf.col(f"_metadata.{name}") for name in ("file_path", "row_index"))
    try:
        # Spark tells the places of rows in Parquet files alone.
        known = frame.select(part, offset).schema.names
    except AnalysisException:
        known = []
    if known != ["file_path", "row_index"]:
        raise UnsupportedError(
            "a stream is recovered by a replay where it is a log that can be read again",
            hint='match spark.readStream.format("outpace.log").option("form", "blocks").load(path)'
            " or spark.readStream.parquet(path) as it is, or tell what reads another log: log=",
        )
    return StreamLog(ParquetLog(), (part, offset))


def _own_log(frame: DataFrame, given: SeekableLog) -> StreamLog:
    names = frame.schema.names
    for name in (*given.parts, given.offset):
        if name not in names:
            raise BindError(
                f"the log '{given.name}' goes by a column '{name}', which the stream has not",
                detail=f"it has {', '.join(names)}",
                where="log",
                hint=did_you_mean(name, names) or "keep the columns that say where a row lies",
            )
    parts = [sf.col(quoted(name)).alias(name) for name in given.parts]
    part = sf.to_json(sf.struct(*parts)) if parts else sf.lit("{}")
    return StreamLog(OwnLog(given), (part, sf.col(quoted(given.offset)).cast("long")))


def _typed(
    rows: pa.Table, schema: pa.Schema, constants: Mapping[str, str | None] | None = None
) -> pa.Table:
    """Return the columns of a schema, with its types; what rows lack is constant, or NULL."""
    known = {name.lower(): name for name in rows.column_names}
    filled = []
    for field in schema:
        name = known.get(field.name.lower())
        if name is None:
            value = pa.scalar((constants or {}).get(field.name), pa.string())
            filled.append(pa.repeat(value, rows.num_rows).cast(field.type))
            continue
        column = rows.column(name)
        filled.append(column if column.type == field.type else column.cast(field.type, safe=False))
    return pa.Table.from_arrays(filled, schema=schema)
