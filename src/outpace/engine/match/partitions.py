"""The partitions of a stream that something is known of, and what: where matching stopped in each.

A partition has a number while it is known; numbers of forgotten ones are given again. What a step
costs here depends on the partitions that it touches, not on those that there are. Memory: the key
and some integers for each partition that is known, and room for as many as there ever were at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.arrays import Integers, grown
from outpace.engine.match.contract import Resume
from outpace.engine.rows.keyed import Kept, KeyedRows
from outpace.engine.rows.partition import key_codes, key_tuples
from outpace.engine.state import NATURAL, integers, lists, require, require_types

#: What is known of each partition, and what it is before the first row.
_FRESH: Final = {"count": 0, "next_start": 0, "barrier": -1, "number": 0, "completed_to": 0}
#: What it may be, where that is not a natural number.
_BOUNDS: Final = {"barrier": range(-1, NATURAL.stop)}


class Numbered(NamedTuple):
    """The partitions of some rows.

    Parameters
    ----------
    codes
        Each row's place in `numbers`.
    numbers
        The numbers of the partitions that there are, all different.
    added
        Those of them that were given just now.
    """

    codes: npt.NDArray[np.int32]
    numbers: Integers
    added: Integers


class Partitions:
    """What is known of each partition: its rows so far are counted, and where matching stopped.

    Parameters
    ----------
    schema
        The columns of the stream.
    partition_by
        The columns of the key; none for a stream without partitions.

    Examples
    --------
    >>> rows = pa.table({"key": ["b", "a", "b"]})
    >>> partitions = Partitions(rows.schema, ("key",))
    >>> numbered = partitions.number(rows)
    >>> numbered.codes.tolist(), numbered.numbers.tolist(), numbered.added.tolist()
    ([0, 1, 0], [0, 1], [0, 1])
    >>> partitions.forget(np.array([0]))
    >>> partitions.number(pa.table({"key": ["a", "c"]})).numbers.tolist()
    [1, 0]
    """

    def __init__(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        self._names = tuple(partition_by)
        self._numbers: dict[tuple[Hashable, ...], int] = {}
        #: By number: the key, and what is known.
        self._keys: list[tuple[Hashable, ...]] = []
        self._known = {name: np.zeros(0, np.int64) for name in _FRESH}
        self._consumed: dict[int, Integers] = {}
        self._free: list[int] = []
        self._values = KeyedRows(schema.empty_table().select(self._names).schema, 0)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def count(self) -> Integers:
        """How many rows each partition had so far, by number."""
        return self._known["count"]

    @property
    def next_start(self) -> Integers:
        """The first start of each partition that is not settled, by number."""
        return self._known["next_start"]

    def number(self, rows: pa.Table) -> Numbered:
        """Number the partitions of rows; those that are new get a number."""
        if not rows.num_rows:
            nothing = np.zeros(0, np.int64)
            return Numbered(np.zeros(0, np.int32), nothing, nothing)
        if not self._names:
            added = self._add([] if self._numbers else [()], rows)
            return Numbered(np.zeros(rows.num_rows, np.int32), np.zeros(1, np.int64), added)
        codes, firsts = key_codes([rows.column(name) for name in self._names])
        values = rows.select(self._names).take(pa.array(firsts))
        keys = key_tuples(values)
        new = [place for place, key in enumerate(keys) if key not in self._numbers]
        added = self._add([keys[place] for place in new], values.take(pa.array(new, pa.int64())))
        return Numbered(codes, np.array([self._numbers[key] for key in keys], np.int64), added)

    def resume(self, numbers: Integers) -> Resume:
        """Return where matching stopped in some partitions."""
        nothing = np.zeros(0, np.int64)
        if self._consumed:
            consumed = [self._consumed.get(number, nothing) for number in numbers.tolist()]
        else:
            consumed = [nothing] * len(numbers)
        known = self._known
        return Resume(
            known["next_start"][numbers],
            known["barrier"][numbers],
            known["number"][numbers],
            known["completed_to"][numbers],
            consumed,
        )

    def stopped(self, numbers: Integers, resume: Resume) -> None:
        """Note where matching stopped in some partitions."""
        for name in ("next_start", "barrier", "number", "completed_to"):
            self._known[name][numbers] = getattr(resume, name)
        for number, consumed in zip(numbers.tolist(), resume.consumed, strict=True):
            if len(consumed):
                self._consumed[number] = consumed
            else:
                self._consumed.pop(number, None)

    def forget(self, numbers: Integers) -> None:
        """Forget partitions: should one of them come again, it is new."""
        for number in numbers.tolist():
            del self._numbers[self._keys[number]]
            self._keys[number] = ()
            self._consumed.pop(number, None)
            self._free.append(number)
        if self._names:
            self._values.replace(numbers, self._values.take(numbers[:0]))

    def numbers(self) -> Integers:
        """Return the numbers of all partitions that are known, in order."""
        return np.array(sorted(self._numbers.values()), np.int64)

    def tables(self) -> tuple[pa.Table, pa.Table]:
        """Return what is known and the keys, in the order of numbers, for a saved state."""
        numbers = self.numbers()
        consumed = [part.tolist() for part in self.resume(numbers).consumed]
        known = {name: values[numbers] for name, values in self._known.items()}
        keys = self._values.take(numbers)
        return (
            pa.table({**known, "consumed": pa.array(consumed, pa.list_(pa.int64()))}),
            keys.rows.take(pa.array(np.argsort(keys.key))),
        )

    def restore(self, known: pa.Table, keys: pa.Table) -> None:
        """Take what `tables` returned, at first; partitions are numbered from 0."""
        size = known.num_rows
        if self._names:
            require_types(keys, self._values.schema)
            require(keys.num_rows == size, "partitions have no keys")
        else:
            require(size <= 1, "a stream without keys has partitions")
        named = key_tuples(keys) if self._names else [()] * size
        require(len(set(named)) == size, "partitions have the same key")
        numbers = self._add(named, keys)
        read = integers(known, **{name: _BOUNDS.get(name, NATURAL) for name in self._known})
        for name, values in zip(self._known, read, strict=True):
            self._known[name][numbers] = values
        count = self.count[numbers]
        for name in ("next_start", "barrier", "completed_to"):
            require((self._known[name][numbers] <= count).all(), f"{name} is behind the rows")
        consumed = lists(known, "consumed", NATURAL)
        self._consumed = {number: rows for number, rows in enumerate(consumed) if len(rows)}
        for number, rows in self._consumed.items():
            fits = self.next_start[number] <= rows[0] and rows[-1] < count[number]
            require(fits and (np.diff(rows) > 0).all(), "consumed rows do not rise")

    def _add(self, keys: Sequence[tuple[Hashable, ...]], values: pa.Table) -> Integers:
        """Give numbers to keys that have none, and return these."""
        reused = [self._free.pop() for _ in range(min(len(keys), len(self._free)))]
        size = len(self._keys) + len(keys) - len(reused)
        numbers = np.array([*reused, *range(len(self._keys), size)], np.int64)
        self._keys += [()] * (size - len(self._keys))
        for key, number in zip(keys, numbers.tolist(), strict=True):
            self._numbers[key] = number
            self._keys[number] = key
        for name, fresh in _FRESH.items():
            self._known[name] = grown(self._known[name], size, fresh)
            self._known[name][numbers] = fresh
        if self._names and len(keys):
            no_lines = np.zeros((0, len(keys)), np.int64)
            self._values.replace(numbers, Kept(values.combine_chunks(), numbers, no_lines))
        return numbers
