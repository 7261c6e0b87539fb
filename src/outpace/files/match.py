"""Matching row groups in order: what one task does without windows.

An unkeyed query is cut into cores: row groups that follow each other in the query's order. A task
reads its core, a little of what follows, and, where matches rule out later starts, as much of what
comes before as it takes to know where its search enters. It gives the matches that start in its
core; the results of the tasks need no merging. What cannot be cut is one task.

Memory of a task: the columns that are used of at most three units (a unit is a row group, or small
ones up to `files.blocks.UNIT_ROWS` rows together), and the rows of a few windows of WITHIN where
these are longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import pyarrow as pa

from outpace.engine.divide.border import find_entry
from outpace.engine.divide.core import CoreMatcher, unkeyed_block
from outpace.engine.divide.groups import SortedGroups
from outpace.engine.match.contract import Block
from outpace.engine.match.output import match_table
from outpace.engine.match.reach import reach_of
from outpace.engine.split.number import in_order
from outpace.errors import OutpaceError
from outpace.files.plan import FilesPlan


def match_in_order(plan: FilesPlan) -> Iterator[pa.Table]:
    """Match all units in order, as one task: what a query that cannot be cut needs."""
    groups = SortedGroups(plan.task().work())
    for unit in plan.units:
        yield from groups.push(in_order(plan.bound, plan.read(unit)))
    yield from groups.finish()


def match_core(plan: FilesPlan, first: int, stop: int) -> Iterator[pa.Table]:
    """Find the matches that start in some units, `first` up to `stop`."""
    task = plan.query_plan.task
    read = _reader(plan)
    matcher = CoreMatcher(task, _entry(plan, read, first))
    for number in _units_before(plan, first, reach_of(task).back):
        matcher.skip(read(number))
    for number in range(first, stop):
        unit = plan.units[number]
        if not unit.searched and not matcher.needs_rows:
            matcher.leave_out(unit.rows)
            continue
        for part in matcher.push(read(number), searched=unit.searched):
            yield match_table(matcher.task, part.block, part.found)
    for part in matcher.finish(map(read, range(stop, len(plan.units)))):
        yield match_table(matcher.task, part.block, part.found)


def _reader(plan: FilesPlan) -> Callable[[int], Block]:
    """Return what reads and sorts a unit; the last two are kept, for the look back ends there."""

    @lru_cache(maxsize=2)
    def read(number: int) -> Block:
        return unkeyed_block(plan.query_plan.task, plan.read(plan.units[number]))

    return read


def _entry(plan: FilesPlan, read: Callable[[int], Block], first: int) -> int:
    """Return the first row of a core that may start a match."""
    task = plan.query_plan.task
    before = sum(unit.rows for unit in plan.units[:first])

    def core() -> Iterator[Block]:
        return map(read, range(first, len(plan.units)))

    try:
        return find_entry(task, map(read, reversed(range(first))), before, core)
    except OutpaceError:
        # Looking back tries starts that the search itself may never come to. Where one of them
        # fails, the search is followed from the beginning.
        matcher = CoreMatcher(task)
        for number, unit in enumerate(plan.units[:first]):
            for _ in matcher.push(read(number), searched=unit.searched):
                pass
        for _ in matcher.finish(core()):
            pass
        return max(0, matcher.next_start - before)


def _units_before(plan: FilesPlan, first: int, rows: int) -> list[int]:
    """Return the units that hold so many rows before a unit."""
    numbers: list[int] = []
    while rows > 0 and first > 0:
        first -= 1
        numbers.insert(0, first)
        rows -= plan.units[first].rows
    return numbers
