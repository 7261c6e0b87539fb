"""Splitters of windows that time closes: time windows and sessions.

A stream is ordered by time over all partitions, so an event of one of them, or a watermark, tells
of all that no more events come for a window.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from outpace.engine.event import Events
from outpace.engine.kernels.windows import Integers, Matrix, split_by_session, split_by_time
from outpace.engine.split.splitter import END_OF_TIME
from outpace.engine.split.table import NO_EVENTS, TableSplitter, as_read
from outpace.engine.split.windows import Linear, Split
from outpace.pattern.bind.windows import BoundWindows, BySession, ByTime


class ClockedSplitter(TableSplitter):
    """Windows that time closes, where an event, a watermark or the end of the input tells it."""

    _in_ring = True

    def idle(self, partitions: Integers) -> Integers:
        """Return those of some partitions that have no open window."""
        return self._without_windows(partitions)

    def _push(self, events: Events) -> Split:
        return self._run(*self._columns(events))

    def _pass(self, watermark: int) -> Split:
        # A time without an event: it closes windows, and opens none.
        none = as_read(NO_EVENTS)
        arrival, times = np.array([[self._arrived], [watermark]], np.int64)
        return self._run(none, none, as_read(arrival), as_read(times))

    def _rest(self) -> Split:
        return self._pass(END_OF_TIME)

    @abstractmethod
    def _run(
        self, partition: Integers, ordinal: Integers, arrival: Integers, times: Integers
    ) -> Split:
        """Say what events open and close, and what a time behind them closes."""


class TimeSplitter(ClockedSplitter):
    """Windows `[start, start + size)`."""

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, ByTime)
        self._kind = windows.kind
        start = self._kind.offset
        self._known["start_time"] = Linear(start, self._kind.slide)
        self._known["end_time"] = Linear(start + self._kind.size, self._kind.slide)

    def _run(
        self, partition: Integers, ordinal: Integers, arrival: Integers, times: Integers
    ) -> Split:
        kind = self._kind

        def loop(opened: Matrix, closed: Matrix, fill: Integers) -> None:
            split_by_time(
                partition,
                ordinal,
                arrival,
                times,
                kind.size,
                kind.slide,
                kind.offset,
                self._table,
                self._pool,
                opened,
                closed,
                fill,
            )

        return self._split(loop, len(times))


class SessionSplitter(ClockedSplitter):
    """Windows that last until `gap` passes without an event of their partition."""

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, BySession)
        self._gap = windows.kind.gap

    def _run(
        self, partition: Integers, ordinal: Integers, arrival: Integers, times: Integers
    ) -> Split:
        def loop(opened: Matrix, closed: Matrix, fill: Integers) -> None:
            split_by_session(
                partition,
                ordinal,
                arrival,
                times,
                self._gap,
                self._table,
                self._pool,
                opened,
                closed,
                fill,
            )

        return self._split(loop, len(times))
