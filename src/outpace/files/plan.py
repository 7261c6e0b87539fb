"""The plan of a query over Parquet files: what is read, how it comes to tasks, how it is divided.

Where row groups are in the query's order, no row moves. Time ranges, and windows of time and of
counts, are divided by row groups: a task has a share of them and reads of others what it needs. For
windows of other kinds without keys one task reads the columns that open and close them and says
which rows each batch has; the tasks that match read those. Keyed rows are packed by key. What is in
no known order becomes a DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from outpace.engine.codec.pack import Packer
from outpace.engine.event import EVENT_ID
from outpace.engine.match.bits import BitTask, with_bits
from outpace.engine.match.task import kept_columns, prepare
from outpace.engine.rows.times import as_integers
from outpace.errors import UnsupportedError
from outpace.files.blocks import bucket_count, cut_keys, pack_units, packed_bytes
from outpace.files.order import GroupOrder, measure_group, order_groups
from outpace.files.parquet import FileList, RowGroup
from outpace.files.prune import may_start, may_use
from outpace.pattern.bind.disorder import missing_flag
from outpace.pattern.bind.window_kinds import ByCount, ByTime, bind_windows
from outpace.pattern.bound import Predicate
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.query import Query
from outpace.plan.crossing import Crossing, with_places
from outpace.plan.division import BATCH_FACTOR, LARGE_BATCH_ROWS, Cut, divide_rows
from outpace.plan.plan import Plan
from outpace.plan.row_plan import RowDivision, plan_rows

#: Window numbers, and times, below and above all others.
_NO_NUMBER: Final = 1 << 62


class Way(Enum):
    """How the rows of files come to the tasks."""

    SHARES = "each task reads its share of the row groups, and what it needs of others"
    DESCRIBED = "one task splits; each task that matches reads the rows of its batches"
    NUMBERED = "one task reads the row groups in order and numbers the events of all keys"
    IN_ORDER = "one task reads the row groups in order"
    PACKED = "tasks pack the rows of row groups by key"
    ROWS = "the rows become a DataFrame, which Spark sorts"


@dataclass(frozen=True)
class Unit:
    """Row groups that are read together.

    Parameters
    ----------
    first, stop
        The first row group, and the one behind the last.
    before, rows
        How many rows come before them, and how many they have.
    least, greatest
        Bounds of what shares are measured in: of the time, or of ordinals.
    searched
        Whether a match may start in them; only tasks that have a core make use of it.
    """

    first: int
    stop: int
    before: int
    rows: int
    least: int
    greatest: int
    searched: bool


@dataclass(frozen=True, kw_only=True)
class FileDivision(RowDivision):
    """How tasks share the rows of files, and what they read.

    Parameters
    ----------
    cut, reason, skips, width, tasks, neighbours, batches, batch_rows, batch_windows
        How rows are shared, as files allow it.
    files
        The files with the row groups that may count, in the query's order where it is used.
    pruned
        How many row groups are not read, as no row in them can count.
    order
        Whether row groups can be taken one after the other; None where it does not matter.
    way
        How the rows come to the tasks.
    units
        The row groups that are read together.
    shares
        For windows of `Way.SHARES`: the numbers of those that each task has.
    buckets
        For `Way.PACKED`: the number of buckets of keys.
    """

    files: FileList
    pruned: int
    order: GroupOrder | None
    way: Way
    units: tuple[Unit, ...]
    shares: tuple[range, ...]
    buckets: int

    def read(self, unit: Unit, columns: Sequence[str]) -> pa.Table:
        """Read columns of a unit; rows are as they are stored."""
        groups = self.files.groups[unit.first : unit.stop]
        return pa.concat_tables([self.files.read(group, columns) for group in groups])

    def lines(self, plan: Plan[Any]) -> list[str]:
        """Return what `explain()` shows of a plan over files."""
        crossing = plan.crossing
        idle = sum(unit.stop - unit.first for unit in self.units if not unit.searched)
        lines = [
            "on Parquet files",
            f"row groups: {len(self.files.groups) + self.pruned},"
            f" {self.pruned} not read, {idle} not searched",
            f"rows: {self.files.rows}",
            f"columns read: {_listed(crossing.columns)}",
        ]
        if self.way is Way.DESCRIBED:
            lines.append(f"columns read to split: {_listed(split_columns(plan))}")
        if self.order is not None:
            lines.append(f"order: {self.order.reason}")
        lines.append(self.way.value)
        parts = ""
        if self.way is Way.PACKED:
            computed = () if crossing.bits is None else crossing.bits.predicates
            dropped = "all rows"
            if crossing.drop_unused:
                dropped = "rows that fit no variable stay behind"
            names = _listed(one.name for one in computed) or "nothing"
            lines.append(f"computed where rows are read: {names}")
            lines.append(f"packed: {_listed(_packed(crossing))}; {dropped}")
            if self.cut is Cut.KEY:
                parts = _count(self.buckets, "bucket")
        elif self.way is Way.SHARES and plan.windows is None:
            parts = f"at most {_count(len(self.units), 'task')}"
        elif self.way is Way.SHARES:
            parts = _count(len(self.shares), "share")
        return [*lines, self.division_line(plan.bound, parts), *self.result_lines()]


def for_tasks(plan: Plan[FileDivision]) -> Plan[FileDivision]:
    """Return a plan as tasks need it: what to read, not what the footers say of it."""
    division = replace(plan.division, files=plan.division.files.only(()), order=None)
    return replace(plan, division=division)


def packer_of(plan: Plan[FileDivision]) -> Packer:
    """Return what packs rows, by bucket where keys are not cut by range."""
    buckets = plan.division.buckets if plan.division.cut is Cut.KEY else 1
    crossing = plan.crossing
    return Packer(plan.bound.partition_by, _packed(crossing), buckets, crossing.bits)


def split_columns(plan: Plan[FileDivision]) -> tuple[str, ...]:
    """Return the columns that are read to split."""
    assert plan.windows is not None
    crossing = plan.crossing
    # The places of rows open and close no window.
    split = {*plan.windows.columns, *plan.bound.order_by} - {EVENT_ID.name}
    return tuple(n for n in crossing.schema.names if n in split) or crossing.columns[:1]


def plan_files(files: FileList, query: Query, *, shuffles: bool = True) -> Plan[FileDivision]:
    r"""Plan a query over files; where one key may have too many rows, a few of them are looked at.

    Parameters
    ----------
    files, query
        The files and the query.
    shuffles
        Whether what one task gives can be brought to others; else tasks read all that they need.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pyarrow.parquet as pq
    >>> from outpace.files.parquet import list_files, parquet
    >>> from outpace.pattern.windows import CountWindows
    >>> query = (Query("q").order_by("ts").pattern("A -> B").within(10)
    ...          .define(A="v > 5", B="v < 3").measures(at="FIRST(ts)"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "events.parquet")
    ...     table = pa.table({"ts": range(8), "v": [9, 1, 4, 4, 2, 1, 7, 0]})
    ...     pq.write_table(table, path, row_group_size=2)
    ...     files = list_files(parquet(path))
    >>> print("\n".join(plan_files(files, query).lines()))
    on Parquet files
      row groups: 4, 1 not read, 0 not searched
      rows: 6
      columns read: ts, v
      order: statistics of ts
      each task reads its share of the row groups, and what it needs of others
      divided by time range: at most 1 task
    >>> print("\n".join(plan_files(files, query.over(CountWindows(3, 2))).lines()[-3:]))
      each task reads its share of the row groups, and what it needs of others
      divided in batches of windows: 1 share
      duplicates: a task gives the matches that count for its own windows; nothing is merged
    """
    if (flag := missing_flag(query, files.schema.names)) is not None:
        raise UnsupportedError(
            f"the files have no column '{flag}', which flags what a timeout lets go on",
            where="disorder",
            hint="leave out flag: files are in order",
        )
    crossing, predicates = _read_by_tasks(query, files.schema)
    plan = plan_rows(query, crossing)
    files = files.with_places() if crossing.brings_places else files
    groups = tuple(
        group for group in files.groups if not crossing.drop_unused or may_use(predicates, group)
    )
    pruned = len(files.groups) - len(groups)
    keyed = plan.division.cut in (Cut.KEY, Cut.KEY_AND_RANGE)
    order = None if keyed else order_groups(groups, plan.bound)
    if order is not None and order.groups is not None:
        groups = order.groups
    files = replace(files, groups=groups)
    division, way = _divide(plan, files, order, shuffles=shuffles)
    plan = replace(plan, division=division)
    units = _units(plan, way, groups)
    size = packed_bytes(files, _packed(crossing))
    of_files = FileDivision(
        **vars(division),
        files=files,
        pruned=pruned,
        order=order,
        way=way,
        units=units,
        shares=_shares(plan, units) if way is Way.SHARES and plan.windows is not None else (),
        buckets=max(division.tasks or 1, bucket_count(files.rows, size)),
    )
    return Plan(plan.runs, crossing, of_files)


def plan_apart(listing: FileList, query: Query, *, ordered: bool) -> Plan[FileDivision]:
    """Plan a query over files for tasks that bring nothing to each other.

    Where an order is declared that no footer tells, that column is read.
    """
    plan = plan_files(listing, query, shuffles=False)
    order = plan.division.order
    if ordered and order is not None and order.measurable:
        time = plan.bound.order_by[0]
        groups = tuple(measure_group(listing, group, time) for group in listing.groups)
        plan = plan_files(replace(listing, groups=groups), query, shuffles=False)
    return plan


def broken_order(plan: Plan[FileDivision]) -> str | None:
    """Return where rows are not in the order of the files, and what is done instead."""
    order = plan.division.order
    if order is None or order.broken is None:
        return None
    instead = plan.division.way.value if order.groups is None else "row groups are taken in order"
    return (
        f"the files are not in the declared order: {order.broken.name} comes before the"
        f" row group ahead of it; {instead}"
    )


def _read_by_tasks(query: Query, schema: pa.Schema) -> tuple[Crossing, tuple[Predicate, ...]]:
    """Return what tasks read, without a part for Catalyst, and the conditions on rows.

    Bits are computed where rows travel without Spark. Over windows all rows count.
    """
    if query.operator is not None:
        return Crossing(schema=schema, columns=tuple(schema.names)), ()
    task = with_places(prepare(query, schema))
    bound = task.bound
    used, bits = set(kept_columns(task, bound.schema)), with_bits(task)
    unused = bits.drop_unused and query.windows is None
    if query.windows is not None:
        used.update(bind_windows(query, schema).columns)
    if query.windows is not None or not bound.partition_by:
        bits = BitTask(task, (), drop_unused=False)
    # Where nothing is read, one column is, so that rows are counted.
    names = bound.schema.names
    columns = tuple(name for name in names if name in used) or tuple(names[:1])
    crossing = Crossing(schema=bound.schema, columns=columns, drop_unused=unused, bits=bits)
    return crossing, bound.predicates


def _divide(
    plan: Plan[RowDivision], files: FileList, order: GroupOrder | None, *, shuffles: bool
) -> tuple[RowDivision, Way]:
    """Return how files divide the rows, and how these come to tasks."""
    division = plan.division
    if order is None:
        if not shuffles:
            return replace(division, cut=Cut.KEY, reason="there is no shuffle"), Way.PACKED
        return cut_keys(files, plan), Way.PACKED
    if order.groups is None:
        if division.cut is Cut.TIME and not plan.keys_together:
            return replace(division, cut=Cut.KEY), Way.PACKED
        return division, Way.ROWS
    if plan.windows is None and plan.operator.task is not None:
        # A task has rows by their place in the files, so rows at a distance are no reason against
        # cutting, as they are where rows are told apart by their time.
        cut, reason = divide_rows(plan.bound.query, plan.bound, 0, 0)
        division = replace(division, cut=cut, reason=reason)
    counted = plan.windows is not None and isinstance(plan.windows.kind, ByCount)
    if division.cut in (Cut.RANGE, Cut.TIME) or (division.cut is Cut.SPLIT and counted):
        return division, Way.SHARES
    if division.cut is Cut.NONE:
        return division, Way.IN_ORDER
    if not shuffles:
        return replace(division, cut=Cut.NONE, reason="there is no shuffle"), Way.IN_ORDER
    return division, Way.NUMBERED if division.cut is Cut.NUMBERED else Way.DESCRIBED


def _packed(crossing: Crossing) -> tuple[str, ...]:
    """Return the columns that travel, where rows are packed."""
    bits = crossing.bits
    if bits is None or not bits.predicates:
        return crossing.columns
    return kept_columns(bits.task, bits.task.bound.schema)


def _units(plan: Plan[RowDivision], way: Way, groups: Sequence[RowGroup]) -> tuple[Unit, ...]:
    """Put row groups together."""
    by_time = way is Way.SHARES and plan.division.cut is Cut.TIME
    by_range = way is Way.SHARES and plan.division.cut is Cut.RANGE
    sizes = [sum(group.sizes[name] for name in plan.crossing.columns) for group in groups]
    units = []
    before = 0
    for first, stop in pack_units([group.rows for group in groups], sizes):
        part = groups[first:stop]
        rows = sum(group.rows for group in part)
        bounds = _times(plan, part) if by_time else (before, before + rows - 1)
        searched = not by_range or any(may_start(plan.task, group) for group in part)
        units.append(Unit(first, stop, before, rows, *bounds, searched))
        before += rows
    return tuple(units)


def _times(plan: Plan[RowDivision], groups: Sequence[RowGroup]) -> tuple[int, int]:
    """Return bounds of the times of row groups; a single one need not have statistics."""
    assert plan.windows is not None
    assert plan.windows.time is not None
    name = plan.windows.time
    known = [group.statistics[name] for group in groups]
    if any(one.least is None or one.greatest is None for one in known):
        return -_NO_NUMBER, _NO_NUMBER
    ends = pa.array([known[0].least, known[-1].greatest], plan.bound.schema.field(name).type)
    least, greatest = as_integers(ends).tolist()
    return least, greatest


def _shares(plan: Plan[RowDivision], units: Sequence[Unit]) -> tuple[range, ...]:
    """Divide windows by the units that they start in.

    A share is much longer than what it needs of others, as far as a task can hold that.
    """
    assert plan.windows is not None
    kind = plan.windows.kind
    assert isinstance(kind, ByTime | ByCount)
    least = BATCH_FACTOR * max(0, kind.size - kind.slide) if plan.division.neighbours else 0
    edges = [-_NO_NUMBER]
    start = units[0] if units else None
    for unit in units[1:]:
        assert start is not None
        number = -(-(unit.least - kind.offset) // kind.slide)
        long = unit.least - start.least >= least
        large = unit.before - start.before >= LARGE_BATCH_ROWS
        if (long or large) and number > edges[-1]:
            edges.append(number)
            start = unit
    edges.append(_NO_NUMBER)
    return tuple(range(first, stop) for first, stop in pairwise(edges))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(print_name, names))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
