"""When a decision became final: the number of the row that brought what had to be known.

The number does not depend on how the input was cut into blocks, nor on how time was told: a row is
known when it has arrived, and a deadline has passed when a row, of any partition, has reached it;
where time is ahead of the rows, that is the next one. What a deadline decides is final before that
row is, and in the order of the deadlines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.kernels.grouping import find_pairs
from outpace.engine.match.contract import Block, BlockMatches
from outpace.engine.match.twin_search import SearchReach
from outpace.engine.rows.deadlines import NEVER


class Decision(NamedTuple):
    """When something is final; the later of two decides.

    Parameters
    ----------
    settled
        The number of the row that brought what had to be known.
    by_row
        Whether that row had to be known, and does not only show that time has passed.
    awaited
        The time that had to pass, where the row only shows that; else NO_TIME.
    """

    settled: int
    by_row: bool
    awaited: int


#: Before everything.
NOTHING = Decision(NO_TIME, False, NO_TIME)


class Decisions:
    """When decisions about a block are final, by the order in which its rows arrived."""

    def __init__(self, block: Block) -> None:
        self._block = block
        #: What a row that comes after all others would be numbered.
        self._next = block.next_arrival
        self._crossings: tuple[list[int], list[int]] | None = None

    def of_segment(self, index: int) -> Callable[[SearchReach], Decision]:
        """Return the function that dates decisions about a segment, with rows from its start."""
        low, high = self._block.segments[index], self._block.segments[index + 1]
        times = self._block.times[low:high].tolist() if len(self._block.times) else []
        # A table may be sorted after it has arrived: a row is known with all rows before it.
        known = np.maximum.accumulate(self._block.arrivals[low:high]).tolist()
        timeless = self._block.watermark == NO_TIME

        def decide(reach: SearchReach) -> Decision:
            if reach.end:
                return Decision(self._next, True, NO_TIME)
            number = int(known[reach.row])
            if reach.deadline == NO_TIME:
                return Decision(number, True, NO_TIME)
            if timeless:
                row = bisect_left(times, reach.deadline)
                own = known[row] if row < len(known) else self._next
                return Decision(max(number, own), True, NO_TIME)
            crossing = self._crossing(reach.deadline)
            if crossing <= number:
                return Decision(number, True, NO_TIME)
            return Decision(crossing, False, reach.deadline - 1)

        return decide

    def _crossing(self, deadline: int) -> int:
        """Return the arrival that brought the watermark to a deadline."""
        if self._crossings is None:
            newest, numbers = self._block.clock()
            self._crossings = newest.tolist(), numbers.tolist()
        newest_times, arrivals = self._crossings
        at = bisect_left(newest_times, deadline)
        return arrivals[at] if at < len(arrivals) else self._next


def known_from(block: Block) -> Integers:
    """Return for each row the arrival from which on it and all rows before it are known."""
    known = block.arrivals.astype(np.int64)
    for low, high in zip(block.segments[:-1], block.segments[1:], strict=True):
        part = known[low:high]
        np.maximum.accumulate(part, out=part)
    return known


def wait_for_time(
    block: Block, segment: Integers, settled: Integers, deadline: Integers
) -> tuple[Integers, Integers | None]:
    """Return what `BlockMatches` says of when matches are final: `settled` and `awaited`.

    Parameters
    ----------
    block, segment
        The rows, and for each match the segment that it is in.
    settled
        For each match the number of the last row that it needs. It is changed.
    deadline
        For each match the time that has to come for it, NO_TIME where none has to.
    """
    waits = np.flatnonzero(deadline != NO_TIME)
    if not len(waits):
        return settled, None
    deadline = deadline[waits]
    if block.watermark == NO_TIME:
        owner = np.repeat(np.arange(len(block.segments) - 1), np.diff(block.segments))
        row = np.empty(len(waits), np.int64)
        find_pairs(owner, block.times, segment[waits].astype(np.int64), deadline, row)
        there = row < block.segments[segment[waits] + 1]
        own = np.append(known_from(block), 0)[row]
        settled[waits] = np.maximum(settled[waits], np.where(there, own, block.next_arrival))
        return settled, None
    passed = block.passed_at(deadline - 1)
    later = passed > settled[waits]
    waits = waits[later]
    settled[waits] = passed[later]
    awaited = np.full(len(settled), NO_TIME)
    awaited[waits] = deadline[later] - 1
    return settled, awaited


def emission_order(block: Block, found: BlockMatches) -> tuple[Integers, Integers]:
    """Return the order in which matches come out, and the starts that decide it in the end.

    It is that of the rows that made them final. Before those that need such a row come those that
    waited for time, in the order of the times; then the match that starts first comes first.
    """
    starts = starts_in_order(block, found)
    if found.awaited is None:
        return np.lexsort((starts, found.settled)), starts
    return order_by_decision(found.settled, found.awaited, starts), starts


def order_by_decision(settled: Integers, awaited: Integers, starts: Integers) -> Integers:
    """Return the order of what rows settled, or times that were awaited before them."""
    return np.lexsort((starts, np.where(awaited == NO_TIME, NEVER, awaited), settled))


def starts_in_order(block: Block, found: BlockMatches) -> Integers:
    """Return the starts by which a stream orders matches that became final together.

    A partition keeps its own order: a match does not come before one with a lower number, so it has
    the start of that one at least.
    """
    begun = block.arrivals[found.start]
    falls = begun[1:] < begun[:-1]
    if falls.any():
        apart = (np.diff(found.segment) != 0) | (np.diff(found.settled) != 0)
        if found.awaited is not None:
            apart |= found.awaited[1:] != found.awaited[:-1]
        if (falls & ~apart).any():
            group = np.cumsum(np.append(0, apart)) * len(begun)
            rising = np.argsort(begun, kind="stable")
            rank = np.empty(len(begun), np.int64)
            rank[rising] = np.arange(len(begun))
            begun = begun[rising[np.maximum.accumulate(rank + group) - group]]
    return begun
