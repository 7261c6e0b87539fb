"""Windows with a drift by definition: LOW, MIDDLE and HIGH cut out, matched, put into one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pyarrow as pa

from outpace.engine.match.contract import Task
from outpace.engine.match.task import prepare
from outpace.engine.rows.times import as_integers
from outpace.pattern.bind.windows import ByCount, BySession, ByTime, bind_windows
from outpace.pattern.query import Query
from outpace.testing.windowed import CutWindow, matches_in

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
    order = sorted(
        windows,
        key=lambda w: (w.closed_at, w.closed_at in w.rows, w.number, w.partition),
    )
    return [row for window in order for row in _rows_of(query, task, stream, window)]


def _rows_of(
    query: Query, task: Task, stream: pa.Table, window: CutWindow
) -> Iterator[dict[str, object]]:
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
            row[f"{name}_spread"] = max(numbers) - min(numbers) if numbers else None
        if query.numbered:
            row["match_event"], row["window"] = window.closed_at, window.number
            row["window_start"], row["window_end"] = _bounds(query, stream, window, three[1])
        yield row


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
