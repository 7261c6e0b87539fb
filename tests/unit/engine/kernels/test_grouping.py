"""Pairs are found where a search of them all says, their first numbers close together or not."""

from bisect import bisect_left

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.compiler.kernel import head_start
from outpace.engine.kernels.grouping import find_pairs

numbers = st.integers(-3, 6) | st.sampled_from([-(1 << 40), 1 << 40])
pairs = st.lists(st.tuples(numbers, st.integers(-3, 3)), max_size=12)


@pytest.mark.parametrize("compiled", [True, False])
@given(pairs.map(sorted), pairs)
def test_pairs_are_found_among_sorted_ones(compiled, there, wanted):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head_start, "left", -1 if compiled else 1_000_000)
        places = np.empty(len(wanted), np.int64)
        columns = np.array([*there, *wanted], np.int64).reshape(-1, 2).T
        (major, asked_major), (minor, asked_minor) = (
            np.split(column, [len(there)]) for column in columns
        )
        find_pairs(major, minor, asked_major, asked_minor, places)
    assert places.tolist() == [bisect_left(there, pair) for pair in wanted]
