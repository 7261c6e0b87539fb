"""Grouping rows by key in linear time: codes by first appearance and a stable counting sort.

And lists of numbers sorted by several keys: finding pairs in them, and making them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from outpace.compiler.kernel import compiled_when_worth
from outpace.engine.arrays import Numbers
from outpace.engine.cores import cores, stretches

#: So many rows are worth another core.
LEAST_ROWS: Final = 1 << 17

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


class Scatter(NamedTuple):
    """Where rows go that are sorted stably by code, stretch by stretch, each by a core.

    `begins` has for each stretch of the rows, and each code, the place of the first such row.
    """

    codes: Numbers
    stretches: list[tuple[int, int]]
    begins: Numbers


def scatter_of(codes: Numbers, groups: int) -> tuple[Numbers, Scatter]:
    """Return the bounds of the groups of rows with one code, and where rows go."""
    parts = stretches(len(codes), LEAST_ROWS)
    counts = np.zeros((len(parts), groups), np.int64)

    def count(part: int) -> None:
        low, high = parts[part]
        _count_codes(codes[low:high], counts[part])

    cores().each(count, range(len(parts)))
    bounds = np.zeros(groups + 1, np.int64)
    np.cumsum(counts.sum(axis=0), out=bounds[1:])
    begins = bounds[:-1] + np.cumsum(counts, axis=0) - counts
    return bounds, Scatter(codes, parts, begins)


def order_rows(scatter: Scatter, order: Numbers) -> None:
    """Fill `order` with the rows sorted stably by code."""

    def fill(part: int) -> None:
        low, high = scatter.stretches[part]
        _order_codes(scatter.codes[low:high], low, scatter.begins[part], order)

    cores().each(fill, range(len(scatter.stretches)))


def scatter_rows(values: Numbers, scatter: Scatter, out: Numbers) -> None:
    """Fill `out` with the values sorted stably by code."""

    def fill(part: int) -> None:
        low, high = scatter.stretches[part]
        _scatter_values(values[low:high], scatter.codes[low:high], scatter.begins[part], out)

    cores().each(fill, range(len(scatter.stretches)))


def group_rows(codes: Numbers, groups: int, order: Numbers) -> Numbers:
    """Fill `order` with the rows sorted stably by code; return the bounds of the groups."""
    bounds, scatter = scatter_of(codes, groups)
    order_rows(scatter, order)
    return bounds


def gather_rows(values: Numbers, order: Numbers, out: Numbers) -> None:
    """Fill `out` with the values in the given order."""

    def fill(part: tuple[int, int]) -> None:
        low, high = part
        _gather_values(values, order[low:high], out[low:high])

    cores().each(fill, stretches(len(order), LEAST_ROWS))


def is_ascending_in_groups(values: Numbers, order: Numbers, bounds: Numbers) -> bool:
    """Say whether, within each group of sorted rows, no value is less than the one before it."""

    def ascends(part: tuple[int, int]) -> bool:
        return _ascends(values, order, bounds[part[0] : part[1] + 1])

    return all(cores().each(ascends, _groups(bounds)))


def number_rows(bounds: Numbers, out: Numbers) -> None:
    """Fill `out` with each row's number in its group."""

    def number(part: tuple[int, int]) -> None:
        low, high = part
        first = int(np.searchsorted(bounds, low, "right")) - 1
        last = int(np.searchsorted(bounds, high, "left"))
        _number(bounds[first : last + 1], low, high, out)

    cores().each(number, stretches(len(out), LEAST_ROWS))


def _groups(bounds: Numbers) -> list[tuple[int, int]]:
    """Return groups from one up to another that have about as many rows as others."""
    rows = [high for _, high in stretches(int(bounds[-1]), LEAST_ROWS)]
    ends = np.searchsorted(bounds, rows)
    ends[-1] = len(bounds) - 1
    cuts = [0, *dict.fromkeys(end for end in ends.tolist() if end > 0)]
    return list(pairwise(cuts))


@compiled_when_worth
def _count_codes(codes: Numbers, counts: Numbers) -> None:
    """Fill `counts` with how many rows have each code."""
    for row in range(len(codes)):
        counts[codes[row]] += 1


@compiled_when_worth
def _order_codes(codes: Numbers, first: int, begin: Numbers, order: Numbers) -> None:
    """Fill `order` with rows from `first` on, those of each code from its place on."""
    place = begin.copy()
    for row in range(len(codes)):
        code = codes[row]
        order[place[code]] = first + row
        place[code] += 1


def is_ascending(values: Numbers) -> bool:
    """Say whether no value is less than the one before it."""

    def ascends(part: tuple[int, int]) -> bool:
        low, high = part
        for begin in range(low, high, _AT_ONCE):
            end = min(begin + _AT_ONCE, high)
            if not (values[begin:end] <= values[begin + 1 : end + 1]).all():
                return False
        return True

    return all(cores().each(ascends, stretches(max(0, len(values) - 1), LEAST_ROWS)))


@compiled_when_worth
def _ascends(values: Numbers, order: Numbers, bounds: Numbers) -> bool:
    """Say whether, within each group of sorted rows, no value is less than the one before it."""
    for group in range(len(bounds) - 1):
        for place in range(bounds[group] + 1, bounds[group + 1]):
            if not values[order[place - 1]] <= values[order[place]]:
                return False
    return True


@compiled_when_worth
def _gather_values(values: Numbers, order: Numbers, out: Numbers) -> None:
    """Fill `out` with the values in the given order."""
    for place in range(len(order)):
        out[place] = values[order[place]]


@compiled_when_worth
def _scatter_values(values: Numbers, codes: Numbers, begin: Numbers, out: Numbers) -> None:
    """Fill `out` with the values, those of each code from its place on.

    Reading in order and writing to one place per group misses the cache far less often than
    gathering by row numbers does.
    """
    place = begin.copy()
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
def _number(bounds: Numbers, low: int, high: int, out: Numbers) -> None:
    """Fill `out`, from one row up to another, with each row's number in its group."""
    for group in range(len(bounds) - 1):
        for row in range(max(low, bounds[group]), min(high, bounds[group + 1])):
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
