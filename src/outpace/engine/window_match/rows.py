"""The rows that open windows still need, by partition and ordinal.

Ordinals of a partition may have gaps, where no window of the instance is.
"""

from __future__ import annotations

import numpy as np

from outpace.engine.arrays import Integers, distinct
from outpace.engine.event import Events, select
from outpace.engine.kernels.grouping import find_pairs, is_ascending


def joined(held: Events, events: Events, *, keyed: bool) -> Events:
    """Return rows kept and new ones together, sorted by partition and ordinal."""
    if not len(held.ordinal):
        together = events
    elif not len(events.ordinal):
        return held
    else:
        together = held.and_next(events)
    if not keyed or is_ascending(together.partition):
        return together
    return select(together, np.argsort(together.partition, kind="stable"))


def kept(events: Events, low: Integers, high: Integers) -> Events:
    """Return the rows from each of `low` up to `high`, which rise; a single run is not copied."""
    filled = low < high
    if int(filled.sum()) > 1:
        sizes = (high - low)[filled]
        ends = np.cumsum(sizes)
        rows = np.repeat(low[filled] - ends + sizes, sizes) + np.arange(ends[-1])
        return select(events, rows)
    begin = int(low[filled][0]) if filled.any() else 0
    end = int(high[filled][0]) if filled.any() else 0
    return events.slice(begin, end)


def places(events: Events, partition: Integers, ordinal: Integers) -> Integers:
    """Return the row of each ordinal, or of the first one behind it; `events` are sorted."""
    owner, size = events.owner, len(events.ordinal)
    if owner is not None and size:
        first = int(events.ordinal[0])
        if int(events.ordinal[-1]) == first + size - 1:
            found = np.minimum(np.maximum(ordinal - first, 0), size)
        else:
            found = np.searchsorted(events.ordinal, ordinal)
        found[partition < owner] = 0
        found[partition > owner] = size
        return found
    out = np.empty(len(partition), np.int64)
    find_pairs(events.partition, events.ordinal, partition, ordinal, out)
    return out


class Segments:
    """The partitions of rows and groups; the rows of one go from a bound to the next."""

    def __init__(self, partition: Integers, bounds: Integers) -> None:
        self.partition = partition
        self.bounds = bounds

    @staticmethod
    def of(held: Events, partition: Integers) -> Segments:
        """Return the partitions of rows that are sorted by them, and other partitions."""
        owner, size = held.owner, len(held.ordinal)
        if owner is None or not size:
            rows = held.partition
            known = rows[np.flatnonzero(np.diff(rows, prepend=-1))]
            known = distinct(known, partition)
            begin = np.searchsorted(rows, known)
        else:
            known = distinct(np.array([owner]), partition)
            begin = np.where(known <= owner, 0, size)
        return Segments(known, np.append(begin, size).astype(np.int64))

    def of_partition(self, partition: Integers) -> Integers:
        """Return the numbers of partitions among these."""
        return np.searchsorted(self.partition, partition).astype(np.int64)
