"""The key table: a number for each key that is known, small and given again when it is forgotten.

Numbers are given in the order of first rows and do not depend on how a stream is cut into pieces.
The least that is free comes first, whenever it became so: a table that was saved goes on alike. The
cost of a call depends on the keys that it has, not on those that there are. Memory: the key and
some integers for each key that is known, and room for as many as there ever were at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heappush
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.arrays import Integers, grown
from outpace.engine.rows.key_index import UNKNOWN, key_index
from outpace.engine.rows.partition import gather, key_codes, one_array
from outpace.engine.rows.permutation import RearrangedRows
from outpace.engine.snapshot import Stateful
from outpace.engine.state import NATURAL, integer, integers, require
from outpace.errors import StateError

#: So many tables of keys are kept before they are made one, so that a new key costs the same
#: however many there are.
_PARTS_MAX: Final = 1024


@dataclass(frozen=True)
class KeyNumbers:
    """The keys of some rows.

    Parameters
    ----------
    codes
        Each row's place in `numbers`.
    numbers
        The numbers of the keys that there are, all different.
    new
        Places of those that are new.
    keys, rows
        The keys that there are, as the index takes them, and the values of the new ones.
    """

    codes: npt.NDArray[np.int32]
    numbers: Integers
    new: Integers
    keys: Any
    rows: pa.Table


class KeyTable(Stateful):
    """Numbers for keys.

    Parameters
    ----------
    schema
        The columns of the key; none where there is one key, which has the number 0.

    Examples
    --------
    >>> table = KeyTable(pa.schema([("key", pa.string())]))
    >>> found = table.look_up(pa.table({"key": ["b", "a", "b"]}))
    >>> found.codes.tolist(), found.numbers.tolist()
    ([0, 1, 0], [0, 1])
    >>> table.add(found)
    >>> table.forget(np.array([0]))
    >>> table.look_up(pa.table({"key": ["a", "c"]})).numbers.tolist(), len(table)
    ([1, 0], 1)
    """

    CHANGED = ("_index", "_rows", "_free", "_parts")

    def __init__(self, schema: pa.Schema) -> None:
        self._names = tuple(schema.names)
        self._index = key_index(schema)
        #: By number: the row in the tables of keys.
        self._rows = np.zeros(16, np.int64)
        self._room = 0
        #: The numbers of keys that were forgotten, as a heap.
        self._free: list[int] = []
        self._parts = [schema.empty_table()]
        self._size = 0

    def __len__(self) -> int:
        return self._room - len(self._free)

    @property
    def room(self) -> int:
        """No number is larger than this, or as large."""
        return self._room

    @property
    def numbers(self) -> Integers:
        """The numbers of the keys that are known, in order."""
        known = np.ones(self._room, np.bool_)
        known[self._free] = False
        return np.flatnonzero(known)

    @property
    def free(self) -> Integers:
        """The numbers of keys that were forgotten."""
        return np.array(self._free, np.int64)

    @property
    def keys(self) -> pa.Table:
        """The keys that are known, in the order of their numbers."""
        self._join()
        return self._parts[0]

    def look_up(self, rows: pa.Table | RearrangedRows) -> KeyNumbers:
        """Return the numbers of rows' keys; new keys count from `add` on."""
        nothing = np.zeros(0, np.int64)
        if not self._names or not rows.num_rows:
            numbers = np.zeros(min(1, rows.num_rows), np.int64)
            new = nothing if len(self) else numbers
            codes = np.zeros(rows.num_rows, np.int32)
            return KeyNumbers(codes, numbers, new, None, self._parts[0])
        columns = [one_array(rows.column(name)) for name in self._names]
        codes, firsts = key_codes(columns)
        first = [gather(column, firsts) for column in columns]
        values = pa.Table.from_arrays(first, schema=self._parts[0].schema)
        keys = self._index.keys(values)
        numbers = self._index.find(keys)
        new = np.flatnonzero(numbers == UNKNOWN)
        if not len(new):
            return KeyNumbers(codes, numbers, nothing, keys, values.slice(0, 0))
        numbers[new] = self._next(len(new))
        added = values if len(new) == len(numbers) else values.take(pa.array(new))
        return KeyNumbers(codes, numbers, new, keys, added)

    def add(self, found: KeyNumbers) -> None:
        """Let the new keys that `look_up` returned last be known."""
        count, numbers = len(found.new), found.numbers[found.new]
        if not count:
            return
        if _are_many(count, self._free):
            self._free = sorted(self._free)[count:]
        else:
            for _ in range(count):
                heappop(self._free)
        self._room = max(self._room, 1 + int(numbers.max()))
        self._rows = grown(self._rows, self._room, 0)
        self._rows[numbers] = np.arange(self._size, self._size + count)
        if not self._names:
            return
        self._index.add(found.keys, found.new, numbers)
        self._parts.append(found.rows)
        self._size += found.rows.num_rows
        if len(self._parts) > _PARTS_MAX or self._size > 2 * self._room + _PARTS_MAX:
            self._join()

    def forget(self, numbers: Integers) -> None:
        """Forget keys: should they come again, they are new, with the number of any such."""
        forgotten = numbers.tolist()
        if self._names:
            self._index.remove(numbers)
        if _are_many(len(forgotten), self._free):
            self._free += forgotten
            heapify(self._free)
        else:
            for number in forgotten:
                heappush(self._free, number)

    def tables(self) -> tuple[dict[str, object], tuple[pa.Table, pa.Table]]:
        """Return what is known, for a saved state: how many numbers there are, keys and numbers."""
        header: dict[str, object] = {"keys": self._room}
        if not self._names:
            return header, (self._parts[0], _no_numbers())
        numbers = self.numbers
        dense = len(numbers) == self._room
        return header, (self.keys, pa.table({"number": numbers[: 0 if dense else None]}))

    def restore(self, header: Mapping[str, object], tables: Sequence[pa.Table]) -> None:
        """Go on from what `tables` returned."""
        keys, given = tables
        if keys.schema != self._parts[0].schema:
            raise StateError("the saved state belongs to a stream with other partitions")
        room = integer(header, "keys", NATURAL)
        if not self._names:
            require(room <= 1, "a stream without keys has partitions")
            self._room = room
            return
        (numbers,) = integers(given, number=range(room))
        if not len(numbers) and keys.num_rows:
            numbers = np.arange(keys.num_rows)
            require(room == len(numbers), "keys have no numbers")
        require(len(numbers) == keys.num_rows, "keys have no numbers")
        require((np.diff(numbers) > 0).all(), "numbers do not rise")
        codes, firsts = key_codes(keys.columns)
        require(len(firsts) == len(codes), "two partitions have the same key")
        self._index = key_index(keys.schema)
        self._index.add(self._index.keys(keys), np.arange(len(numbers)), numbers)
        self._room = room
        self._rows = np.zeros(max(16, room), np.int64)
        self._rows[numbers] = np.arange(len(numbers))
        self._free = np.setdiff1d(np.arange(room), numbers).tolist()
        self._parts, self._size = [keys], keys.num_rows

    def _next(self, count: int) -> list[int]:
        """Return the numbers that so many new keys get."""
        again = _least(self._free, count)
        return [*again, *range(self._room, self._room + count - len(again))]

    def _join(self) -> None:
        """Make one table of keys, without those that are forgotten."""
        if not self._names:
            return
        numbers = self.numbers
        keys = pa.concat_tables(self._parts).combine_chunks()
        self._parts = [keys.take(pa.array(self._rows[numbers]))]
        self._size = len(numbers)
        self._rows[numbers] = np.arange(len(numbers))


def _least(heap: list[int], count: int) -> list[int]:
    """Return so many of the least numbers of a heap, in order; they stay there."""
    if _are_many(count, heap):
        return sorted(heap)[:count]
    found: list[int] = []
    ahead = [(number, 0) for number in heap[:1]]
    while ahead and len(found) < count:
        number, place = heappop(ahead)
        found.append(number)
        for below in range(2 * place + 1, min(2 * place + 3, len(heap))):
            heappush(ahead, (heap[below], below))
    return found


def _are_many(count: int, heap: list[int]) -> bool:
    """Say whether it is faster to sort a heap than to take so many numbers one by one."""
    return count > len(heap) // 8


@cache
def _no_numbers() -> pa.Table:
    """Return what is said of the numbers of a stream without keys."""
    return pa.schema({"number": pa.int64()}).empty_table()
