"""Several instances of a scenario: copies of its queries and VMs."""

from __future__ import annotations

from dataclasses import replace

from outpace.simulate.changes import (
    Change,
    FailVM,
    MoveVertex,
    RandomFailures,
    RestartVM,
    SetRate,
)
from outpace.simulate.scenario import Scenario


def many_instances(scenario: Scenario, count: int) -> Scenario:
    """Return a scenario with so many copies of its queries and VMs, all on the same hosts.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Uniform
    >>> query = QueryModel("q", (Producer("in", Uniform(10)), Consumer("out")),
    ...                    (Edge("in", "out"),))
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


def _copied(change: Change, name: str) -> Change:
    match change:
        case SetRate():
            return replace(change, producer=f"{name}/{change.producer}")
        case MoveVertex():
            return replace(change, vertex=f"{name}/{change.vertex}", vm=f"{name}/{change.vm}")
        case FailVM() | RestartVM() | RandomFailures():
            return replace(change, vm=f"{name}/{change.vm}")
        case _:
            return replace(change, query=f"{name}/{change.query}")
