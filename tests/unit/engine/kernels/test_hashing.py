"""Numbers that are drawn, and those of runs, are what splitmix64 gives; bytes have two digits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.kernels.hashing import draw_below, hash_runs, write_digits
from outpace.ingest.workloads import splitmix64


@given(
    st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.integers(1, 2**32 - 1), st.integers(0, 9)
)
def test_numbers_are_drawn_by_place(seed, start, below, size):
    out = np.empty(size, np.int64)
    draw_below(np.uint64(seed), start, below, out)
    places = np.array([(seed + start + row) % 2**64 for row in range(size)], np.uint64)
    hashes = [int(value) for value in splitmix64(places)]
    assert out.tolist() == [(value >> 32) * below >> 32 for value in hashes]


WORDS = st.integers(0, 2**64 - 1)
GOLDEN = 0x9E3779B97F4A7C15


LABELS = [0, 2, 1, 2]


@given(
    st.lists(WORDS, min_size=4, max_size=4),
    st.lists(st.tuples(WORDS, st.lists(st.tuples(WORDS, st.integers(0, 3))))),
)
def test_a_run_is_the_sum_of_its_members_by_their_labels_and_places(salts, runs):
    members = [member for _, own in runs for member, _ in own]
    positions = np.array([position for _, own in runs for _, position in own], np.int16)
    offsets = np.append(0, np.cumsum([len(own) for _, own in runs])).astype(np.int64)
    given = (
        np.array(salts, np.uint64).reshape(2, 2),
        np.array([one for one, _ in runs], np.uint64),
    )
    words = np.empty((len(runs), 2), np.uint64)
    taken, labels = np.array(members, np.uint64), np.array(LABELS, np.uint64)
    hash_runs(*given, taken, positions, labels, 3, offsets, words)
    for line, (first, own) in zip(words.tolist(), runs, strict=True):
        for half, word in enumerate(line):
            summed = [first + salts[half]]
            summed += [
                (3 * member + LABELS[position] + place * GOLDEN) % 2**64 ^ salts[2 + half]
                for place, (member, position) in enumerate(own)
            ]
            hashes = splitmix64(np.array([one % 2**64 for one in summed], np.uint64))
            assert word == sum(map(int, hashes)) % 2**64


@pytest.mark.parametrize("sizes", [[2] * 600, [1] * 256 + [3, 1], [0] * 300, [2] * 300 + [1]])
def test_runs_that_are_hashed_together_are_as_each_by_itself(sizes):
    random, offsets = np.random.default_rng(1), np.append(0, np.cumsum(sizes))
    salts, firsts, members = (
        random.integers(0, 2**63, size).astype(np.uint64)
        for size in ((2, 2), len(sizes), offsets[-1])
    )
    positions, labels = np.arange(offsets[-1]) % 4, np.array(LABELS, np.uint64)
    together, each = (np.empty((len(sizes), 2), np.uint64) for _ in range(2))
    hash_runs(salts, firsts, members, positions, labels, 3, offsets, together)
    for run in range(len(sizes)):
        low, high = offsets[run : run + 2]
        own = members[low:high], positions[low:high], labels, 3, np.array([0, high - low])
        hash_runs(salts, firsts[run : run + 1], *own, each[run : run + 1])
    assert (together == each).all()


@given(st.binary(max_size=99))
def test_a_byte_is_two_digits(data):
    digits = np.empty(2 * len(data), np.uint8)
    write_digits(np.frombuffer(data, np.uint8), digits)
    assert digits.tobytes().decode() == data.hex()
