"""Which number stands for an instance, so that Spark puts instances into different partitions.

Spark places a row by the Murmur3 hash of its key. With the numbers 0, 1, 2 ... several instances
would share a partition, and so a core, while others have none; so each gets a number whose hash is
that of a partition of its own. The hash is part of Spark's on-disk contract for streams: a restart
must find the state where it was.
"""

from __future__ import annotations

import itertools
from typing import Final

_WORD: Final = 0xFFFFFFFF
_SEED: Final = 42


def labels(instances: int, partitions: int) -> list[int]:
    """Return a number for each instance; those of a run of `partitions` fall into different ones.

    The first instance is 0 whatever the number of partitions, so that it always finds its state,
    and with it what tells whether the others are where they were.

    Examples
    --------
    >>> labels(6, 4)[0], [partition_of(label, 4) for label in labels(6, 4)]
    (0, [3, 0, 1, 2, 3, 0])
    """
    begin = partition_of(0, partitions)
    places = [(begin + number) % partitions for number in range(instances)]
    wanted = {place: places.count(place) for place in places}
    free: dict[int, list[int]] = {place: [] for place in wanted}
    for label in itertools.count():
        place = partition_of(label, partitions)
        if place in free and len(free[place]) < wanted[place]:
            free[place].append(label)
            if all(len(free[place]) == wanted[place] for place in free):
                break
    return [free[place][number // partitions] for number, place in enumerate(places)]


def partition_of(label: int, partitions: int) -> int:
    """Return the partition that Spark puts an integer key into.

    Examples
    --------
    >>> [partition_of(label, 200) for label in (0, 1, 2)]
    [191, 43, 174]
    """
    hashed = _murmur3(label)
    signed = hashed - (1 << 32) if hashed >> 31 else hashed
    return signed % partitions


def _murmur3(value: int) -> int:
    """Return the Murmur3 hash (x86, 32 bits) of a 32-bit integer with Spark's seed."""
    mixed = (value * 0xCC9E2D51) & _WORD
    mixed = (_rotated(mixed, 15) * 0x1B873593) & _WORD
    state = _rotated(_SEED ^ mixed, 13)
    state = (state * 5 + 0xE6546B64) & _WORD
    state ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = ((state ^ (state >> shift)) * factor) & _WORD
    return state ^ (state >> 16)


def _rotated(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (32 - bits))) & _WORD
