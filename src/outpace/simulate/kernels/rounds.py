"""What a round of the scheduling gives to each vertex (CEPSim paper, 5.1), and what it records."""

from __future__ import annotations

import math

from outpace.compiler.kernel import compiled_without_arrays
from outpace.simulate.kernels.records import Floats, History, Marks, RunState
from outpace.simulate.kernels.steps import CONSUMER, needs, nothing_of, open_events, turn_of


@compiled_without_arrays
def find_ready(
    state: RunState, sets: Floats, vm: int, begin: float, tick: tuple[float, float], ready: Marks
) -> tuple[int, float]:
    """Mark the vertices that have something to do; return their number and costs of an event."""
    placement, holds, machine = state.placement, state.holds, state.machines[vm]
    found, cost = 0, 0.0
    for place in range(machine.end - machine.first):
        number = placement[machine.first + place]
        ready[place] = 0
        if not holds[number]:
            continue
        vertex = state.vertices[number]
        if machine.processors == 1:
            is_ready, _ = needs(state, sets, vertex, begin, math.inf)
        else:
            start, most, _, _ = turn_of(state, sets, vertex, machine, begin, tick[0], tick[1])
            is_ready, _ = needs(state, sets, vertex, start, start)
            is_ready = is_ready and most > nothing_of(machine, tick)
        if is_ready:
            ready[place] = 1
            found += 1
            cost += vertex.cost
    return found, cost


@compiled_without_arrays
def forget_warm_up(
    state: RunState, histogram: Floats, machines: tuple[int, int], vertices: tuple[int, int]
) -> None:
    """Begin to count anew what the results count; the history goes on."""
    for vm in range(machines[0], machines[1]):
        state.machines[vm].used = 0.0
    for number in range(vertices[0], vertices[1]):
        vertex = state.vertices[number]
        vertex.processed = 0.0
        vertex.dropped = 0.0
        vertex.done, vertex.delay, vertex.setup = 0.0, 0.0, 0.0
        if vertex.kind == CONSUMER:
            consumer = state.consumers[vertex.detail]
            consumer.events, consumer.latency = 0.0, 0.0
            first = consumer.first_total
            state.consumed[first : first + vertex.width] = 0.0
            histogram[consumer.place] = 0.0


@compiled_without_arrays
def write_history(
    state: RunState,
    sets: Floats,
    history: History,
    sample: int,
    machines: tuple[int, int],
    vertices: tuple[int, int],
) -> None:
    """Write a step of the history, and begin the next one."""
    for vm in range(machines[0], machines[1]):
        machine = state.machines[vm]
        history.vm_instructions[sample, machine.number] = machine.sample_used
        machine.sample_used = 0.0
    for number in range(vertices[0], vertices[1]):
        vertex = state.vertices[number]
        at = vertex.number
        waiting = 0.0
        for queue in range(vertex.first_queue, vertex.end_queue):
            waiting += open_events(state.queues[queue], sets, math.inf)
        kept = 0.0
        for place in range(vertex.first_out, vertex.end_out):
            out = state.queues[state.outs[place]]
            if open_events(out, sets, math.inf) < out.cardinality:
                kept += out.cardinality - out.bound
        waiting += kept
        # What is 0 is there already, and pages that are never written take no memory.
        if waiting:
            history.vertex_queue[sample, at] = waiting
        if vertex.sample_processed:
            history.vertex_processed[sample, at] = vertex.sample_processed
        if vertex.sample_dropped:
            history.vertex_dropped[sample, at] = vertex.sample_dropped
        vertex.sample_processed, vertex.sample_dropped = 0.0, 0.0
        if vertex.kind == CONSUMER:
            consumer = state.consumers[vertex.detail]
            history.consumer_events[sample, consumer.place] = consumer.sample_events
            history.consumer_delay[sample, consumer.place] = consumer.sample_delay
            history.consumer_totals[sample, consumer.place] = consumer.sample_totals
            consumer.sample_events, consumer.sample_delay, consumer.sample_totals = 0.0, 0.0, 0.0
