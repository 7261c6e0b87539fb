"""Windows and user-defined operators as work on partitions that come sorted, one after the other.

Memory of a stream: the rows of its open windows; for an operator what it keeps itself.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from outpace.engine.divide.groups import MatchStream, PartitionStream
from outpace.engine.match.apply import AppliedOperator, apply_to_table
from outpace.engine.window_match.operator import Instance, WindowedOperator, match_whole
from outpace.pattern.bind.windows import BoundWindows
from outpace.pattern.bound import BoundQuery
from outpace.pattern.query import Query


class WindowWork:
    """Matches windows; each task splits its own partitions.

    Parameters
    ----------
    bound, windows
        The query and its windows.
    make_instance
        Makes what finds the matches.
    columns
        The columns that rows have.
    keys
        The columns that the rows are sorted by before all others; none where they come in the
        order of all events.
    """

    def __init__(
        self,
        bound: BoundQuery,
        windows: BoundWindows,
        make_instance: Callable[[], Instance],
        columns: tuple[str, ...],
        keys: tuple[str, ...],
    ) -> None:
        self.keys = keys
        self._columns = columns
        self._bound = bound
        self._windows = windows
        self._make_instance = make_instance

    def whole(self, rows: pa.Table) -> pa.Table:
        """Return the matches of complete partitions."""
        return match_whole(self._bound, self._windows, self._make_instance(), rows).table

    def stream(self) -> PartitionStream:
        """Return a stream of matches."""
        instance = self._make_instance()
        return MatchStream(WindowedOperator(self._bound, self._windows, instance, self._columns))


class OperatorWork:
    """Runs a user-defined operator over whole partitions."""

    def __init__(self, query: Query, schema: pa.Schema) -> None:
        self.keys = query.partitions
        self._query = query
        self._schema = schema

    def whole(self, rows: pa.Table) -> pa.Table:
        """Return what the operators of complete partitions give."""
        return apply_to_table(self._query, rows)

    def stream(self) -> PartitionStream:
        """Return the operator of one large partition."""
        return MatchStream(AppliedOperator(self._query, self._schema))
