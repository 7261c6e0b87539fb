"""Whole partitions: the matches of a query without windows where all rows are there at once.

Matches are counted without enumeration wherever nothing rules a candidate out: that takes time
linear in the rows times the starts that WITHIN keeps open, however many matches there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import pyarrow as pa

from outpace.compiler.kernel import is_compiled
from outpace.engine.kernels.count_rows import count_rows
from outpace.engine.match.candidates import make_candidate_matcher
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Block, BlockMatches, Matcher, Pace, Resume, Task
from outpace.engine.match.count_candidates import count_candidates, exact_sum
from outpace.engine.match.graph import make_graph_matcher
from outpace.engine.match.output import match_table, timed_out_table
from outpace.engine.match.task import match_block, whole_block
from outpace.engine.match.twin import TwinMatcher
from outpace.pattern.query import Consume, Per, Selection, Skip


def find_at_once(matcher: Matcher, block: Block) -> BlockMatches:
    """Return the matches of a complete block."""
    return match_block(matcher, block).found


@dataclass(frozen=True)
class WholePartitions:
    """The rows of a complete table, of which nothing has to stay open, and the matches in them.

    Each answer is worked out when it is asked for; rows are sorted and matched once.

    Parameters
    ----------
    task, rows
        The query, and the rows in any order.
    choose
        Says how the pattern is matched; by default the fastest way that covers it.
    find
        Matches all rows; by default at once.
    """

    task: Task
    rows: pa.Table
    choose: Callable[[Task], Matcher] = choose_matcher
    find: Callable[[Matcher, Block], BlockMatches] = find_at_once

    @cached_property
    def block(self) -> Block:
        """The rows, partition after partition in the order of their first ones."""
        return whole_block(self.task, self.rows)

    @cached_property
    def found(self) -> BlockMatches:
        """The matches, partition after partition."""
        return self.find(self.choose(self.task), self.block)

    def table(self) -> pa.Table:
        """Return the rows of the matches."""
        return match_table(self.task, self.block, self.found)

    def count(self) -> int:
        """Return how many matches there are, without making them where all are wanted."""
        query = self.task.bound.query
        if query.effective_selection is not Selection.ALL or query.uncertainty is not None:
            return len(self.found.start)
        return count_matches(self.task, self.block, Resume.fresh(len(self.block.segments) - 1))

    def timed_out(self) -> pa.Table:
        """Return the partial matches that WITHIN ended, with the reason."""
        task, block = replace(self.task, timeouts=True, pace=Pace()), self.block
        if len(block.times):
            # As in a stream, the rows of all partitions tell how far time has come.
            block = replace(block, watermark=int(block.times.max()))
        return timed_out_table(task, block, match_block(self.choose(task), block).timed_out)


#: Blocks up to this size are listed rather than counted until the kernel has been compiled once.
SMALL: Final = 200


def count_matches(task: Task, block: Block, resume: Resume, twin: Matcher | None = None) -> int:
    """Return how many matches a call of the query's matcher would emit.

    A query that skips, consumes or has a limit per start is answered by its matcher, which makes no
    more matches than it must, and keeps none of them. What has to be listed is, by the twin given
    or the query's own matcher.
    """
    countable = _nothing_is_ruled_out(task, block)
    if countable and block.size <= SMALL:
        outcome = TwinMatcher(task).stand_in(block, resume, lambda _: is_compiled(count_rows))
        if outcome is not None:
            return len(outcome.found.start)
    counts = count_candidates(task, block, resume) if countable else None
    if counts is None:
        if graph := make_graph_matcher(task):
            return graph.count(block, resume)
        lister = twin or make_candidate_matcher(task) or TwinMatcher(task)
        return len(lister(block, resume).found.start)
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
