"""Arrow IPC streams that others may have written: none is larger in memory than its bytes.

Nothing here is written compressed, and a few bytes that are can stand for any number: such a stream
is refused before anything of it is decoded. Arrow does not tell whether a message is compressed, so
its few tables (flatbuffers) are looked into here.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

#: Fields of a message, of a dictionary batch and of a record batch, by their number in Arrow's
#: Message.fbs. Old streams say in the metadata of a message that it is compressed.
_HEADER, _METADATA, _ROWS_OF_DICTIONARY, _COMPRESSION = 2, 4, 1, 3

_OFFSET: Final = struct.Struct("<I")
_BACK: Final = struct.Struct("<i")
_PLACE: Final = struct.Struct("<H")


def check_uncompressed(stream: pa.Buffer) -> None:
    """Refuse a stream with compressed messages, or other bytes, with a ValueError.

    Examples
    --------
    >>> sink, table = pa.BufferOutputStream(), pa.table({"x": [1, 2]})
    >>> options = pa.ipc.IpcWriteOptions(compression="zstd")
    >>> with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
    ...     writer.write_table(table)
    >>> check_uncompressed(sink.getvalue())
    Traceback (most recent call last):
    ...
    ValueError: a message is compressed, which nothing here is
    """
    try:
        for message in pa.ipc.MessageReader.open_stream(stream):
            if message.type != "schema":
                _check(message.metadata, message.type == "dictionary")
    except (OSError, struct.error, pa.ArrowException) as error:
        raise ValueError(f"a message is damaged: {error}") from error


def _check(metadata: pa.Buffer, of_dictionary: bool) -> None:
    message = _OFFSET.unpack_from(metadata)[0]
    header = _table(metadata, message, _HEADER)
    if of_dictionary:
        header = _table(metadata, header, _ROWS_OF_DICTIONARY)
    if _place(metadata, message, _METADATA) or _place(metadata, header, _COMPRESSION):
        raise ValueError("a message is compressed, which nothing here is")


def _table(data: pa.Buffer, table: int, field: int) -> int:
    """Return where the table begins that a field of another one holds."""
    place = table + _place(data, table, field)
    return int(place + _OFFSET.unpack_from(data, place)[0])


def _place(data: pa.Buffer, table: int, field: int) -> int:
    """Return where a field lies behind the beginning of its table; 0 where there is none."""
    fields = table - _BACK.unpack_from(data, table)[0]
    size = _PLACE.unpack_from(data, fields)[0]
    entry = (2 + field) * _PLACE.size
    return int(_PLACE.unpack_from(data, fields + entry)[0]) if entry < size else 0
