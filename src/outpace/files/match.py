"""Matching files without moving rows: what is read, how it is divided, and what one task does.

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
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa

from outpace.engine.divide.border import find_entry
from outpace.engine.divide.core import CoreMatcher, unkeyed_block
from outpace.engine.divide.groups import PartitionWork, SortedGroups
from outpace.engine.match.bits import with_bits
from outpace.engine.match.contract import Block, Task
from outpace.engine.match.output import match_table
from outpace.engine.match.reach import reach_of
from outpace.engine.match.task import kept_columns, prepare
from outpace.engine.operator_spec import OperatorSpec
from outpace.errors import OutpaceError
from outpace.files.blocks import pack_units, plan_blocks
from outpace.files.order import GroupOrder, order_groups
from outpace.files.parquet import FileList
from outpace.files.prune import may_start, may_use
from outpace.pattern.bound import BoundQuery
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.query import Query
from outpace.plan.division import Division
from outpace.plan.ranges import divide_rows


@dataclass(frozen=True)
class FilesPlan:
    """What a match over files does.

    Parameters
    ----------
    query, bound
        The query, as it is and bound; `bound.output` is the result's schema.
    files
        The files with the row groups that may count, in the query's order where it is known.
    columns
        The columns that are read.
    pruned
        How many row groups are not read, as no row in them can count.
    division, reason
        How rows are divided, and why not by range where they are not.
    order
        Whether row groups can be taken one after the other; if not, Spark sorts.
    units
        The row groups that are read together: the first, and the one after the last.
    searched
        For each unit whether a match may start in it; only tasks that have a core make use of it.
    """

    query: Query
    bound: BoundQuery
    files: FileList
    columns: tuple[str, ...]
    pruned: int
    division: Division
    reason: str
    order: GroupOrder
    units: tuple[tuple[int, int], ...]
    searched: tuple[bool, ...]

    @property
    def uses_order(self) -> bool:
        """Whether it matters in which order row groups are."""
        return self.division is not Division.KEY

    @property
    def spark_sorts(self) -> bool:
        """Whether the rows have to be sorted by Spark, as their order is not known."""
        return self.uses_order and self.order.groups is None

    @property
    def cores(self) -> int:
        """Into how many cores the units can be divided at most."""
        return len(self.units) if self.division is Division.RANGE else 1

    def for_tasks(self) -> FilesPlan:
        """Return the plan as tasks need it: what to read, not what the footers say of it."""
        return replace(self, files=self.files.only(()), order=GroupOrder((), self.order.reason))

    def lines(self) -> list[str]:
        """Return what `explain()` shows of the plan."""
        total = len(self.files.groups) + self.pruned
        idle = sum(
            stop - first
            for (first, stop), searched in zip(self.units, self.searched, strict=True)
            if not searched
        )
        divided = f"  divided {self.division.value}" + (f": {self.reason}" if self.reason else "")
        lines = [
            "on Parquet files",
            f"  row groups: {total}, {self.pruned} not read, {idle} not searched",
            f"  rows: {self.files.rows}",
        ]
        if self.division is Division.KEY:
            return [*lines, *plan_blocks(self.files, self.query).lines()]
        if self.spark_sorts:
            sorted_by = f"  order: Spark sorts: {self.order.reason}"
            return [*lines, f"  columns read: {', '.join(self.columns)}", sorted_by, divided]
        tasks = "  one task" if self.division is Division.NONE else f"  tasks: at most {self.cores}"
        return [
            *lines,
            f"  columns read: {', '.join(self.columns)}",
            f"  order: {self.order.reason}",
            divided,
            tasks,
        ]


def plan_files(files: FileList, query: Query) -> FilesPlan:
    r"""Plan a query over files.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pyarrow.parquet as pq
    >>> from outpace.files.parquet import list_files, parquet
    >>> query = (Query("q").order_by("ts").pattern("A -> B").within(10)
    ...          .define(A="v > 5", B="v < 3").measures(at="FIRST(ts)"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "events.parquet")
    ...     table = pa.table({"ts": range(8), "v": [9, 1, 4, 4, 2, 1, 7, 0]})
    ...     pq.write_table(table, path, row_group_size=2)
    ...     plan = plan_files(list_files(parquet(path)), query)
    >>> print("\n".join(plan.lines()))
    on Parquet files
      row groups: 4, 1 not read, 0 not searched
      rows: 6
      columns read: ts, v
      order: statistics of ts
      divided by time range
      tasks: at most 1
    """
    task = prepare(query, files.schema)
    bits = with_bits(task)
    used = [
        group
        for group in files.groups
        if not bits.drop_unused or may_use(task.bound.predicates, group)
    ]
    order = order_groups(used, task.bound)
    division, reason = _divide(query, task, in_place=order.groups is not None)
    groups = tuple(used) if order.groups is None or division is Division.KEY else order.groups
    columns = kept_columns(task, files.schema)
    sizes = [sum(group.sizes[name] for name in columns) for group in groups]
    units = pack_units([group.rows for group in groups], sizes)
    in_cores = division is Division.RANGE and order.groups is not None
    return FilesPlan(
        query=query,
        bound=task.bound,
        files=replace(files, groups=groups),
        columns=columns,
        pruned=len(files.groups) - len(used),
        division=division,
        reason=reason,
        order=order,
        units=units,
        searched=tuple(
            not in_cores or any(may_start(task, group) for group in groups[first:stop])
            for first, stop in units
        ),
    )


def _divide(query: Query, task: Task, *, in_place: bool) -> tuple[Division, str]:
    """Return how rows are divided.

    Keyed rows are packed by key, whatever their times. A task has the others by their place in the
    files, so rows at a distance are no reason against cutting, as they are where Spark sorts and
    rows are told apart by their time.
    """
    bound = task.bound
    if bound.partition_by:
        return Division.KEY, ", ".join(print_name(name) for name in bound.partition_by)
    reach = reach_of(task)
    return divide_rows(query, bound, *((0, 0) if in_place else (reach.back, reach.ahead)))


def match_all(plan: FilesPlan) -> Iterator[pa.Table]:
    """Match all units in order, as one task: what a query that cannot be cut needs."""
    task = prepare(plan.query, plan.files.schema)
    spec = OperatorSpec(task.bound.query, task.bound.schema, task)
    groups = SortedGroups(PartitionWork(spec, task.bound.partition_by))
    read = _reader(plan, task)
    for unit in range(len(plan.units)):
        yield from groups.push(pa.table(read(unit).columns))
    yield from groups.finish()


def match_core(plan: FilesPlan, first: int, stop: int) -> Iterator[pa.Table]:
    """Find the matches that start in some units, `first` up to `stop`."""
    task = prepare(plan.query, plan.files.schema)
    read = _reader(plan, task)
    matcher = CoreMatcher(task, _entry(plan, task, read, first))
    for unit in _units_before(plan, first, reach_of(task).back):
        matcher.skip(read(unit))
    for unit in range(first, stop):
        searched = plan.searched[unit]
        if not searched and not matcher.needs_rows:
            matcher.leave_out(_rows(plan, unit))
            continue
        for part in matcher.push(read(unit), searched=searched):
            yield match_table(matcher.task, part.block, part.found)
    for part in matcher.finish(map(read, range(stop, len(plan.units)))):
        yield match_table(matcher.task, part.block, part.found)


def _reader(plan: FilesPlan, task: Task) -> Callable[[int], Block]:
    """Return what reads and sorts a unit; the last two are kept, for the look back ends there."""

    @lru_cache(maxsize=2)
    def read(unit: int) -> Block:
        first, stop = plan.units[unit]
        groups = plan.files.groups[first:stop]
        tables = [plan.files.read(group, plan.columns) for group in groups]
        return unkeyed_block(task, pa.concat_tables(tables))

    return read


def _entry(plan: FilesPlan, task: Task, read: Callable[[int], Block], first: int) -> int:
    """Return the first row of a core that may start a match."""
    before = sum(_rows(plan, unit) for unit in range(first))

    def core() -> Iterator[Block]:
        return map(read, range(first, len(plan.units)))

    try:
        return find_entry(task, map(read, reversed(range(first))), before, core)
    except OutpaceError:
        # Looking back tries starts that the search itself may never come to. Where one of them
        # fails, the search is followed from the beginning.
        matcher = CoreMatcher(task)
        for unit in range(first):
            for _ in matcher.push(read(unit), searched=plan.searched[unit]):
                pass
        for _ in matcher.finish(core()):
            pass
        return max(0, matcher.next_start - before)


def _units_before(plan: FilesPlan, first: int, rows: int) -> list[int]:
    """Return the units that hold so many rows before a unit."""
    units: list[int] = []
    while rows > 0 and first > 0:
        first -= 1
        units.insert(0, first)
        rows -= _rows(plan, first)
    return units


def _rows(plan: FilesPlan, unit: int) -> int:
    first, stop = plan.units[unit]
    return sum(group.rows for group in plan.files.groups[first:stop])
