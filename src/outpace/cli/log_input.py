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
from typing import IO, Final, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.cli.run_input import DataFormat, format_of
from outpace.engine.rows.times import invalid_times, reason_of
from outpace.errors import DataError
from outpace.files.find import find_files
from outpace.files.parquet import FileList, list_files, parquet
from outpace.files.text import TextList, list_text
from outpace.files.text_lines import (
    BYTE_ORDER_MARK,
    LINE_BYTES_MAX,
    PIECE_BYTES,
    TextPiece,
    blocks_of,
    line_number,
    open_text,
    pieces_of,
)
from outpace.files.text_parse import PARSE_ERRORS, Fault, TextFormat, fault_of, parser

#: What is read from standard input at once, at most.
_READ_BYTES: Final = 2**20


#: Says where a row of a table was read.
PlaceOfRow: TypeAlias = Callable[[int], str]

_HINT: Final = "--rejected FILE keeps such lines apart and goes on"


@dataclass
class RejectedInput:
    """Where bad lines and events go; without a file they end the command."""

    file: IO[str] | None = None
    count: int = field(default=0, init=False)

    def line(self, place: str, fault: Fault, line: bytes) -> None:
        """Reject a line."""
        where = place + (f", column {fault.column}" if fault.column else "")
        if self.file is None:
            detail, hint = f"the line: {fault.line}", fault.hint or _HINT
            raise DataError(fault.message, where=where, detail=detail, hint=hint)
        self._write(
            {"place": where, "reason": fault.message, "line": line.decode("utf-8", "replace")}
        )

    def events(self, place: PlaceOfRow, rows: pa.Table, time: str) -> pa.Table:
        """Reject events without a usable time and return the others."""
        invalid = invalid_times(rows[time])
        for row in np.flatnonzero(invalid).tolist():
            reason = reason_of(rows[time], time, row)
            if self.file is None:
                raise DataError(reason, where=place(row), hint=_HINT)
            # Python has no dates outside of the range, so the time is in the reason alone.
            (event,) = rows.drop_columns([time]).slice(row, 1).to_pylist()
            self._write({"place": place(row), "reason": reason, "event": event})
        return rows.filter(pa.array(~invalid)) if invalid.any() else rows

    def _write(self, record: dict[str, object]) -> None:
        assert self.file is not None
        self.file.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")
        self.count += 1


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
    content: FileList | TextList, rejected: RejectedInput
) -> Iterator[tuple[PlaceOfRow, pa.Table]]:
    """Yield the rows of files in order, each table with what tells where its rows are."""
    if isinstance(content, TextList):
        yield from _text_tables(content, rejected)
        return
    for group in content.groups:
        first = 0
        for table in content.batches(group, content.schema.names):
            yield partial(_row_place, group.name, first), table
            first += table.num_rows


def standard_input(
    schema: pa.Schema, rejected: RejectedInput
) -> Iterator[tuple[PlaceOfRow, pa.Table]]:
    """Yield events from JSON lines on standard input, as soon as their lines have come."""
    rest, number = b"", 1
    while data := os.read(sys.stdin.fileno(), _READ_BYTES):
        whole, line_end, rest = (rest + data).rpartition(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise DataError("a line is too long", where=f"standard input, line {number}")
        lines = _Lines("standard input", whole.split(b"\n"), partial(int, number))
        yield from lines.tables((TextFormat.JSON, schema, schema.names, ","), rejected)
        number += whole.count(b"\n") + len(line_end)
    lines = _Lines("standard input", rest.split(b"\n"), partial(int, number))
    yield from lines.tables((TextFormat.JSON, schema, schema.names, ","), rejected)


def _row_place(name: str, first: int, row: int) -> str:
    return f"{name}, row {first + row}"


def _text_tables(
    content: TextList, rejected: RejectedInput
) -> Iterator[tuple[PlaceOfRow, pa.Table]]:
    for piece in content.pieces:
        with closing(open_text(content.filesystem, piece.path)) as file:
            for offset, block in blocks_of(file, piece):
                number = partial(_line_number, content, piece.path, offset)
                lines = _Lines(piece.path, block.split(b"\n"), number)
                form = (content.format, content.schema, piece.names, content.delimiter)
                yield from lines.tables(form, rejected)


def _line_number(content: TextList, path: str, offset: int) -> int:
    with closing(open_text(content.filesystem, path)) as file:
        return line_number(file, offset)


@dataclass(frozen=True)
class _Lines:
    """Lines of a file, and what counts the number of the first, where that is asked for."""

    name: str
    lines: list[bytes]
    number: Callable[[], int]

    def tables(
        self, form: tuple[TextFormat, pa.Schema, Sequence[str], str], rejected: RejectedInput
    ) -> Iterator[tuple[PlaceOfRow, pa.Table]]:
        """Yield the rows but for those of bad lines, which are rejected."""
        parse = parser(*form)
        # Lines are parsed together; where that fails, each half on its own, down to a single line.
        open_ranges = [(0, len(self.lines))]
        while open_ranges:
            low, high = open_ranges.pop()
            try:
                table = parse(b"\n".join(self.lines[low:high]))
            except PARSE_ERRORS:
                if high - low > 1:
                    middle = (low + high) // 2
                    open_ranges += [(middle, high), (low, middle)]
                    continue
                line = self.lines[low]
                rejected.line(
                    f"{self.name}, line {self.number() + low}", fault_of(*form, line), line
                )
            else:
                if table.num_rows:
                    yield partial(self._place, low, high), table

    def _place(self, low: int, high: int, row: int) -> str:
        filled = [index for index in range(low, high) if self.lines[index].strip()]
        return f"{self.name}, line {self.number() + filled[row]}"
