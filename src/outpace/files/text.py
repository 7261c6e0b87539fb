"""CSV and JSON lines as input: found by path, typed from their beginning, read piece by piece.

`list_text` looks at the files on the driver: their headers, their sizes and the first block of the
first one. A `TextList` can be pickled; any task can read any of its pieces, and holds one block of
the piece and its rows. An error names the file, the line as an editor counts it, the column and the
value.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from outpace.errors import BindError, DataError, OutpaceError, Span, did_you_mean
from outpace.files.find import find_files
from outpace.files.text_lines import (
    BYTE_ORDER_MARK,
    PIECE_BYTES,
    TextPiece,
    blocks_of,
    first_line,
    line_number,
    open_text,
    pieces_of,
)
from outpace.files.text_parse import PARSE_ERRORS, TYPES_HINT, Fault, TextFormat, fault_of, parser
from outpace.files.text_schema import tell_schema
from outpace.pattern.notation.parse_type import parse_type


@dataclass(frozen=True)
class TextList:
    """Text files that were looked at, and how to read them.

    Parameters
    ----------
    format, delimiter
        How rows and values are written.
    filesystem
        Where the files are.
    schema
        The columns and their types.
    pieces
        What to read, in the order of the files' paths.
    """

    format: TextFormat
    delimiter: str
    filesystem: fs.FileSystem
    schema: pa.Schema
    pieces: tuple[TextPiece, ...]

    def read(self, piece: TextPiece) -> Iterator[pa.RecordBatch]:
        """Read the rows of a piece; an error names the file, the line and the column."""
        parse = parser(self.format, self.schema, piece.names, self.delimiter)
        try:
            with closing(open_text(self.filesystem, piece.path)) as file:
                for offset, block in blocks_of(file, piece):
                    try:
                        table = parse(block)
                    except PARSE_ERRORS:
                        fault = fault_of(
                            self.format, self.schema, piece.names, self.delimiter, block
                        )
                        raise _located(self.filesystem, piece.path, offset, fault) from None
                    yield from table.combine_chunks().to_batches()
        except OSError as error:
            raise _unreadable(piece.path, error) from error


def parse_schema(text: str) -> pa.Schema:
    """Read names and types of columns, written as in CREATE TABLE.

    Examples
    --------
    >>> parse_schema("ts bigint, kind string, price double").names
    ['ts', 'kind', 'price']
    >>> parse_schema("ts bigint, kind strin")
    Traceback (most recent call last):
    ...
    outpace.errors.PatternSyntaxError: [syntax] ...
    """
    prefix = "struct<"
    try:
        kind = parse_type(f"{prefix}{text}>", where="schema")
    except OutpaceError as error:
        if error.span is not None:
            start = min(max(0, error.span.start - len(prefix)), len(text))
            error.span = Span(start, max(start, min(error.span.end - len(prefix), len(text))))
        error.text = text
        raise
    fields = [kind.field(index) for index in range(kind.num_fields)]
    names = [field.name for field in fields]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise BindError(f"column '{repeated[0]}' is twice in the schema", where="schema")
    return pa.schema(fields)


def list_text(
    format: TextFormat,
    paths: Sequence[str],
    *,
    schema: pa.Schema | None = None,
    delimiter: str = ",",
    header: bool = True,
    piece_bytes: int = PIECE_BYTES,
) -> TextList:
    """Find text files and look at their beginnings.

    Parameters
    ----------
    format
        CSV or JSON lines.
    paths
        Files, folders, globs or addresses.
    schema
        The types of some columns, of all where there is no header. The others are told from the
        header and the first block of the first file with rows.
    delimiter, header
        What separates the values of CSV, and whether the first line names the columns.
    piece_bytes
        About how much a task reads.
    """
    known = pa.schema([]) if schema is None else schema
    if not header and not known.names:
        raise DataError("without a header the columns have no names", hint=TYPES_HINT)
    system, places = find_files(paths, None)
    heads = [_head(system, place.path, format, delimiter, header, known) for place in places]
    if format is TextFormat.CSV:
        for head in heads:
            _check_columns(head, (*heads[0].names, *known.names), heads[0].names)
    columns = _told_schema(system, format, delimiter, known, heads)
    pieces = [
        piece
        for head in heads
        for piece in pieces_of(system, head.path, head.names, head.start, piece_bytes)
    ]
    return TextList(format, delimiter, system, columns, tuple(pieces))


@dataclass(frozen=True, slots=True)
class _Head:
    """The beginning of a file: the columns that its header names, and where its rows start."""

    path: str
    names: tuple[str, ...]
    start: int


def _head(
    system: fs.FileSystem,
    path: str,
    format: TextFormat,
    delimiter: str,
    header: bool,
    known: pa.Schema,
) -> _Head:
    named = format is TextFormat.CSV and header
    try:
        with closing(open_text(system, path)) as file:
            line = first_line(file) if named else bytes(file.read(len(BYTE_ORDER_MARK)))
    except OSError as error:
        raise _unreadable(path, error) from error
    mark = len(BYTE_ORDER_MARK) if line.startswith(BYTE_ORDER_MARK) else 0
    if not named:
        return _Head(path, tuple(known.names) if format is TextFormat.CSV else (), mark)
    try:
        text = line[mark:].decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError("the header is not UTF-8", where=f"{path}, line 1") from error
    place = f"{path}, line 1"
    try:
        names = next(csv.reader([text.rstrip("\r\n")], delimiter=delimiter), [])
    except csv.Error as error:
        raise DataError("the header is not CSV", where=place, detail=str(error)) from error
    if not names:
        raise DataError("the file has no header", where=place, hint="CSV begins with names")
    for name, count in Counter(names).items():
        if count > 1:
            raise DataError(f"column '{name}' is twice in the header", where=place)
    return _Head(path, tuple(names), len(line))


def _check_columns(head: _Head, needed: Sequence[str], first: Sequence[str]) -> None:
    """Refuse a file that has not all columns, or others than the first file."""
    place = f"{head.path}, line 1"
    for name in needed:
        if name not in head.names:
            hint = did_you_mean(name, head.names)
            raise DataError(f"column '{name}' is not in the header", where=place, hint=hint)
    for name in head.names:
        if name not in first:
            raise DataError(f"column '{name}' is not in the first file", where=place)


def _told_schema(
    system: fs.FileSystem,
    format: TextFormat,
    delimiter: str,
    known: pa.Schema,
    heads: Sequence[_Head],
) -> pa.Schema:
    """Return the columns as the first block of the first file with rows tells them."""
    for head in heads:
        piece = TextPiece(head.path, head.names, head.start, None, aligned=True)
        try:
            with closing(open_text(system, head.path)) as file:
                _, block = next(blocks_of(file, piece), (0, b""))
        except OSError as error:
            raise _unreadable(head.path, error) from error
        if block.strip():
            answer = tell_schema(format, head.names, delimiter, known, block)
            if isinstance(answer, Fault):
                raise _located(system, head.path, head.start, answer)
            return answer
    if not heads[0].names and not known.names:
        raise DataError("the files have no rows to tell the columns from", hint=TYPES_HINT)
    types = {f.name: f.type for f in known}
    names = heads[0].names or tuple(types)
    return pa.schema([(name, types.get(name, pa.string())) for name in names])


def _located(system: fs.FileSystem, path: str, offset: int, fault: Fault) -> DataError:
    """Return the error of a line of the block that starts at a place of a file."""
    with closing(open_text(system, path)) as file:
        number = line_number(file, offset) + fault.index
    place = f"{path}, line {number}" + (f", column {fault.column}" if fault.column else "")
    return DataError(fault.message, where=place, detail=f"the line: {fault.line}", hint=fault.hint)


def _unreadable(path: str, error: OSError) -> DataError:
    return DataError(f"cannot read '{path}'", detail=str(error))
