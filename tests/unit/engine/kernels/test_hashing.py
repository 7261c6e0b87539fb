"""Drawn numbers are those that splitmix64 gives, one place at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.kernels.hashing import draw_below
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
