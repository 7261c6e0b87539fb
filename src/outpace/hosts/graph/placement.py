"""Which operator of a graph runs on which machine, and where each process listens.

The first machine has the sources, the sinks and the monitor. A machine takes the port of its
address and those behind it, one for each of its operators, behind two more of the first machine, so
that a firewall can be told. What others could read on the way needs keys.

A graph without machines is one on one machine, with any free ports of its loopback.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from outpace.errors import BindError, did_you_mean
from outpace.pattern.argument import a_path, a_text, shown

_ADDRESS: Final = re.compile(r"tcp://(?P<host>[\w.-]+):(?P<port>\d{1,5})", re.ASCII)
_PORT_MAX: Final = 65_535
#: Who listens on the first machine beside operators.
_MONITOR, _SOURCES = range(2)


@dataclass(frozen=True)
class Address:
    """Where something listens.

    Parameters
    ----------
    host, port
        The machine, and the port there; 0 is any free one.

    Examples
    --------
    >>> Address.read("tcp://10.0.0.7:7000").behind(2)
    Address(host='10.0.0.7', port=7002)
    >>> Address.read("tcp://localhost:7000").is_loopback
    True
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"tcp://{self.host}:{self.port}"

    @staticmethod
    def read(text: str) -> Address:
        """Read an address; raise `ValueError` for anything else."""
        found = _ADDRESS.fullmatch(text)
        if found is None or not 0 < int(found["port"]) <= _PORT_MAX:
            raise ValueError(text)
        return Address(found["host"], int(found["port"]))

    def behind(self, count: int) -> Address:
        """Return the address so many ports behind it."""
        return Address(self.host, self.port + count if self.port else 0)

    @property
    def is_loopback(self) -> bool:
        """Whether no other machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


#: The one machine of a graph that names none.
_HERE: Final = {"": Address("127.0.0.1", 0)}


@dataclass(frozen=True)
class Placement:
    """Which operators run where.

    Parameters
    ----------
    machines
        The machines by their names; the first has sources, sinks and monitor.
    places
        The machine of each operator.
    keys
        The file with the keys; None on loopback.

    Examples
    --------
    >>> north, south = Address("127.0.0.1", 7000), Address("127.0.0.1", 7100)
    >>> placed = Placement({"north": north, "south": south}, {"falls": "south", "alarm": "north"})
    >>> placed.first, str(placed.monitor), str(placed.sources)
    ('north', 'tcp://127.0.0.1:7000', 'tcp://127.0.0.1:7001')
    >>> str(placed.listens("falls")), str(placed.listens("alarm"))
    ('tcp://127.0.0.1:7100', 'tcp://127.0.0.1:7002')
    """

    machines: Mapping[str, Address] = field(default_factory=lambda: _HERE)
    places: Mapping[str, str] = field(default_factory=dict)
    keys: Path | None = None

    @cached_property
    def first(self) -> str:
        """The machine with sources, sinks and monitor."""
        return next(iter(self.machines))

    @property
    def monitor(self) -> Address:
        """Where the monitor listens."""
        return self.machines[self.first].behind(_MONITOR)

    @property
    def sources(self) -> Address:
        """Where the sources are read."""
        return self.machines[self.first].behind(_SOURCES)

    def listens(self, operator: str) -> Address:
        """Return where an operator listens.

        Parameters
        ----------
        operator
            Its name.
        """
        machine = self.places[operator]
        here = [one for one, other in self.places.items() if other == machine]
        return self.machines[machine].behind(self._before(machine) + here.index(operator))

    def ports(self, machine: str) -> range:
        """Return the ports that a machine takes.

        Parameters
        ----------
        machine
            Its name.
        """
        count = self._before(machine) + sum(one == machine for one in self.places.values())
        port = self.machines[machine].port
        return range(port, port + count)

    def _before(self, machine: str) -> int:
        return 2 if machine == self.first else 0


def place(
    operators: Iterable[str],
    machines: Mapping[str, str] | None,
    places: Mapping[str, str] | None,
    keys: str | os.PathLike[str] | None,
) -> Placement:
    """Return where operators run, or refuse what cannot be."""
    if machines is None:
        if places is not None or keys is not None:
            raise BindError(
                "a graph with places or keys names its machines",
                hint='write machines={"north": "tcp://10.0.0.1:7000", …}',
            )
        return Placement(places=dict.fromkeys(operators, ""))
    if not isinstance(machines, Mapping) or not machines:
        raise BindError(
            f"machines are names with addresses, not {shown(machines)}",
            hint='write machines={"north": "tcp://10.0.0.1:7000", …}',
        )
    addresses = {a_machine(name): _address(name, text) for name, text in machines.items()}
    first = next(iter(addresses))
    chosen = dict.fromkeys(operators, first)
    for name, machine in _pairs(places):
        if name not in chosen:
            hint = did_you_mean(str(name), chosen) or f"there are {', '.join(chosen)}"
            raise BindError(f"there is no operator {shown(name)} to be placed", hint=hint)
        chosen[name] = known_machine(machine, addresses)
    path = None if keys is None else Path(a_path(keys, "the file with the keys"))
    placed = Placement(addresses, chosen, path)
    _check(placed)
    return placed


def a_machine(name: object) -> str:
    """Return the name of a machine, or refuse it."""
    text = a_text(name, "the name of a machine", hint='write {"north": "tcp://10.0.0.1:7000"}')
    if not text:
        raise BindError("a machine has a name", hint='write {"north": "tcp://10.0.0.1:7000"}')
    return text


def known_machine(name: object, machines: Mapping[str, Address]) -> str:
    """Return the name of a machine of a graph, or refuse it."""
    if not isinstance(name, str) or name not in machines:
        raise BindError(
            f"there is no machine {shown(name)}",
            hint=did_you_mean(str(name), machines) or f"there are {', '.join(machines)}",
        )
    return name


def _pairs(places: Mapping[str, str] | None) -> Iterable[tuple[str, str]]:
    if places is None:
        return ()
    if not isinstance(places, Mapping):
        raise BindError(
            f"places are operators with machines, not {shown(places)}",
            hint='write places={"falls": "south"}',
        )
    return places.items()


def _address(machine: object, text: object) -> Address:
    try:
        return Address.read(a_text(text, "an address", hint='write "tcp://10.0.0.1:7000"'))
    except ValueError:
        raise BindError(
            f"machine '{machine}' has no address of the form tcp://host:port: {shown(text)}",
            hint="the port is one of 1 to 65535; those behind it are taken, too",
        ) from None


def _check(placed: Placement) -> None:
    """Refuse addresses that anybody could listen to, or that two would take."""
    taken: dict[tuple[str, int], str] = {}
    for name, address in placed.machines.items():
        if placed.keys is None and not address.is_loopback:
            raise BindError(
                f"machine '{name}' at '{address}' can be reached from others, and there are no "
                "keys to keep them out",
                hint="make keys with outpace graph keys graph.key, copy the file to each machine, "
                "and name it: keys = 'graph.key'",
            )
        for port in placed.ports(name):
            if port > _PORT_MAX:
                raise BindError(
                    f"machine '{name}' needs ports up to {placed.ports(name)[-1]}",
                    hint=f"there are {_PORT_MAX}; begin with a lower one",
                )
            other = taken.setdefault((address.host, port), name)
            if other != name:
                raise BindError(
                    f"machines '{other}' and '{name}' both need port {port} of {address.host}",
                    hint=f"'{other}' takes a port for each of its operators, and the first machine "
                    f"two more: {placed.ports(other)[0]} to {placed.ports(other)[-1]}",
                )
