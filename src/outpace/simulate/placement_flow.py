"""What flows through queries in the long run: the load of each vertex and the traffic of each edge.

Placement strategies decide by this, without a simulation: rates go from producers along the edges,
by selectivity, and through windows by their combination function. It is exact for constant rates on
machines that keep up; bursts and bounded queues are for the simulation to judge.

What is busy all the time at a rate can do no more: nothing may say that a scenario keeps up beyond
its `saturation`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

import numpy as np

from outpace.errors import ScenarioError, did_you_mean
from outpace.simulate.cloud import assign_hosts, shared_capacities
from outpace.simulate.fields import checked
from outpace.simulate.generators import Bursty, Generator, Poisson, Uniform
from outpace.simulate.model import (
    BatchOperator,
    Edge,
    Producer,
    QueryModel,
    Vertex,
    WindowedOperator,
)
from outpace.simulate.scenario import Scenario


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
    """Return each producer's average rate: in the long run, or over the first seconds.

    Parameters
    ----------
    queries
        The queries.
    seconds
        The length of time, for generators that have no rate in the long run.

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
    return {name: _mean_rate(generator, seconds) for name, generator in producers.items()}


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """Something that can be busy, and which part of the time it is; above 1 it cannot keep up."""

    what: str
    part: float


def busiest(scenario: Scenario) -> Bottleneck:
    """Return what is busy for the greatest part of the time, at the rates of a scenario.

    A VM is, or the processors that one vertex may use, the batches of a vertex, or a link. Changes
    and what happens within a cycle do not count.

    Parameters
    ----------
    scenario
        The scenario.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, OperatorModel
    >>> query = QueryModel("q", (Producer("in", Uniform(60)), OperatorModel("op", 1e6),
    ...                          Consumer("out")), (Edge("in", "op"), Edge("op", "out")))
    >>> busiest(Scenario((query,), (VM("worker", mips=100, processors=4),), duration=20))
    Bottleneck(what="'op', which uses 1 of 4 processors", part=0.6)
    """
    rates = mean_rates(scenario.queries, scenario.duration)
    return _busiest(scenario, rates)


def saturation(scenario: Scenario) -> float:
    """Return the greatest rate of all producers together at which nothing is too busy.

    Their rates count in proportion to each other. Infinite if nothing costs anything.

    Parameters
    ----------
    scenario
        The scenario.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer
    >>> query = QueryModel("q", (Producer("in", Uniform(10), 1e6), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> saturation(Scenario((query,), (VM("worker", mips=100),), duration=20))
    100.0
    """
    rates = mean_rates(scenario.queries, scenario.duration)

    def part(factor: float) -> float:
        scaled = {name: factor * rate for name, rate in rates.items()}
        return _busiest(scenario, scaled).part

    total, once = sum(rates.values()), part(1.0)
    if once and abs(part(1.0 / once) - 1.0) <= _EXACT:
        return total / once
    # Windows that send a constant number make it no multiple of the rate.
    above = 1.0
    while part(above) <= 1.0:
        above *= 2.0
        if above > _RATES_MAX:
            return math.inf
    below = 0.0
    while above - below > _EXACT * above and above > 1.0 / _RATES_MAX:
        middle = (below + above) / 2.0
        below, above = (middle, above) if part(middle) <= 1.0 else (below, middle)
    return total * below


#: How exact a saturation is, as a part of it, and how far rates are multiplied and divided for it.
_EXACT = 1e-9
_RATES_MAX = 1e12


def _busiest(scenario: Scenario, rates: Mapping[str, float]) -> Bottleneck:
    return max(_all_busy(scenario, rates), key=lambda busy: busy.part)


def _all_busy(scenario: Scenario, rates: Mapping[str, float]) -> Iterator[Bottleneck]:
    traffic = flow_of(scenario.queries, rates).traffic
    events = dict(rates)
    for (_, target), its_events in traffic.items():
        events[target] = events.get(target, 0.0) + its_events
    homes, used = scenario.placement, set(scenario.placement.values())
    vms, places = scenario.vms, assign_hosts(scenario.vms, scenario.clouds)
    in_use = [vm.id in used for vm in vms]
    shares = shared_capacities(vms, scenario.clouds, places, in_use)
    share_of = {vm.id: share for vm, share in zip(vms, shares, strict=True)}
    processors = {vm.id: vm.processors for vm in vms}
    loads = dict.fromkeys(used, 0.0)
    single: list[Bottleneck] = []
    for name, vertex in scenario.vertices().items():
        vm, count = homes[name], events.get(name, 0.0)
        speed = share_of[vm] / processors[vm]
        width = min(vertex.parallelism, processors[vm])
        work, setup = count * vertex.instructions / 1e6, 0.0
        if isinstance(vertex, BatchOperator):
            # Where events wait, batches are as large as they may be, and no more than that needs.
            batches = count / vertex.events_max
            setup = vertex.setup / 1e6 * batches
            single.append(Bottleneck(f"the batches of {name!r}", batches * vertex.interval))
        loads[vm] += work + setup
        uses = f"{name!r}, which uses {width} of {processors[vm]} processors"
        single.append(Bottleneck(uses, setup / speed + work / (width * speed)))
    for vm, load in loads.items():
        yield Bottleneck(f"the VM {vm!r}", load / share_of[vm])
    yield from single
    yield from _busy_links(scenario, traffic)


def _busy_links(
    scenario: Scenario, traffic: Mapping[tuple[str, str], float]
) -> Iterator[Bottleneck]:
    homes = scenario.placement
    events: dict[tuple[str, str], float] = {}
    for (source, target), its_events in traffic.items():
        pair = homes[source], homes[target]
        if pair[0] != pair[1]:
            events[pair] = events.get(pair, 0.0) + its_events
    places = assign_hosts(scenario.vms, scenario.clouds)
    for (one, other), count in events.items():
        link = scenario.network.link(places[one], places[other])
        yield Bottleneck(f"the link from {one!r} to {other!r}", count * link.seconds_per_event)


def _mean_rate(generator: Generator, seconds: float) -> float:
    if isinstance(generator, Uniform | Poisson):
        return float(generator.rate)
    if isinstance(generator, Bursty):
        loud, quiet = generator.rate * generator.on, generator.quiet * generator.off
        return (loud + quiet) / (generator.on + generator.off)
    return float(generator.totals(np.array([seconds]))[0]) / seconds


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
