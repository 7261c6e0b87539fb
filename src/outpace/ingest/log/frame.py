"""Frames: what a segment of an event log is a run of, and the headers that its index repeats.

A frame is a header of 64 bytes, then its payload: a block of events
(`outpace.engine.codec.block`), with zeros up to a multiple of 8. The index of a segment is the
headers of its frames, one after the other, behind a mark of the same size that says how much of the
segment was forced to the disk.
Numbers are little-endian:

    magic `OPLF`, version, kind, CRC-32 of the rest of the header, CRC-32 of the payload,
    length of the payload, number of events, position of the frame in its segment,
    first offset, least and greatest event time, time of arrival

    magic `OPLS`, version, 0, CRC-32 of the rest of the mark, 0, where the last frame that is on the
    disk ends, the offset after its last event, zeros

Checksums start from a number that the log drew when it was made, so what looks like a frame inside
a payload is none. A recorded stream (`outpace.hosts.local.recording`) is a run of frames, too, of
kinds of its own; the offset is the number of a step there. So are the stimuli of a retained log
(`outpace.ingest.retained_log`): the offset is how many events came before, the time is the turn.

A frame is no message (`outpace.engine.wire`) and no saved state (`outpace.engine.state`), although
its payload may be one: only files are torn by a crash, read from the middle and repaired, which is
what the header is for.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

VERSION: Final = 1
MAGIC: Final = b"OPLF"
HEADER: Final = struct.Struct("<4sHHIIIIqqqqq")
HEADER_BYTES: Final = HEADER.size
#: The part of a header that its own checksum is not in.
_CHECKED_AT: Final = 12
_MARK_MAGIC: Final = b"OPLS"
_MARK: Final = struct.Struct("<4sHHIIqq32x")
#: Offsets and positions are below this, so that sums of them are in range.
LIMIT: Final = 2**62
_NAMES: Final = (
    "magic", "version", "kind", "checksum", "payload_checksum", "length", "events", "position",
    "first", "least", "greatest", "arrival",
)  # fmt: skip
_KINDS: Final = ("S4", "<u2", "<u2", "<u4", "<u4", "<u4", "<u4", "<i8", "<i8", "<i8", "<i8", "<i8")
#: An index as an array: the fields of a header.
HEADERS: Final = np.dtype(list(zip(_NAMES, _KINDS, strict=True)))

Headers: TypeAlias = "npt.NDArray[Any]"
Data: TypeAlias = "bytes | memoryview | pa.Buffer"


class FrameKind(IntEnum):
    """What a frame says."""

    EVENTS = 1
    """These events came."""
    CUT = 2
    """Events that had these offsets are lost: a crash took them, and the writer went on."""
    SCHEMA = 3
    """In a recording: rows have these columns from here on."""
    STATE = 4
    """In a recording: the stream goes on from this saved state."""
    STIMULUS = 5
    """In a recording: this happened."""
    OUTCOME = 6
    """In a recording: this came of it."""


_KNOWN: Final = [int(kind) for kind in FrameKind]


@dataclass(frozen=True, slots=True)
class LogFrame:
    """A frame without its payload.

    Parameters
    ----------
    kind
        The kind of its content.
    position, length
        Where in its segment it begins, and the length of its payload in bytes.
    first, events
        The offset of its first event, and how many it has.
    least, greatest
        The least and the greatest event time.
    arrival
        When the events came, in microseconds since 1970.
    payload_checksum
        The CRC-32 of the payload.
    """

    kind: FrameKind
    position: int
    length: int
    first: int
    events: int
    least: int
    greatest: int
    arrival: int
    payload_checksum: int

    @property
    def stop(self) -> int:
        """The offset after the last event."""
        return self.first + self.events

    @property
    def end(self) -> int:
        """Where in the segment the next frame begins."""
        return self.position + frame_bytes(self.length)


class SyncPoint(NamedTuple):
    """How much of a segment was forced to the disk: up to which byte, and up to which offset."""

    end: int
    stop: int


def frame_bytes(length: int) -> int:
    """Return the size of a frame with a payload of some length.

    Examples
    --------
    >>> frame_bytes(9)
    80
    """
    return HEADER_BYTES + -(-length // 8) * 8


def write_header(frame: LogFrame, salt: int) -> bytes:
    """Return the header of a frame.

    Examples
    --------
    >>> frame = LogFrame(FrameKind.EVENTS, 0, 8, 100, 2, 5, 6, 1_000_000, 0)
    >>> data = write_header(frame, salt=7)
    >>> len(data), read_header(data, salt=7) == frame, read_header(data, salt=8)
    (64, True, None)
    """
    rest = HEADER.pack(
        MAGIC,
        VERSION,
        frame.kind,
        0,
        frame.payload_checksum,
        frame.length,
        frame.events,
        frame.position,
        frame.first,
        frame.least,
        frame.greatest,
        frame.arrival,
    )
    return _with_checksum(rest, salt)


def frame_parts(frame: LogFrame, payload: Data, salt: int) -> list[Data]:
    """Return what is written of a frame: its header, the payload, and zeros."""
    padding = bytes(frame_bytes(frame.length) - HEADER_BYTES - frame.length)
    return [write_header(frame, salt), payload, padding]


def write_mark(synced: SyncPoint, salt: int) -> bytes:
    """Return the mark that an index begins with.

    Examples
    --------
    >>> data = write_mark(SyncPoint(640, 100), salt=7)
    >>> len(data), read_mark(data, salt=7), read_mark(data, salt=8)
    (64, SyncPoint(end=640, stop=100), None)
    """
    return _with_checksum(_MARK.pack(_MARK_MAGIC, VERSION, 0, 0, 0, *synced), salt)


def read_mark(data: bytes, salt: int) -> SyncPoint | None:
    """Return what a mark says, or nothing where the bytes are none."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, _, checksum, _, end, stop = _MARK.unpack_from(data)
    if magic != _MARK_MAGIC or version != VERSION or _header_checksum(data, salt) != checksum:
        return None
    return SyncPoint(end, stop) if 0 <= end < LIMIT and 0 <= stop < LIMIT else None


def read_header(data: Data, salt: int) -> LogFrame | None:
    """Return the frame that a header tells, or nothing where the bytes are no header."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, kind, checksum, payload, length, events, *numbers = HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION or kind not in _KNOWN:
        return None
    if _header_checksum(data, salt) != checksum:
        return None
    position, first, least, greatest, arrival = numbers
    if not (0 <= position < LIMIT and 0 <= first < LIMIT):
        return None
    return LogFrame(
        FrameKind(kind), position, length, first, events, least, greatest, arrival, payload
    )


def frame_of(record: np.void) -> LogFrame:
    """Return the frame of a row of an index."""
    return LogFrame(
        FrameKind(int(record["kind"])),
        *(int(record[name]) for name in LogFrame.__slots__[1:]),
    )


def whole_headers(data: bytes, salt: int) -> Headers:
    """Return the headers of an index up to the first bytes that are none.

    Examples
    --------
    >>> data = write_header(LogFrame(FrameKind.EVENTS, 0, 8, 100, 2, 5, 6, 1_000_000, 0), salt=7)
    >>> whole_headers(data + bytes(64), salt=7)["first"].tolist()
    [100]
    """
    headers = np.frombuffer(data, HEADERS, count=len(data) // HEADER_BYTES)
    known = (
        np.isin(headers["kind"], _KNOWN)
        & (headers["magic"] == MAGIC)
        & (headers["version"] == VERSION)
    )
    for name in ("position", "first"):
        known &= (headers[name] >= 0) & (headers[name] < LIMIT)
    count = len(headers) if known.all() else int(known.argmin())
    for number, checksum in enumerate(headers["checksum"][:count].tolist()):
        place = number * HEADER_BYTES
        if _header_checksum(data[place : place + HEADER_BYTES], salt) != checksum:
            return headers[:number]
    return headers[:count]


def payload_checksum(payload: Data, salt: int) -> int:
    """Return the checksum of a payload."""
    return zlib.crc32(payload, salt)


def _with_checksum(header: bytes, salt: int) -> bytes:
    checksum = struct.pack("<I", _header_checksum(header, salt))
    return header[: _CHECKED_AT - 4] + checksum + header[_CHECKED_AT:]


def _header_checksum(data: Data, salt: int) -> int:
    return zlib.crc32(data[_CHECKED_AT:HEADER_BYTES], zlib.crc32(data[: _CHECKED_AT - 4], salt))
