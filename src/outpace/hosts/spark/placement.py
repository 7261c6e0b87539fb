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

#: The one number whose hash is 0, and so in the first partition of however many there are.
_FIRST: Final = -1_693_959_553


def labels(instances: int, partitions: int) -> list[int]:
    """Return a number for each instance; those of a run of `partitions` fall into different ones.

    The first instance has the same number and is in the first partition however many there are. So
    it always finds its state, and with it what tells whether the others are where they were; and
    where there is only one, no other task writes an empty file before it.

    Examples
    --------
    >>> [partition_of(label, 4) for label in labels(6, 4)]
    [0, 1, 2, 3, 0, 1]
    >>> labels(1, 3) == labels(1, 200)
    True
    """
    wanted = [-(-(instances - place) // partitions) for place in range(min(instances, partitions))]
    found: list[list[int]] = [[] for _ in wanted]
    found[0].append(_FIRST)
    numbers = itertools.count()
    while any(len(own) < count for own, count in zip(found, wanted, strict=True)):
        label = next(numbers)
        place = partition_of(label, partitions)
        if place < len(found) and len(found[place]) < wanted[place]:
            found[place].append(label)
    return [found[number % partitions][number // partitions] for number in range(instances)]


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
