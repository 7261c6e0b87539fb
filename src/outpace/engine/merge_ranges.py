"""Putting the matches of ranges together: dropping those that an earlier match rules out.

Whether a start counts depends only on the matches before it, so one pass over the matches of a key
in order of their starts gives what an uncut run gives. The rows of a match stay or go together.
Memory: one table of matches and the last match before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.kernels.starts import keep_starts
from outpace.engine.match.after import FIRST_ROW, HINT, MISSING
from outpace.engine.match.contract import Integers
from outpace.engine.partition import key_codes
from outpace.errors import MatchError
from outpace.pattern.query import AfterMatch

#: The first row of a match: its time, and its rank among the rows with that time.
START: Final = ("__outpace_start_time", "__outpace_start_rank")
#: The last start that the match rules out, in the same way.
_BARRIER: Final = ("__outpace_barrier_time", "__outpace_barrier_rank")
_FLAW: Final = "__outpace_flaw"


class Flaw(IntEnum):
    """Why AFTER MATCH SKIP TO cannot go where it says."""

    MISSING = 1
    FIRST_ROW = 2


def merged_schema(output: pa.Schema) -> pa.Schema:
    """Return the schema of matches on the way from their ranges to the pass over all."""
    places = [pa.field(name, pa.int64()) for name in (*START, *_BARRIER)]
    return pa.schema([*output, *places, pa.field(_FLAW, pa.int8())])


def with_places(
    table: pa.Table, places: Sequence[Integers], flaw: npt.NDArray[np.int64]
) -> pa.Table:
    """Return rows of matches with the place of each match and what it rules out."""
    columns = [*table.columns, *(pa.array(place, pa.int64()) for place in places)]
    return pa.table([*columns, pa.array(flaw, pa.int8())], schema=merged_schema(table.schema))


class RangeFilter:
    """Drops matches that an earlier match rules out, as matches come in order of their starts.

    Parameters
    ----------
    after
        Where the search goes on after a match.
    keys
        The columns of the key; the rows of a key come together.
    """

    def __init__(self, after: AfterMatch, keys: Sequence[str] = ()) -> None:
        self._after = after
        self._keys = list(keys)
        #: The last row of the table before, with its key and start.
        self._last: pa.Table | None = None
        self._last_kept = False
        self._barrier = np.zeros(2, np.int64)

    def keep(self, found: pa.Table) -> pa.Table:
        """Return the rows of the matches that stay, without the columns that told the places."""
        output = found.column_names[: -len(START) - len(_BARRIER) - 1]
        if not found.num_rows:
            return found.select(output)
        fresh, first = self._changes(found)
        firsts = np.flatnonzero(first)
        heads = found.take(pa.array(firsts)) if len(firsts) < found.num_rows else found
        times, ranks = (heads.column(name).to_numpy() for name in START)
        barrier_times, barrier_ranks = (heads.column(name).to_numpy() for name in _BARRIER)
        kept = keep_starts(times, ranks, barrier_times, barrier_ranks, fresh[firsts], self._barrier)
        self._check(heads, kept)
        # The first rows may belong to the last match of the table before.
        stays = np.concatenate([[self._last_kept], kept])[np.cumsum(first)]
        self._last = found.select([*self._keys, *START]).slice(found.num_rows - 1)
        self._last_kept = bool(stays[-1])
        return found.select(output).filter(pa.array(stays))

    def _changes(self, found: pa.Table) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Say which rows begin a new key, and which a new match."""
        rows = found.select([*self._keys, *START])
        begins = self._last is None
        joined = rows if self._last is None else pa.concat_tables([self._last, rows])
        fresh = np.zeros(joined.num_rows, np.bool_)
        if self._keys:
            codes, _ = key_codes([joined.column(name) for name in self._keys])
            fresh[1:] = np.diff(codes) != 0
        fresh[0] = begins
        first = fresh.copy()
        for name in START:
            first[1:] |= np.diff(joined.column(name).to_numpy()) != 0
        skipped = 0 if begins else 1
        return fresh[skipped:], first[skipped:]

    def _check(self, heads: pa.Table, kept: npt.NDArray[np.bool_]) -> None:
        if not self._after.strict:
            return
        flaws = heads.column(_FLAW).to_numpy()[kept]
        wrong = flaws[flaws != 0]
        if len(wrong):
            raise MatchError(
                MISSING if wrong[0] == Flaw.MISSING else FIRST_ROW,
                detail=f"variable {self._after.variable}",
                hint=HINT,
            )
