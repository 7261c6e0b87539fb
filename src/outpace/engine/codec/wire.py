"""Events on the wire: a block with a header, the same in a pipe, in a file and in a cell.

The header says which stream and source the events are of, what they are ordered by (the first and
the last time and sequence number), how far time has got and how long the block is; a checksum
covers all of it. Numbers are little-endian:

    magic `OPWB`, version, kind, CRC-32 of the kind and all that follows,
    length of the stream's name, of the source's, number of rows, length of the body,
    first time, first number, last time, last number, watermark,
    the two names, zeros up to a multiple of 8, the body

The body is a block (`outpace.engine.codec.block`). Sequence numbers without gaps are not in it: the
header tells them. In blocks of a thousand a SimpleEvent takes less than 6 bytes and a StockEvent
less than 20; section 5.1 of the paper has 16 and 38. Nothing is ever unpickled; damage is refused.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.codec.block import block_cells, narrow_rows, read_block
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.times import as_integers
from outpace.errors import DataError

Data: TypeAlias = "bytes | memoryview | pa.Buffer"

VERSION: Final = 1
_MAGIC: Final = b"OPWB"
_START: Final = struct.Struct("<4sBBI")
_REST: Final = struct.Struct("<HHIQ5q")
_NAME_BYTES_MAX: Final = 0xFFFF
#: How many bytes tell how long a header is, and with it the whole block.
FIXED_BYTES: Final = _START.size + _REST.size


class MessageKind(IntEnum):
    """What a block says."""

    #: The next events of a source.
    EVENTS = 1
    #: No later event of the source has a time before the watermark.
    HEARTBEAT = 2
    #: The source has ended.
    END = 3


@dataclass(frozen=True)
class Header:
    """What a block says of itself.

    Parameters
    ----------
    kind
        What it is.
    stream, source
        Which events these are.
    rows
        How many.
    first, last
        Time and sequence number of the first and of the last event.
    watermark
        No later event of the source has a time less than this.
    body_bytes
        The length of what follows the header.
    """

    kind: MessageKind
    stream: str
    source: str
    rows: int = 0
    first: tuple[int, int] = (0, 0)
    last: tuple[int, int] = (0, 0)
    watermark: int = int(NO_TIME)
    body_bytes: int = 0


def write_events(
    stream: str,
    source: str,
    rows: pa.Table,
    *,
    time: str = "ts",
    sequence: str = "seq",
    watermark: int = int(NO_TIME),
) -> bytes:
    """Write the next events of a source as a block.

    Parameters
    ----------
    stream, source
        Which events these are.
    rows
        At least one event, in the source's order, all columns without the order's included.
    time, sequence
        The columns with the times and the sequence numbers.
    watermark
        What the source promises of its later events; the last time at least.

    Examples
    --------
    >>> rows = pa.table({"ts": [5, 6, 6], "seq": [0, 1, 2], "type": ["a", "b", "a"]})
    >>> block = write_events("doors", "west", rows)
    >>> header = read_header(block)
    >>> header.source, header.rows, header.first, header.last
    ('west', 3, (5, 0), (6, 2))
    >>> read_events(block, rows.schema).equals(rows)
    True
    """
    columns = {name: one_array(rows[name]) for name in rows.column_names}
    if not rows.num_rows or columns[time].null_count or columns[sequence].null_count:
        raise DataError(f"a block needs events, each with '{time}' and '{sequence}'")
    times, numbers = as_integers(columns[time]), as_integers(columns[sequence])
    if numbers[-1] - numbers[0] == len(numbers) - 1 and (np.diff(numbers) == 1).all():
        del columns[sequence]
    (cell,) = block_cells([narrow_rows(columns)])
    header = Header(
        MessageKind.EVENTS,
        stream,
        source,
        rows.num_rows,
        (int(times[0]), int(numbers[0])),
        (int(times[-1]), int(numbers[-1])),
        max(watermark, int(times[-1])),
        len(cell.as_buffer()),
    )
    return _joined(header, cell.as_buffer())


def write_mark(kind: MessageKind, stream: str, source: str, watermark: int = int(NO_TIME)) -> bytes:
    """Write a heartbeat, or the end of a source, as a block without events.

    Examples
    --------
    >>> read_header(write_mark(MessageKind.HEARTBEAT, "doors", "west", 7)).watermark
    7
    """
    return _joined(Header(kind, stream, source, watermark=watermark), b"")


def block_bytes(data: Data) -> int:
    """Return the length of a block from its first `FIXED_BYTES` bytes, to know what to read.

    Examples
    --------
    >>> block = write_mark(MessageKind.END, "doors", "west")
    >>> block_bytes(block[:FIXED_BYTES]) == len(block)
    True
    """
    if len(data) < FIXED_BYTES:
        raise _cut_short(len(data), FIXED_BYTES)
    magic, version, _, _ = _START.unpack_from(data)
    if magic != _MAGIC:
        raise DataError("these bytes are not a block of events")
    if version != VERSION:
        raise DataError(f"the block has version {version}, this release reads version {VERSION}")
    stream, source, _, body, *_ = _REST.unpack_from(data, _START.size)
    return _padded(FIXED_BYTES + stream + source) + int(body)


def read_header(data: Data) -> Header:
    """Return what a block says of itself, once its checksum fits.

    Raises
    ------
    DataError
        If the block is damaged, cut short, or of another version.
    """
    size = block_bytes(data)
    if len(data) != size:
        raise _cut_short(len(data), size)
    view = memoryview(data)
    _, _, kind, checksum = _START.unpack_from(view)
    if zlib.crc32(view[_START.size :], kind) != checksum:
        raise DataError("the block is damaged", detail="its checksum does not fit its content")
    stream, source, rows, body, *keys = _REST.unpack_from(view, _START.size)
    middle = FIXED_BYTES + stream
    try:
        names = str(view[FIXED_BYTES:middle], "utf-8"), str(view[middle : middle + source], "utf-8")
        said = MessageKind(kind)
    except ValueError as error:
        raise DataError("the header of the block cannot be read", detail=str(error)) from error
    return Header(
        said,
        *names,
        rows,
        (keys[0], keys[1]),
        (keys[2], keys[3]),
        keys[4],
        body,
    )


def read_events(data: Data, schema: pa.Schema, *, sequence: str = "seq") -> pa.Table:
    """Return the events of a block with the columns of a schema, others are left where they are.

    Columns are not copied where they need not be widened.
    """
    header = read_header(data)
    body = pa.py_buffer(data).slice(len(data) - header.body_bytes)
    try:
        columns = read_block(body, schema, checked=True)
        if any(len(column) != header.rows for column in columns.values()):
            raise DataError(f"the block does not have {header.rows} rows as its header says")
        if sequence not in columns:
            numbers = np.arange(header.first[1], header.first[1] + header.rows, dtype=np.int64)
            columns[sequence] = pa.array(numbers).cast(schema.field(sequence).type)
    except (ValueError, ArithmeticError, OSError, pa.ArrowException) as error:
        # The checksum fits, so nothing was damaged on the way: it was written by somebody else.
        raise DataError("the body of the block cannot be read", detail=str(error)) from error
    missing = [name for name in schema.names if name not in columns]
    if missing:
        raise DataError(f"the block has no column '{missing[0]}'")
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _joined(header: Header, body: pa.Buffer | bytes) -> bytes:
    stream, source = header.stream.encode(), header.source.encode()
    for name in (stream, source):
        if len(name) > _NAME_BYTES_MAX:
            raise DataError("the name of a stream or source is too long", detail=name[:80].decode())
    fixed = _REST.pack(
        len(stream), len(source), header.rows, len(body), *header.first, *header.last,
        header.watermark,
    )  # fmt: skip
    named = fixed + stream + source
    # What follows is a multiple of 8 away from the beginning, so a body lies as its block does.
    named = named.ljust(_padded(_START.size + len(named)) - _START.size, b"\0")
    checksum = zlib.crc32(body, zlib.crc32(named, header.kind))
    return b"".join([_START.pack(_MAGIC, VERSION, header.kind, checksum), named, body])


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def _cut_short(size: int, expected: int) -> DataError:
    return DataError("the block is cut short or too long", detail=f"{size} of {expected} bytes")
