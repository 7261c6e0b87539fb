"""What a writer does first: look at the end of the log, cut what is torn, and make the index whole.

Bytes behind the last whole frame are a torn tail, unless a whole frame follows them, they were
forced to the disk, or the index has lost the mark that says how much was: then they are damage,
which stays as it is for readers to meet, and the writer goes on behind it, in a new segment where
it is the end of this one. Where the index says that there were more events than the frames now hold
(a crash of the machine took them), their offsets are not given out again, as readers may have seen
them: a frame without events takes their place. What is found whole is forced to the disk, unless
the writer forces nothing, and so never counts as torn again.

A whole look at a log reads every frame of every segment, compares every index, and changes nothing.
What a writer has not shown yet, or a crash has left at the end, is no damage.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from outpace.errors import DataError
from outpace.ingest.log.folder import Folder
from outpace.ingest.log.frame import (
    FrameKind,
    Headers,
    LogFrame,
    SyncPoint,
    payload_checksum,
    write_header,
    write_mark,
)
from outpace.ingest.log.segment import Damage, Segment, read_index, scan, with_lost

#: A frame says in 32 bits how many events it stands for.
_LOST_MAX: Final = 2**32 - 1


@dataclass(frozen=True)
class Recovered:
    """What a writer found at the end of a log.

    Parameters
    ----------
    base, end, frames
        The segment to go on with, where its last whole frame ends, and how many frames it has.
    stop, arrival
        The offset of the next event, and when the last ones came.
    cut_bytes
        How many bytes of a torn tail were cut.
    lost
        The offsets of events that readers may have seen and that are gone.
    indexed
        How many whole frames were not in the index.
    damage
        Frames of the last segment that are damaged, and stay.
    """

    base: int
    end: int = 0
    frames: int = 0
    stop: int = 0
    arrival: int = 0
    cut_bytes: int = 0
    lost: range = range(0)
    indexed: int = 0
    damage: tuple[Damage, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether the last writer had left nothing to repair."""
        return not (self.cut_bytes or self.lost or self.indexed or self.damage)

    def __str__(self) -> str:
        parts = []
        if self.cut_bytes:
            parts.append(f"{self.cut_bytes} bytes of a torn tail were cut at byte {self.end}")
        if self.lost:
            parts.append(f"events {self.lost.start} to {self.lost.stop - 1} are lost")
        if self.indexed:
            parts.append(f"{self.indexed} frames were missing in the index")
        parts += [str(part.error().detail) for part in self.damage]
        return "; ".join(parts) or "nothing to repair"


def recover(folder: Folder, *, durable: bool) -> Recovered:
    """Bring the end of a log in order; only the writer may.

    Parameters
    ----------
    folder
        The log.
    durable
        Whether what is found whole is forced to the disk.
    """
    bases = _segments(folder)
    if not bases:
        return Recovered(0)
    base = bases[-1]
    file = folder.events_file(base)
    index = read_index(folder, base)
    whole = scan(folder, base)
    ended = with_lost(folder, whole, index)
    known = max(ended.stop, Segment(base, index.headers, (), 0).stop)
    arrival = max((_last_arrival(part) for part in (whole.headers, index.headers)), default=0)
    if not arrival and len(bases) > 1:
        arrival = _last_arrival(read_index(folder, bases[-2]).headers)
    if ended is not whole:
        return Recovered(known, stop=known, arrival=arrival, damage=ended.damage)
    cut = whole.size - whole.end
    if cut:
        os.truncate(file, whole.end)
    indexed = max(0, len(whole.headers) - len(index.headers))
    lost = range(whole.stop, known)
    data = whole.headers.tobytes()
    end, frames = whole.end, len(whole.headers)
    if lost:
        header, end = _write_cut(folder, base, end, lost, arrival)
        data += header
        frames += 1
    synced = index.synced
    if durable and end > synced.end:
        _sync(file)
        synced = SyncPoint(end, known)
    _write_index(folder, base, write_mark(synced, folder.salt) + data, durable)
    return Recovered(base, end, frames, known, arrival, cut, lost, indexed, whole.damage)


def _write_cut(folder: Folder, base: int, end: int, lost: range, arrival: int) -> tuple[bytes, int]:
    """Write a frame that takes the place of lost events; return its header and where it ends."""
    if len(lost) > _LOST_MAX:
        raise DataError(
            f"the index says that {len(lost):,} events are missing",
            where=str(folder.index_file(base)),
        )
    mark = LogFrame(
        FrameKind.CUT, end, 0, lost.start, len(lost), 0, 0, arrival,
        payload_checksum(b"", folder.salt),
    )  # fmt: skip
    header = write_header(mark, folder.salt)
    handle = os.open(folder.events_file(base), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.pwrite(handle, header, end)
    finally:
        os.close(handle)
    return header, mark.end


def _write_index(folder: Folder, base: int, data: bytes, durable: bool) -> None:
    """Replace an index that differs at once, so that readers see either."""
    path = folder.index_file(base)
    if path.exists() and path.read_bytes().rstrip(b"\0") == data.rstrip(b"\0"):
        os.truncate(path, len(data))
        return
    part = path.with_suffix(".part")
    part.write_bytes(data)
    if durable:
        _sync(part)
    part.rename(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _last_arrival(headers: Headers) -> int:
    return int(headers[-1]["arrival"]) if len(headers) else 0


def _segments(folder: Folder) -> list[int]:
    """Return the segments that were begun.

    An index that says nothing, without frames, is of a segment that was never begun; it is deleted.
    """
    bases = folder.bases()
    while bases and not folder.events_file(bases[-1]).exists():
        index = read_index(folder, bases[-1])
        if len(index.headers) or index.synced.end:
            break
        folder.index_file(bases.pop()).unlink()
    return bases


@dataclass(frozen=True)
class LogCheck:
    """What a look at a log found.

    Parameters
    ----------
    segments, events
        How much is whole.
    damage
        Events that cannot be read.
    indexes
        Indexes that do not fit their segments; readers do without them.
    cut
        Events that a crash took, and that a writer has marked as lost.
    tail_bytes, unseen
        Bytes behind the last whole frame, and whole frames that are not in the index yet: the next
        writer cuts the former and adds the latter.
    """

    segments: int
    events: int
    damage: tuple[Damage, ...]
    indexes: tuple[str, ...]
    cut: int
    tail_bytes: int
    unseen: int


def check(folder: Folder) -> LogCheck:
    """Read all of a log."""
    bases = folder.bases()
    found = [scan(folder, base) for base in bases]
    damage = [part for segment in found for part in segment.damage]
    indexes: list[str] = []
    for segment, following in pairwise(found):
        if segment.stop != following.base:
            reason = "a segment is cut short or missing"
            path = str(folder.events_file(segment.base))
            damage.append(Damage(path, segment.end, segment.stop, following.base, reason))
        index = read_index(folder, segment.base)
        broken = index.damaged or index.garbage
        if broken or not np.array_equal(index.headers, segment.headers):
            indexes.append(str(folder.index_file(segment.base)))
    unseen = tail = 0
    if found:
        last = found[-1]
        index = read_index(folder, last.base)
        unseen = len(last.headers) - len(index.headers)
        # A segment that has just been begun has an index without anything.
        broken = (index.damaged and len(last.headers) > 0) or index.garbage
        if broken or not np.array_equal(index.headers, last.headers[: len(index.headers)]):
            indexes.append(str(folder.index_file(last.base)))
        lost = with_lost(folder, last, index).damage[len(last.damage) :]
        damage += lost
        tail = 0 if lost else last.size - last.end
    return LogCheck(
        len(found),
        sum(_events(segment, FrameKind.EVENTS) for segment in found),
        tuple(sorted(damage, key=lambda part: part.first)),
        tuple(indexes),
        sum(_events(segment, FrameKind.CUT) for segment in found),
        tail,
        max(0, unseen),
    )


def _events(segment: Segment, kind: FrameKind) -> int:
    headers = segment.headers
    return int(headers["events"][headers["kind"] == kind].sum(dtype=np.int64))
