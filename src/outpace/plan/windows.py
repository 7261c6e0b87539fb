"""How a query over windows, or one with a user-defined operator, is divided on Spark.

Windows of time are told by arithmetic, so rows are packed by batches of windows as they cross, in
any order. Windows of the other kinds need the order of all events of their partition. Keyed ones
are divided by key, and each task splits its own keys; without keys one task orders the packed rows
and splits them into batches. Batches come with the windows that overlap them, so each task knows
which matches count for its own windows and nothing is merged (`engine.divide.batches`).

What a match is numbered by counts the events of all keys. Where numbers are asked for, windows of
time go by time with all keys together; for the other kinds one task orders, numbers and splits the
packed rows of all keys, and the keys are matched in parallel.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import pyarrow as pa

from outpace.engine.divide.batches import TimeBatches
from outpace.engine.match.bits import BitTask
from outpace.engine.match.task import kept_columns, prepare
from outpace.pattern.bind.query import bind_operator
from outpace.pattern.bind.windows import (
    BoundWindows,
    ByContent,
    ByCount,
    ByPredicate,
    ByTime,
    bind_windows,
)
from outpace.pattern.bound import BoundQuery, Number, walk
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.query import Query
from outpace.pattern.schedulers import Batches
from outpace.plan.crossing import Crossing, computed_by_catalyst

#: A batch is so many times as long as the windows before and behind it that overlap it.
BATCH_FACTOR: Final = 16

#: Windows of time that do not overlap are put together: few enough for tasks to share few windows,
#: enough for blocks of more than a few rows.
DISJOINT_WINDOWS: Final = 16

#: Windows that one task splits are put together until they have so many rows.
BATCH_ROWS: Final = 1 << 18

#: No batch is made longer than this for the sake of what overlaps it: a task has to hold it.
LARGE_BATCH_ROWS: Final = 1 << 24


#: So many buckets of keys are matched in parallel where the user has not said.
NUMBERED_BUCKETS: Final = 16


class Division(Enum):
    """How windows are divided among tasks."""

    KEY = "by key"
    TIME = "by time, in batches of windows"
    SPLIT = "in batches of windows"
    NUMBERED = "by key, after one task has numbered the events of all keys"
    NONE = "not at all"


@dataclass(frozen=True, kw_only=True)
class WindowPlan(Crossing):
    """What a query over windows does.

    Parameters
    ----------
    bound, computed, columns, drop_unused
        The user's query, and what crosses.
    bits
        The query that Python runs, which reads bits; None for a user-defined operator.
    windows
        The windows; None for an operator over whole partitions.
    division, reason
        How they are divided, and why not otherwise where that is a loss.
    tasks
        How many tasks match, if the user has said so.
    neighbours
        Whether a batch comes with the windows that overlap it.
    batches
        Windows of time: the batches.
    batch_rows, batch_windows
        Windows that one task splits: a batch has so many rows, or windows where that is given.
    """

    bits: BitTask | None
    windows: BoundWindows | None
    division: Division
    reason: str
    tasks: int | None
    neighbours: bool
    batches: TimeBatches | None
    batch_rows: int
    batch_windows: int | None

    @property
    def numbered_buckets(self) -> int:
        """Into how many buckets keys are divided once their events are numbered."""
        return self.tasks or NUMBERED_BUCKETS

    @property
    def keys_together(self) -> bool:
        """Whether a task has all keys, as numbers count the events of all of them."""
        return not self.bound.partition_by or self.bound.query.numbered

    def lines(self) -> list[str]:
        r"""Return what `explain()` shows of the plan.

        Examples
        --------
        >>> from outpace.pattern.windows import TimeWindows
        >>> query = (Query("q").order_by("ts").pattern("A -> B").measures(at="B.ts")
        ...          .define(A="kind = 'a'", B="kind = 'b'").over(TimeWindows(10, 5)).instances(4))
        >>> schema = pa.schema([("ts", pa.int64()), ("kind", pa.string()), ("v", pa.int64())])
        >>> print("\n".join(plan_windows(query, schema).lines()))
        on Spark
          computed by Catalyst: 2 conditions
            A: (`kind` = 'a')
            B: (`kind` = 'b')
          columns that cross to Python: ts, and 1 byte of bits
          rows that cross: those that fit a condition above
          divided by time, in batches of windows: 16 windows, and those that overlap them
          a row is sent about 1.2 times
          duplicates: a task gives the matches that count for its own windows; nothing is merged
          tasks that match: 4
          ties: rows that are equal in ts keep the DataFrame's order, which Spark may not fix
        """
        return ["on Spark", *(f"  {line}" for line in self._lines())]

    def _lines(self) -> list[str]:
        lines = [*self.crossing_lines(), f"divided {self.division.value}: {self._division()}"]
        if self.batches is not None:
            lines.append(f"a row is sent about {self.batches.duplication:.1f} times")
        if self.batches is not None and self.bound.query.numbered:
            lines.append("match numbers: another pass over the time column counts the rows")
        lines += self.result_lines()
        order = ", ".join(map(print_name, self.bound.order_by))
        if order:
            packed = self.division is Division.TIME
            lines.append(
                f"ties: rows that are equal in {order} "
                + (
                    "keep the DataFrame's order, which Spark may not fix"
                    if packed
                    else "have no order of their own on Spark"
                )
            )
        return lines

    def result_lines(self) -> list[str]:
        """Return what is the same for files: how duplicates are removed, and how many tasks."""
        lines = []
        if self.neighbours and self.division in (Division.TIME, Division.SPLIT):
            lines.append(
                "duplicates: a task gives the matches that count for its own windows;"
                " nothing is merged"
            )
        if self.division is not Division.NONE and self.tasks is not None:
            lines.append(f"tasks that match: {self.tasks}")
        return lines

    def _division(self) -> str:
        overlapping = ", and those that overlap them" if self.neighbours else ""
        if self.batches is not None:
            keys = "; all keys together: " + self.reason if self.reason else ""
            return f"{self.batches.count} windows{overlapping}{keys}"
        if self.division is Division.SPLIT:
            size = (
                f"{self.batch_windows} windows"
                if self.batch_windows is not None
                else f"{self.batch_rows:,} rows"
            )
            return f"{size}{overlapping}; before that one task orders and splits the packed rows"
        if self.division in (Division.KEY, Division.NUMBERED):
            return ", ".join(map(print_name, self.bound.partition_by))
        return self.reason


def by_windows(query: Query) -> bool:
    """Say whether a query is planned here: it has windows, or an operator over a partition."""
    return query.windows is not None or query.operator is not None


def plan_windows(query: Query, schema: pa.Schema) -> WindowPlan:
    """Plan a query over windows, or one with a user-defined operator, over rows of a schema.

    Examples
    --------
    >>> from outpace.pattern.windows import CountWindows
    >>> query = Query("q").order_by("ts").pattern("A B").over(CountWindows(1000, 50))
    >>> schema = pa.schema([("ts", pa.int64()), ("key", pa.string())])
    >>> plan = plan_windows(query.measures(n="COUNT(*)"), schema)
    >>> plan.division, plan.batch_rows, plan.neighbours, plan.columns
    (<Division.SPLIT: 'in batches of windows'>, 262144, True, ('ts',))
    >>> plan_windows(query.partition_by("key").measures(n="COUNT(*)"), schema).division
    <Division.KEY: 'by key'>
    """
    windows = None if query.windows is None else bind_windows(query, schema)
    if query.operator is not None:
        bits, bound = None, bind_operator(query, schema)
        computed: tuple[tuple[str, str], ...] = ()
        columns = tuple(schema.names)
        unused = False
    else:
        task = prepare(query, schema)
        bits, computed = computed_by_catalyst(task)
        bound = task.bound
        columns = _columns(kept_columns(bits.task, schema), windows, schema)
        timed = windows is not None and isinstance(windows.kind, ByTime)
        unused = bits.drop_unused and timed and not shows_first_window(bound)
    division, reason = divide_windows(bound, windows)
    neighbours = removes_duplicates(query, windows)
    size = query.scheduler.size if isinstance(query.scheduler, Batches) else None
    return WindowPlan(
        bound=bound,
        computed=computed,
        columns=columns,
        drop_unused=unused,
        bits=bits,
        windows=windows,
        division=division,
        reason=reason,
        tasks=query.instance_count if query.instance_count > 1 else None,
        neighbours=neighbours,
        batches=_time_batches(windows, size, neighbours=neighbours),
        batch_rows=_batch_rows(windows, neighbours=neighbours),
        batch_windows=size,
    )


def divide_windows(bound: BoundQuery, windows: BoundWindows | None) -> tuple[Division, str]:
    """Return how windows can be divided, and why not otherwise where that is a loss."""
    keyed = bool(bound.partition_by)
    numbered = windows is not None and bound.query.numbered
    together = "numbers count the events of all keys" if keyed and numbered else ""
    if windows is not None and isinstance(windows.kind, ByTime):
        return Division.TIME, together
    if keyed:
        return (Division.NUMBERED, together) if numbered else (Division.KEY, "")
    if windows is None:
        return Division.NONE, "one operator takes all events"
    return Division.SPLIT, ""


def removes_duplicates(query: Query, windows: BoundWindows | None) -> bool:
    """Say whether several windows may find a match that comes out once."""
    if windows is None or query.duplicates or query.operator is not None:
        return False
    match windows.kind:
        case ByCount(size=size, slide=slide) | ByTime(size=size, slide=slide):
            return size > slide
        case ByContent() | ByPredicate():
            return True
        case _:
            return False


def shows_first_window(bound: BoundQuery) -> bool:
    """Say whether a match that several windows find looks different in each.

    It comes out as the first of them finds it, by the numbers of events. These do not depend on the
    events of other keys as far as that goes: a window closes no later than an event behind its end.
    But they do on events that no step can use.
    """
    numbers = (isinstance(n, Number) for m in bound.measures for n in walk(m.expression))
    return bound.query.numbered or (not bound.query.duplicates and any(numbers))


def _columns(
    kept: tuple[str, ...], windows: BoundWindows | None, schema: pa.Schema
) -> tuple[str, ...]:
    """Return the columns that matching and splitting need."""
    split = () if windows is None else windows.columns
    return tuple(name for name in schema.names if name in kept or name in split)


def _time_batches(
    windows: BoundWindows | None, size: int | None, *, neighbours: bool
) -> TimeBatches | None:
    if windows is None or not isinstance(windows.kind, ByTime):
        return None
    kind = windows.kind
    overlap = -(-kind.size // kind.slide) - 1
    chosen = BATCH_FACTOR * overlap or DISJOINT_WINDOWS
    return TimeBatches(kind.size, kind.slide, kind.offset, size or chosen, neighbours)


def _batch_rows(windows: BoundWindows | None, *, neighbours: bool) -> int:
    if neighbours and windows is not None and isinstance(windows.kind, ByCount):
        overlap = BATCH_FACTOR * (windows.kind.size - windows.kind.slide)
        return max(BATCH_ROWS, min(LARGE_BATCH_ROWS, overlap))
    return BATCH_ROWS
