"""What a query over an uncertain order finds, beside what it means in the true order.

Every true match is there, and those that are confirmed are true, as long as no clock is further off
than the query says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from outpace.testing.simulation.arrival import ID, times_of
from outpace.testing.simulation.meaning import meaning_of
from outpace.testing.simulation.queries import EventRow, QueryCase
from outpace.testing.simulation.trace import SimulationError

#: A key, a window, and the events of a match with their labels.
FoundMatch: TypeAlias = "tuple[Any, Any, frozenset[tuple[int, str]]]"


def check_against_truth(
    case: QueryCase, true: pa.Table, taken: pa.Table, found: list[EventRow]
) -> None:
    """Compare matches of events as they were seen with those of the true order.

    Parameters
    ----------
    case, true
        The query over an uncertain order, and the events in their true order.
    taken, found
        The events that took part, and what came out.
    """
    there = true.filter(pc.is_in(true[ID], taken[ID].combine_chunks()))
    certain = replace(case, query=replace(case.query, uncertainty=None))
    time = max(times_of(case.query, there), default=0)
    expected = set(map(_match_of, meaning_of(certain, there, time, timeouts=False).rows))
    sure = {_match_of(row) for row in found if row["confidence"] == "CONFIRMED"}
    missing = expected - set(map(_match_of, found))
    if missing:
        raise SimulationError(f"true matches were not found: {sorted(map(str, missing))}")
    if sure - expected:
        raise SimulationError(f"confirmed, but not true: {sorted(map(str, sure - expected))}")


def _match_of(row: EventRow) -> FoundMatch:
    events = frozenset(zip(row["ids"] or (), row["labels"] or (), strict=True))
    return row.get("key"), row.get("window"), events
