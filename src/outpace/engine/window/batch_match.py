"""Matching batches of windows: the rows of a batch at once, and of what it finds its own matches.

Memory: the rows of one batch, of its neighbours' windows too, and what is found in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa

from outpace.engine.window.batches import Batch
from outpace.engine.window.contract import Events, Split, Windows
from outpace.engine.window.feed import Feed, in_order
from outpace.engine.window.operator import Instance, joined_windows
from outpace.engine.window.result import WindowMatches
from outpace.engine.window.split import make_splitter
from outpace.pattern.bind_windows import BoundWindows
from outpace.pattern.bound import BoundQuery


class BatchMatcher:
    """Matches batches, one after the other, each by an instance of its own.

    Parameters
    ----------
    bound
        The query.
    windows
        Its windows.
    make_instance
        Makes what finds the matches.
    """

    def __init__(
        self, bound: BoundQuery, windows: BoundWindows, make_instance: Callable[[], Instance]
    ) -> None:
        self._bound = bound
        self._windows = windows
        self._make_instance = make_instance

    def match_batch(self, rows: pa.Table, batch: Batch) -> pa.Table:
        """Return the matches that count for a batch.

        Parameters
        ----------
        rows
            The rows that the batch needs, in order.
        batch
            The windows.
        """
        events = self._events(rows, batch.rows[0])
        matches = self._instance(events, Split(batch.windows, batch.windows))
        return _own(matches, batch.first, batch.stop)

    def match_time(
        self, rows: pa.Table, held: tuple[int, int], own: tuple[int, int], before: int = 0
    ) -> pa.Table:
        """Return the matches that count for some windows of time.

        Parameters
        ----------
        rows
            All rows of the windows that are held, in any order.
        held, own
            The numbers of the windows that are matched, and of those that matches are wanted of:
            the first, and the one behind the last.
        before
            How many rows there are, of all keys, that are earlier than these.
        """
        events = self._events(rows, before)
        split = self._split(events)
        split = Split(_between(split.opened, *held), _between(split.closed, *held))
        return _own(self._instance(events, split), *own)

    def _events(self, rows: pa.Table, before: int) -> Events:
        events = Feed(self._bound, self._windows).number(in_order(self._bound, rows))
        if not before:
            return events
        arrival = events.arrival + before
        keyed = bool(self._bound.partition_by)
        return replace(events, arrival=arrival, ordinal=events.ordinal if keyed else arrival)

    def _split(self, events: Events) -> Split:
        splitter = make_splitter(self._windows)
        split, rest = splitter.push(events), splitter.finish()
        return Split(split.opened, joined_windows(split.closed, rest.closed))

    def _instance(self, events: Events, split: Split) -> WindowMatches:
        return self._make_instance().step(events, split, ended=True)


def _own(matches: WindowMatches, first: int, stop: int) -> pa.Table:
    mine = (matches.window >= first) & (matches.window < stop)
    return matches.take(np.flatnonzero(mine)).table


def _between(windows: Windows, low: int, high: int) -> Windows:
    """Return the windows with numbers from `low` up to `high`."""
    chosen = (windows.number >= low) & (windows.number < high)
    return Windows(*(getattr(windows, field.name)[chosen] for field in fields(Windows)))
