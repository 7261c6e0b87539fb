"""How long event sets take from one virtual machine to another.

A network is a value with one method, `link`: what lies between two places. A set that leaves at a
time begins to travel when the link is free of the sets before it, keeps the link busy for its
events' time, and arrives the link's latency later (the CEPSim paper, section 5.4). Sets on their
way are not counted in any queue and not bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from outpace.errors import ScenarioError
from outpace.simulate.cloud import Place
from outpace.simulate.fields import Bytes, Seconds, check_fields, not_negative


@dataclass(frozen=True, slots=True)
class NetworkLink:
    """What lies between two virtual machines, in one direction.

    Parameters
    ----------
    latency
        Seconds from the end of sending to the arrival.
    seconds_per_event
        How long one event keeps the link busy.
    """

    latency: float
    seconds_per_event: float = 0.0


@runtime_checkable
class Network(Protocol):
    """What lies between any two virtual machines."""

    def link(self, source: Place, target: Place) -> NetworkLink:
        """Return the link from one machine to another; both are different ones.

        Parameters
        ----------
        source, target
            Where the machines are.
        """
        ...


@dataclass(frozen=True, slots=True)
class ConstantDelay:
    """Every set takes the same time.

    Parameters
    ----------
    seconds
        The time.

    Examples
    --------
    >>> ConstantDelay(0.001).link(Place("a"), Place("b"))
    NetworkLink(latency=0.001, seconds_per_event=0.0)
    """

    seconds: Seconds = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        not_negative("the network's delay is", self.seconds, ("network",))

    def link(self, source: Place, target: Place) -> NetworkLink:
        """Return the same link for all.

        Parameters
        ----------
        source, target
            Where the machines are.
        """
        return NetworkLink(self.seconds)


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Sets take time by their size and wait for each other, link by link.

    Parameters
    ----------
    latency
        Seconds from the end of sending to the arrival.
    bits_per_second
        How much a link carries.
    bytes_per_event
        The size of an event.

    Examples
    --------
    >>> network = Bandwidth(latency=0.001, bits_per_second=1e9, bytes_per_event=125)
    >>> network.link(Place("a"), Place("b"))
    NetworkLink(latency=0.001, seconds_per_event=1e-06)
    """

    latency: Seconds
    bits_per_second: float
    bytes_per_event: Bytes

    def __post_init__(self) -> None:
        check_fields(self)
        not_negative("the network's latency is", self.latency, ("network",))
        not_negative("the network's bytes per event is", self.bytes_per_event, ("network",))
        if not self.bits_per_second > 0:
            raise ScenarioError(
                f"the network's bits per second are not above 0: {self.bits_per_second}",
                subject=("network",),
            )

    def link(self, source: Place, target: Place) -> NetworkLink:
        """Return the same link for all; each pair of machines has its own.

        Parameters
        ----------
        source, target
            Where the machines are.
        """
        return NetworkLink(self.latency, self.bytes_per_event * 8 / self.bits_per_second)


@dataclass(frozen=True, slots=True)
class Tiers:
    """One network inside a host, one inside a datacentre, one inside a cloud, one between clouds.

    Parameters
    ----------
    host, datacentre, cloud, elsewhere
        The networks, from the smallest place to the largest.

    Examples
    --------
    >>> tiers = Tiers(host=ConstantDelay(0.0001), datacentre=ConstantDelay(0.0005),
    ...               cloud=ConstantDelay(0.01), elsewhere=ConstantDelay(0.08))
    >>> tiers.link(Place("x", "h1", "d1", "c1"), Place("y", "h2", "d1", "c1")).latency
    0.0005
    """

    host: Network
    datacentre: Network
    cloud: Network
    elsewhere: Network

    def __post_init__(self) -> None:
        check_fields(self)

    def link(self, source: Place, target: Place) -> NetworkLink:
        """Return the link of the smallest thing that has both machines in it.

        Parameters
        ----------
        source, target
            Where the machines are.
        """
        if source.host is not None and source.host == target.host:
            return self.host.link(source, target)
        if source.datacentre is not None and source.datacentre == target.datacentre:
            return self.datacentre.link(source, target)
        if source.cloud is not None and source.cloud == target.cloud:
            return self.cloud.link(source, target)
        return self.elsewhere.link(source, target)
