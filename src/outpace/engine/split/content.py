"""Splitters of windows that the content of events opens and closes, by bits for whole columns."""

from __future__ import annotations

import numpy as np

from outpace.engine.evaluate.columns import predicate_mask
from outpace.engine.event import Events
from outpace.engine.kernels.windows import Bits, Integers, Matrix, split_by_bits
from outpace.engine.split.table import TableSplitter, as_read
from outpace.engine.split.windows import Split
from outpace.pattern.bind.windows import BoundWindows, ByContent, ByLandmark
from outpace.pattern.bound import Predicate


class BitSplitter(TableSplitter):
    """Windows that bits open and close; an event that closes does so for all open ones.

    Memory: three integers for each window opened since the last event that closes.
    """

    def _by_bits(self, events: Events, opens: Bits, closes: Bits, *, inside: bool) -> Split:
        """Split events; `inside` says whether a window holds the event that closes it."""
        columns = self._columns(events)
        opens, closes = as_read(opens), as_read(closes)

        def loop(opened: Matrix, closed: Matrix, fill: Integers) -> None:
            split_by_bits(
                *columns,
                opens,
                closes,
                inside,
                self._table,
                self._pool,
                opened,
                closed,
                fill,
            )

        return self._split(loop, len(events.arrival))


class ContentSplitter(BitSplitter):
    """Windows between an event that opens and one that closes, which is the last event of all."""

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, ByContent)
        self._kind = windows.kind

    def idle(self, partitions: Integers) -> Integers:
        """Return those of some partitions that have no open window."""
        return self._without_windows(partitions)

    def _push(self, events: Events) -> Split:
        opens, closes = bits(self._kind.open, events), bits(self._kind.close, events)
        return self._by_bits(events, opens, closes, inside=True)


class LandmarkSplitter(BitSplitter):
    """Windows from one landmark to the next, which closes the one before and opens its own."""

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, ByLandmark)
        self._at = windows.kind.at

    def idle(self, partitions: Integers) -> Integers:
        """Return those that have no open window; the first event of a partition may count alone."""
        return partitions[:0] if self._at is None else self._without_windows(partitions)

    def _push(self, events: Events) -> Split:
        marks = events.ordinal == 0 if self._at is None else bits(self._at, events)
        return self._by_bits(events, marks, marks, inside=False)


def bits(predicate: Predicate, events: Events) -> Bits:
    """Return for each event whether it satisfies a predicate on it alone."""
    columns = {name: events.rows.column(name) for name in events.rows.column_names}
    return predicate_mask(predicate, columns, np.array([0, len(events.arrival)]))
