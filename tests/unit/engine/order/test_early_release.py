"""How far events go on early: alpha settles where the host is as busy as it is to be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.order.early_release import SpeculationFactor


# From a slope of 48 on, what alpha may be can be narrower than what is near what was too much.
@given(st.floats(0.0, 0.65), st.floats(0.1, 40.0), st.floats(0.3, 0.8), st.floats(0.15, 0.3))
def test_alpha_settles_where_the_load_is_steep_too(idle, slope, low, width) -> None:
    target = low, min(0.95, low + width)
    factor, seen = SpeculationFactor(target, 1.0), []
    for _ in range(200):
        busy = min(1.0, idle + slope * (1 - factor.alpha))
        factor = factor.follow(busy)
        seen.append(factor.alpha)
    assert len(set(seen[-20:])) == 1
    if idle >= target[0]:
        assert factor.alpha == 1
    else:
        assert target[0] <= busy <= target[1] or factor.alpha == 0


def test_a_load_that_falls_lets_alpha_fall_below_what_was_too_much() -> None:
    factor = SpeculationFactor((0.7, 0.9), 1.0)
    for busy in (0.1, 0.95, *[0.1] * 60):
        factor = factor.follow(busy)
    assert factor.alpha == 0
