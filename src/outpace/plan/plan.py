"""The plan of a query, or of several: what runs, what of the input crosses, how it is divided.

One value for a DataFrame, a stream and files. What differs between them is how the input is
divided, and that is a part of the plan: complete rows among tasks (`plan.row_plan`), the rows of
files, with what is read (`files.plan`), or the parts of the operator, as stages that keep state
from batch to batch (`plan.stream_plan`). It is what `explain()` prints and what tasks receive.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from outpace.engine.group_spec import GroupSpec
from outpace.engine.match.contract import Task
from outpace.engine.operator_spec import OperatorSpec
from outpace.pattern.bind.window_kinds import BoundWindows
from outpace.pattern.bound import BoundQuery
from outpace.pattern.query import Query
from outpace.plan.crossing import Crossing


class Division(ABC):
    """How the input of a plan is divided."""

    @abstractmethod
    def lines(self, plan: Plan[Any]) -> list[str]:
        """Return what `explain()` shows of a plan that is divided so: a title, then the rest."""


DivisionT = TypeVar("DivisionT", bound=Division, covariant=True)


@dataclass(frozen=True)
class Plan(Generic[DivisionT]):
    """How a query, or several, run on an input.

    Parameters
    ----------
    runs
        The operator that runs, or those of several queries.
    crossing
        What of the input comes to Python.
    division
        How it is divided.
    """

    runs: OperatorSpec | GroupSpec
    crossing: Crossing
    division: DivisionT

    @property
    def operator(self) -> OperatorSpec:
        """The operator of one query; those in one process share what is compiled."""
        assert isinstance(self.runs, OperatorSpec), "several queries have an operator each"
        return self.runs

    @property
    def group(self) -> GroupSpec:
        """The operators of several queries."""
        assert isinstance(self.runs, GroupSpec), "one query has an operator of its own"
        return self.runs

    @property
    def queries(self) -> tuple[Query, ...]:
        """The queries, each with a disorder where there are several."""
        return tuple(operator.query for operator in self._operators)

    @property
    def name(self) -> str:
        """What they are called together."""
        first, *others = self.queries
        return f"{first.name} and {len(others)} more" if others else first.name

    @property
    def output(self) -> pa.Schema:
        """The columns of what comes out."""
        return self.runs.output

    @property
    def bound(self) -> BoundQuery:
        """The query as Python runs it, bound to the columns that cross."""
        return self.operator.bound

    @property
    def windows(self) -> BoundWindows | None:
        """The windows; None where the query has none, also for a user-defined operator."""
        return None if self.operator.query.windows is None else self.operator.windows

    @property
    def task(self) -> Task:
        """The pattern as Python matches it."""
        assert self.operator.task is not None, "a user-defined operator has no pattern"
        return self.operator.task

    @property
    def keys_together(self) -> bool:
        """Whether a task has all keys, as numbers count the events of all of them."""
        return not self.bound.partition_by or self.bound.query.numbered

    def tells_time_in(self, column: str) -> bool:
        """Say whether it is known how far time has come in a column of the matches.

        It is where that holds the time of an event of the match, and where no match may start any
        time ago.
        """
        return self.operator.shows_time_in(column) and self.operator.reach is not None

    def tells_time_to(self, other: Plan[Any]) -> bool:
        """Say whether what is known of time holds for every query that takes the matches."""
        times = [one.disorder.time for one in other._operators if one.disorder is not None]
        return all(map(self.operator.shows_time_in, times))

    def lines(self) -> list[str]:
        """Return what `explain()` shows of the plan, a title and indented lines."""
        title, *lines = self.division.lines(self)
        return [title, *(f"  {line}" for line in lines)]

    @property
    def _operators(self) -> tuple[OperatorSpec, ...]:
        return self.runs.operators if isinstance(self.runs, GroupSpec) else (self.runs,)
