"""Rows that come sorted by partition: whole partitions at a time, in bounded memory.

Rows are collected until there are enough; all complete partitions among them are worked on in one
call. A partition that alone is larger than that is fed to a stream, which for a pattern keeps only
what WITHIN needs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.message import EventsArrived, SourceEnded
from outpace.engine.operator import WholeOperator, matches_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.partition import key_codes
from outpace.engine.whole import match_whole
from outpace.pattern.query import RowsPerMatch

#: Rows that are collected before they are matched.
ROWS_AT_ONCE: Final = 1 << 20


class PartitionWork:
    """The work on partitions: those that are complete, or one that is large.

    Memory of a stream over windows: the rows of those that are open. The state of a user-defined
    operator is its own.

    Parameters
    ----------
    spec
        The query, of any kind.
    keys
        The columns that rows are sorted by before all others; none where they come in the order of
        all events.
    """

    def __init__(self, spec: OperatorSpec, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self._spec = spec

    def whole(self, rows: pa.Table) -> pa.Table:
        """Return what complete partitions give."""
        return match_whole(self._spec, rows).table

    def stream(self) -> WholeOperator | None:
        """Return the operator of one large partition; None where it has to be complete."""
        if self._spec.query.rows is RowsPerMatch.ALL_WITH_UNMATCHED:
            return None
        return WholeOperator(self._spec)


class SortedGroups:
    """Works on a stream of tables whose rows are sorted by the partition columns."""

    def __init__(self, work: PartitionWork, *, rows_at_once: int = ROWS_AT_ONCE) -> None:
        self._work = work
        self._rows_at_once = rows_at_once
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._large: WholeOperator | None = None
        self._large_key: pa.Table | None = None

    def push(self, table: pa.Table) -> Iterator[pa.Table]:
        """Take more rows and yield what partitions give that are complete."""
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
            yield matches_of(self._large.step(SourceEnded()))

    def _flush(self, *, ended: bool) -> Iterator[pa.Table]:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        self._waiting, self._waiting_rows = [], 0
        if self._large is not None:
            rows = yield from self._feed_large(rows)
            if not rows.num_rows:
                return
        last = self._last_start(rows) if self._work.keys else 0
        complete = rows.num_rows if ended else last
        if complete:
            yield self._work.whole(rows.slice(0, complete))
        rest = rows.slice(complete)
        if rest.num_rows >= self._rows_at_once:
            self._large = self._work.stream()
        if self._large is not None:
            self._large_key = rest.slice(0, 1).select(self._work.keys)
            yield matches_of(self._large.step(EventsArrived(rest)))
        elif rest.num_rows:
            self._waiting, self._waiting_rows = [rest], rest.num_rows

    def _feed_large(self, rows: pa.Table) -> Generator[pa.Table, None, pa.Table]:
        """Give the large partition its rows; return the rows of later ones."""
        assert self._large is not None
        assert self._large_key is not None
        names = self._work.keys
        size = rows.num_rows
        if names:
            joined = pa.concat_tables([self._large_key, rows.select(names)])
            codes, _ = key_codes([joined.column(name) for name in names])
            others = np.flatnonzero(codes[1:] != codes[0])
            size = int(others[0]) if len(others) else size
        if size:
            yield matches_of(self._large.step(EventsArrived(rows.slice(0, size))))
        if size < rows.num_rows:
            yield matches_of(self._large.step(SourceEnded()))
            self._large = self._large_key = None
        return rows.slice(size)

    def _last_start(self, rows: pa.Table) -> int:
        codes, _ = key_codes([rows.column(name) for name in self._work.keys])
        changes = np.flatnonzero(np.diff(codes))
        return int(changes[-1]) + 1 if len(changes) else 0
