"""The splitter of count windows of partitions: numbers of events alone decide."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from outpace.engine.event import Events
from outpace.engine.kernels import windows as kernels
from outpace.engine.kernels.windows import Integers, Matrix
from outpace.engine.split.table import TableSplitter
from outpace.engine.split.windows import Linear, Split, Windows
from outpace.engine.state import NATURAL, require
from outpace.pattern.bind.windows import BoundWindows, ByCount


class CountSplitter(TableSplitter):
    """Windows of `size` events; one closes with its last event.

    Where no times are asked for, open windows are a range of numbers, and nothing is kept of each.
    """

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, ByCount)
        self._kind = windows.kind
        #: With a negative offset, earlier windows end before the first event.
        self._lowest = max(0, (-self._kind.offset - self._kind.size) // self._kind.slide + 1)
        self._known["first"] = Linear(self._kind.offset, self._kind.slide, least=0)
        if windows.time is None:
            self._known.update(start_time=Linear(0), end_time=Linear(0))

    def _push(self, events: Events) -> Split:
        columns = self._columns(events)
        kind = self._kind

        def loop(opened: Matrix, closed: Matrix, fill: Integers) -> None:
            kernels.split_by_count(
                *columns,
                kind.size,
                kind.slide,
                kind.offset,
                self._lowest,
                self._table,
                self._pool,
                opened,
                closed,
                fill,
            )

        return self._split(loop, len(events.arrival))

    @property
    def _queued(self) -> bool:
        return self.windows.time is not None

    def _set_tables(self, tables: Sequence[pa.Table]) -> None:
        super()._set_tables(tables)
        lines = self._table[1 : self._lines]
        events, numbers = lines[:, kernels.EVENTS], lines[:, kernels.NUMBER]
        kind = self._kind
        begun = np.maximum((events - 1 - kind.offset) // kind.slide + 1, self._lowest)
        ended = np.maximum((events - kind.offset - kind.size) // kind.slide + 1, 0)
        seen = events > 0
        require(((events >= 0) & (events < NATURAL.stop)).all(), "events were not counted")
        require((numbers == np.where(seen, begun, 0)).all(), "windows do not fit their events")
        still = np.where(seen, begun - np.maximum(ended, self._lowest), 0)
        require((lines[:, kernels.OPEN_COUNT] == still).all(), "windows do not fit their events")

    def _rest(self) -> Split:
        if self.windows.time is not None:
            return super()._rest()
        lines = self._table[1 : self._lines]
        counts = lines[:, kernels.OPEN_COUNT]
        closed = np.empty((kernels.CLOSED_LINES, int(counts.sum())), np.int64)
        partition = np.repeat(np.arange(len(lines)), counts)
        places = np.arange(len(partition)) - np.repeat(np.cumsum(counts) - counts, counts)
        closed[kernels.PARTITION] = partition
        closed[kernels.WINDOW] = (lines[:, kernels.NUMBER] - counts)[partition] + places
        closed[kernels.STOP] = lines[:, kernels.EVENTS][partition]
        closed[kernels.CLOSED_AT] = self._arrived
        return Split(Windows.none(), self._in_order(closed))
