"""Matching batches of windows: the rows of a batch at once, and of what it finds its own matches.

Memory: the rows of one batch, of its neighbours' windows too, and what is found in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.divide.batches import WindowBatch
from outpace.engine.event import Events
from outpace.engine.message import Deliver
from outpace.engine.operator import Instance
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.split.choose import make_splitter
from outpace.engine.split.number import EventNumbers, in_order
from outpace.engine.split.windows import Split, Windows, joined_windows, take_windows


@dataclass(frozen=True)
class TimePart:
    """Windows of time that follow each other.

    Parameters
    ----------
    rows
        All rows of the windows that are held, in any order.
    held, own
        The numbers of the windows that are matched, and of those that matches are wanted of: the
        first, and the one behind the last.
    before
        How many rows there are, of all keys, that are earlier than these; None, for all parts,
        where nobody asks.
    """

    rows: pa.Table
    held: tuple[int, int]
    own: tuple[int, int]
    before: int | None = None


class BatchMatcher:
    """Matches batches, one after the other, each by an instance of its own.

    Parameters
    ----------
    spec
        The query over windows.
    """

    def __init__(self, spec: OperatorSpec) -> None:
        assert spec.windows is not None
        self._spec = spec
        self._bound = spec.bound
        self._windows = spec.windows

    def match_batch(self, rows: pa.Table, batch: WindowBatch) -> pa.Table:
        """Return the matches that count for a batch.

        Parameters
        ----------
        rows
            The rows that the batch needs, in order.
        batch
            The windows.
        """
        events = self._renumbered(self._numbered(rows), batch.rows[0])
        return self.match(batch, _delivery(events, Split(batch.windows, batch.windows)))

    def match(self, batch: WindowBatch, delivery: Deliver) -> pa.Table:
        """Return the matches that count for a batch, of which all is delivered."""
        matches = Instance(self._spec).step(delivery).matches
        mine = (matches.window >= batch.first) & (matches.window < batch.stop)
        return matches.take(np.flatnonzero(mine)).table

    def match_times(self, parts: Sequence[TimePart]) -> pa.Table:
        """Return the matches that count for windows of time.

        Parameters
        ----------
        parts
            In the order of time, without any rows in common. All are matched at once, which is
            worth the while where they are small.
        """
        counts = np.array([part.rows.num_rows for part in parts])
        rows = pa.concat_tables([part.rows for part in parts]).combine_chunks()
        events = self._numbered(in_order(self._bound, rows))
        begins = np.cumsum(counts) - counts
        if parts[0].before is not None:
            before = np.array([part.before for part in parts])
            events = self._renumbered(events, np.repeat(before - begins, counts))
            begins = before
        ends = begins + counts
        splitter = make_splitter(self._windows)
        split, rest = splitter.push(events), splitter.finish()
        held = np.array([part.held for part in parts])
        closed = _within(joined_windows(split.closed, rest.closed), held)
        # Windows are closed by the end of their part, whatever comes in the next one.
        end = ends[_part_of(closed.number, held)]
        closed = replace(closed, closed_at=np.minimum(closed.closed_at, end))
        delivery = _delivery(events, Split(_within(split.opened, held), closed))
        matches = Instance(self._spec).step(delivery).matches
        own = np.array([part.own for part in parts])[_part_of(matches.window, held)]
        mine = (matches.window >= own[:, 0]) & (matches.window < own[:, 1])
        return matches.take(np.flatnonzero(mine)).table

    def _numbered(self, rows: pa.Table) -> Events:
        keys = self._bound.partition_by
        return EventNumbers(self._bound.schema, keys, self._spec.time).number(rows)

    def _renumbered(self, events: Events, before: int | Integers) -> Events:
        """Return events with their numbers among all of the stream: so many came before each."""
        arrival = events.arrival + before
        keyed = bool(self._bound.partition_by)
        return replace(events, arrival=arrival, ordinal=events.ordinal if keyed else arrival)


def _delivery(events: Events, split: Split) -> Deliver:
    arrived = int(events.arrival[-1]) + 1 if len(events.arrival) else 0
    return Deliver(0, events, None, split, arrived, ended=True)


def _part_of(numbers: Integers, held: Integers) -> Integers:
    """Return the part that holds each window; none of the numbers is below all parts."""
    part: Integers = np.searchsorted(held[:, 0], numbers, side="right") - 1
    return part


def _within(windows: Windows, held: Integers) -> Windows:
    """Return the windows that parts hold."""
    part = np.maximum(_part_of(windows.number, held), 0)
    chosen = (windows.number >= held[part, 0]) & (windows.number < held[part, 1])
    return take_windows(windows, np.flatnonzero(chosen))
