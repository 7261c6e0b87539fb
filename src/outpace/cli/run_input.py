"""The inputs of `outpace run`: named files, folders, globs and addresses, and what they hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Final

import pyarrow as pa

from outpace.errors import BindError, DataError, did_you_mean
from outpace.files.find import find_files
from outpace.files.parquet import FileList, RowGroup, list_files, parquet
from outpace.files.text import TextList, list_text, parse_schema
from outpace.files.text_lines import is_compressed
from outpace.files.text_parse import TextFormat

_NAMED: Final = re.compile(r"([A-Za-z_]\w*)=(.+)", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z_]\w*")


class DataFormat(Enum):
    """How rows are stored."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


_ENDINGS: Final = {
    ".parquet": DataFormat.PARQUET,
    ".pq": DataFormat.PARQUET,
    ".csv": DataFormat.CSV,
    ".json": DataFormat.JSON,
    ".jsonl": DataFormat.JSON,
    ".ndjson": DataFormat.JSON,
}


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How CSV and JSON lines are read: the types of columns, the delimiter, the header."""

    schema: str | None = None
    delimiter: str = ","
    header: bool = True


@dataclass(frozen=True)
class Input:
    """An input that was looked at.

    Parameters
    ----------
    name
        Its name in a statement; None where the path gives none.
    files
        The files that were found.
    content
        Their rows, read when they are needed.
    """

    name: str | None
    files: tuple[str, ...]
    content: FileList | TextList

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.content.schema


def format_named(name: str) -> DataFormat:
    """Return a format by its name.

    Examples
    --------
    >>> format_named("CSV")
    <DataFormat.CSV: 'csv'>
    """
    known = {one.value: one for one in DataFormat}
    if name.lower() not in known:
        hint = did_you_mean(name, known) or f"use one of {', '.join(known)}"
        raise BindError(f"there is no format '{name}'", hint=hint)
    return known[name.lower()]


def format_of(path: str) -> DataFormat | None:
    """Return the format that a path's ending tells.

    Examples
    --------
    >>> format_of("ticks.csv.gz"), format_of("notes.txt")
    (<DataFormat.CSV: 'csv'>, None)
    """
    return _ENDINGS.get(PurePosixPath(_unpacked(path)).suffix.lower())


def read_inputs(
    texts: Sequence[str], format: DataFormat | None, options: TextOptions
) -> list[Input]:
    """Find the files of all inputs and look at them.

    Parameters
    ----------
    texts
        Each a path, or `name=path`. The same name may come several times.
    format
        What the files are; by default their endings tell.
    options
        How text is read.
    """
    if not texts:
        raise DataError("there is no input", hint="--input ticks.parquet")
    grouped: dict[str | None, list[str]] = {}
    for text in texts:
        name, path = split_name(text)
        if name is None and None in grouped:
            raise DataError(f"the path '{path}' gives no name", hint="--input name=path")
        grouped.setdefault(name, []).append(path)
    return [_read(name, tuple(paths), format, options) for name, paths in grouped.items()]


def split_name(text: str) -> tuple[str | None, str]:
    """Return the name and the path of an input.

    Examples
    --------
    >>> split_name("ticks=data/2024-*.parquet"), split_name("data/ticks.csv.gz")
    (('ticks', 'data/2024-*.parquet'), ('ticks', 'data/ticks.csv.gz'))
    >>> split_name("data/2024-*.parquet"), split_name("./day=1/ticks.parquet")
    (('data', 'data/2024-*.parquet'), ('ticks', './day=1/ticks.parquet'))
    """
    named = _NAMED.fullmatch(text)
    if named and not Path(text).exists():
        return named[1], named[2]
    path = PurePosixPath(_unpacked(text))
    words = [path.stem, *(parent.name for parent in path.parents)]
    return next((word for word in words[:2] if _WORD.fullmatch(word)), None), text


def damage_named_in(message: str, inputs: Sequence[Input]) -> DataError | None:
    """Return where a Parquet file that a failure names cannot be read, if it cannot.

    What the file holds is read again, one column of one row group at a time.
    """
    for source in inputs:
        listing = source.content
        if isinstance(listing, FileList):
            for group in listing.groups:
                if group.path in message:
                    for column in listing.schema.names:
                        error = _unreadable(listing, group, column)
                        if error is not None:
                            return error
    return None


def _unreadable(listing: FileList, group: RowGroup, column: str) -> DataError | None:
    try:
        listing.read(group, [column])
    except DataError as error:
        return DataError(
            f"cannot read column '{column}' in {group.name}", detail=error.detail, hint=error.hint
        )
    return None


def _unpacked(path: str) -> str:
    """Return a path without the ending of a compressed file."""
    return path.rpartition(".")[0] if is_compressed(path) else path


def _read(
    name: str | None, paths: tuple[str, ...], format: DataFormat | None, options: TextOptions
) -> Input:
    _, places = find_files(paths, None)
    files = tuple(place.path for place in places)
    kind = format or _told_format(files)
    if kind is DataFormat.PARQUET:
        if options.schema is not None:
            raise BindError("Parquet has its own schema", hint="--schema goes with CSV and JSON")
        return Input(name, files, list_files(parquet(list(paths))))
    listed = list_text(
        TextFormat.CSV if kind is DataFormat.CSV else TextFormat.JSON,
        paths,
        schema=None if options.schema is None else parse_schema(options.schema),
        delimiter=options.delimiter,
        header=options.header or kind is DataFormat.JSON,
    )
    return Input(name, files, listed)


def _told_format(files: Sequence[str]) -> DataFormat:
    kinds: dict[DataFormat, str] = {}
    for file in files:
        kind = format_of(file)
        if kind is None:
            raise DataError(
                f"the ending of '{file}' tells no format", hint="--format parquet, csv or json"
            )
        kinds.setdefault(kind, file)
    if len(kinds) > 1:
        raise DataError(
            "the files of an input have different formats",
            detail="\n".join(kinds.values()),
            hint="give each a name of its own: --input name=path",
        )
    return next(iter(kinds))
