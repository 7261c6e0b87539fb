"""How many events happen when: a steady rate, or one with bursts, as arithmetic on numbers.

The time of an event is a function of its number, and how many events have happened is a function of
the time, both exact in integer microseconds. So any part of a stream can be made without the rest.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from outpace.engine.arrays import Integers
from outpace.errors import DataError
from outpace.pattern.duration import parse_duration

SECOND_US: Final = 1_000_000
_BURST: Final = re.compile(
    r"\s*(?P<times>\d+(?:\.\d+)?)\s*x\s+(?P<length>.+?)\s+every\s+(?P<all>.+)"
)


@dataclass(frozen=True, slots=True)
class Rate:
    """How events are spread over time, again and again.

    Parameters
    ----------
    pieces
        The parts of a period: how many events happen in how many microseconds, evenly.

    Examples
    --------
    >>> Rate.of(4).times(np.arange(6)).tolist()
    [0, 250000, 500000, 750000, 1000000, 1250000]
    >>> int(Rate.of(4).happened(np.int64(500_000)))
    3
    """

    pieces: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, rate: int, burst: str | None = None) -> Rate:
        """Return so many events a second; a burst is written as "10x 5 s every 60 s".

        The burst comes at the end of every period.

        Examples
        --------
        >>> Rate.of(100, "10x 5 s every 60 s").pieces
        ((5500, 55000000), (5000, 5000000))
        """
        if rate < 1:
            raise DataError(f"a rate is 1 event a second or more, not {rate}")
        if burst is None:
            return cls(((rate, SECOND_US),))
        found = _BURST.fullmatch(burst)
        if found is None:
            raise DataError(
                f"a burst is not written as {burst!r}", hint='write "10x 5 s every 60 s"'
            )
        length = _microseconds(found["length"])
        calm = _microseconds(found["all"]) - length
        pieces = (
            (rate * calm // SECOND_US, calm),
            (int(rate * float(found["times"]) * length) // SECOND_US, length),
        )
        if length < 1 or calm < 1 or not all(events for events, _ in pieces):
            raise DataError(
                f"the burst {burst!r} leaves a stretch of time without an event",
                detail=f"at {rate} events a second",
                hint="a burst is shorter than its period, and each part has an event or more",
            )
        return cls(pieces)

    def times(self, numbers: Integers) -> Integers:
        """Return when the events with these numbers happen, in microseconds from the beginning."""
        rounds, rest = np.divmod(numbers, self._events)
        times = rounds * self._length_us
        for events, length in self.pieces:
            across, down = _lowest_terms(length, events)
            times += np.clip(rest, 0, events) * across // down
            rest = rest - events
        return times

    def happened(self, elapsed_us: Integers | np.int64) -> Integers:
        """Return how many events have happened at these times, those of that microsecond too."""
        rounds, rest = np.divmod(elapsed_us, self._length_us)
        counts: Integers = rounds * self._events
        for events, length in self.pieces:
            across, down = _lowest_terms(events, length)
            inside = np.clip(rest, -1, length - 1) + 1
            counts = counts + np.minimum((inside * across + down - 1) // down, events)
            rest = rest - length
        return np.maximum(counts, 0)

    @property
    def _events(self) -> int:
        return sum(events for events, _ in self.pieces)

    @property
    def _length_us(self) -> int:
        return sum(length for _, length in self.pieces)


def _microseconds(text: str) -> int:
    return round(parse_duration(text, where="burst").total_seconds() * SECOND_US)


def _lowest_terms(numerator: int, denominator: int) -> tuple[int, int]:
    divisor = math.gcd(numerator, denominator)
    return numerator // divisor, denominator // divisor
