"""How many instances of a scenario a rate needs to meet a latency target, and where the knee is.

The knee is the greatest rate that an instance keeps up with: below it what waits does not grow in
the long run, above it the latency grows for as long as the run lasts. It is the rate at which
something is busy all the time, by arithmetic, where a simulation just below it keeps up; otherwise
halving finds it, to within 1 %, below that. In the same way the plan finds up to which rate an
instance meets the target, and then tries numbers of instances around what follows from that, each
by simulation. The memory is that of one simulation, and a few numbers for each.

An instance is all that a scenario has: its queries, on its VMs. Several instances are as many
copies of both, and each copy gets an equal part of the events, as when events go to instances by
the hash of a key. Copies that share no host have nothing to do with each other, so one of them is
simulated for all; with hosts, all copies are simulated, as they compete there. What a window sends
by a constant number stays constant at every rate and in each instance; where more input means more
output, the combination is a share.

Where an instance meets the target at no rate, the plan looks for one that does: with shorter
intervals between batches, which cost no money, and then with more processors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from outpace.errors import ScenarioError
from outpace.pattern.argument import a_number, an_instance
from outpace.simulate.changes import SetRate
from outpace.simulate.generators import (
    Bursty,
    Generator,
    Poisson,
    Times,
    Totals,
    Uniform,
    whole_events,
)
from outpace.simulate.instances import many_instances
from outpace.simulate.model import BatchOperator, Producer, Vertex
from outpace.simulate.placement_flow import busiest, mean_rates, saturation
from outpace.simulate.plan_target import LatencyTarget, judged, keeps_up, worst_percentile
from outpace.simulate.run import Engine, simulate
from outpace.simulate.scenario import Scenario

#: The most instances that a plan tries.
INSTANCES_MAX: Final = 10_000

#: How far a knee that was found may be from the true one, as a part of it.
PRECISION: Final = 0.01

#: Rates at which an instance may meet the target that it does not meet at its knee, as parts of it.
_TRIED: Final = (0.1, 0.4, 0.7, 0.9)

#: How often intervals are halved and processors doubled where an instance meets the target at no
#: rate, and how many ticks an interval has at least.
_DOUBLINGS: Final = 4
_TICKS_OF_BATCH: Final = 20

#: The rates of the curves, as parts of the knee.
_PARTS: Final = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.15, 1.3)


@dataclass(frozen=True, slots=True)
class Load:
    """What a rate does to a number of instances.

    Parameters
    ----------
    instances, vms, processors
        The number of instances, and of the VMs of all of them with their processors.
    rate
        The events a second of all producers of all instances.
    latency, percentile
        The average latency and the target's percentile of the slowest consumer, in seconds;
        infinite if it got nothing.
    throughput
        How many of the events that producers make in a second come through to the consumer that
        gets the least of them, of all instances.
    utilisation
        How much of the busiest VM is used.
    keeps_up, meets_target
        Whether the latency does not grow, and whether it is also short enough and the memory is
        enough.
    loss
        The greatest part, of any consumer, of what was on the way to it that was dropped.
    memory
        The greatest part of its memory that a VM needs; 0.0 where VMs do not say what they have.
    """

    instances: int
    vms: int
    processors: int
    rate: float
    latency: float
    percentile: float
    throughput: float
    utilisation: float
    keeps_up: bool
    meets_target: bool
    loss: float
    memory: float


@dataclass(frozen=True, slots=True)
class HardwarePlan:
    """What a rate needs.

    Parameters
    ----------
    rate, target
        The rate and the latency that are to be met.
    instances
        The least number of instances that meets the target; None if no number does.
    knee
        The greatest rate, in events a second, that one instance keeps up with.
    capacity
        The greatest rate at which one instance meets the target; 0.0 if it never does.
    binds
        What allows no more than the capacity.
    changed
        How an instance differs from that of the scenario, which meets the target at no rate.
    choices
        The rate that was asked for on numbers of instances up to one more than needed.
    curves
        Rates up to beyond the knee on some of these numbers of instances.
    """

    rate: float
    target: LatencyTarget
    instances: int | None
    knee: float
    capacity: float
    binds: str
    changed: tuple[str, ...]
    choices: tuple[Load, ...]
    curves: tuple[Load, ...]

    @property
    def needed(self) -> Load | None:
        """The load on the instances that are needed."""
        return next((load for load in self.choices if load.instances == self.instances), None)


def plan(
    scenario: Scenario,
    rate: float,
    target: LatencyTarget,
    *,
    engine: Engine | None = None,
    on_simulation: Callable[[int], None] = lambda _: None,
) -> HardwarePlan:
    """Find out how many instances of a scenario a rate needs.

    Parameters
    ----------
    scenario
        One instance. Its rates count only in proportion to each other.
    rate
        The events a second of all producers together.
    target
        What to meet.
    engine
        What simulates; the fastest that can if it is not given.
    on_simulation
        Told how many simulations are done.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, OperatorModel, Producer
    >>> from outpace.simulate import QueryModel, Uniform
    >>> query = QueryModel("q", (Producer("in", Uniform(10)), OperatorModel("op", 1e6),
    ...                          Consumer("out")), (Edge("in", "op"), Edge("op", "out")))
    >>> scenario = Scenario((query,), (VM("worker", mips=100),), duration=20)
    >>> found = plan(scenario, 250, LatencyTarget(0.2))
    >>> found.instances, 97 < found.knee < 103
    (3, True)
    """
    an_instance(scenario, Scenario, "a scenario", error=ScenarioError)
    an_instance(target, LatencyTarget, "a LatencyTarget", error=ScenarioError)
    rate = a_number(rate, "the rate", error=ScenarioError)
    if not 0 < rate < math.inf:
        raise ScenarioError(f"the rate to plan for is not a number above 0: {rate}")
    count = itertools.count(1)

    def tried(one: Scenario, changed: tuple[str, ...] = ()) -> _Instance:
        loads = _Loads(one, target, engine, lambda: on_simulation(next(count)))
        knee = _knee(loads, one)
        return _Instance(one, loads, knee, _capacity(loads, knee), changed)

    instance = tried(scenario)
    if not instance.capacity:
        others = (tried(one, changed) for one, changed in _alternatives(scenario))
        instance = next((other for other in others if other.capacity), instance)
    binds = _binding(instance, tried)
    loads, knee, capacity = instance.loads, instance.knee, instance.capacity
    instances = _instances(loads, rate, capacity)
    last = min(INSTANCES_MAX, math.ceil(rate / knee) if instances is None else instances) + 1
    choices = loads.on(rate, _some_up_to(last, 8))
    counts = sorted({1, last - 1, last}) if last <= INSTANCES_MAX else [1]
    curves = tuple(
        load
        for count in counts
        for part in _PARTS
        for load in loads.on(part * knee * count, [count])
    )
    return HardwarePlan(
        rate, target, instances, knee, capacity, binds, instance.changed, choices, curves
    )


@dataclass(frozen=True, slots=True)
class _Instance:
    """What can be an instance, with what was found of it."""

    scenario: Scenario
    loads: _Loads
    knee: float
    capacity: float
    changed: tuple[str, ...]


def _alternatives(scenario: Scenario) -> Iterator[tuple[Scenario, tuple[str, ...]]]:
    """Yield instances with shorter intervals between batches, then with more processors, too."""
    for doubled in range(_DOUBLINGS + 1):
        try:
            wider, processors = _with_processors(scenario, 2**doubled)
        except ScenarioError:
            # No host has room for it.
            return
        for halved in range(_DOUBLINGS + 1):
            shorter, intervals = _with_intervals(wider, 2**halved)
            if doubled + halved and (intervals or not halved):
                yield shorter, (*processors, *intervals)


def _with_intervals(scenario: Scenario, parts: int) -> tuple[Scenario, tuple[str, ...]]:
    """Return a scenario with so many times as many batches, and what is different."""
    changed: dict[str, BatchOperator] = {}
    for name, vertex in scenario.vertices().items():
        if isinstance(vertex, BatchOperator) and vertex.interval and parts > 1:
            changed[name] = replace(vertex, interval=vertex.interval / parts)
    if not changed:
        return scenario, ()
    queries = tuple(
        replace(query, vertices=tuple(changed.get(one.id, one) for one in query.vertices))
        for query in scenario.queries
    )
    least = min(vertex.interval for vertex in changed.values())
    tick = min(scenario.tick, least / _TICKS_OF_BATCH)
    notes = (f"batches of {name!r} every {one.interval:g} s" for name, one in changed.items())
    return replace(scenario, queries=queries, tick=tick), tuple(notes)


def _with_processors(scenario: Scenario, times: int) -> tuple[Scenario, tuple[str, ...]]:
    """Return a scenario with so many times the processors, and what is different.

    Vertices that may use all processors of their VM may use all of them again.
    """
    if times == 1:
        return scenario, ()
    before = {vm.id: vm.processors for vm in scenario.vms}
    vms = tuple(replace(vm, processors=times * vm.processors) for vm in scenario.vms)

    def widened(vertex: Vertex) -> Vertex:
        if vertex.parallelism < max(2, before[scenario.placement[vertex.id]]):
            return vertex
        return replace(vertex, parallelism=times * vertex.parallelism)

    queries = tuple(
        replace(query, vertices=tuple(widened(one) for one in query.vertices))
        for query in scenario.queries
    )
    notes = tuple(f"{vm.processors} processors of {vm.id!r}" for vm in vms)
    return replace(scenario, vms=vms, queries=queries), notes


def _binding(instance: _Instance, tried: Callable[[Scenario], _Instance]) -> str:
    """Return what allows no more than the capacity of an instance."""
    if instance.capacity >= (1 - 2 * PRECISION) * instance.knee:
        factor = instance.knee / total_rate(instance.scenario)
        return busiest(one_instance(instance.scenario, factor)).what
    if instance.capacity:
        for what, other in (
            ("the interval between batches", _with_intervals),
            ("the number of processors", _with_processors),
        ):
            try:
                one, changed = other(instance.scenario, 2)
                if changed and tried(one).capacity > (1 + 2 * PRECISION) * instance.capacity:
                    return what
            except ScenarioError:
                # No host has room for it.
                continue
    return "the time that events take by themselves: windows, networks, and what a batch costs"


class _Loads:
    """Simulations, each done once."""

    def __init__(
        self,
        scenario: Scenario,
        target: LatencyTarget,
        engine: Engine | None,
        on_simulation: Callable[[], None],
    ) -> None:
        self._scenario = judged(scenario)
        self._target = target
        self._engine = engine
        self._on_simulation = on_simulation
        self._own_rate = total_rate(scenario)
        self._found: dict[tuple[float, int], Load] = {}

    def load(self, rate: float, instances: int = 1) -> Load:
        """Return what a rate does to a number of instances."""
        copies = instances if self._scenario.clouds else 1
        each = rate / instances
        if (each, copies) not in self._found:
            self._found[each, copies] = self._simulated(each, copies)
            self._on_simulation()
        found = self._found[each, copies]
        return Load(
            instances,
            instances * len(self._scenario.vms),
            instances * sum(vm.processors for vm in self._scenario.vms),
            rate,
            found.latency,
            found.percentile,
            found.throughput / copies * instances,
            found.utilisation,
            found.keeps_up,
            found.meets_target,
            found.loss,
            found.memory,
        )

    def on(self, rate: float, counts: Iterable[int]) -> tuple[Load, ...]:
        """Return what a rate does to each number of instances that there is room for."""
        loads = []
        for count in counts:
            try:
                loads.append(self.load(rate, count))
            except ScenarioError:
                if count == 1:
                    raise
        return tuple(loads)

    def _simulated(self, each: float, copies: int) -> Load:
        scenario = one_instance(self._scenario, each / self._own_rate)
        if copies > 1:
            scenario = many_instances(scenario, copies)
        result = simulate(scenario, self._engine)
        consumers = result.consumers()
        latencies = [
            math.inf if math.isnan(one) else one for one in consumers["latency"].to_pylist()
        ]
        utilisations = [u for u in result.vms()["utilisation"].to_pylist() if not math.isnan(u)]
        percentile = worst_percentile(result, self._target.percentile)
        kept = keeps_up(result)
        used = zip(scenario.vms, result.vms()["memory_max"].to_pylist(), strict=True)
        memory = max((size / vm.memory for vm, size in used if vm.memory), default=0.0)
        return Load(
            copies,
            len(scenario.vms),
            sum(vm.processors for vm in scenario.vms),
            each * copies,
            max(latencies),
            percentile,
            min(consumers["throughput"].to_pylist()) * copies,
            max(utilisations, default=0.0),
            kept,
            kept and percentile <= self._target.seconds and memory <= 1.0,
            max(consumers["loss"].to_pylist()),
            memory,
        )


def loads_of(
    scenario: Scenario, target: LatencyTarget, engine: Engine | None = None
) -> Callable[[float, int], Load]:
    """Return a function that says what a rate does to a number of instances of a scenario."""
    return _Loads(scenario, target, engine, lambda *_: None).load


def explored(
    scenario: Scenario,
    target: LatencyTarget,
    engine: Engine | None = None,
) -> tuple[Callable[[float, int], Load], float, float]:
    """Return the loads of a scenario, its knee, and the greatest rate at which it meets a target.

    The latter is 0.0 if it never does.
    """
    loads = _Loads(scenario, target, engine, lambda *_: None)
    knee = _knee(loads, scenario)
    return loads.load, knee, _capacity(loads, knee)


def _knee(loads: _Loads, scenario: Scenario) -> float:
    """The greatest rate that an instance keeps up with."""
    above = saturation(scenario)
    if above == math.inf:
        raise ScenarioError(
            "the scenario keeps up with any rate",
            hint="give its vertices instructions per event",
        )
    if above and not scenario.changes and loads.load((1 - PRECISION / 2) * above).keeps_up:
        return above
    # What changes do to rates and machines is seen in the run only.
    while scenario.changes and loads.load(above).keeps_up:
        above *= 2
    knee = _greatest(lambda rate: loads.load(rate).keeps_up, above)
    if not knee:
        raise ScenarioError(
            "the scenario does not seem to keep up with any rate",
            hint="every consumer must get events in both halves of a run; where rates change, "
            "make it several times as long as its windows",
        )
    return knee


def _capacity(loads: _Loads, knee: float) -> float:
    """The greatest rate at which an instance meets the target; 0.0 if it never does."""
    if loads.load(knee).meets_target:
        return knee
    if not any(loads.load(part * knee).meets_target for part in _TRIED):
        return 0.0
    return _greatest(lambda rate: loads.load(rate).meets_target, knee)


def _instances(loads: _Loads, rate: float, capacity: float) -> int | None:
    """The least number of instances that meets the target."""
    if not capacity:
        return None
    least = max(1, math.floor(rate / (capacity * (1 + 2 * PRECISION))))
    # What the halving left open, and the rounding of rates to whole events, is a few instances.
    for count in range(least, min(INSTANCES_MAX, 2 * least + 8) + 1):
        found = loads.on(rate, [count])
        if found and found[0].meets_target:
            return count
    return None


def _greatest(holds: Callable[[float], bool], above: float) -> float:
    """The greatest number below `above` for which something holds, by halving; 0.0 if tiny."""
    below = 0.0
    least = PRECISION * above
    while above - below > PRECISION * above and above > least:
        middle = (below + above) / 2
        if holds(middle):
            below = middle
        else:
            above = middle
    return below


def _some_up_to(last: int, most: int) -> list[int]:
    """Numbers from 1 on, not more than so many, the last two among them."""
    if last <= most:
        return list(range(1, last + 1))
    growth = last ** (1 / (most - 2))
    return sorted({round(growth**step) for step in range(most - 2)} | {last - 1, last})


def total_rate(scenario: Scenario) -> float:
    """Return the events a second of all producers together, on average over the run.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Uniform
    >>> query = QueryModel("q", (Producer("in", Uniform(10)), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> total_rate(Scenario((query,), (VM("worker", mips=2500),), duration=60))
    10.0
    """
    rate = sum(mean_rates(scenario.queries, scenario.duration).values())
    if not rate:
        raise ScenarioError(
            "the producers produce nothing", hint="a plan multiplies the rates that they have"
        )
    return rate


def one_instance(scenario: Scenario, factor: float) -> Scenario:
    """Return a scenario whose producers produce so many times as much, whatever their generators.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Uniform, simulate
    >>> query = QueryModel("q", (Producer("in", Uniform(10)), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> scenario = Scenario((query,), (VM("worker", mips=2500),), duration=60, warm_up=10)
    >>> round(simulate(one_instance(scenario, 2.5)).throughput("out"), 9)
    25.0
    """
    for change in scenario.changes:
        if isinstance(change, SetRate) and change.generator is not None:
            raise ScenarioError(
                "a plan cannot multiply a generator that a change brings",
                subject=("vertex", change.producer),
                hint="give the change a factor instead",
            )
    return replace(
        scenario,
        queries=tuple(
            replace(query, vertices=tuple(_multiplied(one, factor) for one in query.vertices))
            for query in scenario.queries
        ),
    )


@dataclass(frozen=True, slots=True)
class _Multiple:
    """So many times the events of another generator."""

    generator: Generator
    factor: float

    def totals(self, times: Times) -> Totals:
        return whole_events(self.factor * self.generator.totals(times).astype(np.float64))


def _multiplied(vertex: Vertex, factor: float) -> Vertex:
    if not isinstance(vertex, Producer):
        return vertex
    generator: Generator
    match vertex.generator:
        case Uniform() | Poisson() as steady:
            generator = replace(steady, rate=factor * steady.rate)
        case Bursty() as bursty:
            loud, quiet = factor * bursty.rate, factor * bursty.quiet
            generator = replace(bursty, rate=loud, quiet=quiet)
        case other:
            generator = _Multiple(other, factor)
    return replace(vertex, generator=generator)
