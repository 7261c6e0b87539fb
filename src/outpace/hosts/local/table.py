"""Matching tables in process: `match` for the result, `search` for everything about it.

What most searches do not need is imported when it is asked for: a small search takes less time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from outpace.compiler.kernel import fitting
from outpace.engine.divide.parts import LEAST_ROWS, match_parts
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Block, BlockMatches, Matcher, Pace, Progress, Task
from outpace.engine.match.partitions import WholePartitions, find_at_once
from outpace.engine.match.reach import reach_of
from outpace.engine.match.task import prepare
from outpace.errors import DataError, UnsupportedError
from outpace.hosts.background import Compilable, ToilNotice, compile_in_background
from outpace.hosts.local.frames import TableLike, to_arrow
from outpace.hosts.local.nested_keys import number_keys, with_keys
from outpace.hosts.local.threads import in_threads, thread_count
from outpace.pattern.argument import a_whole_number, listed, shown
from outpace.pattern.bind.disorder import missing_flag
from outpace.pattern.notebook import Text, table_html
from outpace.pattern.query import Query, Selection, checked_query
from outpace.plan.division import divide_rows
from outpace.report.progress import show_progress

if TYPE_CHECKING:
    from outpace.engine.window_match.result import WindowMatches


def match(
    data: TableLike,
    query: Query,
    *,
    progress: bool | Progress = False,
    threads: int | None = None,
) -> pa.Table:
    """Find the matches of a query in a table, as `outpace.match` says."""
    with show_progress(progress, checked_query(query).name) as on_progress:
        return search(data, query, progress=on_progress, threads=threads).table()


def search(
    data: TableLike,
    query: Query,
    *,
    progress: Progress | None = None,
    threads: int | None = None,
) -> Search:
    """Prepare a search: it runs when something is asked of it, and only as far as needed."""
    table = to_arrow(data, checked_query(query))
    if (flag := missing_flag(query, table.column_names)) is not None:
        # A table has every row in its place, so none goes on because a time was up.
        table = table.append_column(flag, pa.array(np.zeros(table.num_rows, np.bool_)))
    toil = ToilNotice(query.name) if query.bound is None else None
    return Search(table, query, Pace(progress=progress, toil=toil), thread_count(threads))


class Search:
    """A query over a table, to be looked at from several sides.

    Parameters
    ----------
    table
        The rows.
    query
        The query.
    pace
        How often compiled code lets Python know how far it is; as usual where it is left out.
    threads
        How many threads work on it.

    Examples
    --------
    >>> table = pa.table({"ts": [1, 2, 3], "kind": ["a", "b", "b"]})
    >>> pairs = (Query("pairs").order_by("ts").pattern("A ->> B").within(10)
    ...          .define(A="kind = 'a'", B="kind = 'b'").measures(b="B.ts"))
    >>> search(table, pairs).count()
    2
    """

    def __init__(
        self, table: pa.Table, query: Query, pace: Pace | None = None, threads: int = 1
    ) -> None:
        self._table, self._query, self._keys = number_keys(table, query)
        self._pace = pace or Pace()
        self._threads = threads

    def table(self) -> pa.Table:
        """Return the matches as a table."""
        return with_keys(self._table_by_numbers(), self._keys, self._query)

    @fitting()
    def _table_by_numbers(self) -> pa.Table:
        if self._query.windows is not None and self._query.instance_count > 1:
            from outpace.hosts.processes.run import match_in_processes

            return match_in_processes(self._query, self._table, self._pace.progress)
        with in_threads(self._threads):
            if self._query.windows is not None or self._query.operator is not None:
                return self._in_windows.table
            return self._partitions.table()

    @fitting()
    def count(self) -> int:
        """Return the number of matches, for `->>` without making them one by one."""
        if self._query.windows is None and self._query.operator is None:
            with in_threads(self._threads):
                return self._partitions.count()
        every = self._query.effective_selection is Selection.ALL and self._query.operator is None
        if not every or "_in_windows" in vars(self):
            return len(self._in_windows)
        from outpace.engine.operator_spec import OperatorSpec
        from outpace.engine.whole import count_whole

        return count_whole(OperatorSpec(self._query, self._table.schema), self._table)

    @fitting()
    def timed_out(self) -> pa.Table:
        """Return the partial matches that WITHIN ended, with the reason."""
        self._check_whole("timed_out")
        return with_keys(self._partitions.timed_out(), self._keys, self._query.one_row_per_match())

    def why(self, match_index: int) -> str:
        """Explain one match: which row was taken for which step, and why its predicate held.

        The text shows itself line by line, also without `print`.

        Parameters
        ----------
        match_index
            The number of the match in the result, from 0 on.
        """
        from outpace.explanation.why import why

        self._check_whole("why")
        index = a_whole_number(match_index, "the place of a match", error=DataError)
        whole = self._partitions
        return Text(why(whole.task, whole.block, whole.found, index))

    def why_not(self, rows: int | Sequence[int]) -> str:
        """Explain why rows that look like a match are none: which step failed on which event.

        Parameters
        ----------
        rows
            Row numbers of the input table, in the order of the expected match; one row alone is
            where it should begin.
        """
        from outpace.explanation.why_not import why_not

        self._check_whole("why_not")
        named = (rows,) if isinstance(rows, int | np.integer) else listed(rows)
        if named is None:
            raise DataError(
                f"rows are whole numbers, not {shown(rows)}", hint="write why_not([0, 1, 2])"
            )
        places = [a_whole_number(row, "a row", error=DataError) for row in named]
        return Text(why_not(self._partitions.task, self._partitions.block, places))

    def __repr__(self) -> str:
        # A search runs when something is asked of it; to look at it in a debugger is nothing.
        rows = "1 row" if self._table.num_rows == 1 else f"{self._table.num_rows} rows"
        return f"search for {self._query.name} in {rows}: table(), count(), why(0), why_not([0])"

    def _repr_html_(self) -> str:
        table = self.table()
        rows = "1 row" if table.num_rows == 1 else f"{table.num_rows} rows"
        title = f"{self._query.name}: {rows} from {self._table.num_rows} events"
        return table_html(table, title)

    def _check_whole(self, question: str) -> None:
        if self._query.operator is not None:
            raise UnsupportedError(f"{question} looks at a pattern, not at an operator")
        if self._query.windows is not None:
            raise UnsupportedError(
                f"{question} looks at partitions, not at windows",
                hint="ask it of the rows of one window, without over",
            )
        if self._query.uncertainty is not None:
            raise UnsupportedError(
                f"{question} looks at one order of the events",
                hint="ask it of the query without uncertain",
            )

    @cached_property
    def _in_windows(self) -> WindowMatches:
        """The matches in windows."""
        from outpace.engine.operator_spec import OperatorSpec
        from outpace.engine.whole import match_whole

        spec = OperatorSpec(self._query, self._table.schema, checked=False)
        return match_whole(spec, self._table, self._pace.progress)

    @cached_property
    def _partitions(self) -> WholePartitions:
        task = replace(prepare(self._query, self._table.schema), pace=self._pace)
        return WholePartitions(task, self._table, _choose, partial(_find, task))


def _find(task: Task, matcher: Matcher, block: Block) -> BlockMatches:
    if not isinstance(matcher, Compilable) or not matcher.ready(LEAST_ROWS):
        # Plain Python is no faster in several threads.
        return find_at_once(matcher, block)
    reach = reach_of(task)
    cut, _ = divide_rows(task.bound.query, task.bound, reach.back, reach.ahead)
    ranged = cut.by_range and not task.bound.query.effective_skip.strict
    return match_parts(task, matcher, block, ranged=ranged)


def _choose(task: Task) -> Matcher:
    matcher = choose_matcher(task)
    compile_in_background(matcher)
    return matcher
