"""What happens to a scenario at a time: queries start and stop, vertices move, machines fail.

A change takes effect at the first tick that begins at its time or later; changes of one time in the
order in which they are listed. The CEPSim paper (section 7) leaves this to future work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from outpace.errors import ScenarioError
from outpace.simulate.fields import check_fields, not_negative
from outpace.simulate.generators import Generator


@dataclass(frozen=True, slots=True)
class _Change:
    """Something that happens at a time, in seconds."""

    at: float

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.at < math.inf:
            raise ScenarioError(f"a change is at no time from 0 s on: {self.at}")


@dataclass(frozen=True, slots=True)
class StartQuery(_Change):
    """The query begins, with empty queues and windows that count from now.

    A query whose first change is this one does not run before it.

    Parameters
    ----------
    at
        When, in seconds from the start of the run.
    query
        The name of the query.

    Examples
    --------
    >>> StartQuery(at=60.0, query="alarms").at
    60.0
    """

    query: str


@dataclass(frozen=True, slots=True)
class StopQuery(_Change):
    """The query ends. What its vertices hold is dropped, unless a running query shares them.

    Parameters
    ----------
    at, query
        As for `StartQuery`.

    Examples
    --------
    >>> StopQuery(at=60.0, query="alarms").query
    'alarms'
    """

    query: str


@dataclass(frozen=True, slots=True)
class MoveVertex(_Change):
    """The vertex goes on, with all that it holds and all that is on its way to it, elsewhere.

    Parameters
    ----------
    at
        When, in seconds from the start of the run.
    vertex, vm
        The id of the vertex, and that of the machine that it goes to.

    Examples
    --------
    >>> MoveVertex(at=60.0, vertex="filter", vm="worker-2").vm
    'worker-2'
    """

    vertex: str
    vm: str


@dataclass(frozen=True, slots=True)
class FailVM(_Change):
    """The machine stops. What its vertices hold, and what arrives while it is down, is dropped.

    Parameters
    ----------
    at
        When, in seconds from the start of the run.
    vm
        The id of the machine.

    Examples
    --------
    >>> FailVM(at=60.0, vm="worker-2").vm
    'worker-2'
    """

    vm: str


@dataclass(frozen=True, slots=True)
class RestartVM(_Change):
    """The machine that failed runs again, with empty queues.

    Parameters
    ----------
    at, vm
        As for `FailVM`.

    Examples
    --------
    >>> RestartVM(at=90.0, vm="worker-2").at
    90.0
    """

    vm: str


@dataclass(frozen=True, slots=True)
class SetRate(_Change):
    """The producer goes on with another generator, or with its first one times a factor.

    A generator given here counts time from the change.

    Parameters
    ----------
    at
        When, in seconds from the start of the run.
    producer
        The id of the producer.
    factor, generator
        The factor, or the other generator; one of them.

    Examples
    --------
    >>> SetRate(at=60.0, producer="sensors", factor=2.0).factor
    2.0
    """

    producer: str
    factor: float | None = None
    generator: Generator | None = None

    def __post_init__(self) -> None:
        _Change.__post_init__(self)  # `super()` does not find its way in classes with slots.
        if (self.factor is None) == (self.generator is None):
            raise ScenarioError(
                "a change of rate has a factor or a generator, one of the two",
                subject=("vertex", self.producer),
            )
        if self.factor is not None:
            not_negative("the factor is", self.factor, ("vertex", self.producer))


Change: TypeAlias = StartQuery | StopQuery | MoveVertex | FailVM | RestartVM | SetRate
