"""Lists of numbers sorted by several keys: finding pairs in one, and whether it is one."""

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


@compiled_when_worth
def is_ordered(first: Integers, second: Integers, third: Integers, fourth: Integers) -> bool:
    """Say whether entries rise, or stay, by the first key, then the second and so on."""
    for place in range(1, len(first)):
        if first[place] != first[place - 1]:
            if first[place] < first[place - 1]:
                return False
        elif second[place] != second[place - 1]:
            if second[place] < second[place - 1]:
                return False
        elif third[place] != third[place - 1]:
            if third[place] < third[place - 1]:
                return False
        elif fourth[place] < fourth[place - 1]:
            return False
    return True
