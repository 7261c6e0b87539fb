"""The study `cepsim`: the experiments of the CEPSim paper (section 6) on this simulator.

`SOURCE` in `cepsim_figures` names the paper. Latencies and throughputs are simulated and the same
on every machine; times and memory are measured.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from outpace.errors import OutpaceError
from outpace.simulate import (
    DynamicScheduling,
    Scenario,
    SimpleScheduling,
    UniformAllocation,
    WeightedAllocation,
    simulate,
)
from outpace.simulate.instances import many_instances
from outpace.studies import cepsim_figures as figures
from outpace.studies import cepsim_validation
from outpace.studies.cepsim_queries import READINGS_PER_SECOND, average_query, convert_query
from outpace.studies.cepsim_validation import on_one_vm, on_two_vms
from outpace.studies.report import Figure, Row, Study

#: What the paper says, by the number of queries: seconds, and megabytes.
ONE_VM: Final = {100: (7.0, 40.0)}
MANY_VMS: Final = {10_000: (420.0, 1000.0)}

#: The rate of a query of table 5, in events a second.
TICK_RATE: Final = 10_000

#: How often a simulation is timed.
_TIMES: Final = 3


@dataclass(frozen=True, slots=True)
class CepSimScale:
    """How much the study does.

    Parameters
    ----------
    seconds, network_seconds
        The simulated time of each run of figures 11, 12, 16 and of 13, the tables.
    rates, network_rates, strategy_rates
        Events a second.
    repeat
        How often the simulations of figures 14 and 15 are timed.
    queries
        Numbers of queries on one VM.
    vms_of_10, vms_of_100
        Numbers of VMs with 10 and with 100 queries each.
    ticks
        Lengths of ticks, in seconds.
    tick_queries, tick_seconds
        How many queries are timed with each tick, and their simulated time.
    """

    seconds: float
    network_seconds: float
    rates: tuple[int, ...]
    network_rates: tuple[int, ...]
    strategy_rates: tuple[int, ...]
    repeat: int
    queries: tuple[int, ...]
    vms_of_10: tuple[int, ...]
    vms_of_100: tuple[int, ...]
    ticks: tuple[float, ...]
    tick_queries: int
    tick_seconds: float


QUICK: Final = CepSimScale(
    seconds=90.0,
    network_seconds=90.0,
    rates=(10, 100, 1_000, 10_000, 20_000, 22_500),
    network_rates=(1_000, 20_000, 30_000),
    strategy_rates=(100, 500, 10_000),
    repeat=1,
    queries=(1, 10, 100),
    vms_of_10=(10, 100),
    vms_of_100=(1, 10),
    ticks=(0.01, 0.1, 1.0),
    tick_queries=10,
    tick_seconds=60.0,
)

WHOLE: Final = CepSimScale(
    seconds=900.0,
    network_seconds=900.0,
    rates=(10, 50, 100, 500, 1_000, 5_000, 10_000, 15_000, 17_500, 20_000, 22_500, 25_000),
    network_rates=(100, 1_000, 5_000, 10_000, 15_000, 20_000, 25_000, 27_500, 30_000, 32_500),
    strategy_rates=(100, 500, 10_000),
    repeat=5,
    queries=(1, 10, 20, 40, 60, 80, 100),
    vms_of_10=(10, 100, 500, 1_000),
    vms_of_100=(1, 10, 50, 100),
    ticks=(0.01, 0.05, 0.1, 0.5, 1.0),
    tick_queries=100,
    tick_seconds=300.0,
)


def cepsim_study(scale: CepSimScale) -> Study:
    """Return the study with its experiments set to a scale."""
    seconds, rates = scale.seconds, scale.rates
    return Study(
        name="cepsim",
        title="Simulating the capacity of event processing",
        source=figures.SOURCE,
        figures=figures.FIGURES,
        experiments=(
            (
                "11 q1 by rate",
                partial(
                    cepsim_validation.by_rate,
                    average_query,
                    rates,
                    seconds,
                    figures.Q1_LATENCY,
                    figures.Q1_THROUGHPUT,
                ),
            ),
            (
                "12 q2 by rate",
                partial(
                    cepsim_validation.by_rate,
                    convert_query,
                    rates,
                    seconds,
                    figures.Q2_LATENCY,
                    figures.Q2_THROUGHPUT,
                ),
            ),
            (
                "13 q1 on two VMs",
                partial(cepsim_validation.networked, scale.network_rates, scale.network_seconds),
            ),
            ("table 4 placements", partial(cepsim_validation.placements, seconds)),
            ("14 many queries on one VM", partial(one_vm, scale.queries, scale.repeat)),
            ("15 many queries on many VMs", partial(_many_vms, scale)),
            (
                "16 scheduling and allocation",
                partial(strategies, scale.strategy_rates, seconds),
            ),
            (
                "table 5 ticks",
                partial(ticks, scale.ticks, scale.tick_queries, scale.tick_seconds),
            ),
        ),
    )


def _many_vms(scale: CepSimScale) -> Iterator[Row]:
    yield from many_vms(10, scale.vms_of_10, scale.repeat)
    yield from many_vms(100, scale.vms_of_100, scale.repeat)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a simulation took."""

    seconds: float
    peak_bytes: int


def one_vm(counts: Sequence[int], repeat: int) -> Iterator[Row]:
    """Simulate several numbers of copies of q2 on one VM (figure 14)."""
    for queries in counts:
        cost = cost_of(queries, 1, repeat)
        paper = ONE_VM.get(queries, (None, None))
        setting = f"{queries:,} queries"
        yield from _cost_rows(
            figures.TIME_ONE, figures.MEMORY_ONE, setting, cost, paper, "here", queries
        )


def many_vms(queries_per_vm: int, vms: Sequence[int], repeat: int) -> Iterator[Row]:
    """Simulate several numbers of VMs with the same number of copies of q2 on each (figure 15)."""
    for count in vms:
        queries = count * queries_per_vm
        cost = cost_of(queries, count, repeat)
        paper = MANY_VMS.get(queries, (None, None))
        setting = f"{queries:,} queries, {queries_per_vm} on each VM"
        curve = f"{queries_per_vm} queries on each VM"
        yield from _cost_rows(
            figures.TIME_MANY, figures.MEMORY_MANY, setting, cost, paper, curve, queries
        )


def cost_of(queries: int, vms: int, repeat: int) -> Cost:
    """Simulate copies of q2 in a process of its own, that of `outpace bench --host simulate`.

    It simulates one query first, so that compiled code is loaded. The time is the median of so many
    runs, the memory what the peak has grown by.
    """
    arguments = [str(number) for number in (queries, vms, repeat)]
    done = subprocess.run(
        [sys.executable, "-m", "outpace.bench.simulate", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OutpaceError("a simulation in a process of its own failed", detail=done.stderr)
    found = json.loads(done.stdout)
    return Cost(found["seconds"], found["peak_bytes"])


def _cost_rows(
    time: Figure,
    memory: Figure,
    setting: str,
    cost: Cost,
    paper: tuple[float | None, float | None],
    curve: str,
    at: int,
) -> Iterator[Row]:
    yield Row(time.name, setting, cost.seconds, "s", paper[0], curve, at)
    yield Row(memory.name, setting, cost.peak_bytes / 1e6, "MB", paper[1], curve, at)


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
                curve = f"{first}, {second}"
                for figure, value in (
                    (figures.STRATEGY_LATENCY, 1000 * result.latency("consumer")),
                    (figures.STRATEGY_THROUGHPUT, result.throughput("consumer")),
                ):
                    setting = f"{curve}, {rate:,} events/s"
                    yield Row(figure.name, setting, value, figure.unit, None, curve, rate)


def ticks(lengths: Sequence[float], copies: int, seconds: float) -> Iterator[Row]:
    """Run q1 with ticks of several lengths, on one VM and on two (table 5)."""
    query = average_query(TICK_RATE // READINGS_PER_SECOND)
    kinds: tuple[tuple[str, Callable[[float], Scenario]], ...] = (
        ("one VM", lambda tick: replace(on_one_vm(query, seconds), tick=tick)),
        ("two VMs", lambda tick: on_two_vms(query, seconds, tick)),
    )
    as_there = (copies, seconds) == (figures.TICK_QUERIES, figures.TICK_SECONDS)
    for curve, scenario in kinds:
        for tick in lengths:
            at = round(1000 * tick)
            setting = f"{curve}, ticks of {at} ms"
            latency, took = figures.TICKS.get((curve, at), (None, None))
            found = 1000 * simulate(scenario(tick), "fast").latency("consumer")
            yield Row(figures.TICK_LATENCY.name, setting, found, "ms", latency, curve, at)
            yield Row(
                figures.TICK_TIME.name,
                f"{setting}, {copies} queries, {seconds:g} s",
                _seconds_of(many_instances(scenario(tick), copies)),
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
