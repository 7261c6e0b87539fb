"""Cutting events and what they open and close into shorter steps, which fit into fast memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from outpace.engine.arrays import Integers
from outpace.engine.event import Events
from outpace.engine.kernels.find import find_pairs
from outpace.engine.split.windows import Split, take_windows
from outpace.engine.window_match.rows import places


def pieces(events: Events, split: Split, rows: int) -> Iterator[tuple[Events, Split]]:
    """Yield steps of at most `rows` events that together are the step given."""
    size = len(events.arrival)
    if size <= rows:
        yield events, split
        return
    begun_at = _begun_at(events, split)
    for low in range(0, size, rows):
        high = min(low + rows, size)
        first = events.arrival[low] if low else np.iinfo(np.int64).min
        stop = events.arrival[high] if high < size else np.iinfo(np.int64).max
        # Both lists are ordered by the events that open and close.
        opened = np.arange(*np.searchsorted(begun_at, (first, stop)))
        closed = np.arange(*np.searchsorted(split.closed.closed_at, (first, stop)))
        yield (
            events.slice(low, high),
            Split(take_windows(split.opened, opened), take_windows(split.closed, closed)),
        )


def _begun_at(events: Events, split: Split) -> Integers:
    """Return the arrivals of the events that open windows."""
    opened = split.opened
    if len(events.partition) and not events.partition.any():
        return events.arrival[places(events, opened.partition, opened.first)]
    order = np.lexsort((events.ordinal, events.partition))
    at = np.empty(len(opened), np.int64)
    find_pairs(events.partition[order], events.ordinal[order], opened.partition, opened.first, at)
    return events.arrival[order[at]]
