"""Merging ordered runs of keys, each a time and a number; of equal keys the earlier run's is first.

So runs that lie in the order of their sources come out ordered by (time, number, source). Where
times are spread, keys are put in buckets of time, about one for each key, and each is moved to its
place among its few neighbours: the cost per key does not depend on the number of runs. One slice of
time after the other is done, so that what is written stays near the processor. Where many keys
crowd in few buckets, neighbouring runs are merged two by two, in as many passes as the runs can be
halved; a stretch that one run has alone is copied a stride at a time.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outpace.compiler.kernel import compiled_when_worth, compiled_within
from outpace.engine.arrays import Integers, Numbers, pooled

Keys = tuple[Integers, Integers, Numbers]

#: So many keys are merged, or copied, between two looks at how far a run goes on alone.
_STRIDE: Final = 32
#: A slice of time holds about so many keys.
_SLICE: Final = 1 << 13
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
    # A run is ordered: its ends tell how far it reaches.
    filled = bounds[:-1] < bounds[1:]
    begins, ends = bounds[:-1][filled], bounds[1:][filled]
    low = int(times[begins].min())
    span = int(times[ends - 1].max()) - low
    if span < _SPAN_MAX and counter is np.int32:
        shift = (span // size).bit_length()
        buckets = max(1, ((span >> shift) + 1) * _SLICE // size)
        counts = np.empty(buckets + 1, np.uint32)
        crowd_max = size * (_ALONE_MAX + 2 * len(bounds))
        if _merge_buckets(times, numbers, begins, ends, low, shift, crowd_max, counts, *merged):
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
    begins: Integers,
    ends: Integers,
    low: int,
    shift: int,
    crowd_max: int,
    counts: npt.NDArray[np.uint32],
    out_times: Integers,
    out_numbers: Integers,
    out_places: Numbers,
) -> bool:
    """Sort keys by bucket, then within each; say no where they are too crowded.

    Runs reach from `begins`, which move on, up to `ends`. `counts` has room for each bucket of a
    slice, and one more; `low` is the least time. `crowd_max` bounds the sum, over all keys, of the
    keys in the same bucket.
    """
    # An index without a sign need not be looked at.
    one = np.uint32(1)
    reached = np.empty_like(begins)
    width = (len(counts) - 1) << shift
    crowd, done = np.int64(0), np.int64(0)
    while done < len(times):
        counts[:] = 0
        for run in range(len(begins)):
            place = begins[run]
            while place < ends[run]:
                after = times[place] - low
                if after >= width:
                    break
                counts[np.uint64((after >> shift) + 1)] += one
                place += 1
            reached[run] = place
        end = done
        for bucket in range(1, len(counts)):
            here = np.int64(counts[bucket])
            crowd += here * here
            end += here
            counts[bucket] = end - done
        if crowd > crowd_max:
            return False
        slice_times, slice_numbers = out_times[done:end], out_numbers[done:end]
        slice_places = out_places[done:end]
        for run in range(len(begins)):
            for place in range(begins[run], reached[run]):
                time = times[place]
                own = np.uint64((time - low) >> shift)
                out = counts[own]
                counts[own] = out + one
                slice_times[out] = time
                slice_numbers[out] = numbers[place]
                slice_places[out] = place
            begins[run] = reached[run]
        if _count_falling(slice_times, slice_numbers):
            _insert_falling(slice_times, slice_numbers, slice_places)
        done = end
        low += width
    return True


@compiled_within
def _count_falling(times: Integers, numbers: Integers) -> int:
    """Return how many keys come before the one before them."""
    count = 0
    # Without a way out in between, several keys are compared at once.
    for out in range(1, len(times)):
        count += (times[out] < times[out - 1]) | (
            (times[out] == times[out - 1]) & (numbers[out] < numbers[out - 1])
        )
    return count


@compiled_within
def _insert_falling(times: Integers, numbers: Integers, places: Numbers) -> None:
    """Move keys to their places among their neighbours."""
    for out in range(1, len(times)):
        time, number = times[out], numbers[out]
        if (times[out - 1] < time) | ((times[out - 1] == time) & (numbers[out - 1] <= number)):
            continue
        place, at = places[out], out
        while at > 0 and (
            times[at - 1] > time or (times[at - 1] == time and numbers[at - 1] > number)
        ):
            times[at], numbers[at], places[at] = times[at - 1], numbers[at - 1], places[at - 1]
            at -= 1
        times[at], numbers[at], places[at] = time, number, place


@compiled_when_worth
def _merge_neighbours(
    times: Integers,
    numbers: Integers,
    places: Numbers,
    bounds: Integers,
    out_times: Integers,
    out_numbers: Integers,
    out_places: Numbers,
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
