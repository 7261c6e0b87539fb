"""Whole partitions: what a query without windows finds where all rows are there at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Block, BlockMatches, Matcher, Pace, Resume, Task
from outpace.engine.match.output import match_table, timed_out_table
from outpace.engine.match.task import match_block, whole_block
from outpace.pattern.query import Selection


@dataclass(frozen=True)
class WholePartitions:
    """The rows of a complete table, of which nothing has to stay open, and what is found in them.

    Each answer is worked out when it is asked for; rows are sorted and matched once.

    Parameters
    ----------
    task, rows
        The query, and the rows in any order.
    choose
        Says how the pattern is matched; by default the fastest way that covers it.
    """

    task: Task
    rows: pa.Table
    choose: Callable[[Task], Matcher] = lambda task: choose_matcher(task).matcher

    @cached_property
    def block(self) -> Block:
        """The rows, partition after partition in the order of their first ones."""
        return whole_block(self.task, self.rows)

    @cached_property
    def found(self) -> BlockMatches:
        """The matches, partition after partition."""
        return match_block(self.choose(self.task), self.block).found

    def table(self) -> pa.Table:
        """Return the rows of the matches."""
        return match_table(self.task, self.block, self.found)

    def count(self) -> int:
        """Return how many matches there are, without making them where all are wanted."""
        query = self.task.bound.query
        if query.effective_selection is not Selection.ALL or query.uncertainty is not None:
            return len(self.found.start)
        from outpace.engine.match.count import count_matches

        return count_matches(self.task, self.block, Resume.fresh(len(self.block.segments) - 1))

    def timed_out(self) -> pa.Table:
        """Return the partial matches that WITHIN ended, with the reason."""
        task, block = replace(self.task, timeouts=True, pace=Pace()), self.block
        if len(block.times):
            # As in a stream, the rows of all partitions tell how far time has come.
            block = replace(block, watermark=int(block.times.max()))
        return timed_out_table(task, block, match_block(self.choose(task), block).timed_out)
