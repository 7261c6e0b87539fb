"""What kernels reduce is the same before they are compiled, whatever the width of what is read."""

from __future__ import annotations

import inspect

import numpy as np

from outpace.engine.kernels import reduce


def test_more_takes_than_a_byte_counts_are_counted() -> None:
    # Python adds bytes up to a byte, where compiled code adds 64 bits.
    flags, out = np.ones(1000, np.uint8), np.empty(2, np.int64)
    flags[::10] = 0
    inspect.unwrap(reduce.count_takes)(flags, np.array([0, 0]), np.array([300, 1000]), out)
    assert out.tolist() == [270, 900]
