"""What `outpace log append` reads: files and standard input, line by line where they are text.

A line that is not an event, or an event without a usable time, ends the command with an error that
names its place, or goes to the file that `--rejected` names, as one JSON object with the place, the
reason and the line. Memory: one block of lines, or one piece of a row group.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Final

import numpy as np
import pyarrow as pa

from outpace.cli.run_input import DataFormat, format_of
from outpace.errors import DataError
from outpace.ingest.log.rows import invalid_times, reason_of
from outpace.plan.files import FileList, list_files, parquet
from outpace.plan.find_files import find_files
from outpace.plan.text_files import TextList, list_text
from outpace.plan.text_lines import (
    BYTE_ORDER_MARK,
    LINE_BYTES_MAX,
    PIECE_BYTES,
    TextPiece,
    blocks_of,
    line_number,
    open_text,
    pieces_of,
)
from outpace.plan.text_parse import PARSE_ERRORS, Fault, Parse, TextFormat, fault_of, parser

#: What is read from standard input at once, at most.
_READ_BYTES: Final = 2**20


@dataclass
class Rejected:
    """Where bad lines and events go; without a file they end the command."""

    file: IO[str] | None = None
    count: int = field(default=0, init=False)

    def line(self, place: str, fault: Fault) -> None:
        """Reject a line."""
        where = place + (f", column {fault.column}" if fault.column else "")
        if self.file is None:
            detail, hint = f"the line: {fault.line}", fault.hint or _HINT
            raise DataError(fault.message, where=where, detail=detail, hint=hint)
        self._write({"place": where, "reason": fault.message, "line": fault.line})

    def events(self, place: str, rows: pa.Table, time: str) -> pa.Table:
        """Reject events without a usable time and return the others."""
        invalid = invalid_times(rows[time])
        if not invalid.any():
            return rows
        for row in np.flatnonzero(invalid).tolist():
            reason = reason_of(rows[time], time, row)
            if self.file is None:
                raise DataError(reason, where=f"{place}, row {row} of what was read", hint=_HINT)
            (event,) = rows.drop_columns([time]).slice(row, 1).to_pylist()
            self._write({"place": place, "reason": reason, "event": event})
        return rows.filter(pa.array(~invalid))

    def _write(self, said: dict[str, object]) -> None:
        assert self.file is not None
        self.file.write(json.dumps(said, ensure_ascii=False, default=str) + "\n")
        self.count += 1


_HINT: Final = "--rejected FILE keeps such lines apart and goes on"


def find_input(
    path: str,
    kind: DataFormat | None,
    known: pa.Schema | None,
    whole: bool,
    delimiter: str,
    header: bool,
) -> FileList | TextList:
    """Find the files of one path and look at them.

    Parameters
    ----------
    path
        A file, a folder, a glob or an address.
    kind
        What the files are; by default their endings tell.
    known, whole
        The types of some columns, and whether there are no others. Then the lines of JSON are not
        asked which columns there are, so the first ones may be bad.
    delimiter, header
        How CSV is written.
    """
    system, places = find_files([path], None)
    kinds = {kind or format_of(place.path) for place in places}
    if kinds == {DataFormat.PARQUET}:
        return list_files(parquet([path]))
    if len(kinds) > 1 or None in kinds:
        raise DataError(f"'{path}' tells no single format", hint="--format parquet, csv or json")
    if kinds == {DataFormat.CSV}:
        return list_text(TextFormat.CSV, [path], schema=known, delimiter=delimiter, header=header)
    if known is None or not whole:
        return list_text(TextFormat.JSON, [path], schema=known)
    pieces: list[TextPiece] = []
    for place in places:
        with closing(open_text(system, place.path)) as file:
            marked = bytes(file.read(len(BYTE_ORDER_MARK))) == BYTE_ORDER_MARK
        start = len(BYTE_ORDER_MARK) if marked else 0
        pieces += pieces_of(system, place.path, (), start, PIECE_BYTES)
    return TextList(TextFormat.JSON, delimiter, system, known, tuple(pieces))


def input_tables(
    content: FileList | TextList, rejected: Rejected
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of files in order, each table with its place."""
    if isinstance(content, FileList):
        for group in content.groups:
            for table in content.batches(group, content.schema.names):
                yield group.name, table
        return
    yield from _text_tables(content, rejected)


def _text_tables(content: TextList, rejected: Rejected) -> Iterator[tuple[str, pa.Table]]:
    for piece in content.pieces:
        arguments = (content.format, content.schema, piece.names, content.delimiter)
        with closing(open_text(content.filesystem, piece.path)) as file:
            for offset, block in blocks_of(file, piece):
                number = _numbering(content, piece.path, offset)
                for table in _good_rows(arguments, block, piece.path, number, rejected):
                    yield piece.path, table


def _numbering(content: TextList, path: str, offset: int) -> Callable[[], int]:
    """Return what counts the lines before a block, where that is asked for."""

    def count() -> int:
        with closing(open_text(content.filesystem, path)) as file:
            return line_number(file, offset)

    return count


def standard_input(schema: pa.Schema, rejected: Rejected) -> Iterator[tuple[str, pa.Table]]:
    """Yield events from JSON lines on standard input, as soon as their lines have come."""
    arguments = (TextFormat.JSON, schema, schema.names, ",")
    rest, lines = b"", 1
    while data := os.read(sys.stdin.fileno(), _READ_BYTES):
        whole, line_end, rest = (rest + data).rpartition(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise DataError("a line is too long", where=f"standard input, line {lines}")
        for table in _good_rows(arguments, whole, "standard input", partial(int, lines), rejected):
            yield "standard input", table
        lines += whole.count(b"\n") + len(line_end)
    for table in _good_rows(arguments, rest, "standard input", partial(int, lines), rejected):
        yield "standard input", table


def _good_rows(
    arguments: tuple[TextFormat, pa.Schema, Sequence[str], str],
    block: bytes,
    name: str,
    number: Callable[[], int],
    rejected: Rejected,
) -> Iterator[pa.Table]:
    """Yield the rows of a block but for those of bad lines, which are rejected."""
    parse = parser(*arguments)
    lines = block.split(b"\n")
    counted: list[int] = []

    def reject(index: int) -> None:
        if not counted:
            counted.append(number())
        fault = fault_of(*arguments, lines[index])
        rejected.line(f"{name}, line {counted[0] + index}", fault)

    yield from _halved(parse, lines, 0, len(lines), reject)


def _halved(
    parse: Parse, lines: list[bytes], low: int, high: int, reject: Callable[[int], None]
) -> Iterator[pa.Table]:
    """Parse lines together; where that fails, each half on its own, down to a single line."""
    try:
        table = parse(b"\n".join(lines[low:high]))
    except PARSE_ERRORS:
        if high - low == 1:
            reject(low)
            return
        middle = (low + high) // 2
        yield from _halved(parse, lines, low, middle, reject)
        yield from _halved(parse, lines, middle, high, reject)
    else:
        if table.num_rows:
            yield table
