"""The simulator in plain Python objects, obviously right: what faster engines are tested against.

`Twin.step` is one tick: each VM's placement runs once, in the order of the VMs, by Algorithm 4 of
the CEPSim paper (section 5.4), with its additions for networks, bounded queues and changes. The
memory is that of the event sets in queues: at most one for each time that a vertex ran and sent
something that is not processed yet.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from outpace.simulate.event_set import EMPTY, EventSet, EventSetQueue, add_sets, add_totals
from outpace.simulate.layout import Layout, lay_out
from outpace.simulate.metrics import Recording, latency_bins
from outpace.simulate.model import BatchOperator, Consumer, Producer, WindowedOperator
from outpace.simulate.phases import Phase, links, new_events, phases
from outpace.simulate.scenario import Scenario
from outpace.simulate.strategies import LEFTOVER
from outpace.simulate.vertex_state import (
    NOTHING,
    BatchState,
    VertexState,
    WindowState,
    is_over,
)

#: How often a run tells how far it is, at most.
_TOLD: Final = 100


def run_twin(
    scenario: Scenario, on_progress: Callable[[float], None] = lambda _: None
) -> Recording:
    """Simulate a scenario from its begin to its end.

    Parameters
    ----------
    scenario
        What to simulate.
    on_progress
        Told which part of the ticks is done, a hundred times or less.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Uniform
    >>> query = QueryModel("q", (Producer("in", Uniform(10)), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> run_twin(Scenario((query,), (VM("worker", mips=2500),), duration=60)).events.tolist()
    [599.0]
    """
    twin = Twin(scenario)
    told_every = -(-twin.layout.ticks // _TOLD)
    while twin.tick < twin.layout.ticks:
        twin.step()
        if twin.tick % told_every == 0:
            on_progress(twin.tick / twin.layout.ticks)
    return twin.recording


class Turn(NamedTuple):
    """When a vertex can begin that runs beside others, and how many instructions it can do then.

    Parameters
    ----------
    begin, most
        The time, in seconds, and the instructions until the tick ends.
    width
        The processors that it uses.
    speed
        What a processor does in a second.
    """

    begin: float
    most: float
    width: int
    speed: float


class Twin:
    """The state of a run: queues, slots, sets on their way, and what was recorded.

    Parameters
    ----------
    scenario
        What to simulate.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.layout: Layout = lay_out(scenario)
        self.recording = Recording.empty(self.layout)
        self.tick = 0
        #: Totals of events that will never be consumed, by the vertex before which they were lost.
        self.lost: dict[int, dict[str, float]] = {}
        #: Each consumer's output set since the warm-up.
        self.outputs = dict.fromkeys(self.layout.consumers, EMPTY)
        #: When the last slice of each vertex ends that runs beside others.
        self.free = [0.0] * len(self.layout.vertices)
        #: How many events of each edge are on their way between machines.
        self.travelling = [0.0] * len(self.layout.edges)
        self.states = [self._new_state(vertex) for vertex in range(len(self.layout.vertices))]
        #: Sets on their way to each VM: time of arrival, order of sending, edge, set.
        self.arrivals: list[list[tuple[float, int, int, EventSet]]] = [[] for _ in scenario.vms]
        self._phases = phases(self.layout)
        self._phase = self._phases[0]
        self._new = {
            producer: new_events(self.layout, self._phases, producer, 0, self.layout.ticks)
            for producer in self.layout.producers
        }
        self._consumer_place = {vertex: n for n, vertex in enumerate(self.layout.consumers)}
        self._links = links(self.layout)
        self._link_free: dict[tuple[int, int], float] = {}
        self._sent = 0
        self._placements: list[list[int]] = []

    @property
    def begin(self) -> float:
        """The time at which the current tick begins."""
        return self.tick * self.layout.scenario.tick

    @property
    def _end(self) -> float:
        """The time at which the current tick ends."""
        return (self.tick + 1) * self.layout.scenario.tick

    @property
    def sample(self) -> int:
        """The step of the history that the current tick belongs to."""
        return self.tick // self.layout.ticks_per_sample

    def step(self) -> None:
        """Simulate one tick."""
        for phase in self._phases:
            if phase.first_tick == self.tick:
                self._enter(phase)
        if self.tick == self.layout.warm_up_ticks:
            self._forget_warm_up()
        for vm, placement in enumerate(self._placements):
            self._generate(placement)
            if placement and self._phase.up[vm]:
                self._run_placement(vm, placement)
            else:
                self._drop_arrivals(vm, self._end)
        for vertex, state in enumerate(self.states):
            self.recording.vertex_queue[self.sample, vertex] = state.waiting() + self.kept(vertex)
        self.tick += 1

    # Algorithm 4

    def _generate(self, placement: Sequence[int]) -> None:
        """Put new events into the producers' queues (lines 2–4)."""
        for vertex in placement:
            if not isinstance(self.layout.vertices[vertex], Producer):
                continue
            events = float(self._new[vertex][self.tick])
            if not events:
                continue
            name = self.layout.vertices[vertex].id
            new = EventSet(events, self.begin, 0.0, {name: events})
            if not self._phase.up[self._phase.homes[vertex]]:
                self._drop(vertex, new)
                continue
            queue = self.states[vertex].queues[0]
            if self.layout.discards[vertex]:
                # The events of a tick did not come all at once, so they fit by themselves.
                room = max(0.0, max(self.layout.bounds[vertex], events) - queue.cardinality)
                if events > room:
                    new, over = new.extract(room) if room else (EMPTY, new)
                    self._drop(vertex, over)
            queue.enqueue(new)

    def _run_placement(self, vm: int, placement: Sequence[int]) -> None:
        """Run vertices, and once none has anything to do, let time pass to the next arrival."""
        scenario = self.layout.scenario
        speed = self._phase.capacities[vm] * 1e6
        begin, instructions = self.begin, speed * scenario.tick
        while True:
            begin = self._run_schedule(vm, placement, instructions, begin, speed)
            if not self.arrivals[vm] or self.arrivals[vm][0][0] >= self._end:
                return
            begin = self.arrivals[vm][0][0]
            instructions = speed * (self._end - begin)

    def _run_schedule(
        self, vm: int, placement: Sequence[int], instructions: float, begin: float, speed: float
    ) -> float:
        """Run vertices as the scheduling says, one slice after the other; return the time then."""
        scenario = self.layout.scenario
        work = _PlacementWork(self, placement)
        scheduling, allocation = scenario.strategies(scenario.vms[vm])
        schedule = scheduling.schedule(work, instructions, allocation)
        while True:
            self._receive(vm, begin)
            work.now = begin
            chosen = next(schedule, None)
            if chosen is None:
                return begin
            position, given = chosen
            if scenario.vms[vm].processors > 1:
                begin = self._run_beside(placement[position], given, begin, speed)
            else:
                begin = self._run_slice(vm, placement[position], given, begin, speed)

    def _run_slice(
        self, vm: int, vertex: int, instructions: float, begin: float, speed: float
    ) -> float:
        """Run a vertex, in two or more parts if sets arrive meanwhile; return the time after it."""
        end = begin + instructions / speed
        while self.arrivals[vm] and begin < self.arrivals[vm][0][0] < end:
            arrival = self.arrivals[vm][0][0]
            part = instructions * (arrival - begin) / (end - begin)
            self._run_vertex(vertex, part, begin, arrival)
            self._receive(vm, arrival)
            instructions -= part
            begin = arrival
        self._run_vertex(vertex, instructions, begin, end)
        return end

    def _run_beside(self, vertex: int, instructions: float, now: float, speed: float) -> float:
        """Run a vertex beside others, on other processors; return the time by the work done.

        A vertex takes turns with itself only, and with those before it if it uses all processors.
        What it takes must have been sent when it begins. It ends when it has had its time, but not
        before the machine can have done its work and that of those before it.
        """
        turn = self.turn(vertex, now)
        given = max(0.0, min(instructions, turn.most))
        now += given / speed
        end = max(now, turn.begin + self._duration(vertex, turn, given))
        self._run_vertex(vertex, given, turn.begin, end, turn.begin)
        self.free[vertex] = end
        return now

    def turn(self, vertex: int, now: float) -> Turn:
        """Return when a vertex can begin that runs beside others, and how much it can do then."""
        vm = self._phase.homes[vertex]
        processors = self.layout.scenario.vms[vm].processors
        speed = self._phase.capacities[vm] * 1e6 / processors
        width = min(self.layout.vertices[vertex].parallelism, processors)
        begin = max(self.free[vertex], now if width == processors else self.begin)
        state = self.states[vertex]
        if not self._is_due(vertex, state, begin):
            sent = min((queue.begin for queue in state.queues), default=math.inf)
            begin = max(begin, sent) if sent < math.inf else begin
        seconds = self._end - begin
        most = width * speed * seconds
        if isinstance(state, BatchState):
            setup = state.next_setup
            most = speed * seconds
            if setup < most:
                most = setup + width * speed * (seconds - setup / speed)
        return Turn(begin, most, width, speed)

    def _is_due(self, vertex: int, state: VertexState, now: float) -> bool:
        """Return whether a vertex has something to do that does not wait for events."""
        if isinstance(state, BatchState):
            return state.batch.cardinality > 0.0
        return isinstance(state, WindowState) and state.due(now) and self.limit(vertex) > 0.0

    def _duration(self, vertex: int, turn: Turn, instructions: float) -> float:
        """Return how long a vertex takes; what a batch costs by itself is for one processor."""
        state = self.states[vertex]
        alone = min(instructions, state.next_setup) if isinstance(state, BatchState) else 0.0
        return alone / turn.speed + (instructions - alone) / (turn.width * turn.speed)

    def _run_vertex(
        self, vertex: int, instructions: float, begin: float, end: float, sent: float = math.inf
    ) -> None:
        """Simulate a vertex, then move what it sent to its successors.

        What was sent to it later than `sent` has not arrived.
        """
        state = self.states[vertex]
        outputs: list[EventSet] = []
        if isinstance(state, BatchState):
            if self.limit(vertex):
                taken = state.begin(begin, sent)
                outputs = self._run_batch(vertex, state, taken, instructions, end)
        elif isinstance(state, WindowState):
            while self.limit(vertex) and state.due(begin):
                self._send(vertex, state.close(begin), end)
            taken_sets = self._take(vertex, instructions, sent)
            state.accumulate(taken_sets, end)
            for event_set in taken_sets:
                self._record_done(vertex, event_set.update(end))
        else:
            outputs = [add_sets(self._take(vertex, instructions, sent)).update(end)]
        for output in outputs:
            self._record_done(vertex, output)
            if isinstance(self.layout.vertices[vertex], Consumer):
                self._consume(vertex, output)
            else:
                self._send(vertex, output, end)

    def _take(self, vertex: int, instructions: float, sent: float) -> list[EventSet]:
        """Dequeue what a vertex can process."""
        taken = self.states[vertex].take(instructions, self.limit(vertex), sent)
        events = self._record_processed(vertex, taken)
        self._record_used(vertex, events * self.layout.vertices[vertex].instructions)
        return taken

    def _run_batch(
        self, vertex: int, state: BatchState, taken: EventSet, instructions: float, end: float
    ) -> list[EventSet]:
        """Work on the batch, and return it if all of it is done; `taken` is what it began with."""
        if self._record_processed(vertex, [taken]):
            self.recording.setup[vertex] += state.setup
        self._record_used(vertex, state.work(instructions))
        return [state.finish().update(end)]

    def limit(self, vertex: int) -> float:
        """Return how many events a vertex may process, given the room of its successors.

        A window or a batch is sent as a whole: what there is no room for, its operator keeps, and
        does nothing more until there is.
        """
        limit = math.inf
        for edge in self.layout.outgoing[vertex]:
            target, selectivity = self.layout.targets[edge], self.layout.edges[edge].selectivity
            if not selectivity or not self._phase.running[target]:
                continue
            bound, sent = self.layout.bounds[target], self.sent(edge)
            if not isinstance(self.layout.vertices[vertex], WindowedOperator | BatchOperator):
                limit = min(limit, max(0.0, bound - sent) / selectivity)
            elif is_over(sent, bound):
                limit = 0.0
        return limit

    def sent(self, edge: int) -> float:
        """Return how many events of an edge wait at its end or are on their way there."""
        return self._queue(edge).cardinality + self.travelling[edge]

    def kept(self, vertex: int) -> float:
        """Return how many events a vertex has sent that its successors have no room for."""
        kept = 0.0
        for edge in self.layout.outgoing[vertex]:
            bound = self.layout.bounds[self.layout.targets[edge]]
            if is_over(self._queue(edge).cardinality, bound):
                kept += self._queue(edge).cardinality - bound
        return kept

    def required(self, vertex: int, now: float) -> float | None:
        """Return the instructions for all that a vertex can process; None for nothing to do."""
        scenario = self.layout.scenario
        vm = self._phase.homes[vertex]
        if scenario.vms[vm].processors == 1:
            return self._required(vertex, now, math.inf)
        turn = self.turn(vertex, now)
        if turn.most <= LEFTOVER * (turn.speed * (self._end - self.begin)):
            return None
        required = self._required(vertex, turn.begin, turn.begin)
        return None if required is None else min(required, turn.most)

    def _required(self, vertex: int, now: float, sent: float) -> float | None:
        state = self.states[vertex]
        limit = self.limit(vertex)
        if isinstance(state, BatchState):
            return state.required(now, sent) if limit else None
        possible = state.possible(limit, sent)
        if possible:
            return possible * state.cost
        return 0.0 if limit and isinstance(state, WindowState) and state.due(now) else None

    # Sending and receiving

    def _send(self, vertex: int, output: EventSet, end: float) -> None:
        if not output.cardinality:
            return
        for edge in self.layout.outgoing[vertex]:
            target = self.layout.targets[edge]
            selected = output.select(self.layout.edges[edge].selectivity)
            if not selected.cardinality or not self._phase.running[target]:
                self._lose(target, output)
                continue
            source_vm, target_vm = self._phase.homes[vertex], self._phase.homes[target]
            if source_vm == target_vm:
                self._queue(edge).enqueue(selected)
            else:
                self._transfer((source_vm, target_vm), edge, selected, end)

    def _transfer(
        self, machines: tuple[int, int], edge: int, event_set: EventSet, end: float
    ) -> None:
        link = self._links[machines]
        leaves = max(end, self._link_free.get(machines, 0.0))
        leaves += event_set.cardinality * link.seconds_per_event
        self._link_free[machines] = leaves
        self.travelling[edge] += event_set.cardinality
        arrival = (leaves + link.latency, self._sent, edge, event_set)
        heapq.heappush(self.arrivals[machines[1]], arrival)
        self._sent += 1

    def _receive(self, vm: int, now: float) -> None:
        """Enqueue the sets that have arrived by now."""
        while self.arrivals[vm] and self.arrivals[vm][0][0] <= now:
            edge, event_set = self._arrived(vm)
            target = self.layout.targets[edge]
            if self._phase.running[target]:
                self._queue(edge).enqueue(event_set)
            else:
                self._drop(target, event_set)

    def _drop_arrivals(self, vm: int, before: float) -> None:
        """Drop what arrives before a time: the VM is down, or nothing on it runs."""
        while self.arrivals[vm] and self.arrivals[vm][0][0] < before:
            edge, event_set = self._arrived(vm)
            self._drop(self.layout.targets[edge], event_set)

    def _arrived(self, vm: int) -> tuple[int, EventSet]:
        """Take the first set that is on its way to a machine, and its edge."""
        time, _, edge, event_set = heapq.heappop(self.arrivals[vm])
        self.travelling[edge] -= event_set.cardinality
        if self.travelling[edge] < NOTHING:
            self.travelling[edge] = 0.0
        return edge, event_set.update(time)

    def _queue(self, edge: int) -> EventSetQueue:
        """Return the queue that an edge leads into."""
        target = self.layout.targets[edge]
        return self.states[target].queues[self.layout.incoming[target].index(edge)]

    # Changes

    def _enter(self, phase: Phase) -> None:
        """Begin a phase: clear, start and move vertices."""
        for vm, placement in enumerate(self._placements):
            if not placement or not self._phase.up[vm]:
                # Sent in the tick before by a VM that runs after this one.
                self._drop_arrivals(vm, self.begin)
        self._phase = phase
        for vertex in sorted(phase.cleared):
            self._drop(vertex, self.states[vertex].clear())
            for edge in self.layout.outgoing[vertex]:
                target = self.layout.targets[edge]
                if is_over(self._queue(edge).cardinality, self.layout.bounds[target]):
                    kept = self._queue(edge).drop_after(self.layout.bounds[target])
                    self._drop(target, kept)
        for vertex in phase.started:
            state = self.states[vertex]
            if isinstance(state, WindowState | BatchState):
                state.restart(self.begin)
        on_their_way = sorted(arrival for inbox in self.arrivals for arrival in inbox)
        for inbox in self.arrivals:
            inbox.clear()
        for arrival in on_their_way:
            home = phase.homes[self.layout.targets[arrival[2]]]
            heapq.heappush(self.arrivals[home], arrival)
        self._placements = [[] for _ in phase.up]
        for vertex, runs in enumerate(phase.running):
            if runs:
                self._placements[phase.homes[vertex]].append(vertex)

    def _new_state(self, vertex: int) -> VertexState:
        value, bound = self.layout.vertices[vertex], self.layout.bounds[vertex]
        inputs = len(self.layout.incoming[vertex])
        if isinstance(value, WindowedOperator):
            return WindowState(value, inputs, bound, 0.0)
        if isinstance(value, BatchOperator):
            return BatchState(value, inputs, bound, 0.0)
        if isinstance(value, Producer):
            # What it has no room for it discards, or keeps all the same.
            return VertexState(float(value.instructions), 1, math.inf)
        return VertexState(float(value.instructions), inputs, bound)

    # Recording

    def _consume(self, vertex: int, event_set: EventSet) -> None:
        if not event_set.cardinality:
            return
        self.outputs[vertex] += event_set
        output, place = self.outputs[vertex], self._consumer_place[vertex]
        recording, sample = self.recording, self.sample
        totals = self._path_corrected(place, event_set)
        recording.events[place] = output.cardinality
        recording.latency[place] = output.latency
        recording.totals[place] = self._path_corrected(place, output)
        for found, part in latency_bins(event_set.latency, event_set.spread):
            recording.histogram[place, found] += event_set.cardinality * part
        recording.consumer_events[sample, place] += event_set.cardinality
        recording.consumer_delay[sample, place] += event_set.cardinality * event_set.latency
        recording.consumer_totals[sample, place] += totals

    def _path_corrected(self, place: int, event_set: EventSet) -> float:
        """Return the totals of a set, each producer's divided by its paths (equation 9)."""
        total = 0.0
        for producer, paths in self.layout.paths[place].items():
            total += event_set.totals.get(self.layout.vertices[producer].id, 0.0) / paths
        return total

    def _record_processed(self, vertex: int, taken: Sequence[EventSet]) -> float:
        events = 0.0
        for event_set in taken:
            events += event_set.cardinality
        self.recording.processed[vertex] += events
        self.recording.vertex_processed[self.sample, vertex] += events
        return events

    def _record_done(self, vertex: int, event_set: EventSet) -> None:
        self.recording.done[vertex] += event_set.cardinality
        self.recording.delay[vertex] += event_set.cardinality * event_set.latency

    def _record_used(self, vertex: int, used: float) -> None:
        vm = self._phase.homes[vertex]
        self.recording.instructions[vm] += used
        self.recording.vm_instructions[self.sample, vm] += used

    def _drop(self, vertex: int, event_set: EventSet) -> None:
        self.recording.dropped[vertex] += event_set.cardinality
        self.recording.vertex_dropped[self.sample, vertex] += event_set.cardinality
        self._lose(vertex, event_set)

    def _lose(self, vertex: int, event_set: EventSet) -> None:
        self.lost[vertex] = add_totals(self.lost.get(vertex, {}), event_set.totals)

    def _forget_warm_up(self) -> None:
        self.outputs = dict.fromkeys(self.layout.consumers, EMPTY)
        for array in (
            self.recording.events,
            self.recording.latency,
            self.recording.totals,
            self.recording.histogram,
            self.recording.processed,
            self.recording.dropped,
            self.recording.done,
            self.recording.delay,
            self.recording.setup,
            self.recording.instructions,
        ):
            array[:] = 0.0


class _PlacementWork:
    """A placement as a scheduling sees it."""

    def __init__(self, twin: Twin, placement: Sequence[int]) -> None:
        self._twin = twin
        self._placement = placement
        self.costs = [twin.states[vertex].cost for vertex in placement]
        self.now = twin.begin

    def required(self, position: int) -> float | None:
        """Return the instructions for all that the vertex can process; None for nothing to do."""
        return self._twin.required(self._placement[position], self.now)
