"""The output of `outpace run`: a file, a folder, or rows on the console, wherever they are found.

Nothing half-written is left: parts are written into a hidden folder beside the target; they are
joined there, and the target appears in one step, when all is done. What was there before is
replaced only then. One batch of rows is held at a time.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from outpace.cli.run_input import DataFormat, format_of
from outpace.errors import BindError, DataError
from outpace.files.text_lines import is_compressed

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
    """

    path: Path | None
    format: DataFormat | None
    folder: bool = False


class CommandResult(Protocol):
    """What a query finds, on some host; nothing is computed before it is asked for."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, with the types that Spark has for them."""

    def write_parts(self, folder: Path, format: DataFormat, *, header: bool) -> int:
        """Write the rows into a new folder, as Spark does, and return how many there are."""

    def first_rows(self, limit: int) -> tuple[pa.Table, int]:
        """Return the first rows, and how many there are."""


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
    check_writable(path.parent, path)
    if kind is DataFormat.PARQUET and is_compressed(output):
        raise BindError("Parquet compresses by itself", hint="let the path end in .parquet")
    _check_free(path, folder, overwrite, inputs)
    return Target(path, kind, folder)


def check_writable(folder: Path, output: Path) -> None:
    """Refuse an output whose folder does not exist, or where nothing can be made."""
    if not folder.is_dir():
        raise DataError(f"there is no folder '{folder}' for the output")
    try:
        # What the system says of rights is not all: root may write, but not into /proc.
        with _hidden_in(folder):
            pass
    except OSError as error:
        raise DataError(
            f"the output '{output}' cannot be written",
            detail=f"the system refuses a new file in '{folder}': {error.strerror}",
        ) from error


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


def write_rows(result: CommandResult, target: Target) -> int:
    """Write the rows of a result and return how many there are."""
    assert target.path is not None
    assert target.format is not None
    with _hidden_in(target.path.parent) as hidden:
        if target.folder:
            rows = result.write_parts(hidden / "parts", target.format, header=True)
            _replace_folder(hidden, target.path)
        else:
            rows = result.write_parts(hidden / "parts", target.format, header=False)
            joined = hidden / target.path.name
            with _opened(joined) as file:
                _join(result.schema, hidden / "parts", target.format, file)
            joined.replace(target.path)
    return rows


def print_rows(
    result: CommandResult, format: DataFormat, out: BinaryIO, before_printing: Callable[[], None]
) -> int:
    """Write the rows of a result to a stream as CSV or JSON lines."""
    with tempfile.TemporaryDirectory(prefix="outpace-") as folder:
        parts = Path(folder) / "parts"
        rows = result.write_parts(parts, format, header=False)
        before_printing()
        _join(result.schema, parts, format, out)
    out.flush()
    return rows


def _join(schema: pa.Schema, parts: Path, format: DataFormat, out: BinaryIO) -> None:
    """Write the rows of all parts to one stream, in the order of the parts."""
    files = sorted(one for one in parts.iterdir() if one.name.startswith("part-"))
    if format is DataFormat.PARQUET:
        _join_parquet(files, schema, out)
        return
    if format is DataFormat.CSV:
        names = io.StringIO()
        csv.writer(names, lineterminator="\n").writerow(schema.names)
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
def _hidden_in(folder: Path) -> Iterator[Path]:
    """Give a hidden folder inside a folder, gone afterwards whatever happens."""
    # The output's name is no part of this one: it may be as long as names can be.
    hidden = folder / f".outpace-{uuid.uuid4().hex[:12]}.partial"
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
