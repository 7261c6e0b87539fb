"""What a task does for a query over windows: pack rows, split them into batches, match batches.

Nothing here knows of Spark: rows come and go as Arrow tables and blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.block import block_cells, narrow_rows, read_block
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Integers, Task
from outpace.engine.match.groups import PartitionWork
from outpace.engine.partition import one_array
from outpace.engine.ranges import pack_slices
from outpace.engine.window.apply import WindowedApply
from outpace.engine.window.batch_match import BatchMatcher
from outpace.engine.window.batches import (
    Batch,
    BatchCutter,
    TimeBatches,
    read_windows,
    window_cells,
)
from outpace.engine.window.feed import Feed
from outpace.engine.window.match import WindowMatcher
from outpace.engine.window.number import EventNumbers
from outpace.engine.window.operator import Instance
from outpace.engine.window.split import make_splitter
from outpace.engine.window.work import OperatorWork, WindowWork
from outpace.pattern.bind_windows import BoundWindows
from outpace.pattern.bound import BoundQuery
from outpace.plan.windows import Division, WindowPlan

#: Packed rows in the query's order.
ORDERED: Final = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("block", pa.binary(), nullable=False),
    ]
)

#: Batches: the numbers of their own windows, all their windows, and their rows.
BATCHES: Final = pa.schema(
    [
        pa.field("batch", pa.int64(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("stop", pa.int64(), nullable=False),
        pa.field("windows", pa.binary(), nullable=False),
        pa.field("block", pa.binary(), nullable=False),
    ]
)

#: How many rows have their last batch of time in this one; it may be none.
COUNTED: Final = pa.schema(
    [
        pa.field("range", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
    ]
)


class WindowTask:
    """A query over windows, as a task runs it.

    Parameters
    ----------
    plan
        The plan.
    task
        The pattern as the task matches it, reading bits or not; None for a user-defined operator.
    columns
        The columns that rows have.
    """

    def __init__(self, plan: WindowPlan, task: Task | None, columns: Sequence[str]) -> None:
        self.plan = plan
        self._task = task
        self._columns = tuple(columns)
        #: The query, with the columns that rows have in the task.
        self.bound: BoundQuery = plan.bound if task is None else task.bound

    @property
    def rows(self) -> pa.Schema:
        """The types of all columns that rows may have."""
        return self.bound.schema

    def work(self) -> PartitionWork:
        """Return what is done with rows that come sorted, by key where keys are divided."""
        if self.plan.windows is None:
            return OperatorWork(self.bound.query, self.bound.schema)
        keys = self.bound.partition_by if self.plan.division is Division.KEY else ()
        return WindowWork(self.bound, self.plan.windows, self._instances(), self._columns, keys)

    def matcher(self) -> BatchMatcher:
        """Return what matches batches."""
        return BatchMatcher(self.bound, self._windows, self._instances())

    def pack_times(self, rows: pa.Table, position: int) -> pa.RecordBatch:
        """Pack rows, in any order, by batch of time, and by key bucket where keys are divided."""
        columns = _arrays(rows)
        names = () if self.plan.keys_together else self.bound.partition_by
        keys = [columns[name] for name in names]
        return pack_slices(columns, self._times(rows), keys, self._batches.slices, position)

    def count_times(self, rows: pa.Table) -> pa.RecordBatch:
        """Count rows, of which only the time matters, by the last batch that they may be in."""
        ranges, counts = self._batches.counts(np.sort(self._times(rows)))
        return pa.RecordBatch.from_arrays([pa.array(ranges), pa.array(counts)], schema=COUNTED)

    def match_time(
        self, matcher: BatchMatcher, blocks: Iterable[pa.Buffer], number: int, before: int
    ) -> pa.Table:
        """Return the matches of a packed batch of time."""
        batches = self._batches
        own = (number * batches.count, (number + 1) * batches.count)
        return matcher.match_time(self.unpack(blocks), batches.windows(number), own, before)

    def pack(self, rows: pa.Table, position: int) -> pa.RecordBatch:
        """Pack rows as they come."""
        cells = block_cells([narrow_rows(_arrays(rows))])
        return pa.RecordBatch.from_arrays([pa.array([position]), cells], schema=ORDERED)

    def unpack(self, blocks: Iterable[pa.Buffer]) -> pa.Table:
        """Put the rows of blocks together, in their order."""
        tables = [pa.table(read_block(block, self.rows)) for block in blocks]
        return pa.concat_tables(tables)

    def split(self, ordered: Iterable[pa.Table]) -> Iterator[tuple[Batch, pa.Table]]:
        """Cut rows that come in order into batches, each with the rows that it needs.

        Memory: the rows of the batches that are not complete.
        """
        plan, windows = self.plan, self._windows
        feed, splitter = Feed(self.bound, windows), make_splitter(windows)
        cutter = BatchCutter(plan.batch_rows, plan.batch_windows, neighbours=plan.neighbours)
        held: pa.Table | None = None
        begin = 0
        for rows in ordered:
            events = feed.number(rows)
            feed.take(events)
            held = rows if held is None else pa.concat_tables([held, rows])
            for batch in cutter.take(splitter.push(events)):
                yield batch, _part(held, batch, begin)
            needed = cutter.needed_from(feed.arrived)
            held, begin = held.slice(needed - begin), needed
        if held is not None:
            for batch in cutter.take(splitter.finish(), ended=True):
                yield batch, _part(held, batch, begin)

    @property
    def _windows(self) -> BoundWindows:
        assert self.plan.windows is not None
        return self.plan.windows

    @property
    def _batches(self) -> TimeBatches:
        assert self.plan.batches is not None
        return self.plan.batches

    def _times(self, rows: pa.Table) -> Integers:
        return EventNumbers(rows.schema, (), self._windows.time).number(rows).times

    def _instances(self) -> Callable[[], Instance]:
        """Return what makes instances; they share what is compiled."""
        if self._task is None:
            return lambda: WindowedApply(self.bound.query, self.bound.schema)
        task, matcher = self._task, choose_matcher(self._task).matcher
        return lambda: WindowMatcher(task, matcher)


def pack_batch(number: int, batch: Batch, rows: pa.Table | None = None) -> pa.RecordBatch:
    """Return a batch as a row of `BATCHES`; without rows where they are read elsewhere."""
    block = pa.array([b""]) if rows is None else block_cells([narrow_rows(_arrays(rows))])
    columns = [pa.array([value]) for value in (number, batch.first, batch.stop)]
    return pa.RecordBatch.from_arrays([*columns, window_cells([batch]), block], schema=BATCHES)


def unpack_batches(packed: pa.RecordBatch) -> Iterator[tuple[Batch, pa.Buffer]]:
    """Yield batches, and the blocks of their rows."""
    _, firsts, stops, windows, blocks = packed.columns
    for first, stop, cell, block in zip(firsts, stops, windows, blocks, strict=True):
        batch = Batch(read_windows(cell.as_buffer()), first.as_py(), stop.as_py())
        yield batch, block.as_buffer()


def _part(held: pa.Table, batch: Batch, begin: int) -> pa.Table:
    first, stop = batch.rows
    return held.slice(first - begin, stop - first)


def _arrays(rows: pa.Table) -> dict[str, pa.Array]:
    return {name: one_array(rows.column(name)) for name in rows.column_names}
