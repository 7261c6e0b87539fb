"""The predicates of a query over a block, as one table of bits."""

from __future__ import annotations

import numpy as np

from outpace.engine.arrays import Booleans
from outpace.engine.evaluate.columns import predicate_mask
from outpace.engine.match.contract import Block, Task


def truth_table(task: Task, block: Block) -> Booleans:
    """Return for each row and variable whether the row satisfies the variable's predicate.

    No predicate may read the match. NULL counts as not satisfied.
    """
    predicates = task.bound.predicates
    columns = {name: block.columns[name] for name in task.bound.columns}
    truth = np.empty((block.size, len(predicates)), np.bool_)
    for number, predicate in enumerate(predicates):
        truth[:, number] = predicate_mask(predicate, columns, block.segments)
    return truth
