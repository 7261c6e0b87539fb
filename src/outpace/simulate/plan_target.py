"""Whether a simulated system is good enough: whether it keeps up and is fast enough.

A system keeps up if nothing in it would have to be busier than all the time, it drops nothing, and
what waits in it does not grow. The first is arithmetic, over whole cycles of bursts; the others are
seen in a run that is as long as it has to be: once windows have closed and a cycle has passed, it
has an even number of whole cycles of bursts, windows and batches, and on average no more waits
before any vertex in the second half of them than in the first, by 0.5 % of what the vertex
processes. So it sees what scheduling, bounded queues and networks do to what arithmetic allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np

from outpace.errors import ScenarioError
from outpace.simulate.fields import check_fields
from outpace.simulate.generators import Bursty, Generator, Poisson, Uniform
from outpace.simulate.layout import SAME_TIME
from outpace.simulate.model import BatchOperator, Producer, WindowedOperator
from outpace.simulate.placement_flow import busiest
from outpace.simulate.result import Result
from outpace.simulate.scenario import Scenario

#: How much more may wait in the second half of a run, as a part of what is processed in it.
GROWTH: Final = 0.005

#: The steps of the history of a run that is judged, without the warm-up, where it has no cycles.
STEPS: Final = 40

#: A cycle has about so many steps, so that what waits is seen at all times of it.
_CYCLE_STEPS: Final = 16

#: A cycle of everything together is at most so many times the longest of a part.
_CYCLES_MAX: Final = 24

#: By chance there may be so many times the root of the number of events more than were expected.
_CHANCE: Final = 4.0


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """How fast events must come through to every consumer.

    Parameters
    ----------
    seconds
        The latency.
    percentile
        The part of the events, in percent, that must not take longer.

    Examples
    --------
    >>> LatencyTarget(0.5).percentile
    99.0
    """

    seconds: float
    percentile: float = 99.0

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 < self.seconds < math.inf:
            raise ScenarioError(f"the latency to meet is no time above 0 s: {self.seconds}")
        if not 0 < self.percentile <= 100:
            raise ScenarioError(f"the percentile is not above 0 and up to 100: {self.percentile}")


def judged(scenario: Scenario) -> Scenario:
    """Return a scenario whose run shows whether it keeps up, however long it runs by itself.

    Where rates change, by changes or by what was recorded, the length is as it is.

    Examples
    --------
    >>> from outpace.simulate import VM, Bursty, Consumer, Edge, Producer, QueryModel
    >>> query = QueryModel("q", (Producer("in", Bursty(100, on=5, off=55)), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> run = judged(Scenario((query,), (VM("worker", mips=100),), duration=110))
    >>> run.warm_up, run.duration
    (60.0, 180.0)
    """
    generators = [
        vertex.generator for vertex in scenario.vertices().values() if isinstance(vertex, Producer)
    ]
    if scenario.changes or not all(
        isinstance(one, Uniform | Poisson | Bursty) for one in generators
    ):
        return replace(scenario, sample=(scenario.duration - scenario.warm_up) / STEPS)
    cycle = _cycle(scenario, generators)
    settled = max(float(scenario.warm_up), _settling(scenario) + cycle)
    ticks = round(cycle / scenario.tick)
    if not ticks:
        ticks = STEPS // 2
        ticks *= max(1, math.ceil((scenario.duration - settled) / (2 * ticks * scenario.tick)))
    step = max(n for n in range(1, max(1, ticks // _CYCLE_STEPS) + 1) if ticks % n == 0)
    warm = step * math.ceil(settled / (step * scenario.tick) - SAME_TIME)
    cycles = max(1, math.ceil((scenario.duration / scenario.tick - warm) / (2 * ticks)))
    return replace(
        scenario,
        warm_up=warm * scenario.tick,
        duration=(warm + 2 * cycles * ticks) * scenario.tick,
        sample=step * scenario.tick,
    )


def keeps_up(result: Result) -> bool:
    """Return whether the run of a judged scenario drops nothing and nothing falls behind.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Scenario, Uniform
    >>> from outpace.simulate import simulate
    >>> def at(rate):
    ...     query = QueryModel("q", (Producer("in", Uniform(rate), 1e6), Consumer("out")),
    ...                   (Edge("in", "out"),))
    ...     scenario = Scenario((query,), (VM("worker", mips=100),), duration=20)
    ...     return keeps_up(simulate(judged(scenario)))
    >>> at(100), at(101)
    (True, False)
    """
    recording, scenario = result.recording, result.layout.scenario
    if recording.dropped.any():
        return False
    if not scenario.changes and busiest(scenario).part > 1 + SAME_TIME:
        return False
    counted = np.flatnonzero(result.times > scenario.warm_up + SAME_TIME)
    half = len(counted) // 2
    first, second = counted[:half], counted[half : 2 * half]
    for steps in (first, second):
        if not recording.consumer_events[steps].any(axis=0).all():
            return False
    growth = recording.vertex_queue[second].mean(axis=0)
    growth -= recording.vertex_queue[first].mean(axis=0)
    processed = recording.vertex_processed[second].sum(axis=0)
    produced = processed[list(result.layout.producers)].sum()
    # Events come in whole numbers, and by chance where they do so at random.
    uneven = 2.0 + _CHANCE * math.sqrt(produced) * _is_random(scenario)
    allowed = GROWTH * processed + uneven * np.maximum(1.0, processed / max(1.0, produced))
    return bool((growth <= allowed).all())


def _cycle(scenario: Scenario, generators: Sequence[Generator]) -> float:
    """Return after how many seconds bursts, windows and batches begin together again."""
    periods = [one.on + one.off for one in generators if isinstance(one, Bursty)]
    for vertex in scenario.vertices().values():
        if isinstance(vertex, WindowedOperator):
            periods.append(vertex.period)
        elif isinstance(vertex, BatchOperator) and vertex.interval:
            periods.append(vertex.interval)
    exact = {Fraction(period).limit_denominator(10**6) for period in periods}
    if not exact:
        return 0.0
    together = Fraction(
        math.lcm(*(one.numerator for one in exact)), math.gcd(*(one.denominator for one in exact))
    )
    return float(min(together, _CYCLES_MAX * max(exact)))


def _settling(scenario: Scenario) -> float:
    """Return how long it takes until every window of a query has closed, one behind the other."""
    return max(
        sum(vertex.window for vertex in query.vertices if isinstance(vertex, WindowedOperator))
        for query in scenario.queries
    )


def _is_random(scenario: Scenario) -> bool:
    return any(
        isinstance(vertex, Producer) and isinstance(vertex.generator, Poisson)
        for vertex in scenario.vertices().values()
    )


def worst_percentile(result: Result, percentile: float) -> float:
    """Return the latency percentile of the slowest consumer; infinite if one got nothing."""
    names = [result.layout.vertices[number].id for number in result.layout.consumers]
    found = [result.percentile(name, percentile) for name in names]
    return max((math.inf if math.isnan(value) else value for value in found), default=math.inf)
