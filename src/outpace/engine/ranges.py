"""Cutting an unkeyed query into time ranges, and putting the matches of the ranges together.

A range is a partition of its own, with every row that a match of its own starts could need. It
finds the match of each of its starts, as if nothing were skipped. Whether a start counts depends
only on the matches before it, so one pass over the matches in order of their starts gives what an
uncut run gives. Rows with equal times are told apart by their rank among them, which is the same
in every range that has them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.kernels.starts import keep_starts
from outpace.engine.match.after import FIRST_ROW, MISSING
from outpace.engine.match.times import as_integers
from outpace.errors import MatchError
from outpace.pattern.bound import BoundQuery
from outpace.pattern.expression import Expression, Name, Navigate
from outpace.pattern.query import AfterMatch, Query, Skip

RANGE: Final = "__outpace_range"
RANK: Final = "__outpace_rank"
FIRST_TIME: Final = "__outpace_first_time"
FIRST_RANK: Final = "__outpace_first_rank"
_TARGET_TIME: Final = "__outpace_target_time"
_TARGET_RANK: Final = "__outpace_target_rank"


def range_query(query: Query, bound: BoundQuery) -> Query:
    """Return the query that a range runs: every start, and what putting together needs."""
    assert bound.time is not None
    after = query.effective_skip
    measures = [
        *query.outputs,
        (FIRST_TIME, Navigate("first", Name((bound.time,)))),
        (FIRST_RANK, Navigate("first", Name((RANK,)))),
    ]
    if after.skip is Skip.PAST_LAST_ROW:
        measures += [
            (_TARGET_TIME, Navigate("last", Name((bound.time,)))),
            (_TARGET_RANK, Navigate("last", Name((RANK,)))),
        ]
    elif after.skip in (Skip.TO_FIRST, Skip.TO_LAST):
        assert after.variable is not None
        kind = "first" if after.skip is Skip.TO_FIRST else "last"
        measures += [
            (_TARGET_TIME, _at(kind, after.variable, bound.time)),
            (_TARGET_RANK, _at(kind, after.variable, RANK)),
        ]
    return replace(query, partitions=(RANGE,), skip=AfterMatch(Skip.NONE), outputs=tuple(measures))


def _at(kind: str, variable: str, column: str) -> Expression:
    return Navigate("first" if kind == "first" else "last", Name((variable, column)))


class Ranks:
    """Adds each row's rank among the rows of its range with the same time, over many tables."""

    def __init__(self, time: str) -> None:
        self._time = time
        self._last: tuple[int, int] | None = None
        self._count = 0

    def add(self, table: pa.Table) -> pa.Table:
        """Return the table with the column of ranks; rows come sorted by range and time."""
        size = table.num_rows
        if not size:
            return table.append_column(RANK, pa.array([], pa.int64()))
        times = as_integers(table.column(self._time))
        ranges = table.column(RANGE).to_numpy()
        new = np.ones(size, np.bool_)
        new[1:] = (np.diff(times) != 0) | (np.diff(ranges) != 0)
        new[0] = (int(ranges[0]), int(times[0])) != self._last
        places = np.arange(size)
        starts = np.maximum.accumulate(np.where(new, places, 0))
        ranks = places - starts
        if not new[0]:
            first_run = int(np.argmax(new)) if new.any() else size
            ranks[:first_run] += self._count
        self._last = (int(ranges[-1]), int(times[-1]))
        self._count = int(ranks[-1]) + 1
        return table.append_column(RANK, pa.array(ranks, pa.int64()))


def core_matches(found: pa.Table, width: int) -> pa.Table:
    """Keep the matches that start in the range itself, not in the rows it shares with the next."""
    own = as_integers(found.column(FIRST_TIME)) // width
    return found.filter(pa.array(own == found.column(RANGE).to_numpy()))


class RangeFilter:
    """Drops matches that an earlier match rules out, as matches come in order of their starts."""

    def __init__(self, after: AfterMatch) -> None:
        self._after = after
        self._past_last = after.skip is Skip.PAST_LAST_ROW
        self._barrier = np.array([np.iinfo(np.int64).min, 0], np.int64)

    def keep(self, found: pa.Table) -> pa.Table:
        """Return the matches that stay."""
        times = as_integers(found.column(FIRST_TIME))
        ranks = found.column(FIRST_RANK).to_numpy()
        missing = found.column(_TARGET_TIME).is_null().to_numpy()
        target_times = np.where(missing, times, _filled(found.column(_TARGET_TIME), times))
        target_ranks = np.where(missing, ranks, _filled(found.column(_TARGET_RANK), ranks))
        at_start = (target_times == times) & (target_ranks == ranks)
        kept, failed = keep_starts(
            times, ranks, target_times, target_ranks, at_start, self._past_last,
            self._after.strict, self._barrier,
        )  # fmt: skip
        if failed >= 0:
            raise MatchError(
                MISSING if missing[failed] else FIRST_ROW,
                detail=f"variable {self._after.variable}",
            )
        return found.filter(pa.array(kept))


def _filled(column: pa.ChunkedArray, default: np.ndarray) -> np.ndarray:
    if column.null_count == 0:
        return as_integers(column)
    first = column.filter(pc.is_valid(column))
    if not len(first):
        return default
    return as_integers(pc.fill_null(column, first[0]))
