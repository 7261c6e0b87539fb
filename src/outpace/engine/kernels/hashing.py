"""Hashing keys: the same 64 bits for equal values in every process, on every machine.

A hash starts at zero and takes in one column after the other, so equal rows of values have equal
hashes. The mixing step is splitmix64's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from outpace.compiler.kernel import compiled_when_worth, compiled_within
from outpace.engine.arrays import Unsigned

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_PRIME = np.uint64(0x100000001B3)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_HALF = np.uint64(32)
#: How many runs are hashed together, where they are alike.
_AT_ONCE = 256


@compiled_when_worth
def add_words(words: Unsigned, hashes: Unsigned) -> None:
    """Take one number into each row's hash."""
    for row in range(len(words)):
        mixed = (hashes[row] ^ words[row]) + _GOLDEN
        mixed = (mixed ^ (mixed >> _SHIFTS[0])) * _FIRST
        mixed = (mixed ^ (mixed >> _SHIFTS[1])) * _SECOND
        hashes[row] = mixed ^ (mixed >> _SHIFTS[2])


@compiled_within
def _mixed(word: np.uint64) -> np.uint64:
    word += _GOLDEN
    word = (word ^ (word >> _SHIFTS[0])) * _FIRST
    word = (word ^ (word >> _SHIFTS[1])) * _SECOND
    return word ^ (word >> _SHIFTS[2])


@compiled_when_worth
def hash_runs(
    salts: Unsigned,
    firsts: Unsigned,
    members: Unsigned,
    positions: npt.NDArray[Any],
    labels: Unsigned,
    count: int,
    offsets: npt.NDArray[Any],
    words: Unsigned,
) -> None:
    """Fill `words` with two numbers for each run of members, in which their places count.

    Parameters
    ----------
    salts
        For each of the two, a number for the first of a run, and one for each member.
    firsts, members, positions, offsets
        What each run begins with, its members, and where each was taken: run i has those from
        offset i to i + 1.
    labels, count
        The label of each position, and how many labels there are.
    """
    size = offsets[1] - offsets[0] if len(firsts) else 0
    alike = 0
    while alike < len(firsts) and offsets[alike + 1] - offsets[alike] == size:
        alike += 1
    # Runs of one size go member by member, each in a loop that mixes several at once.
    given = np.empty((3, _AT_ONCE), np.uint64)
    for low in range(0, alike, _AT_ONCE):
        high = min(low + _AT_ONCE, alike)
        mixed = given[:, : high - low]
        for run in range(low, high):
            mixed[0, run - low] = _mixed(firsts[run] + salts[0, 0])
        for run in range(low, high):
            mixed[1, run - low] = _mixed(firsts[run] + salts[0, 1])
        for place in range(size):
            turn = np.uint64(place) * _GOLDEN
            for run in range(low, high):
                one = offsets[low] + (run - low) * size + place
                member = members[one] * np.uint64(count) + labels[positions[one]]
                mixed[2, run - low] = member + turn
            for run in range(high - low):
                mixed[0, run] += _mixed(mixed[2, run] ^ salts[1, 0])
            for run in range(high - low):
                mixed[1, run] += _mixed(mixed[2, run] ^ salts[1, 1])
        for run in range(low, high):
            words[run, 0], words[run, 1] = mixed[0, run - low], mixed[1, run - low]
    for run in range(alike, len(firsts)):
        begin = offsets[run]
        one, other = _mixed(firsts[run] + salts[0, 0]), _mixed(firsts[run] + salts[0, 1])
        for place in range(begin, offsets[run + 1]):
            member = members[place] * np.uint64(count) + labels[positions[place]]
            member += np.uint64(place - begin) * _GOLDEN
            one += _mixed(member ^ salts[1, 0])
            other += _mixed(member ^ salts[1, 1])
        words[run, 0], words[run, 1] = one, other


@compiled_when_worth
def write_digits(data: npt.NDArray[np.uint8], digits: npt.NDArray[np.uint8]) -> None:
    """Fill `digits` with two hexadecimal digits for each byte."""
    ten, zero, letter = np.uint8(9), np.uint8(48), np.uint8(39)
    for place in range(len(data)):
        high, low = data[place] >> np.uint8(4), data[place] & np.uint8(15)
        digits[2 * place] = high + zero + letter * np.uint8(high > ten)
        digits[2 * place + 1] = low + zero + letter * np.uint8(low > ten)


@compiled_when_worth
def hash_bytes(offsets: npt.NDArray[Any], data: npt.NDArray[np.uint8], words: Unsigned) -> None:
    """Fill `words` with a number for each run of bytes; row i has those from offset i to i + 1."""
    for row in range(len(words)):
        word = _GOLDEN
        for place in range(offsets[row], offsets[row + 1]):
            word = (word ^ np.uint64(data[place])) * _PRIME
        words[row] = word


@compiled_when_worth
def place_in_buckets(hashes: Unsigned, buckets: int, out: npt.NDArray[np.int32]) -> None:
    """Fill `out` with each row's bucket, from 0 up to `buckets`."""
    for row in range(len(hashes)):
        out[row] = np.int32(hashes[row] % np.uint64(buckets))


@compiled_when_worth
def draw_below(seed: np.uint64, start: int, below: int, out: npt.NDArray[np.int64]) -> None:
    """Fill `out` with numbers from 0 to `below` - 1, by splitmix64 of their places after `start`.

    `below` has at most 32 bits: the upper half of the hash times it is what a division would give,
    at a fraction of the cost.
    """
    for row in range(len(out)):
        mixed = seed + np.uint64(start + row) + _GOLDEN
        mixed = (mixed ^ (mixed >> _SHIFTS[0])) * _FIRST
        mixed = (mixed ^ (mixed >> _SHIFTS[1])) * _SECOND
        mixed = mixed ^ (mixed >> _SHIFTS[2])
        out[row] = np.int64(((mixed >> _HALF) * np.uint64(below)) >> _HALF)
