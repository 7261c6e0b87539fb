"""The total order of a stream: the query's order, then the columns that break ties.

Times are compared in ticks: as exactly as their column has them, where the units of a query may be
coarser.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.order.runs import SortedRun, moved
from outpace.engine.order.source_merge import ticks_of
from outpace.engine.rows.partition import one_array, sort_groups
from outpace.engine.rows.times import as_integers
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import BoundQuery

_LIMITS: Final = np.iinfo(np.int64)


class TotalOrder:
    """The total order of the events of a stream.

    Parameters
    ----------
    bound
        The query.
    disorder
        Which column tells the time, and which ones break ties.
    """

    def __init__(self, bound: BoundQuery, disorder: BoundDisorder) -> None:
        self.time = disorder.time
        self.kind: pa.DataType = bound.schema.field(disorder.time).type
        self._ticks = ticks_of(self.kind)
        ties = disorder.ties
        self._query = replace(
            bound,
            order_by=(*bound.order_by, *ties),
            descending=(*bound.descending, *(False for _ in ties)),
            nulls_first=(*bound.nulls_first, *(False for _ in ties)),
        )
        #: The columns that it compares, in turn.
        self.columns = self._query.order_by

    def ticks(self, rows: pa.Table) -> Integers:
        """Return times as exactly as the column has them."""
        column = one_array(rows.column(self.time))
        return as_integers(column.view(pa.int64()) if self._ticks > 1 else column)

    def in_ticks(self, time: int) -> int:
        """Return a time of the query in ticks."""
        return max(int(_LIMITS.min), min(int(time) * self._ticks, int(_LIMITS.max)))

    def in_units(self, ticks: int) -> int:
        """Return the time of the query that ticks lie in."""
        return ticks // self._ticks

    def without_ties(self, run: SortedRun) -> pa.Table:
        """Return events in the total order; those of a run are in the order of time."""
        if len(self.columns) == 1 or len(run) < 2:
            return run.rows
        same = run.times[1:] == run.times[:-1]
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        if not len(tied):
            return run.rows
        keys = moved(run.rows.select(self.columns), tied)
        order = self._sorted(keys)
        if order is None or (np.diff(order) > 0).all():
            return run.rows
        places = np.arange(len(run))
        places[tied] = tied[order]
        return moved(run.rows, places)

    def puts_before(self, rows: pa.Table, places: Integers) -> bool:
        """Say of rows at some places, each of one time with the next, if they come before that."""
        order = self._sorted(rows)
        if order is None:
            return True
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return bool((rank[places] < rank[places + 1]).all())

    def before_first(self, keys: pa.Table) -> Booleans:
        """Say of the rows behind the first which of them the order puts before it."""
        places = self._sorted(keys)
        before = np.zeros(keys.num_rows, np.bool_)
        if places is not None:
            before[places[: int(np.flatnonzero(places == 0)[0])]] = True
        return before[1:]

    def _sorted(self, keys: pa.Table) -> Integers | None:
        return sort_groups(keys, self._query, None, np.array([0, keys.num_rows], np.int64))
