"""Matching the core of a longer sequence: the matches that start in its rows, whole.

Rows come in pieces, in order. A piece is matched where it lies, without copying, as far as the
windows of its starts end in it; the starts near its end are matched together with the head of the
next piece. So every match is found by the task that has its first row, whatever follows is only
looked at, and where one search stops the next goes on.

This is a division of the operator, and no other operator: `CoreMatcher` drives the matcher that an
instance has, and neither orders, numbers, merges nor saves anything. An instance without windows
keeps the rows of undecided matches and takes the next rows behind them (`PartitionMatcher`); it
knows neither where the search of an earlier task enters its rows, nor that rows behind the core are
not its own, nor that rows in which no match starts need not be read. And it would copy: where both
can do it, an instance takes twice the processor time for the same row groups.

Memory: one piece, and at most twice the rows of one window of WITHIN (four times while pieces are
shorter than a window), plus the matches that start in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import EVENT_ID
from outpace.engine.kernels import reduce
from outpace.engine.match.after import barrier_after, skip_variables
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Block, BlockMatches, Resume, Task
from outpace.engine.match.reach import reach_of
from outpace.engine.match.task import prepare, take_matches
from outpace.engine.rows.partition import column_arrays, gather, sort_rows
from outpace.engine.rows.times import time_values
from outpace.pattern.query import AfterMatch, Selection, Skip


class CoreMatches(NamedTuple):
    """Matches of one call: the rows they are in, the matches, and the number of the first row."""

    block: Block
    found: BlockMatches
    base: int


class CoreMatcher:
    """Matches a core that comes piece by piece; the query has WITHIN and no partitions.

    Parameters
    ----------
    task
        The query.
    next_start
        The first row of the core that may start a match; earlier ones are ruled out by a match that
        starts before the core.
    """

    def __init__(self, task: Task, next_start: int = 0) -> None:
        assert task.bound.within is not None
        self._after = task.bound.query.effective_skip
        # A start whose window is cut short fails otherwise than it would: what is kept is checked.
        self.task = with_skip(task, replace(self._after, strict=False))
        self._matcher = choose_matcher(self.task)
        self._within = task.bound.within
        reach = reach_of(task)
        self._back = reach.back
        self._ahead = reach.ahead
        self._targets = skip_variables(task.bound)
        self._held: pa.Table | None = None
        self._pushed = 0
        #: The first row that was not tried as a start yet, and the first that may be one.
        self._open_from = 0
        self._next_start = next_start
        self._last_time = 0
        self._settle_at = 0

    @property
    def next_start(self) -> int:
        """The first row that may start a match, as far as the matches found so far rule."""
        return self._next_start

    @property
    def rows_held(self) -> int:
        """The number of rows that wait for those that follow."""
        return 0 if self._held is None else int(self._held.num_rows)

    def skip(self, block: Block) -> None:
        """Take rows before the core, which only PREV reads; they do not count."""
        joined = self._joined([_slice(block, block.size)])
        self._held = joined.slice(max(0, joined.num_rows - self._back))

    @property
    def needs_rows(self) -> bool:
        """Whether the next rows are needed even if no match starts in them."""
        return self._open_from < self._pushed or self._back > 0

    def leave_out(self, rows: int) -> None:
        """Count rows of the core that are not needed, and in which no match starts."""
        assert not self.needs_rows
        self._pushed += rows
        self._open_from = self._pushed

    def push(self, block: Block, *, searched: bool = True) -> Iterator[CoreMatches]:
        """Take the next rows of the core; `searched=False` promises that no match starts in them.

        Rows are sorted, and have the columns of the query.
        """
        if not block.size:
            return
        held = self.rows_held
        begin = self._pushed - held
        context = min(self._back, block.size) if searched and held else 0
        if self._open_from < self._pushed or context:
            last = int(block.times[context - 1]) if context else self._last_time
            head = first_at(block.times, last + self._within) + max(1, self._ahead)
            if head > block.size:
                self._keep(block, self._open_from)
                yield from self._settle()
                return
            joined = self._joined([_slice(block, head)])
            yield from self._search(joined, begin, self._open_from - begin, held + context)
        settled = max(context, self._complete(block.times)) if searched else block.size
        yield from self._search(block, self._pushed, context, settled if searched else 0)
        self._keep(block, self._pushed + settled)
        self._settle_at = 0

    def finish(self, following: Iterable[Block] = ()) -> Iterator[CoreMatches]:
        """Match what waits; `following` are the rows behind the core, taken as far as needed."""
        if self._open_from >= self._pushed:
            return
        tables = []
        for block in following:
            head = first_at(block.times, self._last_time + self._within)
            head += max(1, self._ahead)
            tables.append(_slice(block, head))
            if head <= block.size:
                break
        held = self.rows_held
        begin = self._pushed - held
        yield from self._search(self._joined(tables), begin, self._open_from - begin, held)
        self._open_from = self._pushed

    def _complete(self, times: Integers) -> int:
        """Return how many rows have their whole window, and what NEXT reads after it, among all."""
        end = len(times) - max(1, self._ahead)
        if end < 0:
            return 0
        return first_at(times, int(times[end]) - self._within + 1)

    def _keep(self, block: Block, open_from: int) -> None:
        """Keep the rows that were not tried yet, and those that PREV needs before them."""
        begin = self._pushed - self.rows_held
        joined = self._joined([_slice(block, block.size)])
        self._held = joined.slice(max(0, open_from - self._back - begin))
        self._open_from = open_from
        self._pushed += block.size
        self._last_time = int(block.times[-1])

    def _settle(self) -> Iterator[CoreMatches]:
        """Match the rows held whose windows are complete, once that is worth the work."""
        assert self._held is not None
        held = self.rows_held
        if held < self._settle_at:
            return
        block = self._block(self._held)
        begin = self._pushed - held
        complete = self._complete(block.times)
        self._settle_at = 2 * held
        if complete <= self._open_from - begin:
            return
        yield from self._search(block, begin, self._open_from - begin, complete)
        self._open_from = begin + complete
        self._held = self._held.slice(max(0, complete - self._back))
        self._settle_at = 2 * self.rows_held

    def _search(
        self, rows: Block | pa.Table, base: int, first: int, stop: int
    ) -> Iterator[CoreMatches]:
        """Find the matches that start in rows `first` up to `stop`, and where to go on."""
        first = max(first, self._next_start - base)
        if first >= stop:
            return
        block = rows if isinstance(rows, Block) else self._block(rows)
        resume = Resume.fresh(1)
        resume.next_start[0] = first
        found = _cut(self._matcher(block, resume).found, first, stop, self._selection)
        if not len(found.start):
            return
        if self._selection is Selection.PREFERRED:
            self._check(found)
            self._next_start = base + self._after_match(found, len(found.start) - 1, self._lenient)
        yield CoreMatches(block, found, base)

    @property
    def _selection(self) -> Selection:
        return self.task.bound.query.effective_selection

    @property
    def _lenient(self) -> AfterMatch:
        return self.task.bound.query.effective_skip

    def _check(self, found: BlockMatches) -> None:
        if not self._after.strict:
            return
        target = skip_rows(self.task, found)
        wrong = np.flatnonzero((target < 0) | (target == found.start))
        if len(wrong):
            self._after_match(found, int(wrong[0]), self._after)

    def _after_match(self, found: BlockMatches, match: int, after: AfterMatch) -> int:
        low, high = int(found.offsets[match]), int(found.offsets[match + 1])
        positions = self.task.program.positions
        labels = [positions[position].variable for position in found.positions[low:high]]
        rows = found.rows[low:high].tolist()
        start = int(found.start[match])
        return 1 + barrier_after(after, self._selection, self._targets, start, rows, labels)

    def _joined(self, tables: list[pa.Table]) -> pa.Table:
        return pa.concat_tables([*([] if self._held is None else [self._held]), *tables])

    def _block(self, table: pa.Table) -> Block:
        return sorted_block(self.task, table)


def with_skip(task: Task, after: AfterMatch) -> Task:
    """Return a task that differs in where the search goes on after a match."""
    if task.bound.query.effective_skip == after:
        return task
    # Rows may bring their ids.
    schema = pa.schema([field for field in task.bound.schema if field.name != EVENT_ID.name])
    other = prepare(replace(task.bound.query, skip=after), schema)
    bound = replace(other.bound, schema=task.bound.schema)
    return replace(other, bound=bound, meaning=task.meaning or task.bound.query)


def first_at(times: Integers, time: int) -> int:
    """Return the first row that is not before a time, which may be beyond what 64 bits hold."""
    limits = np.iinfo(np.int64)
    if time > limits.max:
        return len(times)
    return int(np.searchsorted(times, max(time, limits.min)))


def unkeyed_block(task: Task, table: pa.Table) -> Block:
    """Return rows of one partition as a block, sorted where they are not."""
    order, _ = sort_rows(table, task.bound)
    if order is None:
        return sorted_block(task, table)
    columns = {name: gather(table.column(name), order) for name in table.column_names}
    return sorted_block(task, pa.table(columns))


def sorted_block(task: Task, table: pa.Table) -> Block:
    """Return sorted rows of one partition as a block."""
    columns = column_arrays(table)
    size = table.num_rows
    numbers = _numbers(size)
    return Block(
        columns=columns,
        segments=np.array([0, size], np.int64),
        visible=np.array([size], np.int64),
        ordinals=numbers,
        arrivals=numbers,
        times=time_values(task.bound, columns),
        ended=True,
    )


def _numbers(size: int) -> Integers:
    """Return the numbers from 0 on; blocks of one size after another share them."""
    return _powers(max(16, size).bit_length())[:size]


@lru_cache(maxsize=32)
def _powers(bits: int) -> Integers:
    return np.arange(1 << bits, dtype=np.int64)


def skip_rows(task: Task, found: BlockMatches) -> Integers:
    """Return for each match the row that AFTER MATCH SKIP names; -1 where it is not in the match.

    For SKIP PAST LAST ROW that is the row after the last one.
    """
    after = task.bound.query.effective_skip
    low, high = found.offsets[:-1], found.offsets[1:]
    if after.skip is Skip.PAST_LAST_ROW:
        return found.rows[high - 1].astype(np.int64) + 1
    wanted = np.isin(task.variables, list(skip_variables(task.bound))).astype(np.uint8)
    takes = np.empty(len(low), np.int64)
    search = reduce.nth_first if after.skip is Skip.TO_FIRST else reduce.nth_last
    search(wanted, found.positions, low, high, 0, takes)
    return np.where(takes < 0, -1, found.rows[takes].astype(np.int64))


def _cut(found: BlockMatches, first: int, stop: int, selection: Selection) -> BlockMatches:
    """Keep the matches that start in rows `first` up to `stop`."""
    if selection is Selection.ALL:
        inside = (found.start >= first) & (found.start < stop)
        return take_matches(found, np.flatnonzero(inside)) if not inside.all() else found
    # Preferred matches come in order of their starts, and the first one is not before `first`.
    count = int(np.searchsorted(found.start, stop))
    if count == len(found.start):
        return found
    return found.part(0, count)


def _slice(block: Block, size: int) -> pa.Table:
    return pa.table({name: column.slice(0, size) for name, column in block.columns.items()})
