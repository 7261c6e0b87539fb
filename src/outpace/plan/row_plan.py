"""How a query runs on rows that are complete: what crosses, and how tasks share it.

Conditions that need only their own row, also as parts of larger ones, become bits of byte columns,
computed where the data is; the query that runs in Python reads the bits. Columns that nothing else
needs stay behind, and where the semantics allow it so do the rows that no step can use. The result
is that of the query as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from outpace.engine.divide.batches import TimeBatches
from outpace.engine.divide.border import remembers
from outpace.engine.match.reach import reach_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.pattern.bound import BoundQuery
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.query import Query
from outpace.pattern.schedulers import Batches
from outpace.plan.crossing import Crossing, plan_crossing
from outpace.plan.division import (
    BATCH_ROWS,
    NUMBERED_BUCKETS,
    RANGE_FACTOR,
    Cut,
    batch_rows,
    by_windows,
    divide_rows,
    divide_windows,
    removes_duplicates,
    time_batches,
)
from outpace.plan.plan import Division, Plan

#: What a reason is a reason for.
_REASONS: Final = {
    Cut.KEY: "not by time range: ",
    Cut.TIME: "all keys together: ",
}


@dataclass(frozen=True, kw_only=True)
class RowDivision(Division):
    """How tasks share rows that are complete; each has the parts of the operator that these need.

    Parameters
    ----------
    cut, reason
        Where rows are cut, and why not otherwise where that is a loss.
    skips
        Whether a match can rule out later ones.
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

    cut: Cut
    reason: str
    skips: bool = False
    width: int = 0
    tasks: int | None = None
    neighbours: bool = False
    batches: TimeBatches | None = None
    batch_rows: int = BATCH_ROWS
    batch_windows: int | None = None

    @property
    def merges(self) -> bool:
        """Whether a match of one range can rule out matches of the next."""
        return self.cut.by_range and self.skips

    @property
    def numbered_buckets(self) -> int:
        """Into how many buckets keys are divided once their events are numbered."""
        return self.tasks or NUMBERED_BUCKETS

    def lines(self, plan: Plan[Any]) -> list[str]:
        """Return what `explain()` shows of a plan over a DataFrame."""
        bound = plan.bound
        divided = self.division_line(bound)
        if self.cut is Cut.SPLIT:
            divided += "; before that one task orders and splits the packed rows"
        lines = ["on Spark", *plan.crossing.lines(), divided]
        if self.merges:
            keyed = "a task goes over the matches of each key"
            where = keyed if bound.partition_by else "one task goes over the matches"
            lines.append(f"then: {where} and drops those that an earlier one rules out")
        if self.batches is not None:
            lines.append(f"a row is sent about {self.batches.duplication:.1f} times")
        if self.batches is not None and bound.query.numbered:
            lines.append("match numbers: another pass over the time column counts the rows")
        if plan.crossing.brings_places:
            lines.append("match ids: another pass counts the rows of each partition")
        lines += self.result_lines()
        order = ", ".join(map(print_name, bound.order_by))
        if order:
            packed = self.cut.by_range or self.cut is Cut.TIME
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
        if self.neighbours and self.cut in (Cut.TIME, Cut.SPLIT):
            lines.append(
                "duplicates: a task gives the matches that count for its own windows;"
                " nothing is merged"
            )
        if self.cut is not Cut.NONE and self.tasks is not None:
            lines.append(f"tasks that match: {self.tasks}")
        return lines

    def division_line(self, bound: BoundQuery, parts: str = "") -> str:
        """Return how rows are divided, into which parts, and why not otherwise.

        Parameters
        ----------
        bound
            The query.
        parts
            The parts, where whoever has the rows divides them in another way.
        """
        keyed = self.cut in (Cut.KEY, Cut.KEY_AND_RANGE, Cut.NUMBERED)
        keys = ", ".join(map(print_name, bound.partition_by)) if keyed else ""
        reason = self.reason and _REASONS.get(self.cut, "") + self.reason
        divided = "; ".join(filter(None, (keys, parts or self._parts(bound), reason)))
        return f"divided {self.cut.value}: {divided}"

    def _parts(self, bound: BoundQuery) -> str:
        overlapping = ", and those that overlap them" if self.neighbours else ""
        if self.cut.by_range:
            return f"ranges of {self.width}, each with the next {bound.within} as well"
        if self.cut is Cut.TIME and self.batches is not None:
            return f"{self.batches.count} windows{overlapping}"
        if self.cut is Cut.SPLIT and self.batch_windows is not None:
            return f"{self.batch_windows} windows{overlapping}"
        if self.cut is Cut.SPLIT:
            return f"{self.batch_rows:,} rows{overlapping}"
        return ""


def plan_query(query: Query, schema: pa.Schema) -> Plan[RowDivision]:
    r"""Plan a query over rows of a schema, which bring their places where ids are asked for.

    Examples
    --------
    >>> from outpace.pattern.windows import CountWindows
    >>> query = Query("q").order_by("ts").pattern("A B").measures(n="COUNT(*)")
    >>> schema = pa.schema([("ts", pa.int64()), ("kind", pa.string()), ("v", pa.int64())])
    >>> keyed = plan_query(query.partition_by("kind"), schema)
    >>> keyed.division.cut, keyed.division.reason, keyed.crossing.columns
    (<Cut.KEY: 'by key'>, 'there is no WITHIN', ('ts', 'kind'))
    >>> division = plan_query(query.over(CountWindows(1000, 50)), schema).division
    >>> division.cut, division.batch_rows, division.neighbours
    (<Cut.SPLIT: 'in batches of windows'>, 262144, True)
    >>> query = (query.pattern("A -> B").within(10).measures(at="B.ts")
    ...          .define(A="kind = 'a'", B="kind = 'b' AND v > A.v"))
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
    return plan_rows(query, plan_crossing(query, schema, places=True))


def plan_rows(query: Query, crossing: Crossing) -> Plan[RowDivision]:
    """Plan a query over rows of which that crosses."""
    task = None if crossing.bits is None else crossing.bits.task
    places, width = crossing.brings_places, 0
    query, schema = (
        (query, crossing.schema) if task is None else (task.bound.query, task.bound.schema)
    )
    # Whoever gives rows to the parts of the operator has put them in order.
    operator = OperatorSpec(query, schema, task, checked=False, brings_ids=places)
    bound, windows = operator.bound, None if query.windows is None else operator.windows
    if by_windows(query):
        cut, reason = divide_windows(bound, windows)
    else:
        assert task is not None
        reach = reach_of(task)
        cut, reason = divide_rows(query, bound, reach.back, reach.ahead)
        width = (bound.within or 0) * RANGE_FACTOR
    neighbours = removes_duplicates(query, windows)
    size = query.scheduler.size if isinstance(query.scheduler, Batches) else None
    division = RowDivision(
        cut=cut,
        reason=reason,
        skips=task is not None and remembers(task),
        width=width,
        tasks=query.instance_count if query.instance_count > 1 else None,
        neighbours=neighbours,
        batches=time_batches(windows, size, neighbours=neighbours),
        batch_rows=batch_rows(windows, neighbours=neighbours),
        batch_windows=size,
    )
    return Plan(operator, crossing, division)
