"""Search for a placement that meets a latency target with the fewest machines, by simulation.

First the strategies of `outpace.simulate.placement` are tried on the one largest machine, the two
largest, and so on; then simulated annealing goes on from the best of these. Every candidate that no
machine is overloaded by is judged by a simulation of the scenario, so the network, the scheduling,
bursts, bounded queues and changes all count.

The outcome is never worse than first fit on all machines, which is among the candidates, and the
same seed gives the same outcome. The memory is that of one simulation, and of the placement of each
candidate that was simulated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from outpace.errors import ScenarioError
from outpace.simulate.cloud import assign_hosts, shared_capacities
from outpace.simulate.fields import checked
from outpace.simulate.placement import FirstFit, LoadBalanced, NetworkAware, PlacementStrategy
from outpace.simulate.placement_flow import Flow, flow_of, mean_rates
from outpace.simulate.plan_target import LatencyTarget, judged, keeps_up, worst_percentile
from outpace.simulate.run import Engine, simulate
from outpace.simulate.scenario import Scenario

#: A step that makes things worse by one machine is taken at the begin with a chance of 1 in e.
_HEAT = 1.0
_COLDEST = 0.01

_STRATEGIES: tuple[PlacementStrategy, ...] = (FirstFit(), NetworkAware(), LoadBalanced())

Placement = dict[str, str]


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best placement that was found.

    Parameters
    ----------
    scenario
        The scenario with this placement.
    vms
        The ids of the machines that it uses, in the order of the scenario.
    latency
        The target's percentile of the latency, in seconds; infinite if it does not keep up.
    meets_target
        Whether it keeps up and is fast enough.
    simulations
        How many candidates were simulated.
    """

    scenario: Scenario
    vms: tuple[str, ...]
    latency: float
    meets_target: bool
    simulations: int


def optimise(
    scenario: Scenario,
    target: LatencyTarget,
    *,
    seed: int = 0,
    steps: int = 200,
    engine: Engine | None = None,
    on_step: Callable[[int], None] = lambda _: None,
) -> Optimum:
    """Find a placement for a scenario; the one that it has is ignored.

    Parameters
    ----------
    scenario
        What to place. Its VMs are those that may be used.
    target
        What to meet.
    seed
        Decides the random steps.
    steps
        The number of steps of the annealing.
    engine
        What simulates; the fastest that can if it is not given.
    on_step
        Told how many steps are done.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, OperatorModel, Producer
    >>> from outpace.simulate import QueryModel, Uniform
    >>> query = QueryModel("q", (Producer("in", Uniform(100)), OperatorModel("a", 1e6),
    ...                          OperatorModel("b", 1e6), Consumer("out")),
    ...                    (Edge("in", "a"), Edge("a", "b"), Edge("b", "out")))
    >>> vms = (VM("small", mips=90), VM("large", mips=110), VM("spare", mips=110))
    >>> scenario = Scenario((query,), vms, duration=10,
    ...                     placement=dict.fromkeys(["in", "a", "b", "out"], "small"))
    >>> optimum = optimise(scenario, LatencyTarget(0.5), steps=20)
    >>> optimum.vms, optimum.meets_target
    (('large', 'spare'), True)
    """
    checked(scenario, Scenario, "the scenario")
    checked(target, LatencyTarget, "the target")
    checked(seed, int, "the seed")
    checked(steps, int, "the number of steps")
    search = _PlacementSearch(scenario, target, engine)
    best = search.best_start()
    if best.cost > search.cost_bound:
        best = search.anneal(best, random.Random(seed), steps, on_step)
    best_scenario = replace(scenario, placement=best.placement)
    used = tuple(vm.id for vm in scenario.vms if vm.id in best.placement.values())
    return Optimum(best_scenario, used, best.latency, best.meets_target, len(search.judged))


@dataclass(frozen=True, slots=True)
class _PlacementTrial:
    """A placement that was simulated; `cost` orders candidates, the best one first."""

    placement: Placement
    cost: float
    latency: float
    meets_target: bool


class _PlacementSearch:
    def __init__(self, scenario: Scenario, target: LatencyTarget, engine: Engine | None) -> None:
        self._scenario = scenario
        self._target = target
        self._engine = engine
        vms = scenario.vms
        shares = shared_capacities(
            vms, scenario.clouds, assign_hosts(vms, scenario.clouds), [True] * len(vms)
        )
        self._capacities = {vm.id: share for vm, share in zip(vms, shares, strict=True)}
        rates = mean_rates(scenario.queries, scenario.duration)
        self._flow = flow_of(scenario.queries, rates)
        self.judged: dict[tuple[str, ...], _PlacementTrial] = {}
        self._least = _least_machines(self._flow, list(self._capacities.values()))
        #: No candidate that meets the target uses fewer machines than one below this.
        self.cost_bound = self._least + 0.5

    def best_start(self) -> _PlacementTrial:
        """Return the best of first fit on all machines and all strategies on ever more of them."""
        largest = sorted(self._capacities, key=lambda vm: -self._capacities[vm])
        first = self._placed(FirstFit(), self._capacities)
        candidates = [] if first is None else [self._judge(first)]
        for count in range(self._least, len(largest) + 1):
            capacities = {vm: self._capacities[vm] for vm in largest[:count]}
            placements = [self._placed(strategy, capacities) for strategy in _STRATEGIES]
            candidates += [self._judge(placement) for placement in placements if placement]
            if any(candidate.cost <= count + 0.5 for candidate in candidates):
                break
        if not candidates:
            # What first fit says of the vertex that it has no room for helps the most.
            FirstFit().place(self._flow, self._capacities)
        return min(candidates, key=lambda candidate: candidate.cost)

    def anneal(
        self,
        best: _PlacementTrial,
        chance: random.Random,
        steps: int,
        on_step: Callable[[int], None],
    ) -> _PlacementTrial:
        """Walk from a candidate, less and less willing to go where it is worse."""
        current = best
        for step in range(steps):
            heat = _HEAT * (_COLDEST / _HEAT) ** (step / max(1, steps - 1))
            neighbour = self._neighbour(current.placement, chance)
            if self._carries(neighbour):
                found = self._judge(neighbour)
                worse = found.cost - current.cost
                if worse <= 0 or chance.random() < math.exp(-worse / heat):
                    current = found
                best = min(best, found, key=lambda candidate: candidate.cost)
            on_step(step + 1)
            if best.cost <= self.cost_bound:
                break
        return best

    def _placed(
        self, strategy: PlacementStrategy, capacities: Mapping[str, float]
    ) -> Placement | None:
        try:
            return strategy.place(self._flow, capacities)
        except ScenarioError:
            return None

    def _judge(self, placement: Placement) -> _PlacementTrial:
        key = tuple(placement[vertex] for vertex in self._flow.loads)
        if key not in self.judged:
            self.judged[key] = self._simulated(placement)
        return self.judged[key]

    def _simulated(self, placement: Placement) -> _PlacementTrial:
        result = simulate(judged(replace(self._scenario, placement=placement)), self._engine)
        target = self._target
        latency = worst_percentile(result, target.percentile) if keeps_up(result) else math.inf
        ratio = latency / target.seconds
        machines, all_machines = len(set(placement.values())), len(self._capacities)
        if ratio <= 1:
            return _PlacementTrial(placement, machines + ratio / 2, latency, True)
        # The slower the worse, and worse than any that meets the target, however slow.
        return _PlacementTrial(placement, all_machines + 2 - 1 / ratio, latency, False)

    def _carries(self, placement: Mapping[str, str]) -> bool:
        """Whether every machine can carry what is on it."""
        loads = dict.fromkeys(self._capacities, 0.0)
        for vertex, vm in placement.items():
            loads[vm] += self._flow.loads[vertex]
        return all(load <= self._capacities[vm] * (1 + 1e-9) for vm, load in loads.items())

    def _neighbour(self, placement: Placement, chance: random.Random) -> Placement:
        """Move a vertex, swap two, or empty a machine into another."""
        changed = dict(placement)
        vertices, vms = list(placement), list(self._capacities)
        kind = chance.randrange(3)
        if kind == 0:
            changed[chance.choice(vertices)] = chance.choice(vms)
        elif kind == 1:
            one, other = chance.choice(vertices), chance.choice(vertices)
            changed[one], changed[other] = placement[other], placement[one]
        else:
            emptied, filled = chance.choice(list(placement.values())), chance.choice(vms)
            moved = [vertex for vertex, vm in placement.items() if vm == emptied]
            changed.update(dict.fromkeys(moved, filled))
        return changed


def _least_machines(flow: Flow, capacities: Sequence[float]) -> int:
    """The least number of machines that could carry the whole load together."""
    left, count = sum(flow.loads.values()), 0
    for capacity in sorted(capacities, reverse=True):
        if left <= 0:
            break
        left -= capacity
        count += 1
    return max(1, count)
