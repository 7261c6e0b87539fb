"""Latency and throughput of the CEPSim paper's queries (section 6.4): figures 11–13, table 4."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from outpace.simulate import VM, ConstantDelay, Query, Result, Scenario, simulate
from outpace.studies import cepsim_figures as figures
from outpace.studies.cepsim_queries import QUEUE, READINGS_PER_SECOND, average_query, worker
from outpace.studies.report import Figure, Row

#: What the paper calls the highest throughput of both queries, in events a second.
HIGHEST: Final = 21_000.0

#: The delay of its network, and the tick it takes with it, in seconds.
DELAY: Final = 0.001
NETWORK_TICK: Final = 0.01

#: Of each of the four queries of table 4, in events a second.
PLACED_RATE: Final = 10_000


def by_rate(
    query: Callable[[int], Query],
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
        {rate: on_two_vms([average_query(rate // READINGS_PER_SECOND)], seconds) for rate in rates},
        figures.NETWORKED_LATENCY,
        figures.NETWORKED_THROUGHPUT,
        None,
    )


def placements(seconds: float) -> Iterator[Row]:
    """Run four copies of q1 on one, two and four VMs (table 4)."""
    query = average_query(PLACED_RATE // READINGS_PER_SECOND)
    copies = [query.copy(str(number)) for number in range(4)]
    one, two, four = (tuple(worker(f"worker-{n}") for n in range(count)) for count in (1, 2, 4))
    scenarios = {
        1: _placed(copies, one, lambda number, vertex: 0, seconds),
        2: _placed(copies, two, lambda number, vertex: number // 2, seconds),
        3: _placed(copies, two, lambda number, vertex: int(_is_database(vertex)), seconds),
        4: _placed(copies, four, lambda number, vertex: number, seconds),
    }
    name = figures.PLACEMENTS.name
    for number, scenario in scenarios.items():
        queries = simulate(scenario, "fast").queries()
        latency = sum(queries["latency"].to_pylist()) / len(copies)
        throughput = sum(queries["throughput"].to_pylist()) / len(copies)
        setting = f"placement {number}"
        yield Row(
            name, f"{setting}, latency", 1000 * latency, "ms", None, "here", f"placement {number}"
        )
        yield Row(
            name, f"{setting}, throughput of a query", throughput, "events/s", float(PLACED_RATE)
        )


def on_one_vm(query: Query, seconds: float) -> Scenario:
    """Return a query on one of the paper's VMs, with its queues."""
    return _placed([query], [worker()], lambda number, vertex: 0, seconds)


def on_two_vms(queries: Sequence[Query], seconds: float, tick: float = NETWORK_TICK) -> Scenario:
    """Return copies of q1 with their database operators on a second VM, and the network."""
    vms = [worker("worker-1"), worker("worker-2")]
    scenario = _placed(queries, vms, lambda number, vertex: int(_is_database(vertex)), seconds)
    return replace(scenario, network=ConstantDelay(DELAY), tick=tick)


def _placed(
    queries: Sequence[Query],
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
        yield Row(latency.name, setting, took, "ms", None, "here", rate)
        yield Row(throughput.name, setting, reached[-1], "events/s", None, "here", rate)
    yield Row(throughput.name, "the highest of all", max(reached), "events/s", highest)
