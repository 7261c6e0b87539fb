"""Which matches stay, from where the search may enter to where it leaves: against plain walks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from outpace.engine.kernels.starts import exit_positions, reachable_starts


def walk(entry: int, jumps: dict[int, int], size: int) -> tuple[list[int], int]:
    """Return the starts that a search meets that enters at a row, and where it leaves."""
    met = []
    position = entry
    while position < size:
        if position in jumps:
            met.append(position)
            position = jumps[position]
        else:
            position += 1
    return met, position


@st.composite
def stretches(draw: st.DrawFn) -> tuple[int, dict[int, int]]:
    size = draw(st.integers(1, 30))
    starts = draw(st.sets(st.integers(0, size - 1)))
    return size, {start: start + draw(st.integers(1, 9)) for start in sorted(starts)}


def arrays(jumps: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(list(jumps), np.int64), np.array(list(jumps.values()), np.int64)


@examples(200)
@given(stretches(), st.integers(0, 30))
def test_reachable_starts_are_those_that_some_walk_meets(
    stretch: tuple[int, dict[int, int]], last: int
) -> None:
    size, jumps = stretch
    expected = {met for entry in range(last + 1) for met in walk(entry, jumps, size)[0]}
    starts, targets = arrays(jumps)
    entered = np.concatenate([[True], starts[:-1] < last])[: len(starts)]
    reached = reachable_starts(starts, targets, entered)
    assert set(starts[reached].tolist()) == expected


@examples(200)
@given(stretches())
def test_exits_are_where_walks_end(stretch: tuple[int, dict[int, int]]) -> None:
    size, jumps = stretch
    exits = np.empty(size, np.int64)
    exit_positions(*arrays(jumps), exits)
    assert exits.tolist() == [walk(entry, jumps, size)[1] - size for entry in range(size)]
