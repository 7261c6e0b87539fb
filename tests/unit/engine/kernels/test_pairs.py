"""Pairs of equal ids: as dictionaries of lists find them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.kernels.pairs import paired_ids

#: Few ids, so that some are the same, and slots that collide where they are not.
IDS = st.lists(st.tuples(st.sampled_from([0, 1, 8, 9, 1 << 63]), st.integers(0, 1)), max_size=12)


@given(IDS, IDS)
def test_an_id_has_the_first_partner_that_is_left(
    before: list[tuple[int, int]], after: list[tuple[int, int]]
) -> None:
    left = defaultdict[tuple[int, int], list[int]](list)
    for place, one in enumerate(before):
        left[one].append(place)
    expected = [left[one].pop(0) if left[one] else -1 for one in after]
    lists = (np.array(ids, np.uint64).reshape(-1, 2) for ids in (before, after))
    assert paired_ids(*lists).tolist() == expected
