"""The lines of text files: cut into pieces for tasks, and into blocks for parsers.

A piece is a range of bytes, or a whole file where it is compressed, and holds the lines that start
in it, so every line is in one piece. A block is whole lines of at most `BLOCK_BYTES`, longer only
where a single line is, up to `LINE_BYTES_MAX`; a reader holds one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyarrow import fs

from outpace.errors import DataError

#: A task reads about this many bytes.
PIECE_BYTES: Final = 64 << 20
#: What is parsed at once.
BLOCK_BYTES: Final = 4 << 20
#: The longest line that is read.
LINE_BYTES_MAX: Final = 64 << 20
#: What may stand at the beginning of a file in UTF-8.
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

_HEADER_BYTES: Final = 1 << 16
#: The endings of compressed files that Arrow unpacks.
_COMPRESSED: Final = frozenset({"bz2", "gz", "lz4", "zst"})


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A part of a file: the lines that start in a range of its bytes.

    Parameters
    ----------
    path, names
        The file, and the columns of its header (of the schema for JSON lines).
    start, end
        The range; `end` is None for the whole rest.
    aligned
        Whether a line starts at `start`; else the one that is cut there belongs to the piece
        before.
    """

    path: str
    names: tuple[str, ...]
    start: int
    end: int | None
    aligned: bool


def open_text(system: fs.FileSystem, path: str) -> pa.NativeFile:
    """Open a file from its beginning; one that is compressed, as its ending says, is unpacked."""
    if is_compressed(path):
        return system.open_input_stream(path, compression="detect")
    return system.open_input_file(path)


def is_compressed(path: str) -> bool:
    """Say whether a file is compressed, which its ending tells.

    Examples
    --------
    >>> is_compressed("ticks.csv.gz"), is_compressed("ticks.csv")
    (True, False)
    """
    return path.rpartition(".")[2].lower() in _COMPRESSED


def pieces_of(
    system: fs.FileSystem, path: str, names: tuple[str, ...], start: int, piece_bytes: int
) -> Iterator[TextPiece]:
    """Cut what follows the header of a file into pieces of about equal size."""
    if is_compressed(path):
        yield TextPiece(path, names, start, None, aligned=True)
        return
    size = system.get_file_info(path).size or 0
    count = max(1, round((size - start) / piece_bytes)) if size > start else 0
    borders = [start + (size - start) * number // count for number in range(count)] + [size]
    for number in range(count):
        yield TextPiece(path, names, borders[number], borders[number + 1], aligned=number == 0)


def first_line(file: pa.NativeFile) -> bytes:
    """Return the first line of a file with its end."""
    line: bytes = b""
    while len(line) < LINE_BYTES_MAX:
        more = file.read(_HEADER_BYTES)
        line += more
        end = line.find(b"\n")
        if end >= 0:
            return line[: end + 1]
        if not more:
            break
    return line


def blocks_of(file: pa.NativeFile, piece: TextPiece) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a piece in blocks, each with its place in the file."""
    # The byte before the piece tells whether a line starts with it.
    offset = piece.start if piece.aligned else piece.start - 1
    _go_to(file, offset)
    held = b""
    skipping = not piece.aligned
    while piece.end is None or offset < piece.end:
        more = file.read(BLOCK_BYTES)
        held += more
        if skipping:
            cut = held.find(b"\n") + 1
            skipping = not cut
            offset += cut or len(held)
            held = held[cut:] if cut else b""
            if more:
                continue
        cut = held.rfind(b"\n") + 1 if more else len(held)
        block, held = held[:cut], held[cut:]
        if len(held) > LINE_BYTES_MAX:
            message = f"a line is longer than {LINE_BYTES_MAX >> 20} MiB"
            raise DataError(message, where=f"{piece.path}, byte {offset + cut}")
        if piece.end is not None and offset + cut >= piece.end:
            block = block[: _line_end(block, piece.end - offset)]
            more = b""
        if block:
            yield offset, block
        if not more:
            return
        offset += cut


def line_number(file: pa.NativeFile, offset: int) -> int:
    """Return the number of the line that starts at a place, counted from 1."""
    number = 1
    while offset:
        read = file.read(min(offset, BLOCK_BYTES))
        if not read:
            break
        number += read.count(b"\n")
        offset -= len(read)
    return number


def _line_end(block: bytes, at: int) -> int:
    """Return where the last line that starts before a place ends."""
    return block.find(b"\n", max(0, at - 1)) + 1 or len(block)


def _go_to(file: pa.NativeFile, place: int) -> None:
    if file.seekable():
        file.seek(place)
        return
    while place:
        read = len(file.read(min(place, BLOCK_BYTES)))
        place = place - read if read else 0
