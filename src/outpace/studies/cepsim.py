"""The study `cepsim`: the experiments of the CEPSim paper (section 6) on this simulator.

`SOURCE` in `cepsim_figures` names the paper. Latencies and throughputs are simulated and the same
on every machine; times and memory are measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from outpace.studies import cepsim_figures as figures
from outpace.studies import cepsim_parameters, cepsim_scale, cepsim_validation
from outpace.studies.cepsim_queries import average_query, convert_query
from outpace.studies.report import Row, Study


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
            (
                "14 many queries on one VM",
                partial(cepsim_scale.one_vm, scale.queries, scale.repeat),
            ),
            ("15 many queries on many VMs", partial(_many_vms, scale)),
            (
                "16 scheduling and allocation",
                partial(cepsim_parameters.strategies, scale.strategy_rates, seconds),
            ),
            (
                "table 5 ticks",
                partial(
                    cepsim_parameters.ticks, scale.ticks, scale.tick_queries, scale.tick_seconds
                ),
            ),
        ),
    )


def _many_vms(scale: CepSimScale) -> Iterator[Row]:
    yield from cepsim_scale.many_vms(10, scale.vms_of_10, scale.repeat)
    yield from cepsim_scale.many_vms(100, scale.vms_of_100, scale.repeat)
