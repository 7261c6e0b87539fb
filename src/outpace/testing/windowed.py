"""Matches in windows by definition: every window cut out and matched as a table of its own.

The windows are given; `outpace.testing.windows` has them by definition, too. Nothing is shared
between windows, and duplicates are found by comparing rows and labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from outpace.engine.match.contract import Resume, Task
from outpace.engine.match.output import match_rows
from outpace.engine.match.reach import reach_of
from outpace.engine.match.task import prepare, whole_block
from outpace.engine.match.twin import make_twin
from outpace.pattern.query import Query


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
    found = [match for window in windows for match in matches_in(task, stream, window)]
    found.sort(key=lambda match: (match.event, match.phase, match.window, match.partition))
    if query.duplicates:
        return found
    seen: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
    once = []
    for match in found:
        if (match.start, match.taken) not in seen:
            seen.add((match.start, match.taken))
            once.append(match)
    return once


def matches_in(task: Task, stream: pa.Table, window: CutWindow) -> list[WindowMatch]:
    """Return the matches of a window, whose rows are matched as a table of their own."""
    rows = list(window.rows)
    table = stream.take(pa.array(rows, pa.int64()))
    block = whole_block(task, table)
    found = make_twin(task)(block, Resume.fresh(1 if rows else 0)).found
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
