"""The ticks of a run, machine by machine: Algorithm 4 of the CEPSim paper (section 5.4).

Machines between which nothing is sent do not depend on each other, so each group of machines that
do runs through all ticks by itself, while its records are in the processor's cache.
"""

from __future__ import annotations

import math

import numpy as np

from outpace.compiler.kernel import compiled, compiled_without_arrays
from outpace.simulate.kernels.flights import drop, drop_arrivals, receive, redirect
from outpace.simulate.kernels.records import (
    ROOM,
    Floats,
    History,
    Integers,
    RunState,
    Settings,
    Stores,
)
from outpace.simulate.kernels.rings import drop_after, enqueue, make_room, take_from
from outpace.simulate.kernels.rounds import (
    allocate,
    find_ready,
    forget_warm_up,
    nothing_of,
    write_history,
)
from outpace.simulate.kernels.steps import (
    WINDOWED,
    close_windows,
    needs,
    open_events,
    run_vertices,
    turn_of,
)
from outpace.simulate.strategies import LEFTOVER, ROUNDS


@compiled
def run_group(
    state: RunState,
    stores: Stores,
    history: History,
    settings: Settings,
    machines: tuple[int, int],
    vertices: tuple[int, int],
    ticks: tuple[int, int],
) -> Stores:
    """Simulate the machines of a group from one tick to another."""
    stores = make_room(state.queues, stores)
    granted = np.zeros(vertices[1] - vertices[0])
    for tick in range(ticks[0], ticks[1]):
        stores = _run_tick(state, stores, history, settings, machines, vertices, tick, granted)
    return stores


@compiled
def _run_tick(
    state: RunState,
    stores: Stores,
    history: History,
    settings: Settings,
    machines: tuple[int, int],
    vertices: tuple[int, int],
    tick: int,
    granted: Floats,
) -> Stores:
    """Simulate a tick of the machines of a group."""
    if tick == settings.warm_up_ticks:
        forget_warm_up(state, history.histogram, machines, vertices)
    for vm in range(machines[0], machines[1]):
        machine = state.machines[vm]
        place = machine.first_producer
        while place < machine.end_producer:
            place = _produce(state, stores, settings, vm, tick, place)
            if stores.marks[ROOM]:
                stores = make_room(state.queues, stores)
        if machine.up and machine.first < machine.end:
            stores = _run_machine(state, stores, history.histogram, settings, vm, tick, granted)
        else:
            drop_arrivals(state, stores, vm, (tick + 1) * settings.tick)
    if (tick + 1) % settings.ticks_per_sample == 0 or tick + 1 == settings.ticks:
        sample = tick // settings.ticks_per_sample
        write_history(state, stores.sets, history, sample, machines, vertices)
    return stores


@compiled_without_arrays
def leave_phase(state: RunState, stores: Stores, machines: tuple[int, int], now: float) -> None:
    """End a phase: what arrived where nothing ran is dropped, whoever sent it last."""
    for vm in range(machines[0], machines[1]):
        machine = state.machines[vm]
        if not machine.up or machine.first == machine.end:
            drop_arrivals(state, stores, vm, now)


@compiled
def enter_phase(
    state: RunState,
    stores: Stores,
    machines: tuple[int, int],
    started: Integers,
    cleared: Integers,
    begin: float,
) -> None:
    """Begin a phase: clear and start vertices, and redirect what is on its way."""
    for number in cleared:
        _clear(state, stores.sets, number)
    for number in started:
        vertex = state.vertices[number]
        if vertex.kind == WINDOWED:
            window = state.windows[vertex.detail]
            _empty_window(state, number)
            window.origin, window.periods, window.index = begin, 0, 0
    redirect(state, stores, machines[0], machines[1])


@compiled_without_arrays
def _produce(
    state: RunState, stores: Stores, settings: Settings, vm: int, tick: int, place: int
) -> int:
    """Put new events into the queues of a machine's producers (lines 2 to 4), from a place on.

    Stops behind a producer that fills its ring, and returns the place.
    """
    vertices, queues, machine = state.vertices, state.queues, state.machines[vm]
    producers, new_events = state.producers, state.new_events
    while place < machine.end_producer and not stores.marks[ROOM]:
        vertex = vertices[producers[place]]
        place += 1
        events = float(new_events[vertex.detail, tick])
        if not events:
            continue
        if not machine.up:
            drop(vertex, events)
            continue
        queue = queues[vertex.first_queue]
        total = events
        if settings.discard:
            # The events of a tick did not come all at once, so they fit by themselves.
            room = max(0.0, max(vertex.bound, events) - queue.cardinality)
            if events > room:
                drop(vertex, events - room)
                total = room / events * events
                events = room
        if events:
            header = (events, tick * settings.tick, 0.0)
            at = enqueue(queue, vertex.first_queue, state.holds, stores.sets, stores.marks, header)
            stores.sets[at] = total
    return place


@compiled
def _run_machine(
    state: RunState,
    stores: Stores,
    histogram: Floats,
    settings: Settings,
    vm: int,
    tick: int,
    granted: Floats,
) -> Stores:
    """Run vertices, and once none has anything to do, let time pass to the next arrival."""
    machine = state.machines[vm]
    begin, end = tick * settings.tick, (tick + 1) * settings.tick
    instructions = machine.speed * settings.tick
    if machine.inbox >= 0:
        stores = receive(state, stores, vm, begin)
    span = (begin, end)
    while True:
        begin, stores = _run_schedule(
            state, stores, histogram, settings, vm, span, begin, instructions, granted
        )
        if machine.inbox < 0 or stores.flights[machine.inbox].time >= end:
            return stores
        begin = stores.flights[machine.inbox].time
        instructions = machine.speed * (end - begin)
        stores = receive(state, stores, vm, begin)


@compiled
def _run_schedule(
    state: RunState,
    stores: Stores,
    histogram: Floats,
    settings: Settings,
    vm: int,
    span: tuple[float, float],
    begin: float,
    instructions: float,
    granted: Floats,
) -> tuple[float, Stores]:
    """Run vertices as the scheduling says, one slice after the other (lines 5 to 15)."""
    machine = state.machines[vm]
    left = instructions
    granted[: machine.end - machine.first] = 1.0
    for _ in range(ROUNDS):
        allocate(state, vm, settings.weighted, left, granted)
        if machine.processors == 1:
            begin, left, done, stores = _run_round(
                state, stores, histogram, settings.dynamic, vm, begin, left, granted
            )
        else:
            done = False
            begin, left, stores = _run_beside(
                state, stores, histogram, settings.dynamic, vm, span, begin, left, granted
            )
        if not settings.dynamic or done or left <= LEFTOVER * instructions:
            break
        if not find_ready(state, stores.sets, vm, begin, span, granted):
            break
    return begin, stores


@compiled
def _run_round(
    state: RunState,
    stores: Stores,
    histogram: Floats,
    dynamic: bool,
    vm: int,
    begin: float,
    left: float,
    granted: Floats,
) -> tuple[float, float, bool, Stores]:
    """Run each vertex of a machine at most once; return the time, what is left, and `done`."""
    machine = state.machines[vm]
    place = machine.first - machine.first
    finished = True
    while place < machine.end - machine.first:
        place, begin, left, done = run_vertices(
            state, stores, histogram, granted, dynamic, vm, place, begin, left, -1.0, math.inf
        )
        finished = finished and done
        if stores.marks[ROOM]:
            stores = make_room(state.queues, stores)
        elif place < machine.end - machine.first:
            vertex = state.vertices[state.placement[machine.first + place]]
            if dynamic:
                _, needed = needs(state, stores.sets, vertex, begin, math.inf)
                granted[place] = min(granted[place], needed)
            left -= granted[place]
            end = begin + granted[place] / machine.speed
            stores = _run_slice(state, stores, histogram, granted, vm, place, begin, end)
            begin = end
            place += 1
            finished = False
    return begin, left, finished, stores


@compiled
def _run_slice(
    state: RunState,
    stores: Stores,
    histogram: Floats,
    granted: Floats,
    vm: int,
    place: int,
    begin: float,
    end: float,
) -> Stores:
    """Run a vertex whose window is due, or in parts because sets arrive meanwhile."""
    machine = state.machines[vm]
    vertex = state.vertices[state.placement[machine.first + place]]
    instructions = granted[place]
    while True:
        until = end
        part = instructions
        if machine.inbox >= 0 and begin < stores.flights[machine.inbox].time < end:
            until = stores.flights[machine.inbox].time
            part = instructions * (until - begin) / (end - begin)
        stores = close_windows(state, stores, vertex, begin, until)
        granted[place] = part
        run_vertices(
            state,
            stores,
            histogram,
            granted,
            until < 0.0,
            vm,
            place,
            begin,
            0.0,
            until,
            math.inf,
        )
        if stores.marks[ROOM]:
            stores = make_room(state.queues, stores)
        stores = receive(state, stores, vm, until)
        if until == end:
            return stores
        instructions -= part
        begin = until


@compiled
def _run_beside(
    state: RunState,
    stores: Stores,
    histogram: Floats,
    dynamic: bool,
    vm: int,
    span: tuple[float, float],
    begin: float,
    left: float,
    granted: Floats,
) -> tuple[float, float, Stores]:
    """Run each vertex at most once, beside others; return the time by work, and what is left."""
    machine = state.machines[vm]
    for place in range(machine.end - machine.first):
        number = state.placement[machine.first + place]
        vertex = state.vertices[number]
        if dynamic and not state.holds[number]:
            continue
        start, most, speed = turn_of(state, stores.sets, vertex, machine, begin, span[0], span[1])
        given = granted[place]
        if dynamic:
            ready, needed = needs(state, stores.sets, vertex, start, start)
            ready = ready and most > nothing_of(machine, span)
            if not ready or (vertex.cost and not given):
                continue
            given = min(given, min(needed, most))
        left -= given
        given = max(0.0, min(given, most))
        begin += given / machine.speed
        end = max(begin, start + given / speed)
        if vertex.kind == WINDOWED:
            stores = close_windows(state, stores, vertex, start, end)
        granted[place] = given
        run_vertices(
            state, stores, histogram, granted, end < 0.0, vm, place, start, 0.0, end, start
        )
        vertex.free = end
        if stores.marks[ROOM]:
            stores = make_room(state.queues, stores)
        if machine.inbox >= 0:
            stores = receive(state, stores, vm, begin)
    return begin, left, stores


@compiled_without_arrays
def _clear(state: RunState, sets: Floats, number: int) -> None:
    """Drop all that a vertex holds, and tell its predecessors that there is room."""
    vertex = state.vertices[number]
    waiting = 0.0
    for place in range(vertex.first_queue, vertex.end_queue):
        queue = state.queues[place]
        events, _, _ = take_from(queue, sets, 0.0, True, 0)
        waiting += events
    if vertex.kind == WINDOWED:
        waiting = state.windows[vertex.detail].uncounted_events + waiting
        _empty_window(state, number)
    drop(vertex, waiting)
    for place in range(vertex.first_out, vertex.end_out):
        queue = state.queues[state.outs[place]]
        within = open_events(queue, sets, math.inf)
        if within < queue.cardinality:
            drop(state.vertices[queue.target], drop_after(queue, sets, within))


@compiled_without_arrays
def _empty_window(state: RunState, number: int) -> None:
    """Have nothing in a window, and its totals counted."""
    vertex = state.vertices[number]
    window = state.windows[vertex.detail]
    slots = window.slots * (vertex.end_queue - vertex.first_queue)
    state.slots[window.first_slot : window.first_slot + slots] = 0.0
    state.uncounted[window.first_total : window.first_total + vertex.width] = 0.0
    window.uncounted_events = 0.0
