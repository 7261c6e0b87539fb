"""A scenario as the records that the compiled engine works on.

Machines that send to each other in any phase, or between which a vertex moves, are a group. Records
of a group lie together, in the order of its machines and then of the layout. What it takes grows
with the number of vertices and edges, and with the phases.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from outpace.simulate.changes import SetRate
from outpace.simulate.kernels.records import (
    BATCH,
    CONSUMER,
    FLIGHT,
    FREE_FLIGHT,
    FULL,
    LINK,
    MACHINE,
    QUEUE,
    USED,
    VERTEX,
    WINDOW,
    Combining,
    Floats,
    Integers,
    Records,
    RunState,
    Stores,
    VertexKind,
    zeros,
)
from outpace.simulate.kernels.rings import HEADER
from outpace.simulate.layout import Layout
from outpace.simulate.model import (
    BatchOperator,
    Combination,
    ConstantOutput,
    Consumer,
    OperatorModel,
    Producer,
    ShareOutput,
    WindowedOperator,
)
from outpace.simulate.phases import Phase, links, new_events
from outpace.simulate.strategies import DynamicScheduling, WeightedAllocation

_KINDS = {
    Producer: VertexKind.PRODUCER,
    OperatorModel: VertexKind.OPERATOR,
    WindowedOperator: VertexKind.WINDOWED,
    Consumer: VertexKind.CONSUMER,
    BatchOperator: VertexKind.BATCH,
}

#: Sets that a ring has room for in the beginning.
_RING = 2


@dataclass(frozen=True, slots=True)
class MachineGroup:
    """Machines that depend on each other, with their vertices and queues, as ranges of numbers."""

    machines: tuple[int, int]
    vertices: tuple[int, int]
    queues: tuple[int, int]


class Numbering:
    """The engine's own numbers of vertices, queues and machines.

    Parameters
    ----------
    layout, phases
        The scenario.
    """

    def __init__(self, layout: Layout, phases: Sequence[Phase]) -> None:
        self.layout = layout
        self.phases = phases
        homes = np.array([phase.homes for phase in phases], np.int64)
        sources = np.array(layout.sources, np.int64)
        targets = np.array(layout.targets, np.int64)
        group = _groups(len(layout.scenario.vms), homes, sources, targets)
        #: The layout's number of each vertex and machine, and the other way round.
        self.machines = np.argsort(group, kind="stable")
        self.machine_of = _inverse(self.machines)
        first_homes = self.machine_of[homes[0]]
        self.vertices = np.argsort(first_homes, kind="stable")
        self.vertex_of = _inverse(self.vertices)
        #: The target of each queue; the edges of the layout, and then the producers, have them.
        producers = np.array(layout.producers, np.int64)
        owners = self.vertex_of[np.concatenate((targets, producers))]
        order = np.argsort(owners, kind="stable")
        self.queue_targets = owners[order]
        self.queue_of = _inverse(order)
        numbers = np.arange(len(self.vertices) + 1)
        self.first_queue = np.searchsorted(self.queue_targets, numbers)
        senders = self.vertex_of[sources]
        by_sender = np.argsort(senders, kind="stable")
        self.outs = self.queue_of[by_sender]
        self.first_out = np.searchsorted(senders[by_sender], numbers)
        self.groups = self._ranges(group, first_homes)
        #: The source of each queue, or the producer itself.
        self.queue_sources = np.concatenate((sources, producers))[order]
        self.queue_sources = self.vertex_of[self.queue_sources]
        #: By phase, and by the engine's own numbers: where each vertex is, and whether it runs.
        self.homes = self.machine_of[homes][:, self.vertices]
        running = np.array([phase.running for phase in phases], np.bool_)
        self.running = running[:, self.vertices]

    def _ranges(self, group: Integers, first_homes: Integers) -> list[MachineGroup]:
        """Return the groups as ranges; a group without vertices is left out."""
        begins = np.flatnonzero(np.diff(group[self.machines], prepend=-1))
        machines = np.append(begins, len(self.machines))
        vertices = np.searchsorted(first_homes[self.vertices], machines)
        queues = self.first_queue[vertices]
        return [
            MachineGroup(
                (int(machines[n]), int(machines[n + 1])),
                (int(vertices[n]), int(vertices[n + 1])),
                (int(queues[n]), int(queues[n + 1])),
            )
            for n in range(len(begins))
            if vertices[n] < vertices[n + 1]
        ]


def _inverse(order: Integers) -> Integers:
    inverse = np.empty_like(order)
    inverse[order] = np.arange(len(order))
    return inverse


def _groups(vms: int, homes: Integers, sources: Integers, targets: Integers) -> Integers:
    """Return for each machine the least number of those that it depends on, in any phase."""
    pairs = [(homes[:, sources] * vms + homes[:, targets]).ravel()]
    pairs.append((homes[:-1] * vms + homes[1:]).ravel())
    root = list(range(vms))

    def find(vm: int) -> int:
        while root[vm] != vm:
            root[vm] = root[root[vm]]
            vm = root[vm]
        return vm

    for pair in np.unique(np.concatenate(pairs)):
        one, other = sorted((find(int(pair) // vms), find(int(pair) % vms)))
        root[other] = one
    return np.array([find(vm) for vm in range(vms)], np.int64)


def make_state(numbering: Numbering) -> RunState:
    """Return the records as they are before the first phase: nothing runs and nothing is new."""
    vertices, producers_of = _vertices(numbering)
    queues, places = _queues(numbering, producers_of)
    windows, slots, totals = _windows(numbering, vertices)
    batches, totals = _batches(numbering, vertices, totals)
    consumers, paths = _consumers(numbering, vertices)
    machines = np.zeros(len(numbering.machines), MACHINE)
    machines["number"] = numbering.machines
    machines["inbox"] = -1
    processors = np.array([vm.processors for vm in numbering.layout.scenario.vms])
    machines["processors"] = processors[numbering.machines]
    scenario = numbering.layout.scenario
    chosen = [scenario.strategies(scenario.vms[number]) for number in numbering.machines]
    machines["dynamic"] = [isinstance(one, DynamicScheduling) for one, _ in chosen]
    machines["weighted"] = [isinstance(one, WeightedAllocation) for _, one in chosen]
    nothing = np.zeros(0, np.int64)
    return RunState(
        vertices,
        queues,
        numbering.outs,
        places,
        windows,
        slots,
        batches,
        np.zeros(totals),
        consumers,
        np.zeros(len(paths)),
        paths,
        machines,
        np.zeros(0, LINK),
        nothing,
        nothing,
        np.zeros((0, numbering.layout.ticks), np.int64),
        np.ones(len(vertices), np.uint8),
    )


def _vertices(numbering: Numbering) -> tuple[Records, list[tuple[int, ...]]]:
    """Return the vertices, and the producers before each one of the layout, last one first."""
    layout = numbering.layout
    producers_of: list[tuple[int, ...]] = []
    for number, into in enumerate(layout.incoming):
        before = {producers_of[layout.sources[edge]] for edge in into} or {(number,)}
        if len(before) == 1:
            producers_of.append(before.pop())
        else:
            producers_of.append(tuple(sorted(set().union(*before), reverse=True)))
    vertices = zeros(len(layout.vertices), VERTEX)
    order = numbering.vertices
    # Where an event of a batch costs nothing, what a batch costs says how much it needs to run.
    costs = [
        float(vertex.instructions or (vertex.setup if isinstance(vertex, BatchOperator) else 0.0))
        for vertex in layout.vertices
    ]
    vertices["cost"] = np.array(costs)[order]
    vertices["discards"] = np.array(layout.discards)[order]
    vertices["bound"] = np.array(layout.bounds)[order]
    vertices["kind"] = np.array([_KINDS[type(vertex)] for vertex in layout.vertices])[order]
    vertices["width"] = np.array([len(producers) for producers in producers_of])[order]
    vertices["first_queue"] = numbering.first_queue[:-1]
    vertices["end_queue"] = numbering.first_queue[1:]
    vertices["first_out"] = numbering.first_out[:-1]
    vertices["end_out"] = numbering.first_out[1:]
    vertices["number"] = order
    vertices["parallelism"] = np.array([vertex.parallelism for vertex in layout.vertices])[order]
    return vertices, producers_of


def _queues(
    numbering: Numbering, producers_of: Sequence[tuple[int, ...]]
) -> tuple[Records, Integers]:
    """Return the queues, and where each producer of a set is among those of the target."""
    layout = numbering.layout
    widest = max(len(producers) for producers in producers_of)
    # Most sets have the same producers as their target, and share the first places.
    places = list(range(widest))
    count = len(layout.edges)
    first_place = np.zeros(count, np.int64)
    width = np.zeros(count, np.int64)
    for edge, (source, target) in enumerate(zip(layout.sources, layout.targets, strict=True)):
        width[edge] = len(producers_of[source])
        if producers_of[source] is not producers_of[target]:
            first_place[edge] = len(places)
            place_of = {producer: n for n, producer in enumerate(producers_of[target])}
            places.extend(place_of[producer] for producer in producers_of[source])
    queues = zeros(len(numbering.queue_of), QUEUE)
    of_edges, of_producers = numbering.queue_of[:count], numbering.queue_of[count:]
    queues["target"] = numbering.queue_targets
    queues["bound"][of_edges] = np.array(layout.bounds)[list(layout.targets)]
    queues["bound"][of_producers] = math.inf
    queues["selectivity"][of_edges] = [edge.selectivity for edge in layout.edges]
    queues["places"][of_edges] = first_place
    queues["width"][of_edges] = width
    queues["width"][of_producers] = 1
    queues["mask"] = _RING - 1
    return queues, np.array(places, np.int64)


def _windows(numbering: Numbering, vertices: Records) -> tuple[Records, Floats, int]:
    """Return the windows with their slots, and the number of their totals."""
    windowed = np.flatnonzero(vertices["kind"] == VertexKind.WINDOWED)
    windows = np.zeros(len(windowed), WINDOW)
    slots = totals = 0
    for number, vertex in enumerate(windowed):
        value = numbering.layout.vertices[numbering.vertices[vertex]]
        assert isinstance(value, WindowedOperator)
        window = windows[number]
        window["period"], window["slots"] = value.period, value.slots
        window["combining"], window["value"] = _combining(value.combination)
        window["first_slot"], window["first_total"] = slots, totals
        record = vertices[vertex]
        slots += value.slots * int(record["end_queue"] - record["first_queue"])
        totals += int(record["width"])
    vertices["detail"][windowed] = np.arange(len(windowed))
    return windows, np.zeros((slots, 3)), totals


def _batches(numbering: Numbering, vertices: Records, totals: int) -> tuple[Records, int]:
    """Return the batch operators, and the number of totals with theirs."""
    working = np.flatnonzero(vertices["kind"] == VertexKind.BATCH)
    batches = np.zeros(len(working), BATCH)
    for number, vertex in enumerate(working):
        value = numbering.layout.vertices[numbering.vertices[vertex]]
        assert isinstance(value, BatchOperator)
        batch = batches[number]
        batch["interval"], batch["setup"] = value.interval, value.setup
        batch["event"], batch["most"] = value.instructions, value.events_max
        batch["first_total"] = totals
        totals += int(vertices[vertex]["width"])
    vertices["detail"][working] = np.arange(len(working))
    return batches, totals


def _combining(combination: Combination) -> tuple[int, float]:
    match combination:
        case ConstantOutput():
            return Combining.CONSTANT, float(combination.events)
        case ShareOutput():
            return Combining.SHARE, float(combination.share)
        case _:
            return Combining.PAIRS, 0.0


def _consumers(numbering: Numbering, vertices: Records) -> tuple[Records, Floats]:
    """Return the consumers, and the numbers of paths that lead to them."""
    layout = numbering.layout
    places = np.argsort(numbering.vertex_of[list(layout.consumers)])
    paths = [layout.paths[place] for place in places]
    consumers = zeros(len(places), CONSUMER)
    consumers["place"] = places
    widths = np.array([len(producers) for producers in paths], np.int64)
    consumers["first_total"] = np.cumsum(widths) - widths
    vertices["detail"][vertices["kind"] == VertexKind.CONSUMER] = np.arange(len(places))
    return consumers, np.array([float(n) for counts in paths for n in counts.values()])


class ScenarioPart:
    """Some groups of machines, which run through all phases by themselves.

    Parameters
    ----------
    numbering, state
        Those of the whole scenario; only the part's own records are changed.
    groups
        Neighbours.
    """

    def __init__(
        self, numbering: Numbering, state: RunState, groups: Sequence[MachineGroup]
    ) -> None:
        self._numbering = numbering
        self.groups = groups
        self._machines = slice(groups[0].machines[0], groups[-1].machines[1])
        self._vertices = slice(groups[0].vertices[0], groups[-1].vertices[1])
        self._queues = slice(groups[0].queues[0], groups[-1].queues[1])
        self._links: dict[tuple[int, int], int] = {}
        self._link_of = links(numbering.layout)
        self.state = state._replace(new_events=self._new_events(state.vertices))
        self.stores = self._make_stores()

    def enter(self, number: int) -> tuple[Integers, Integers]:
        """Change the records as a phase does; return the vertices that start and are cleared."""
        numbering, state = self._numbering, self.state
        phase, homes = numbering.phases[number], numbering.homes[number]
        running = numbering.running[number]
        queues = state.queues[self._queues]
        state.vertices["home"][self._vertices] = homes[self._vertices]
        queues["runs"] = running[queues["target"]]
        queues["link"] = self._route(homes)
        first, end = self._vertices.start, self._vertices.stop
        here = first + np.flatnonzero(running[self._vertices])
        # By machine, and there in the order of the layout.
        placement = here[np.lexsort((numbering.vertices[here], homes[here]))]
        producers = placement[state.vertices["kind"][placement] == VertexKind.PRODUCER]
        machines = state.machines[self._machines]
        numbers = np.arange(self._machines.start, self._machines.stop)
        machines["first"] = np.searchsorted(homes[placement], numbers)
        machines["end"] = np.searchsorted(homes[placement], numbers, side="right")
        machines["first_producer"] = np.searchsorted(homes[producers], numbers)
        machines["end_producer"] = np.searchsorted(homes[producers], numbers, side="right")
        machines["up"] = np.array(phase.up)[machines["number"]]
        machines["speed"] = np.array(phase.capacities)[machines["number"]] * 1e6
        for machine in machines:
            costs = state.vertices["cost"][placement[machine["first"] : machine["end"]]]
            machine["cost"] = np.cumsum(costs)[-1] if len(costs) else 0.0
        self.state = self.state._replace(placement=placement, producers=producers)
        own = [
            numbering.vertex_of[np.array(sorted(chosen), np.int64)]
            for chosen in (phase.started, phase.cleared)
        ]
        started, cleared = (chosen[(chosen >= first) & (chosen < end)] for chosen in own)
        return started, cleared

    def _route(self, homes: Integers) -> Integers:
        """Return the link of each queue; -1 where source and target are on the same machine."""
        numbering = self._numbering
        sources = numbering.queue_sources[self._queues]
        pairs = np.stack((homes[sources], homes[numbering.queue_targets[self._queues]]))
        found = np.full(len(sources), -1)
        vms = numbering.machines
        added = []
        for queue in np.flatnonzero(pairs[0] != pairs[1]):
            pair = (int(vms[pairs[0, queue]]), int(vms[pairs[1, queue]]))
            if pair not in self._links:
                self._links[pair] = len(self._links)
                link = self._link_of[pair]
                added.append((link.latency, link.seconds_per_event, 0.0))
            found[queue] = self._links[pair]
        known = np.concatenate((self.state.links, np.array(added, LINK)))
        self.state = self.state._replace(links=known)
        return found

    def _new_events(self, vertices: Records) -> Integers:
        """Return the new events by tick, a row for all producers that produce alike."""
        numbering = self._numbering
        layout, phases = numbering.layout, numbering.phases
        changed = {
            change.producer for change in layout.scenario.changes if isinstance(change, SetRate)
        }
        rows: dict[Hashable, int] = {}
        found: list[Integers] = []
        kinds = vertices["kind"][self._vertices]
        for own in self._vertices.start + np.flatnonzero(kinds == VertexKind.PRODUCER):
            number = int(numbering.vertices[own])
            producer = layout.vertices[number]
            assert isinstance(producer, Producer)
            pattern = numbering.running[:, own].tobytes()
            alike: Hashable = number
            if producer.id not in changed and isinstance(producer.generator, Hashable):
                alike = (producer.generator, producer.rate_max, pattern)
            if alike not in rows:
                rows[alike] = len(rows)
                found.append(new_events(layout, phases, number, 0, layout.ticks))
            vertices["detail"][own] = rows[alike]
        return np.array(found, np.int64).reshape(len(found), layout.ticks)

    def _make_stores(self) -> Stores:
        """Lay out the rings, behind the totals at hand and those that are being added up."""
        state = self.state
        queues, vertices = state.queues[self._queues], state.vertices[self._vertices]
        sizes = _RING * (HEADER + queues["width"].astype(np.int64))
        at_hand = -(-2 * int(vertices["width"].max()) // 8) * 8
        ends = at_hand + np.cumsum(sizes)
        queues["base"] = ends - sizes
        successors = int((vertices["end_out"] - vertices["first_out"]).max())
        marks = np.zeros(FULL + 2 + successors, np.int64)
        marks[USED] = ends[-1]
        marks[FREE_FLIGHT] = -1
        travelling = len(self._numbering.machines) > len(self.groups)
        width = int(queues["width"].max()) if travelling else 0
        return Stores(
            zeros(int(ends[-1]), np.float64),
            np.zeros(int(travelling), FLIGHT),
            np.zeros((int(travelling), width)),
            marks,
        )
