"""A scenario: what runs, where, for how long, and what happens meanwhile.

A scenario that could be made is one that can be simulated: every vertex is somewhere, every machine
fits, every name is known. Everything else is an error that names what is wrong. A run has at most
`TICKS_MAX` ticks, and a history of at most `HISTORY_MAX` steps of vertices, which take 2 GB.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from outpace.errors import ScenarioError, did_you_mean
from outpace.simulate.autoscaling import Autoscaling
from outpace.simulate.changes import (
    Change,
    FailVM,
    MoveVertex,
    RandomFailures,
    RestartVM,
    SetRate,
    StartQuery,
    StopQuery,
)
from outpace.simulate.cloud import VM, Cloud, assign_hosts, check_clouds
from outpace.simulate.fields import Seconds, check_fields
from outpace.simulate.model import Edge, Overflow, Producer, QueryModel, Vertex, check_cycles
from outpace.simulate.network import ConstantDelay, Network
from outpace.simulate.strategies import (
    Allocation,
    DynamicScheduling,
    Scheduling,
    UniformAllocation,
)

#: At 0.1 s this is 23 days. A producer takes about 50 bytes for each.
TICKS_MAX: Final = 20_000_000

#: Steps of the history times vertices.
HISTORY_MAX: Final = 50_000_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """Queries on machines, and how long they are simulated.

    Parameters
    ----------
    queries
        The queries; vertices with the same id are one vertex.
    vms
        The virtual machines, in the order in which they run in a tick.
    duration
        The simulated time, in seconds.
    placement
        The VM of each vertex, by ids. Where there is only one VM, all vertices are on it.
    clouds
        The hosts that the VMs share; none for VMs on their own.
    network
        What lies between the VMs.
    scheduling, allocation
        How the vertices of a VM share its instructions, where it does not say it.
    tick
        The simulated time between two looks at every VM, in seconds.
    queue
        How many events may wait on each edge, and in a producer, where a vertex does not say it.
    overflow
        What a producer does with events that its queue has no room for, where it does not say it:
        "accumulate" them all the same, or "discard" them.
    warm_up
        The first seconds, which the results do not count; the history shows them.
    sample
        The length of a step of the history, in seconds, rounded to whole ticks; `inf` for one step.
    changes
        What happens at which time.
    scaling
        How many instances of all of it there are, and when; one if not given.

    Examples
    --------
    >>> from outpace.simulate import Consumer, Uniform
    >>> query = QueryModel("q", (Producer("in", Uniform(10)), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> Scenario((query,), (VM("worker", mips=2500),), duration=60).placement
    {'in': 'worker', 'out': 'worker'}
    """

    queries: tuple[QueryModel, ...]
    vms: tuple[VM, ...]
    duration: Seconds
    placement: Mapping[str, str] = field(default_factory=dict)
    clouds: tuple[Cloud, ...] = ()
    network: Network = field(default_factory=ConstantDelay)
    scheduling: Scheduling = field(default_factory=DynamicScheduling)
    allocation: Allocation = field(default_factory=UniformAllocation)
    tick: Seconds = 0.1
    queue: float = math.inf
    overflow: Overflow = "accumulate"
    warm_up: Seconds = 0.0
    sample: Seconds = 1.0
    changes: tuple[Change, ...] = ()
    scaling: Autoscaling | None = None

    def __post_init__(self) -> None:
        check_fields(self, "simulation")
        self._check_numbers()
        if not self.queries:
            raise ScenarioError("the scenario has no queries")
        if not self.vms:
            raise ScenarioError("the scenario has no VMs")
        _check_unique("query", [query.name for query in self.queries])
        _check_unique("vm", [vm.id for vm in self.vms])
        check_clouds(self.clouds)
        vertices = self.vertices()
        self._check_history(len(vertices))
        check_cycles(self.edges())
        self._check_placement(vertices)
        assign_hosts(self.vms, self.clouds)
        for number, change in enumerate(self.changes, start=1):
            self._check_change(number, change, vertices)
            if isinstance(change, SetRate) and change.generator is not None and self.scaling:
                raise ScenarioError(
                    "instances that come and go cannot divide a generator that a change brings",
                    subject=("change", str(number)),
                    hint="give the change a factor instead",
                )
        if self.scaling is not None and self.clouds:
            raise ScenarioError(
                "instances that come and go have VMs of their own, without hosts",
                subject=("scaling", "most"),
            )

    def vertices(self) -> dict[str, Vertex]:
        """Return the vertices of all queries by id, in the order of declaration."""
        vertices: dict[str, Vertex] = {}
        for query in self.queries:
            for vertex in query.vertices:
                if vertices.setdefault(vertex.id, vertex) != vertex:
                    raise ScenarioError(
                        "two queries define this vertex differently",
                        subject=("vertex", vertex.id),
                        detail=f"{vertices[vertex.id]}\n{vertex}",
                    )
        return vertices

    def edges(self) -> tuple[Edge, ...]:
        """Return the edges of all queries, in the order of declaration, each once."""
        edges: dict[tuple[str, str], Edge] = {}
        for query in self.queries:
            for edge in query.edges:
                known = edges.setdefault((edge.source, edge.target), edge)
                if known != edge:
                    raise ScenarioError(
                        "two queries give this edge different selectivities",
                        subject=("edge", edge.source, edge.target),
                        detail=f"{known.selectivity} and {edge.selectivity}",
                    )
        return tuple(edges.values())

    def strategies(self, vm: VM) -> tuple[Scheduling, Allocation]:
        """Return how the vertices of a VM share its instructions.

        Parameters
        ----------
        vm
            The VM.
        """
        return vm.scheduling or self.scheduling, vm.allocation or self.allocation

    def _check_numbers(self) -> None:
        for name in ("duration", "tick"):
            if not 0 < getattr(self, name) < math.inf:
                raise _setting(name, f"the {name} is not a number of seconds above 0", self)
        if self.tick > self.duration:
            raise _setting("tick", "a tick is longer than the whole simulation", self)
        if self.duration / self.tick > TICKS_MAX:
            raise _setting(
                "duration",
                f"the simulation has more than {TICKS_MAX:,} ticks of {self.tick:g} s",
                self,
                hint="take a longer tick or a shorter duration",
            )
        if not 0 <= self.warm_up < self.duration:
            raise _setting("warm_up", "the warm-up does not end before the simulation", self)
        if not self.sample > 0:
            raise _setting("sample", "the sample is not a number of seconds above 0", self)
        if not self.queue > 0:
            raise _setting("queue", "the queue has no room", self)

    def _check_history(self, vertices: int) -> None:
        steps = self.duration / max(self.sample, self.tick)
        if steps * vertices > HISTORY_MAX:
            raise _setting(
                "sample",
                f"a history of {steps:,.0f} steps of {vertices:,} vertices is too long",
                self,
                hint="take a longer sample, or `inf` for no history",
            )

    def _check_placement(self, vertices: Mapping[str, Vertex]) -> None:
        vms = dict.fromkeys(vm.id for vm in self.vms)
        for vertex, vm in self.placement.items():
            if vertex not in vertices:
                raise ScenarioError(
                    f"unknown vertex {vertex!r}",
                    subject=("placement", vertex),
                    hint=did_you_mean(vertex, vertices),
                )
            if vm not in vms:
                raise _unknown("vm", vm, vms, ("placement", vertex))
        if len(vms) == 1:
            object.__setattr__(self, "placement", dict.fromkeys(vertices, self.vms[0].id))
        for vertex in vertices:
            if vertex not in self.placement:
                raise ScenarioError(
                    "the vertex is on no VM",
                    subject=("vertex", vertex),
                    hint="the placement names the VM of each vertex, where there are several; or "
                    'let a strategy choose: placement = "balanced" in a file',
                )

    def _check_change(self, number: int, change: Change, vertices: Mapping[str, Vertex]) -> None:
        subject = ("change", str(number))
        if isinstance(change, FailVM | RestartVM | MoveVertex | RandomFailures):
            vms = [vm.id for vm in self.vms]
            if change.vm not in vms:
                raise _unknown("vm", change.vm, vms, subject)
        if isinstance(change, MoveVertex) and change.vertex not in vertices:
            raise _unknown("vertex", change.vertex, vertices, subject)
        if isinstance(change, SetRate):
            producers = [v.id for v in vertices.values() if isinstance(v, Producer)]
            if change.producer not in producers:
                raise _unknown("producer", change.producer, producers, subject)
        if isinstance(change, StartQuery | StopQuery):
            queries = [query.name for query in self.queries]
            if change.query not in queries:
                raise _unknown("query", change.query, queries, subject)


def _setting(name: str, message: str, scenario: Scenario, hint: str | None = None) -> ScenarioError:
    value = getattr(scenario, name)
    return ScenarioError(f"{message}: {value}", subject=("simulation", name), hint=hint)


def _unknown(kind: str, name: str, known: Iterable[str], subject: tuple[str, ...]) -> ScenarioError:
    return ScenarioError(
        f"unknown {kind} {name!r}", subject=subject, hint=did_you_mean(name, known)
    )


def _check_unique(kind: str, names: list[str]) -> None:
    known: set[str] = set()
    for name in names:
        if name in known:
            plural = {"query": "queries", "vm": "VMs"}[kind]
            raise ScenarioError(f"there are two {plural} of this name", subject=(kind, name))
        known.add(name)
