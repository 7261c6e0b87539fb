"""Latency and throughput of the CEPSim paper's queries (section 6.4): figures 11–13, table 4."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from outpace.simulate import VM, ConstantDelay, QueryModel, Result, Scenario, simulate
from outpace.studies import cepsim_figures as figures
from outpace.studies.cepsim_queries import (
    CLOUD_COSTS,
    QUEUE,
    READINGS_PER_SECOND,
    average_query,
    cloud_worker,
    worker,
)
from outpace.studies.report import Figure, Row

#: What the paper calls the highest throughput of both queries, in events a second.
HIGHEST: Final = 21_000.0

#: The delay of its network, and the tick it takes with it, in seconds.
DELAY: Final = 0.001
NETWORK_TICK: Final = 0.01

#: Of each of the four queries of table 4, in events a second.
PLACED_RATE: Final = 10_000

#: How many of the four queries have vertices on each VM of a placement of table 4.
_QUERIES_ON_VMS: Final = {1: (4,), 2: (2, 2), 3: (4, 4), 4: (1, 1, 1, 1)}


def by_rate(
    query: Callable[[int], QueryModel],
    rates: Sequence[int],
    seconds: float,
    latency: Figure,
    throughput: Figure,
) -> Iterator[Row]:
    """Run a query on one VM at several rates (figures 11 and 12)."""
    yield from _rows(
        {rate: on_one_vm(query(rate // READINGS_PER_SECOND), seconds) for rate in rates},
        latency,
        throughput,
        HIGHEST,
    )


def networked(rates: Sequence[int], seconds: float) -> Iterator[Row]:
    """Run q1 on two VMs at several rates (figure 13)."""
    yield from _rows(
        {rate: on_two_vms(average_query(rate // READINGS_PER_SECOND), seconds) for rate in rates},
        figures.NETWORKED_LATENCY,
        figures.NETWORKED_THROUGHPUT,
        None,
    )


def placements(seconds: float) -> Iterator[Row]:
    """Run four copies of q1 on one, two and four VMs (table 4)."""
    name = figures.PLACEMENTS.name
    for number in _QUERIES_ON_VMS:
        queries = simulate(placed_copies(number, seconds), "fast").queries()
        latency = sum(queries["latency"].to_pylist()) / queries.num_rows
        throughput = sum(queries["throughput"].to_pylist()) / queries.num_rows
        place = f"placement {number}"
        yield Row(name, f"{place}, latency", 1000 * latency, "ms", None, "here", place)
        yield Row(
            name, f"{place}, throughput of a query", throughput, "events/s", float(PLACED_RATE)
        )


def placed_copies(placement: int, seconds: float) -> Scenario:
    """Return four copies of q1 in one of the placements of table 4."""
    query = average_query(PLACED_RATE // READINGS_PER_SECOND, CLOUD_COSTS)
    copies = [query.copy(str(number)) for number in range(4)]
    on_vms = _QUERIES_ON_VMS[placement]
    vms = [cloud_worker(f"worker-{n}") for n in range(len(on_vms))]
    if placement == 3:
        scenario = _placed(copies, vms, lambda number, vertex: int(_is_database(vertex)), seconds)
        return replace(scenario, network=ConstantDelay(DELAY), tick=NETWORK_TICK)
    return _placed(copies, vms, lambda number, vertex: number // on_vms[0], seconds)


def on_one_vm(query: QueryModel, seconds: float) -> Scenario:
    """Return a query on one of the paper's VMs, with its queues."""
    return _placed([query], [worker()], lambda number, vertex: 0, seconds)


def on_two_vms(query: QueryModel, seconds: float, tick: float = NETWORK_TICK) -> Scenario:
    """Return q1 with its database operator on a second VM, and the network."""
    vms = [worker("worker-1"), worker("worker-2")]
    scenario = _placed([query], vms, lambda number, vertex: int(_is_database(vertex)), seconds)
    return replace(scenario, network=ConstantDelay(DELAY), tick=tick)


def _placed(
    queries: Sequence[QueryModel],
    vms: Sequence[VM],
    place: Callable[[int, str], int],
    seconds: float,
) -> Scenario:
    """Place each vertex on a VM that is found by the number of its query and its own id."""
    placement = {
        vertex.id: vms[place(number, vertex.id)].id
        for number, query in enumerate(queries)
        for vertex in query.vertices
    }
    return Scenario(
        tuple(queries),
        tuple(vms),
        duration=seconds,
        placement=placement,
        queue=QUEUE,
        overflow="discard",
        warm_up=seconds / 3,
        sample=math.inf,
    )


def _is_database(vertex: str) -> bool:
    return vertex.split("/")[-1] == "database"


def _rows(
    scenarios: Mapping[int, Scenario],
    latency: Figure,
    throughput: Figure,
    highest: float | None,
) -> Iterator[Row]:
    """Simulate by rate; a row of latency and one of throughput for each, and the highest one."""
    reached = []
    for rate, scenario in scenarios.items():
        result: Result = simulate(scenario, "fast")
        setting = f"{rate:,} events/s"
        took = 1000 * result.latency("consumer")
        reached.append(result.throughput("consumer"))
        for figure, value in ((latency, took), (throughput, reached[-1])):
            yield Row(figure.name, setting, value, figure.unit, None, "here", rate)
    yield Row(throughput.name, "the highest of all", max(reached), "events/s", highest)
