"""Where the events of an operator lie in the log that they were read from.

An operator has the events of its keys alone, numbered as they come; a log has those of all, by
their offsets. A log may have parts: files, or the partitions of a topic. What is noted is which
stretches of it were taken, in the order in which they were, however they came; reading these again
gives each event the number that it had.

Memory: some integers for each piece that came and has an event which is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.codec.stretch import LogStretch
from outpace.engine.state import NATURAL, State, integer, integers, require


class LogPiece(NamedTuple):
    """Rows of a log, and where they lie."""

    rows: pa.Table
    stretch: LogStretch


class PlacedEvents(NamedTuple):
    """Events that were taken together.

    Parameters
    ----------
    number
        How many events came before them.
    events
        How many they are.
    counts
        How many each of several sources had sent before them.
    stretches
        Where they lie, maybe among others.
    """

    number: int
    events: int
    counts: tuple[int, ...]
    stretches: tuple[LogStretch, ...]


class LogPlaces:
    """The blocks of a log whose events an operator needs.

    Examples
    --------
    >>> places = LogPlaces()
    >>> places.add(PlacedEvents(0, 4, (), (LogStretch("", 1000, 1100),)))
    >>> places.add(PlacedEvents(4, 3, (), (LogStretch("", 1100, 1300),)))
    >>> [(block.events, *block.stretches) for block in places.joined().blocks]
    [(7, LogStretch(part='', first=1000, stop=1300))]
    >>> places.keep(np.array([5]))
    >>> [(block.events, *block.stretches) for block in places.blocks]
    [(3, LogStretch(part='', first=1100, stop=1300))]
    """

    def __init__(
        self, blocks: Iterable[PlacedEvents] = (), reached: Mapping[str, int] | None = None
    ) -> None:
        self.blocks = list(blocks)
        #: Behind which offsets the parts were read that were read last.
        self.reached: Mapping[str, int] = reached or {}

    @property
    def first(self) -> dict[str, int]:
        """From which offsets on parts are needed: nothing that was read of other parts is."""
        found = dict(self.reached)
        for part, first, _ in (one for block in self.blocks for one in block.stretches):
            found[part] = min(first, found.get(part, first))
        return found

    def add(self, block: PlacedEvents) -> None:
        """Add what was taken next."""
        self.blocks.append(block)

    def keep(self, numbers: Integers) -> None:
        """Forget the blocks that have no event of some numbers, which rise."""
        edges = [(block.number, block.number + block.events) for block in self.blocks]
        low, high = np.searchsorted(numbers, np.array(edges, np.int64).reshape(-1, 2).T)
        self.blocks = [one for one, some in zip(self.blocks, low < high, strict=True) if some]

    def joined(self) -> LogPlaces:
        """Return blocks that follow each other as one: to read them, it makes no difference."""
        found: list[PlacedEvents] = []
        for block in self.blocks:
            before = found[-1] if found else None
            if before is not None and before.number + before.events == block.number:
                stretches = joined_stretches(before.stretches, block.stretches)
                block = before._replace(events=before.events + block.events, stretches=stretches)
                found.pop()
            found.append(block)
        return LogPlaces(found, self.reached)

    def state(self) -> State:
        """Return all that is known, for `restore`."""
        every = [one for block in self.blocks for one in block.stretches]
        parts = {name: n for n, name in enumerate(dict.fromkeys(one.part for one in every))}
        blocks = {
            "number": [block.number for block in self.blocks],
            "events": [block.events for block in self.blocks],
            "stretches": [len(block.stretches) for block in self.blocks],
        }
        stretches = {
            "part": [parts[one.part] for one in every],
            "first": [one.first for one in every],
            "events": [one.stop - one.first for one in every],
        }
        counts = {"count": [count for block in self.blocks for count in block.counts]}
        tables = [
            pa.table({name: np.array(own, np.int64) for name, own in table.items()})
            for table in (blocks, stretches, counts)
        ]
        return State({"parts": list(parts), "reached": dict(self.reached)}, tables)

    def restore(self, state: State, sources: int) -> None:
        """Take what `state` returned, of an operator of so many sources."""
        header, (blocks, stretches, counted) = state.content(3)
        parts = header.get("parts")
        require(
            isinstance(parts, list) and all(isinstance(one, str) for one in parts),
            "parts have no names",
        )
        names = [str(one) for one in parts or ()]
        reached = header.get("reached")
        require(isinstance(reached, dict), "nobody knows how far it has read")
        self.reached = {name: integer(reached or {}, name, NATURAL) for name in reached or {}}
        numbers, sizes, many = integers(blocks, number=NATURAL, events=NATURAL, stretches=NATURAL)
        part, first, events = integers(
            stretches, part=range(len(names)), first=NATURAL, events=NATURAL
        )
        (counts,) = integers(counted, count=NATURAL)
        require((numbers[1:] >= (numbers + sizes)[:-1]).all(), "blocks do not rise")
        require(int(many.sum()) == len(part), "stretches are missing")
        require(len(counts) == sources * len(numbers), "counts are missing")
        every = [
            LogStretch(names[whose], low, low + size)
            for whose, low, size in zip(part.tolist(), first.tolist(), events.tolist(), strict=True)
        ]
        edges = pairwise(accumulate(many.tolist(), initial=0))
        before = counts.reshape(len(numbers), sources).tolist()
        self.blocks = [
            PlacedEvents(number, size, tuple(known), tuple(every[low:high]))
            for number, size, known, (low, high) in zip(
                numbers.tolist(), sizes.tolist(), before, edges, strict=True
            )
        ]


def joined_stretches(
    before: tuple[LogStretch, ...], stretches: tuple[LogStretch, ...]
) -> tuple[LogStretch, ...]:
    """Return stretches that come after others, where the first may go on with the last of these.

    Examples
    --------
    >>> joined_stretches((LogStretch("", 0, 5),), (LogStretch("", 5, 7),))
    (LogStretch(part='', first=0, stop=7),)
    """
    if before and stretches:
        last, (part, first, stop) = before[-1], stretches[0]
        if last.part == part and last.stop == first:
            return (*before[:-1], LogStretch(part, last.first, stop), *stretches[1:])
    return before + stretches
