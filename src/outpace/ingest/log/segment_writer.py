"""The segment that a writer is at: frames go to its file first, then their headers to the index.

Readers follow the index, so frames are seen when their headers are there, all of an append at once.
Room for the headers is taken before the frames are written: a full disk is met before anything is
seen. The index begins with a mark that says how far frames were forced to the disk: it moves after
they were, with no more to force than the headers. It is there, and where anything is forced to the
disk it is there as well, before the first frame: an index without it is damaged.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from outpace.ingest.log.folder import Folder
from outpace.ingest.log.frame import (
    HEADER_BYTES,
    LogFrame,
    SyncPoint,
    frame_parts,
    write_header,
    write_mark,
)

#: Room in an index is taken for so many headers at once.
_ROOM: Final = 64


class SegmentWriter:
    """Writes to a segment.

    Parameters
    ----------
    folder, base
        The log, and the offset that the segment begins with.
    end, frames, stop
        Where its last whole frame ends, how many it has, and the offset after them.
    durable
        Whether frames are forced to the disk, now or later.
    """

    def __init__(
        self, folder: Folder, base: int, end: int, frames: int, stop: int, *, durable: bool
    ) -> None:
        self.end, self.frames, self._salt, self._durable = end, frames, folder.salt, durable
        #: What readers see.
        self._shown = SyncPoint(end, stop)
        #: A thread forces frames to the disk, too, and the mark must not go back.
        self._syncing = threading.Lock()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        # The index first: a segment without one is damaged.
        self._index = os.open(folder.index_file(base), flags, 0o666)
        try:
            self._events = os.open(folder.events_file(base), flags, 0o666)
        except OSError:
            os.close(self._index)
            raise
        self._room = os.fstat(self._index).st_size // HEADER_BYTES - 1

    def write(self, frame: LogFrame, payload: pa.Buffer, unseen: int) -> None:
        """Write a frame, the last of some that are not seen yet."""
        needed = self.frames + unseen
        if needed > self._room:
            room = -(-needed // _ROOM) * _ROOM
            os.posix_fallocate(self._index, 0, (1 + room) * HEADER_BYTES)
            self._room = room
        if not frame.position:
            # From now on an index without a mark is damaged, and frames tell what there is.
            self._mark(self._shown, durable=self._durable)
        parts = frame_parts(frame, payload, self._salt)
        write_all(self._events, parts, frame.position)

    def show(self, frames: Sequence[LogFrame], *, durable: bool) -> None:
        """Let readers see frames that were written, on the disk first if they are to be durable."""
        headers = b"".join(write_header(frame, self._salt) for frame in frames)
        if durable:
            os.fdatasync(self._events)
        write_all(self._index, [headers], (1 + self.frames) * HEADER_BYTES)
        self.frames += len(frames)
        self.end = frames[-1].end
        self._shown = SyncPoint(self.end, frames[-1].stop)
        if durable:
            self._mark(self._shown, durable=True)

    def cut(self) -> None:
        """Cut off what was written and is not seen."""
        os.ftruncate(self._events, self.end)

    def sync(self) -> None:
        """Force all that was written to the disk."""
        with self._syncing:
            shown = self._shown
            os.fdatasync(self._events)
            self._mark(shown, durable=True)

    def close(self) -> None:
        """Close the files, with their content on the disk if it is to be durable."""
        try:
            os.ftruncate(self._index, (1 + self.frames) * HEADER_BYTES)
            if self._durable:
                self.sync()
        finally:
            os.close(self._index)
            os.close(self._events)

    def _mark(self, synced: SyncPoint, *, durable: bool) -> None:
        """Say how far frames are on the disk."""
        write_all(self._index, [write_mark(synced, self._salt)], 0)
        if durable:
            os.fdatasync(self._index)


def write_all(handle: int, parts: Sequence[bytes | pa.Buffer], position: int) -> None:
    """Write parts one after the other to a place in a file."""
    views = [memoryview(part) for part in parts if len(part)]
    while views:
        done = os.pwritev(handle, views, position)
        position += done
        while views and done >= len(views[0]):
            done -= len(views.pop(0))
        if done:
            views[0] = views[0][done:]
