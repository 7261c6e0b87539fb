"""Virtual machines, the hosts they share, and what a host gives to each of them.

A virtual machine has processors of so many MIPS, which its vertices share. On a host that is shared
by space it has its processors for itself; on one that is shared by time all are slowed down alike
when they ask for more than there is (the CEPSim paper, sections 2 and 5.4, after CloudSim).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from outpace.errors import ScenarioError, did_you_mean
from outpace.simulate.fields import Bytes, check_fields, not_negative
from outpace.simulate.strategies import Allocation, Scheduling

Sharing = Literal["time", "space"]


@dataclass(frozen=True, slots=True)
class _Processors:
    """Processors of the same speed."""

    id: str
    mips: float
    processors: int = 1

    def __post_init__(self) -> None:
        kind = type(self).__name__.lower()
        check_fields(self, kind)
        subject = (kind, self.id)
        if not self.id:
            raise ScenarioError(f"a {kind} has no id", subject=subject)
        if not 0 < self.mips < math.inf:
            raise ScenarioError(f"the mips are not a number above 0: {self.mips}", subject=subject)
        if self.processors < 1:
            raise ScenarioError(
                f"the processors are not a whole number from 1 on: {self.processors}",
                subject=subject,
            )

    @property
    def capacity(self) -> float:
        """What it can do at most, in million instructions a second."""
        return self.processors * self.mips


@dataclass(frozen=True, slots=True)
class VM(_Processors):
    """A virtual machine.

    Parameters
    ----------
    id
        Its name in the scenario.
    mips
        Million instructions a second of one processor.
    processors
        The number of virtual processors.
    host
        The host it must run on; None for the first one that it fits on.
    scheduling, allocation
        How its vertices share its instructions; None for those of the scenario.
    memory
        Its memory in bytes; None if there is enough of it.
    price
        What an hour of it costs.

    Examples
    --------
    >>> VM("worker", mips=2500, processors=2).capacity
    5000
    """

    host: str | None = None
    scheduling: Scheduling | None = None
    allocation: Allocation | None = None
    memory: Bytes | None = None
    price: float = 0.0

    def __post_init__(self) -> None:
        _Processors.__post_init__(self)  # `super()` does not find its way in classes with slots.
        subject = ("vm", self.id)
        if self.memory is not None and not 0 < self.memory < math.inf:
            raise ScenarioError(
                f"the memory is not a number of bytes above 0: {self.memory}", subject=subject
            )
        not_negative("the price of an hour is", self.price, subject)


@dataclass(frozen=True, slots=True)
class Host(_Processors):
    """A physical machine.

    Parameters
    ----------
    id
        Its name in the scenario.
    mips, processors
        As for `VM`.
    sharing
        "time" if machines on it take turns on all processors, "space" if each has its own.

    Examples
    --------
    >>> Host("rack-1", mips=2500, processors=12, sharing="space").capacity
    30000
    """

    sharing: Sharing = "time"


@dataclass(frozen=True, slots=True)
class Datacentre:
    """Hosts in one place.

    Parameters
    ----------
    id
        Its name.
    hosts
        The hosts.

    Examples
    --------
    >>> len(Datacentre("toronto", (Host("a", 2500), Host("b", 2500))).hosts)
    2
    """

    id: str
    hosts: tuple[Host, ...]

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Cloud:
    """Datacentres of one provider.

    Parameters
    ----------
    id
        Its name.
    datacentres
        The datacentres.

    Examples
    --------
    >>> Cloud("private", (Datacentre("toronto", (Host("a", 2500),)),)).datacentres[0].id
    'toronto'
    """

    id: str
    datacentres: tuple[Datacentre, ...]

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a virtual machine runs; without hosts it is on its own and the rest is None."""

    vm: str
    host: str | None = None
    datacentre: str | None = None
    cloud: str | None = None


def assign_hosts(vms: Sequence[VM], clouds: Sequence[Cloud]) -> dict[str, Place]:
    """Give each virtual machine, in order, the first host that it fits on.

    Examples
    --------
    >>> cloud = Cloud("c", (Datacentre("d", (Host("a", 2500, 2, "space"), Host("b", 2500, 4))),))
    >>> [place.host for place in assign_hosts([VM("x", 2500, 2), VM("y", 2500)], [cloud]).values()]
    ['a', 'b']
    """
    if not clouds:
        return {vm.id: Place(vm.id) for vm in vms}
    free = {host.id: host.processors for host, _ in _hosts(clouds)}
    places: dict[str, Place] = {}
    for vm in vms:
        for host, (datacentre, cloud) in _hosts(clouds):
            if vm.host in (None, host.id) and _fits(vm, host, free[host.id]):
                free[host.id] -= vm.processors if host.sharing == "space" else 0
                places[vm.id] = Place(vm.id, host.id, datacentre, cloud)
                break
        else:
            raise _fits_nowhere(vm, free)
    return places


def shared_capacities(
    vms: Sequence[VM],
    clouds: Sequence[Cloud],
    places: Mapping[str, Place],
    busy: Sequence[bool],
) -> list[float]:
    """Return what each machine gets while those marked as busy ask for all they can use.

    Examples
    --------
    >>> cloud = Cloud("c", (Datacentre("d", (Host("a", 2500, 2),)),))
    >>> vms = [VM("x", 2500, 2), VM("y", 2500, 2), VM("z", 2500, 2)]
    >>> shared_capacities(vms, [cloud], assign_hosts(vms, [cloud]), [True, True, False])
    [2500.0, 2500.0, 0.0]
    """
    demand: dict[str | None, float] = {}
    for vm, asks in zip(vms, busy, strict=True):
        host_id = places[vm.id].host
        demand[host_id] = demand.get(host_id, 0.0) + (vm.capacity if asks else 0.0)
    slowdown: dict[str | None, float] = {None: 1.0}
    for host, _ in _hosts(clouds):
        load = demand.get(host.id, 0.0)
        slowdown[host.id] = host.capacity / load if load > host.capacity else 1.0
    return [
        vm.capacity * slowdown[places[vm.id].host] if asks else 0.0
        for vm, asks in zip(vms, busy, strict=True)
    ]


def _hosts(clouds: Sequence[Cloud]) -> Iterator[tuple[Host, tuple[str, str]]]:
    for cloud in clouds:
        for datacentre in cloud.datacentres:
            for host in datacentre.hosts:
                yield host, (datacentre.id, cloud.id)


def check_clouds(clouds: Sequence[Cloud]) -> None:
    """Raise an error if two clouds, datacentres or hosts have the same name."""
    kinds = {
        "cloud": [cloud.id for cloud in clouds],
        "datacentre": [centre.id for cloud in clouds for centre in cloud.datacentres],
        "host": [host.id for host, _ in _hosts(clouds)],
    }
    for kind, names in kinds.items():
        for name in names:
            if names.count(name) > 1:
                raise ScenarioError(f"there are two {kind}s of this name", subject=(kind, name))


def _fits(vm: VM, host: Host, free_processors: int) -> bool:
    processors = free_processors if host.sharing == "space" else host.processors
    return vm.processors <= processors and vm.mips <= host.mips


def _fits_nowhere(vm: VM, free: Mapping[str, int]) -> ScenarioError:
    subject = ("vm", vm.id)
    if vm.host is not None and vm.host not in free:
        return ScenarioError(
            f"unknown host {vm.host!r}", subject=subject, hint=did_you_mean(vm.host, free)
        )
    hosts = "no host has" if vm.host is None else f"the host {vm.host!r} does not have"
    return ScenarioError(
        "the VM fits on no host" if vm.host is None else f"the VM does not fit on {vm.host!r}",
        subject=subject,
        detail=f"{hosts} {vm.processors} free processors of {vm.mips} MIPS",
    )
