"""Streams, windows and ways to run them, for the tests of matching in windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from support.operators import written

from outpace.engine.event import Events
from outpace.engine.split.windows import OPEN, Split, Windows
from outpace.engine.window_match.matcher import WindowMatcher
from outpace.engine.window_match.result import WindowMatches
from outpace.testing.window_matches import CutWindow


@dataclass(frozen=True)
class Window:
    """A window by ordinals; `event` is the arrival that closes it."""

    partition: int
    number: int
    first: int
    stop: int
    closed_at: int


@dataclass(frozen=True)
class Stream:
    """Events in order, with their partitions, ordinals and times."""

    table: pa.Table
    partition: np.ndarray
    ordinal: np.ndarray
    times: np.ndarray

    @staticmethod
    def of(table: pa.Table, keys: Sequence[int] | None = None, time: str | None = "ts") -> Stream:
        size = table.num_rows
        partition = np.zeros(size, np.int64)
        seen: dict[int, int] = {}
        counts: dict[int, int] = {}
        ordinal = np.zeros(size, np.int64)
        for row in range(size):
            key = 0 if keys is None else keys[row]
            partition[row] = seen.setdefault(key, len(seen))
            ordinal[row] = counts.get(key, 0)
            counts[key] = int(ordinal[row]) + 1
        times = np.array(table[time].to_numpy(), np.int64) if time else np.zeros(0, np.int64)
        return Stream(table, partition, ordinal, times)

    def arrivals(self, partition: int) -> list[int]:
        return np.flatnonzero(self.partition == partition).tolist()

    def events(self, low: int, high: int) -> Events:
        return Events(
            self.table.slice(low, high - low),
            self.partition[low:high],
            self.ordinal[low:high],
            np.arange(low, high),
            self.times[low:high],
        )

    def cut(self, windows: Sequence[Window]) -> list[CutWindow]:
        cut = []
        for window in windows:
            rows = self.arrivals(window.partition)[window.first : window.stop]
            start = int(self.times[rows[0]]) if len(self.times) else None
            cut.append(CutWindow(window.partition, window.number, rows, window.closed_at, start))
        return cut


def arrays(windows: Sequence[Window], *, closed: bool, stream: Stream) -> Windows:
    def numbers(values: Sequence[int]) -> np.ndarray:
        return np.array(values, np.int64)

    starts = [
        int(stream.times[stream.arrivals(w.partition)[w.first]]) if len(stream.times) else 0
        for w in windows
    ]
    return Windows(
        numbers([w.partition for w in windows]),
        numbers([w.number for w in windows]),
        numbers([w.first for w in windows]),
        numbers([w.stop if closed else OPEN for w in windows]),
        numbers(starts),
        numbers([0] * len(windows)),
        numbers([w.closed_at if closed else -1 for w in windows]),
    )


def run(
    matcher: WindowMatcher,
    stream: Stream,
    windows: Sequence[Window],
    cuts: Sequence[int] = (),
    *,
    saved: Sequence[int] = (),
    needed: np.ndarray | None = None,
) -> list[WindowMatches]:
    """Feed a matcher piece by piece, save and restore it at some cuts, and check what it promises.

    `needed` marks the events that the instance is given; the others are in none of its windows.
    """
    size = stream.table.num_rows
    bounds = sorted({0, size, *(cut for cut in cuts if 0 < cut < size)})
    results = []
    for low, high in pairwise(bounds):
        if low in saved:
            again = WindowMatcher(matcher.task, matcher.matcher)
            again.restore(written(matcher.state()))
            matcher = again
        results.append(_step(matcher, stream, windows, low, high, needed))
    last = [w for w in windows if w.closed_at >= size]
    split = Split(Windows.none(), arrays(last, closed=True, stream=stream))
    results.append(matcher.step(stream.events(size, size), split, ended=True))
    assert (results[-1].event >= size).all()
    assert not matcher.open_windows
    assert not matcher.rows_kept
    return results


def _step(
    matcher: WindowMatcher,
    stream: Stream,
    windows: Sequence[Window],
    low: int,
    high: int,
    needed: np.ndarray | None,
) -> WindowMatches:
    events = stream.events(low, high)
    if needed is not None:
        keep = np.flatnonzero(needed[low:high])
        events = Events(
            events.rows.take(pa.array(keep)),
            events.partition[keep],
            events.ordinal[keep],
            events.arrival[keep],
            events.times[keep] if len(events.times) else events.times,
        )
    begun = [w for w in windows if low <= stream.arrivals(w.partition)[w.first] < high]
    begun.sort(key=lambda w: (stream.arrivals(w.partition)[w.first], w.number))
    done = [w for w in windows if low <= w.closed_at < high]
    done.sort(key=lambda w: (w.closed_at, w.number))
    split = Split(
        arrays(begun, closed=False, stream=stream), arrays(done, closed=True, stream=stream)
    )
    result = matcher.step(events, split, arrived=high)
    assert (result.event >= low).all()
    assert (result.event < high).all()
    return result
