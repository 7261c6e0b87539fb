"""A scenario as numbers: vertices and edges in a fixed order, ticks, paths.

What does not depend on time is worked out here, once, for all engines, so that they cannot disagree
about it; what happens at which time is in `phases`.

The vertices are in topological order over all queries; where the order leaves a choice, the vertex
that was declared first comes first, so that queries without shared vertices follow each other.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outpace.simulate.model import Consumer, Edge, Producer, Vertex
from outpace.simulate.scenario import Scenario

#: Times that should be equal may differ by rounding; a tick is much longer than this.
SAME_TIME = 1e-9


@dataclass(frozen=True, slots=True)
class Layout:
    """The numbered parts of a scenario.

    Parameters
    ----------
    vertices, edges
        In topological order, and in the order of declaration. A number of a vertex or edge is a
        place in these.
    incoming, outgoing
        The numbers of the edges into and out of each vertex, in the order of declaration.
    sources, targets
        The numbers of the vertices at the ends of each edge.
    bounds
        The number of events that may wait on each edge into a vertex, or in a producer.
    discards
        Whether each vertex is a producer that drops what its queue has no room for.
    producers, consumers
        The numbers of these vertices, ascending.
    paths
        For each consumer, in the order of `consumers`, the number of paths from each producer
        that has one.
    ticks, ticks_per_sample, samples, warm_up_ticks
        The run as numbers of ticks and of steps of the history.
    """

    scenario: Scenario
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    incoming: tuple[tuple[int, ...], ...]
    outgoing: tuple[tuple[int, ...], ...]
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    bounds: tuple[float, ...]
    discards: tuple[bool, ...]
    producers: tuple[int, ...]
    consumers: tuple[int, ...]
    paths: tuple[Mapping[int, int], ...]
    ticks: int
    ticks_per_sample: int
    samples: int
    warm_up_ticks: int

    @property
    def costs(self) -> tuple[float, ...]:
        """The instructions per event of each vertex."""
        return tuple(float(vertex.instructions) for vertex in self.vertices)


def lay_out(scenario: Scenario) -> Layout:
    """Number the parts of a scenario.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Uniform
    >>> query = QueryModel("q", (Consumer("out"), Producer("in", Uniform(10))),
    ...                    (Edge("in", "out"),))
    >>> layout = lay_out(Scenario((query,), (VM("worker", mips=2500),), duration=60))
    >>> [vertex.id for vertex in layout.vertices], layout.ticks, layout.samples
    (['in', 'out'], 600, 60)
    """
    declared = scenario.vertices()
    edges = scenario.edges()
    order = _topological(list(declared), edges)
    number = {name: position for position, name in enumerate(order)}
    vertices = tuple(declared[name] for name in order)
    sources = tuple(number[edge.source] for edge in edges)
    targets = tuple(number[edge.target] for edge in edges)
    incoming: list[list[int]] = [[] for _ in vertices]
    outgoing: list[list[int]] = [[] for _ in vertices]
    for edge, (source, target) in enumerate(zip(sources, targets, strict=True)):
        outgoing[source].append(edge)
        incoming[target].append(edge)
    consumers = tuple(n for n, vertex in enumerate(vertices) if isinstance(vertex, Consumer))
    producers = tuple(n for n, vertex in enumerate(vertices) if isinstance(vertex, Producer))
    ticks = tick_at(scenario.duration, scenario)
    per_sample = max(1, round(min(scenario.sample / scenario.tick, ticks)))
    return Layout(
        scenario,
        vertices,
        edges,
        tuple(tuple(into) for into in incoming),
        tuple(tuple(out) for out in outgoing),
        sources,
        targets,
        tuple(scenario.queue if v.queue is None else float(v.queue) for v in vertices),
        tuple(
            isinstance(v, Producer) and (v.overflow or scenario.overflow) == "discard"
            for v in vertices
        ),
        producers,
        consumers,
        tuple(_paths_to(consumer, vertices, incoming, sources) for consumer in consumers),
        ticks,
        per_sample,
        math.ceil(ticks / per_sample),
        tick_at(scenario.warm_up, scenario),
    )


def tick_at(time: float, scenario: Scenario) -> int:
    """Return the first tick that begins at this time or later."""
    return math.ceil(time / scenario.tick - SAME_TIME)


def _topological(names: Sequence[str], edges: Sequence[Edge]) -> list[str]:
    """Sort by edges, and by the order of the names where these leave a choice."""
    rank = {name: position for position, name in enumerate(names)}
    successors: dict[str, list[str]] = {name: [] for name in names}
    waiting = dict.fromkeys(names, 0)
    for edge in edges:
        successors[edge.source].append(edge.target)
        waiting[edge.target] += 1
    ready = [rank[name] for name in names if not waiting[name]]
    order: list[str] = []
    while ready:
        name = names[heapq.heappop(ready)]
        order.append(name)
        for successor in successors[name]:
            waiting[successor] -= 1
            if not waiting[successor]:
                heapq.heappush(ready, rank[successor])
    return order


def _paths_to(
    consumer: int,
    vertices: Sequence[Vertex],
    incoming: Sequence[Sequence[int]],
    sources: Sequence[int],
) -> dict[int, int]:
    """Count the paths from each producer, against the edges, from the last vertex to the first."""
    paths = {consumer: 1}
    later = [-consumer]
    producers: dict[int, int] = {}
    while later:
        vertex = -heapq.heappop(later)
        if isinstance(vertices[vertex], Producer):
            producers[vertex] = paths[vertex]
        for edge in incoming[vertex]:
            source = sources[edge]
            if source not in paths:
                heapq.heappush(later, -source)
            paths[source] = paths.get(source, 0) + paths[vertex]
    return producers
