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
TICK_RATE: Final = 10_000

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
                scenario = on_one_vm([average_query(rate // READINGS_PER_SECOND)], seconds)
                result = simulate(
                    replace(scenario, scheduling=scheduling, allocation=allocation), "fast"
                )
                curve = f"{first}, {second}"
                for figure, value in (
                    (figures.STRATEGY_LATENCY, 1000 * result.latency("consumer")),
                    (figures.STRATEGY_THROUGHPUT, result.throughput("consumer")),
                ):
                    said = figures.said_of_strategy(figure, first, second, rate)
                    setting = f"{curve}, {rate:,} events/s"
                    yield Row(figure.name, setting, value, figure.unit, said, curve, rate)


def ticks(lengths: Sequence[float], copies: int, seconds: float) -> Iterator[Row]:
    """Run q1 with ticks of several lengths, on one VM and on two (table 5)."""
    query = average_query(TICK_RATE // READINGS_PER_SECOND)
    many = [query.copy(str(number)) for number in range(copies)]
    kinds: tuple[tuple[str, Callable[[Sequence[Query], float], Scenario]], ...] = (
        ("one VM", lambda queries, tick: replace(on_one_vm(queries, seconds), tick=tick)),
        ("two VMs", lambda queries, tick: on_two_vms(queries, seconds, tick)),
    )
    as_there = (copies, seconds) == (figures.TICK_QUERIES, figures.TICK_SECONDS)
    for curve, scenario in kinds:
        for tick in lengths:
            at = round(1000 * tick)
            setting = f"{curve}, ticks of {at} ms"
            latency, took = figures.TICKS.get((curve, at), (None, None))
            found = 1000 * simulate(scenario([query], tick), "fast").latency("consumer")
            yield Row(figures.TICK_LATENCY.name, setting, found, "ms", latency, curve, at)
            yield Row(
                figures.TICK_TIME.name,
                f"{setting}, {copies} queries, {seconds:g} s",
                _seconds_of(scenario(many, tick)),
                "s",
                took if as_there else None,
                curve,
                at,
            )


def _seconds_of(scenario: Scenario) -> float:
    taken = []
    for _ in range(_TIMES):
        started = time.perf_counter()
        simulate(scenario, "fast")
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)
