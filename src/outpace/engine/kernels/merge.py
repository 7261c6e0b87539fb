"""Merging ordered runs of keys, each a time and a number; of equal keys the earlier run's is first.

So runs that lie in the order of their sources come out ordered by (time, number, source). Where
times are spread, keys are put in buckets of time, about one for each key, and each is moved to its
place among its few neighbours: the cost per key does not depend on the number of runs. Where many
keys crowd in few buckets, neighbouring runs are merged two by two, in as many passes as the runs
can be halved; a stretch that one run has alone is copied a stride at a time.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outpace.engine.arrays import pooled
from outpace.engine.kernels.compiled import compiled_when_worth

Integers = npt.NDArray[np.int64]
#: Where keys were at first, in 32 bits or 64.
Places = npt.NDArray[Any]
Keys = tuple[Integers, Integers, Places]

#: So many keys are merged, or copied, between two looks at how far a run goes on alone.
_STRIDE: Final = 32
#: A bucket of a key may hold two keys of every run, and so many more, on average.
_ALONE_MAX: Final = 16
#: Distances of times up to this can be computed.
_SPAN_MAX: Final = 1 << 62


def merge_runs(times: Integers, numbers: Integers, bounds: Integers) -> Keys:
    """Return the keys of all runs in order, and where each was before.

    Parameters
    ----------
    times, numbers
        The keys, run after run, one key at least; a run is ordered.
    bounds
        Where each run begins, and the number of keys at the end.

    Examples
    --------
    >>> times, numbers = np.array([1, 4, 2, 4]), np.array([0, 1, 0, 1])
    >>> [part.tolist() for part in merge_runs(times, numbers, np.array([0, 2, 4]))]
    [[1, 2, 4, 4], [0, 0, 1, 1], [0, 2, 1, 3]]
    """
    size = len(times)
    # Half the bytes to move, unless there are more keys than 32 bits can count.
    counter = np.int32 if size <= np.iinfo(np.int32).max else np.int64
    merged = _empty(size, counter)
    low, span = int(times.min()), int(times.max()) - int(times.min())
    if span < _SPAN_MAX:
        shift = (span // size).bit_length()
        ends = pooled((span >> shift) + 2, counter)
        crowd_max = size * (_ALONE_MAX + 2 * len(bounds))
        if _merge_buckets(times, numbers, low, shift, crowd_max, ends, *merged):
            return merged
    keys = (times, numbers, np.arange(size, dtype=counter))
    spare = _empty(size, counter)
    while len(bounds) > 2:
        _merge_neighbours(*keys, bounds, *merged)
        bounds = np.append(bounds[:-1:2], bounds[-1])
        # What the caller gave is read once and never written.
        keys, merged, spare = merged, spare, merged
    return keys


def _empty(size: int, counter: type[Any]) -> Keys:
    return pooled(size, np.int64), pooled(size, np.int64), pooled(size, counter)


@compiled_when_worth
def _merge_buckets(
    times: Integers,
    numbers: Integers,
    low: int,
    shift: int,
    crowd_max: int,
    ends: Places,
    out_times: Integers,
    out_numbers: Integers,
    out_places: Places,
) -> bool:
    """Sort keys by bucket, then within each; say no, and do nothing, where they are too crowded.

    `ends` has room for each bucket, and one more; `low` is the least time. `crowd_max` bounds the
    sum, over all keys, of the keys in the same bucket.
    """
    ends[:] = 0
    for place in range(len(times)):
        ends[((times[place] - low) >> shift) + 1] += 1
    crowd = 0
    for bucket in range(len(ends) - 1):
        crowd += np.int64(ends[bucket + 1]) * ends[bucket + 1]
        ends[bucket + 1] += ends[bucket]
    if crowd > crowd_max:
        return False
    for place in range(len(times)):
        bucket = (times[place] - low) >> shift
        out_places[ends[bucket]] = place
        ends[bucket] += 1
    for out in range(len(times)):
        place = out_places[out]
        time, number = times[place], numbers[place]
        while out > 0 and (
            out_times[out - 1] > time
            or (out_times[out - 1] == time and out_numbers[out - 1] > number)
        ):
            out_times[out] = out_times[out - 1]
            out_numbers[out] = out_numbers[out - 1]
            out_places[out] = out_places[out - 1]
            out -= 1
        out_times[out], out_numbers[out], out_places[out] = time, number, place
    return True


@compiled_when_worth
def _merge_neighbours(
    times: Integers,
    numbers: Integers,
    places: Places,
    bounds: Integers,
    out_times: Integers,
    out_numbers: Integers,
    out_places: Places,
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
def count_out_of_order(times: Integers, numbers: Integers) -> int:
    """Return how many keys have a time that falls or a number that does not rise."""
    count = 0
    # Without a way out in between, several keys are compared at once.
    for place in range(1, len(times)):
        count += (times[place] < times[place - 1]) | (numbers[place] <= numbers[place - 1])
    return count
