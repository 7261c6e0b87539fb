"""Events by when they arrived: taken at once where that is the same as moment by moment.

Where a column says when events arrived, how a stream is cut into pieces makes no difference, as
long as events of one moment are in one piece. An order that looks at a piece as a whole says
whether its events may be taken so; otherwise it takes them in halves, down to single moments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.kernels.grouping import is_ascending
from outpace.engine.message import EventsArrived
from outpace.engine.order.contract import Order, ReleasedEvents
from outpace.engine.order.runs import moved
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.times import as_integers

#: Pieces of events, and which of these each has.
Pieces: TypeAlias = Iterator[tuple[EventsArrived, slice]]
#: Takes events, when each arrived, rising, and where each was among those that came. Or takes none,
#: and says which pieces of them are to be taken one after the other; None: two halves.
TakePiece: TypeAlias = Callable[[EventsArrived, Integers, Integers], ReleasedEvents | Pieces | None]


def arrivals_of(column: pa.ChunkedArray) -> Integers:
    """Return when events arrived; each says it."""
    return as_integers(one_array(column))


def _halves(events: EventsArrived, clock: Integers) -> Pieces:
    """Yield two pieces and which of the events they have; those of one moment stay together.

    Parameters
    ----------
    events, clock
        Events of several moments, and when each arrived, rising.
    """
    middle = clock[len(clock) // 2]
    cut = int(np.searchsorted(clock, middle)) or int(np.searchsorted(clock, middle, "right"))
    return _pieces(events, [cut])


def with_apart(events: EventsArrived, clock: Integers, moments: Integers) -> Pieces:
    """Yield pieces, each with which events it has: those of some moments, and those between."""
    ends = np.concatenate([np.searchsorted(clock, moments, side) for side in ("left", "right")])
    return _pieces(events, np.setdiff1d(ends, [0, len(clock)]).tolist())


def _pieces(events: EventsArrived, cuts: Sequence[int]) -> Pieces:
    """Yield the pieces between some places, and which of the events each has.

    What is told with the events is of later ones than all of these.
    """
    size = events.rows.num_rows
    for low, high in pairwise([0, *cuts, size]):
        promise = events.watermark if high == size else int(NO_TIME)
        rows = events.rows.slice(low, high - low)
        yield replace(events, rows=rows, watermark=promise), slice(low, high)


def has_several(clock: Integers) -> bool:
    """Say whether events, by when each arrived, rising, are of several moments."""
    return len(clock) > 0 and bool(clock[0] < clock[-1])


def take_moments(
    order: Order,
    events: EventsArrived,
    clock: Integers,
    take: TakePiece,
    before: Order | None = None,
) -> ReleasedEvents:
    """Let an order take events at once, or else in pieces; after an error it has taken none.

    Parameters
    ----------
    order, events, clock
        The order, the events, and when each arrived.
    take
        Takes events as they arrived.
    before
        The order as it stands, where one that takes events has changed after an error.
    """
    places = np.arange(len(clock))
    if not is_ascending(clock):
        places = np.argsort(clock, kind="stable")
        events, clock = replace(events, rows=moved(events.rows, places)), clock[places]
    given: list[ReleasedEvents] = []
    left = [(events, clock, places)]
    try:
        while left:
            piece, moments, own = left.pop()
            taken = take(piece, moments, own)
            if isinstance(taken, ReleasedEvents):
                given.append(taken)
                continue
            before = order.snapshot() if before is None else before
            taken = _halves(piece, moments) if taken is None else taken
            left += reversed([(one, moments[part], own[part]) for one, part in taken])
    except BaseException:
        if before is not None:
            order.become(before)
        raise
    return ReleasedEvents.joined(given)
