"""The questions of the twin to predicates: whether a row satisfies one, given the run so far.

Predicates that need no run are computed for whole columns first and looked up here; those that
read the match go through the row evaluator. Rows are numbered from the start of their segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from outpace.engine.arrays import Booleans
from outpace.engine.evaluate.columns import predicate_mask
from outpace.engine.evaluate.row import Evaluate, RowContext, compile_row
from outpace.engine.match.contract import Block, Task
from outpace.pattern.bound import PredicateClass
from outpace.pattern.values import column_values

#: Asks for one row: (variable, row, rows of the run, their variables, match number).
Ask = Callable[[int, int, list[int], list[int], int], bool]


class Predicates(Protocol):
    """The predicates of a query over one block."""

    def masks(self, segment: int) -> Sequence[bytes | None]:
        """Return for each variable one byte per row of the segment, or None if it reads the run."""
        ...

    def asking(self, segment: int) -> Ask:
        """Return the function that answers for the variables without a mask."""
        ...


def bound_predicates(task: Task) -> Callable[[Block], Predicates]:
    """Return what makes the predicates of a task over a block."""
    compiled = [
        compile_row(predicate.expression)
        if predicate.kind is PredicateClass.PATH and predicate.expression is not None
        else None
        for predicate in task.bound.predicates
    ]
    return partial(_BlockPredicates, task, compiled)


class _BlockPredicates:
    """The bound predicates of a task over a block; those that read the run are compiled."""

    def __init__(self, task: Task, compiled: Sequence[Evaluate | None], block: Block) -> None:
        self._task, self._compiled = task, compiled
        self._block = block
        columns = {name: block.columns[name] for name in task.bound.columns}
        self._masks: list[Booleans | None] = [
            None
            if predicate.kind is PredicateClass.PATH
            else predicate_mask(predicate, columns, block.segments)
            for predicate in task.bound.predicates
        ]

    def masks(self, segment: int) -> Sequence[bytes | None]:
        """Return for each variable one byte per row of the segment, or None if it reads the run."""
        low, high = self._block.segments[segment], self._block.segments[segment + 1]
        return [
            None if mask is None else np.asarray(mask[low:high], np.bool_).tobytes()
            for mask in self._masks
        ]

    def asking(self, segment: int) -> Ask:
        """Return the function that answers for the variables without a mask."""
        low, high = (int(self._block.segments[segment + side]) for side in (0, 1))
        compiled = self._compiled
        context = RowContext(
            columns={
                name: column_values(self._block.columns[name][low:high])
                for name in (self._task.bound.columns if any(compiled) else ())
            },
            size=high - low,
            names=self._task.program.names,
        )

        def ask(variable: int, row: int, rows: list[int], labels: list[int], number: int) -> bool:
            evaluate = compiled[variable]
            assert evaluate is not None
            # The run is shared with the search, which gets it back as it was.
            rows.append(row)
            labels.append(variable)
            context.rows, context.labels = rows, labels
            context.current, context.match_number = len(rows) - 1, number
            try:
                return evaluate(context) is True
            finally:
                rows.pop()
                labels.pop()

        return ask
