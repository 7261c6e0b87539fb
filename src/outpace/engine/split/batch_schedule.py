"""A schedule of windows that close in the order in which they open, given in batches in turn.

The n-th window goes to instance `n // batch % instances`, so two counts, of windows that have
opened and that have closed, tell which instance has which open windows: batches are arithmetic, not
lists. Messages are short as well: a range of numbers for each instance.

    windows   closed before | closing now | open throughout | opening now
    counts                  a             b                 c             d

An instance with a window between b and c gets all rows; where every instance has one, nothing is
looked at. Otherwise there are few windows but those that open and close now, and the rows of each
batch reach from the first row of its first window to the last row of its last one.

Memory: two integers. Paper: SPACE (Amann 2018) 2.3.4, 4.4 and 5.4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import Events
from outpace.engine.split.schedule import NO_ROWS, Delivery, Schedule, rows_by_owner
from outpace.engine.split.windows import Split, Windows, part_windows
from outpace.engine.state import NATURAL, integer, require


class BatchedSchedule(Schedule):
    """Gives each next batch of windows to the next instance.

    Parameters
    ----------
    batch
        How many windows make a batch.
    instances
        The number of instances.
    used
        How many of them are given windows; None: all.
    """

    def __init__(self, batch: int, instances: int, used: int | None = None) -> None:
        super().__init__(instances)
        self._batch = batch
        self._used = used or instances
        self._opened = 0
        self._closed = 0

    def route(self, events: Events, split: Split, loads: Sequence[float]) -> list[Delivery]:
        """Return what each instance gets; instances that get nothing are left out."""
        block = _SplitEvents(events, split, self._closed, self._opened)
        if not block.size and block.a == block.b:
            return []
        self._closed, self._opened = block.b, block.d
        rows = rows_by_owner(*self._rows(block))
        self.events_sent += sum(size for _, size in rows.values())
        # Without rows, an instance is told of windows that close alone.
        instances = self._owners(block.a, block.d if block.size else block.b)
        if self._used == 1:
            return [Delivery(one, *rows.get(one, NO_ROWS), split) for one in instances]
        turn = _Turn(split, block.a, block.c, self._batch, self._used)
        return [Delivery(one, *rows.get(one, NO_ROWS), BatchShare(turn, one)) for one in instances]

    def _kept(self) -> tuple[dict[str, object], list[pa.Table]]:
        return {"opened": self._opened, "closed": self._closed}, []

    def _set_kept(
        self, numbers: Mapping[str, object], tables: list[pa.Table], opened: Windows | None
    ) -> None:
        self._opened, self._closed = (
            integer(numbers, name, NATURAL) for name in ("opened", "closed")
        )
        require(self._closed <= self._opened, "more windows have closed than opened")
        if opened is not None:
            there = self._opened - self._closed == len(opened)
            require(there, "windows are not given to instances")

    def _owners(self, begin: int, end: int) -> Iterable[int]:
        """Return the instances, in their order, of windows between two places in their order."""
        batch, used = self._batch, self._used
        if begin == end:
            return []
        first, last = begin // batch, (end - 1) // batch
        if last - first >= used - 1:
            return range(used)
        low, high = first % used, last % used
        return range(low, high + 1) if low <= high else [*range(high + 1), *range(low, used)]

    def _rows(self, block: _SplitEvents) -> tuple[Integers, Integers]:
        """Return ranges of rows, by the instance that gets them, and the owner of each."""
        batch, used = self._batch, self._used
        if block.a == block.d or not block.size:
            return np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
        if block.c - block.b >= batch * used:
            return np.arange(used), np.tile(np.array([0, block.size], np.int64), (used, 1))
        # Windows of a batch that do not touch each other have ranges of their own.
        unit = batch if batch == 1 or block.touch(1) else 1
        units = np.arange(block.a // unit, (block.d - 1) // unit + 1)
        heads = tails = units
        if len(units) > used and unit == batch and block.touch((used - 1) * batch + 1):
            # Nor does an instance have a gap between two batches, so it has one range.
            heads, tails = (some[np.argsort(some % used)] for some in (units[:used], units[-used:]))
        first = block.firsts(np.maximum(heads * unit, block.a))
        stop = block.stops(np.minimum(tails * unit + unit, block.d) - 1)
        owner = heads * unit // batch % used
        order = np.argsort(owner, kind="stable")
        order = order[first[order] < stop[order]]
        owner, first, stop = owner[order], first[order], stop[order]
        apart = np.ones(len(owner) + 1, np.bool_)
        apart[1:-1] = (owner[1:] != owner[:-1]) | (first[1:] > stop[:-1])
        ranges = np.stack([first[apart[:-1]], stop[apart[1:]]], axis=1)
        return owner[apart[:-1]], ranges


@dataclass(frozen=True)
class _Turn:
    """The windows that a block opens and closes, and the rule by which instances share them."""

    split: Split
    closed: int
    opened: int
    batch: int
    used: int

    def windows_of(self, windows: Windows, begin: int, instance: int) -> Windows:
        """Return an instance's windows; `begin` is the place of the first one among all."""
        count, batch, used = len(windows), self.batch, self.used
        if batch == 1:
            return part_windows(windows, slice((instance - begin) % used, None, used))
        first = begin // batch
        number = first + (instance - first) % used
        if begin + count <= (number + used) * batch:
            low, high = number * batch - begin, (number + 1) * batch - begin
            return part_windows(windows, slice(max(0, low), max(0, high)))
        starts = np.arange(number, (begin + count - 1) // batch + 1, used) * batch - begin
        places = (starts[:, None] + np.arange(batch)).reshape(-1)
        return part_windows(windows, places[(places >= 0) & (places < count)])


class BatchShare(Split):
    """The windows of an instance that open and close, found when they are asked for."""

    _turn: _Turn
    _instance: int

    def __init__(self, turn: _Turn, instance: int) -> None:
        vars(self).update(_turn=turn, _instance=instance)

    def __getattr__(self, name: str) -> Windows:
        """Find the windows when they are asked for first."""
        known = vars(self)
        if name not in ("opened", "closed") or "_turn" not in known:
            raise AttributeError(name)
        turn = self._turn
        windows = turn.windows_of(getattr(turn.split, name), getattr(turn, name), self._instance)
        known[name] = windows
        return windows


class _SplitEvents:
    """Events, with the windows that they open and close and where these stand among all."""

    def __init__(self, events: Events, split: Split, closed: int, opened: int) -> None:
        self._split = split
        self.size = len(events.arrival)
        self._begin = int(events.ordinal[0]) if self.size else 0
        #: See the picture above.
        self.a, self.b = closed, closed + len(split.closed)
        self.c, self.d = opened, opened + len(split.opened)

    def touch(self, distance: int) -> bool:
        """Say whether windows that are so far apart in their order have no row between them."""
        # Of two windows the earlier one must close now and the later one open, to leave a gap.
        low, high = max(self.a, self.c - distance), min(self.b, self.d - distance)
        if low >= high:
            return True
        stops = self._split.closed.stop[low - self.a : high - self.a]
        firsts = self._split.opened.first[low + distance - self.c : high + distance - self.c]
        return bool((stops >= firsts).all())

    def firsts(self, places: Integers) -> Integers:
        """Return the first row of windows that stand at some places in the order of opening."""
        rows = np.zeros(len(places), np.int64)
        new = places >= self.c
        rows[new] = self._rows(part_windows(self._split.opened, places[new] - self.c).first)
        return rows

    def stops(self, places: Integers) -> Integers:
        """Return the row behind the last one of windows that stand at some places."""
        rows = np.full(len(places), self.size)
        old = places < self.b
        rows[old] = self._rows(part_windows(self._split.closed, places[old] - self.a).stop)
        return rows

    def _rows(self, ordinals: Integers) -> Integers:
        return np.clip(ordinals - self._begin, 0, self.size)
