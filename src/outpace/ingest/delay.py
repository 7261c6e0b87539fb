"""Events that come later than they happen: the disorder of a generated stream.

A share of the events is held up, each for a time of its own up to the longest. Which and for how
long is a function of the event's number and a seed, so any part of the stream can be made without
the rest. The stream goes by ticks: event n, if nothing holds it up, comes at tick n, and a delayed
one at the first tick that is not before the end of its delay, ahead of the event of that tick. So
no event is late for K-slack with the longest delay, and each event comes once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from outpace.engine.kernels.hashing import draw_below
from outpace.errors import DataError
from outpace.ingest.rate import Integers, Rate
from outpace.ingest.workloads import splitmix64

_MILLION: Final = 1_000_000
#: Draws have 32 bits.
_LONGEST_US: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Delays:
    """Which events come late, and when.

    Parameters
    ----------
    rate
        When events happen.
    longest_us
        The longest delay in microseconds; 0 is none.
    share
        Which share of the events is delayed, from 0 to 1.
    seed
        Another seed delays other events.
    events
        How many there are: what is held up at the end comes with the last one. None is no end.

    Examples
    --------
    >>> late = Delays(Rate.of(10), longest_us=300_000, share=0.5, seed=2, events=8)
    >>> late.arriving(0, 8).tolist()
    [0, 1, 3, 2, 4, 5, 6, 7]
    >>> late.arriving(0, 3).tolist() + late.arriving(3, 8).tolist()
    [0, 1, 3, 2, 4, 5, 6, 7]
    """

    rate: Rate
    longest_us: int = 0
    share: float = 0.1
    seed: int = 1
    events: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.longest_us <= _LONGEST_US:
            raise DataError(f"events are delayed by 0 to {_LONGEST_US // _MILLION} seconds")
        if not 0 <= self.share <= 1:
            raise DataError(f"the share of delayed events is from 0 to 1, not {self.share}")

    def reach(self, tick: int) -> int:
        """Return the first event that may come at a tick or later."""
        if not self.longest_us or not tick:
            return tick
        before = self.rate.times(np.array([tick - 1], np.int64))
        return int(self.rate.happened(before - self.longest_us)[0])

    def arriving(self, first: int, stop: int) -> Integers:
        """Return the numbers of the events that come from tick `first` to before `stop`, in order.

        It holds so many numbers, and those of the longest delay before them.
        """
        numbers, ticks = self._between(first, stop)
        # Numbers rise, and the event of a tick has the largest of all that come at it.
        return numbers[np.argsort(ticks, kind="stable")]

    def cut(self, first: int, stop: int, events_max: int) -> int:
        """Return a tick up to `stop` before which at most so many events come, as late as it can.

        It is one tick at least, even where more events come at that. It holds the numbers of two
        longest delays, however many events are asked for.
        """
        held = self._held(first)
        # Up to here at most so many come, as each tick has one event that happens at it.
        near = min(stop, max(first, first + events_max - held))
        room = events_max - (near - first + held - self._held(near))
        ends = self.rate.times(np.array([near], np.int64)) + self.longest_us
        stop = min(stop, int(self.rate.happened(ends)[0]) + 1)
        ticks = self._between(near, stop)[1]
        if len(ticks) <= room:
            return max(stop, near)
        return max(near, first + 1, int(np.partition(ticks, room)[room]))

    def _held(self, tick: int) -> int:
        """Return how many events that happened before a tick have not come before it."""
        if not self.longest_us:
            return 0
        return int((self._ticks(np.arange(self.reach(tick), tick, dtype=np.int64)) >= tick).sum())

    def _between(self, first: int, stop: int) -> tuple[Integers, Integers]:
        numbers = np.arange(self.reach(first), stop, dtype=np.int64)
        ticks = self._ticks(numbers)
        here = (ticks >= first) & (ticks < stop)
        return numbers[here], ticks[here]

    def _ticks(self, numbers: Integers) -> Integers:
        """Return the tick at which each of some numbers in a row comes."""
        if not self.longest_us or not len(numbers):
            return numbers
        (late,) = np.nonzero(self._draw(0, numbers, _MILLION) < round(self.share * _MILLION))
        delays = 1 + self._draw(1, numbers, self.longest_us)[late]
        ticks = numbers.copy()
        ticks[late] = self.rate.happened(self.rate.times(numbers[late]) + delays - 1)
        return ticks if self.events is None else np.minimum(ticks, self.events - 1)

    def _draw(self, which: int, numbers: Integers, below: int) -> Integers:
        # Generators draw from streams of their own, which the bit keeps apart from these.
        stream = np.array([(self.seed << 1 | which) ^ (1 << 62)], np.int64).view(np.uint64)
        drawn = np.empty(len(numbers), np.int64)
        draw_below(splitmix64(stream)[0], int(numbers[0]), below, drawn)
        return drawn
