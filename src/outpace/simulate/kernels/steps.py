"""A vertex runs: Algorithms 1 to 3 of the CEPSim paper, on records.

The order of operations is that of the twin (`vertex_state` and `twin`), so that results are equal
to the last bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from outpace.compiler.kernel import compiled, compiled_without_arrays, inlined
from outpace.simulate.kernels.flights import receive_first, transfer
from outpace.simulate.kernels.records import (
    ROOM,
    Combining,
    Floats,
    Integers,
    Marks,
    Records,
    RunState,
    Stores,
    VertexKind,
)
from outpace.simulate.kernels.rings import (
    HEADER,
    average,
    enqueue,
    make_room,
    take_from,
    take_front,
)
from outpace.simulate.layout import SAME_TIME
from outpace.simulate.metrics import BIN_ENDS, BIN_GROWTH, BINS, LEAST_LATENCY
from outpace.simulate.strategies import LEFTOVER
from outpace.simulate.vertex_state import NOTHING

WINDOWED, CONSUMER = int(VertexKind.WINDOWED), int(VertexKind.CONSUMER)
BATCH = int(VertexKind.BATCH)
_CONSTANT, _SHARE = int(Combining.CONSTANT), int(Combining.SHARE)
_LOG_GROWTH = math.log(BIN_GROWTH)
_BIN_ENDS = np.array(BIN_ENDS)


class Grant(NamedTuple):
    """What a round gives to those that are marked, or to all: `amount`, or a part of it by cost."""

    everyone: bool
    by_cost: bool
    amount: float
    total: float


@inlined
def granted_to(grant: Grant, cost: float) -> float:
    """Return how many instructions a vertex is granted that is to get some."""
    granted = grant.amount
    if grant.by_cost:
        granted = grant.amount * cost / grant.total if grant.total else 0.0
    return granted


@inlined
def open_events(queue: Any, sets: Floats, now: float) -> float:
    """Return how many events of a queue are within its bound, without those sent after a time."""
    events: float = queue.cardinality
    if now < math.inf and queue.count:
        size = HEADER + queue.width
        place = queue.count - 1
        at = queue.base + ((queue.head + place) & queue.mask) * size
        while place >= 0 and sets[at + 1] > now:
            events -= sets[at]
            place -= 1
            at = queue.base + ((queue.head + place) & queue.mask) * size
        if sets[queue.base + queue.head * size + 1] > now:
            events = 0.0
    # Without a bound there is nothing to compute.
    if events > queue.bound and events - queue.bound > NOTHING * queue.bound:
        events = queue.bound
    return events


@inlined
def waiting_events(queues: Records, sets: Floats, vertex: Any, now: float) -> float:
    """Return how many events wait before a vertex that were sent by a time."""
    waiting = open_events(queues[vertex.first_queue], sets, now)
    for number in range(vertex.first_queue + 1, vertex.end_queue):
        waiting += open_events(queues[number], sets, now)
    return waiting


@inlined
def room_limit(queues: Records, outs: Integers, vertex: Any) -> float:
    """Return how many events a vertex may process, given the room of its successors."""
    limit = math.inf
    for place in range(vertex.first_out, vertex.end_out):
        queue = queues[outs[place]]
        if queue.bound < math.inf and queue.selectivity and queue.runs:
            room = queue.bound - (queue.cardinality + queue.travelling)
            if vertex.kind != WINDOWED and vertex.kind != BATCH:
                limit = min(limit, max(0.0, room) / queue.selectivity)
            elif -room > NOTHING * queue.bound:
                limit = 0.0
    return limit


@inlined
def nothing_of(machine: Any, tick: tuple[float, float]) -> float:
    """Return how many instructions of a processor are not worth a turn."""
    return float(LEFTOVER * (machine.speed / machine.processors * (tick[1] - tick[0])))


@inlined
def is_due(windows: Records, vertex: Any, begin: float) -> bool:
    """Return whether a vertex has a window of which an advance period has ended."""
    due = False
    if vertex.kind == WINDOWED:
        window = windows[vertex.detail]
        due = begin >= window.origin + (window.periods + 1) * window.period - SAME_TIME
    return due


@compiled_without_arrays
def run_vertices(
    state: RunState,
    stores: Stores,
    histogram: Floats,
    ready: Marks,
    grant: Grant,
    dynamic: bool,
    vm: int,
    place: int,
    span: tuple[float, float],
    begin: float,
    left: float,
    until: float,
    sent: float,
) -> tuple[int, float, float, bool, float, float]:
    """Run vertices of a machine, from a place on, one slice of time after the other.

    Stops before a batch and a vertex whose window is due, and behind what fills a ring: arrays
    that change inside of the loop would cost more than all that it does. If `until` is a time, from
    0 on, runs only this vertex, up to then. What was sent to it later than `sent` has not arrived.
    Returns the place, the time, the instructions that are left, and whether all that these vertices
    had is surely done: what they sent here went to vertices behind them. And of a slice that has
    begun, the instructions that are left and when it ends, which is negative for none; on machines
    of several processors vertices run beside each other, and none has begun.
    """
    alone = until >= 0.0
    done = True
    vertices, queues, outs, places = state.vertices, state.queues, state.outs, state.places
    windows, placement, holds = state.windows, state.placement, state.holds
    sets, flights, _, marks = stores
    machine = state.machines[vm]
    speed, count = machine.speed, machine.end - machine.first
    beside = machine.processors > 1 and not alone
    worth = nothing_of(machine, span)
    arrival = flights[machine.inbox].time if machine.inbox >= 0 and not alone else math.inf
    rest, goal = 0.0, -1.0
    while place < count:
        number = placement[machine.first + place]
        begun = goal >= 0.0
        if dynamic and not begun and not holds[number]:
            place += 1
            continue
        vertex = vertices[number]
        given = rest
        if not begun:
            given = 0.0
            if grant.everyone or ready[place]:
                given = granted_to(grant, vertex.cost)
            if dynamic:
                given = min(given, left)
        start, most, rate = begin, math.inf, speed
        if beside:
            start, most, rate, _ = turn_of(state, sets, vertex, machine, begin, span[0], span[1])
            sent = start
        if vertex.kind == BATCH:
            is_ready = not dynamic
            if dynamic:
                is_ready, needed = batch_needs(state, sets, vertex, start, sent)
                is_ready = is_ready and most > worth and (not vertex.cost or given > 0.0)
                given = min(given, needed)
            if is_ready:
                if not beside:
                    rest, goal = given, begin + given / speed
                    left -= given
                break
            # It may become due before the round ends.
            done = False
            place += 1
            continue
        waiting = waiting_events(queues, sets, vertex, sent)
        limit = room_limit(queues, outs, vertex)
        possible = min(waiting, limit) if min(waiting, limit) > NOTHING else 0.0
        due = limit > 0.0 and is_due(windows, vertex, start)
        # A window may become due before the round ends.
        done = done and waiting - possible <= 0.0 and vertex.kind != WINDOWED
        needed = possible * vertex.cost
        if dynamic and not begun:
            nothing = not possible and not due
            if nothing or not most > worth or (vertex.cost and not given):
                done = done and waiting <= 0.0
                place += 1
                continue
            given = min(given, needed)
        end = until
        if beside:
            if due:
                break
            given = min(given, most) if dynamic else given
            left -= given
            given = max(0.0, min(given, most))
            begin += given / speed
            end = max(begin, start + given / rate)
        elif not alone:
            if not begun:
                rest, goal = given, begin + given / speed
                left -= given
            if due:
                break
            end = goal
            if begin < arrival < goal:
                end = arrival
                given = rest * (arrival - begin) / (goal - begin)
            rest -= given
        if vertex.cost and (given < needed or possible < waiting):
            done = False
            possible = min(possible, given / vertex.cost)
        if possible > NOTHING:
            everything = waiting - possible <= NOTHING * waiting
            if everything and is_more(queues, sets, vertex, sent):
                # The sender keeps some, or has not sent it yet.
                done = False
            elif everything and vertex.kind != WINDOWED:
                holds[number] = 0
            if vertex.kind == WINDOWED:
                events = _accumulate(
                    state,
                    sets,
                    vertex,
                    possible,
                    waiting,
                    everything,
                    sent,
                    end,
                )
            else:
                queue = queues[vertex.first_queue]
                if (
                    not holds[number]
                    and queue.count == 1
                    and vertex.end_queue - vertex.first_queue == 1
                ):
                    at = queue.base + queue.head * (HEADER + queue.width)
                    events = sets[at]
                    latency = sets[at + 2] + (end - sets[at + 1])
                    spread = sets[at + 3]
                    at += HEADER
                    queue.head = (queue.head + 1) & queue.mask
                    queue.count = 0
                    queue.cardinality = 0.0
                else:
                    events, timestamp, latency, spread = _take(
                        queues, places, sets, vertex, possible, waiting, everything, sent
                    )
                    latency += end - timestamp
                    at = 0
                if vertex.kind == CONSUMER:
                    consume(state, histogram, sets, vertex, (events, end, latency, spread), at)
                else:
                    send(
                        state,
                        stores,
                        vertex,
                        (events, end, latency, spread),
                        at,
                        end,
                    )
                vertex.delay = vertex.delay + events * latency
                vertex.done = vertex.done + events
            vertex.processed = vertex.processed + events
            vertex.sample_processed = vertex.sample_processed + events
            used = events * vertex.cost
            machine.used = machine.used + used
            machine.sample_used = machine.sample_used + used
        if beside:
            vertex.free = end
        else:
            begin = end
        if beside or alone or end == goal:
            goal = -1.0
            place += 1
        if arrival <= begin:
            # It may be for a vertex that has run.
            done = False
        while arrival <= begin and not marks[ROOM]:
            receive_first(state, stores, machine)
            arrival = flights[machine.inbox].time if machine.inbox >= 0 else math.inf
        if alone or marks[ROOM]:
            break
    return place, begin, left, done, rest, goal


@inlined
def is_more(queues: Records, sets: Floats, vertex: Any, sent: float) -> bool:
    """Return whether queues of a vertex have events that are not open to it."""
    more = False
    for number in range(vertex.first_queue, vertex.end_queue):
        queue = queues[number]
        more = more or open_events(queue, sets, sent) < queue.cardinality
    return more


@inlined
def part_of(
    queue: Any, sets: Floats, sent: float, possible: float, waiting: float, everything: bool
) -> tuple[float, bool]:
    """Return how many events of a queue are taken, and whether these are all that it has."""
    within = open_events(queue, sets, sent)
    wanted = within if everything else possible * within / waiting
    return wanted, everything and within == queue.cardinality


@inlined
def turn_of(
    state: RunState,
    sets: Floats,
    vertex: Any,
    machine: Any,
    now: float,
    begin: float,
    end: float,
) -> tuple[float, float, float, float]:
    """Return when a vertex can begin beside others, and what it can do then.

    And what it does in a second, and what it does alone before that, on one processor.
    """
    width = min(vertex.parallelism, machine.processors)
    start = max(vertex.free, now if width == machine.processors else begin)
    if vertex.kind == BATCH:
        due = state.batches[vertex.detail].events > 0.0
    else:
        due = room_limit(state.queues, state.outs, vertex) > 0.0
        due = due and is_due(state.windows, vertex, start)
    if not due:
        sent = math.inf
        for number in range(vertex.first_queue, vertex.end_queue):
            queue = state.queues[number]
            if queue.count:
                sent = min(sent, sets[queue.base + queue.head * (HEADER + queue.width) + 1])
        start = max(start, sent) if sent < math.inf else start
    speed = machine.speed / machine.processors
    seconds = end - start
    most, alone = width * speed * seconds, 0.0
    if vertex.kind == BATCH:
        batch = state.batches[vertex.detail]
        alone = batch.owed_setup if batch.events else batch.setup
        most = speed * seconds
        if alone < most:
            most = alone + width * speed * (seconds - alone / speed)
    return start, most, width * speed, alone


@inlined
def needs(
    state: RunState, sets: Floats, vertex: Any, begin: float, sent: float
) -> tuple[bool, float]:
    """Return whether a vertex has something to do, and the instructions for all of it."""
    if vertex.kind == BATCH:
        is_ready, needed = batch_needs(state, sets, vertex, begin, sent)
    else:
        limit = room_limit(state.queues, state.outs, vertex)
        possible = min(waiting_events(state.queues, sets, vertex, sent), limit)
        due = limit > 0.0 and is_due(state.windows, vertex, begin)
        needed = possible * vertex.cost if possible > NOTHING else 0.0
        is_ready = possible > NOTHING or due
    return is_ready, needed


@compiled_without_arrays
def batch_needs(
    state: RunState, sets: Floats, vertex: Any, begin: float, sent: float
) -> tuple[bool, float]:
    """Return whether a batch runs or could begin, and the instructions that it needs."""
    batch = state.batches[vertex.detail]
    has_room = room_limit(state.queues, state.outs, vertex) > 0.0
    if batch.events:
        return has_room, batch.owed
    if begin < batch.origin + batch.intervals * batch.interval - SAME_TIME:
        return False, 0.0
    events = _batch_events(state, sets, vertex, sent)
    return has_room and events > 0.0, batch.setup + events * batch.event


@inlined
def _batch_events(state: RunState, sets: Floats, vertex: Any, sent: float) -> float:
    """Return how many events the next batch of a vertex has."""
    waiting = waiting_events(state.queues, sets, vertex, sent)
    return min(waiting, state.batches[vertex.detail].most) if waiting > NOTHING else 0.0


@compiled_without_arrays
def run_batch(
    state: RunState,
    stores: Stores,
    vertex: Any,
    vm: int,
    instructions: float,
    begin: float,
    end: float,
    sent: float,
) -> None:
    """Begin a batch if one is due, work on it, and send it if all of it is done."""
    batch, machine = state.batches[vertex.detail], state.machines[vm]
    if not room_limit(state.queues, state.outs, vertex) > 0.0:
        return
    if not batch.events:
        is_ready, needed = batch_needs(state, stores.sets, vertex, begin, sent)
        if is_ready:
            if batch.interval:
                passed = (begin - batch.origin + SAME_TIME) / batch.interval
                batch.intervals = math.floor(passed) + 1
            batch.owed, batch.owed_setup = needed, batch.setup
            _take_batch(state, stores.sets, vertex, sent)
            vertex.processed = vertex.processed + batch.events
            vertex.sample_processed = vertex.sample_processed + batch.events
            vertex.setup = vertex.setup + batch.setup
    used = min(instructions, batch.owed)
    batch.owed = batch.owed - used
    batch.owed_setup = max(0.0, batch.owed_setup - used)
    machine.used = machine.used + used
    machine.sample_used = machine.sample_used + used
    if not batch.events or batch.owed > NOTHING * (batch.setup + batch.event):
        return
    for position in range(vertex.width):
        stores.sets[position] = state.uncounted[batch.first_total + position]
    latency = batch.latency + (end - batch.timestamp)
    vertex.delay = vertex.delay + batch.events * latency
    vertex.done = vertex.done + batch.events
    header = (batch.events, end, latency, batch.spread)
    batch.events, batch.owed = 0.0, 0.0
    send(state, stores, vertex, header, 0, end)


@compiled_without_arrays
def _take_batch(state: RunState, sets: Floats, vertex: Any, sent: float) -> None:
    """Take the events of the next batch, set by set, from all queues in proportion."""
    queues, places, uncounted = state.queues, state.places, state.uncounted
    batch = state.batches[vertex.detail]
    waiting = waiting_events(queues, sets, vertex, sent)
    possible = _batch_events(state, sets, vertex, sent)
    everything = waiting - possible <= NOTHING * waiting
    uncounted[batch.first_total : batch.first_total + vertex.width] = 0.0
    events = timestamp = latency = 0.0
    oldest, youngest = math.inf, -math.inf
    for number in range(vertex.first_queue, vertex.end_queue):
        queue = queues[number]
        wanted, all_of_it = part_of(queue, sets, sent, possible, waiting, everything)
        while queue.count and (all_of_it or wanted > 0.0):
            for position in range(queue.width):
                sets[position] = 0.0
            taken, its_timestamp, its_latency, its_spread = take_front(
                queue, sets, wanted, all_of_it, 0
            )
            wanted -= taken
            for position in range(queue.width):
                uncounted[batch.first_total + places[queue.places + position]] += sets[position]
            came = its_timestamp - its_latency
            oldest, youngest = min(oldest, came - its_spread), max(youngest, came + its_spread)
            if events:
                timestamp = average(events, timestamp, taken, its_timestamp)
                latency = average(events, latency, taken, its_latency)
                events += taken
            else:
                events, timestamp, latency = taken, its_timestamp, its_latency
        if not queue.count:
            queue.cardinality = 0.0
    batch.events, batch.timestamp, batch.latency = events, timestamp, latency
    batch.spread = max(0.0, (youngest - oldest) / 2)


@inlined
def send(
    state: RunState,
    stores: Stores,
    vertex: Any,
    header: tuple[float, float, float, float],
    totals: int,
    now: float,
) -> None:
    """Send a set to all successors, as their edges let it through."""
    queues, outs, sets, marks = state.queues, state.outs, stores.sets, stores.marks
    for place in range(vertex.first_out, vertex.end_out):
        number = outs[place]
        queue = queues[number]
        selected = header[0] * queue.selectivity
        if not selected or not queue.runs:
            continue
        chosen = (selected, header[1], header[2], header[3])
        if queue.link < 0:
            at = enqueue(queue, number, state.holds, sets, marks, chosen)
            for position in range(queue.width):
                sets[at + position] = sets[totals + position]
        else:
            transfer(state, stores, number, chosen, totals, now)


@inlined
def consume(
    state: RunState,
    histogram: Floats,
    sets: Floats,
    vertex: Any,
    header: tuple[float, float, float, float],
    at: int,
) -> None:
    """Add a set to a consumer's output, and note its latencies."""
    events, _, latency, spread = header
    consumed, paths = state.consumed, state.paths
    consumer = state.consumers[vertex.detail]
    if consumer.events:
        consumer.latency = average(consumer.events, consumer.latency, events, latency)
        consumer.events = consumer.events + events
    else:
        consumer.events, consumer.latency = events, latency
    totals = 0.0
    for position in range(vertex.width):
        total = sets[at + position]
        place = consumer.first_total + position
        consumed[place] += total
        totals += total / paths[place]
    consumer.sample_events = consumer.sample_events + events
    consumer.sample_delay = consumer.sample_delay + events * latency
    consumer.sample_totals = consumer.sample_totals + totals
    if spread:
        note_spread(histogram, consumer.place, events, latency, spread)
    else:
        histogram[consumer.place, latency_bin(latency)] += events


@compiled_without_arrays
def note_spread(
    histogram: Floats, place: int, events: float, latency: float, spread: float
) -> None:
    """Note latencies of which all from `latency - spread` to `latency + spread` are as likely."""
    least, greatest = latency - spread, latency + spread
    if not greatest > least:
        histogram[place, latency_bin(latency)] += events
        return
    found, last = latency_bin(least), latency_bin(greatest)
    before = least
    while found <= last:
        after = _BIN_ENDS[found] if found < last else greatest
        histogram[place, found] += events * ((after - before) / (greatest - least))
        before = after
        found += 1


@inlined
def latency_bin(latency: float) -> int:
    """Return the bin of the histogram that a latency belongs to, as `metrics` has it."""
    found = 0
    if latency >= LEAST_LATENCY:
        found = min(BINS - 1, 1 + int(math.log(latency / LEAST_LATENCY) / _LOG_GROWTH))
    return found


@compiled_without_arrays
def _take(
    queues: Records,
    places: Integers,
    sets: Floats,
    vertex: Any,
    possible: float,
    waiting: float,
    everything: bool,
    sent: float,
) -> tuple[float, float, float, float]:
    """Dequeue from all queues in proportion; the totals of the sum are then those at hand."""
    events = timestamp = latency = spread = 0.0
    width = vertex.width
    for position in range(width):
        sets[position] = 0.0
    for number in range(vertex.first_queue, vertex.end_queue):
        queue = queues[number]
        wanted, all_of_it = part_of(queue, sets, sent, possible, waiting, everything)
        taken, its_timestamp, its_latency, its_spread = take_from(
            queue, sets, wanted, all_of_it, width
        )
        if not taken:
            continue
        for position in range(queue.width):
            sets[places[queue.places + position]] += sets[width + position]
        if events:
            timestamp = average(events, timestamp, taken, its_timestamp)
            latency = average(events, latency, taken, its_latency)
            if spread or its_spread:
                spread = average(events, spread, taken, its_spread)
            events += taken
        else:
            events, timestamp, latency = taken, its_timestamp, its_latency
            spread = its_spread
    return events, timestamp, latency, spread


@compiled_without_arrays
def _accumulate(
    state: RunState,
    sets: Floats,
    vertex: Any,
    possible: float,
    waiting: float,
    everything: bool,
    sent: float,
    end: float,
) -> float:
    """Add what is taken from each queue to the current slot (Algorithm 2, lines 9 to 18)."""
    queues, places, slots, uncounted = state.queues, state.places, state.slots, state.uncounted
    window = state.windows[vertex.detail]
    inputs = vertex.end_queue - vertex.first_queue
    events = 0.0
    for place in range(inputs):
        queue = queues[vertex.first_queue + place]
        wanted, all_of_it = part_of(queue, sets, sent, possible, waiting, everything)
        taken, timestamp, latency, _ = take_from(queue, sets, wanted, all_of_it, 0)
        if not taken:
            continue
        events += taken
        latency += end - timestamp
        vertex.delay = vertex.delay + taken * latency
        vertex.done = vertex.done + taken
        slot = window.first_slot + window.index * inputs + place
        before = slots[slot, 0]
        if before:
            slots[slot, 1] = average(before, slots[slot, 1], taken, end)
            slots[slot, 2] = average(before, slots[slot, 2], taken, latency)
            slots[slot, 0] += taken
        else:
            slots[slot, 0], slots[slot, 1], slots[slot, 2] = taken, end, latency
        for position in range(queue.width):
            total = window.first_total + places[queue.places + position]
            uncounted[total] += sets[position]
        window.uncounted_events = window.uncounted_events + taken
    return events


@compiled
def close_windows(state: RunState, stores: Stores, vertex: Any, begin: float, end: float) -> Stores:
    """Send the outputs of the windows that have ended (Algorithm 2, lines 2 to 8)."""
    windows, slots, uncounted = state.windows, state.slots, state.uncounted
    inputs = vertex.end_queue - vertex.first_queue
    while room_limit(state.queues, state.outs, vertex) > 0.0 and is_due(windows, vertex, begin):
        window = windows[vertex.detail]
        window.periods = window.periods + 1
        if window.periods >= window.slots:
            events, latency = _output(slots, window, inputs, begin)
            if events:
                # The totals of the output are those at hand.
                for position in range(vertex.width):
                    stores.sets[position] = uncounted[window.first_total + position]
                    uncounted[window.first_total + position] = 0.0
                window.uncounted_events = 0.0
                send(
                    state,
                    stores,
                    vertex,
                    (events, begin, latency, 0.0),
                    0,
                    end,
                )
        window.index = (window.index + 1) % window.slots
        first = window.first_slot + window.index * inputs
        slots[first : first + inputs] = 0.0
        if stores.marks[ROOM]:
            stores = make_room(state.queues, stores)
    return stores


@compiled_without_arrays
def _output(slots: Floats, window: Any, inputs: int, begin: float) -> tuple[float, float]:
    """Return the events and latency of the window that ends, 0 for none (Algorithm 3)."""
    events = timestamp = latency = 0.0
    least = math.inf
    for place in range(inputs):
        count = its_timestamp = its_latency = 0.0
        for number in range(window.slots):
            slot = window.first_slot + number * inputs + place
            held = slots[slot, 0]
            if not held:
                continue
            if count:
                its_timestamp = average(count, its_timestamp, held, slots[slot, 1])
                its_latency = average(count, its_latency, held, slots[slot, 2])
                count += held
            else:
                count, its_timestamp, its_latency = held, slots[slot, 1], slots[slot, 2]
        least = min(least, count)
        if not count:
            continue
        if events:
            timestamp = average(events, timestamp, count, its_timestamp)
            latency = average(events, latency, count, its_latency)
            events += count
        else:
            events, timestamp, latency = count, its_timestamp, its_latency
    if not events:
        return 0.0, 0.0
    if window.combining == _CONSTANT:
        combined = window.value
    elif window.combining == _SHARE:
        combined = events * window.value
    else:
        combined = least
    if not 0.0 < combined < math.inf:
        return 0.0, 0.0
    return combined, latency + (begin - timestamp)
