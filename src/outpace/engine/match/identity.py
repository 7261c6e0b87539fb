"""The identity of a match, for good: its id, made of query, events, labels and window.

An event has an id that stays what it is wherever other events come in (`outpace.engine.event`), so
the id of a match does, too. The same match in two windows has one id, and comes out once; where a
query wants duplicates, the window counts as well. Rows that a user-defined operator gives are known
by the key and the window, and by how many rows it gave before. A window by time is known by the
time at which it starts; one by count, content or landmark, of which several may start at the same
time, by its number.

An id has 128 bits, two sums over well mixed numbers: of a thousand million matches two are alike
with a chance of one in 10^21. So ids are compared, and not what they are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers, Unsigned, pooled
from outpace.engine.event import EVENT_ID, event_ids
from outpace.engine.kernels.hashing import hash_runs, write_digits
from outpace.engine.match.contract import Block, BlockMatches, Task
from outpace.engine.match.meaning import LANES, query_words
from outpace.engine.match.task import taken_lists
from outpace.engine.rows.buckets import key_hashes
from outpace.pattern.query import Query
from outpace.pattern.windows import BetweenWindows, CountWindows, LandmarkWindows

#: The type of ids in tables.
MATCH_ID: Final = pa.binary(16)

#: The constants of splitmix64: an odd number whose bits look random, and two that mix well.
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class MatchIds:
    """The ids of matches; arrays have one entry per match.

    Parameters
    ----------
    start
        The arrival number of its first event: where a search can find it again.
    words
        Its id, as two numbers.
    """

    start: Integers
    words: Unsigned

    def __len__(self) -> int:
        return len(self.start)

    @property
    def array(self) -> pa.Array:
        """The ids as 16 bytes each."""
        content = pa.py_buffer(np.ascontiguousarray(self.words))
        return pa.Array.from_buffers(MATCH_ID, len(self), [None, content])

    @property
    def texts(self) -> pa.Array:
        """The ids as MATCH_ID() shows them, 32 hexadecimal digits each."""
        content = pooled(32 * len(self), np.uint8)
        write_digits(np.ascontiguousarray(self.words).reshape(-1).view(np.uint8), content)
        small = content.nbytes < 1 << 31
        ends = np.arange(0, content.nbytes + 1, 32, dtype=np.int32 if small else np.int64)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(content)]
        if small:
            return pa.Array.from_buffers(pa.string(), len(self), buffers)
        return pa.Array.from_buffers(pa.large_string(), len(self), buffers).cast(pa.string())

    @staticmethod
    def of_array(start: Integers, array: pa.Array) -> MatchIds:
        """Return ids that were written as `array`."""
        words = np.frombuffer(array.buffers()[1] or b"", np.uint64)
        begin = 2 * array.offset
        return MatchIds(start, words[begin : begin + 2 * len(array)].reshape(-1, 2))

    @staticmethod
    def joined(parts: Sequence[MatchIds]) -> MatchIds:
        """Return the ids of all parts, one part after the other."""
        none = np.zeros(0, np.int64)
        return MatchIds(
            np.concatenate([none, *(part.start for part in parts)]),
            np.concatenate([none.astype(np.uint64).reshape(0, 2), *(part.words for part in parts)]),
        )

    def take(self, chosen: Integers | slice) -> MatchIds:
        """Return some ids, in the order given."""
        return MatchIds(self.start[chosen], self.words[chosen])

    def of_rows(self, offsets: Integers) -> Integers:
        """Return ids for the rows of matches, where these are the events of another query.

        They are less than 0, so that they are none of those that events get as they arrive.
        """
        sizes = np.diff(offsets)
        place = np.arange(sizes.sum()) - np.repeat(offsets[:-1], sizes)
        words = np.repeat(self.words[:, 0], sizes) + place.view(np.uint64) * _GOLDEN
        return (_mixed(words) | np.uint64(1 << 63)).view(np.int64)

    def together(self, lines: Integers) -> MatchIds:
        """Return an id for each line of matches that belong together, by their places; -1: none.

        Each line has a match; which place it has in the line counts.
        """
        there = lines >= 0
        starts = np.where(there, self.start[lines], np.iinfo(np.int64).max).min(axis=1)
        words = np.zeros((len(lines), 2), np.uint64)
        for place in range(lines.shape[1]):
            own = _mixed(self.words[lines[:, place]] + np.array([place], np.uint64) * _GOLDEN)
            words += np.where(there[:, place, None], own, np.uint64(0))
        return MatchIds(starts, words)

    def in_windows(self, query: Query, start_time: Integers, number: Integers) -> MatchIds:
        """Return ids that differ where windows do."""
        words = _window_words(query, start_time, number)
        return MatchIds(self.start, self.words + _mixed(words[:, None] ^ LANES))


def match_ids(task: Task, block: Block, found: BlockMatches) -> MatchIds:
    """Return for each match what tells it from all others, whichever window it was found in."""
    return identified(task, block, found)()


@dataclass(frozen=True)
class UnmadeIds:
    """The ids of matches, which are made when they are asked for; no rows are kept till then.

    Parameters
    ----------
    task
        The query.
    start, first
        The arrival number of the first event of each match, and its id.
    taken, positions, offsets
        The ids of the events that match m took are those from offset m to m + 1, and so are the
        positions of the program at which it took them.
    """

    task: Task
    start: Integers
    first: Integers
    taken: Integers
    positions: Integers
    offsets: Integers

    def __call__(self) -> MatchIds:
        """Return the ids."""
        return self._made

    @cached_property
    def _made(self) -> MatchIds:
        if not len(self.start):
            return MatchIds.joined([])
        task, words = self.task, pooled(2 * len(self.start), np.uint64).reshape(-1, 2)
        count = max(1, len(task.program.names))
        first, taken = self.first.view(np.uint64), self.taken.view(np.uint64)
        labels = task.variables.view(np.uint64)
        hash_runs(task.salts, first, taken, self.positions, labels, count, self.offsets, words)
        return MatchIds(self.start, words)

    def of(self, task: Task, chosen: Integers) -> MatchIds:
        """Return the ids of some of the matches, were they those of another query."""
        offsets, source = taken_lists(self.offsets, chosen)
        items = self.taken[source], self.positions[source]
        return UnmadeIds(task, self.start[chosen], self.first[chosen], *items, offsets)()


def identified(task: Task, block: Block, found: BlockMatches) -> UnmadeIds:
    """Return what makes the ids of matches when they are asked for."""
    arrivals = block.arrivals
    positions, offsets = found.positions.copy(), found.offsets.copy()
    if EVENT_ID.name in block.columns or not _without_gaps(block):
        ids = event_ids(block.columns, arrivals)
        start, first = arrivals[found.start].astype(np.int64, copy=False), ids[found.start]
        taken = ids[found.rows]
    else:
        # To add is faster than to look up.
        start = first = found.start + np.int64(arrivals[0])
        taken = found.rows + np.int64(arrivals[0])
    return UnmadeIds(task, start, first, taken, positions, offsets)


def _without_gaps(block: Block) -> bool:
    """Say whether the rows are one partition, and no event came in between."""
    arrivals = block.arrivals
    whole = len(block.segments) == 2 and len(arrivals) > 0
    return whole and bool(arrivals[-1] - arrivals[0] == len(arrivals) - 1)


def row_ids(
    query: Query,
    keys: Sequence[pa.ChunkedArray],
    start_time: Integers,
    number: Integers,
    given: Integers,
    start: Integers,
) -> MatchIds:
    """Return what tells rows of a user-defined operator apart.

    Parameters
    ----------
    query
        The query.
    keys, start_time, number, given
        For each row the columns of its key, its window, and how many rows this gave before.
    start
        The arrival number of the first event of its window.
    """
    words = np.tile(query_words(query), (len(start), 1))
    places = [_window_words(query, start_time, number), given.view(np.uint64)]
    for known in [key_hashes(keys), *places] if keys else places:
        words = _mixed(words ^ known[:, None])
    return MatchIds(start, words)


def _window_words(query: Query, start_time: Integers, number: Integers) -> Unsigned:
    """Return a number for each window of a partition."""
    if query.windows is None or isinstance(
        query.windows, CountWindows | BetweenWindows | LandmarkWindows
    ):
        # When they start is known in some paths alone.
        return number.view(np.uint64) * _GOLDEN
    return start_time.view(np.uint64) * _GOLDEN


def _mixed(words: Unsigned) -> Unsigned:
    """Return numbers whose bits all depend on all bits of the given ones, which are lost."""
    words += _GOLDEN
    words ^= words >> np.uint64(30)
    words *= _FIRST
    words ^= words >> np.uint64(27)
    words *= _SECOND
    words ^= words >> np.uint64(31)
    return words
