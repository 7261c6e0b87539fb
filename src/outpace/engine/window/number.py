"""Numbering the events of a stream: which partition, which event of it, which of all.

Partitions get numbers in the order of their first events. Numbers do not depend on how the stream
is cut into pieces. Memory: the key and an integer for each partition ever seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.kernels.windows import count_events
from outpace.engine.match.contract import Integers
from outpace.engine.match.times import as_integers
from outpace.engine.partition import key_codes, key_tuples
from outpace.engine.state import pack, unpack
from outpace.engine.window.contract import Events
from outpace.errors import DataError, StateError

_Key: TypeAlias = tuple[Hashable, ...]

#: So many tables of keys are kept before they are made one, so that a new key costs the same
#: however many there are.
_PARTS_MAX: Final = 1024


@dataclass(frozen=True)
class _Piece:
    """The partitions in a piece of the stream, the events that each had then, and the new keys."""

    partitions: Integers
    counts: Integers
    added: list[_Key]
    added_rows: pa.Table

    @staticmethod
    def none(rows: pa.Table) -> _Piece:
        return _Piece(np.zeros(0, np.int64), np.zeros(0, np.int64), [], rows.slice(0, 0))


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
        self._keys = [schema.empty_table().select(self._names)]
        self._next = _Piece.none(self._keys[0])

    @property
    def arrived(self) -> int:
        """How many events were taken."""
        return self._arrived

    @property
    def keys(self) -> pa.Table:
        """The key of each partition, by number."""
        self._keys = [pa.concat_tables(self._keys).combine_chunks()]
        return self._keys[0]

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

    def state(self) -> bytes:
        """Return all that is kept, as bytes for `restore`."""
        counts = self._counts[: len(self._numbers)]
        return pack({"arrived": self._arrived}, [pa.table({"count": counts}), self.keys])

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned, maybe in another process."""
        header, (counts, keys) = unpack(data)
        if keys.schema != self._keys[0].schema:
            raise StateError("the saved state belongs to a stream with other partitions")
        self._arrived = int(str(header["arrived"]))
        self._keys, self._numbers = [keys.slice(0, 0)], {}
        self._add_keys(key_tuples(keys), keys)
        self._counts[: counts.num_rows] = counts.column("count").to_numpy()

    def _piece(self, keys: pa.Table) -> _Piece:
        """Return the partitions of a piece that has these keys, with their counts before it."""
        known = key_tuples(keys)
        new = [place for place, key in enumerate(known) if key not in self._numbers]
        partitions = np.array([self._numbers.get(key, -1) for key in known], np.int64)
        partitions[new] = len(self._numbers) + np.arange(len(new))
        counts = np.zeros(len(known), np.int64)
        old = partitions < len(self._numbers)
        counts[old] = self._counts[partitions[old]]
        added = keys.take(pa.array(new)) if new else keys.slice(0, 0)
        return _Piece(partitions, counts, [known[place] for place in new], added)

    def _add_keys(self, keys: list[_Key], rows: pa.Table) -> None:
        if not keys:
            return
        self._numbers.update(zip(keys, itertools.count(len(self._numbers))))
        self._keys.append(rows)
        if len(self._keys) > _PARTS_MAX:
            self._keys = [self.keys]
        if len(self._numbers) > len(self._counts):
            larger = np.zeros(2 * len(self._numbers), np.int64)
            larger[: len(self._counts)] = self._counts
            self._counts = larger

    def _times(self, rows: pa.Table) -> Integers:
        if self._time is None:
            return np.zeros(0, np.int64)
        column = rows.column(self._time)
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy())[0])
            raise DataError(f"the time column '{self._time}' is NULL", detail=f"row {row}")
        return as_integers(column)
