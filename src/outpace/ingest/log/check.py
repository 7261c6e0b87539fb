"""A whole look at an event log: every frame of every segment is read, and every index compared.

Nothing is changed. What a writer has not shown yet, or a crash has left at the end, is no damage.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from outpace.ingest.log.folder import Folder
from outpace.ingest.log.frame import FrameKind
from outpace.ingest.log.segment import Damage, Segment, read_index, scan, with_lost


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
