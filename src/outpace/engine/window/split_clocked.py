"""Splitters of windows that time closes: time windows and sessions."""

from __future__ import annotations

from typing import Final

import numpy as np

from outpace.engine.kernels.windows import Integers, split_by_session, split_by_time
from outpace.engine.match.contract import NO_TIME
from outpace.engine.window.contract import Events, Split
from outpace.engine.window.split_table import NO_EVENTS, TableSplitter
from outpace.pattern.bind_windows import BoundWindows, BySession, ByTime

#: A watermark behind all time: what still waits for time then ends.
END_OF_TIME: Final = np.iinfo(np.int64).max


class TimeSplitter(TableSplitter):
    """Windows `[start, start + size)`, closed when the stream, in any partition, passes the end.

    A stream is ordered by time over all partitions, so an event of one of them, or a watermark,
    tells of all that no more events come for a window.
    """

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, ByTime)
        self._kind = windows.kind

    def _take(self, events: Events) -> Split:
        self._make_lines(events.partition)
        return self._run(events.partition, events.ordinal, events.arrival, events.times, NO_TIME)

    def _pass(self, watermark: int) -> Split:
        return self._run(NO_EVENTS, NO_EVENTS, NO_EVENTS, NO_EVENTS, watermark)

    def _rest(self) -> Split:
        return self._pass(END_OF_TIME)

    def _run(
        self,
        partition: Integers,
        ordinal: Integers,
        arrival: Integers,
        times: Integers,
        watermark: int,
    ) -> Split:
        kind = self._kind
        opened, closed, self._pool = split_by_time(
            partition,
            ordinal,
            arrival,
            times,
            watermark,
            self._arrived,
            kind.size,
            kind.slide,
            kind.offset,
            self._table,
            self._pool,
        )
        return self._split(opened, closed)


class SessionSplitter(TableSplitter):
    """Windows that last until `gap` passes without an event of their partition."""

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, BySession)
        self._gap = windows.kind.gap

    def _take(self, events: Events) -> Split:
        self._make_lines(events.partition)
        return self._run(events.partition, events.ordinal, events.arrival, events.times, NO_TIME)

    def _pass(self, watermark: int) -> Split:
        return self._run(NO_EVENTS, NO_EVENTS, NO_EVENTS, NO_EVENTS, watermark)

    def _rest(self) -> Split:
        return self._pass(END_OF_TIME)

    def _run(
        self,
        partition: Integers,
        ordinal: Integers,
        arrival: Integers,
        times: Integers,
        watermark: int,
    ) -> Split:
        opened, closed, self._pool = split_by_session(
            partition,
            ordinal,
            arrival,
            times,
            watermark,
            self._arrived,
            self._gap,
            self._table,
            self._pool,
        )
        return self._split(opened, closed)
