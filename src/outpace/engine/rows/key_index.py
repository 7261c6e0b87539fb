"""Which number a key has: keys of one integer lie in sorted arrays, others in a dictionary.

An integer that is new, known or forgotten costs a few steps over arrays, a key of another kind some
objects. Both cost the keys that are asked for, not those that there are, but for a logarithm.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Booleans, Integers, grown
from outpace.engine.rows.partition import key_tuples, one_array, plain_integers
from outpace.engine.snapshot import Layers, Stateful

Key: TypeAlias = tuple[Hashable, ...]

#: The number of a key that is not known.
UNKNOWN: Final = -1
#: Runs are at least so long, but for one: to look into one more costs as much as to sort it.
_SHORT: Final = 1024
#: So many entries are kept of keys that were forgotten, beside as many as there are keys.
_STALE_MAX: Final = 1024


class KeyIndex(Protocol):
    """The numbers of keys."""

    def keys(self, values: pa.Table) -> Any:
        """Return different keys, whose columns these are, as `find` and `add` take them."""

    def find(self, keys: Any) -> Integers:
        """Return the numbers of keys, and `UNKNOWN` for those that have none."""

    def add(self, keys: Any, chosen: Integers, numbers: Integers) -> None:
        """Give numbers to the chosen of some keys, which have none."""

    def remove(self, numbers: Integers) -> None:
        """Forget the keys that have these numbers."""

    def snapshot(self) -> Self:
        """Return an index that is the same, and stays so."""


def key_index(schema: pa.Schema) -> KeyIndex:
    """Return an index, still empty, for keys of these columns."""
    if len(schema) == 1 and plain_integers(schema.empty_table().column(0)) is not None:
        return IntegerIndex()
    return TupleIndex()


class TupleIndex(Stateful):
    """Keys of any kind.

    Examples
    --------
    >>> index = TupleIndex()
    >>> keys = index.keys(pa.table({"key": ["a", "b"]}))
    >>> index.add(keys, np.array([1]), np.array([7]))
    >>> index.find(keys).tolist()
    [-1, 7]
    """

    CHANGED = ("_numbers", "_given")

    def __init__(self) -> None:
        self._numbers: Layers[Key, int] = Layers({})
        #: By number: the key that it was given to last.
        self._given: Layers[int, Key] = Layers({})

    def keys(self, values: pa.Table) -> list[Key]:
        """Return different keys, whose columns these are."""
        return key_tuples(values)

    def find(self, keys: Sequence[Key]) -> Integers:
        """Return the numbers of keys."""
        return np.array(self._numbers.find(keys, UNKNOWN), np.int64)

    def add(self, keys: Sequence[Key], chosen: Integers, numbers: Integers) -> None:
        """Give numbers to the chosen of some keys."""
        new, given = [keys[place] for place in chosen.tolist()], numbers.tolist()
        self._numbers.update(zip(new, given, strict=True))
        self._given.update(zip(given, new, strict=True))

    def remove(self, numbers: Integers) -> None:
        """Forget the keys that have these numbers."""
        self._numbers.remove(self._given.find(numbers.tolist(), ()))


class _Words(NamedTuple):
    """Different keys as integers, and the place of the one that is NULL, or `UNKNOWN`."""

    words: Integers
    null: int


class _IndexRun(NamedTuple):
    """Integers in order, and the numbers that they were given."""

    words: Integers
    numbers: Integers


class IntegerIndex(Stateful):
    """Keys of one integer, or of what is stored as one, in sorted runs.

    An entry counts as long as its number belongs to its integer; others are left out when runs are
    joined. Each run is at most half as long as the one before.

    Examples
    --------
    >>> index = IntegerIndex()
    >>> keys = index.keys(pa.table({"key": [30, None, 10]}))
    >>> index.add(keys, np.array([0, 1]), np.array([5, 6]))
    >>> index.find(keys).tolist()
    [5, 6, -1]
    >>> index.remove(np.array([5]))
    >>> index.find(keys).tolist()
    [-1, 6, -1]
    """

    CHANGED = ("_runs", "_word", "_live")

    def __init__(self) -> None:
        self._runs: list[_IndexRun] = []
        #: By number: the integer that it was given to last, and whether that is known (0 or 1).
        self._word, self._live = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._known = 0
        self._null = UNKNOWN

    def keys(self, values: pa.Table) -> _Words:
        """Return different keys, whose column this is."""
        column = one_array(values.column(0))
        words = plain_integers(column)
        assert words is not None
        null = int(np.argmax(column.is_null())) if column.null_count else UNKNOWN
        return _Words(words, null)

    def find(self, keys: _Words) -> Integers:
        """Return the numbers of keys."""
        key_words, order = keys.words, None
        if len(key_words) > _SHORT:
            # In order, neighbours are looked for near each other.
            order = np.argsort(key_words)
            key_words = key_words[order]
        known = np.full(len(key_words), UNKNOWN)
        for run in self._runs:
            place = np.minimum(run.words.searchsorted(key_words), len(run.words) - 1)
            number = run.numbers[place]
            there = (run.words[place] == key_words) & self._counts(number, key_words)
            known[there] = number[there]
        found = known
        if order is not None:
            found = np.empty_like(known)
            found[order] = known
        if keys.null != UNKNOWN:
            found[keys.null] = self._null
        return found

    def add(self, keys: _Words, chosen: Integers, numbers: Integers) -> None:
        """Give numbers to the chosen of some keys."""
        if keys.null != UNKNOWN and (null := chosen == keys.null).any():
            self._null = int(numbers[null][0])
            chosen, numbers = chosen[~null], numbers[~null]
        words = keys.words[chosen]
        room = int(numbers.max(initial=-1)) + 1
        self._word, self._live = grown(self._word, room, 0), grown(self._live, room, 0)
        self._word[numbers], self._live[numbers] = words, 1
        self._known += len(words)
        parts, size = [_IndexRun(words, numbers)], len(words)
        every = size + sum(len(run.words) for run in self._runs)
        while self._runs and (
            len(self._runs[-1].words) <= max(2 * size, _SHORT)
            or every > 2 * self._known + _STALE_MAX
        ):
            parts.append(self._runs.pop())
            size += len(parts[-1].words)
        self._append(parts)

    def _append(self, parts: Sequence[_IndexRun]) -> None:
        """Make one run of several, without entries that do not count any more."""
        words = np.concatenate([part.words for part in parts])
        numbers = np.concatenate([part.numbers for part in parts])
        current = np.flatnonzero(self._counts(numbers, words))
        if len(current):
            order = current[np.argsort(words[current], kind="stable")]
            self._runs.append(_IndexRun(words[order], numbers[order]))

    def remove(self, numbers: Integers) -> None:
        """Forget the keys that have these numbers."""
        if self._null != UNKNOWN:
            null = numbers == self._null
            self._null = UNKNOWN if null.any() else self._null
            numbers = numbers[~null]
        self._live[numbers] = 0
        self._known -= len(numbers)

    def _counts(self, numbers: Integers, words: Integers) -> Booleans:
        """Say which numbers belong to these integers now."""
        counts: Booleans = (self._live[numbers] == 1) & (self._word[numbers] == words)
        return counts
