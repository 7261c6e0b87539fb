"""Which event is in which place of an order: ids by places, told by runs in which both count up.

Of a stream in order that is one run, of one that is nearly so a run for each stretch without an
event out of place. A run says of events that are not needed, too, where they were: who is rebuilt
may take them, or not.

Memory: three integers for each run that has an event which is needed, or that came since then.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import SEQUENCE_BITS
from outpace.engine.snapshot import Stateful
from outpace.engine.state import NATURAL, integers, require

#: What an id has of the number in its source.
_NUMBER: Final = (1 << SEQUENCE_BITS) - 1


class PlaceRuns(Stateful):
    """The ids of the events in places, which rise.

    Examples
    --------
    >>> runs = PlaceRuns()
    >>> runs.take(np.array([0, 1, 2]), np.array([7, 8, 9]))
    >>> runs.take(np.array([3, 4]), np.array([10, 20]))
    >>> runs.keep(np.array([1, 3, 4])).tolist(), len(runs)
    ([8, 10, 20], 2)
    >>> runs.find(np.array([7, 8, 9, 20])).tolist()
    [-1, 1, 2, 4]
    """

    CHANGED = ("_added",)

    def __init__(self) -> None:
        #: First places, first ids, and lengths.
        self._runs = np.zeros((3, 0), np.int64)
        self._added: list[Integers] = []

    def __len__(self) -> int:
        return len(self._joined()[0])

    def take(self, places: Integers, ids: Integers) -> None:
        """Say which places the next events in order have."""
        if len(places):
            begin = np.flatnonzero((np.diff(places) != 1) | (np.diff(ids) != 1)) + 1
            begin = np.concatenate([[0], begin])
            length = np.diff(begin, append=len(places))
            self._added.append(np.stack([places[begin], ids[begin], length]))

    def keep(self, places: Integers) -> Integers:
        """Keep what runs have between the first and the last of some places, and return their ids.

        The places rise, and each is in a run.
        """
        first, ids, length = self._joined()
        low, high = np.searchsorted(places, first), np.searchsorted(places, first + length)
        some = low < high
        low, high = low[some], high[some]
        moved = places[low] - first[some]
        first, ids = places[low], ids[some] + moved
        self._runs = np.stack([first, ids, places[high - 1] + 1 - first])
        kept: Integers = places + np.repeat(ids - first, high - low)
        return kept

    def find(self, ids: Integers) -> Integers:
        """Return the places of events; -1 of those that have none here."""
        first, begin, length = self._joined()
        if not len(first):
            return np.full(len(ids), -1)
        order = np.argsort(begin)
        run = order[np.maximum(np.searchsorted(begin, ids, "right", sorter=order) - 1, 0)]
        place = ids - begin[run]
        return np.where((place >= 0) & (place < length[run]), first[run] + place, -1)

    @property
    def ends(self) -> Integers:
        """The first and the last place of each run."""
        first, _, length = self._joined()
        return np.concatenate([first, first + length - 1])

    def table(self) -> pa.Table:
        """Return the runs, for `read`, as small numbers."""
        first, ids, length = self._joined()
        gap = np.diff(first, prepend=0)
        gap[1:] -= length[:-1]
        return pa.table({"gap": gap, "length": length, **_columns(ids, first)})

    @staticmethod
    def read(table: pa.Table, size: int) -> PlaceRuns:
        """Read what `table` returned, of so many places."""
        gap, length = integers(
            table.select(["gap", "length"]), gap=range(size), length=range(1, size + 1)
        )
        first = np.cumsum(gap + length) - length
        require(not len(first) or first[-1] + length[-1] <= size, "events are in no place")
        ids = read_ids(table.select(["source", "ahead"]), first)
        require(((ids & _NUMBER) + length <= _NUMBER + 1).all(), "events have no ids")
        order = np.argsort(ids)
        require((ids[order][1:] >= (ids + length)[order][:-1]).all(), "an event is in two places")
        read = PlaceRuns()
        read._runs = np.stack([first, ids, length])
        return read

    def _joined(self) -> Integers:
        if self._added:
            runs = np.concatenate([self._runs, *self._added], axis=1)
            self._added = []
            first, ids, length = runs
            apart = np.ones(len(first), np.bool_)
            apart[1:] = (first[:-1] + length[:-1] != first[1:]) | (
                ids[:-1] + length[:-1] != ids[1:]
            )
            begin = np.flatnonzero(apart)
            self._runs = np.stack([first[begin], ids[begin], np.add.reduceat(length, begin)])
        return self._runs


def write_ids(ids: Integers, places: Integers) -> pa.Table:
    """Return ids as a table of small numbers, beside other numbers of the same events."""
    return pa.table(_columns(ids, places))


def read_ids(table: pa.Table, places: Integers) -> Integers:
    """Return the ids that `write_ids` wrote."""
    source, ahead = integers(
        table, source=range(1 << (63 - SEQUENCE_BITS)), ahead=range(-NATURAL.stop, NATURAL.stop)
    )
    require(len(ahead) == len(places), "rows are missing")
    number = places + ahead
    require(((number >= 0) & (number <= _NUMBER)).all(), "events have no ids")
    ids: Integers = (source << SEQUENCE_BITS) + number
    return ids


def _columns(ids: Integers, places: Integers) -> dict[str, Integers]:
    """Return the source of each event, and how much its number there is ahead of its place."""
    return {"source": ids >> SEQUENCE_BITS, "ahead": (ids & _NUMBER) - places}
