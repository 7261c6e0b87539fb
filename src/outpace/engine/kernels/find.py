"""Finding pairs of numbers in a list that is sorted by both."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from outpace.engine.kernels.compiled import compiled_when_worth

Integers = npt.NDArray[Any]


@compiled_when_worth
def find_pairs(
    major: Integers,
    minor: Integers,
    wanted_major: Integers,
    wanted_minor: Integers,
    places: Integers,
) -> None:
    """Fill `places` with where each wanted pair is, or would be put before all larger ones."""
    for index in range(len(wanted_major)):
        low, high = 0, len(major)
        first, second = wanted_major[index], wanted_minor[index]
        while low < high:
            middle = (low + high) // 2
            if major[middle] < first or (major[middle] == first and minor[middle] < second):
                low = middle + 1
            else:
                high = middle
        places[index] = low
