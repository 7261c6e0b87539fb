"""A scenario at another rate, in several instances that divide the events among them.

An instance is all that a scenario has: its queries, on its VMs. Several instances are as many
copies of both, and each copy gets an equal part of the events, as when events go to instances by
the hash of a key. Copies that share no host have nothing to do with each other, so one of them is
simulated for all; with hosts, all copies are simulated, as they compete there.

What a window sends by a constant number stays constant at every rate and in each instance; where
more input means more output, the combination is a share.
"""

from __future__ import annotations

from dataclasses import replace

from outpace.errors import ScenarioError
from outpace.simulate.changes import Change, FailVM, Move, RestartVM, SetRate
from outpace.simulate.placement_flow import mean_rates
from outpace.simulate.scenario import Scenario


def total_rate(scenario: Scenario) -> float:
    """Return the events a second of all producers together, on average over the run.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, Query, Uniform
    >>> query = Query("q", (Producer("in", Uniform(10)), Consumer("out")), (Edge("in", "out"),))
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
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, Query, Uniform, simulate
    >>> query = Query("q", (Producer("in", Uniform(10)), Consumer("out")), (Edge("in", "out"),))
    >>> scenario = Scenario((query,), (VM("worker", mips=2500),), duration=60, warm_up=10)
    >>> round(simulate(one_instance(scenario, 2.5)).throughput("out"), 9)
    25.0
    """
    producers = mean_rates(scenario.queries, scenario.duration)
    first = tuple(SetRate(0.0, producer, factor=factor) for producer in producers)
    return replace(scenario, changes=(*first, *(_scaled(c, factor) for c in scenario.changes)))


def many_instances(scenario: Scenario, count: int) -> Scenario:
    """Return a scenario with so many copies of its queries and VMs, all on the same hosts.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, Query, Uniform
    >>> query = Query("q", (Producer("in", Uniform(10)), Consumer("out")), (Edge("in", "out"),))
    >>> many_instances(Scenario((query,), (VM("worker", mips=2500),), duration=60), 2).placement
    {'0/in': '0/worker', '0/out': '0/worker', '1/in': '1/worker', '1/out': '1/worker'}
    """
    names = [str(number) for number in range(count)]
    return replace(
        scenario,
        queries=tuple(query.copy(name) for name in names for query in scenario.queries),
        vms=tuple(replace(vm, id=f"{name}/{vm.id}") for name in names for vm in scenario.vms),
        placement={
            f"{name}/{vertex}": f"{name}/{vm}"
            for name in names
            for vertex, vm in scenario.placement.items()
        },
        changes=tuple(_copied(change, name) for name in names for change in scenario.changes),
    )


def _scaled(change: Change, factor: float) -> Change:
    if not isinstance(change, SetRate):
        return change
    if change.factor is None:
        raise ScenarioError(
            "a plan cannot multiply a generator that a change brings",
            subject=("vertex", change.producer),
            hint="give the change a factor instead",
        )
    return replace(change, factor=change.factor * factor)


def _copied(change: Change, name: str) -> Change:
    match change:
        case SetRate():
            return replace(change, producer=f"{name}/{change.producer}")
        case Move():
            return replace(change, vertex=f"{name}/{change.vertex}", vm=f"{name}/{change.vm}")
        case FailVM() | RestartVM():
            return replace(change, vm=f"{name}/{change.vm}")
        case _:
            return replace(change, query=f"{name}/{change.query}")
