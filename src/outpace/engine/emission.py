"""What comes out of matches that may be taken back: all that happens to them, or a part of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.match.identity import MatchIds
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


def emitted_together(query: Query, parts: Sequence[WindowMatches]) -> list[WindowMatches]:
    """Return what several steps let come out, as if they were one: of the latest, the last."""
    if query.emission is not Emission.LATEST or len(parts) == 1:
        return list(parts)
    later, found = MatchIds.joined([]).array, list[WindowMatches]()
    for part in reversed(parts):
        again = pc.is_in(part.ids.array, later).to_numpy(zero_copy_only=False)
        found.insert(0, part.take(np.flatnonzero(~again)))
        later = pa.concat_arrays([later, part.ids.array])
    return found
