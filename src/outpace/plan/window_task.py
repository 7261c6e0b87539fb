"""What a task does for a query over windows: pack rows, split them into batches, match batches.

Nothing here knows of Spark: rows come and go as Arrow tables and blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.codec.block import block_cells, narrow_rows
from outpace.engine.codec.pack import unpack
from outpace.engine.divide.batch_match import BatchMatcher, TimePart
from outpace.engine.divide.batches import BatchCutter, TimeBatches, WindowBatch
from outpace.engine.divide.groups import PartitionWork
from outpace.engine.divide.ranges import pack_slices
from outpace.engine.front import Front
from outpace.engine.instance import Instance
from outpace.engine.message import Deliver, EventsArrived, SourceEnded, Stimulus
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.partition import column_arrays
from outpace.engine.rows.times import valid_times
from outpace.engine.whole import deliveries
from outpace.engine.wire import read_delivery, write_delivery
from outpace.pattern.bind.window_kinds import BoundWindows
from outpace.pattern.bound import BoundQuery
from outpace.pattern.schedulers import ByKey
from outpace.plan.division import Cut
from outpace.plan.plan import Plan
from outpace.plan.row_plan import RowDivision

#: Packed rows in the query's order.
ORDERED: Final = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("block", pa.binary(), nullable=False),
    ]
)

#: Batches: the numbers of their own windows, and all their windows with their events.
BATCHES: Final = pa.schema(
    [
        pa.field("batch", pa.int64(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("stop", pa.int64(), nullable=False),
        pa.field("delivery", pa.binary(), nullable=False),
    ]
)

#: How many rows have their last batch of time in this one; it may be none.
COUNTED: Final = pa.schema(
    [
        pa.field("range", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
    ]
)

#: The next events of a bucket of keys with their numbers, and the windows that open and close.
NUMBERED: Final = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("delivery", pa.binary(), nullable=False),
    ]
)

#: Small batches of time are matched together until they have so many rows.
ROWS_AT_ONCE: Final = 1 << 16

#: The number of a batch of time, how many rows come before it if that counts, and its blocks.
PackedBatch: TypeAlias = "tuple[int, int | None, Iterable[pa.Buffer]]"


class WindowTask:
    """A query over windows, as a task runs it.

    Parameters
    ----------
    plan
        The plan.
    """

    def __init__(self, plan: Plan[RowDivision]) -> None:
        self.plan = plan
        self._spec: OperatorSpec = plan.operator
        #: The query, with the columns that rows have in the task.
        self.bound: BoundQuery = plan.bound
        known, columns = self.bound.schema, plan.crossing.row_schema.names
        # Rows that nothing reads have one column all the same, so that they are counted.
        added = [pa.field(name, pa.int8()) for name in columns if name not in known.names]
        #: The types of all columns that rows may have.
        self.rows: pa.Schema = pa.schema([*known, *added])

    def work(self) -> PartitionWork:
        """Return what is done with rows that come sorted, by key where keys are divided."""
        keys = self.bound.partition_by if self.plan.division.cut is Cut.KEY else ()
        return PartitionWork(self._spec, keys)

    def matcher(self) -> BatchMatcher:
        """Return what matches batches."""
        return BatchMatcher(self._spec)

    def pack_times(self, rows: pa.Table, position: int) -> pa.RecordBatch:
        """Pack rows, in any order, by batch of time, and by key bucket where keys are divided."""
        columns = column_arrays(rows)
        names = () if self.plan.keys_together else self.bound.partition_by
        keys = [columns[name] for name in names]
        return pack_slices(columns, self._times(rows), keys, self._batches.slices, position)

    def count_times(self, rows: pa.Table) -> pa.RecordBatch:
        """Count rows, of which only the time matters, by the last batch that they may be in."""
        ranges, counts = self._batches.counts(np.sort(self._times(rows)))
        return pa.RecordBatch.from_arrays([pa.array(ranges), pa.array(counts)], schema=COUNTED)

    def match_times(self, packed: Iterable[PackedBatch]) -> Iterator[pa.Table]:
        """Yield the matches of packed batches of time, of several together where they are small.

        Parameters
        ----------
        packed
            Batches with their blocks, best in the order of their numbers but so that those next to
            each other are apart.
        """
        batches, matcher = self._batches, self.matcher()
        parts: list[TimePart] = []
        rows, end = 0, 0
        for number, before, blocks in packed:
            if parts and (rows >= ROWS_AT_ONCE or batches.start(number) < end):
                yield matcher.match_times(parts)
                parts, rows = [], 0
            own = (number * batches.count, (number + 1) * batches.count)
            part = TimePart(self.unpack(blocks), batches.windows(number), own, before)
            parts.append(part)
            rows, end = rows + part.rows.num_rows, batches.end(number)
        if parts:
            yield matcher.match_times(parts)

    def pack(self, rows: pa.Table, position: int) -> pa.RecordBatch:
        """Pack rows as they come."""
        cells = block_cells([narrow_rows(column_arrays(rows))])
        return pa.RecordBatch.from_arrays([pa.array([position]), cells], schema=ORDERED)

    def unpack(self, blocks: Iterable[pa.Buffer]) -> pa.Table:
        """Put the rows of blocks together, in their order."""
        return unpack(list(enumerate(blocks)), self.rows)

    def split(
        self, ordered: Iterable[pa.Table], *, described: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Cut rows that come in order into batches, each with the rows that it needs.

        Or with none, where rows are only described: tasks that match read them elsewhere.

        Memory: the rows of the batches that are not complete.
        """
        by = self.plan.division
        cutter = BatchCutter(by.batch_rows, by.batch_windows, neighbours=by.neighbours)
        held: list[pa.Table] = []
        begin, number = 0, itertools.count()
        for taken in deliveries(Front(self._spec), _stimuli(ordered)):
            if len(taken.events.arrival):
                held = [pa.concat_tables([*held, taken.events.rows])]
            for batch in cutter.push(taken.split, ended=taken.ended):
                low, high = batch.rows
                rows = held[0].slice(low - begin, 0 if described else high - low)
                delivery = replace(batch.delivery(rows), instance=next(number))
                cell = write_delivery(delivery, self._spec)
                values = delivery.instance, batch.first, batch.stop, cell
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([one], kind)
                        for one, kind in zip(values, BATCHES.types, strict=True)
                    ],
                    schema=BATCHES,
                )
            needed = cutter.needed_from(taken.arrived)
            held, begin = [rows.slice(needed - begin) for rows in held], needed

    def batches(self, packed: Iterable[pa.RecordBatch]) -> Iterator[tuple[WindowBatch, Deliver]]:
        """Yield batches, each with its delivery."""
        for part in packed:
            _, firsts, stops, cells = part.columns
            for first, stop, cell in zip(firsts, stops, cells, strict=True):
                delivery = read_delivery(cell.as_buffer(), self._spec)
                yield WindowBatch(delivery.split.closed, first.as_py(), stop.as_py()), delivery

    def match_split(self, packed: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the matches that count for batches, one after the other."""
        matcher = self.matcher()
        for batch, delivery in self.batches(packed):
            yield matcher.match(batch, delivery)

    def number(self, ordered: Iterable[pa.Table], buckets: int) -> Iterator[pa.RecordBatch]:
        """Number and split the events of all keys, which come in order, for buckets of keys.

        Memory: one of the tables that come, twice, and what is known of open windows.
        """
        query = self._spec.query.instances(buckets, ByKey())
        front = Front(replace(self._spec, query=query, instances=buckets))
        for position, stimulus in enumerate(_stimuli(ordered)):
            given = list(deliveries(front, [stimulus]))
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([delivery.instance for delivery in given], pa.int32()),
                    pa.array([position] * len(given), pa.int64()),
                    pa.array(
                        [write_delivery(delivery, self._spec) for delivery in given],
                        pa.binary(),
                    ),
                ],
                schema=NUMBERED,
            )

    def match_numbered(self, packed: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the matches of events that were numbered, in order, of one bucket after the other.

        Memory: the rows of open windows, and those of one block.
        """
        bucket = None
        for batch in packed:
            for place, _, cell in zip(*batch.columns, strict=True):
                if place.as_py() != bucket:
                    bucket, instance = place.as_py(), Instance(self._spec)
                delivery = read_delivery(cell.as_buffer(), self._spec)
                yield instance.step(delivery).matches.table

    @property
    def _windows(self) -> BoundWindows:
        assert self.plan.windows is not None
        return self.plan.windows

    @property
    def _batches(self) -> TimeBatches:
        assert self.plan.division.batches is not None
        return self.plan.division.batches

    def _times(self, rows: pa.Table) -> Integers:
        assert self._windows.time is not None
        return valid_times(self._windows.time, rows.column(self._windows.time))


def _stimuli(ordered: Iterable[pa.Table]) -> Iterator[Stimulus]:
    yield from map(EventsArrived, ordered)
    yield SourceEnded()
