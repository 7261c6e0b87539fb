"""What rates do to numbers of instances on types of machines: a table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from outpace.errors import ScenarioError
from outpace.pattern.argument import an_instance
from outpace.simulate.catalogue import MachineType
from outpace.simulate.fields import checked
from outpace.simulate.mix import on_machines
from outpace.simulate.plan import INSTANCES_MAX, Load, loads_of
from outpace.simulate.plan_target import LatencyTarget
from outpace.simulate.run import Engine
from outpace.simulate.scenario import Scenario

#: The most simulations of a table.
_CELLS_MAX: Final = 10_000

#: A latency that every system meets that keeps up.
_ANY: Final = LatencyTarget(1e9)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A rate on a number of instances on a type of machine.

    Parameters
    ----------
    machine
        The name of the type; empty for the VMs that the scenario has.
    price
        What an hour of all machines costs.
    load
        What the rate does.
    """

    machine: str
    price: float
    load: Load


def what_if(
    scenario: Scenario,
    rates: Sequence[float],
    *,
    machines: Sequence[MachineType] = (),
    instances: Sequence[int] = (1,),
    target: LatencyTarget = _ANY,
    engine: Engine | None = None,
    on_simulation: Callable[[int], None] = lambda _: None,
) -> tuple[WhatIf, ...]:
    """Simulate a scenario at each of several rates, on each number of instances and each machine.

    Parameters
    ----------
    scenario
        One instance. Its rates count only in proportion to each other.
    rates
        Events a second of all producers together.
    machines
        Types that its VMs are of; its own VMs if none is given.
    instances
        Numbers of instances, which divide the events.
    target
        The latency to meet; any will do if it is not given.
    engine
        What simulates; the fastest that can if it is not given.
    on_simulation
        Told how many of the answers are there.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Uniform
    >>> query = QueryModel("q", (Producer("in", Uniform(10), 1e6), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> scenario = Scenario((query,), (VM("worker", mips=100, price=0.5),), duration=20)
    >>> for one in what_if(scenario, [90, 150], instances=[1, 2]):
    ...     print(one.load.rate, one.load.instances, one.price, one.load.keeps_up)
    90.0 1 0.5 True
    150.0 1 0.5 False
    90.0 2 1.0 True
    150.0 2 1.0 True
    """
    an_instance(scenario, Scenario, "a scenario", error=ScenarioError)
    an_instance(target, LatencyTarget, "a LatencyTarget", error=ScenarioError)
    rates = checked(rates, tuple[float, ...], "rates")
    instances = checked(instances, tuple[int, ...], "numbers of instances")
    machines = checked(machines, tuple[MachineType, ...], "machines")
    if not rates or not all(0 < rate < float("inf") for rate in rates):
        raise ScenarioError(f"the rates are not numbers above 0: {list(rates)}")
    if not instances or not all(1 <= count <= INSTANCES_MAX for count in instances):
        raise ScenarioError(
            f"the numbers of instances are not from 1 to {INSTANCES_MAX}: {list(instances)}"
        )
    variants = {machine.name: on_machines(scenario, machine) for machine in machines}
    variants = variants or {"": scenario}
    if len(variants) * len(rates) * len(instances) > _CELLS_MAX:
        raise ScenarioError(f"these are more than {_CELLS_MAX:,} simulations")
    found: list[WhatIf] = []
    for name, variant in variants.items():
        load = loads_of(variant, target, engine)
        price = sum(vm.price for vm in variant.vms)
        for count in instances:
            for rate in rates:
                found.append(WhatIf(name, count * price, load(float(rate), count)))
                on_simulation(len(found))
    return tuple(found)
