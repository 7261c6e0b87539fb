"""What is frozen is what the oracles say."""

from __future__ import annotations

from collections import Counter

import pytest
from parity.frozen import CASES, read
from parity.meaning import check


@pytest.mark.soak
@pytest.mark.parametrize("group", CASES)
def test_frozen_results_are_those_of_the_oracles(group: str) -> None:
    compared: Counter[str] = Counter()
    for name, found in read(group).items():
        compared.update(check(CASES[group][name], found))
    assert compared.total() > len(CASES[group])
