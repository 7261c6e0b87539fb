"""The plan of a batch on Spark: what Catalyst computes, what crosses to Python, how rows are cut.

Conditions that need only their own row, also as parts of larger ones, become bits of byte columns,
computed where the data is; the query that runs in Python reads the bits. Columns that nothing else
needs stay behind, and where the semantics allow it so do the rows that no step can use. The result
is that of the query as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import pyarrow as pa

from outpace.engine.divide.border import remembers
from outpace.engine.match.bits import BitTask
from outpace.engine.match.contract import Task
from outpace.engine.match.program import compile_program
from outpace.engine.match.reach import reach_of
from outpace.engine.match.task import kept_columns, prepare
from outpace.pattern import ast
from outpace.pattern.bound import BoundQuery, Number, walk
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.query import Consume, Query, Rows, Selection, Skip, WithinKind
from outpace.plan.crossing import Crossing, computed_by_catalyst

#: Ranges are this many times as long as WITHIN, so a row is in two of them one time in so many,
#: and a task holds the rows of so many windows and one more.
RANGE_FACTOR: Final = 32

#: Times are 64-bit integers, so that ranges of longer windows would not fit.
_WITHIN_MAX: Final = 1 << 56


class Cut(Enum):
    """How rows are divided among tasks."""

    KEY = "by key"
    KEY_AND_RANGE = "by key and time range"
    RANGE = "by time range"
    NONE = "not at all"

    @property
    def by_range(self) -> bool:
        """Whether ranges of time are tasks of their own."""
        return self in (Cut.RANGE, Cut.KEY_AND_RANGE)


@dataclass(frozen=True, kw_only=True)
class BatchPlan(Crossing):
    """What a batch does.

    Parameters
    ----------
    bound, computed, columns, drop_unused
        The user's query, and what crosses.
    bits
        The query that Python runs; it reads bits where Catalyst computes conditions.
    cut, reason
        How rows are divided, and why not by range where they are not.
    width
        The length of a range in units of the time column.
    """

    bits: BitTask
    cut: Cut
    reason: str
    width: int = 0

    @property
    def task(self) -> Task:
        """The query that Python runs."""
        return self.bits.task

    @property
    def merges(self) -> bool:
        """Whether a match of one range can rule out matches of the next."""
        return self.cut.by_range and remembers(self.task)

    def lines(self) -> list[str]:
        r"""Return what `explain()` shows of the plan.

        Examples
        --------
        >>> query = (Query("q").order_by("ts").pattern("A -> B").within(10)
        ...          .define(A="kind = 'a'", B="kind = 'b' AND v > A.v").measures(at="B.ts"))
        >>> plan = plan_batch(query, pa.schema(
        ...     [("ts", pa.int64()), ("kind", pa.string()), ("v", pa.int64())]))
        >>> print("\n".join(plan.lines()))
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
        lines = [*self.crossing_lines(), f"divided {self.cut.value}: {self._division()}"]
        if self.merges:
            where = (
                "a task goes over the matches of each key"
                if self.bound.partition_by
                else ("one task goes over the matches")
            )
            lines.append(f"then: {where} and drops those that an earlier one rules out")
        order = ", ".join(map(print_name, self.bound.order_by))
        if order:
            lines.append(
                f"ties: rows that are equal in {order} keep the DataFrame's order, "
                "which Spark may not fix"
                if self.cut.by_range
                else f"ties: rows that are equal in {order} have no order of their own on Spark"
            )
        return lines

    def _division(self) -> str:
        keys = ", ".join(map(print_name, self.bound.partition_by))
        if self.cut.by_range:
            ranges = f"ranges of {self.width}, each with the next {self.bound.within} as well"
            return f"{keys}; {ranges}" if keys else ranges
        if self.cut is Cut.KEY:
            return f"{keys}; not by time range: {self.reason}"
        return self.reason


def plan_batch(query: Query, schema: pa.Schema) -> BatchPlan:
    """Plan a batch over rows of a schema.

    Examples
    --------
    >>> query = Query("q").partition_by("key").order_by("ts").pattern("A B")
    >>> schema = pa.schema([("ts", pa.int64()), ("key", pa.string()), ("v", pa.int64())])
    >>> plan = plan_batch(query.measures(n="COUNT(*)"), schema)
    >>> plan.cut, plan.reason, plan.columns
    (<Cut.KEY: 'by key'>, 'there is no WITHIN', ('ts', 'key'))
    """
    task = prepare(query, schema)
    bits, computed = computed_by_catalyst(task)
    cut, reason = divide(query, task.bound, reach_of(task).back, reach_of(task).ahead)
    return BatchPlan(
        bound=task.bound,
        computed=computed,
        columns=kept_columns(bits.task, schema),
        drop_unused=bits.drop_unused,
        bits=bits,
        cut=cut,
        reason=reason,
        width=(task.bound.within or 0) * RANGE_FACTOR,
    )


def divide(query: Query, bound: BoundQuery, back: int, ahead: int) -> tuple[Cut, str]:
    """Return how rows can be divided, and why not by range where they cannot."""
    assert query.tree is not None
    program = compile_program(query.tree, ast.predicates(query.tree))
    every_start = query.effective_skip.skip in (Skip.NONE, Skip.TO_NEXT_ROW)
    reasons = {
        "there is no WITHIN": bound.within is None,
        "WITHIN is longer than any range": (bound.within or 0) > _WITHIN_MAX,
        "WITHIN measures from event to event": query.bound is not None
        and query.bound.kind is not WithinKind.FIRST_TO_LAST,
        "PREV or NEXT may reach any distance in time": back > 0 or ahead > 0,
        "the pattern has ^ or $": any(
            isinstance(n, ast.AtStart | ast.AtEnd) for n in ast.walk(query.tree)
        ),
        "the pattern can match nothing": program.matches_empty,
        # What a match rules out travels with the rows that it shows.
        "a match may show none of its rows": (
            query.rows is not Rows.ONE and program.matches_unseen and not every_start
        ),
        "matches are numbered": _numbered(bound),
        "there is a limit": bool(query.limits),
        "events are consumed": query.consumption is not Consume.NONE,
        "unmatched rows are asked for": query.rows is Rows.ALL_WITH_UNMATCHED,
        "all matches are asked for and some are skipped": (
            query.effective_selection is Selection.ALL
            and query.effective_skip.skip is not Skip.NONE
        ),
    }
    whole, ranged = (Cut.KEY, Cut.KEY_AND_RANGE) if bound.partition_by else (Cut.NONE, Cut.RANGE)
    for reason, holds in reasons.items():
        if holds:
            return whole, reason
    return ranged, ""


def _numbered(bound: BoundQuery) -> bool:
    return any(isinstance(node, Number) for tree in bound.expressions for node in walk(tree))
