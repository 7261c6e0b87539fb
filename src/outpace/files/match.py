"""Matching Parquet files that are in the query's order: what one task does.

Without windows an unkeyed query is cut into cores: row groups that follow each other in the query's
order. A task reads its core, a little of what follows, and, where matches rule out later starts, as
much of what comes before as it takes to know where its search enters. It gives the matches that
start in its core; the results of the tasks need no merging. What cannot be cut is one task.

Memory of a task: the columns that are used of at most three units (a unit is a row group, or small
ones up to `files.blocks.UNIT_ROWS` rows together), and the rows of a few windows of WITHIN where
these are longer; with windows, the used columns of the rows of one share or batch, with what
overlaps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.divide.batch_match import BatchMatcher, TimePart
from outpace.engine.divide.batches import WindowBatch, count_windows
from outpace.engine.divide.border import find_entry
from outpace.engine.divide.core import CoreMatcher, unkeyed_block
from outpace.engine.divide.groups import SortedGroups
from outpace.engine.match.contract import Block
from outpace.engine.match.output import match_table
from outpace.engine.match.reach import reach_of
from outpace.engine.operator_spec import OperatorSpec, without_pattern
from outpace.engine.rows.times import valid_times
from outpace.engine.split.number import in_order
from outpace.errors import OutpaceError
from outpace.files.plan import FileDivision, Unit, Way, split_columns
from outpace.pattern.bind.window_kinds import ByCount, ByTime
from outpace.plan.crossing import Crossing
from outpace.plan.division import Cut
from outpace.plan.plan import Plan
from outpace.plan.window_task import WindowTask


def match_in_order(plan: Plan[FileDivision]) -> Iterator[pa.Table]:
    """Match all units in order, as one task: what a query that cannot be cut needs."""
    groups = SortedGroups(WindowTask(plan).work())
    for number in range(len(plan.division.units)):
        yield from groups.push(in_order(plan.bound, read_unit(plan, number)))
    yield from groups.finish()


def match_core(plan: Plan[FileDivision], first: int, stop: int) -> Iterator[pa.Table]:
    """Find the matches that start in some units, `first` up to `stop`."""
    task = plan.task
    read = _reader(plan)
    matcher = CoreMatcher(task, _entry(plan, read, first))
    for number in _units_before(plan, first, reach_of(task).back):
        matcher.skip(read(number))
    for number in range(first, stop):
        unit = plan.division.units[number]
        if not unit.searched and not matcher.needs_rows:
            matcher.leave_out(unit.rows)
            continue
        for part in matcher.push(read(number), searched=unit.searched):
            yield match_table(matcher.task, part.block, part.found)
    for part in matcher.finish(map(read, range(stop, len(plan.division.units)))):
        yield match_table(matcher.task, part.block, part.found)


def parts_apart(plan: Plan[FileDivision], most: int) -> list[range]:
    """Return what tasks do that bring nothing to each other: units, shares of windows, or buckets.

    Parameters
    ----------
    plan
        A plan without a shuffle.
    most
        An unkeyed query becomes at most so many tasks: each has to find where its search enters.
    """
    division = plan.division
    units = len(division.units)
    if division.way is Way.SHARES and plan.windows is None:
        edges = np.linspace(0, units, min(units, most) + 1).astype(int).tolist()
        return [range(first, stop) for first, stop in pairwise(edges)]
    numbers = {Way.SHARES: len(division.shares), Way.PACKED: division.buckets}
    return [range(number, number + 1) for number in range(numbers.get(division.way, 1))]


def match_part(plan: Plan[FileDivision], part: range) -> Iterator[pa.Table]:
    """Find the matches of a part of rows that need not be packed, see `parts_apart`."""
    if plan.division.way is Way.IN_ORDER:
        return match_in_order(plan)
    if plan.windows is None:
        return match_core(plan, part.start, part.stop)
    return map(FileWindows(plan).match_share, part)


def read_unit(plan: Plan[FileDivision], number: int) -> pa.Table:
    """Read the columns of a unit that match; rows are as they are stored."""
    return plan.division.read(plan.division.units[number], plan.crossing.columns)


def _reader(plan: Plan[FileDivision]) -> Callable[[int], Block]:
    """Return what reads and sorts a unit; the last two are kept, for the look back ends there."""

    @lru_cache(maxsize=2)
    def read(number: int) -> Block:
        return unkeyed_block(plan.task, read_unit(plan, number))

    return read


def _entry(plan: Plan[FileDivision], read: Callable[[int], Block], first: int) -> int:
    """Return the first row of a core that may start a match."""
    task = plan.task
    before = sum(unit.rows for unit in plan.division.units[:first])

    def core() -> Iterator[Block]:
        return map(read, range(first, len(plan.division.units)))

    try:
        return find_entry(task, map(read, reversed(range(first))), before, core)
    except OutpaceError:
        # Looking back tries starts that the search itself may never come to. Where one of them
        # fails, the search is followed from the beginning.
        matcher = CoreMatcher(task)
        for number, unit in enumerate(plan.division.units[:first]):
            for _ in matcher.push(read(number), searched=unit.searched):
                pass
        for _ in matcher.finish(core()):
            pass
        return max(0, matcher.next_start - before)


def _units_before(plan: Plan[FileDivision], first: int, rows: int) -> list[int]:
    """Return the units that hold so many rows before a unit."""
    numbers: list[int] = []
    while rows > 0 and first > 0:
        first -= 1
        numbers.insert(0, first)
        rows -= plan.division.units[first].rows
    return numbers


_INT64: Final = np.iinfo(np.int64)


class FileWindows:
    """What a task does with windows over files.

    Parameters
    ----------
    plan
        The plan.
    """

    def __init__(self, plan: Plan[FileDivision]) -> None:
        self._plan = plan
        self.task = WindowTask(plan)
        # Neighbouring shares and batches need the units at their borders again.
        self._read = lru_cache(maxsize=2)(self._read_unit)

    def match_share(self, number: int) -> pa.Table:
        """Return the matches that count for the windows of a share."""
        plan, share = self._plan, self._plan.division.shares[number]
        assert plan.windows is not None
        kind = plan.windows.kind
        assert isinstance(kind, ByTime | ByCount)
        margin = -(-kind.size // kind.slide) - 1 if plan.division.neighbours else 0
        held = share.start - margin, share.stop + margin
        low = kind.offset + held[0] * kind.slide
        high = kind.offset + (held[1] - 1) * kind.slide + kind.size
        units = [unit for unit in plan.division.units if unit.greatest >= low and unit.least < high]
        if not units:
            return plan.bound.output.empty_table()
        rows = pa.concat_tables([self._read(unit) for unit in units])
        own = share.start, share.stop
        if plan.division.cut is Cut.TIME:
            return self._match_time(rows, units[0].before, (low, high), held, own)
        return self._match_count(rows, units[0].before, held, own)

    def split(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of all rows, reading what opens and closes windows."""
        query, columns = without_pattern(self._plan.bound.query), split_columns(self._plan)
        schema = pa.schema([self._plan.crossing.schema.field(name) for name in columns])
        crossing = Crossing(schema=schema, columns=columns)
        splits = replace(
            self._plan, runs=OperatorSpec(query, schema, checked=False), crossing=crossing
        )
        ordered = (self._read_unit(unit, columns) for unit in self._plan.division.units)
        return WindowTask(splits).split(ordered, described=True)

    def match_described(self, packed: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the matches that count for batches, reading the rows of each."""
        for batch, _ in self.task.batches(packed):
            yield self._matcher.match_batch(self._rows_of(batch), batch)

    def _rows_of(self, batch: WindowBatch) -> pa.Table:
        low, high = batch.rows
        units = [
            unit
            for unit in self._plan.division.units
            if unit.before + unit.rows > low and unit.before < high
        ]
        rows = pa.concat_tables([self._read(unit) for unit in units])
        return rows.slice(low - units[0].before, high - low)

    def number(self) -> Iterator[pa.RecordBatch]:
        """Yield the events of all keys, numbered, split and packed by key."""
        ordered = map(self._read_unit, self._plan.division.units)
        return self.task.number(ordered, self._plan.division.numbered_buckets)

    def _match_time(
        self,
        rows: pa.Table,
        before: int,
        times: tuple[int, int],
        held: tuple[int, int],
        own: tuple[int, int],
    ) -> pa.Table:
        """Match the windows held, whose events have times from the first up to the second."""
        assert self._plan.windows is not None
        column = self._plan.windows.time
        assert column is not None
        known = valid_times(column, rows.column(column))
        earlier = known < max(times[0], _INT64.min)
        inside = ~earlier & (known <= min(times[1] - 1, _INT64.max))
        chosen = rows if inside.all() else rows.filter(pa.array(inside))
        part = TimePart(chosen, held, own, before + int(earlier.sum()))
        return self._matcher.match_times([part])

    def _match_count(
        self, rows: pa.Table, before: int, held: tuple[int, int], own: tuple[int, int]
    ) -> pa.Table:
        bound = self._plan.windows
        assert bound is not None
        assert isinstance(bound.kind, ByCount)
        windows = count_windows(bound.kind, held, self._plan.division.files.rows)
        if not len(windows):
            return self._plan.bound.output.empty_table()
        low, high = int(windows.first.min()), int(windows.stop.max())
        rows = rows.slice(low - before, high - low)
        if bound.time is not None:
            times = valid_times(bound.time, rows.column(bound.time))
            first, last = times[windows.first - low], times[windows.stop - 1 - low]
            windows = replace(windows, start_time=first, end_time=last)
        return self._matcher.match_batch(rows, WindowBatch(windows, *own))

    @cached_property
    def _matcher(self) -> BatchMatcher:
        return self.task.matcher()

    def _read_unit(self, unit: Unit, columns: tuple[str, ...] | None = None) -> pa.Table:
        """Return the rows of a unit in the query's order."""
        names = self._plan.crossing.columns if columns is None else columns
        return in_order(self._plan.bound, self._plan.division.read(unit, names))
