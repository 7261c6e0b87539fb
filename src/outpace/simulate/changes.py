"""What happens to a scenario at a time: queries start and stop, vertices move, machines fail.

A change takes effect at the first tick that begins at its time or later; changes of one time in the
order in which they are listed. The CEPSim paper (section 7) leaves this to future work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from outpace.errors import ScenarioError
from outpace.simulate.fields import Seconds, check_fields, not_negative
from outpace.simulate.generators import Generator

#: The most failures that are drawn for a machine in a run.
_FAILURES_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class _Change:
    """Something that happens at a time, in seconds."""

    at: Seconds

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


@dataclass(frozen=True, slots=True)
class RandomFailures(_Change):
    """From a time on the machine fails now and then, and each time runs again after a while.

    The times between a repair and the next failure are drawn from an exponential distribution.

    Parameters
    ----------
    at
        From when on, in seconds from the start of the run.
    vm
        The id of the machine.
    per_hour
        How many failures there are in an hour in which it runs, on average.
    repair
        How long it is down each time, in seconds.
    seed
        Another seed gives other times.

    Examples
    --------
    >>> failures = RandomFailures(at=0.0, vm="worker", per_hour=2, repair=60, seed=1)
    >>> [(type(change).__name__, round(change.at)) for change in failures.until(3600)]
    [('FailVM', 2578), ('RestartVM', 2638), ('FailVM', 3600), ('RestartVM', 3660)]
    """

    vm: str
    per_hour: float
    repair: Seconds
    seed: int = 0

    def __post_init__(self) -> None:
        _Change.__post_init__(self)
        not_negative("the failures per hour are", self.per_hour)
        not_negative("the time of a repair is", self.repair)
        not_negative("the seed of failures is", self.seed)

    def until(self, end: float) -> Iterator[FailVM | RestartVM]:
        """Yield the failures and repairs before a time, in order.

        Parameters
        ----------
        end
            The time, in seconds.
        """
        if self.per_hour * end / 3600 > _FAILURES_MAX:
            raise ScenarioError(
                f"a run has more than {_FAILURES_MAX:,} failures", subject=("vm", self.vm)
            )
        # Two machines with one seed do not fail together.
        drawn = np.random.default_rng([self.seed, *self.vm.encode()])
        time = float(self.at)
        while self.per_hour:
            time += float(drawn.exponential(3600 / self.per_hour))
            if time >= end:
                return
            yield FailVM(time, self.vm)
            time += self.repair
            yield RestartVM(time, self.vm)


Change: TypeAlias = (
    StartQuery | StopQuery | MoveVertex | FailVM | RestartVM | SetRate | RandomFailures
)


def happening(changes: Iterable[Change], end: float) -> list[Change]:
    """Return changes by time, with each single failure of those that are random.

    Examples
    --------
    >>> happening([FailVM(20, "b"), RandomFailures(0, "a", 0.0, 1), FailVM(10, "b")], 60)
    [FailVM(at=10, vm='b'), FailVM(at=20, vm='b')]
    """
    single: list[Change] = []
    for change in changes:
        single += change.until(end) if isinstance(change, RandomFailures) else [change]
    return sorted(single, key=lambda change: change.at)
