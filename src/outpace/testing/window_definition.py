"""Windows by definition: what every splitter must say, in plain Python over a whole stream.

Each kind is written down as its definition reads, without a thought of speed: which sets of events
are windows, and which event closes each. Splitters are compared with this in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from outpace.engine.evaluate.columns import predicate_mask
from outpace.engine.event import Events
from outpace.pattern.bind.window_kinds import (
    BoundWindows,
    ByContent,
    ByCount,
    ByLandmark,
    ByPredicate,
    BySession,
    ByTime,
)
from outpace.pattern.bound import Predicate
from outpace.pattern.windows import OpenWindow


class Window(NamedTuple):
    """A closed window; the fields are those of `outpace.engine.split.windows.Windows`."""

    partition: int
    number: int
    first: int
    stop: int
    start_time: int
    end_time: int
    closed_at: int


@dataclass(frozen=True)
class _TimedEvent:
    partition: int
    ordinal: int
    arrival: int
    time: int
    table: pa.Table

    @property
    def row(self) -> dict[str, object]:
        (row,) = self.table.to_pylist()
        return dict(row)

    def holds(self, predicate: Predicate) -> bool:
        columns = {name: self.table.column(name) for name in self.table.column_names}
        return bool(predicate_mask(predicate, columns, np.array([0, 1]))[0])


@dataclass(frozen=True)
class _Members:
    """A window as a set of events, and the event that closes it (None: the end of the input)."""

    number: int
    events: list[_TimedEvent]
    closed_by: _TimedEvent | None
    bounds: tuple[int, int] | None = None


def windows_by_definition(windows: BoundWindows, events: Events) -> list[Window]:
    """Return the windows of a whole stream, by the event that closes them, number and partition.

    Examples
    --------
    >>> numbers = np.arange(5)
    >>> events = Events(pa.table({"x": numbers}), numbers * 0, numbers, numbers, numbers[:0])
    >>> by_three = BoundWindows(ByCount(3, 2, 0), False, None, ())
    >>> [(w.number, w.first, w.stop) for w in windows_by_definition(by_three, events)]
    [(0, 0, 3), (1, 2, 5), (2, 4, 5)]
    """
    stream = list(_stream(windows, events))
    found = []
    for partition in {event.partition: None for event in stream}:
        own = [event for event in stream if event.partition == partition]
        for members in _windows_of(windows, own, stream):
            first, last = members.events[0], members.events[-1]
            start, end = members.bounds or (first.time, last.time)
            closed_at = len(stream) if members.closed_by is None else members.closed_by.arrival
            found.append(
                Window(
                    partition,
                    members.number,
                    first.ordinal,
                    last.ordinal + 1,
                    start,
                    end,
                    closed_at,
                )
            )
    return sorted(found, key=lambda window: (window.closed_at, window.number, window.partition))


def _stream(windows: BoundWindows, events: Events) -> Iterator[_TimedEvent]:
    for place in range(len(events.arrival)):
        yield _TimedEvent(
            int(events.partition[place]),
            int(events.ordinal[place]),
            int(events.arrival[place]),
            int(events.times[place]) if windows.time is not None else 0,
            events.rows.slice(place, 1),
        )


def _windows_of(
    windows: BoundWindows, own: list[_TimedEvent], stream: list[_TimedEvent]
) -> Iterator[_Members]:
    """Yield the windows of one partition."""
    match windows.kind:
        case ByCount() as kind:
            return _by_count(kind, own)
        case ByTime() as kind:
            return _by_time(kind, own, stream)
        case BySession() as kind:
            return _by_session(kind, own, stream)
        case ByContent() as kind:
            return _by_content(kind, own)
        case ByLandmark() as kind:
            return _by_landmark(kind, own)
        case ByPredicate() as kind:
            return _by_predicate(kind, own)


def _by_count(kind: ByCount, own: list[_TimedEvent]) -> Iterator[_Members]:
    number = 0
    while (start := kind.offset + number * kind.slide) < len(own):
        wanted = range(start, start + kind.size)
        events = [event for event in own if event.ordinal in wanted]
        if events:
            complete = events[-1].ordinal == wanted[-1]
            yield _Members(number, events, events[-1] if complete else None)
        number += 1


def _by_time(kind: ByTime, own: list[_TimedEvent], stream: list[_TimedEvent]) -> Iterator[_Members]:
    lowest = (own[0].time - kind.offset - kind.size) // kind.slide
    highest = (own[-1].time - kind.offset) // kind.slide
    for number in range(lowest, highest + 1):
        start = kind.offset + number * kind.slide
        end = start + kind.size
        events = [event for event in own if start <= event.time < end]
        if events:
            yield _Members(number, events, _first_at(stream, end), (start, end))


def _by_session(
    kind: BySession, own: list[_TimedEvent], stream: list[_TimedEvent]
) -> Iterator[_Members]:
    sessions: list[list[_TimedEvent]] = []
    for event in own:
        if sessions and event.time - sessions[-1][-1].time < kind.gap:
            sessions[-1].append(event)
        else:
            sessions.append([event])
    for number, events in enumerate(sessions):
        yield _Members(number, events, _first_at(stream, events[-1].time + kind.gap))


def _first_at(stream: list[_TimedEvent], time: int) -> _TimedEvent | None:
    """Return the first event of any partition that does not come before a time."""
    return next((event for event in stream if event.time >= time), None)


def _by_content(kind: ByContent, own: list[_TimedEvent]) -> Iterator[_Members]:
    openers = [event for event in own if event.holds(kind.open)]
    for number, opener in enumerate(openers):
        later = own[opener.ordinal + 1 :]
        closer = next((event for event in later if event.holds(kind.close)), None)
        stop = len(own) if closer is None else closer.ordinal + 1
        yield _Members(number, own[opener.ordinal : stop], closer)


def _by_landmark(kind: ByLandmark, own: list[_TimedEvent]) -> Iterator[_Members]:
    at = kind.at
    marks = own[:1] if at is None else [event for event in own if event.holds(at)]
    for number, mark in enumerate(marks):
        following = marks[number + 1] if number + 1 < len(marks) else None
        stop = len(own) if following is None else following.ordinal
        yield _Members(number, own[mark.ordinal : stop], following)


def _by_predicate(kind: ByPredicate, own: list[_TimedEvent]) -> Iterator[_Members]:
    predicate = kind.predicate.clone()
    opened: dict[int, _TimedEvent] = {}
    count = 0
    for event in own:
        for number, first in list(opened.items()):
            view = OpenWindow(number, first.row, event.ordinal - first.ordinal)
            if predicate.closes(event.row, view):
                yield _Members(number, own[first.ordinal : event.ordinal + 1], event)
                del opened[number]
        views = (
            OpenWindow(number, first.row, event.ordinal - first.ordinal)
            for number, first in opened.items()
        )
        if predicate.opens(event.row, tuple(views)):
            opened[count] = event
            count += 1
    for number, first in opened.items():
        yield _Members(number, own[first.ordinal :], None)
