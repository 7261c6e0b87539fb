"""A run in a few numbers, several runs with other seeds, and how sure their means are."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from outpace.errors import ScenarioError
from outpace.pattern.argument import an_instance
from outpace.simulate.changes import RandomFailures
from outpace.simulate.fields import checked
from outpace.simulate.generators import Poisson
from outpace.simulate.metrics import histogram_percentile
from outpace.simulate.model import Producer, Vertex
from outpace.simulate.result import Result
from outpace.simulate.run import Engine, simulate
from outpace.simulate.scenario import Scenario

#: The most runs with other seeds.
_SEEDS_MAX: Final = 1_000

#: The part of all means that lie within their intervals.
_SURE: Final = 0.95


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a few numbers.

    Parameters
    ----------
    latency, p50, p95, p99
        The average latency and its percentiles, in seconds, of the slowest consumer; infinite if it
        got nothing.
    throughput
        The produced events a second that came through to the consumer that least came through to.
    loss
        The greatest part, of any consumer, of what was on the way to it that was dropped.
    utilisation
        How much of the busiest VM was used.
    memory
        The bytes that were in use on any VM, at most.
    price
        What an hour of all VMs costs.
    """

    latency: float
    p50: float
    p95: float
    p99: float
    throughput: float
    loss: float
    utilisation: float
    memory: float
    price: float


def outcome_of(result: Result) -> RunSummary:
    """Return a run in a few numbers; instances of a rule count together.

    Parameters
    ----------
    result
        The run.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, QueryModel, Uniform
    >>> query = QueryModel("q", (Producer("in", Uniform(10), instructions=5e6), Consumer("out")),
    ...               (Edge("in", "out"),))
    >>> scenario = Scenario((query,), (VM("worker", mips=100, price=0.2),), 60, warm_up=10)
    >>> outcome = outcome_of(simulate(scenario))
    >>> round(outcome.latency, 6), round(outcome.throughput, 6), outcome.utilisation, outcome.price
    (0.05, 10.0, 0.5, 0.2)
    """
    an_instance(result, Result, "a result", error=ScenarioError)
    copies: dict[str, list[int]] = {}
    for place, name in enumerate(result.consumers()["consumer"].to_pylist()):
        copies.setdefault(name.partition("/")[2] if result.scaled else name, []).append(place)
    vms = result.vms()
    used = [part for part in vms["utilisation"].to_pylist() if not math.isnan(part)]
    whole = RunSummary(
        *(0.0, 0.0, 0.0, 0.0),
        throughput=math.inf,
        loss=0.0,
        utilisation=max(used, default=0.0),
        memory=max(vms["memory_max"].to_pylist()),
        price=result.price,
    )
    for places in copies.values():
        whole = _with_consumer(whole, result, places)
    return whole


def _with_consumer(whole: RunSummary, result: Result, places: list[int]) -> RunSummary:
    """Return an outcome that a consumer counts in, whose copies are at these places."""
    recording = result.recording
    events = recording.events[places]
    table = result.consumers().take(places)
    histogram = recording.histogram[places].sum(axis=0)
    percentiles = [histogram_percentile(histogram, p) for p in (50, 95, 99)]
    p50, p95, p99 = (math.inf if math.isnan(value) else value for value in percentiles)
    delay = float(events @ recording.latency[places])
    throughput = np.nan_to_num(table["throughput"].to_numpy())
    kept = 1.0 - table["loss"].to_numpy()
    came = np.divide(throughput, kept, out=np.zeros_like(throughput), where=kept > 0)
    return replace(
        whole,
        latency=max(whole.latency, delay / float(events.sum()) if events.any() else math.inf),
        p50=max(whole.p50, p50),
        p95=max(whole.p95, p95),
        p99=max(whole.p99, p99),
        throughput=min(whole.throughput, float(throughput.sum())),
        loss=max(
            whole.loss,
            1.0 - float(throughput.sum() / came.sum() if came.any() else kept.min()),
        ),
    )


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean of several runs, and how far the true one may be from it.

    Parameters
    ----------
    mean
        The mean.
    half
        Half of the interval in which the true mean lies, for 95 % of such intervals; NaN for one
        run.

    Examples
    --------
    >>> interval = Interval.of([10.0, 12.0, 11.0, 13.0])
    >>> interval.mean, round(interval.half, 3)
    (11.5, 2.054)
    """

    mean: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Return the mean of values and its interval, by Student's t.

        Parameters
        ----------
        values
            One of each run.
        """
        mean = statistics.fmean(values)
        if len(values) < 2 or not math.isfinite(mean):
            return cls(mean, math.nan)
        error = statistics.stdev(values) / math.sqrt(len(values))
        return cls(mean, _student(len(values) - 1) * error)


@dataclass(frozen=True, slots=True)
class Repeated:
    """What runs of a scenario with several seeds gave.

    Parameters
    ----------
    outcomes
        One for each run.
    """

    outcomes: tuple[RunSummary, ...]

    def interval(self, name: str) -> Interval:
        """Return the mean of a number of the outcomes, with its interval.

        Parameters
        ----------
        name
            The name of a field of `RunSummary`.
        """
        if name not in {field.name for field in fields(RunSummary)}:
            raise ScenarioError(f"an outcome has no {name!r}")
        return Interval.of([getattr(outcome, name) for outcome in self.outcomes])


def repeat(
    scenario: Scenario,
    seeds: int,
    *,
    engine: Engine | None = None,
    on_simulation: Callable[[int], None] = lambda _: None,
) -> Repeated:
    """Simulate a scenario several times, each time with other seeds.

    Parameters
    ----------
    scenario
        What to simulate. Its Poisson generators and random failures are what differs; the first run
        has the seeds that they are written with.
    seeds
        How many runs there are.
    engine
        What simulates; the fastest that can if it is not given.
    on_simulation
        Told how many runs are done.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, QueryModel
    >>> query = QueryModel("q", (Producer("in", Poisson(50, seed=1), 1e6), Consumer("out")),
    ...               (Edge("in", "out"),))
    >>> scenario = Scenario((query,), (VM("worker", mips=100),), duration=60, warm_up=10)
    >>> throughput = repeat(scenario, 5).interval("throughput")
    >>> abs(throughput.mean - 50) < throughput.half < 2
    True
    """
    an_instance(scenario, Scenario, "a scenario", error=ScenarioError)
    seeds = checked(seeds, int, "the number of seeds")
    if not 1 <= seeds <= _SEEDS_MAX:
        raise ScenarioError(f"the number of seeds is not 1 to {_SEEDS_MAX}: {seeds}")
    if seeds > 1 and not is_random(scenario):
        raise ScenarioError(
            "every seed gives the same: nothing in the scenario is random",
            hint="a generator may be Poisson, a machine may have failures",
        )
    outcomes = []
    for number in range(seeds):
        outcomes.append(outcome_of(simulate(reseeded(scenario, number), engine)))
        on_simulation(number + 1)
    return Repeated(tuple(outcomes))


def is_random(scenario: Scenario) -> bool:
    """Return whether other seeds give other results."""
    return any(isinstance(change, RandomFailures) for change in scenario.changes) or any(
        isinstance(vertex, Producer) and isinstance(vertex.generator, Poisson)
        for vertex in scenario.vertices().values()
    )


def reseeded(scenario: Scenario, number: int) -> Scenario:
    """Return a scenario with other seeds; with those that it has for the number 0."""
    if not number:
        return scenario

    def other(seed: int) -> int:
        return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])

    def changed(vertex: Vertex) -> Vertex:
        if not isinstance(vertex, Producer) or not isinstance(vertex.generator, Poisson):
            return vertex
        generator = replace(vertex.generator, seed=other(vertex.generator.seed))
        return replace(vertex, generator=generator)

    return replace(
        scenario,
        queries=tuple(
            replace(query, vertices=tuple(map(changed, query.vertices)))
            for query in scenario.queries
        ),
        changes=tuple(
            replace(change, seed=other(change.seed))
            if isinstance(change, RandomFailures)
            else change
            for change in scenario.changes
        ),
    )


@functools.cache
def _student(freedom: int) -> float:
    """Return how many standard errors an interval has on each side, by halving.

    Examples
    --------
    >>> [round(_student(freedom), 3) for freedom in (1, 4, 30)]
    [12.706, 2.776, 2.042]
    """
    below, above = 0.0, 1000.0
    while above - below > 1e-6:
        middle = (below + above) / 2
        if _within(middle, freedom) < _SURE:
            below = middle
        else:
            above = middle
    return above


def _within(errors: float, freedom: int) -> float:
    """Return how likely Student's t is within so many standard errors.

    With t = √freedom · tan(angle) it is the area under a power of the cosine.
    """
    angles = np.linspace(0.0, math.atan(errors / math.sqrt(freedom)), 2_001)
    heights = np.cos(angles) ** (freedom - 1)
    weights = np.full(len(angles), 2.0)
    weights[1::2] = 4.0
    weights[0] = weights[-1] = 1.0
    area = float(weights @ heights) * float(angles[1] - angles[0]) / 3  # Simpson's rule
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    return 2 * math.exp(scale) / math.sqrt(math.pi) * area
