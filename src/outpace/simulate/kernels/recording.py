"""What the loops record beside their state: the history, step by step, and the warm-up's end."""

from __future__ import annotations

from outpace.compiler.inlined import compiled_without_arrays
from outpace.simulate.kernels.records import Floats, History, RunState
from outpace.simulate.kernels.steps import CONSUMER


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
        if vertex.kind == CONSUMER:
            consumer = state.consumers[vertex.detail]
            consumer.events, consumer.latency = 0.0, 0.0
            first = consumer.first_total
            state.consumed[first : first + vertex.width] = 0.0
            histogram[consumer.place] = 0.0


@compiled_without_arrays
def write_history(
    state: RunState,
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
            waiting += state.queues[queue].cardinality
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
