"""Merging ordered runs: neighbours two by two, in as many passes as the runs can be halved.

Keys are pairs of a time and a number; of equal keys the one of the earlier run comes first. So runs
that lie in the order of their sources come out ordered by (time, number, source), and the cost per
event grows with the logarithm of the number of runs. A run that the other has nothing between is
copied a stride at a time.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from outpace.engine.kernels.compiled import compiled_when_worth

Integers = npt.NDArray[np.int64]
#: Times, numbers, and where each key was at first.
Keys = tuple[Integers, Integers, Integers]

#: So many keys are merged, or copied, between two looks at how far a run goes on alone.
_STRIDE: Final = 32


def merge_runs(times: Integers, numbers: Integers, bounds: Integers) -> Keys:
    """Return the keys of all runs in order, and where each was before.

    Parameters
    ----------
    times, numbers
        The keys, run after run; a run is ordered.
    bounds
        Where each run begins, and the number of keys at the end.

    Examples
    --------
    >>> times, numbers = np.array([1, 4, 2, 4]), np.array([0, 1, 0, 1])
    >>> [part.tolist() for part in merge_runs(times, numbers, np.array([0, 2, 4]))]
    [[1, 2, 4, 4], [0, 0, 1, 1], [0, 2, 1, 3]]
    """
    keys = (times, numbers, np.arange(len(times), dtype=np.int64))
    merged, spare = _like(keys), _like(keys) if len(bounds) > 3 else keys
    while len(bounds) > 2:
        _merge_neighbours(*keys, bounds, *merged)
        bounds = np.append(bounds[:-1:2], bounds[-1])
        # What the caller gave is read once and never written.
        keys, merged, spare = merged, spare, merged
    return keys


def _like(keys: Keys) -> Keys:
    return np.empty_like(keys[0]), np.empty_like(keys[1]), np.empty_like(keys[2])


@compiled_when_worth
def _merge_neighbours(
    times: Integers,
    numbers: Integers,
    places: Integers,
    bounds: Integers,
    out_times: Integers,
    out_numbers: Integers,
    out_places: Integers,
) -> None:
    """Merge the first run with the second, the third with the fourth, and so on."""
    for run in range(0, len(bounds) - 1, 2):
        left, middle = bounds[run], bounds[run + 1]
        right = middle
        stop = bounds[run + 2] if run + 2 < len(bounds) else middle
        out = left
        while left < middle or right < stop:
            alone, count = -1, _STRIDE
            ahead, behind = left + _STRIDE - 1, right + _STRIDE - 1
            if right == stop:
                alone, count = left, middle - left
            elif left == middle:
                alone, count = right, stop - right
            elif ahead < middle and (
                times[ahead] < times[right]
                or (times[ahead] == times[right] and numbers[ahead] <= numbers[right])
            ):
                alone = left
            elif behind < stop and (
                times[behind] < times[left]
                or (times[behind] == times[left] and numbers[behind] < numbers[left])
            ):
                alone = right
            if alone >= 0:
                for place in range(alone, alone + count):
                    out_times[out] = times[place]
                    out_numbers[out] = numbers[place]
                    out_places[out] = places[place]
                    out += 1
                if alone < middle:
                    left += count
                else:
                    right += count
                continue
            # A step takes one key, so neither run can end before the last of these.
            for _ in range(min(_STRIDE, middle - left, stop - right)):
                first = (times[left] < times[right]) | (
                    (times[left] == times[right]) & (numbers[left] <= numbers[right])
                )
                place = left if first else right
                out_times[out] = times[place]
                out_numbers[out] = numbers[place]
                out_places[out] = places[place]
                out += 1
                left += first
                right += 1 - first


@compiled_when_worth
def first_out_of_order(times: Integers, numbers: Integers) -> int:
    """Return the first key whose time falls or whose number does not rise; -1 for none."""
    for place in range(1, len(times)):
        if times[place] < times[place - 1] or numbers[place] <= numbers[place - 1]:
            return place
    return -1
