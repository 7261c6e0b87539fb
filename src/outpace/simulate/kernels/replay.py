"""Ticks that have traces, with their times: in each lane one tick, all lanes at once.

Every number is computed by the same operations as in a tick that is run, so that results are equal
to the last bit; what is added up over ticks is added up tick by tick.
"""

from __future__ import annotations

from outpace.compiler.kernel import compiled_without_arrays, inlined
from outpace.simulate.kernels.records import Floats, History, RunState, Settings
from outpace.simulate.kernels.rounds import forget_warm_up, write_history
from outpace.simulate.kernels.steps import consume, latency_bin
from outpace.simulate.kernels.traces import (
    KEPT,
    LANES,
    LOST,
    OUTCOMES,
    TURNS,
    WORKS,
    Traces,
    find_trace,
)
from outpace.simulate.metrics import BIN_GROWTH, LEAST_LATENCY

#: So close to its border, in proportion, a latency may be in the next bin.
_BORDER = 1e-9


@compiled_without_arrays
def replay_ticks(
    state: RunState,
    history: History,
    settings: Settings,
    traces: Traces,
    machines: tuple[int, int],
    vertices: tuple[int, int],
    ticks: tuple[int, int],
) -> int:
    """Replay ticks from the first on, as many as have traces and there are lanes.

    Returns the tick behind them.
    """
    first, count = ticks[0], 0
    while count < LANES and first + count < ticks[1]:
        number = find_trace(state, traces, first + count)
        if number < 0 or traces.counts[number, LOST]:
            break
        traces.plan[count] = number
        count += 1
    for number in range(KEPT):
        needed = False
        for lane in range(count):
            needed = needed or traces.plan[lane] == number
        if needed:
            _replay(settings, traces, number, first)
    for lane in range(count):
        tick = first + lane
        if tick == settings.warm_up_ticks:
            forget_warm_up(state, history.histogram, machines, vertices)
        _record(state, history.histogram, traces, traces.plan[lane], lane, machines[0])
        if (tick + 1) % settings.ticks_per_sample == 0 or tick + 1 == settings.ticks:
            sample = tick // settings.ticks_per_sample
            write_history(state, history, sample, machines, vertices)
    return first + count


@compiled_without_arrays
def _replay(settings: Settings, traces: Traces, number: int, first: int) -> None:
    """Give a trace the times of one tick in each lane, and note the latencies of its outcomes."""
    begins, ages, latencies = traces.begins, traces.ages, traces.latencies
    for lane in range(LANES):
        begins[lane] = (first + lane) * settings.tick
        ages[lane] = begins[lane]
        ages[LANES + lane] = 0.0
    first_outcome = number * traces.outcomes.shape[1]
    for place in range(traces.counts[number, TURNS]):
        turn = traces.turns[number, place]
        for position in range(turn.first_mix, turn.end_mix):
            mix = traces.mixes[number, position]
            left, right = 2 * LANES * mix.left, 2 * LANES * mix.right
            mixed = 2 * LANES * mix.target
            weight = mix.left_weight + mix.right_weight
            for lane in range(2 * LANES):
                total = mix.left_weight * ages[left + lane] + mix.right_weight * ages[right + lane]
                ages[mixed + lane] = total / weight
        seconds = turn.seconds
        source = 2 * LANES * turn.source
        if turn.source < 0:
            for lane in range(LANES):
                begins[lane] += seconds
        elif turn.outcome < 0:
            target = 2 * LANES * turn.target
            for lane in range(LANES):
                end = begins[lane] + seconds
                begins[lane] = end
                ages[target + LANES + lane] = ages[source + LANES + lane] + (
                    end - ages[source + lane]
                )
                ages[target + lane] = end
        else:
            target = LANES * (first_outcome + turn.outcome)
            for lane in range(LANES):
                end = begins[lane] + seconds
                begins[lane] = end
                latencies[target + lane] = ages[source + LANES + lane] + (end - ages[source + lane])


@compiled_without_arrays
def _record(
    state: RunState, histogram: Floats, traces: Traces, number: int, lane: int, vm: int
) -> None:
    """Add a tick to what is recorded."""
    vertices, machine = state.vertices, state.machines[vm]
    used, sample_used = machine.used, machine.sample_used
    for place in range(traces.counts[number, WORKS]):
        work = traces.works[number, place]
        vertex = vertices[work.vertex]
        vertex.processed = vertex.processed + work.events
        vertex.sample_processed = vertex.sample_processed + work.events
        used += work.used
        sample_used += work.used
    machine.used, machine.sample_used = used, sample_used
    first_outcome = number * traces.outcomes.shape[1]
    for place in range(traces.counts[number, OUTCOMES]):
        outcome = traces.outcomes[number, place]
        latency = traces.latencies[LANES * (first_outcome + place) + lane]
        if not outcome.low <= latency < outcome.high:
            outcome.bin = latency_bin(latency)
            outcome.low, outcome.high = _inside(outcome.bin)
        vertex = vertices[outcome.vertex]
        consume(
            state,
            histogram,
            traces.totals,
            vertex,
            outcome.events,
            latency,
            outcome.first_total,
            outcome.bin,
        )


@inlined
def _inside(number: int) -> tuple[float, float]:
    """Return between which latencies all are in a bin, however they are rounded."""
    low = 0.0
    if number:
        low = LEAST_LATENCY * BIN_GROWTH ** (number - 1) * (1.0 + _BORDER)
    return low, LEAST_LATENCY * BIN_GROWTH**number * (1.0 - _BORDER)
