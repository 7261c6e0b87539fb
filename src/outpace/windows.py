"""Windows for users: `Query.over` takes what these functions make.

A window is a run of consecutive events of a partition. Windows are values: they say which events
belong together, and the same events always give the same windows, however they arrive.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from outpace.engine.divide.assign import windows_of
from outpace.hosts.local.frames import TableLike, to_arrow
from outpace.pattern.argument import a_duration
from outpace.pattern.builder import expression_tree
from outpace.pattern.query import Query, checked_query
from outpace.pattern.windows import (
    BetweenWindows,
    CountWindows,
    LandmarkWindows,
    OpenWindow,
    SessionWindows,
    TimeWindows,
)
from outpace.pattern.windows import WindowPredicate as Predicate

if TYPE_CHECKING:
    from outpace.pattern.builder import Fluent
    from outpace.pattern.expression import Expression

__all__ = ["OpenWindow", "Predicate", "assign", "between", "count", "landmark", "session", "time"]


def count(size: int, slide: int | None = None, offset: int = 0) -> CountWindows:
    """Make windows of `size` events, one every `slide` events.

    Parameters
    ----------
    size
        The number of events in a window.
    slide
        The events from the start of a window to that of the next: `size` where it is left out
        (tumbling), less for windows that overlap, more for gaps.
    offset
        The number of the event that the first window starts at. A negative one makes the first
        windows shorter.

    Examples
    --------
    >>> count(1000, slide=50)
    CountWindows(size=1000, slide=50, offset=0)
    """
    return CountWindows(size, size if slide is None else slide, offset)


def time(
    size: str | datetime.timedelta | int,
    slide: str | datetime.timedelta | int | None = None,
    offset: str | datetime.timedelta | int = 0,
) -> TimeWindows:
    """Make windows `[start, start + size)` of event time, one every `slide`.

    Parameters
    ----------
    size, slide
        "10 s", a timedelta, or an integer in units of an integer time column; without `slide`
        windows follow each other without overlap.
    offset
        Starts are aligned to the epoch plus this.

    Examples
    --------
    >>> time("10 s", slide="1 s").slide
    datetime.timedelta(seconds=1)
    >>> time(100)
    TimeWindows(size=100, slide=100, offset=0)
    """
    length = a_duration(size, "size")
    return TimeWindows(
        length,
        length if slide is None else a_duration(slide, "slide"),
        a_duration(offset, "offset"),
    )


def session(gap: str | datetime.timedelta | int) -> SessionWindows:
    """Make windows that last as long as each event comes less than `gap` after the one before it.

    Parameters
    ----------
    gap
        The time between two events that ends a window: "30 s", a timedelta, or an integer.

    Examples
    --------
    >>> session("30 s")
    SessionWindows(gap=datetime.timedelta(seconds=30))
    """
    return SessionWindows(a_duration(gap, "gap"))


def between(
    open: str | Expression | Fluent | None = None,
    close: str | Expression | Fluent | None = None,
    *,
    predicate: Predicate | None = None,
) -> BetweenWindows:
    """Make windows that the content of events opens and closes.

    Parameters
    ----------
    open, close
        Conditions on an event alone. One that fits `open` opens a window and is its first event; a
        later one that fits `close` closes every window opened before it and is the last of each.
    predicate
        An object that decides in Python instead, with a state of its own.

    Examples
    --------
    >>> between(open="type = 'start'", close="type = 'end'").predicate is None
    True
    """
    return BetweenWindows(
        None if open is None else expression_tree(open, "window open"),
        None if close is None else expression_tree(close, "window close"),
        predicate,
    )


def landmark(at: str | Expression | Fluent | None = None) -> LandmarkWindows:
    """Make windows from one landmark to the next, or one from the first event on without `at`.

    Parameters
    ----------
    at
        The condition that a landmark fits.

    Examples
    --------
    >>> landmark()
    LandmarkWindows(at=None)
    """
    return LandmarkWindows(None if at is None else expression_tree(at, "window landmark"))


def assign(data: TableLike, query: Query) -> pa.Table:
    """Return the windows that a query's `over` makes of a table, one row for each.

    Parameters
    ----------
    data
        An Arrow table, a pandas or polars frame, or a DuckDB relation.
    query
        Its partitions, order and windows count; a pattern is not needed.

    Returns
    -------
    pyarrow.Table
        The partition columns, `window` (the number), `first_row` (the row of `data` that is the
        first event), `rows`, and `window_start` and `window_end`: the bounds of time windows, else
        the times of the first and the last event, NULL where the query has no time.

    Examples
    --------
    >>> query = Query().order_by("ts").over(session(5))
    >>> assign({"ts": [1, 4, 20]}, query).select(["window", "first_row", "rows"]).to_pylist()
    [{'window': 0, 'first_row': 0, 'rows': 2}, {'window': 1, 'first_row': 2, 'rows': 1}]
    """
    return windows_of(query, to_arrow(data, checked_query(query)))
