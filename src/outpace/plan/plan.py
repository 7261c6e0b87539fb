"""The plan of a query on Spark: what Catalyst computes, what crosses to Python, how it is divided.

Conditions that need only their own row, also as parts of larger ones, become bits of byte columns,
computed where the data is; the query that runs in Python reads the bits. Columns that nothing else
needs stay behind, and where the semantics allow it so do the rows that no step can use. The result
is that of the query as it was. A plan is what `explain()` prints and what tasks receive.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa

from outpace.engine.divide.batches import TimeBatches
from outpace.engine.divide.border import remembers
from outpace.engine.match.reach import reach_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.pattern.bound import MatchIdentity
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.query import Query
from outpace.pattern.schedulers import Batches
from outpace.plan.crossing import QueryCrossing, plan_crossing
from outpace.plan.division import (
    BATCH_ROWS,
    NUMBERED_BUCKETS,
    RANGE_FACTOR,
    Division,
    batch_rows,
    by_windows,
    divide_rows,
    divide_windows,
    removes_duplicates,
    time_batches,
)

#: What a reason is a reason for.
_REASONS: Final = {
    Division.KEY: "not by time range: ",
    Division.TIME: "all keys together: ",
}


@dataclass(frozen=True, kw_only=True)
class Plan(QueryCrossing):
    """What a query does with rows.

    Parameters
    ----------
    schema, columns, computed, drop_unused, bound, bits, windows
        The query, and what crosses.
    division, reason
        How rows are divided, and why not otherwise where that is a loss.
    width
        The length of a range of time, in units of the time column.
    tasks
        How many tasks match, if the user has said so.
    neighbours
        Whether a batch of windows comes with those that overlap it.
    batches
        Windows of time: the batches.
    batch_rows, batch_windows
        Windows that one task splits: a batch has so many rows, or windows where that is given.
    """

    division: Division
    reason: str
    width: int = 0
    tasks: int | None = None
    neighbours: bool = False
    batches: TimeBatches | None = None
    batch_rows: int = BATCH_ROWS
    batch_windows: int | None = None

    @cached_property
    def operator(self) -> OperatorSpec:
        """The operator that tasks have parts of; those in one process share what is compiled."""
        bound, task = (self.bound, None) if self.bits is None else (self.task.bound, self.task)
        # Whoever gives rows to its parts has put them in order.
        places = self.brings_places and task is not None
        return OperatorSpec(bound.query, bound.schema, task, checked=False, brings_ids=places)

    @property
    def merges(self) -> bool:
        """Whether a match of one range can rule out matches of the next."""
        return self.division.by_range and remembers(self.task)

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
        >>> query = (Query("q").order_by("ts").pattern("A -> B").within(10)
        ...          .define(A="kind = 'a'", B="kind = 'b' AND v > A.v").measures(at="B.ts"))
        >>> schema = pa.schema([("ts", pa.int64()), ("kind", pa.string()), ("v", pa.int64())])
        >>> print("\n".join(plan_query(query, schema).lines()))
        on Spark
          computed by Catalyst: 2 conditions
            A: (`kind` = 'a')
            B: (`kind` = 'b')
          columns that cross to Python: ts, v, and 1 byte of bits
          rows that cross: those that fit a condition above
          divided by time range: ranges of 320, each with the next 10 as well
          then: one task goes over the matches and drops those that an earlier one rules out
          ties: rows that are equal in ts keep the DataFrame's order, which Spark may not fix
        """
        return ["on Spark", *(f"  {line}" for line in self._lines())]

    def _lines(self) -> list[str]:
        divided = self.division_line()
        if self.division is Division.SPLIT:
            divided += "; before that one task orders and splits the packed rows"
        lines = [*self.crossing_lines(), divided]
        if self.merges:
            keyed = "a task goes over the matches of each key"
            where = keyed if self.bound.partition_by else "one task goes over the matches"
            lines.append(f"then: {where} and drops those that an earlier one rules out")
        if self.batches is not None:
            lines.append(f"a row is sent about {self.batches.duplication:.1f} times")
        if self.batches is not None and self.bound.query.numbered:
            lines.append("match numbers: another pass over the time column counts the rows")
        if self.brings_places:
            lines.append("match ids: another pass counts the rows of each partition")
        lines += self.result_lines()
        order = ", ".join(map(print_name, self.bound.order_by))
        if order:
            packed = self.division.by_range or self.division is Division.TIME
            ties = (
                "keep the DataFrame's order, which Spark may not fix"
                if packed
                else "have no order of their own on Spark"
            )
            lines.append(f"ties: rows that are equal in {order} {ties}")
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

    def division_line(self, parts: str = "") -> str:
        """Return how rows are divided, into which parts, and why not otherwise.

        Parameters
        ----------
        parts
            The parts, where whoever has the rows divides them in another way.
        """
        keyed = self.division in (Division.KEY, Division.KEY_AND_RANGE, Division.NUMBERED)
        keys = ", ".join(map(print_name, self.bound.partition_by)) if keyed else ""
        reason = self.reason and _REASONS.get(self.division, "") + self.reason
        divided = "; ".join(filter(None, (keys, parts or self._parts(), reason)))
        return f"divided {self.division.value}: {divided}"

    def _parts(self) -> str:
        overlapping = ", and those that overlap them" if self.neighbours else ""
        if self.division.by_range:
            return f"ranges of {self.width}, each with the next {self.bound.within} as well"
        if self.division is Division.TIME and self.batches is not None:
            return f"{self.batches.count} windows{overlapping}"
        if self.division is Division.SPLIT and self.batch_windows is not None:
            return f"{self.batch_windows} windows{overlapping}"
        if self.division is Division.SPLIT:
            return f"{self.batch_rows:,} rows{overlapping}"
        return ""


def plan_query(query: Query, schema: pa.Schema) -> Plan:
    """Plan a query over rows of a schema, which bring their places where ids are asked for.

    Examples
    --------
    >>> from outpace.pattern.windows import CountWindows
    >>> query = Query("q").order_by("ts").pattern("A B").measures(n="COUNT(*)")
    >>> schema = pa.schema([("ts", pa.int64()), ("key", pa.string()), ("v", pa.int64())])
    >>> keyed = plan_query(query.partition_by("key"), schema)
    >>> keyed.division, keyed.reason, keyed.columns
    (<Division.KEY: 'by key'>, 'there is no WITHIN', ('ts', 'key'))
    >>> plan = plan_query(query.over(CountWindows(1000, 50)), schema)
    >>> plan.division, plan.batch_rows, plan.neighbours, plan.columns
    (<Division.SPLIT: 'in batches of windows'>, 262144, True, ('ts',))
    """
    crossing = plan_crossing(query, schema)
    if crossing.bound.has(MatchIdentity):
        crossing = plan_crossing(query, schema, places=True)
    bound, windows, width = crossing.bound, crossing.windows, 0
    if by_windows(query):
        division, reason = divide_windows(bound, windows)
    else:
        reach = reach_of(crossing.task)
        division, reason = divide_rows(query, bound, reach.back, reach.ahead)
        width = (bound.within or 0) * RANGE_FACTOR
    neighbours = removes_duplicates(query, windows)
    size = query.scheduler.size if isinstance(query.scheduler, Batches) else None
    return Plan(
        **vars(crossing),
        division=division,
        reason=reason,
        width=width,
        tasks=query.instance_count if query.instance_count > 1 else None,
        neighbours=neighbours,
        batches=time_batches(windows, size, neighbours=neighbours),
        batch_rows=batch_rows(windows, neighbours=neighbours),
        batch_windows=size,
    )
