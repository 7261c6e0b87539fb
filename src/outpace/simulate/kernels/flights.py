"""Event sets on their way from one machine to another (section 5.4 of the CEPSim paper).

Every machine has a heap of what comes to it, by time of arrival and then by order of sending: a
skew heap, whose nodes are taken from one store, so that the sets of all machines share it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from outpace.compiler.kernel import compiled, compiled_without_arrays, inlined
from outpace.simulate.kernels.records import (
    FREE_FLIGHT,
    FREE_FLIGHTS,
    ROOM,
    SENT,
    Integers,
    Records,
    RunState,
    Stores,
)
from outpace.simulate.kernels.rings import enqueue, make_room
from outpace.simulate.vertex_state import NOTHING


@compiled_without_arrays
def transfer(
    state: RunState,
    stores: Stores,
    number: int,
    header: tuple[float, float, float, float],
    totals: int,
    now: float,
) -> None:
    """Send a set to a queue on another machine; `totals` is where its totals lie."""
    sets, flights, flight_totals, marks = stores
    queue = state.queues[number]
    link = state.links[queue.link]
    leaves = max(now, link.free) + header[0] * link.seconds_per_event
    link.free = leaves
    queue.travelling = queue.travelling + header[0]
    chosen = marks[FREE_FLIGHT]
    flight = flights[chosen]
    marks[FREE_FLIGHT] = flight.right
    marks[FREE_FLIGHTS] -= 1
    if marks[FREE_FLIGHTS] < len(marks):
        marks[ROOM] = 1
    flight.time = leaves + link.latency
    flight.cardinality, flight.timestamp, flight.latency, flight.spread = header
    flight.sent, flight.queue = marks[SENT], number
    marks[SENT] += 1
    for position in range(queue.width):
        flight_totals[chosen, position] = sets[totals + position]
    _push(flights, state.machines[state.vertices[queue.target].home], chosen)


@compiled
def receive(state: RunState, stores: Stores, vm: int, now: float) -> Stores:
    """Enqueue the sets that have arrived at a machine by now."""
    machine = state.machines[vm]
    while machine.inbox >= 0 and stores.flights[machine.inbox].time <= now:
        receive_first(state, stores, machine)
        if stores.marks[ROOM]:
            stores = make_room(state.queues, stores)
    return stores


@inlined
def receive_first(state: RunState, stores: Stores, machine: Any) -> None:
    """Enqueue the first set that is on its way to a machine; it may fill a ring."""
    sets, flights, totals, marks = stores
    number = _pop(flights, machine)
    flight = flights[number]
    queue = state.queues[flight.queue]
    _land(queue, flight.cardinality)
    if queue.runs:
        latency = flight.latency + (flight.time - flight.timestamp)
        header = (flight.cardinality, flight.time, latency, flight.spread)
        at = enqueue(queue, flight.queue, state.holds, sets, marks, header)
        for position in range(queue.width):
            sets[at + position] = totals[number, position]
    else:
        drop(state.vertices[queue.target], flight.cardinality)
    _release(flights, marks, number)


@compiled_without_arrays
def drop_arrivals(state: RunState, stores: Stores, vm: int, before: float) -> None:
    """Drop what arrives before a time: the machine is down, or nothing on it runs."""
    vertices, queues, machine = state.vertices, state.queues, state.machines[vm]
    flights, marks = stores.flights, stores.marks
    while machine.inbox >= 0 and flights[machine.inbox].time < before:
        number = _pop(flights, machine)
        queue = queues[flights[number].queue]
        _land(queue, flights[number].cardinality)
        drop(vertices[queue.target], flights[number].cardinality)
        _release(flights, marks, number)


@compiled
def redirect(state: RunState, stores: Stores, first: int, end: int) -> None:
    """Have all that is on its way to these machines go to where its target is now."""
    vertices, queues, machines = state.vertices, state.queues, state.machines
    flights = stores.flights
    waiting = np.empty(len(flights), np.int64)
    count = 0
    for vm in range(first, end):
        while machines[vm].inbox >= 0:
            waiting[count] = _pop(flights, machines[vm])
            count += 1
    for place in range(count):
        target = vertices[queues[flights[waiting[place]].queue].target]
        _push(flights, machines[target.home], waiting[place])


@inlined
def drop(vertex: Any, events: float) -> None:
    """Count events that are dropped before a vertex."""
    vertex.dropped = vertex.dropped + events
    vertex.sample_dropped = vertex.sample_dropped + events


@inlined
def _land(queue: Any, events: float) -> None:
    """Have so many events less on their way."""
    left = queue.travelling - events
    queue.travelling = left if left >= NOTHING else 0.0


@inlined
def _release(flights: Records, marks: Integers, number: int) -> None:
    """Put a flight among the free ones."""
    flights[number].right = marks[FREE_FLIGHT]
    marks[FREE_FLIGHT] = number
    marks[FREE_FLIGHTS] += 1


@inlined
def _push(flights: Records, machine: Any, number: int) -> None:
    """Add a flight to the heap of the machine that it goes to."""
    flights[number].left = -1
    flights[number].right = -1
    machine.inbox = _merged(flights, machine.inbox, number)


@inlined
def _pop(flights: Records, machine: Any) -> int:
    """Take the first flight out of a machine's heap."""
    number = machine.inbox
    machine.inbox = _merged(flights, flights[number].left, flights[number].right)
    return int(number)


@compiled_without_arrays
def _merged(flights: Records, first: int, second: int) -> int:
    """Merge two heaps and return the root; children change sides, which keeps them balanced."""
    if first < 0 or second < 0:
        return max(first, second)
    if _before(flights[second], flights[first]):
        first, second = second, first
    root = first
    while True:
        below = flights[first].right
        flights[first].right = flights[first].left
        if below < 0:
            flights[first].left = second
            return root
        if _before(flights[second], flights[below]):
            below, second = second, below
        flights[first].left = below
        first = below


@inlined
def _before(flight: Any, other: Any) -> bool:
    earlier = flight.time < other.time
    return bool(earlier or (flight.time == other.time and flight.sent < other.sent))
