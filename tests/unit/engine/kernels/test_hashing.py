"""Numbers that are drawn, and those of runs, are what splitmix64 gives, one at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.kernels.hashing import draw_below, hash_runs
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


@given(st.lists(WORDS, min_size=4, max_size=4), st.lists(st.tuples(WORDS, st.lists(WORDS))))
def test_a_run_is_the_sum_of_its_members_by_their_places(salts, runs):
    members = [member for _, own in runs for member in own]
    offsets = np.append(0, np.cumsum([len(own) for _, own in runs])).astype(np.int64)
    given = (
        np.array(salts, np.uint64).reshape(2, 2),
        np.array([one for one, _ in runs], np.uint64),
    )
    words = np.empty((len(runs), 2), np.uint64)
    hash_runs(*given, np.array(members, np.uint64), offsets, words)
    for line, (first, own) in zip(words.tolist(), runs, strict=True):
        for half, word in enumerate(line):
            summed = [first + salts[half]]
            summed += [
                (member + place * GOLDEN) % 2**64 ^ salts[2 + half]
                for place, member in enumerate(own)
            ]
            hashes = splitmix64(np.array([one % 2**64 for one in summed], np.uint64))
            assert word == sum(map(int, hashes)) % 2**64
