"""What the rows of one partition say about a query's conditions, in the user's own terms.

Rows are numbered from the start of their partition inside, and by their place in the input in every
text. Values are read one at a time, so that explaining a match costs no more than the match.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from outpace.engine.evaluate.row import Evaluate, RowContext, compile_row
from outpace.engine.match.contract import Block, Task
from outpace.errors import DataError
from outpace.explanation.print_bound import BoundPrinter, conjuncts, value_text
from outpace.pattern.bound import BoundExpression, PredicateClass
from outpace.pattern.duration import print_duration
from outpace.pattern.values import column_values


@dataclass(frozen=True, slots=True)
class TracedRun:
    """The rows that a run took, the position of each, and its variable."""

    rows: Sequence[int] = ()
    positions: Sequence[int] = ()
    labels: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One condition on one row: its text, the same with values, and what it comes to."""

    condition: str
    values: str
    verdict: str

    @property
    def holds(self) -> bool:
        """Whether the condition is satisfied."""
        return self.verdict == "true"


class Evidence:
    """The rows of one partition of a block.

    Parameters
    ----------
    task, block
        The query and the rows.
    segment
        The partition's number in the block.
    """

    def __init__(self, task: Task, block: Block, segment: int) -> None:
        self.task = task
        self.block = block
        self.low = int(block.segments[segment])
        high = int(block.segments[segment + 1])
        self.size = int(block.visible[segment]) - self.low
        self.printer = BoundPrinter(task.program.names, task.bound.subsets)
        columns = {name: _LazyColumn(block.columns[name], self.low) for name in task.bound.columns}
        self._context = RowContext(columns, high - self.low, task.program.names)
        #: By the identity of the expression, which the task keeps alive.
        self._compiled: dict[int, Evaluate] = {}

    def holds(self, variable: int, row: int, run: TracedRun, number: int = 1) -> bool:
        """Whether a row satisfies a variable's predicate, given the run so far."""
        expression = self.task.bound.predicates[variable].expression
        if expression is None:
            return True
        return self._value(expression, self._looking_at(variable, row, run, number)) is True

    def findings(self, variable: int, row: int, run: TracedRun, number: int = 1) -> list[Finding]:
        """Return every condition of a variable's predicate with the row's values."""
        expression = self.task.bound.predicates[variable].expression
        if expression is None:
            return []
        context = self._looking_at(variable, row, run, number)
        return [self._finding(condition, context) for condition in conjuncts(expression)]

    def row_name(self, row: int) -> str:
        """Return how a row is called: by its place in the input."""
        return f"row {self.input_row(row)}"

    def input_row(self, row: int) -> int:
        """Return a row's place in the input."""
        return int(self.block.arrivals[self.low + row])

    def order_text(self, row: int) -> str:
        """Return a row's value in the first column of ORDER BY."""
        time = self.task.bound.time
        if time is None:
            return ""
        return value_text(self._context.columns[time][row]).strip("'")

    def partition_text(self) -> str:
        """Return the values that all rows of the partition share, or nothing."""
        return ", ".join(
            f"{name} = {value_text(self._context.columns[name][0])}"
            for name in self.task.bound.partition_by
        )

    def elapsed(self, first: int, last: int) -> int:
        """Return the time between two rows, in the unit that WITHIN is measured in."""
        return int(self.block.times[self.low + last] - self.block.times[self.low + first])

    def duration_text(self, duration: int) -> str:
        """Return a time between two rows in words."""
        bound = self.task.bound
        if bound.time is None or pa.types.is_integer(bound.schema.field(bound.time).type):
            return str(duration)
        return print_duration(datetime.timedelta(microseconds=duration))

    def _looking_at(self, variable: int, row: int, run: TracedRun, number: int) -> RowContext:
        context = self._context
        if self.task.bound.predicates[variable].kind is not PredicateClass.PATH:
            run = TracedRun()
        context.rows, context.labels = (*run.rows, row), (*run.labels, variable)
        context.current, context.match_number = len(run.rows), number
        return context

    def _finding(self, condition: BoundExpression, context: RowContext) -> Finding:
        def shown(leaf: BoundExpression) -> str:
            return value_text(self._value(leaf, context))

        verdict = self._value(condition, context)
        text = self.printer.text(condition)
        values = text if isinstance(verdict, DataError) else self.printer.text(condition, shown)
        return Finding(text, values, _verdict_text(verdict))

    def _value(self, expression: BoundExpression, context: RowContext) -> Any:
        """Evaluate; a value that cannot be computed comes back as the error."""
        if id(expression) not in self._compiled:
            self._compiled[id(expression)] = compile_row(expression)
        try:
            return self._compiled[id(expression)](context)
        except DataError as error:
            return error


class _LazyColumn(Sequence[Any]):
    """The values of a partition in one column, converted when they are asked for."""

    def __init__(self, column: pa.Array, low: int) -> None:
        self._column = column
        self._low = low
        self._known: dict[int, Any] = {}

    def __getitem__(self, row: Any) -> Any:
        if row not in self._known:
            self._known[row] = column_values(self._column.slice(self._low + row, 1))[0]
        return self._known[row]

    def __len__(self) -> int:
        return len(self._column) - self._low


def _verdict_text(verdict: object) -> str:
    return f"error: {verdict.message}" if isinstance(verdict, DataError) else value_text(verdict)
