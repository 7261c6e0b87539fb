"""Every way to ask a query gives what it gave when its results were frozen, and when it did."""

from __future__ import annotations

from functools import cache

import pytest
from parity.frozen import RECORDED, read, recorded

frozen = cache(read)


@pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group, cases in RECORDED.items() for name in cases]
)
def test_results_are_the_frozen_ones(group: str, name: str) -> None:
    assert name in frozen(group), "freeze it: PYTHONPATH=tests python -m parity.write"
    assert recorded(group, name) == frozen(group)[name]


@pytest.mark.parametrize("group", RECORDED)
def test_nothing_else_is_frozen(group: str) -> None:
    assert list(read(group)) == list(RECORDED[group])
