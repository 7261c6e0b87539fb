"""The tree of keys against a plain list of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.order.tree import NEVER, KeyTree, OrderKey

times = st.one_of(st.integers(0, 9), st.none())


def key_of(time: int | None, place: int) -> OrderKey:
    return NEVER if time is None else (time, 0, place)


@given(
    st.lists(times, min_size=1, max_size=40),
    st.integers(2, 5),
    st.lists(st.tuples(st.integers(0, 39), times, st.booleans())),
)
def test_the_least_key_and_those_before_it_are_known_after_any_change(start, fan_in, changes):
    keys = [key_of(time, place) for place, time in enumerate(start)]
    tree = KeyTree(keys, fan_in=fan_in)
    for which, time, asked in [*changes, (0, None, True)]:
        place = which % len(keys)
        keys[place] = tree[place] = key_of(time, place)
        if asked:
            assert tree.least == min(keys)
            for bound in (keys[place], (5, 0, which), NEVER):
                expected = [place for place, key in enumerate(keys) if key < bound]
                assert tree.before(bound) == expected


def test_beyond_the_fan_in_there_are_levels_of_groups() -> None:
    for count, levels in [(1, [1, 1]), (64, [64, 1]), (65, [65, 2, 1]), (4097, [4097, 65, 2, 1])]:
        tree = KeyTree([(0, 0, place) for place in range(count)], fan_in=64)
        assert [len(level) for level in tree._levels] == levels
