"""Cutting a query with WITHIN into time ranges: packing rows by range, matching and merging them.

A range has the rows of its time and those that follow within one window, so each match lies whole
in the range of its first event, and one key's rows are matched in many places at once. A range
finds the match of each of its starts as if nothing were skipped; of these it gives those that may
count whatever the range before it found. Whether a start counts depends only on the matches before
it, so one pass over the matches of a key in order of their starts drops those that an earlier one
rules out, and gives what an uncut run gives. Rows with equal times are told
apart by their rank among them, which is the same in every range that has them.

Memory: packing holds the rows that it is given twice; matching the rows of one range, of one bucket
of keys, and the matches of their starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.codec.block import narrow_rows, read_block
from outpace.engine.codec.pack import packed_blocks
from outpace.engine.divide.border import remembers
from outpace.engine.divide.core import skip_rows
from outpace.engine.kernels.grouping import group_rows, is_ascending
from outpace.engine.kernels.starts import keep_starts, reachable_starts
from outpace.engine.match.after import FIRST_ROW, HINT, MISSING
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Block, BlockMatches, Task
from outpace.engine.match.output import match_rows
from outpace.engine.match.task import kept_columns, match_block, take_matches, whole_block
from outpace.engine.rows.buckets import key_buckets
from outpace.engine.rows.partition import column_arrays, key_codes, place_rows
from outpace.engine.rows.times import time_values
from outpace.errors import MatchError
from outpace.pattern.query import AfterMatch, Skip

#: The column that says which range a row is matched in.
RANGE: Final = "__outpace_range"

#: Keys are divided into this many buckets: more would let a task hold fewer rows at a time, but
#: make blocks small where ranges are short.
KEY_BUCKETS: Final = 32

#: Ranges are matched together until they have this many rows.
ROWS_AT_ONCE: Final = 1 << 19


@dataclass(frozen=True)
class Ranges:
    """A query cut into ranges of a width, which is at least WITHIN.

    Parameters
    ----------
    task
        The query.
    width
        The length of a range in units of the time column.
    """

    task: Task
    width: int

    @property
    def within(self) -> int:
        """The length of a window."""
        assert self.task.bound.within is not None
        return self.task.bound.within

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows that are packed."""
        return kept_columns(self.task, self.task.bound.schema)

    @property
    def rows(self) -> pa.Schema:
        """The schema of the rows that are packed."""
        return pa.schema([self.task.bound.schema.field(name) for name in self.columns])


def pack_ranges(ranges: Ranges, table: pa.Table, position: int) -> pa.RecordBatch:
    """Pack rows by key bucket and range, with the schema `PACKED`; each row is in one or two.

    Parameters
    ----------
    ranges
        The query and how it is cut.
    table
        Rows in any order.
    position
        Where the rows stand among all rows that are packed, which decides ties.
    """
    bound = ranges.task.bound
    columns = column_arrays(table.select(ranges.columns))
    keys = [columns[name] for name in bound.partition_by]
    times = time_values(bound, columns)
    return pack_slices(columns, times, keys, partial(_slices, ranges), position)


def pack_slices(
    columns: Mapping[str, pa.Array],
    times: Integers,
    keys: Sequence[pa.Array],
    slices: Callable[[Integers], Iterator[tuple[int, int, int]]],
    position: int,
) -> pa.RecordBatch:
    """Pack rows by key bucket and by what slices their sorted times, with the schema `PACKED`.

    Parameters
    ----------
    columns, times
        The rows, in any order.
    keys
        The columns that tell the bucket; without any all rows are in the first.
    slices
        Yields the numbers that sorted times belong to, and the places of the rows of each.
    position
        Where the rows stand among all rows that are packed, which decides ties.
    """
    order, bounds, times = _grouped(times, keys)
    rows = narrow_rows(columns)
    if order is not None:
        ordered = [_ordered(column, order) for column in rows.columns]
        rows = pa.RecordBatch.from_arrays(ordered, schema=rows.schema)
    buckets, numbers, blocks = [], [], []
    for bucket in np.flatnonzero(np.diff(bounds)):
        low, high = int(bounds[bucket]), int(bounds[bucket + 1])
        for number, first, stop in slices(times[low:high]):
            buckets.append(int(bucket))
            numbers.append(number)
            blocks.append(rows.slice(low + first, stop - first))
    return packed_blocks(buckets, numbers, position, blocks)


def _grouped(
    times: Integers, keys: Sequence[pa.Array]
) -> tuple[npt.NDArray[np.int32] | None, Integers, Integers]:
    """Return the order by key bucket and time, ties as they came; the buckets' bounds; the times.

    The order is None where rows are in order already.
    """
    by_time = None if is_ascending(times) else np.argsort(times, kind="stable").astype(np.int32)
    if by_time is not None:
        times = times[by_time]
    if not keys:
        return by_time, np.array([0, len(times)], np.int64), times
    buckets = key_buckets(keys, KEY_BUCKETS)
    if by_time is not None:
        buckets = buckets[by_time]
    order = np.empty(len(times), np.int32)
    bounds = group_rows(buckets, KEY_BUCKETS, order)
    return (order if by_time is None else by_time[order]), bounds, times[order]


def _ordered(column: pa.Array, order: npt.NDArray[np.int32]) -> pa.Array:
    return place_rows(column, order)


def _slices(ranges: Ranges, times: Integers) -> Iterator[tuple[int, int, int]]:
    """Yield the ranges that sorted times belong to, and the rows of each."""
    own, earliest = times // ranges.width, _earliest(ranges, times)
    numbers = np.unique(np.concatenate([_changed(own), _changed(earliest)]))
    firsts = np.searchsorted(own, numbers)
    stops = np.searchsorted(earliest, numbers, side="right")
    for number, first, stop in zip(numbers, firsts, stops, strict=True):
        yield int(number), int(first), int(stop)


def _changed(values: Integers) -> Integers:
    """Return the different values of a sorted array; `np.unique` would hash or sort each."""
    different: Integers = values[np.concatenate([[True], values[1:] != values[:-1]])]
    return different


def _earliest(ranges: Ranges, times: Integers) -> Integers:
    """Return for each time the first range with windows that it may be in.

    Ranges are compared by their numbers, as their ends may be beyond what 64 bits hold.
    """
    reach = ranges.within - 1
    earliest: Integers = (np.maximum(times, np.iinfo(np.int64).min + reach) - reach) // ranges.width
    return earliest


@dataclass(frozen=True)
class PackedRange:
    """A block of a range as it comes: its bucket and range, and its bytes."""

    bucket: int
    number: int
    block: pa.Buffer


@dataclass(frozen=True)
class _RangeSearch:
    """Matches of some ranges.

    Parameters
    ----------
    ranges
        The bucket and the number of each range.
    block, found
        The rows of all of them, and the match of each start.
    group, numbers
        For each segment of the block the place of its range in `ranges`, and its number.
    """

    ranges: list[tuple[int, int]]
    block: Block
    found: BlockMatches
    group: Integers
    numbers: Integers


class RangeMatcher:
    """Matches ranges that come as blocks, in order of bucket, range and position.

    Parameters
    ----------
    ranges
        The query and how it is cut.
    rows_at_once
        Complete ranges are matched together when they have this many rows.
    """

    def __init__(self, ranges: Ranges, *, rows_at_once: int = ROWS_AT_ONCE) -> None:
        self._ranges = ranges
        self._task = _every_start(ranges.task)
        self._matcher = choose_matcher(self._task)
        self._rows_at_once = rows_at_once
        self._schema = ranges.rows

    def matches(self, packed: Iterable[PackedRange]) -> Iterator[pa.Table]:
        """Yield the matches that start in the ranges; nothing that they find rules out others."""
        for found in self._searched(packed):
            yield match_rows(self._task, found.block, found.found)[0]

    def possible_matches(self, packed: Iterable[PackedRange]) -> Iterator[pa.RecordBatch]:
        """Yield the matches that may count, packed by range as `RangeFilter` takes them."""
        for found in self._searched(packed):
            table, groups = self._possible(found)
            bounds = np.searchsorted(groups, np.arange(len(found.ranges) + 1))
            sizes = np.diff(bounds)
            filled = np.flatnonzero(sizes)
            rows = narrow_rows(column_arrays(table))
            blocks = [rows.slice(bounds[group], sizes[group]) for group in filled]
            buckets = [found.ranges[group][0] for group in filled]
            numbers = [found.ranges[group][1] for group in filled]
            yield packed_blocks(buckets, numbers, 0, blocks)

    def _searched(self, packed: Iterable[PackedRange]) -> Iterator[_RangeSearch]:
        waiting: list[pa.RecordBatch] = []
        places: list[int] = []
        ranges: list[tuple[int, int]] = []
        rows = 0
        for part in packed:
            if not ranges or (part.bucket, part.number) != ranges[-1]:
                if rows >= self._rows_at_once:
                    yield self._search(waiting, places, ranges)
                    waiting, places, ranges, rows = [], [], [], 0
                ranges.append((part.bucket, part.number))
            columns = read_block(part.block, self._schema)
            waiting.append(pa.RecordBatch.from_pydict(columns, self._schema))
            places.append(len(ranges) - 1)
            rows += waiting[-1].num_rows
        if waiting:
            yield self._search(waiting, places, ranges)

    def _search(
        self, batches: list[pa.RecordBatch], places: list[int], ranges: list[tuple[int, int]]
    ) -> _RangeSearch:
        sizes = [batch.num_rows for batch in batches]
        table = pa.Table.from_batches(batches).append_column(
            RANGE, pa.array(np.repeat(np.array(places, np.int64), sizes))
        )
        block = whole_block(self._task, table)
        found = match_block(self._matcher, block).found
        group = block.columns[RANGE].take(pa.array(block.segments[:-1])).to_numpy()
        numbers = np.array([number for _, number in ranges], np.int64)
        own = block.times[found.start] // self._ranges.width
        found = take_matches(found, np.flatnonzero(own == numbers[group[found.segment]]))
        return _RangeSearch(ranges, block, found, group, numbers[group])

    def _possible(self, searched: _RangeSearch) -> tuple[pa.Table, Integers]:
        """Return the matches that may count, what they rule out, and the range of each row."""
        block, found = searched.block, searched.found
        named = skip_rows(self._ranges.task, found)
        # Preferred matches come in order of their starts, range by range.
        start = found.start.astype(np.int64)
        barrier = np.maximum(named - 1, start)
        flaw = np.where(named < 0, Flaw.MISSING, np.where(named == start, Flaw.FIRST_ROW, 0))
        # A match that starts in an earlier range ends at a row whose windows begin there too.
        entered = np.ones(len(start), np.bool_)
        same = np.diff(found.segment) == 0
        earliest = _earliest(self._ranges, block.times[start[:-1]])
        early = earliest < searched.numbers[found.segment[1:]]
        entered[1:] = ~same | early
        may_count = np.flatnonzero(reachable_starts(start, barrier + 1, entered))
        found, start, barrier = take_matches(found, may_count), start[may_count], barrier[may_count]
        table, match = match_rows(self._task, block, found)
        ranks = _ranks(block)
        places = (block.times[start], ranks[start], block.times[barrier], ranks[barrier])
        candidates = with_places(table, [place[match] for place in places], flaw[may_count][match])
        return candidates, searched.group[found.segment][match]


def _every_start(task: Task) -> Task:
    """Return a task that finds the match of each start, range by range."""
    bound = task.bound
    query = bound.query
    if remembers(task):
        query = replace(query, skip=AfterMatch(Skip.TO_NEXT_ROW))
    return replace(
        task,
        meaning=task.meaning or bound.query,
        bound=replace(
            bound,
            query=query,
            partition_by=(RANGE, *bound.partition_by),
            schema=bound.schema.append(pa.field(RANGE, pa.int64())),
        ),
    )


def _ranks(block: Block) -> Integers:
    """Return each row's rank among the rows of its partition with the same time."""
    new = np.ones(block.size, np.bool_)
    new[1:] = block.times[1:] != block.times[:-1]
    new[block.segments[:-1]] = True
    places = np.arange(block.size)
    ranks: Integers = places - np.maximum.accumulate(np.where(new, places, 0))
    return ranks


#: The first row of a match: its time, and its rank among the rows with that time.
START: Final = ("__outpace_start_time", "__outpace_start_rank")
#: The last start that the match rules out, in the same way.
_BARRIER: Final = ("__outpace_barrier_time", "__outpace_barrier_rank")
_FLAW: Final = "__outpace_flaw"


class Flaw(IntEnum):
    """Why AFTER MATCH SKIP TO cannot go where it says."""

    MISSING = 1
    FIRST_ROW = 2


def merged_schema(output: pa.Schema) -> pa.Schema:
    """Return the schema of matches on the way from their ranges to the pass over all."""
    places = [pa.field(name, pa.int64()) for name in (*START, *_BARRIER)]
    return pa.schema([*output, *places, pa.field(_FLAW, pa.int8())])


def with_places(
    table: pa.Table, places: Sequence[Integers], flaw: npt.NDArray[np.int64]
) -> pa.Table:
    """Return rows of matches with the place of each match and what it rules out."""
    columns = [*table.columns, *(pa.array(place, pa.int64()) for place in places)]
    return pa.table([*columns, pa.array(flaw, pa.int8())], schema=merged_schema(table.schema))


class RangeFilter:
    """Drops matches that an earlier match rules out, as ranges come in the order of time.

    Parameters
    ----------
    after
        Where the search goes on after a match.
    keys
        The columns of the key.
    """

    def __init__(self, after: AfterMatch, keys: Sequence[str] = ()) -> None:
        self._after = after
        self._keys = list(keys)
        #: For each key so far, what its last match rules out.
        self._ruled_out: pa.Table | None = None

    def keep(self, found: pa.Table) -> pa.Table:
        """Return the rows of the matches of a range that stay, without what told their places.

        The rows of a key come together, in order of their starts.
        """
        output = found.column_names[: -len(START) - len(_BARRIER) - 1]
        if not found.num_rows:
            return found.select(output)
        barriers = found.select([*self._keys, *_BARRIER])
        carried = barriers.slice(0, 0) if self._ruled_out is None else self._ruled_out
        joined = pa.concat_tables([carried, barriers])
        codes = self._codes(joined)
        starts = [found.column(name).to_numpy() for name in START]
        first = np.ones(found.num_rows, np.bool_)
        first[1:] = np.diff(codes[carried.num_rows :]) != 0
        for place in starts:
            first[1:] |= np.diff(place) != 0
        firsts = np.flatnonzero(first)
        heads = np.concatenate([np.arange(carried.num_rows), carried.num_rows + firsts])
        # What is carried goes before the matches of its key, and stays.
        order = np.argsort(codes[heads], kind="stable")
        heads = heads[order]
        fresh = np.diff(codes[heads], prepend=-1) != 0
        before = np.full(carried.num_rows, np.iinfo(np.int64).min)
        times, ranks = (np.concatenate([before, place])[heads] for place in starts)
        barrier_times, barrier_ranks = (joined.column(name).to_numpy()[heads] for name in _BARRIER)
        kept = keep_starts(times, ranks, barrier_times, barrier_ranks, fresh)
        stays = np.zeros(len(heads), np.bool_)
        stays[order] = kept
        stays = stays[carried.num_rows :]
        self._check(found, firsts[stays])
        self._carry(joined, codes, heads[kept])
        return found.select(output).filter(pa.array(stays[np.cumsum(first) - 1]))

    def _codes(self, joined: pa.Table) -> npt.NDArray[np.int32]:
        if not self._keys:
            return np.zeros(joined.num_rows, np.int32)
        return key_codes([joined.column(name) for name in self._keys])[0]

    def _carry(self, joined: pa.Table, codes: npt.NDArray[np.int32], kept: Integers) -> None:
        """Remember the last match that stays of each key."""
        last = np.append(np.diff(codes[kept]) != 0, True)
        self._ruled_out = joined.take(pa.array(kept[last]))

    def _check(self, found: pa.Table, kept: Integers) -> None:
        if not self._after.strict:
            return
        flaws = found.column(_FLAW).to_numpy()[kept]
        wrong = flaws[flaws != 0]
        if len(wrong):
            raise MatchError(
                MISSING if wrong[0] == Flaw.MISSING else FIRST_ROW,
                detail=f"variable {self._after.variable}",
                hint=HINT,
            )
