"""What flows through queries in the long run: the load of each vertex and the traffic of each edge.

Placement strategies decide by this, without a simulation: rates go from producers along the edges,
by selectivity, and through windows by their combination function. It is exact for constant rates on
machines that keep up; bursts and bounded queues are for the simulation to judge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

import numpy as np

from outpace.errors import ScenarioError, did_you_mean
from outpace.simulate.fields import checked
from outpace.simulate.model import (
    BatchOperator,
    Edge,
    Producer,
    QueryModel,
    Vertex,
    WindowedOperator,
)


@dataclass(frozen=True, slots=True)
class Flow:
    """Loads and traffic.

    Parameters
    ----------
    loads
        What each vertex needs to keep up, in million instructions a second, by id, in topological
        order.
    traffic
        The events a second on each edge, by the ids of its ends.
    """

    loads: Mapping[str, float]
    traffic: Mapping[tuple[str, str], float]


def flow_of(queries: Sequence[QueryModel], rates: Mapping[str, float]) -> Flow:
    """Return the flow of queries whose producers have these rates.

    Parameters
    ----------
    queries
        Vertices with the same id are one vertex.
    rates
        Events a second of each producer, by id.

    Examples
    --------
    >>> from outpace.simulate import Consumer, OperatorModel, Uniform
    >>> query = QueryModel("alarms",
    ...     (Producer("sensors", Uniform(100)), OperatorModel("filter", 25_000), Consumer("pager")),
    ...     (Edge("sensors", "filter"), Edge("filter", "pager", 0.05)))
    >>> flow_of([query], {"sensors": 100})
    Flow(loads={'sensors': 0.0, 'filter': 2.5, 'pager': 0.0},
         traffic={('sensors', 'filter'): 100.0, ('filter', 'pager'): 5.0})
    """
    vertices = {vertex.id: vertex for query in queries for vertex in query.vertices}
    edges = {(edge.source, edge.target): edge for query in queries for edge in query.edges}
    producers = [v.id for v in vertices.values() if isinstance(v, Producer)]
    for producer in producers:
        if producer not in rates:
            raise ScenarioError("the producer has no rate", subject=("vertex", producer))
    for name in rates:
        if name not in producers:
            hint = did_you_mean(name, producers)
            raise ScenarioError(f"unknown producer {name!r}", hint=hint)
    incoming: dict[str, list[Edge]] = {name: [] for name in vertices}
    outgoing: dict[str, list[Edge]] = {name: [] for name in vertices}
    for edge in edges.values():
        incoming[edge.target].append(edge)
        outgoing[edge.source].append(edge)
    loads: dict[str, float] = {}
    traffic: dict[tuple[str, str], float] = {}
    for name in _topological(vertices, edges.values()):
        vertex = vertices[name]
        inputs = [traffic[edge.source, edge.target] for edge in incoming[name]]
        processed = float(rates[name]) if isinstance(vertex, Producer) else sum(inputs)
        loads[name] = (processed * vertex.instructions + _setups(vertex, processed)) / 1e6
        sent = _sent(vertex, inputs, processed)
        for edge in outgoing[name]:
            traffic[edge.source, edge.target] = sent * edge.selectivity
    return Flow(loads, traffic)


def mean_rates(queries: Sequence[QueryModel], seconds: float) -> dict[str, float]:
    """Return each producer's average rate over the first seconds.

    Parameters
    ----------
    queries
        The queries.
    seconds
        The length of time.

    Examples
    --------
    >>> from outpace.simulate import Bursty, Consumer
    >>> query = QueryModel("q", (Producer("in", Bursty(100, on=1, off=4)), Consumer("out")),
    ...               (Edge("in", "out"),))
    >>> mean_rates([query], seconds=60)
    {'in': 20.0}
    """
    queries = checked(queries, tuple[QueryModel, ...], "what is placed")
    seconds = float(checked(seconds, float, "the length of time"))
    if not 0 < seconds < math.inf:
        raise ScenarioError(f"the length of time is not longer than 0 s: {seconds}")
    producers = {
        vertex.id: vertex.generator
        for query in queries
        for vertex in query.vertices
        if isinstance(vertex, Producer)
    }
    return {
        name: float(generator.totals(np.array([seconds]))[0]) / seconds
        for name, generator in producers.items()
    }


def _setups(vertex: Vertex, processed: float) -> float:
    """The instructions a second that batches cost, however few events they have.

    Without an interval batches follow each other, and there are as many as there is time for.
    """
    if not isinstance(vertex, BatchOperator) or not processed or not vertex.interval:
        return 0.0
    return vertex.setup / vertex.interval


def _sent(vertex: Vertex, inputs: Sequence[float], processed: float) -> float:
    """The events a second that leave a vertex, before the selectivity of its edges."""
    if not isinstance(vertex, WindowedOperator):
        return processed
    if not processed:
        return 0.0
    return vertex.combination.combine([rate * vertex.window for rate in inputs]) / vertex.period


def _topological(names: Iterable[str], edges: Iterable[Edge]) -> Iterable[str]:
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(names, ()))
    for edge in edges:
        sorter.add(edge.target, edge.source)
    return sorter.static_order()
