"""One segment of an event log: its headers from the index, or from the frames where it is damaged.

Reading never takes more of the file into memory than one frame. Damage is a value: who reads says
whether it ends the reading or is skipped and counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.errors import DataError
from outpace.files.small_file import open_regular
from outpace.ingest.log.folder import Folder
from outpace.ingest.log.frame import (
    HEADER_BYTES,
    HEADERS,
    MAGIC,
    Headers,
    LogFrame,
    SyncPoint,
    frame_of,
    payload_checksum,
    read_header,
    read_mark,
    whole_headers,
    write_header,
)

#: How much is read at once when the next whole frame after a damaged one is searched for.
_SEARCH_BYTES: Final = 2**20
_NONE: Final = np.zeros(0, HEADERS)
_BROKEN: Final = "a frame is not what its checksum says"
_SHORT: Final = "a segment is cut short or missing"
_LOST: Final = "frames that were forced to the disk are damaged or gone"
_UNMARKED: Final = "the index is damaged, and so is what follows the last whole frame"


@dataclass(frozen=True, slots=True)
class Damage:
    """Events that cannot be read.

    Parameters
    ----------
    file, position
        Where: the file, and the byte at which the damage begins.
    first, stop
        The offsets of the events that are lost.
    reason
        What is wrong.
    marked
        Whether a crash took them before they were forced to the disk, and a writer has marked them:
        this ends no reading.
    """

    file: str
    position: int
    first: int
    stop: int
    reason: str
    marked: bool = False

    @property
    def events(self) -> int:
        """How many events are lost."""
        return self.stop - self.first

    def error(self) -> DataError:
        """Return the damage as an error."""
        return DataError(
            f"the event log is damaged: {self.reason}",
            detail=f"{self.file}, byte {self.position}, offsets {self.first} to {self.stop - 1}",
            hint='on_damage="skip" goes on behind it and counts what is lost',
        )


@dataclass(frozen=True)
class Segment:
    """The headers of a segment, and what of it is damaged.

    Parameters
    ----------
    base
        The offset that it begins with.
    headers
        Its whole frames.
    damage
        Stretches between them, and behind them, that cannot be read.
    size
        The size of the file with the frames.
    """

    base: int
    headers: Headers
    damage: tuple[Damage, ...]
    size: int

    @property
    def stop(self) -> int:
        """The offset after the last event, also where that one cannot be read."""
        lost = self.damage[-1].stop if self.damage else self.base
        if not len(self.headers):
            return lost
        return max(lost, int(self.headers[-1]["first"]) + int(self.headers[-1]["events"]))

    @property
    def end(self) -> int:
        """Where the last whole frame ends."""
        return int(_ends(self.headers)[-1]) if len(self.headers) else 0


class SegmentReader:
    """The file with the frames of a segment, open for reading."""

    def __init__(self, path: Path, handle: int, salt: int) -> None:
        self.path, self._handle, self._salt = path, handle, salt

    def size(self) -> int:
        """Return the size of the file."""
        return os.fstat(self._handle).st_size

    def read(self, position: int, length: int) -> pa.Buffer:
        """Return bytes, fewer where the file ends."""
        space = pa.allocate_buffer(length, resizable=True)
        view, done = memoryview(space), 0
        while done < length:
            got = os.preadv(self._handle, [view[done:]], position + done)
            if not got:
                break
            done += got
        view.release()
        return space.slice(0, done)

    def header_at(self, position: int) -> LogFrame | None:
        """Return the frame that a header at a place tells, if there is one."""
        frame = read_header(self.read(position, HEADER_BYTES), self._salt)
        return frame if frame is not None and frame.position == position else None

    def frame_at(self, position: int) -> LogFrame | None:
        """Return the frame at a place, if there is a whole one."""
        frame = self.header_at(position)
        return frame if frame is not None and self.payload(frame) is not None else None

    def payload(self, frame: LogFrame) -> pa.Buffer | None:
        """Return the payload of a frame, or nothing where it is damaged."""
        if frame.end > self.size():
            return None  # Before there is any room for what it says of its length.
        payload = self.read(frame.position + HEADER_BYTES, frame.length)
        if len(payload) != frame.length or (
            payload_checksum(payload, self._salt) != frame.payload_checksum
        ):
            return None
        return payload

    def next_frame(self, position: int, first: int) -> LogFrame | None:
        """Return the first whole frame from a place on, with offsets from `first` on."""
        place = -(-position // 8) * 8
        # Frames begin at multiples of 8, so the magic is never cut by the end of what is read.
        while len(data := self.read(place, _SEARCH_BYTES).to_pybytes()) >= HEADER_BYTES:
            found = data.find(MAGIC)
            while found >= 0:
                frame = self.frame_at(place + found) if found % 8 == 0 else None
                if frame is not None and frame.first >= first:
                    return frame
                found = data.find(MAGIC, found + 1)
            place += _SEARCH_BYTES
        return None


@contextmanager
def open_segment(folder: Folder, base: int) -> Iterator[SegmentReader]:
    """Open the file with the frames of a segment."""
    path = folder.events_file(base)
    handle = open_regular(path)
    try:
        yield SegmentReader(path, handle, folder.salt)
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Index:
    """What an index says.

    Parameters
    ----------
    headers
        The headers up to the first bytes that are none.
    synced
        How much of the segment was forced to the disk, as far as the index knows.
    marked
        Whether the index says so. It does before there are frames, unless it is damaged.
    damaged
        Whether there is no index or no mark in it, or a header follows bytes that are none.
    garbage
        Whether other bytes than zeros follow the headers: damage, or a header that is just being
        written. Zeros are room for the next headers.
    """

    headers: Headers
    synced: SyncPoint
    marked: bool
    damaged: bool
    garbage: bool


def read_index(folder: Folder, base: int, after: int = 0) -> Index:
    """Read the index of a segment, without some headers at its beginning."""
    try:
        with os.fdopen(open_regular(folder.index_file(base)), "rb", buffering=0) as file:
            # The mark first: the headers that it speaks of were there before it.
            first = file.read(HEADER_BYTES)
            file.seek((1 + after) * HEADER_BYTES)
            data = file.read()
    except FileNotFoundError:
        first = data = b""
    synced = read_mark(first, folder.salt)
    marked = synced is not None
    headers = whole_headers(data, folder.salt)
    rest = data[headers.nbytes :]
    later = range(HEADER_BYTES, len(rest.rstrip(b"\0")), HEADER_BYTES)
    damaged = any(read_header(rest[at : at + HEADER_BYTES], folder.salt) for at in later)
    return Index(headers, synced or SyncPoint(0, base), marked, damaged or not marked, any(rest))


def read_closed(folder: Folder, base: int, stop: int) -> Segment:
    """Read a segment that another follows, which begins with offset `stop`."""
    path = folder.events_file(base)
    size = _size(path)
    index = read_index(folder, base)
    segment = _indexed_segment(path, base, index.headers, size)
    if index.damaged or segment is None or segment.stop != stop or segment.end > size:
        segment = scan(folder, base)
    if segment.stop == stop:
        return segment
    return lost_behind(segment, path, stop, _SHORT)


def read_last(folder: Folder, base: int, before: Segment | None = None) -> Segment:
    """Read the segment that the writer is at, or was: what is torn at its end is left out.

    Parameters
    ----------
    folder, base
        The log, and the offset that the segment begins with.
    before
        What was read before: what was whole then is not checked again.
    """
    known = before.headers if before is not None and before.base == base else _NONE
    index = read_index(folder, base, after=max(0, len(known) - 1))
    headers = index.headers
    if len(known) and len(headers) and headers[0] == known[-1]:
        headers = np.concatenate([known, headers[1:]])
    elif len(known):
        index = read_index(folder, base)
        headers = index.headers
    path = folder.events_file(base)
    size = _size(path)
    whole = headers[: np.searchsorted(_ends(headers), size, "right")]
    segment = _indexed_segment(path, base, whole, size)
    if index.damaged or segment is None or segment.stop < index.synced.stop:
        segment = scan(folder, base)
    segment = with_lost(folder, segment, index)
    seen = before if before is not None and before.base == base else segment
    if segment.stop < seen.stop and seen.end <= size:
        # Frames that were read before their headers were in the index, which is only just made.
        return seen
    return segment


def with_lost(folder: Folder, segment: Segment, index: Index) -> Segment:
    """Return the last segment with what is damaged at its end, and not torn.

    What was forced to the disk is never torn. Where the index has lost its mark, nobody knows how
    much that was, so all that follows the last whole frame is damaged.
    """
    path = folder.events_file(segment.base)
    shown = Segment(segment.base, index.headers, (), 0).stop
    if segment.stop < index.synced.stop:
        return lost_behind(segment, path, max(shown, index.synced.stop))
    if not index.marked and segment.end < segment.size:
        shown = max(shown, _told_behind(folder, segment))
    # A writer that has begun the segment meanwhile marks the index before it writes frames.
    if index.marked or shown <= segment.stop or read_index(folder, segment.base).marked:
        return segment
    return lost_behind(segment, path, shown, _UNMARKED)


def _told_behind(folder: Folder, segment: Segment) -> int:
    """Return the offset that damaged bytes at the end go up to, as far as headers tell it."""
    position, stop = segment.end, segment.stop
    with open_segment(folder, segment.base) as reader:
        while (frame := reader.header_at(position)) is not None and frame.first >= stop:
            position, stop = frame.end, frame.stop
    # Without any header there was at least one event.
    return max(stop, segment.stop + 1)


def lost_behind(segment: Segment, path: Path, stop: int, reason: str = _LOST) -> Segment:
    """Return a segment with what is lost at its end, up to some offset."""
    lost = Damage(str(path), segment.end, segment.stop, stop, reason)
    return Segment(segment.base, segment.headers, (*segment.damage, lost), segment.size)


def _indexed_segment(path: Path, base: int, headers: Headers, size: int) -> Segment | None:
    """Return a segment as its index tells it, or nothing where the index contradicts itself.

    Where a header does not follow the one before it, the writer found damage in between.
    """
    stops = np.append(base, headers["first"] + headers["events"])
    ends = np.append(0, _ends(headers))
    if (headers["first"] < stops[:-1]).any() or (headers["position"] < ends[:-1]).any():
        return None
    damage = [
        Damage(str(path), int(ends[row]), int(stops[row]), int(headers[row]["first"]), _BROKEN)
        for row in np.flatnonzero(headers["first"] != stops[:-1])
    ]
    return Segment(base, headers, tuple(damage), size)


def scan(folder: Folder, base: int) -> Segment:
    """Read a segment frame by frame, with all payloads; the index has but headers that are lost."""
    frames: list[LogFrame] = []
    damage: list[Damage] = []
    position, offset = 0, base
    size = _size(folder.events_file(base))
    if not size:
        return Segment(base, _NONE, (), 0)
    index = {int(record["position"]): record for record in read_index(folder, base).headers}
    with open_segment(folder, base) as reader:
        size = reader.size()
        while position < size:
            frame = reader.frame_at(position)
            if frame is None and position in index:
                known = frame_of(index[position])
                frame = known if reader.payload(known) is not None else None
            if frame is None or frame.first < offset:
                frame = reader.next_frame(position + 8, offset)
                if frame is None:
                    break
            if frame.first > offset:
                damage.append(Damage(str(reader.path), position, offset, frame.first, _BROKEN))
            frames.append(frame)
            position, offset = frame.end, frame.stop
    data = b"".join(write_header(frame, folder.salt) for frame in frames)
    return Segment(base, np.frombuffer(data, HEADERS), tuple(damage), size)


def _size(path: Path) -> int:
    """Return the size of a file, 0 where there is none."""
    try:
        handle = open_regular(path)
    except FileNotFoundError:
        return 0
    try:
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


def _ends(headers: Headers) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    lengths = headers["length"].astype(np.int64)
    return np.asarray(headers["position"] + HEADER_BYTES + -(-lengths // 8) * 8, np.int64)
