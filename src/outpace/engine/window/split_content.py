"""Splitters of windows that the content of events opens and closes, by bits for whole columns."""

from __future__ import annotations

import numpy as np

from outpace.engine.kernels.windows import Bits, split_by_bits
from outpace.engine.match.evaluate_columns import predicate_mask
from outpace.engine.window.contract import Events, Split
from outpace.engine.window.split_table import TableSplitter
from outpace.pattern.bind_windows import BoundWindows, ByContent, ByLandmark
from outpace.pattern.bound import Predicate


class ContentSplitter(TableSplitter):
    """Windows between an event that opens and one that closes, which is the last of all open ones.

    Memory: three integers for each window opened since the last event that closes.
    """

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, ByContent)
        self._kind = windows.kind

    def _take(self, events: Events) -> Split:
        self._make_lines(events.partition)
        opened, closed, self._pool = split_by_bits(
            events.partition,
            events.ordinal,
            events.arrival,
            self._times(events),
            bits(self._kind.open, events),
            bits(self._kind.close, events),
            True,
            self._table,
            self._pool,
        )
        return self._split(opened, closed)


class LandmarkSplitter(TableSplitter):
    """Windows from one landmark to the next, which closes the one before and opens its own."""

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, ByLandmark)
        self._at = windows.kind.at

    def _take(self, events: Events) -> Split:
        self._make_lines(events.partition)
        marks = events.ordinal == 0 if self._at is None else bits(self._at, events)
        opened, closed, self._pool = split_by_bits(
            events.partition,
            events.ordinal,
            events.arrival,
            self._times(events),
            marks,
            marks,
            False,
            self._table,
            self._pool,
        )
        return self._split(opened, closed)


def bits(predicate: Predicate, events: Events) -> Bits:
    """Return for each event whether it satisfies a predicate on it alone."""
    columns = {name: events.rows.column(name) for name in events.rows.column_names}
    return predicate_mask(predicate, columns, np.array([0, len(events.arrival)]))
