"""The splitter of windows that a Python object opens and closes.

The object is asked event by event and window by window, so the cost grows with the open windows.
Memory: the object's own, and the first event of each open window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import EVENT_ID, Events
from outpace.engine.split.splitter import Splitter
from outpace.engine.split.windows import OPEN, Split, Windows
from outpace.engine.state import ANY, NATURAL, integers, parts, require
from outpace.pattern.bind.window_kinds import BoundWindows, ByPredicate
from outpace.pattern.windows import OpenWindow, WindowPredicate


@dataclass(frozen=True)
class _PredicateWindow:
    """One window, as in `Windows`."""

    partition: int
    number: int
    first: int
    stop: int = OPEN
    start_time: int = 0
    end_time: int = 0
    closed_at: int = -1


@dataclass
class _Partition:
    """The predicate of a partition and the windows that it opened."""

    predicate: WindowPredicate
    number: int = 0
    events: int = 0
    last: int = 0
    windows: list[_PredicateWindow] = field(default_factory=list)
    views: list[OpenWindow] = field(default_factory=list)

    def copy(self) -> _Partition:
        """Return one that goes on by itself."""
        predicate = self.predicate.clone()
        return replace(self, predicate=predicate, windows=[*self.windows], views=[*self.views])


class PredicateSplitter(Splitter):
    """Windows that a Python object opens and closes; each partition has a clone of it."""

    CHANGED = ("_partitions",)

    def __init__(self, windows: BoundWindows) -> None:
        super().__init__(windows)
        assert isinstance(windows.kind, ByPredicate)
        self._predicate = windows.kind.predicate
        self._partitions: dict[int, _Partition] = {}
        self._schema = pa.schema([])

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        return sum(len(partition.windows) for partition in self._partitions.values())

    @property
    def _spec(self) -> str:
        return f"ByPredicate({type(self._predicate).__name__})"

    def _push(self, events: Events) -> Split:
        opened: list[_PredicateWindow] = []
        closed: list[_PredicateWindow] = []
        timed = self.windows.time is not None
        rows = events.rows
        # Users see their columns alone.
        rows = rows.select([name for name in rows.schema.names if name != EVENT_ID.name])
        places = zip(
            events.partition.tolist(),
            events.ordinal.tolist(),
            events.arrival.tolist(),
            events.times.tolist() if timed else [0] * len(events.arrival),
            rows.to_pylist(),
            strict=True,
        )
        # Users' code may raise an error, after which nothing must have been taken.
        changed: dict[int, _Partition] = {}
        for number, ordinal, arrival, time, event in places:
            if number not in changed:
                kept = self._partitions.get(number, _Partition(self._predicate))
                changed[number] = kept.copy()
            partition = changed[number]
            partition.events, partition.last = ordinal + 1, time
            closed += _closed_by(partition, event, arrival)
            opens = partition.predicate.opens(event, tuple(partition.views))
            partition.views = [replace(one, events=one.events + 1) for one in partition.views]
            if opens:
                window = _PredicateWindow(number, partition.number, ordinal, start_time=time)
                partition.windows.append(window)
                partition.views.append(OpenWindow(partition.number, event, 1))
                partition.number += 1
                opened.append(window)
        self._partitions.update(changed)
        self._schema = rows.schema
        return Split(_as_windows(opened), _as_windows(closed))

    @property
    def event_counts(self) -> Integers:
        """How many events each partition has had, by its number."""
        known = self._partitions
        counts = np.zeros(max(known, default=-1) + 1, np.int64)
        counts[list(known)] = [one.events for one in known.values()]
        return counts

    def _rest(self) -> Split:
        closed = [
            replace(
                window,
                stop=partition.events,
                end_time=partition.last,
                closed_at=self._arrived,
            )
            for partition in self._partitions.values()
            for window in partition.windows
        ]
        closed.sort(key=attrgetter("number", "partition"))
        return Split(Windows.none(), _as_windows(closed))

    def _tables(self) -> list[pa.Table]:
        kept = self._partitions
        partitions = pa.table(
            {
                "partition": pa.array(list(kept), pa.int64()),
                "number": pa.array([one.number for one in kept.values()], pa.int64()),
                "events": pa.array([one.events for one in kept.values()], pa.int64()),
                "last": pa.array([one.last for one in kept.values()], pa.int64()),
                "state": pa.array([one.predicate.state() for one in kept.values()], pa.binary()),
            }
        )
        windows = [window for one in kept.values() for window in one.windows]
        views = [view for one in kept.values() for view in one.views]
        places = pa.table(
            {
                "partition": pa.array([window.partition for window in windows], pa.int64()),
                "number": pa.array([window.number for window in windows], pa.int64()),
                "first": pa.array([window.first for window in windows], pa.int64()),
                "start": pa.array([window.start_time for window in windows], pa.int64()),
                "events": pa.array([view.events for view in views], pa.int64()),
            }
        )
        firsts = pa.Table.from_pylist([dict(view.first) for view in views], schema=self._schema)
        return [partitions, places, firsts]

    def _set_tables(self, tables: Sequence[pa.Table]) -> None:
        partitions, places, firsts = tables
        self._schema = firsts.schema
        self._partitions = {}
        read = integers(
            partitions, partition=range(self._arrived), number=NATURAL, events=NATURAL, last=ANY
        )
        states = parts(partitions, partitions.num_rows, "state")
        for state, partition, number, events, last in zip(states, *_lists(read), strict=True):
            predicate = self._predicate.clone()
            predicate.restore(state)
            self._partitions[partition] = _Partition(predicate, number, events, last)
        require(len(self._partitions) == len(states), "a partition is there twice")
        read = integers(
            places, partition=NATURAL, number=NATURAL, first=NATURAL, start=ANY, events=NATURAL
        )
        for event, *place in zip(firsts.to_pylist(), *_lists(read), strict=True):
            partition, number, first, start, events = place
            kept = self._partitions[partition]
            before = kept.windows[-1].number if kept.windows else -1
            require(before < number < kept.number, "windows are out of order")
            require(first < kept.events, "a window has no events")
            kept.windows.append(_PredicateWindow(partition, number, first, start_time=start))
            kept.views.append(OpenWindow(number, event, events))


def _lists(read: Sequence[Integers]) -> list[list[int]]:
    return [line.tolist() for line in read]


def _closed_by(
    partition: _Partition, event: Mapping[str, object], arrival: int
) -> list[_PredicateWindow]:
    """Close the windows that an event closes."""
    closed = []
    windows, views = [], []
    for window, view in zip(partition.windows, partition.views, strict=True):
        if partition.predicate.closes(event, view):
            closed.append(
                replace(window, stop=partition.events, end_time=partition.last, closed_at=arrival)
            )
        else:
            windows.append(window)
            views.append(view)
    partition.windows, partition.views = windows, views
    return closed


def _as_windows(windows: Sequence[_PredicateWindow]) -> Windows:
    columns = (
        "partition",
        "number",
        "first",
        "stop",
        "start_time",
        "end_time",
        "closed_at",
    )
    return Windows(
        *(np.array([getattr(one, name) for one in windows], np.int64) for name in columns)
    )
