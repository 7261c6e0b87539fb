"""Where the events of an operator lie in the log that they were read from.

An operator has the events of its keys alone, numbered as they come; a log has those of all, by
their offsets. Events come in the order of the log, however it is cut, so that reading a stretch of
it again, from an offset whose number is known, gives each event the number that it had.

Memory: two integers for each block of the log that has an event which is needed.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from outpace.engine.state import NATURAL, State, integer, integers, require
from outpace.errors import DataError


class LogPiece(NamedTuple):
    """Rows of a log, and the offsets where they begin and end."""

    rows: pa.Table
    first: int
    stop: int


class LogPlaces:
    """The blocks of a log whose events an operator needs.

    Examples
    --------
    >>> places = LogPlaces()
    >>> places.add(0, 4, 1000, 1100)
    >>> places.add(4, 3, 1100, 1300)
    >>> places.trim(5)
    >>> places.first, places.until
    ((1100, 4), 1300)
    """

    def __init__(self, until: int = 0) -> None:
        #: The offset behind all that was read.
        self.until = until
        self._numbers: list[int] = []
        self._offsets: list[int] = []

    @property
    def first(self) -> tuple[int, int] | None:
        """The offset of the first block, and the number of its first event; None: none is needed.

        Of the events of the block only those count that are the operator's own.
        """
        return (self._offsets[0], self._numbers[0]) if self._numbers else None

    def add(self, number: int, events: int, first: int, stop: int) -> None:
        """Add a block: the number of its first event, how many it has, and its offsets."""
        if first < self.until or stop < first:
            raise DataError(
                "the blocks of a log do not come in its order, so it could not be read again",
                detail=f"offset {first} behind offset {self.until}",
                hint='match what spark.readStream.format("outpace.log") gives as it is, or leave '
                "recovery out",
            )
        self.until = stop
        if events:
            self._numbers.append(number)
            self._offsets.append(first)

    def trim(self, number: int) -> None:
        """Forget the blocks before that which has the event of a number."""
        low = max(0, bisect_right(self._numbers, number) - 1)
        del self._numbers[:low], self._offsets[:low]

    def clear(self) -> None:
        """Forget all blocks."""
        self._numbers.clear()
        self._offsets.clear()

    def state(self) -> State:
        """Return all that is known, for `restore`."""
        blocks = {"number": self._numbers, "offset": self._offsets}
        columns = {name: np.array(own, np.int64) for name, own in blocks.items()}
        return State({"until": self.until}, [pa.table(columns)])

    def restore(self, state: State) -> None:
        """Take what `state` returned."""
        header, (blocks,) = state.content(1)
        self.until = integer(header, "until", NATURAL)
        read = integers(blocks, number=NATURAL, offset=range(self.until + 1))
        require(all((np.diff(one) > 0).all() for one in read), "blocks do not rise")
        self._numbers, self._offsets = (one.tolist() for one in read)
