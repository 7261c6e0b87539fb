"""What a writer does first: look at the end of the log, cut what is torn, and make the index whole.

Bytes behind the last whole frame are a torn tail, unless a whole frame follows them: then they are
damage in the middle, which stays as it is for readers to meet. Where the index says that there were
more events than the frames now hold (a crash of the machine took them), their offsets are not given
out again, as readers may have seen them: a frame without events takes their place.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from outpace.ingest.log.folder import Folder
from outpace.ingest.log.frame import (
    Frame,
    FrameKind,
    frame_of,
    payload_checksum,
    write_header,
)
from outpace.ingest.log.segment import Damage, Segment, read_index, scan


@dataclass(frozen=True)
class Recovered:
    """What a writer found at the end of a log.

    Parameters
    ----------
    base, end, frames
        The last segment, where its last whole frame ends, and how many frames it has.
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
        said = []
        if self.cut_bytes:
            said.append(f"{self.cut_bytes} bytes of a torn tail were cut at byte {self.end}")
        if self.lost:
            said.append(f"events {self.lost.start} to {self.lost.stop - 1} are lost")
        if self.indexed:
            said.append(f"{self.indexed} frames were missing in the index")
        said += [str(part.error().detail) for part in self.damage]
        return "; ".join(said) or "nothing to repair"


def recover(folder: Folder) -> Recovered:
    """Bring the end of a log in order; only the writer may."""
    bases = _segments(folder)
    if not bases:
        return Recovered(0)
    base = bases[-1]
    claimed = read_index(folder, base).headers
    whole = scan(folder, base)
    cut = whole.size - whole.end
    if cut:
        os.truncate(folder.events_file(base), whole.end)
    known = Segment(base, claimed, (), 0).stop
    indexed = max(0, len(whole.headers) - len(claimed))
    lost = range(whole.stop, max(known, whole.stop))
    data = whole.headers.tobytes()
    end, frames, arrival = whole.end, len(whole.headers), 0
    if frames:
        arrival = int(whole.headers[-1]["arrival"])
    if lost:
        mark = Frame(
            FrameKind.CUT, end, 0, lost.start, len(lost), 0, 0, arrival,
            payload_checksum(b"", folder.salt),
        )  # fmt: skip
        header = write_header(mark, folder.salt)
        with folder.events_file(base).open("r+b") as file:
            file.seek(end)
            file.write(header)
        data += header
        end, frames = mark.end, frames + 1
    _write_index(folder, base, data)
    if not frames and len(bases) > 1:
        arrival = _last_arrival(folder, bases[-2])
    return Recovered(
        base, end, frames, max(known, whole.stop), arrival, cut, lost, indexed, whole.damage
    )


def _write_index(folder: Folder, base: int, data: bytes) -> None:
    """Replace an index that differs at once, so that readers see either."""
    path = folder.index_file(base)
    if path.exists() and path.read_bytes().rstrip(b"\0") == data.rstrip(b"\0"):
        os.truncate(path, len(data))
        return
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.rename(path)


def _last_arrival(folder: Folder, base: int) -> int:
    headers = read_index(folder, base).headers
    return frame_of(headers[-1]).arrival if len(headers) else 0


def _segments(folder: Folder) -> list[int]:
    """Return the segments, with those of which there is nothing but an index at the end.

    An index without headers is of a segment that was never begun; one with headers claims events.
    """
    bases = folder.bases()
    for path in sorted(folder.path.glob("[0-9]*.index")):
        base = int(path.stem)
        if not bases or base > bases[-1]:
            if len(read_index(folder, base).headers):
                folder.events_file(base).touch()
                bases.append(base)
            else:
                path.unlink()
    return bases
