"""What happens in a tick that begins and ends with nothing waiting, whatever the time is.

How many events a vertex takes, processes and sends depends on the new events of the tick and on
what waits, and not on the time. So a tick that begins with nothing waiting goes as every other one
with the same new events does: vertices take turns of the same length and process the same events;
only timestamps and latencies differ. A trace is such a tick without times, and `replay` gives
it the times of many ticks at once.

A trace is made by running the tick with event sets that have, in place of a timestamp, the number
of an age: the timestamp and the latency that are not known yet. Each turn makes a new age from the
one that it takes; sets that are summed have theirs mixed first. An age that no set has any more is
used again. A trace longer than four turns for each vertex is given up. At most eight are kept: all
together take up to 3 KB for each vertex and 10 KB for each consumer, and ages 2 KB for each vertex;
what is not used of this takes no memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from outpace.compiler.kernel import compiled, compiled_without_arrays, inlined
from outpace.simulate.kernels.records import (
    Floats,
    Integers,
    Records,
    RunState,
    Settings,
    Stores,
    VertexKind,
)
from outpace.simulate.kernels.rings import enqueue, take_front
from outpace.simulate.kernels.rounds import allocate, find_ready
from outpace.simulate.kernels.steps import CONSUMER, WINDOWED, possible_events, send
from outpace.simulate.strategies import LEFTOVER, ROUNDS
from outpace.simulate.vertex_state import NOTHING

_PRODUCER = int(VertexKind.PRODUCER)

#: Ticks that are replayed at once.
LANES = 32

#: Traces that are kept; the oldest makes room.
KEPT = 8

#: Turns of a trace for each vertex.
_TURNS = 4

#: A vertex runs so long, takes one age, and makes another one or has an outcome; negative for none.
TURN = np.dtype(
    [
        ("seconds", "f8"),
        ("source", "i4"),
        ("target", "i4"),
        ("first_mix", "i4"),
        ("end_mix", "i4"),
        ("outcome", "i8"),
    ]
)

#: What a turn adds to the results of its vertex and of the machine.
WORK = np.dtype([("events", "f8"), ("used", "f8"), ("vertex", "i8")])

#: The average of two ages by weight.
MIX = np.dtype(
    [
        ("left_weight", "f8"),
        ("right_weight", "f8"),
        ("left", "i4"),
        ("right", "i4"),
        ("target", "i8"),
    ]
)

#: A set that is consumed. Latencies from `low` up to `high` are surely in this bin.
OUTCOME = np.dtype(
    [
        ("events", "f8"),
        ("low", "f8"),
        ("high", "f8"),
        ("bin", "i8"),
        ("vertex", "i8"),
        ("first_total", "i8"),
    ]
)

#: Places of `Traces.counts`; the last one is 1 for a trace that was too long.
TURNS, WORKS, MIXES, OUTCOMES, TOTALS, LOST = range(6)

#: Places of `Traces.marks`: how many traces there are, which is made next, ages ever used, and ages
#: that are free again.
KNOWN, NEXT, AGES, FREE = range(4)


class Traces(NamedTuple):
    """The traces of a machine, and room for replaying them.

    Parameters
    ----------
    rows
        The rows of new events that the machine's producers have.
    new_events
        Of each trace, those of each of the rows. [KEPT, rows]
    counts
        How much of the following each trace has. [KEPT, 6]
    uses, free
        How many sets have an age, and ages that none has.
    ages
        Timestamps and then latencies, in all lanes, of each age.
    begins
        When the next turn begins, in each lane.
    latencies
        Of each trace, those of each outcome in all lanes.
    plan
        The trace of each lane.
    """

    rows: Integers
    new_events: Integers
    counts: Integers
    turns: Records
    works: Records
    mixes: Records
    outcomes: Records
    totals: Floats
    uses: Integers
    free: Integers
    marks: Integers
    ages: Floats
    begins: Floats
    latencies: Floats
    plan: Integers


@compiled
def make_traces(state: RunState, vm: int, alone: bool) -> Traces:
    """Return room for the traces of a machine; a machine that is not alone has none."""
    machine = state.machines[vm]
    flags = np.zeros(len(state.new_events), np.uint8)
    rows = np.empty(len(state.new_events), np.int64)
    count = 0
    for place in range(machine.first_producer, machine.end_producer):
        row = state.vertices[state.producers[place]].detail
        if not flags[row]:
            flags[row] = 1
            rows[count] = row
            count += 1
    turns = consumed = totals = 0
    if alone:
        turns = _TURNS * (machine.end - machine.first)
        for place in range(machine.first, machine.end):
            vertex = state.vertices[state.placement[place]]
            if vertex.kind == CONSUMER:
                consumed += _TURNS
                totals += _TURNS * vertex.width
    return Traces(
        rows[:count],
        np.zeros((KEPT, count), np.int64),
        np.zeros((KEPT, LOST + 1), np.int64),
        np.empty((KEPT, turns), TURN),
        np.empty((KEPT, turns), WORK),
        np.empty((KEPT, turns), MIX),
        np.empty((KEPT, consumed), OUTCOME),
        np.empty(KEPT * totals),
        np.empty(turns + 2, np.int64),
        np.empty(turns + 2, np.int64),
        np.zeros(FREE + 1, np.int64),
        np.empty(2 * LANES * (turns + 2)),
        np.empty(LANES),
        np.empty(KEPT * consumed * LANES),
        np.zeros(LANES, np.int64),
    )


@compiled_without_arrays
def is_idle(state: RunState, vm: int) -> bool:
    """Return whether nothing waits on a machine that works, and no window could close."""
    vertices, queues, machine = state.vertices, state.queues, state.machines[vm]
    if not machine.up or machine.first == machine.end:
        return False
    for place in range(machine.first, machine.end):
        vertex = vertices[state.placement[place]]
        if vertex.kind == WINDOWED:
            return False
        for number in range(vertex.first_queue, vertex.end_queue):
            queue = queues[number]
            if queue.count or (vertex.kind != _PRODUCER and queue.limit < vertex.bound):
                return False
    return True


@compiled_without_arrays
def find_trace(state: RunState, traces: Traces, tick: int) -> int:
    """Return which trace has the new events of a tick; negative for none."""
    for number in range(traces.marks[KNOWN]):
        alike = True
        for position in range(len(traces.rows)):
            events = state.new_events[traces.rows[position], tick]
            if traces.new_events[number, position] != events:
                alike = False
                break
        if alike:
            return number
    return -1


@compiled_without_arrays
def is_worth_tracing(state: RunState, traces: Traces, tick: int, end: int) -> bool:
    """Return whether a tick soon after this one, and before the end, has the same new events.

    What was traced before and given up is not worth it again.
    """
    if find_trace(state, traces, tick) >= 0:
        return False
    for later in range(tick + 1, min(tick + 1 + LANES, end)):
        alike = True
        for position in range(len(traces.rows)):
            row = traces.rows[position]
            if state.new_events[row, tick] != state.new_events[row, later]:
                alike = False
                break
        if alike:
            return True
    return False


@compiled_without_arrays
def trace_tick(
    state: RunState,
    stores: Stores,
    settings: Settings,
    traces: Traces,
    vm: int,
    tick: int,
    granted: Floats,
) -> None:
    """Trace a tick that has just run, from nothing waiting to nothing waiting.

    As it has run before, all rings have the room that it needs.
    """
    vertices, queues, machine = state.vertices, state.queues, state.machines[vm]
    number = _begin_trace(state, traces, tick)
    for place in range(machine.first_producer, machine.end_producer):
        vertex = vertices[state.producers[place]]
        events = float(state.new_events[vertex.detail, tick])
        if events:
            new = (events, 0.0, 0.0)
            first = vertex.first_queue
            at = enqueue(queues[first], first, state.holds, stores.sets, stores.marks, new)
            stores.sets[at] = events
            traces.uses[0] += 1
    instructions = machine.speed * settings.tick
    left = instructions
    count = machine.end - machine.first
    granted[:count] = 1.0
    for _ in range(ROUNDS):
        allocate(state, vm, settings.weighted, left, granted)
        for place in range(count):
            own = state.placement[machine.first + place]
            vertex = vertices[own]
            waiting, possible = possible_events(queues, state.outs, vertex)
            given = granted[place]
            if settings.dynamic:
                if (vertex.cost and not given) or not possible:
                    continue
                given = min(given, possible * vertex.cost)
            if vertex.cost:
                possible = min(possible, given / vertex.cost)
            seconds = given / machine.speed
            _trace_turn(state, stores, traces, number, own, seconds, possible, waiting)
            left -= given
        if not settings.dynamic or left <= LEFTOVER * instructions:
            break
        if not find_ready(state, vm, 0.0, granted):
            break


@inlined
def _begin_trace(state: RunState, traces: Traces, tick: int) -> int:
    """Make room for a trace, and return its number; all new events have the same age."""
    marks, counts = traces.marks, traces.counts
    number = marks[NEXT]
    marks[NEXT] = (number + 1) % KEPT
    marks[KNOWN] = min(marks[KNOWN] + 1, KEPT)
    for position in range(len(traces.rows)):
        traces.new_events[number, position] = state.new_events[traces.rows[position], tick]
    for place in range(LOST + 1):
        counts[number, place] = 0
    marks[AGES], marks[FREE] = 1, 0
    traces.uses[0] = 1
    return int(number)


@compiled_without_arrays
def _trace_turn(
    state: RunState,
    stores: Stores,
    traces: Traces,
    number: int,
    own: int,
    seconds: float,
    possible: float,
    waiting: float,
) -> None:
    """Let a vertex take its turn, and note it."""
    queues, sets, counts, uses = state.queues, stores.sets, traces.counts, traces.uses
    vertex = state.vertices[own]
    first_mix = counts[number, MIXES]
    source = target = outcome = -1
    if possible > NOTHING:
        everything = waiting - possible <= NOTHING * waiting
        events, source = _take(state, sets, traces, number, vertex, possible, waiting, everything)
        if vertex.kind == CONSUMER:
            outcome = _add_outcome(sets, traces, number, own, vertex.width, events)
        else:
            target = _new_age(traces, number)
            uses[target] += send(state, stores, vertex, (events, float(target), 0.0), 0, 0.0)
            _release(traces, target)
        _release(traces, source)
        _add_work(traces, number, own, events, events * vertex.cost)
    for place in range(vertex.first_queue, vertex.end_queue):
        room = vertex.bound - queues[place].cardinality
        queues[place].limit = room if room > 0.0 else 0.0
    at = counts[number, TURNS]
    if at == traces.turns.shape[1]:
        counts[number, LOST] = 1
    else:
        turn = traces.turns[number, at]
        turn.seconds, turn.source, turn.target, turn.outcome = seconds, source, target, outcome
        turn.first_mix, turn.end_mix = first_mix, counts[number, MIXES]
        counts[number, TURNS] = at + 1


@compiled_without_arrays
def _take(
    state: RunState,
    sets: Floats,
    traces: Traces,
    number: int,
    vertex: Any,
    possible: float,
    waiting: float,
    everything: bool,
) -> tuple[float, int]:
    """Dequeue from all queues in proportion; the totals of the sum are then those at hand."""
    events = 0.0
    age = -1
    width = vertex.width
    for position in range(width):
        sets[position] = 0.0
    for place in range(vertex.first_queue, vertex.end_queue):
        queue = state.queues[place]
        wanted = possible * queue.cardinality / waiting
        taken, its_age = _take_from(queue, sets, traces, number, wanted, everything, width)
        if not taken:
            continue
        for position in range(queue.width):
            sets[state.places[queue.places + position]] += sets[width + position]
        if events:
            age = _mix(traces, number, events, age, taken, its_age)
            events += taken
        else:
            events, age = taken, its_age
    return events, age


@compiled_without_arrays
def _take_from(
    queue: Any,
    sets: Floats,
    traces: Traces,
    number: int,
    count: float,
    everything: bool,
    totals: int,
) -> tuple[float, int]:
    """Dequeue so many events, or all; return how many they are, and their age."""
    cardinality = 0.0
    age = -1
    for position in range(queue.width):
        sets[totals + position] = 0.0
    while queue.count and (everything or count > 0.0):
        before = queue.count
        taken, mark, _ = take_front(queue, sets, count, everything, totals)
        its_age = int(mark)
        if queue.count == before:
            # The rest of the set has this age too.
            traces.uses[its_age] += 1
        if cardinality:
            age = _mix(traces, number, cardinality, age, taken, its_age)
            cardinality += taken
        else:
            cardinality, age = taken, its_age
        count -= taken
    if not queue.count:
        queue.cardinality = 0.0
    return cardinality, age


@compiled_without_arrays
def _mix(
    traces: Traces, number: int, left_weight: float, left: int, right_weight: float, right: int
) -> int:
    """Note that two ages are mixed, and return the new one."""
    target = _new_age(traces, number)
    at = traces.counts[number, MIXES]
    if at == traces.mixes.shape[1]:
        traces.counts[number, LOST] = 1
    else:
        mix = traces.mixes[number, at]
        mix.left_weight, mix.right_weight = left_weight, right_weight
        mix.left, mix.right, mix.target = left, right, target
        traces.counts[number, MIXES] = at + 1
    _release(traces, left)
    _release(traces, right)
    return target


@compiled_without_arrays
def _new_age(traces: Traces, number: int) -> int:
    """Return an age that no set has; it is used once, by who asks."""
    uses, free, marks = traces.uses, traces.free, traces.marks
    if marks[FREE]:
        marks[FREE] -= 1
        age = free[marks[FREE]]
    elif marks[AGES] < len(uses):
        age = marks[AGES]
        marks[AGES] += 1
    else:
        traces.counts[number, LOST] = 1
        uses[0] += 1
        return 0
    uses[age] = 1
    return int(age)


@inlined
def _release(traces: Traces, age: int) -> None:
    """Use an age once less."""
    traces.uses[age] -= 1
    if not traces.uses[age]:
        traces.free[traces.marks[FREE]] = age
        traces.marks[FREE] += 1


@inlined
def _add_work(traces: Traces, number: int, own: int, events: float, used: float) -> None:
    """Note what a vertex has processed."""
    at = traces.counts[number, WORKS]
    if at == traces.works.shape[1]:
        traces.counts[number, LOST] = 1
    else:
        work = traces.works[number, at]
        work.events, work.used, work.vertex = events, used, own
        traces.counts[number, WORKS] = at + 1


@inlined
def _add_outcome(
    sets: Floats, traces: Traces, number: int, own: int, width: int, events: float
) -> int:
    """Note a set that is consumed; its totals are those at hand."""
    counts = traces.counts
    at, first = counts[number, OUTCOMES], counts[number, TOTALS]
    room = len(traces.totals) // KEPT
    if at == traces.outcomes.shape[1] or first + width > room:
        counts[number, LOST] = 1
    else:
        outcome = traces.outcomes[number, at]
        outcome.events, outcome.vertex = events, own
        outcome.low, outcome.high, outcome.bin = 0.0, 0.0, 0
        outcome.first_total = number * room + first
        for position in range(width):
            traces.totals[number * room + first + position] = sets[position]
        counts[number, OUTCOMES] = at + 1
        counts[number, TOTALS] = first + width
    return int(at)
