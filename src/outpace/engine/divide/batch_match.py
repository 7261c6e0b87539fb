"""Matching batches of windows: all rows of a batch at once, of whose matches its own count.

Memory: the rows of one batch, of its neighbours' windows too, and the matches in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.divide.batches import WindowBatch
from outpace.engine.instance import Instance
from outpace.engine.message import Deliver
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.split.number import in_order
from outpace.engine.split.windows import Split, Windows, take_windows
from outpace.engine.whole import whole_delivery


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

    def match_batch(self, rows: pa.Table, batch: WindowBatch) -> pa.Table:
        """Return the matches that count for a batch.

        Parameters
        ----------
        rows
            The rows that the batch needs, in order.
        batch
            The windows.
        """
        return self.match(batch, batch.delivery(rows, self._spec.time))

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
        held = np.array([part.held for part in parts])
        own = np.array([part.own for part in parts])
        matches = Instance(self._spec).step(self._joined(parts, held)).matches
        wanted = own[_part_of(matches.window, held)]
        mine = (matches.window >= wanted[:, 0]) & (matches.window < wanted[:, 1])
        return matches.take(np.flatnonzero(mine)).table

    def _joined(self, parts: Sequence[TimePart], held: Integers) -> Deliver:
        """Return the rows of all parts with the windows held."""
        rows = pa.concat_tables([part.rows for part in parts]).combine_chunks()
        whole = whole_delivery(self._spec, in_order(self._spec.bound, rows))
        events, arrived = whole.events, whole.arrived
        counts = np.array([part.rows.num_rows for part in parts])
        ends = np.cumsum(counts)
        opened, closed = (_within(one, held) for one in (whole.split.opened, whole.split.closed))
        part = _part_of(closed.number, held)
        # Windows are closed by the end of their part, whatever comes in the next one.
        closed_at = np.minimum(closed.closed_at, ends[part])
        if parts[0].before is not None:
            missing = np.array([part.before for part in parts]) - (ends - counts)
            events = replace(events, arrival=events.arrival + np.repeat(missing, counts))
            arrived, closed_at = arrived + int(missing[-1]), closed_at + missing[part]
        split = Split(opened, replace(closed, closed_at=closed_at))
        return replace(whole, events=events, split=split, arrived=arrived)


def _part_of(numbers: Integers, held: Integers) -> Integers:
    """Return the part that holds each window; none of the numbers is below all parts."""
    part: Integers = np.searchsorted(held[:, 0], numbers, side="right") - 1
    return part


def _within(windows: Windows, held: Integers) -> Windows:
    """Return the windows that parts hold."""
    part = np.maximum(_part_of(windows.number, held), 0)
    chosen = (windows.number >= held[part, 0]) & (windows.number < held[part, 1])
    return take_windows(windows, np.flatnonzero(chosen))
