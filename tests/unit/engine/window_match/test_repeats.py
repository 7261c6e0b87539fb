"""Matches that came out, against a set of them from which nothing is forgotten too early."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.match.identity import MatchIds
from outpace.engine.window_match.repeats import KnownMatches
from outpace.engine.window_match.result import COMPLETING, WindowMatches

SCHEMA = pa.schema([("id", pa.int64())])

#: Partition, start, and what a match took.
One = tuple[int, int, tuple[int, ...]]

ones = st.tuples(
    st.integers(0, 2), st.integers(0, 3), st.lists(st.integers(0, 2), max_size=3).map(tuple)
)
steps = st.tuples(
    st.lists(ones, max_size=12),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
    st.sets(st.integers(0, 2)),
    st.booleans(),
)


def matches_of(found: list[One]) -> WindowMatches:
    size = len(found)
    start = np.array([first(one) for one in found], np.int64)
    # Words of another match may be alike, but not both.
    words = [
        (start % 2, hash((partition, start, taken)) % 2**64) for partition, start, taken in found
    ]
    ids = MatchIds(start, np.array(words, np.uint64).reshape(-1, 2))
    return WindowMatches(
        pa.table({"id": np.arange(size)}, schema=SCHEMA),
        np.arange(size + 1),
        np.zeros(size, np.int64),
        np.full(size, COMPLETING),
        np.zeros(size, np.int64),
        np.array([partition for partition, _, _ in found], np.int64),
        lambda: ids,
    )


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_match_comes_out_once_while_it_can_come_again(everywhere: bool) -> None:
    @given(st.lists(steps, max_size=8))
    def check(script: list[tuple[list[One], list[int], set[int], bool]]) -> None:
        remembered, known = KnownMatches(), set()
        floors, closed = dict.fromkeys(range(3), 0), set()
        for found, rises, ends, save in script:
            # Later windows find nothing that starts before the floor of its partition.
            found = [one for one in found if one[0] not in closed and first(one) >= floors[one[0]]]
            got = remembered.new(matches_of(found))
            fresh = [one for one in dict.fromkeys(found) if one not in known]
            assert got.table["id"].to_pylist() == [found.index(one) for one in fresh]
            known.update(fresh)
            if everywhere:
                floors = dict.fromkeys(floors, floors[0] + rises[0])
                none = np.zeros(0, np.int64)
                remembered.remember(got, none, none, elsewhere=floors[0])
            else:
                floors = {p: floors[p] + rises[p] for p in floors}
                closed |= ends
                still = [p for p in floors if p not in closed]
                remembered.remember(
                    got, np.array(still, np.int64), np.array([floors[p] for p in still], np.int64)
                )
            alive = [o for o in known if o[0] not in closed and first(o) >= floors[o[0]]]
            assert len(alive) <= len(remembered) <= 2 * len(alive)
            if save:
                remembered = KnownMatches.from_table(remembered.table())

    check()


def first(one: One) -> int:
    """Return the arrival of the first event; no two partitions share one."""
    return one[0] + 3 * one[1]


def test_few_lots_hold_what_came_one_by_one() -> None:
    remembered = KnownMatches()
    for number in range(500):
        one = matches_of([(0, number, (number,))])
        assert len(remembered.new(one)) == 1
        remembered.remember(one, np.array([0]), np.array([0]))
    assert len(remembered) == 500
    assert len(remembered._lots) < 10
    assert len(remembered.new(matches_of([(0, n, (n,)) for n in range(500)]))) == 0
