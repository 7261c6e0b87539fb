"""Queues of event sets as rings, and the room that they need (section 4.3 of the CEPSim paper).

A ring always has room for one more set; one that has become full is noted, and made twice as long
before the next set comes. What a ring leaves behind is not used again, so that all rings together
take at most twice what they hold at most.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outpace.compiler.kernel import compiled, compiled_without_arrays, inlined
from outpace.simulate.kernels.records import (
    FREE_FLIGHT,
    FREE_FLIGHTS,
    FULL,
    ROOM,
    USED,
    Floats,
    Integers,
    Stores,
)

#: Numbers of a set before its totals: cardinality, timestamp, latency, spread.
HEADER = 4


@inlined
def enqueue(
    queue: Any,
    number: int,
    holds: NDArray[np.uint8],
    sets: Floats,
    marks: Integers,
    header: tuple[float, float, float, float],
) -> int:
    """Add a set at the back and return where its totals go."""
    at: int = queue.base + ((queue.head + queue.count) & queue.mask) * (HEADER + queue.width)
    sets[at], sets[at + 1], sets[at + 2], sets[at + 3] = header
    holds[queue.target] = 1
    queue.count = queue.count + 1
    queue.cardinality = queue.cardinality + header[0]
    if queue.count > queue.mask:
        marks[ROOM] = 1
        marks[FULL] += 1
        marks[FULL + marks[FULL]] = number
    return at + HEADER


@compiled
def make_room(queues: Any, stores: Stores) -> Stores:
    """Make the rings that are full twice as long, and have free flights for what a vertex sends."""
    sets, flights, totals, marks = stores
    for mark in range(FULL + 1, FULL + 1 + marks[FULL]):
        queue = queues[marks[mark]]
        length, size = queue.mask + 1, HEADER + queue.width
        begin = marks[USED]
        if begin + 2 * length * size > len(sets):
            larger = np.empty(2 * len(sets) + 2 * length * size)
            larger[:begin] = sets[:begin]
            sets = larger
        for position in range(queue.count):
            source = queue.base + ((queue.head + position) & queue.mask) * size
            target = begin + position * size
            sets[target : target + size] = sets[source : source + size]
        queue.base, queue.head, queue.mask = begin, 0, 2 * length - 1
        marks[USED] = begin + 2 * length * size
    marks[FULL] = marks[ROOM] = 0
    # A vertex sends at most one set to each queue before it asks again.
    if marks[FREE_FLIGHTS] < len(marks) and len(flights):
        before = len(flights)
        more = np.empty(2 * before + len(marks), flights.dtype)
        more[:before] = flights
        more_totals = np.empty((len(more), totals.shape[1]))
        more_totals[:before] = totals
        for number in range(before, len(more)):
            more[number].right = marks[FREE_FLIGHT]
            marks[FREE_FLIGHT] = number
        marks[FREE_FLIGHTS] += len(more) - before
        flights, totals = more, more_totals
    return Stores(sets, flights, totals, marks)


@compiled_without_arrays
def take_from(
    queue: Any, sets: Floats, count: float, everything: bool, totals: int
) -> tuple[float, float, float, float]:
    """Dequeue so many events, or all, and return their sum; its totals are left at a place."""
    cardinality = timestamp = latency = spread = 0.0
    for position in range(queue.width):
        sets[totals + position] = 0.0
    while queue.count and (everything or count > 0.0):
        taken, its_timestamp, its_latency, its_spread = take_front(
            queue, sets, count, everything, totals
        )
        if cardinality:
            timestamp = average(cardinality, timestamp, taken, its_timestamp)
            latency = average(cardinality, latency, taken, its_latency)
            if spread or its_spread:
                spread = average(cardinality, spread, taken, its_spread)
            cardinality += taken
        else:
            cardinality, timestamp, latency = taken, its_timestamp, its_latency
            spread = its_spread
        count -= taken
    if not queue.count:
        queue.cardinality = 0.0
    return cardinality, timestamp, latency, spread


@compiled_without_arrays
def drop_after(queue: Any, sets: Floats, count: float) -> float:
    """Keep the first so many events of a queue, and return how many the others were."""
    size = HEADER + queue.width
    kept = 0
    cardinality = dropped = 0.0
    for number in range(queue.count):
        at = queue.base + ((queue.head + number) & queue.mask) * size
        events = sets[at]
        if count <= 0.0:
            dropped += events
            continue
        kept += 1
        if events > count:
            part = count / events
            dropped = events - count
            events = sets[at] = count
            for position in range(HEADER, size):
                sets[at + position] = part * sets[at + position]
        count -= events
        cardinality += events
    queue.count, queue.cardinality = kept, cardinality
    return dropped


@inlined
def take_front(
    queue: Any, sets: Floats, count: float, everything: bool, totals: int
) -> tuple[float, float, float, float]:
    """Dequeue the first set, or so many events of it; add its totals to those at a place."""
    size = HEADER + queue.width
    at = queue.base + queue.head * size
    taken = sets[at]
    if not everything and taken > count:
        part = count / taken
        sets[at] = taken - count
        taken = count
    else:
        part = 1.0
        queue.head = (queue.head + 1) & queue.mask
        queue.count = queue.count - 1
    for position in range(queue.width):
        total = sets[at + HEADER + position]
        share = part * total
        sets[at + HEADER + position] = total - share
        sets[totals + position] += share
    queue.cardinality = queue.cardinality - taken
    return taken, sets[at + 1], sets[at + 2], sets[at + 3]


@inlined
def average(left_weight: float, left: float, right_weight: float, right: float) -> float:
    """Return the average of two values by weight."""
    return (left_weight * left + right_weight * right) / (left_weight + right_weight)
