"""Grouping rows by key in linear time: codes by first appearance and a stable counting sort.

And lists of numbers sorted by several keys: finding pairs in them, and making them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from outpace.compiler.kernel import compiled_when_worth
from outpace.engine.arrays import Numbers

#: So many values are compared before one looks: they and what is said of them stay in the cache.
_AT_ONCE: Final = 1 << 14


@compiled_when_worth
def encode_range(
    values: Numbers,
    low: int,
    table: Numbers,
    codes: Numbers,
    firsts: Numbers,
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
def group_rows(codes: Numbers, groups: int, order: Numbers) -> Numbers:
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


def is_ascending(values: Numbers) -> bool:
    """Say whether no value is less than the one before it."""
    before, after = values[:-1], values[1:]
    for begin in range(0, len(after), _AT_ONCE):
        end = begin + _AT_ONCE
        if not (before[begin:end] <= after[begin:end]).all():
            return False
    return True


@compiled_when_worth
def is_ascending_in_groups(values: Numbers, order: Numbers, bounds: Numbers) -> bool:
    """Say whether, within each group of sorted rows, no value is less than the one before it."""
    for group in range(len(bounds) - 1):
        for place in range(bounds[group] + 1, bounds[group + 1]):
            if not values[order[place - 1]] <= values[order[place]]:
                return False
    return True


@compiled_when_worth
def gather_rows(values: Numbers, order: Numbers, out: Numbers) -> None:
    """Fill `out` with the values in the given order."""
    for place in range(len(order)):
        out[place] = values[order[place]]


@compiled_when_worth
def scatter_rows(values: Numbers, codes: Numbers, bounds: Numbers, out: Numbers) -> None:
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
def count_rows(codes: Numbers, counts: Numbers, out: Numbers) -> None:
    """Fill `out` with how many rows of its group stand before each row, and those of `counts`."""
    for row in range(len(codes)):
        code = codes[row]
        out[row] = counts[code]
        counts[code] += 1


@compiled_when_worth
def number_rows(bounds: Numbers, out: Numbers) -> None:
    """Fill `out` with each row's number in its group."""
    for group in range(len(bounds) - 1):
        for row in range(bounds[group], bounds[group + 1]):
            out[row] = row - bounds[group]


#: What `order_runs` comes to.
IN_ORDER, ORDERED, UNORDERED = 0, 1, 2

#: An entry moves over at most so many before all are sorted in another way.
_SHORT: Final = 256


@compiled_when_worth
def find_pairs(
    major: Numbers,
    minor: Numbers,
    wanted_major: Numbers,
    wanted_minor: Numbers,
    places: Numbers,
) -> None:
    """Fill `places` with where each wanted pair is, or would be put before all larger ones.

    Pairs are sorted. Where their first numbers lie close together, it is noted where each begins.
    """
    size = len(major)
    lowest = major[0] if size else 0
    span = major[size - 1] - lowest + 1 if size else 0
    close = 0 < span <= size + len(wanted_major)
    begins = np.zeros(span + 1 if close else 0, np.int64)
    if close:
        for row in range(size):
            begins[major[row] - lowest + 1] = row + 1
        for number in range(span):
            begins[number + 1] = max(begins[number + 1], begins[number])
    for index in range(len(wanted_major)):
        low, high = 0, size
        first, second = wanted_major[index], wanted_minor[index]
        if close and lowest <= first < lowest + span:
            low, high = begins[first - lowest], begins[first - lowest + 1]
        while low < high:
            middle = (low + high) // 2
            if major[middle] < first or (major[middle] == first and minor[middle] < second):
                low = middle + 1
            else:
                high = middle
        places[index] = low


@compiled_when_worth
def order_runs(
    first: Numbers, second: Numbers, third: Numbers, fourth: Numbers, order: Numbers
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
