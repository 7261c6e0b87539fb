"""Matching rows that come sorted by partition: whole partitions at a time, in bounded memory.

Rows are collected until there are enough; all complete partitions among them are matched in one
call. A partition that alone is larger than that is fed to a `MatchOperator`, which keeps only what
WITHIN needs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Task
from outpace.engine.match.operator import MatchOperator, match_block, whole_block
from outpace.engine.match.output import match_table
from outpace.engine.partition import key_codes
from outpace.pattern.query import Rows

#: Rows that are collected before they are matched.
ROWS_AT_ONCE: Final = 1 << 20


class SortedGroups:
    """Matches a stream of tables whose rows are sorted by the partition columns."""

    def __init__(self, task: Task, *, rows_at_once: int = ROWS_AT_ONCE) -> None:
        self._task = task
        self._matcher = choose_matcher(task).matcher
        self._rows_at_once = rows_at_once
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._large: MatchOperator | None = None
        self._large_key: pa.Table | None = None

    def push(self, table: pa.Table) -> Iterator[pa.Table]:
        """Take more rows and yield the matches of partitions that are complete."""
        if not table.num_rows:
            return
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        if self._waiting_rows >= self._rows_at_once:
            yield from self._flush(ended=False)

    def finish(self) -> Iterator[pa.Table]:
        """Yield the rest."""
        yield from self._flush(ended=True)
        if self._large is not None:
            yield self._large.finish().matches

    def _flush(self, *, ended: bool) -> Iterator[pa.Table]:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        self._waiting, self._waiting_rows = [], 0
        if self._large is not None:
            rows = yield from self._feed_large(rows)
            if not rows.num_rows:
                return
        last = 0 if not self._task.bound.partition_by else self._last_start(rows)
        complete = rows.num_rows if ended else last
        if complete:
            yield self._match(rows.slice(0, complete))
        rest = rows.slice(complete)
        if rest.num_rows >= self._rows_at_once and self._streams:
            self._large = MatchOperator(self._task, self._matcher)
            self._large_key = rest.slice(0, 1).select(self._task.bound.partition_by)
            yield self._large.push(rest).matches
        elif rest.num_rows:
            self._waiting, self._waiting_rows = [rest], rest.num_rows

    @property
    def _streams(self) -> bool:
        return self._task.bound.query.rows is not Rows.ALL_WITH_UNMATCHED

    def _feed_large(self, rows: pa.Table) -> Generator[pa.Table, None, pa.Table]:
        """Give the large partition its rows; return the rows of later ones."""
        assert self._large is not None
        assert self._large_key is not None
        names = self._task.bound.partition_by
        size = rows.num_rows
        if names:
            joined = pa.concat_tables([self._large_key, rows.select(names)])
            codes, _ = key_codes([joined.column(name) for name in names])
            others = np.flatnonzero(codes[1:] != codes[0])
            size = int(others[0]) if len(others) else size
        if size:
            yield self._large.push(rows.slice(0, size)).matches
        if size < rows.num_rows:
            yield self._large.finish().matches
            self._large = self._large_key = None
        return rows.slice(size)

    def _last_start(self, rows: pa.Table) -> int:
        codes, _ = key_codes([rows.column(name) for name in self._task.bound.partition_by])
        changes = np.flatnonzero(np.diff(codes))
        return int(changes[-1]) + 1 if len(changes) else 0

    def _match(self, rows: pa.Table) -> pa.Table:
        block = whole_block(self._task, rows)
        return match_table(self._task, block, match_block(self._task, self._matcher, block).found)
