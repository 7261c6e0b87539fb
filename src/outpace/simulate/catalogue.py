"""Types of machines with their prices: what a plan in money chooses from.

A catalogue is a TOML file; scenario files name one, or have its tables themselves, so that a VM is
of a type: `machine = "small"`.
"""

from __future__ import annotations

from dataclasses import dataclass

from outpace.errors import ScenarioError, did_you_mean
from outpace.simulate.cloud import VM
from outpace.simulate.fields import Bytes, Seconds, check_fields, not_negative


@dataclass(frozen=True, slots=True)
class MachineType:
    """A type of machine that can be rented or bought.

    Parameters
    ----------
    name
        What the catalogue calls it.
    mips
        Million instructions a second of one processor.
    processors
        The number of processors.
    memory
        Its memory in bytes; None if there is enough of it.
    price
        What an hour of it costs, in the catalogue's currency.
    failures_per_hour, repair
        How often it fails, and how long it is away then, in seconds.

    Examples
    --------
    >>> small = MachineType("small", mips=2500, processors=2, price=0.1,
    ...                     failures_per_hour=0.01, repair=360)
    >>> round(small.availability, 6), small.vm("worker").capacity
    (0.999001, 5000)
    """

    name: str
    mips: float
    processors: int = 1
    memory: Bytes | None = None
    price: float = 0.0
    failures_per_hour: float = 0.0
    repair: Seconds = 60.0

    def __post_init__(self) -> None:
        check_fields(self, "machine")
        subject = ("machine", self.name)
        if not self.name:
            raise ScenarioError("a type of machine has no name", subject=subject)
        not_negative("the failures per hour are", self.failures_per_hour, subject)
        not_negative("the time of a repair is", self.repair, subject)
        try:
            self.vm(self.name)
        except ScenarioError as error:
            raise ScenarioError(error.message, subject=subject) from None

    @property
    def availability(self) -> float:
        """The part of the time in which it works, in the long run."""
        return 1.0 / (1.0 + self.failures_per_hour * self.repair / 3600)

    def vm(self, name: str, host: str | None = None) -> VM:
        """Return a virtual machine of this type.

        Parameters
        ----------
        name
            Its id.
        host
            The host that it must run on.
        """
        return VM(name, self.mips, self.processors, host=host, memory=self.memory, price=self.price)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Types of machines, and the currency of their prices.

    Parameters
    ----------
    machines
        The types.
    currency
        What prices are in, as it is shown: "EUR".

    Examples
    --------
    >>> Catalogue((MachineType("small", mips=2500),), "EUR").machine("small").mips
    2500
    """

    machines: tuple[MachineType, ...]
    currency: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        names = [machine.name for machine in self.machines]
        if not names:
            raise ScenarioError("the catalogue has no machines")
        for name in names:
            if names.count(name) > 1:
                raise ScenarioError(
                    "there are two types of machines of this name", subject=("machine", name)
                )

    def machine(self, name: str) -> MachineType:
        """Return the type of this name.

        Parameters
        ----------
        name
            The name.
        """
        for machine in self.machines:
            if machine.name == name:
                return machine
        known = [machine.name for machine in self.machines]
        raise ScenarioError(
            f"unknown type of machine {name!r}",
            hint=did_you_mean(name, known) or f"known types: {', '.join(known)}",
        )
