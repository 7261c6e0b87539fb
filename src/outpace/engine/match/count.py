"""How many matches a query has: without enumeration wherever nothing rules a candidate out.

Counting takes time linear in the rows times the starts that WITHIN keeps open, however many matches
there are.
"""

from __future__ import annotations

from typing import Final

from outpace.compiler.kernel import is_compiled
from outpace.engine.kernels.count_rows import count_rows
from outpace.engine.match.contract import Block, Matcher, Resume, Task
from outpace.engine.match.count_candidates import count_candidates, exact_sum
from outpace.engine.match.graph import make_graph_matcher
from outpace.engine.match.twin import make_twin, stand_in
from outpace.pattern.query import Consume, Per, Selection, Skip

#: Blocks up to this size are listed rather than counted until the kernel has been compiled once.
SMALL: Final = 200


def count_matches(task: Task, block: Block, resume: Resume, twin: Matcher | None = None) -> int:
    """Return how many matches a call of the query's matcher would emit.

    A query that skips, consumes or has a limit per start is answered by its matcher, which makes no
    more matches than it must, and keeps none of them. What only the twin finds is listed, by the
    one given or its own.
    """
    countable = _nothing_is_ruled_out(task, block)
    if countable and block.size <= SMALL:
        outcome = stand_in(task, block, resume, lambda _: is_compiled(count_rows))
        if outcome is not None:
            return len(outcome.found.start)
    counts = count_candidates(task, block, resume) if countable else None
    if counts is None:
        if graph := make_graph_matcher(task):
            return graph.count(block, resume)
        return len((twin or make_twin(task))(block, resume).found.start)
    limits = [limit.count for limit in task.bound.query.limits if limit.per is Per.PARTITION]
    if not limits:
        return exact_sum(counts)
    total = 0
    for segment, number in enumerate(resume.number.tolist()):
        part = counts[block.segments[segment] : block.segments[segment + 1]]
        total += min(max(0, limits[0] - number), exact_sum(part))
    return total


def _nothing_is_ruled_out(task: Task, block: Block) -> bool:
    query = task.bound.query
    if query.limits and not block.ended:
        return False
    return (
        query.effective_selection is Selection.ALL
        and query.effective_skip.skip is Skip.NONE
        and query.consumption is Consume.NONE
        and all(limit.per is Per.PARTITION for limit in query.limits)
    )
