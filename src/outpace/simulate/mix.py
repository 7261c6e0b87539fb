"""Which machines, and how many of each, a rate needs at the least cost.

An instance of the scenario runs on machines of one type; instances on several types divide the
events in proportion to what each can do. What a type can do, the rate up to which an instance on
it meets the target and its memory is enough, is found by simulation, as by `plan`. Then the
cheapest of all mixes of at most two types is searched, exactly: for each number of the one the
least number of the other that is enough. It is enough if the instances that work can take the whole
rate for the part of the time that is asked for, where each machine fails and is repaired by itself.
What was found is simulated once more, each type with the part that it gets. The memory is that of
one simulation, and of a mix for each number of each pair of types.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.errors import ScenarioError
from outpace.pattern.argument import a_number, an_instance
from outpace.simulate.catalogue import Catalogue, MachineType
from outpace.simulate.model import Vertex
from outpace.simulate.plan import INSTANCES_MAX, Load, explored
from outpace.simulate.plan_target import LatencyTarget
from outpace.simulate.run import Engine
from outpace.simulate.scenario import Scenario

#: What is enough by this part of the rate is enough: sums of shares are rounded.
_ROUNDING: Final = 1e-9

#: So many mixes are simulated before the cheapest that meets the target is given up.
_TRIED: Final = 20

#: The rates of the curve of prices, as parts of the rate that is asked for.
_RATES: Final = (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)

#: The numbers of instances that may be on the frontier, as multiples of the least one.
_MORE: Final = (1.0, 1.15, 1.3, 1.5, 2.0)


@dataclass(frozen=True, slots=True)
class TypeCapacity:
    """What an instance of the scenario can do on a type of machine.

    Parameters
    ----------
    machine
        The name of the type.
    price
        What an hour of all machines of an instance costs.
    knee, capacity
        The greatest rate that it keeps up with, and the greatest at which it meets the target; 0.0
        if it never does.
    instances
        How many of it alone would be enough; None if no number is.
    reason
        What is wrong with the type, in words; empty if nothing is.
    """

    machine: str
    price: float
    knee: float
    capacity: float
    instances: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MachineMix:
    """Instances on types of machines, and what the rate does to them.

    Parameters
    ----------
    instances
        The number of instances by the name of the type.
    machines
        The number of machines by the name of the type.
    price
        What an hour of all of them costs.
    percentile
        The target's percentile of the latency of the slowest, in seconds.
    utilisation
        How much of the busiest machine is used while all work.
    availability
        The part of the time in which those that work can take the whole rate.
    meets_target
        Whether all of them keep up, are fast enough and have memory enough, and are available
        enough together.
    """

    instances: Mapping[str, int]
    machines: Mapping[str, int]
    price: float
    percentile: float
    utilisation: float
    availability: float
    meets_target: bool


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """The machines that a rate needs.

    Parameters
    ----------
    rate, target, availability
        What is to be met; None for no availability.
    currency
        What prices are in.
    types
        What an instance can do on each type.
    best
        The cheapest mix that meets everything; None if none does.
    frontier
        Mixes of which no other is at most as dear, at most as slow and at least as available.
    prices
        The least price of an hour for rates around the one that is asked for, with the instances.
    """

    rate: float
    target: LatencyTarget
    availability: float | None
    currency: str
    types: tuple[TypeCapacity, ...]
    best: MachineMix | None
    frontier: tuple[MachineMix, ...]
    prices: tuple[tuple[float, float, Mapping[str, int]], ...]


def plan_machines(
    scenario: Scenario,
    rate: float,
    target: LatencyTarget,
    catalogue: Catalogue,
    *,
    availability: float | None = None,
    engine: Engine | None = None,
    on_simulation: Callable[[str], None] = lambda _: None,
) -> MachinePlan:
    """Find the cheapest machines that a rate needs.

    Parameters
    ----------
    scenario
        One instance, whose VMs become machines of the catalogue. Its rates count only in proportion
        to each other. A vertex that may use all processors of its VM, and more than one, may use
        all of any machine.
    rate
        The events a second of all producers together.
    target
        The latency to meet.
    catalogue
        The types of machines.
    availability
        The part of the time, below 1, in which the machines that work must be enough; None if they
        need not fail.
    engine
        What simulates; the fastest that can if it is not given.
    on_simulation
        Told the type that is simulated.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Uniform
    >>> query = QueryModel("q", (Producer("in", Uniform(10), 1e6), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> scenario = Scenario((query,), (VM("worker", mips=100),), duration=20)
    >>> catalogue = Catalogue((MachineType("small", mips=100, price=1.0),
    ...                        MachineType("large", mips=1000, price=8.0)), "EUR")
    >>> plan = plan_machines(scenario, 1150, LatencyTarget(0.5), catalogue)
    >>> plan.best.instances, plan.best.price
    ({'small': 2, 'large': 1}, 10.0)
    """
    an_instance(scenario, Scenario, "a scenario", error=ScenarioError)
    an_instance(target, LatencyTarget, "a LatencyTarget", error=ScenarioError)
    an_instance(catalogue, Catalogue, "a Catalogue", error=ScenarioError)
    rate = a_number(rate, "the rate", error=ScenarioError)
    if not 0 < rate < math.inf:
        raise ScenarioError(f"the rate to plan for is not a number above 0: {rate}")
    if availability is not None:
        availability = a_number(availability, "the availability", error=ScenarioError)
        if not 0 < availability < 1:
            raise ScenarioError(f"the availability is not above 0 and below 1: {availability}")
    if scenario.clouds:
        raise ScenarioError(
            "machines of a catalogue have no hosts", hint="leave the clouds of the scenario out"
        )
    planning = _Planning(scenario, rate, target, catalogue, availability, engine, on_simulation)
    return planning.plan()


def on_machines(scenario: Scenario, machine: MachineType) -> Scenario:
    """Return a scenario whose VMs are of a type of machine.

    A vertex that may use all processors of its VM, and more than one, may use all of the machine.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Uniform
    >>> query = QueryModel("q", (Producer("in", Uniform(10), parallelism=2), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> scenario = Scenario((query,), (VM("worker", mips=100, processors=2),), duration=20)
    >>> moved = on_machines(scenario, MachineType("large", mips=200, processors=8))
    >>> [vertex.parallelism for vertex in moved.vertices().values()]
    [8, 1]
    """
    before = {vm.id: vm.processors for vm in scenario.vms}

    def widened(vertex: Vertex) -> Vertex:
        if vertex.parallelism < max(2, before[scenario.placement[vertex.id]]):
            return vertex
        return replace(vertex, parallelism=machine.processors)

    return replace(
        scenario,
        vms=tuple(
            replace(
                vm,
                mips=machine.mips,
                processors=machine.processors,
                memory=machine.memory,
                price=machine.price,
            )
            for vm in scenario.vms
        ),
        queries=tuple(
            replace(query, vertices=tuple(map(widened, query.vertices)))
            for query in scenario.queries
        ),
    )


@dataclass(frozen=True, slots=True)
class _Option:
    """An instance on a type of machine: what it can do, what it costs, how often it works."""

    machine: str
    capacity: float
    price: float
    works: float


class _Planning:
    def __init__(
        self,
        scenario: Scenario,
        rate: float,
        target: LatencyTarget,
        catalogue: Catalogue,
        availability: float | None,
        engine: Engine | None,
        on_simulation: Callable[[str], None],
    ) -> None:
        self._rate = rate
        self._target = target
        self._catalogue = catalogue
        self._availability = availability
        self._vms = len(scenario.vms)
        self._loads: dict[str, Callable[[float, int], Load]] = {}
        self._options: list[_Option] = []
        self._types: list[TypeCapacity] = []
        for machine in catalogue.machines:
            on_simulation(machine.name)
            self._explore(machine, scenario, engine)

    def plan(self) -> MachinePlan:
        best = next(
            (
                mix
                for mix in map(self._simulated, itertools.islice(self._mixes(self._rate), _TRIED))
                if mix.meets_target
            ),
            None,
        )
        return MachinePlan(
            self._rate,
            self._target,
            self._availability,
            self._catalogue.currency,
            tuple(self._types),
            best,
            self._frontier(best),
            tuple(self._prices()),
        )

    def _explore(self, machine: MachineType, scenario: Scenario, engine: Engine | None) -> None:
        price = machine.price * self._vms
        try:
            loads, knee, capacity = explored(on_machines(scenario, machine), self._target, engine)
        except ScenarioError as error:
            self._types.append(TypeCapacity(machine.name, price, 0.0, 0.0, None, error.message))
            return
        self._loads[machine.name] = loads
        option = _Option(machine.name, capacity, price, machine.availability**self._vms)
        alone = _least_of(option, self._rate, self._availability) if capacity else None
        reason = "" if alone else "it meets the target at no rate" if not capacity else "too small"
        if capacity:
            self._options.append(option)
        self._types.append(TypeCapacity(machine.name, price, knee, capacity, alone, reason))

    def _mixes(self, rate: float) -> Iterator[dict[str, int]]:
        """Yield mixes of at most two types that are enough for a rate, the cheapest first."""
        found = {tuple(sorted(mix.items())): mix for mix in self._enough(rate)}
        prices = {option.machine: option.price for option in self._options}
        yield from sorted(
            found.values(),
            key=lambda mix: (
                sum(count * prices[name] for name, count in mix.items()),
                sum(mix.values()),
            ),
        )

    def _enough(self, rate: float) -> Iterator[dict[str, int]]:
        for option in self._options:
            alone = _least_of(option, rate, self._availability)
            if alone is not None:
                yield {option.machine: alone}
        for one, other in itertools.combinations(self._options, 2):
            for first, second in _least_pairs(one, other, rate, self._availability):
                if first and second:
                    yield {one.machine: first, other.machine: second}

    def _simulated(self, mix: Mapping[str, int]) -> MachineMix:
        """Return what the rate does to a mix, each instance with its part."""
        own = [option for option in self._options if option.machine in mix]
        whole = sum(mix[option.machine] * option.capacity for option in own)
        loads = [
            self._loads[option.machine](self._rate * option.capacity / whole, 1) for option in own
        ]
        works = _availability(own, [mix[option.machine] for option in own], self._rate)
        return MachineMix(
            dict(mix),
            {name: count * self._vms for name, count in mix.items()},
            sum(mix[option.machine] * option.price for option in own),
            max(load.percentile for load in loads),
            max(load.utilisation for load in loads),
            works,
            all(load.meets_target for load in loads) and works >= (self._availability or 0.0),
        )

    def _frontier(self, best: MachineMix | None) -> tuple[MachineMix, ...]:
        found = [] if best is None else [best]
        for option in self._options:
            alone = _least_of(option, self._rate, None)
            counts = {math.ceil(alone * more) for more in _MORE} if alone else set()
            counts |= {alone + 1} if alone else set()
            found += [self._simulated({option.machine: c}) for c in counts if c <= INSTANCES_MAX]
        # The best one may be among those of one type.
        single = {tuple(mix.instances.items()): mix for mix in found}.values()
        met = [mix for mix in single if mix.percentile <= self._target.seconds]
        kept = [mix for mix in met if not any(_is_better(other, mix) for other in met)]
        return tuple(sorted(kept, key=lambda mix: (mix.price, mix.percentile)))

    def _prices(self) -> Iterator[tuple[float, float, Mapping[str, int]]]:
        prices = {option.machine: option.price for option in self._options}
        for part in _RATES:
            mix = next(self._mixes(part * self._rate), None)
            if mix is not None:
                price = sum(count * prices[name] for name, count in mix.items())
                yield part * self._rate, price, mix


def _is_better(one: MachineMix, other: MachineMix) -> bool:
    """Whether one is nowhere worse than the other, and somewhere better."""
    numbers = [(mix.price, mix.percentile, -mix.availability) for mix in (one, other)]
    return numbers[0] != numbers[1] and all(a <= b for a, b in zip(*numbers, strict=True))


def _least_of(option: _Option, rate: float, availability: float | None) -> int | None:
    """Return the least number of one option that is enough; None if none is."""
    below, above = 0, 1
    while not _is_enough([option], [above], rate, availability):
        below, above = above, 2 * above
        if below > INSTANCES_MAX:
            return None
    while above - below > 1:
        middle = (below + above) // 2
        if _is_enough([option], [middle], rate, availability):
            above = middle
        else:
            below = middle
    return above if above <= INSTANCES_MAX else None


def _least_pairs(
    one: _Option, other: _Option, rate: float, availability: float | None
) -> Iterator[tuple[int, int]]:
    """Yield, for each number of the one, the least number of the other that is enough."""
    second = _least_of(other, rate, availability)
    most = _least_of(one, rate, availability)
    if second is None:
        return
    for first in range(1, INSTANCES_MAX if most is None else most):
        while second and _is_enough([one, other], [first, second - 1], rate, availability):
            second -= 1
        yield first, second


def _is_enough(
    options: Sequence[_Option], counts: Sequence[int], rate: float, availability: float | None
) -> bool:
    whole = sum(count * option.capacity for option, count in zip(options, counts, strict=True))
    if whole < rate * (1 - _ROUNDING):
        return False
    return availability is None or _availability(options, counts, rate) >= availability


def _availability(options: Sequence[_Option], counts: Sequence[int], rate: float) -> float:
    """Return how likely the instances that work can take a rate, for one option or two.

    Examples
    --------
    >>> option = _Option("small", 10.0, 1.0, works=0.9)
    >>> round(_availability([option], [2], 15.0), 12), round(_availability([option], [2], 5.0), 12)
    (0.81, 0.99)
    """
    one, other = options[0], options[-1]
    first = _working(one, counts[0])
    if len(options) == 1:
        needed = math.ceil(rate / one.capacity * (1 - _ROUNDING))
        return float(first[needed:].sum())
    left = rate * (1 - _ROUNDING) - np.arange(counts[0] + 1) * one.capacity
    needs = np.clip(np.ceil(left / other.capacity), 0, counts[1] + 1).astype(np.int64)
    # So likely at least so many of the other work.
    at_least = np.append(np.cumsum(_working(other, counts[1])[::-1])[::-1], 0.0)
    return float(first @ at_least[needs])


def _working(option: _Option, count: int) -> NDArray[np.float64]:
    """Return how likely each number of instances works: a binomial distribution."""
    numbers = np.arange(count + 1)
    if option.works >= 1.0:
        certain: NDArray[np.float64] = (numbers == count).astype(np.float64)
        return certain
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1.0, count + 1)))))
    ways = logs[count] - logs - logs[::-1]
    likely: NDArray[np.float64] = np.exp(
        ways + numbers * math.log(option.works) + (count - numbers) * math.log1p(-option.works)
    )
    return likely
