"""Matches in windows by definition: every window cut out and matched as a table of its own.

The windows are given; `outpace.testing.window_definition` has them by definition, too. Nothing is
shared between windows, and duplicates are found by comparing rows and labels. With a drift, LOW,
MIDDLE and HIGH are cut out, matched, and put into one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from outpace.engine.match.contract import Resume, Task
from outpace.engine.match.output import match_rows
from outpace.engine.match.reach import reach_of
from outpace.engine.match.task import prepare, whole_block
from outpace.engine.match.twin import TwinMatcher
from outpace.engine.rows.times import as_integers
from outpace.pattern.bind.window_kinds import ByCount, BySession, ByTime, bind_windows
from outpace.pattern.query import Query
from outpace.pattern.windows import SessionWindows


@dataclass(frozen=True)
class CutWindow:
    """A window and its events.

    Parameters
    ----------
    partition, number
        Which window.
    rows
        Its events, by their numbers in the whole stream.
    closed_at
        The number of the event that closed it.
    start_time, end_time
        What `numbered` shows of its bounds.
    """

    partition: int
    number: int
    rows: Sequence[int]
    closed_at: int
    start_time: object = None
    end_time: object = None


@dataclass(frozen=True)
class WindowMatch:
    """A match in a window: its number x:y, the phase of x, what it took, and its output rows."""

    event: int
    phase: int
    window: int
    partition: int
    start: int
    taken: tuple[tuple[int, int], ...]
    output: tuple[dict[str, object], ...]


def windowed_matches(
    query: Query, stream: pa.Table, windows: Sequence[CutWindow]
) -> list[WindowMatch]:
    """Return the matches of a query in windows, in their total order.

    Parameters
    ----------
    query
        What to detect; `duplicates` and `numbered` count, the windows are those given.
    stream
        All events, in order.
    windows
        The windows, and who is in which.
    """
    task = prepare(replace(query, windows=None), stream.schema)
    found = []
    for window in windows:
        turn = _turn(query, stream, window)
        found += [(match, turn) for match in matches_in(task, stream, window)]
    found.sort(key=lambda one: (one[0].event, one[0].phase, one[0].window))
    if not query.duplicates:
        seen: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
        every, found = found, []
        for match, turn in every:
            if (match.start, match.taken) not in seen:
                seen.add((match.start, match.taken))
                found.append((match, turn))
    # Those of a window stay together, behind the start of its first one.
    starts: dict[tuple[int, int, int, int], int] = {}
    for match, _ in found:
        starts.setdefault((match.event, match.phase, match.window, match.partition), match.start)

    def order(one: tuple[WindowMatch, int]) -> tuple[int, ...]:
        match, turn = one
        window = match.event, match.phase, match.window, match.partition
        return match.event, match.phase, turn, starts[window]

    return [match for match, _ in sorted(found, key=order)]


def _turn(query: Query, stream: pa.Table, window: CutWindow) -> int:
    """Return what orders windows that close together: sessions close after their last events."""
    if isinstance(query.windows, SessionWindows):
        return _times(query, stream)[window.rows[-1]]
    return window.number


def matches_in(task: Task, stream: pa.Table, window: CutWindow) -> list[WindowMatch]:
    """Return the matches of a window, whose rows are matched as a table of their own."""
    rows = list(window.rows)
    table = stream.take(pa.array(rows, pa.int64()))
    block = whole_block(task, table)
    found = TwinMatcher(task)(block, Resume.fresh(1 if rows else 0)).found
    output, match_of = match_rows(task, block, found)
    variables = [position.variable for position in task.program.positions]
    ahead = reach_of(task).ahead
    matches = []
    for match in range(len(found.start)):
        low, high = int(found.offsets[match]), int(found.offsets[match + 1])
        known = int(found.settled[match]) + ahead
        completed = known < len(rows)
        event = rows[known] if completed else window.closed_at
        numbers = {
            "match_event": event,
            "window": window.number,
            "window_start": window.start_time,
            "window_end": window.end_time,
        }
        shown = output.take(pa.array(np.flatnonzero(match_of == match))).to_pylist()
        matches.append(
            WindowMatch(
                event,
                1 if completed or window.closed_at == rows[-1] else 0,
                window.number,
                window.partition,
                rows[int(found.start[match])],
                tuple(
                    (rows[int(row)], variables[int(position)])
                    for row, position in zip(
                        found.rows[low:high], found.positions[low:high], strict=True
                    )
                ),
                tuple({**row, **(numbers if task.bound.query.numbered else {})} for row in shown),
            )
        )
    return matches


#: The events of LOW, MIDDLE and HIGH, by their numbers in the stream.
_Three = tuple[Sequence[int], Sequence[int], Sequence[int]]


def drifted_rows(
    query: Query, stream: pa.Table, windows: Sequence[CutWindow]
) -> list[dict[str, object]]:
    """Return what a query with a drift gives, in its order.

    Parameters
    ----------
    query, stream
        The query, and all events, in order.
    windows
        The windows that are split, which hold LOW, MIDDLE and HIGH.
    """
    task = prepare(replace(query, windows=None, drift=None, numbered=False), stream.schema)
    found = []
    for window in windows:
        rows = list(_rows_of(query, task, stream, window))
        if rows:
            turn, start = _turn(query, stream, window), rows[0][0]
            place = window.closed_at, window.closed_at in window.rows, turn, start
            found.append((place, [row for _, row in rows]))
    found.sort(key=lambda one: one[0])
    return [row for _, rows in found for row in rows]


def _rows_of(
    query: Query, task: Task, stream: pa.Table, window: CutWindow
) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the rows of a window, each with the first event that LOW, MIDDLE or HIGH matched."""
    for three in _threes(query, stream, window):
        found = [matches_in(task, stream, replace(window, rows=rows)) for rows in three]
        there = [match[0].output[0] for match in found if match]
        if not there:
            continue
        row = {name: there[0][name] for name in query.partitions}
        for name, _ in query.outputs:
            values: list[Any] = [match[0].output[0][name] if match else None for match in found]
            numbers = [float(value) for value in values if value is not None]
            row[name] = sum(numbers) / len(numbers) if numbers else None
            row |= dict(zip((f"{name}_low", f"{name}_middle", f"{name}_high"), values, strict=True))
            row[f"{name}_spread"] = max(numbers) - min(numbers) if len(numbers) > 1 else None
        if query.numbered:
            row["match_event"], row["window"] = window.closed_at, window.number
            row["window_start"], row["window_end"] = _bounds(query, stream, window, three[1])
        yield min(match[0].start for match in found if match), row


def _threes(query: Query, stream: pa.Table, window: CutWindow) -> Iterator[_Three]:
    """Yield the three of a window, or those of each session in the middle."""
    bound = bind_windows(query, stream.schema)
    assert bound.drift is not None
    kind, drift = bound.drift.kind, bound.drift.low + bound.drift.high
    if isinstance(kind, BySession):
        times = _times(query, stream)
        shorter, middle = (
            _sessions(window.rows, times, gap) for gap in (kind.gap - drift // 2, kind.gap)
        )
        for session in middle:
            (low,) = (one for one in shorter if one[0] == session[0])
            yield low, session, window.rows
        return
    start = kind.offset + window.number * kind.slide
    if isinstance(kind, ByTime):
        times = _times(query, stream)
        places = [times[row] for row in window.rows]
    else:
        first = max(0, start - drift // 2)
        places = list(range(first, first + len(window.rows)))
    low, middle_rows, high = (
        [
            row
            for row, place in zip(window.rows, places, strict=True)
            if start + shift <= place < start + shift + kind.size
        ]
        for shift in (-Fraction(drift, 2), Fraction(0), Fraction(drift, 2))
    )
    yield low, middle_rows, high


def _sessions(rows: Sequence[int], times: list[int], gap: int) -> list[list[int]]:
    sessions: list[list[int]] = []
    for row in rows:
        if sessions and times[row] - times[sessions[-1][-1]] < gap:
            sessions[-1].append(row)
        else:
            sessions.append([row])
    return sessions


def _bounds(
    query: Query, stream: pa.Table, window: CutWindow, middle: Sequence[int]
) -> tuple[object, object]:
    bound = bind_windows(query, stream.schema)
    assert bound.drift is not None
    kind = bound.drift.kind
    if isinstance(kind, ByTime):
        start = kind.offset + window.number * kind.slide
        column = stream.schema.field(query.order[0].column).type
        first, end = (
            pa.scalar(time, pa.int64()).cast(column).as_py() for time in (start, start + kind.size)
        )
        return first, end
    if bound.time is None:
        return None, None
    first_row = middle[0] if middle else window.rows[-1]
    if not middle and isinstance(kind, ByCount) and kind.offset + window.number * kind.slide < 0:
        first_row = window.rows[0]
    return stream[bound.time][first_row].as_py(), None


def _times(query: Query, stream: pa.Table) -> list[int]:
    return [int(time) for time in as_integers(stream[query.order[0].column])]
