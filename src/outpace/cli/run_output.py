"""The output of `outpace run`: a file, a folder, or rows on the console.

Nothing half-written is left: Spark writes its parts into a hidden folder beside the target; they
are joined there, and the target appears in one step, when all is done. What was there before is
replaced only then. The driver holds one batch of rows at a time, or the first rows of each part.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf

from outpace.cli.run_input import DataFormat, format_of
from outpace.errors import BindError, DataError
from outpace.plan.text_lines import is_compressed
from outpace.spark.schema import arrow_schema

#: Times with all their microseconds: Spark's own formats stop at milliseconds.
_TIMES: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

#: How Spark writes text, so that what is written can be read again without loss.
TEXT_OPTIONS: Final = {
    DataFormat.CSV: {"escape": '"', **_TIMES},
    DataFormat.JSON: {"ignoreNullFields": "false", **_TIMES},
    DataFormat.PARQUET: {},
}

#: What a folder that Spark has written holds.
_WRITTEN: Final = re.compile(r"\.?(part-.*|_SUCCESS.*)|\.crc")

_COPY_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """Where the rows go.

    Parameters
    ----------
    path
        A file or a folder; None for standard output.
    format
        How they are written; None for a table to look at.
    folder
        Whether the path is a folder that Spark fills with parts.
    overwrite
        Whether something that is there already may be replaced.
    """

    path: Path | None
    format: DataFormat | None
    folder: bool = False
    overwrite: bool = False


def target_of(
    output: str | None,
    format: DataFormat | None,
    *,
    overwrite: bool = False,
    inputs: Sequence[str] = (),
) -> Target:
    """Return where rows go, after all checks that need no rows.

    Parameters
    ----------
    output
        A path; a folder where it ends in `/`. None for standard output.
    format
        How rows are written; by default the ending tells, Parquet in a folder.
    overwrite
        Whether something that is there already may be replaced.
    inputs
        The files that are read; none of them may be replaced.
    """
    if output is None:
        if format is DataFormat.PARQUET:
            raise BindError("Parquet does not go to the console", hint="--output matches.parquet")
        return Target(None, format)
    if "://" in output:
        raise BindError(f"cannot write to the address '{output}'", hint="--output takes a path")
    path = Path(output).expanduser().absolute()
    folder = output.endswith(("/", os.sep)) or path.is_dir()
    kind = format or (DataFormat.PARQUET if folder else format_of(output))
    if kind is None:
        raise BindError(
            f"the ending of '{output}' tells no format",
            hint="--output-format parquet, csv or json; a folder ends in /",
        )
    if not path.parent.is_dir():
        raise DataError(f"there is no folder '{path.parent}' for the output")
    if kind is DataFormat.PARQUET and is_compressed(output):
        raise BindError("Parquet compresses by itself", hint="let the path end in .parquet")
    _check_free(path, folder, overwrite, inputs)
    return Target(path, kind, folder, overwrite)


def _check_free(path: Path, folder: bool, overwrite: bool, inputs: Sequence[str]) -> None:
    for file in inputs:
        if Path(file) == path or (folder and path in Path(file).parents):
            raise DataError(f"the output '{path}' would replace the input '{file}'")
    if folder and path.is_dir() and not any(path.iterdir()):
        return
    if not path.exists():
        return
    if not overwrite:
        raise DataError(f"there is something at '{path}' already", hint="--overwrite replaces it")
    if path.is_dir():
        other = [one.name for one in path.iterdir() if not _WRITTEN.fullmatch(one.name)]
        if other:
            raise DataError(
                f"the folder '{path}' holds more than an output",
                detail=", ".join(sorted(other)[:5]),
                hint="only a folder that Spark has written is replaced",
            )


def write_rows(frame: DataFrame, target: Target) -> int:
    """Run the jobs of a DataFrame, write its rows and return how many there are."""
    assert target.path is not None
    assert target.format is not None
    with _beside(target.path) as hidden:
        if target.folder:
            rows = _write_parts(frame, hidden / "parts", target.format, header=True)
            _replace_folder(hidden, target.path)
        else:
            rows = _write_parts(frame, hidden / "parts", target.format, header=False)
            joined = hidden / target.path.name
            with _opened(joined) as file:
                _join(frame, hidden / "parts", target.format, file)
            joined.replace(target.path)
    return rows


def print_rows(
    frame: DataFrame, format: DataFormat, out: BinaryIO, before_printing: Callable[[], None]
) -> int:
    """Run the jobs of a DataFrame, then write its rows to a stream as CSV or JSON lines."""
    with tempfile.TemporaryDirectory(prefix="outpace-") as folder:
        parts = Path(folder) / "parts"
        rows = _write_parts(frame, parts, format, header=False)
        before_printing()
        _join(frame, parts, format, out)
    out.flush()
    return rows


def first_rows(frame: DataFrame, limit: int) -> tuple[pa.Table, int]:
    """Run the jobs of a DataFrame once; return its first rows and how many there are.

    Each part sends its first `limit` rows, so the driver holds that many times the parts.
    """
    schema = arrow_schema(frame)
    # PySpark would take a name with a dot for a path, so columns are numbered on the way.
    numbered = frame.toDF(*(f"_{number}" for number in range(len(schema))))
    heads = numbered.mapInArrow(
        partial(_head, limit), schema="part int, count bigint, head binary"
    ).collect()
    tables = []
    for head in sorted(heads, key=lambda row: int(row["part"])):
        with pa.ipc.open_stream(bytes(head["head"])) as reader:
            tables.append(reader.read_all().rename_columns(schema.names))
    found = pa.concat_tables(tables) if tables else schema.empty_table()
    return found.slice(0, limit), sum(int(head["count"]) for head in heads)


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


def _write_parts(frame: DataFrame, parts: Path, format: DataFormat, *, header: bool) -> int:
    """Let Spark write the rows as parts and return how many rows there are."""
    counter = Observation()
    counted = frame.observe(counter, sf.count(sf.lit(1)).alias("rows"))
    writer = counted.write.options(**TEXT_OPTIONS[format])
    if format is DataFormat.CSV:
        writer = writer.option("header", header)
    writer.format(format.value).save(parts.as_uri())
    if not parts.is_dir():
        raise DataError(
            "Spark has written its parts to another machine",
            detail=f"they are not at '{parts}'",
            hint="write to a folder that this machine and Spark's share",
        )
    return int(counter.get["rows"])


def _join(frame: DataFrame, parts: Path, format: DataFormat, out: BinaryIO) -> None:
    """Write the rows of all parts to one stream, in the order of the parts."""
    files = sorted(one for one in parts.iterdir() if one.name.startswith("part-"))
    if format is DataFormat.PARQUET:
        _join_parquet(files, arrow_schema(frame), out)
        return
    if format is DataFormat.CSV:
        names = io.StringIO()
        csv.writer(names, lineterminator="\n").writerow(frame.columns)
        out.write(names.getvalue().encode())
    for file in files:
        with file.open("rb") as part:
            shutil.copyfileobj(part, out, _COPY_BYTES)


def _join_parquet(files: Sequence[Path], schema: pa.Schema, out: BinaryIO) -> None:
    with pq.ParquetWriter(out, schema) as writer:
        for file in files:
            with pq.ParquetFile(file) as part:
                for batch in part.iter_batches():
                    writer.write_table(pa.Table.from_batches([batch]).cast(schema))


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write; what its ending says about compression holds."""
    if is_compressed(path.name):
        with pa.output_stream(str(path), compression="detect") as stream:
            yield stream
    else:
        with path.open("wb") as file:
            yield file


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Give a hidden folder beside a path, gone afterwards whatever happens."""
    hidden = path.parent / f".{path.name}.{uuid.uuid4().hex[:12]}.partial"
    hidden.mkdir()
    try:
        yield hidden
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _replace_folder(hidden: Path, target: Path) -> None:
    """Put the parts in the place of a folder; what was there comes back if that fails."""
    before = hidden / "before"
    with suppress(FileNotFoundError):
        target.rename(before)
    try:
        (hidden / "parts").rename(target)
    except OSError:
        if before.exists():
            before.rename(target)
        raise
