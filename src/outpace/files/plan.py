"""The plan of a query over Parquet files: what is read, how it comes to tasks, how it is divided.

Where row groups are in the query's order, no row moves. Time ranges, and windows of time and of
counts, are divided by row groups: a task has a share of them and reads of others what it needs. For
windows of other kinds without keys one task reads the columns that open and close them and says
which rows each batch has; the tasks that match read those. Keyed rows are packed by key. What is in
no known order becomes a DataFrame. A plan is what `explain()` prints and what tasks receive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import Final

import pyarrow as pa

from outpace.engine.codec.pack import Packer
from outpace.engine.match.bits import BitTask, with_bits
from outpace.engine.match.task import kept_columns
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.times import as_integers
from outpace.files.blocks import bucket_count, cut_keys, pack_units, packed_bytes
from outpace.files.order import GroupOrder, order_groups
from outpace.files.parquet import FileList, RowGroup
from outpace.files.prune import may_start, may_use
from outpace.pattern.bind.window_kinds import ByCount, ByTime
from outpace.pattern.bound import BoundQuery
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.query import Query
from outpace.plan.division import BATCH_FACTOR, LARGE_BATCH_ROWS, Division, divide_rows
from outpace.plan.plan import Plan, plan_query
from outpace.plan.window_task import WindowTask

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


@dataclass(frozen=True)
class FilesPlan:
    """What a query over files does.

    Parameters
    ----------
    query_plan
        The plan of the query, divided as files allow it.
    files
        The files with the row groups that may count, in the query's order where it is used.
    columns
        The columns that are read to match.
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

    query_plan: Plan
    files: FileList
    columns: tuple[str, ...]
    pruned: int
    order: GroupOrder | None
    way: Way
    units: tuple[Unit, ...]
    shares: tuple[range, ...]
    buckets: int

    @property
    def bound(self) -> BoundQuery:
        """The query, bound; its output is the result's schema."""
        return self.query_plan.bound

    @property
    def operator(self) -> OperatorSpec:
        """The operator that tasks have parts of."""
        return self.query_plan.operator

    @property
    def packed(self) -> tuple[str, ...]:
        """The columns that travel, where rows are packed."""
        return _packed(self.query_plan, self.columns)

    @property
    def split_columns(self) -> tuple[str, ...]:
        """The columns that are read to split."""
        assert self.query_plan.windows is not None
        split = {*self.query_plan.windows.columns, *self.bound.order_by}
        return tuple(n for n in self.files.schema.names if n in split) or self.columns[:1]

    def for_tasks(self) -> FilesPlan:
        """Return the plan as tasks need it: what to read, not what the footers say of it."""
        return replace(self, files=self.files.only(()), order=None)

    def task(self) -> WindowTask:
        """Return what a task does with the rows."""
        return WindowTask(self.query_plan, self.operator, self.columns)

    def packer(self) -> Packer:
        """Return what packs rows, by bucket where keys are not cut by range."""
        plan = self.query_plan
        buckets = self.buckets if plan.division is Division.KEY else 1
        return Packer(plan.bound.partition_by, self.packed, buckets, plan.bits)

    def read(self, unit: Unit, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a unit, the columns that match or others; rows are as they are stored."""
        names = self.columns if columns is None else columns
        groups = self.files.groups[unit.first : unit.stop]
        return pa.concat_tables([self.files.read(group, names) for group in groups])

    def lines(self) -> list[str]:
        """Return what `explain()` shows of the plan."""
        plan = self.query_plan
        idle = sum(unit.stop - unit.first for unit in self.units if not unit.searched)
        lines = [
            f"row groups: {len(self.files.groups) + self.pruned},"
            f" {self.pruned} not read, {idle} not searched",
            f"rows: {self.files.rows}",
            f"columns read: {_listed(self.columns)}",
        ]
        if self.way is Way.DESCRIBED:
            lines.append(f"columns read to split: {_listed(self.split_columns)}")
        if self.order is not None:
            lines.append(f"order: {self.order.reason}")
        lines.append(self.way.value)
        parts = ""
        if self.way is Way.PACKED:
            computed = () if plan.bits is None else plan.bits.predicates
            dropped = "rows that fit no variable stay behind" if plan.drop_unused else "all rows"
            names = _listed(one.name for one in computed) or "nothing"
            lines.append(f"computed where rows are read: {names}")
            lines.append(f"packed: {_listed(self.packed)}; {dropped}")
            if plan.division is Division.KEY:
                parts = _count(self.buckets, "bucket")
        elif self.way is Way.SHARES and plan.windows is None:
            parts = f"at most {_count(len(self.units), 'task')}"
        elif self.way is Way.SHARES:
            parts = _count(len(self.shares), "share")
        lines.append(plan.division_line(parts))
        return ["on Parquet files", *(f"  {line}" for line in [*lines, *plan.result_lines()])]


def plan_files(files: FileList, query: Query, *, shuffles: bool = True) -> FilesPlan:
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
    plan = plan_query(query, files.schema)
    files = files.with_places() if plan.brings_places else files
    plan, columns = _read_by_tasks(plan, files.schema)
    groups = tuple(
        group
        for group in files.groups
        if not plan.drop_unused or may_use(plan.bound.predicates, group)
    )
    pruned = len(files.groups) - len(groups)
    keyed = plan.division in (Division.KEY, Division.KEY_AND_RANGE)
    order = None if keyed else order_groups(groups, plan.bound)
    if order is not None and order.groups is not None:
        groups = order.groups
    files = replace(files, groups=groups)
    plan, way = _divide(plan, files, order, shuffles=shuffles)
    units = _units(plan, way, groups, columns)
    size = packed_bytes(files, _packed(plan, columns))
    return FilesPlan(
        query_plan=plan,
        files=files,
        columns=columns,
        pruned=pruned,
        order=order,
        way=way,
        units=units,
        shares=_shares(plan, units) if way is Way.SHARES and plan.windows is not None else (),
        buckets=max(plan.tasks or 1, bucket_count(files.rows, size)),
    )


def _read_by_tasks(plan: Plan, schema: pa.Schema) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan of a query that Catalyst has no part in, and the columns that are read.

    Bits are computed where rows travel without Spark. Over windows all rows count.
    """
    if plan.bits is None:
        return plan, tuple(schema.names)
    task = replace(plan.task, bound=plan.bound)
    used = set(kept_columns(task, schema))
    bits = with_bits(task)
    unused = bits.drop_unused
    if plan.windows is not None:
        used.update(plan.windows.columns)
        unused = False
    if plan.windows is not None or not plan.bound.partition_by:
        bits = BitTask(task, (), drop_unused=False)
    # Where nothing is read, one column is, so that rows are counted.
    columns = tuple(name for name in schema.names if name in used) or tuple(schema.names[:1])
    return replace(plan, computed=(), bits=bits, drop_unused=unused), columns


def _divide(
    plan: Plan, files: FileList, order: GroupOrder | None, *, shuffles: bool
) -> tuple[Plan, Way]:
    """Return the plan as files divide it, and how rows come to tasks."""
    if order is None:
        if not shuffles:
            return replace(plan, division=Division.KEY, reason="there is no shuffle"), Way.PACKED
        return cut_keys(files, plan), Way.PACKED
    if order.groups is None:
        if plan.division is Division.TIME and not plan.keys_together:
            return replace(plan, division=Division.KEY), Way.PACKED
        return plan, Way.ROWS
    if plan.windows is None and plan.bits is not None:
        # A task has rows by their place in the files, so rows at a distance are no reason against
        # cutting, as they are where rows are told apart by their time.
        division, reason = divide_rows(plan.bound.query, plan.bound, 0, 0)
        plan = replace(plan, division=division, reason=reason)
    counted = plan.windows is not None and isinstance(plan.windows.kind, ByCount)
    if plan.division in (Division.RANGE, Division.TIME) or (
        plan.division is Division.SPLIT and counted
    ):
        return plan, Way.SHARES
    if plan.division is Division.NONE:
        return plan, Way.IN_ORDER
    if not shuffles:
        return replace(plan, division=Division.NONE, reason="there is no shuffle"), Way.IN_ORDER
    return plan, Way.NUMBERED if plan.division is Division.NUMBERED else Way.DESCRIBED


def _packed(plan: Plan, columns: tuple[str, ...]) -> tuple[str, ...]:
    if plan.bits is None or not plan.bits.predicates:
        return columns
    return kept_columns(plan.task, plan.task.bound.schema)


def _units(
    plan: Plan, way: Way, groups: Sequence[RowGroup], columns: Sequence[str]
) -> tuple[Unit, ...]:
    """Put row groups together."""
    by_time = way is Way.SHARES and plan.division is Division.TIME
    by_range = way is Way.SHARES and plan.division is Division.RANGE
    sizes = [sum(group.sizes[name] for name in columns) for group in groups]
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


def _times(plan: Plan, groups: Sequence[RowGroup]) -> tuple[int, int]:
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


def _shares(plan: Plan, units: Sequence[Unit]) -> tuple[range, ...]:
    """Divide windows by the units that they start in.

    A share is much longer than what it needs of others, as far as a task can hold that.
    """
    assert plan.windows is not None
    kind = plan.windows.kind
    assert isinstance(kind, ByTime | ByCount)
    least = BATCH_FACTOR * max(0, kind.size - kind.slide) if plan.neighbours else 0
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
