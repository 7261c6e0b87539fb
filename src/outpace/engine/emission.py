"""What comes out of matches that may be taken back: all that happens to them, or a part of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.window_match.result import WindowMatches
from outpace.pattern.bound import CONFIRMED, DIFF, left_out
from outpace.pattern.query import Emission, Query


def emitted(query: Query, matches: WindowMatches) -> WindowMatches:
    """Return what a query lets come out of all that one step says of matches.

    In a step a match is taken back at most once, then confirmed or new at most once.
    """
    if query.emission is Emission.CHANGES:
        return matches
    # A match of which no row is shown says nothing.
    there = np.flatnonzero(np.diff(matches.offsets))
    first = pa.array(matches.offsets[:-1][there])
    if query.emission is Emission.CONFIRMED:
        sure = matches.table.column(CONFIRMED).take(first).to_numpy()
        certain = matches.take(there[sure.astype(np.bool_)])
        return certain.shown_as(certain.table.drop_columns(sorted(left_out(query))), 1)
    diff = matches.table.column(DIFF).take(first).to_numpy()
    come = there[diff > 0]
    gone = there[diff < 0]
    if len(come) and len(gone):
        ids = matches.ids.array
        replaced = pc.is_in(ids.take(pa.array(gone)), ids.take(pa.array(come)))
        gone = gone[~replaced.to_numpy(zero_copy_only=False)]
    latest = matches.take(np.concatenate([gone, come]))
    said = 1 if not len(gone) else 0 if len(come) else -1
    return latest.shown_as(latest.table.drop_columns(sorted(left_out(query))), said)
