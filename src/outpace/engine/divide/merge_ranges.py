"""Putting the matches of ranges together: dropping those that an earlier match rules out.

Whether a start counts depends only on the matches before it, so one pass over the matches of a key
in order of their starts gives what an uncut run gives. The rows of a match stay or go together.
Memory: the matches of one range, and for each key the last start that is ruled out.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.kernels.starts import keep_starts
from outpace.engine.match.after import FIRST_ROW, HINT, MISSING
from outpace.engine.rows.partition import key_codes
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
    """Drops matches that an earlier match rules out, as ranges come in the order of time.

    Parameters
    ----------
    after
        Where the search goes on after a match.
    keys
        The columns of the key.
    """

    def __init__(self, after: AfterMatch, keys: Sequence[str] = ()) -> None:
        self._after = after
        self._keys = list(keys)
        #: For each key so far, what its last match rules out.
        self._ruled_out: pa.Table | None = None

    def keep(self, found: pa.Table) -> pa.Table:
        """Return the rows of the matches of a range that stay, without what told their places.

        The rows of a key come together, in order of their starts.
        """
        output = found.column_names[: -len(START) - len(_BARRIER) - 1]
        if not found.num_rows:
            return found.select(output)
        barriers = found.select([*self._keys, *_BARRIER])
        carried = barriers.slice(0, 0) if self._ruled_out is None else self._ruled_out
        joined = pa.concat_tables([carried, barriers])
        codes = self._codes(joined)
        starts = [found.column(name).to_numpy() for name in START]
        first = np.ones(found.num_rows, np.bool_)
        first[1:] = np.diff(codes[carried.num_rows :]) != 0
        for place in starts:
            first[1:] |= np.diff(place) != 0
        firsts = np.flatnonzero(first)
        heads = np.concatenate([np.arange(carried.num_rows), carried.num_rows + firsts])
        # What is carried goes before the matches of its key, and stays.
        order = np.argsort(codes[heads], kind="stable")
        heads = heads[order]
        fresh = np.diff(codes[heads], prepend=-1) != 0
        before = np.full(carried.num_rows, np.iinfo(np.int64).min)
        times, ranks = (np.concatenate([before, place])[heads] for place in starts)
        barrier_times, barrier_ranks = (joined.column(name).to_numpy()[heads] for name in _BARRIER)
        kept = keep_starts(times, ranks, barrier_times, barrier_ranks, fresh)
        stays = np.zeros(len(heads), np.bool_)
        stays[order] = kept
        stays = stays[carried.num_rows :]
        self._check(found, firsts[stays])
        self._carry(joined, codes, heads[kept])
        return found.select(output).filter(pa.array(stays[np.cumsum(first) - 1]))

    def _codes(self, joined: pa.Table) -> npt.NDArray[np.int32]:
        if not self._keys:
            return np.zeros(joined.num_rows, np.int32)
        return key_codes([joined.column(name) for name in self._keys])[0]

    def _carry(self, joined: pa.Table, codes: npt.NDArray[np.int32], kept: Integers) -> None:
        """Remember the last match that stays of each key."""
        last = np.append(np.diff(codes[kept]) != 0, True)
        self._ruled_out = joined.take(pa.array(kept[last]))

    def _check(self, found: pa.Table, kept: Integers) -> None:
        if not self._after.strict:
            return
        flaws = found.column(_FLAW).to_numpy()[kept]
        wrong = flaws[flaws != 0]
        if len(wrong):
            raise MatchError(
                MISSING if wrong[0] == Flaw.MISSING else FIRST_ROW,
                detail=f"variable {self._after.variable}",
                hint=HINT,
            )
