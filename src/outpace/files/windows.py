"""Windows over Parquet files: what is read, how it is divided, and what one task does.

Where row groups are in the query's order, no row moves. Windows of time and of counts are told by
arithmetic: a task has a share of the row groups, reads what the windows that start in it need, and
matches. For windows of other kinds without keys one task reads the columns that open and close them
and says which rows each batch has; the tasks that match read those. Keyed windows of other kinds
are packed by key. What is in no known order becomes a DataFrame.

Memory of a task: the used columns of the rows of one share or batch, with what overlaps it; for
windows by key those of one bucket; for what one task takes in order those of two units and of open
windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.divide.batch_match import BatchMatcher, TimePart
from outpace.engine.divide.batches import WindowBatch, count_windows
from outpace.engine.divide.groups import SortedGroups
from outpace.engine.match.task import kept_columns, prepare
from outpace.engine.rows.times import as_integers, valid_times
from outpace.engine.split.number import in_order
from outpace.files.blocks import bucket_count, pack_units
from outpace.files.order import GroupOrder, order_groups
from outpace.files.parquet import FileList
from outpace.pattern import ast
from outpace.pattern.bind.windows import ByCount, ByTime
from outpace.pattern.bound import BoundQuery
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.query import Query
from outpace.plan.division import Division
from outpace.plan.plan import Plan, plan_query
from outpace.plan.window_task import WindowTask
from outpace.plan.windows import BATCH_FACTOR, LARGE_BATCH_ROWS

#: Window numbers below and above all others.
_NO_NUMBER: Final = 1 << 62

_INT64: Final = np.iinfo(np.int64)


class Way(Enum):
    """How the rows of files come to the tasks."""

    SHARES = "each task reads its share of the row groups, and what its windows need of others"
    DESCRIBED = "one task splits; each task that matches reads the rows of its batches"
    NUMBERED = "one task reads the row groups in order and numbers the events of all keys"
    IN_ORDER = "one task reads the row groups in order"
    PACKED = "packed by key"
    ROWS = "the rows become a DataFrame"


@dataclass(frozen=True)
class FileShare:
    """Units of row groups that a task has, and the windows that start in them.

    Parameters
    ----------
    first, stop
        The numbers of the windows, the first and the one behind the last.
    """

    first: int
    stop: int


@dataclass(frozen=True)
class Unit:
    """Row groups that are read together, in order.

    Parameters
    ----------
    first, stop
        The first row group, and the one behind the last.
    before, rows
        How many rows come before them, and how many they have.
    least, greatest
        Bounds of what windows are measured in: of the time, or of ordinals.
    """

    first: int
    stop: int
    before: int
    rows: int
    least: int
    greatest: int


@dataclass(frozen=True)
class WindowFilesPlan:
    """What windows over files do.

    Parameters
    ----------
    query, windows
        The query, and how its windows are divided.
    files
        The files, with row groups in the query's order where it is known.
    columns
        The columns that are read to match.
    order
        Whether row groups can be taken one after the other.
    way
        How the rows come to the tasks.
    places
        The row groups that are read together: the first, and the one behind the last.
    units, shares
        The same, where they are in order; and for `Way.SHARES` what each task has.
    buckets
        For `Way.PACKED` the number of buckets of keys.
    """

    query: Query
    windows: Plan
    files: FileList
    columns: tuple[str, ...]
    order: GroupOrder
    way: Way
    places: tuple[tuple[int, int], ...]
    units: tuple[Unit, ...]
    shares: tuple[FileShare, ...]
    buckets: int

    @property
    def bound(self) -> BoundQuery:
        """The query, bound; its output is the result's schema."""
        return self.windows.bound

    @property
    def uses_order(self) -> bool:
        """Whether it matters in which order row groups are."""
        return self.windows.division is not Division.KEY

    @property
    def spark_sorts(self) -> bool:
        """Whether the rows become a DataFrame, as their order is not known."""
        return self.way is Way.ROWS

    @property
    def split_columns(self) -> tuple[str, ...]:
        """The columns that are read to split."""
        assert self.windows.windows is not None
        split = {*self.windows.windows.columns, *self.windows.bound.order_by}
        return tuple(n for n in self.files.schema.names if n in split) or self.columns[:1]

    def for_tasks(self) -> WindowFilesPlan:
        """Return the plan as tasks need it: what to read, not what the footers say of it."""
        return replace(self, files=self.files.only(()), order=GroupOrder((), self.order.reason))

    def lines(self) -> list[str]:
        """Return what `explain()` shows of the plan."""
        lines = [
            f"row groups: {len(self.files.groups)}",
            f"rows: {self.files.rows}",
            f"columns read: {', '.join(map(print_name, self.columns))}",
            f"order: {self.order.reason}",
            self.way.value,
        ]
        if self.way is Way.SHARES:
            lines.append(f"shares: {len(self.shares)}")
        if self.way is Way.DESCRIBED:
            names = ", ".join(map(print_name, self.split_columns)) or "none"
            lines.append(f"columns read to split: {names}")
        if self.way is Way.PACKED:
            keys = ", ".join(map(print_name, self.windows.bound.partition_by))
            lines.append(f"divided by key: {keys}, {self.buckets} bucket{'s' * (self.buckets > 1)}")
        if self.windows.reason:
            lines.append(f"not divided by key: {self.windows.reason}")
        lines += self.windows.result_lines()
        return ["on Parquet files", *(f"  {line}" for line in lines)]


def plan_window_files(files: FileList, query: Query) -> WindowFilesPlan:
    r"""Plan windows, or a user-defined operator, over files.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pyarrow.parquet as pq
    >>> from outpace.pattern.windows import CountWindows
    >>> from outpace.files.parquet import list_files, parquet
    >>> query = (Query("q").order_by("ts").pattern("A B").define(B="v > A.v")
    ...          .measures(at="FIRST(ts)").over(CountWindows(3, 2)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "events.parquet")
    ...     table = pa.table({"ts": range(8), "v": [9, 1, 4, 4, 2, 1, 7, 0]})
    ...     pq.write_table(table, path, row_group_size=2)
    ...     plan = plan_window_files(list_files(parquet(path)), query)
    >>> print("\n".join(plan.lines()))
    on Parquet files
      row groups: 4
      rows: 8
      columns read: ts, v
      order: statistics of ts
      each task reads its share of the row groups, and what its windows need of others
      shares: 1
      duplicates: a task gives the matches that count for its own windows; nothing is merged
    """
    windows = plan_query(query, files.schema)
    order = order_groups(files.groups, windows.bound)
    way = _way(windows, order)
    groups = files.groups if order.groups is None else order.groups
    files = replace(files, groups=groups)
    columns = _columns(windows, query, files.schema)
    sizes = [sum(group.sizes[name] for name in columns) for group in groups]
    rows = [group.rows for group in groups]
    places = pack_units(rows, sizes)
    units = () if order.groups is None else _units(windows, files, places)
    return WindowFilesPlan(
        query=query,
        windows=windows,
        files=files,
        columns=columns,
        order=order,
        way=way,
        places=places,
        units=units,
        shares=_shares(windows, units) if way is Way.SHARES else (),
        buckets=max(windows.tasks or 1, bucket_count(sum(rows), sum(sizes))),
    )


def _way(plan: Plan, order: GroupOrder) -> Way:
    counted = plan.windows is not None and isinstance(plan.windows.kind, ByCount)
    in_place = order.groups is not None
    if plan.division is Division.KEY:
        return Way.PACKED
    if plan.division is Division.TIME and not in_place and not plan.keys_together:
        return Way.PACKED
    if not in_place:
        return Way.ROWS
    if plan.division is Division.NONE:
        return Way.IN_ORDER
    if plan.division is Division.NUMBERED:
        return Way.NUMBERED
    return Way.SHARES if plan.division is Division.TIME or counted else Way.DESCRIBED


def _columns(plan: Plan, query: Query, schema: pa.Schema) -> tuple[str, ...]:
    if query.operator is not None:
        return tuple(schema.names)
    used = set(kept_columns(prepare(query, schema), schema))
    used.update(() if plan.windows is None else plan.windows.columns)
    # Where nothing is read, one column is, so that rows are counted.
    return tuple(name for name in schema.names if name in used) or tuple(schema.names[:1])


def _units(plan: Plan, files: FileList, places: Sequence[tuple[int, int]]) -> tuple[Unit, ...]:
    """Return row groups that follow each other, with the bounds of each unit."""
    by_time = plan.windows is not None and isinstance(plan.windows.kind, ByTime)
    units = []
    before = 0
    for first, stop in places:
        rows = sum(group.rows for group in files.groups[first:stop])
        bounds = before, before + rows - 1
        if by_time:
            bounds = _times(plan, files, first, stop)
        units.append(Unit(first, stop, before, rows, *bounds))
        before += rows
    return tuple(units)


def _times(plan: Plan, files: FileList, first: int, stop: int) -> tuple[int, int]:
    """Return bounds of the times of row groups; a single one need not have statistics."""
    assert plan.windows is not None
    assert plan.windows.time is not None
    name = plan.windows.time
    known = [group.statistics[name] for group in files.groups[first:stop]]
    if any(one.least is None or one.greatest is None for one in known):
        return -_NO_NUMBER, _NO_NUMBER
    ends = pa.array([known[0].least, known[-1].greatest], files.schema.field(name).type)
    least, greatest = as_integers(ends).tolist()
    return least, greatest


def _shares(plan: Plan, units: Sequence[Unit]) -> tuple[FileShare, ...]:
    """Divide windows by the units that they start in.

    A share is much longer than what it needs of others, as far as a task can hold that.
    """
    size, slide, offset = _spans(plan)
    least = BATCH_FACTOR * max(0, size - slide) if plan.neighbours else 0
    edges = [-_NO_NUMBER]
    start = units[0] if units else None
    for unit in units[1:]:
        assert start is not None
        number = -(-(unit.least - offset) // slide)
        long = unit.least - start.least >= least
        large = unit.before - start.before >= LARGE_BATCH_ROWS
        if (long or large) and number > edges[-1]:
            edges.append(number)
            start = unit
    edges.append(_NO_NUMBER)
    return tuple(FileShare(*pair) for pair in pairwise(edges))


def _spans(plan: Plan) -> tuple[int, int, int]:
    assert plan.windows is not None
    kind = plan.windows.kind
    assert isinstance(kind, ByTime | ByCount)
    return kind.size, kind.slide, kind.offset


class FileWindows:
    """What a task does with windows over files.

    Parameters
    ----------
    plan
        The plan.
    """

    def __init__(self, plan: WindowFilesPlan) -> None:
        self._plan = plan
        query, schema = plan.query, plan.files.schema
        task = None if query.operator is not None else prepare(query, schema)
        self.task = WindowTask(plan.windows, task, plan.columns)
        # Neighbouring shares and batches need the units at their borders again.
        self._read = lru_cache(maxsize=2)(self._read_unit)

    def read_place(self, place: int) -> pa.Table:
        """Return the rows of row groups that are read together, as they are stored."""
        return self._stored(*self._plan.places[place], self._plan.columns)

    def match_share(self, number: int) -> pa.Table:
        """Return the matches that count for the windows of a share."""
        plan, share = self._plan.windows, self._plan.shares[number]
        size, slide, offset = _spans(plan)
        margin = -(-size // slide) - 1 if plan.neighbours else 0
        held = share.first - margin, share.stop + margin
        low, high = offset + held[0] * slide, offset + (held[1] - 1) * slide + size
        units = [unit for unit in self._plan.units if unit.greatest >= low and unit.least < high]
        if not units:
            return plan.bound.output.empty_table()
        rows = pa.concat_tables([self._read(unit) for unit in units])
        own = share.first, share.stop
        if plan.division is Division.TIME:
            return self._match_time(rows, units[0].before, (low, high), held, own)
        return self._match_count(rows, units[0].before, held, own)

    def split(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of all rows, reading what opens and closes windows."""
        query, columns = self._plan.query, self._plan.split_columns
        # Any pattern will do: who splits does not match.
        rows = Query(
            partitions=query.partitions,
            order=query.order,
            tree=ast.Var("A"),
            windows=query.windows,
            numbered=query.numbered,
        )
        task = WindowTask(self._plan.windows, prepare(rows, self._plan.files.schema), columns)
        ordered = (self._read_unit(unit, columns) for unit in self._plan.units)
        return task.split(ordered, described=True)

    def match_described(self, packed: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the matches that count for batches, reading the rows of each."""
        for batch, _ in self.task.batches(packed):
            yield self._matcher.match_batch(self._rows_of(batch), batch)

    def _rows_of(self, batch: WindowBatch) -> pa.Table:
        low, high = batch.rows
        units = [
            unit
            for unit in self._plan.units
            if unit.before + unit.rows > low and unit.before < high
        ]
        rows = pa.concat_tables([self._read(unit) for unit in units])
        return rows.slice(low - units[0].before, high - low)

    def number(self) -> Iterator[pa.RecordBatch]:
        """Yield the events of all keys, numbered, split and packed by key."""
        ordered = map(self._read_unit, self._plan.units)
        return self.task.number(ordered, self._plan.windows.numbered_buckets)

    def match_in_order(self) -> Iterator[pa.Table]:
        """Yield what all rows give, taken in order."""
        groups = SortedGroups(self.task.work())
        for unit in self._plan.units:
            yield from groups.push(self._read_unit(unit))
        yield from groups.finish()

    def _match_time(
        self,
        rows: pa.Table,
        before: int,
        times: tuple[int, int],
        held: tuple[int, int],
        own: tuple[int, int],
    ) -> pa.Table:
        """Match the windows held, whose events have times from the first up to the second."""
        assert self._plan.windows.windows is not None
        column = self._plan.windows.windows.time
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
        bound = self._plan.windows.windows
        assert bound is not None
        assert isinstance(bound.kind, ByCount)
        windows = count_windows(bound.kind, held, self._plan.files.rows)
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
        names = self._plan.columns if columns is None else columns
        return in_order(self._plan.bound, self._stored(unit.first, unit.stop, names))

    def _stored(self, first: int, stop: int, columns: tuple[str, ...]) -> pa.Table:
        files = self._plan.files
        return pa.concat_tables([files.read(group, columns) for group in files.groups[first:stop]])
