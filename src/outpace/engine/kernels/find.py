"""Lists of numbers sorted by several keys: finding pairs in them, and making them."""

from __future__ import annotations

from typing import Any, Final

import numpy.typing as npt

from outpace.compiler.kernel import compiled_when_worth

Integers = npt.NDArray[Any]

#: What `order_runs` comes to.
IN_ORDER, ORDERED, UNORDERED = 0, 1, 2

#: An entry moves over at most so many before all are sorted in another way.
_SHORT: Final = 256


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
def order_runs(
    first: Integers, second: Integers, third: Integers, fourth: Integers, order: Integers
) -> int:
    """Order entries that rise by the first key by the others, too, equal ones as they come.

    `order` counts from 0 on and is changed. Returns IN_ORDER where entries lie so already, ORDERED
    where `order` puts them so, and UNORDERED where they do not rise by the first key, or where too
    many are equal by it.
    """
    size = len(first)
    changed = False
    begin = 0
    for place in range(1, size):
        if first[place] != first[place - 1]:
            if first[place] < first[place - 1]:
                return UNORDERED
            begin = place
            continue
        before = place - 1
        while before >= begin:
            other = order[before]
            if second[place] != second[other]:
                if second[place] > second[other]:
                    break
            elif third[place] != third[other]:
                if third[place] > third[other]:
                    break
            elif fourth[place] >= fourth[other]:
                break
            order[before + 1] = other
            before -= 1
            if place - before > _SHORT:
                return UNORDERED
        changed = changed or before < place - 1
        order[before + 1] = place
    return ORDERED if changed else IN_ORDER
