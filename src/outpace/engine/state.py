"""Saved state: a small header and Arrow tables in one checked, versioned run of bytes.

Layout: the magic `OUTPACE`, a version byte, the CRC-32 of all that follows, the length of a JSON
header, the header, then one Arrow IPC stream per table. Nothing is ever unpickled; damage, another
version and another query are told apart and refused with a clear error.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from outpace.errors import StateError
from outpace.pattern.argument import an_instance

VERSION: Final = 1
_MAGIC: Final = b"OUTPACE"
_FRAME: Final = struct.Struct("<7sBII")
_LENGTH: Final = struct.Struct("<Q")


def pack(header: Mapping[str, object], tables: Sequence[pa.Table]) -> bytes:
    """Turn a header of plain JSON values and tables into bytes.

    Examples
    --------
    >>> header, tables = unpack(pack({"rows": 2}, [pa.table({"x": [1, 2]})]))
    >>> header["rows"], tables[0]["x"].to_pylist()
    (2, [1, 2])
    """
    text = json.dumps(dict(header), separators=(",", ":")).encode()
    parts = [text]
    for table in tables:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        content = sink.getvalue().to_pybytes()
        parts += [_LENGTH.pack(len(content)), content]
    body = b"".join(parts)
    return _FRAME.pack(_MAGIC, VERSION, zlib.crc32(body), len(text)) + body


def unpack(data: bytes) -> tuple[dict[str, object], list[pa.Table]]:
    """Read what `pack` wrote; raise `StateError` for anything else."""
    hint = "pass the bytes that state() returned"
    an_instance(data, bytes | bytearray | memoryview, "saved state", hint=hint, error=StateError)
    if len(data) < _FRAME.size:
        raise StateError("the saved state is cut short", detail=f"{len(data)} bytes")
    magic, version, checksum, header_size = _FRAME.unpack_from(data)
    if magic != _MAGIC:
        raise StateError("these bytes are not saved state of Outpace")
    if version != VERSION:
        raise StateError(
            f"the saved state has version {version}, this release reads version {VERSION}",
            hint="go on with the release that wrote it, or start again from the input",
        )
    body = memoryview(data)[_FRAME.size :]
    if zlib.crc32(body) != checksum:
        raise StateError(
            "the saved state is damaged", detail="its checksum does not fit its content"
        )
    header = json.loads(bytes(body[:header_size]))
    tables = []
    place = header_size
    while place < len(body):
        (size,) = _LENGTH.unpack_from(body, place)
        place += _LENGTH.size
        with pa.ipc.open_stream(pa.py_buffer(bytes(body[place : place + size]))) as reader:
            tables.append(reader.read_all())
        place += size
    return header, tables
