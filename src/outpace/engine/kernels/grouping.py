"""Grouping rows by key in linear time: codes by first appearance and a stable counting sort."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outpace.compiler.kernel import compiled_when_worth

#: Keys, codes and row numbers come in several widths.
Integers = npt.NDArray[Any]

#: So many values are compared before one looks: a loop without a way out takes several at once.
_AT_ONCE: Final = 1024


@compiled_when_worth
def encode_range(
    values: Integers,
    low: int,
    table: Integers,
    codes: Integers,
    firsts: Integers,
) -> int:
    """Number the values of a small range in the order of their first appearance.

    `table` has one entry of -1 for each value of the range; `codes` and `firsts` (the first row of
    each code) are filled. Returns the number of different values.
    """
    count = 0
    for row in range(len(values)):
        slot = np.int64(values[row]) - low
        code = table[slot]
        if code < 0:
            code = np.int32(count)
            table[slot] = code
            firsts[count] = row
            count += 1
        codes[row] = code
    return count


@compiled_when_worth
def group_rows(codes: Integers, groups: int, order: Integers) -> Integers:
    """Fill `order` with the rows sorted stably by code; return the bounds of the groups."""
    bounds = np.zeros(groups + 1, np.int64)
    for row in range(len(codes)):
        bounds[codes[row] + 1] += 1
    for group in range(groups):
        bounds[group + 1] += bounds[group]
    place = bounds[:-1].copy()
    for row in range(len(codes)):
        code = codes[row]
        order[place[code]] = row
        place[code] += 1
    return bounds


@compiled_when_worth
def is_ascending(values: Integers) -> bool:
    """Say whether no value is less than the one before it."""
    before, after = values[:-1], values[1:]
    for begin in range(0, len(after), _AT_ONCE):
        rises = True
        for row in range(begin, min(begin + _AT_ONCE, len(after))):
            rises &= before[row] <= after[row]
        if not rises:
            return False
    return True


@compiled_when_worth
def is_ascending_in_groups(values: Integers, order: Integers, bounds: Integers) -> bool:
    """Say whether, within each group of sorted rows, no value is less than the one before it."""
    for group in range(len(bounds) - 1):
        for place in range(bounds[group] + 1, bounds[group + 1]):
            if not values[order[place - 1]] <= values[order[place]]:
                return False
    return True


@compiled_when_worth
def gather_rows(values: Integers, order: Integers, out: Integers) -> None:
    """Fill `out` with the values in the given order."""
    for place in range(len(order)):
        out[place] = values[order[place]]


@compiled_when_worth
def scatter_rows(values: Integers, codes: Integers, bounds: Integers, out: Integers) -> None:
    """Fill `out` with the values sorted stably by code.

    Reading in order and writing to one place per group misses the cache far less often than
    gathering by row numbers does.
    """
    place = bounds[:-1].copy()
    for row in range(len(codes)):
        code = codes[row]
        out[place[code]] = values[row]
        place[code] += 1


@compiled_when_worth
def count_rows(codes: Integers, counts: Integers, out: Integers) -> None:
    """Fill `out` with how many rows of its group stand before each row, and those of `counts`."""
    for row in range(len(codes)):
        code = codes[row]
        out[row] = counts[code]
        counts[code] += 1


@compiled_when_worth
def number_rows(bounds: Integers, out: Integers) -> None:
    """Fill `out` with each row's number in its group."""
    for group in range(len(bounds) - 1):
        for row in range(bounds[group], bounds[group + 1]):
            out[row] = row - bounds[group]
