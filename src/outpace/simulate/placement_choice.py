"""Place a whole scenario: by a strategy, or by a search for the fewest machines.

What a scenario file and the command line name is a value of this module or of
`outpace.simulate.placement`. The rates are the average rates of the generators over the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from outpace.errors import ScenarioError
from outpace.simulate.fields import Seconds, check_fields, checked
from outpace.simulate.optimise import optimise
from outpace.simulate.placement import PlacementStrategy, place
from outpace.simulate.placement_flow import mean_rates
from outpace.simulate.plan_target import LatencyTarget
from outpace.simulate.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Optimised:
    """The fewest VMs that were found to meet a latency, by simulation (`optimise`).

    Parameters
    ----------
    seconds, percentile
        The latency to meet, and the part of the events, in percent, that must not take longer.
    seed, steps
        Of the search.

    Examples
    --------
    >>> Optimised(seconds=0.5).target
    LatencyTarget(seconds=0.5, percentile=99.0)
    """

    seconds: Seconds
    percentile: float = 99.0
    seed: int = 0
    steps: int = 200

    def __post_init__(self) -> None:
        check_fields(self)
        LatencyTarget(self.seconds, self.percentile)
        if self.steps < 0 or self.seed < 0:
            raise ScenarioError("the seed and the steps of a search are numbers from 0 on")

    @property
    def target(self) -> LatencyTarget:
        """What to meet."""
        return LatencyTarget(self.seconds, self.percentile)


PlacementRule: TypeAlias = PlacementStrategy | Optimised


def placed(
    scenario: Scenario, choice: PlacementRule, on_step: Callable[[int], None] = lambda _: None
) -> Scenario:
    """Return a scenario with its vertices placed anew; the placement that it has is ignored.

    Parameters
    ----------
    scenario
        What to place. Its VMs are those that may be used.
    choice
        How to place: a strategy, or `Optimised`. It is an error if a vertex finds no room, or if
        no placement is found that meets the latency.
    on_step
        Told how many steps of a search are done.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, LoadBalanced, OperatorModel
    >>> from outpace.simulate import Producer, QueryModel, Uniform
    >>> query = QueryModel("q", (Producer("in", Uniform(100)), OperatorModel("a", 1e6),
    ...                          OperatorModel("b", 1e6), Consumer("out")),
    ...                    (Edge("in", "a"), Edge("a", "b"), Edge("b", "out")))
    >>> vms = (VM("one", mips=150), VM("two", mips=150))
    >>> scenario = Scenario((query,), vms, duration=10,
    ...                     placement=dict.fromkeys(["in", "a", "b", "out"], "one"))
    >>> placed(scenario, LoadBalanced()).placement
    {'in': 'one', 'a': 'one', 'b': 'two', 'out': 'one'}
    """
    checked(scenario, Scenario, "the scenario")
    checked(choice, PlacementRule, "how to place")
    if not isinstance(choice, Optimised):
        rates = mean_rates(scenario.queries, scenario.duration)
        placement = place(scenario.queries, scenario.vms, choice, rates, scenario.clouds)
        return replace(scenario, placement=placement)
    target = choice.target
    found = optimise(scenario, target, seed=choice.seed, steps=choice.steps, on_step=on_step)
    if not found.meets_target:
        raise ScenarioError(
            f"no placement was found with a p{target.percentile:g} of {target.seconds:g} s",
            detail=f"the best one of {found.simulations} has {found.latency:.6g} s",
            hint="add a VM, take larger ones, lower the rate, or allow more time",
        )
    return found.scenario
