"""When a decision became final: the number of the row that brought what had to be known.

The number does not depend on how the input was cut into blocks: a row is known when it has arrived,
and a deadline has passed when a row of the partition, or the watermark, has reached it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from outpace.engine.arrays import NO_TIME
from outpace.engine.match.contract import Block
from outpace.engine.match.twin_search import SearchReach


class Arrivals:
    """The order in which the rows of a block arrived."""

    def __init__(self, block: Block) -> None:
        self._block = block
        #: What a row that comes after all others would be numbered.
        self._next = block.next_arrival
        self._crossings: tuple[list[int], list[int]] | None = None

    def of_segment(self, index: int) -> Callable[[SearchReach], int]:
        """Return the function that numbers decisions about a segment, with rows from its start."""
        low, high = self._block.segments[index], self._block.segments[index + 1]
        times = self._block.times[low:high].tolist() if len(self._block.times) else []
        # A table may be sorted after it has arrived: a row is known with all rows before it.
        known = np.maximum.accumulate(self._block.arrivals[low:high]).tolist()

        def arrival(reach: SearchReach) -> int:
            if reach.end:
                return self._next
            number = int(known[reach.row])
            if reach.deadline != NO_TIME:
                row = bisect_left(times, reach.deadline)
                own = known[row] if row < len(known) else self._next
                number = max(number, min(own, self._crossing(reach.deadline)))
            return number

        return arrival

    def _crossing(self, deadline: int) -> int:
        """Return the arrival that brought the watermark to a deadline."""
        if self._block.watermark < deadline:
            return self._next
        if self._crossings is None:
            newest, numbers = self._block.clock()
            self._crossings = newest.tolist(), numbers.tolist()
        newest_times, arrivals = self._crossings
        at = bisect_left(newest_times, deadline)
        return arrivals[at] if at < len(arrivals) else self._next
