"""What a round of the scheduling gives to each vertex (section 5.1 of the CEPSim paper)."""

from __future__ import annotations

from outpace.compiler.inlined import compiled_without_arrays
from outpace.simulate.kernels.records import Floats, RunState
from outpace.simulate.kernels.steps import is_due, possible_events


@compiled_without_arrays
def allocate(state: RunState, vm: int, weighted: bool, left: float, granted: Floats) -> None:
    """Divide what is left among the vertices that are marked with 1; all others get nothing."""
    vertices, placement, machine = state.vertices, state.placement, state.machines[vm]
    count = machine.end - machine.first
    total = 0.0
    for place in range(count):
        if weighted and granted[place]:
            granted[place] = vertices[placement[machine.first + place]].cost
        total += granted[place]
    if weighted:
        for place in range(count):
            granted[place] = left * granted[place] / total if total else 0.0
    else:
        share = left / total
        for place in range(count):
            granted[place] = share if granted[place] else 0.0


@compiled_without_arrays
def find_ready(state: RunState, vm: int, begin: float, granted: Floats) -> bool:
    """Mark the vertices that have something to do with 1; return whether any have."""
    vertices, queues, outs, windows = state.vertices, state.queues, state.outs, state.windows
    placement, holds, machine = state.placement, state.holds, state.machines[vm]
    found = False
    for place in range(machine.end - machine.first):
        number = placement[machine.first + place]
        granted[place] = 0.0
        if not holds[number]:
            continue
        vertex = vertices[number]
        _, possible = possible_events(queues, outs, vertex)
        if possible or is_due(windows, vertex, begin):
            granted[place] = 1.0
            found = True
    return found
