"""What settings of the simulator do (the CEPSim paper, section 6.6): figure 16 and table 5."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from outpace.simulate import (
    DynamicScheduling,
    Query,
    Scenario,
    SimpleScheduling,
    UniformAllocation,
    WeightedAllocation,
    simulate,
)
from outpace.studies import cepsim_figures as figures
from outpace.studies.cepsim_queries import READINGS_PER_SECOND, average_query
from outpace.studies.cepsim_validation import on_one_vm, on_two_vms
from outpace.studies.report import Row

#: The rate of a query of table 5, in events a second.
TICK_RATE: Final = 100

#: How often a simulation is timed.
_TIMES: Final = 3


def strategies(rates: Sequence[int], seconds: float) -> Iterator[Row]:
    """Run q1 with all combinations of scheduling and allocation (figure 16)."""
    for scheduling, first in ((SimpleScheduling(), "simple"), (DynamicScheduling(), "dynamic")):
        for allocation, second in (
            (UniformAllocation(), "uniform"),
            (WeightedAllocation(), "weighted"),
        ):
            for rate in rates:
                scenario = on_one_vm(average_query(rate // READINGS_PER_SECOND), seconds)
                result = simulate(
                    replace(scenario, scheduling=scheduling, allocation=allocation), "fast"
                )
                curve, setting = f"{first}, {second}", f"{first}, {second}, {rate:,} events/s"
                took = 1000 * result.latency("consumer")
                yield Row(figures.STRATEGY_LATENCY.name, setting, took, "ms", None, curve, rate)
                yield Row(
                    figures.STRATEGY_THROUGHPUT.name,
                    setting,
                    result.throughput("consumer"),
                    "events/s",
                    None,
                    curve,
                    rate,
                )


def ticks(lengths: Sequence[float], copies: int, seconds: float) -> Iterator[Row]:
    """Run q1 with ticks of several lengths, on one VM and on two (table 5)."""
    query = average_query(TICK_RATE // READINGS_PER_SECOND)
    many = [query.copy(str(number)) for number in range(copies)]
    kinds: tuple[tuple[str, Callable[[Sequence[Query], float], Scenario]], ...] = (
        ("one VM", lambda queries, tick: _locally(queries, seconds, tick)),
        ("two VMs", lambda queries, tick: on_two_vms(queries, seconds, tick)),
    )
    for curve, scenario in kinds:
        for tick in lengths:
            at = round(1000 * tick)
            setting = f"{curve}, ticks of {at} ms"
            latency = simulate(scenario([query], tick), "fast").latency("consumer")
            yield Row(figures.TICK_LATENCY.name, setting, 1000 * latency, "ms", None, curve, at)
            took = _seconds_of(scenario(many, tick))
            timed = f"{setting}, {copies} queries, {seconds:g} s"
            yield Row(figures.TICK_TIME.name, timed, took, "s", None, curve, at)


def _locally(queries: Sequence[Query], seconds: float, tick: float) -> Scenario:
    whole = on_one_vm(queries[0], seconds)
    vm = whole.vms[0].id
    placement = {vertex.id: vm for query in queries for vertex in query.vertices}
    return replace(whole, queries=tuple(queries), placement=placement, tick=tick)


def _seconds_of(scenario: Scenario) -> float:
    taken = []
    for _ in range(_TIMES):
        started = time.perf_counter()
        simulate(scenario, "fast")
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)
