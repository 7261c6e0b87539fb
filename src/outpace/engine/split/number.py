"""Numbering the events of a stream: which partition, which event of it, which of all.

Partitions get numbers in the order of their first events. Numbers do not depend on how the stream
is cut into pieces. Memory: the key and a few integers for each partition ever seen. A host to whom
the numbers as such mean nothing may let partitions be forgotten: the number of one is given again,
to a partition whose events are counted on from there, and only as many are kept as live at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import Events
from outpace.engine.kernels.windows import count_events
from outpace.engine.rows.partition import key_codes, key_tuples
from outpace.engine.rows.times import valid_times
from outpace.engine.state import NATURAL, integer, integers, pack, require, unpack
from outpace.errors import StateError

_Key: TypeAlias = tuple[Hashable, ...]

#: So many tables of keys are kept before they are made one, so that a new key costs the same
#: however many there are.
_PARTS_MAX: Final = 1024


@dataclass(frozen=True)
class _Piece:
    """The partitions in a piece of the stream, the events that each had then, and the new keys."""

    partitions: Integers
    counts: Integers
    added: dict[_Key, int]
    added_rows: pa.Table

    @staticmethod
    def none(rows: pa.Table) -> _Piece:
        return _Piece(np.zeros(0, np.int64), np.zeros(0, np.int64), {}, rows.slice(0, 0))


class EventNumbers:
    """Numbers events piece by piece, in the order of the stream.

    Parameters
    ----------
    schema
        The columns of the stream.
    partition_by
        The columns of the key; none for a stream without partitions.
    time
        The column that times are read from, or None.

    Examples
    --------
    >>> rows = pa.table({"key": ["b", "a", "b"], "ts": [1, 2, 3]})
    >>> numbers = EventNumbers(rows.schema, ("key",), "ts")
    >>> events = numbers.number(rows)
    >>> events.partition.tolist(), events.ordinal.tolist(), events.times.tolist()
    ([0, 1, 0], [0, 0, 1], [1, 2, 3])
    >>> numbers.take(events)
    >>> numbers.number(rows).arrival.tolist(), numbers.keys.column("key").to_pylist()
    ([3, 4, 5], ['b', 'a'])
    """

    def __init__(self, schema: pa.Schema, partition_by: Sequence[str], time: str | None) -> None:
        self._names = tuple(partition_by)
        self._time = time
        self._arrived = 0
        self._counts = np.zeros(16, np.int64)
        self._numbers: dict[_Key, int] = {}
        #: The key that each number was given to last, and its row in the tables of keys.
        self._given: list[_Key] = []
        self._rows: list[int] = []
        #: Numbers of partitions that were forgotten.
        self._free: list[int] = []
        self._keys = [schema.empty_table().select(self._names)]
        self._keys_size = 0
        self._next = _Piece.none(self._keys[0])

    @property
    def arrived(self) -> int:
        """How many events were taken."""
        return self._arrived

    @property
    def partitions(self) -> int:
        """How many partitions are known."""
        return len(self._numbers)

    @property
    def keys(self) -> pa.Table:
        """The key of each partition, by number."""
        keys = pa.concat_tables(self._keys).combine_chunks()
        if self._keys_size > len(self._rows):
            keys = keys.take(pa.array(self._rows, pa.int64()))
        self._keys, self._keys_size = [keys], keys.num_rows
        self._rows = list(range(keys.num_rows))
        return keys

    def number(self, rows: pa.Table) -> Events:
        """Number the next events; they count from `take` on."""
        arrival = np.arange(self._arrived, self._arrived + rows.num_rows, dtype=np.int64)
        times = self._times(rows)
        if not self._names or not rows.num_rows:
            self._next = _Piece.none(rows.select(self._names))
            return Events(rows, np.zeros(len(arrival), np.int64), arrival, arrival, times)
        codes, firsts = key_codes([rows.column(name) for name in self._names])
        self._next = self._piece(rows.select(self._names).take(pa.array(firsts)))
        ordinal = np.empty(len(arrival), np.int64)
        count_events(codes, self._next.counts, ordinal)
        return Events(rows, self._next.partitions[codes], ordinal, arrival, times)

    def take(self, events: Events) -> None:
        """Count the events that `number` returned last; without it they are as if never seen."""
        self._arrived += len(events.arrival)
        self._add_keys(self._next.added, self._next.added_rows)
        self._counts[self._next.partitions] = self._next.counts

    def forget(self, partitions: Integers) -> None:
        """Forget partitions: should they come again, they are new, with the number of any such."""
        for number in partitions.tolist():
            del self._numbers[self._given[number]]
            self._free.append(number)

    @property
    def taken(self) -> Integers:
        """How many events of each partition were taken, by its number."""
        return self._counts[: len(self._given)] if self._names else np.array([self._arrived])

    @property
    def forgotten(self) -> Integers:
        """The numbers of partitions that were forgotten."""
        return np.array(self._free, np.int64)

    def state(self) -> bytes:
        """Return all that is kept, as bytes for `restore`."""
        counts = pa.table({"count": self._counts[: len(self._given)]})
        free = pa.table({"number": pa.array(self._free, pa.int64())})
        return pack({"arrived": self._arrived}, [counts, self.keys, free])

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned, maybe in another process."""
        header, (counts, keys, free) = unpack(data, 3)
        if keys.schema != self._keys[0].schema:
            raise StateError("the saved state belongs to a stream with other partitions")
        size = counts.num_rows
        require(not self._names or keys.num_rows == size, "partitions have no keys")
        self._arrived = integer(header, "arrived", NATURAL)
        (self._counts,) = integers(counts, count=range(self._arrived + 1))
        (numbers,) = integers(free, number=range(size))
        self._given, self._free = key_tuples(keys), numbers.tolist()
        gone = set(self._free)
        require(len(gone) == len(self._free), "a partition was forgotten twice")
        self._numbers = {key: at for at, key in enumerate(self._given) if at not in gone}
        self._keys, self._keys_size, self._rows = [keys], keys.num_rows, list(range(keys.num_rows))
        require(len(self._numbers) + len(gone) == len(self._given), "partitions have the same key")

    def _piece(self, keys: pa.Table) -> _Piece:
        """Return the partitions of a piece that has these keys, with their counts before it."""
        known = key_tuples(keys)
        new = [place for place, key in enumerate(known) if key not in self._numbers]
        partitions = np.array([self._numbers.get(key, -1) for key in known], np.int64)
        numbers = [*self._free[: len(new)], *range(len(self._given), len(self._given) + len(new))]
        partitions[new] = numbers[: len(new)]
        counts = np.zeros(len(known), np.int64)
        old = partitions < len(self._given)
        counts[old] = self._counts[partitions[old]]
        added = {known[place]: int(partitions[place]) for place in new}
        return _Piece(partitions, counts, added, keys.take(pa.array(new, pa.int64())))

    def _add_keys(self, keys: dict[_Key, int], rows: pa.Table) -> None:
        if not keys:
            return
        self._numbers.update(keys)
        again = min(len(self._free), len(keys))
        del self._free[:again]
        for row, (key, number) in enumerate(keys.items(), start=self._keys_size):
            if row < self._keys_size + again:
                self._given[number], self._rows[number] = key, row
            else:
                self._given.append(key)
                self._rows.append(row)
        self._keys.append(rows)
        self._keys_size += rows.num_rows
        if len(self._keys) > _PARTS_MAX or self._keys_size > 2 * len(self._rows) + _PARTS_MAX:
            self._keys = [self.keys]
        if len(self._given) > len(self._counts):
            larger = np.zeros(2 * len(self._given), np.int64)
            larger[: len(self._counts)] = self._counts
            self._counts = larger

    def _times(self, rows: pa.Table) -> Integers:
        if self._time is None:
            return np.zeros(0, np.int64)
        return valid_times(self._time, rows.column(self._time), range(rows.num_rows))
