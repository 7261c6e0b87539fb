"""How many events leave a window, given how many came in from each predecessor.

The combination function of equation 1 of the CEPSim paper (section 4.1), as values with one method.
Own functions are classes with such a method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from outpace.simulate.fields import check_fields, not_negative


@runtime_checkable
class Combination(Protocol):
    """A function from the counts of a window's input to the count of its output."""

    def combine(self, counts: Sequence[float]) -> float:
        """Return the number of output events for these numbers of input events."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantOutput:
    """The same number of events from every window that is not empty, for example a count.

    Examples
    --------
    >>> ConstantOutput(1).combine([250.0, 30.0])
    1.0
    """

    events: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        not_negative("a combination's number of events is", self.events)

    def combine(self, counts: Sequence[float]) -> float:
        """Return the constant."""
        return float(self.events)


@dataclass(frozen=True, slots=True)
class ShareOutput:
    """A share of all events of the window, for example one event for every ten.

    Examples
    --------
    >>> ShareOutput(0.1).combine([200.0, 100.0])
    30.0
    """

    share: float

    def __post_init__(self) -> None:
        check_fields(self)
        not_negative("a combination's share is", self.share)

    def combine(self, counts: Sequence[float]) -> float:
        """Return the share of the sum, added up in the order of the predecessors."""
        events = 0.0
        for count in counts:
            events += count
        return events * self.share


@dataclass(frozen=True, slots=True)
class PairedOutput:
    """As many events as every predecessor has, for example a join of equal keys.

    Examples
    --------
    >>> PairedOutput().combine([200.0, 150.0])
    150.0
    """

    def combine(self, counts: Sequence[float]) -> float:
        """Return the smallest of the counts."""
        return min(counts)
