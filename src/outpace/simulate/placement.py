"""Automatic placement: which virtual machine each vertex runs on.

A strategy is a value with one method, `place`, from what flows through the queries and what each
machine can do to a machine for every vertex. Each vertex is placed once and no machine gets more
load than it can carry; where a strategy finds no room, it is an error that names the vertex. The
CEPSim paper (section 5.1) leaves placement to the user and makes it pluggable.

Own strategies are classes with such a method. `outpace.simulate.optimise` searches for a placement
by simulation instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from outpace.errors import ScenarioError
from outpace.simulate.cloud import VM, Cloud, assign_hosts, shared_capacities
from outpace.simulate.fields import check_fields, checked
from outpace.simulate.model import QueryModel
from outpace.simulate.placement_flow import Flow, flow_of

#: Loads that fill a machine exactly may differ from it by rounding.
_ROUNDING = 1e-9

_Name = TypeVar("_Name", str, tuple[str, ...])


@runtime_checkable
class PlacementStrategy(Protocol):
    """Gives every vertex a machine."""

    def place(self, flow: Flow, capacities: Mapping[str, float]) -> dict[str, str]:
        """Return the id of a VM for each vertex of the flow.

        Parameters
        ----------
        flow
            Loads of the vertices and traffic of the edges.
        capacities
            What each VM can carry, in million instructions a second, by id.
        """
        ...


def place(
    queries: Sequence[QueryModel],
    vms: Sequence[VM],
    strategy: PlacementStrategy,
    rates: Mapping[str, float],
    clouds: Sequence[Cloud] = (),
) -> dict[str, str]:
    """Place the vertices of queries on machines.

    Parameters
    ----------
    queries, vms, clouds
        As in a scenario. On hosts that are shared by time a machine can carry what is left to it
        when all of them are busy.
    strategy
        How to place.
    rates
        Events a second of each producer, by id; `mean_rates` gives those of the generators.

    Examples
    --------
    >>> from outpace.simulate import Consumer, Edge, OperatorModel, Producer, Uniform
    >>> query = QueryModel("alarms",
    ...     (Producer("sensors", Uniform(100)), OperatorModel("filter", 25_000), Consumer("pager")),
    ...     (Edge("sensors", "filter"), Edge("filter", "pager", 0.05)))
    >>> place([query], [VM("a", mips=2), VM("b", mips=3)], FirstFit(), {"sensors": 100})
    {'sensors': 'a', 'filter': 'b', 'pager': 'a'}
    """
    queries = checked(queries, tuple[QueryModel, ...], "what is placed")
    vms = checked(vms, tuple[VM, ...], "where it is placed")
    clouds = checked(clouds, tuple[Cloud, ...], "where the machines are")
    checked(strategy, PlacementStrategy, "the strategy")
    checked(rates, Mapping[str, float], "what the rates are given by")
    places = assign_hosts(vms, clouds)
    shares = shared_capacities(vms, clouds, places, [True] * len(vms))
    capacities = {vm.id: share for vm, share in zip(vms, shares, strict=True)}
    return strategy.place(flow_of(queries, rates), capacities)


@dataclass(frozen=True, slots=True)
class _Filling:
    """A strategy that fills machines up to a part of them."""

    fill: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 < self.fill <= 1:
            raise ScenarioError(f"a machine is filled by no part above 0 and up to 1: {self.fill}")


@dataclass(frozen=True, slots=True)
class FirstFit(_Filling):
    """Each vertex, in topological order, on the first machine with room for it.

    Parameters
    ----------
    fill
        The part of a machine that may be used.

    Examples
    --------
    >>> flow = Flow({"in": 6.0, "filter": 5.0, "out": 4.0}, {})
    >>> FirstFit().place(flow, {"a": 10.0, "b": 10.0})
    {'in': 'a', 'filter': 'b', 'out': 'a'}
    """

    def place(self, flow: Flow, capacities: Mapping[str, float]) -> dict[str, str]:
        """Return the placement.

        Parameters
        ----------
        flow
            What the vertices need, and what travels between them.
        capacities
            What each machine can do, in million instructions a second, by its id.
        """
        rooms = _Rooms(capacities, self.fill)
        return {
            vertex: rooms.take(vertex, load, rooms.fitting(load))
            for vertex, load in flow.loads.items()
        }


@dataclass(frozen=True, slots=True)
class LoadBalanced(_Filling):
    """The heaviest vertex first, each on the machine that is least full with it.

    Parameters
    ----------
    fill
        The part of a machine that may be used.

    Examples
    --------
    >>> flow = Flow({"in": 3.0, "filter": 5.0, "out": 4.0}, {})
    >>> LoadBalanced().place(flow, {"a": 10.0, "b": 20.0})
    {'in': 'b', 'filter': 'b', 'out': 'a'}
    """

    def place(self, flow: Flow, capacities: Mapping[str, float]) -> dict[str, str]:
        """Return the placement.

        Parameters
        ----------
        flow
            What the vertices need, and what travels between them.
        capacities
            What each machine can do, in million instructions a second, by its id.
        """
        rooms = _Rooms(capacities, self.fill)
        placement = {}
        for vertex in _heaviest_first(flow.loads):
            load = flow.loads[vertex]
            fullness = {vm: rooms.fullness(vm, load) for vm in rooms.fitting(load)}
            chosen = sorted(fullness, key=lambda vm: fullness[vm])
            placement[vertex] = rooms.take(vertex, load, chosen)
        return {vertex: placement[vertex] for vertex in flow.loads}


@dataclass(frozen=True, slots=True)
class NetworkAware(_Filling):
    """Vertices that send each other much stay together, so that little crosses the network.

    Edges are looked at from the busiest to the quietest; what each one joins becomes one group if
    the largest machine could carry it. The groups, the heaviest first, go to the first machine with
    room; a group that fits nowhere any more is taken apart, and each of its vertices goes, where
    there is room, to the machine that it has the most traffic with.

    Parameters
    ----------
    fill
        The part of a machine that may be used.

    Examples
    --------
    >>> flow = Flow({"in": 6.0, "filter": 5.0, "out": 4.0},
    ...             {("in", "filter"): 100.0, ("filter", "out"): 5.0})
    >>> NetworkAware().place(flow, {"a": 11.0, "b": 10.0})
    {'in': 'a', 'filter': 'a', 'out': 'b'}
    """

    def place(self, flow: Flow, capacities: Mapping[str, float]) -> dict[str, str]:
        """Return the placement.

        Parameters
        ----------
        flow
            What the vertices need, and what travels between them.
        capacities
            What each machine can do, in million instructions a second, by its id.
        """
        rooms = _Rooms(capacities, self.fill)
        groups = _groups(flow, max(capacities.values(), default=0.0) * self.fill)
        loads = {group: sum(flow.loads[vertex] for vertex in group) for group in groups}
        placement: dict[str, str] = {}
        for group in _heaviest_first(loads):
            fitting = rooms.fitting(loads[group])
            if fitting:
                vm = rooms.take(group[0], loads[group], fitting)
                placement.update(dict.fromkeys(group, vm))
                continue
            for vertex in group:
                near = _nearest_first(vertex, flow, placement, rooms.fitting(flow.loads[vertex]))
                placement[vertex] = rooms.take(vertex, flow.loads[vertex], near)
        return {vertex: placement[vertex] for vertex in flow.loads}


class _Rooms:
    """How much load each machine still has room for."""

    def __init__(self, capacities: Mapping[str, float], fill: float) -> None:
        self._whole = {vm: capacity * fill for vm, capacity in capacities.items()}
        self._free = dict(self._whole)

    def fitting(self, load: float) -> list[str]:
        """The machines with room, in the order of declaration."""
        return [vm for vm, free in self._free.items() if load <= free + _ROUNDING * self._whole[vm]]

    def fullness(self, vm: str, load: float) -> float:
        """How full a machine would be, as a part of it."""
        return (self._whole[vm] - self._free[vm] + load) / self._whole[vm]

    def take(self, vertex: str, load: float, fitting: Sequence[str]) -> str:
        """Use the first of the machines."""
        if not fitting:
            room = max(self._free.values(), default=0.0)
            raise ScenarioError(
                "no VM has room for the vertex",
                subject=("vertex", vertex),
                detail=f"it needs {load:.6g} MIPS, and the most that any VM has left is {room:.6g}",
                hint="add a VM, take larger ones, or lower the rate",
            )
        self._free[fitting[0]] -= load
        return fitting[0]


def _heaviest_first(loads: Mapping[_Name, float]) -> list[_Name]:
    return sorted(loads, key=lambda name: -loads[name])


def _groups(flow: Flow, room: float) -> list[tuple[str, ...]]:
    """Join vertices along the edges, the busiest first, as long as a group fits into the room."""
    group_of = {vertex: [vertex] for vertex in flow.loads}
    load_of = dict(flow.loads)  # by the first vertex of a group
    for source, target in sorted(flow.traffic, key=lambda edge: -flow.traffic[edge]):
        one, other = group_of[source], group_of[target]
        together = load_of[one[0]] + load_of[other[0]]
        if one is other or together > room * (1 + _ROUNDING):
            continue
        one.extend(other)
        load_of[one[0]] = together
        group_of.update(dict.fromkeys(other, one))
    order = {vertex: position for position, vertex in enumerate(flow.loads)}
    groups = {id(group): group for group in group_of.values()}.values()
    return [tuple(sorted(group, key=order.__getitem__)) for group in groups]


def _nearest_first(
    vertex: str, flow: Flow, placement: Mapping[str, str], vms: Iterable[str]
) -> list[str]:
    """Sort machines by the traffic that a vertex has with what is on them."""
    shared: dict[str, float] = {}
    for (source, target), events in flow.traffic.items():
        if vertex in (source, target):
            vm = placement.get(target if source == vertex else source)
            if vm is not None:
                shared[vm] = shared.get(vm, 0.0) + events
    return sorted(vms, key=lambda vm: -shared.get(vm, 0.0))
