"""The ticks of a run, machine by machine: Algorithm 4 of the CEPSim paper (section 5.4).

Machines between which nothing is sent do not depend on each other, so each group of machines that
do runs through all ticks by itself, while its records are in the processor's cache.
"""

from __future__ import annotations

import math

import numpy as np

from outpace.compiler.kernel import compiled, compiled_without_arrays, inlined
from outpace.simulate.kernels.flights import drop, drop_arrivals, receive, redirect
from outpace.simulate.kernels.records import (
    ROOM,
    Floats,
    History,
    Integers,
    Marks,
    RunState,
    Settings,
    Stores,
)
from outpace.simulate.kernels.rings import drop_after, enqueue, make_room, take_from
from outpace.simulate.kernels.rounds import (
    find_ready,
    forget_warm_up,
    write_history,
)
from outpace.simulate.kernels.steps import (
    BATCH,
    WINDOWED,
    Grant,
    close_windows,
    granted_to,
    needs,
    open_events,
    run_batch,
    run_vertices,
    turn_of,
)
from outpace.simulate.strategies import LAST, LEFTOVER, ROUNDS


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
    ready = np.zeros(vertices[1] - vertices[0], np.uint8)
    for tick in range(ticks[0], ticks[1]):
        stores = _run_tick(state, stores, history, settings, machines, vertices, tick, ready)
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
    ready: Marks,
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
            stores = _run_machine(state, stores, history.histogram, settings, vm, tick, ready)
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
        elif vertex.kind == BATCH:
            batch = state.batches[vertex.detail]
            batch.origin, batch.intervals = begin, 0
            batch.events, batch.owed, batch.owed_setup = 0.0, 0.0, 0.0
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
        if vertex.discards:
            # The events of a tick did not come all at once, so they fit by themselves.
            room = max(0.0, max(vertex.bound, events) - queue.cardinality)
            if events > room:
                drop(vertex, events - room)
                total = room / events * events
                events = room
        if events:
            header = (events, tick * settings.tick, 0.0, 0.0)
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
    ready: Marks,
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
            state, stores, histogram, vm, span, begin, instructions, ready
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
    vm: int,
    span: tuple[float, float],
    begin: float,
    instructions: float,
    ready: Marks,
) -> tuple[float, Stores]:
    """Run vertices as the scheduling says, one slice after the other (lines 5 to 15)."""
    machine = state.machines[vm]
    left = instructions
    # At first all are to get some, whether they need it or not.
    count, cost, everyone = machine.end - machine.first, machine.cost, True
    for _ in range(ROUNDS):
        if not everyone and left <= LAST * instructions:
            grant = Grant(everyone, False, left, 0.0)
        elif machine.weighted:
            grant = Grant(everyone, True, left, cost)
        else:
            grant = Grant(everyone, False, left / count, 0.0)
        begin, left, done, stores = _run_round(
            state, stores, histogram, vm, span, begin, left, ready, grant
        )
        if not machine.dynamic or done or left <= LEFTOVER * instructions:
            break
        everyone = False
        count, cost = find_ready(state, stores.sets, vm, begin, span, ready)
        if not count:
            break
    return begin, stores


@compiled
def _run_round(
    state: RunState,
    stores: Stores,
    histogram: Floats,
    vm: int,
    span: tuple[float, float],
    begin: float,
    left: float,
    ready: Marks,
    grant: Grant,
) -> tuple[float, float, bool, Stores]:
    """Run each vertex of a machine at most once; return the time, what is left, and `done`."""
    machine = state.machines[vm]
    dynamic = machine.dynamic > 0
    place = machine.first - machine.first
    finished = True
    while place < machine.end - machine.first:
        place, begin, left, done, rest, end = run_vertices(
            state,
            stores,
            histogram,
            ready,
            grant,
            dynamic,
            vm,
            place,
            span,
            begin,
            left,
            -1.0,
            math.inf,
        )
        finished = finished and done
        if stores.marks[ROOM]:
            stores = make_room(state.queues, stores)
            stores = receive(state, stores, vm, begin)
        elif machine.processors > 1 and place < machine.end - machine.first:
            begin, left, stores = _run_beside(
                state, stores, histogram, vm, place, span, begin, left, ready, grant
            )
            place += 1
            finished = False
        if end >= 0.0:
            stores = _run_slice(state, stores, histogram, ready, vm, place, rest, begin, end)
            begin = end
            place += 1
            finished = False
    return begin, left, finished, stores


@inlined
def _run_alone(
    state: RunState,
    stores: Stores,
    histogram: Floats,
    ready: Marks,
    vm: int,
    place: int,
    instructions: float,
    times: tuple[float, float, float],
) -> Stores:
    """Run one vertex from a time to another, with what was sent to it up to a third."""
    machine = state.machines[vm]
    vertex = state.vertices[state.placement[machine.first + place]]
    begin, end, sent = times
    if vertex.kind == BATCH:
        run_batch(state, stores, vertex, vm, instructions, begin, end, sent)
    else:
        if vertex.kind == WINDOWED:
            stores = close_windows(state, stores, vertex, begin, end)
        grant = Grant(True, False, instructions, 0.0)
        run_vertices(
            state,
            stores,
            histogram,
            ready,
            grant,
            end < 0.0,
            vm,
            place,
            (begin, end),
            begin,
            0.0,
            end,
            sent,
        )
    if stores.marks[ROOM]:
        stores = make_room(state.queues, stores)
    return stores


@compiled
def _run_slice(
    state: RunState,
    stores: Stores,
    histogram: Floats,
    ready: Marks,
    vm: int,
    place: int,
    instructions: float,
    begin: float,
    end: float,
) -> Stores:
    """Run a batch or a vertex whose window is due, or in parts because sets arrive meanwhile."""
    machine = state.machines[vm]
    while True:
        until = end
        part = instructions
        if machine.inbox >= 0 and begin < stores.flights[machine.inbox].time < end:
            until = stores.flights[machine.inbox].time
            part = instructions * (until - begin) / (end - begin)
        stores = _run_alone(
            state, stores, histogram, ready, vm, place, part, (begin, until, math.inf)
        )
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
    vm: int,
    place: int,
    span: tuple[float, float],
    begin: float,
    left: float,
    ready: Marks,
    grant: Grant,
) -> tuple[float, float, Stores]:
    """Run a batch or a vertex whose window is due, beside others.

    Returns the time by work, and what is left.
    """
    machine = state.machines[vm]
    vertex = state.vertices[state.placement[machine.first + place]]
    start, most, speed, alone = turn_of(
        state, stores.sets, vertex, machine, begin, span[0], span[1]
    )
    given = 0.0
    if grant.everyone or ready[place]:
        given = granted_to(grant, vertex.cost)
    if machine.dynamic:
        _, needed = needs(state, stores.sets, vertex, start, start)
        given = min(min(given, left), min(needed, most))
    left -= given
    given = max(0.0, min(given, most))
    begin += given / machine.speed
    alone = min(given, alone)
    seconds = alone / (machine.speed / machine.processors) + (given - alone) / speed
    end = max(begin, start + seconds)
    times = (start, end, start)
    stores = _run_alone(state, stores, histogram, ready, vm, place, given, times)
    vertex.free = end
    stores = receive(state, stores, vm, begin)
    return begin, left, stores


@compiled_without_arrays
def _clear(state: RunState, sets: Floats, number: int) -> None:
    """Drop all that a vertex holds, and tell its predecessors that there is room."""
    vertex = state.vertices[number]
    waiting = 0.0
    for place in range(vertex.first_queue, vertex.end_queue):
        queue = state.queues[place]
        events, _, _, _ = take_from(queue, sets, 0.0, True, 0)
        waiting += events
    if vertex.kind == WINDOWED:
        waiting = state.windows[vertex.detail].uncounted_events + waiting
        _empty_window(state, number)
    elif vertex.kind == BATCH:
        batch = state.batches[vertex.detail]
        waiting = batch.events + waiting
        batch.events, batch.owed = 0.0, 0.0
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
