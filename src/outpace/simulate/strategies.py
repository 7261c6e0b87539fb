"""Which vertex of a placement runs next, and for how many instructions.

Two small kinds of values (the CEPSim paper, section 5.1). An allocation divides instructions among
vertices by what one event costs them. A scheduling goes through the vertices and says how much of
it each one gets. Own ones are classes with one method, `allocate` or `schedule`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

#: A round moves at least one queue's bound of events, or uses up what is left, or lets a vertex
#: finish. This many are not reached unless queues are tiny against what a tick brings.
ROUNDS = 1000

#: What is left of a tick's instructions below this part of them is not divided again.
LEFTOVER = 1e-9

#: Below this part of them, what is left goes to the first that need it, and is not divided.
LAST = 1e-3


@runtime_checkable
class Allocation(Protocol):
    """Divides instructions among vertices."""

    def allocate(self, instructions: float, costs: Sequence[float]) -> Sequence[float]:
        """Return the instructions of each vertex, given what an event costs each of them.

        Parameters
        ----------
        instructions
            How many there are.
        costs
            The instructions per event of each vertex.
        """
        ...


class VertexWork(Protocol):
    """The vertices of a placement in topological order, as a scheduling sees them."""

    @property
    def costs(self) -> Sequence[float]:
        """The instructions per event of each vertex."""
        ...

    def required(self, position: int) -> float | None:
        """Return the instructions for all that the vertex can process now; None for nothing to do.

        A vertex can process its input as far as the queues of its successors have room. A windowed
        operator whose window is due has something to do without any input.
        """
        ...


@runtime_checkable
class Scheduling(Protocol):
    """Goes through the vertices of a placement, once a tick."""

    def schedule(
        self, work: VertexWork, instructions: float, allocation: Allocation
    ) -> Iterator[tuple[int, float]]:
        """Yield positions of vertices and instructions; each runs before the next is asked for.

        Parameters
        ----------
        work
            The vertices.
        instructions
            How many there are in a tick.
        allocation
            What divides them among vertices.
        """
        ...


@dataclass(frozen=True, slots=True)
class UniformAllocation:
    """Every vertex gets the same.

    Examples
    --------
    >>> UniformAllocation().allocate(900.0, [1.0, 10.0, 100.0])
    [300.0, 300.0, 300.0]
    """

    def allocate(self, instructions: float, costs: Sequence[float]) -> list[float]:
        """Return an equal part for each.

        Parameters
        ----------
        instructions
            How many there are.
        costs
            The instructions per event of each vertex.
        """
        return [instructions / len(costs)] * len(costs)


@dataclass(frozen=True, slots=True)
class WeightedAllocation:
    """Vertices get instructions in proportion to what an event costs them.

    Examples
    --------
    >>> WeightedAllocation().allocate(1000.0, [1.0, 1.0, 8.0])
    [100.0, 100.0, 800.0]
    """

    def allocate(self, instructions: float, costs: Sequence[float]) -> list[float]:
        """Return a part by cost for each; nothing if nothing costs anything.

        Parameters
        ----------
        instructions
            How many there are.
        costs
            The instructions per event of each vertex.
        """
        total = 0.0
        for cost in costs:
            total += cost
        return [instructions * cost / total if total else 0.0 for cost in costs]


@dataclass(frozen=True, slots=True)
class SimpleScheduling:
    """Each vertex once, for what the allocation gives it, whether it needs that or not.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> work = SimpleNamespace(costs=[1.0, 1.0], required=lambda position: None)
    >>> list(SimpleScheduling().schedule(work, 100.0, UniformAllocation()))
    [(0, 50.0), (1, 50.0)]
    """

    def schedule(
        self, work: VertexWork, instructions: float, allocation: Allocation
    ) -> Iterator[tuple[int, float]]:
        """Yield every vertex in topological order.

        Parameters
        ----------
        work
            The vertices.
        instructions
            How many there are in a tick.
        allocation
            What divides them among vertices.
        """
        yield from enumerate(allocation.allocate(instructions, work.costs))


@dataclass(frozen=True, slots=True)
class DynamicScheduling:
    """Rounds in which a vertex gets what it is allocated or what it needs, whichever is less.

    The first round allocates all instructions to all vertices. Every further round allocates what
    is left to the vertices that have something to do when the round begins; once that is a
    thousandth of the tick's instructions or less, to each of them all of it. In each round the
    vertices run in topological order; one that has nothing to do, or that is allocated nothing
    although an event costs it something, is passed over. The rounds end when no vertex has anything
    to do, when a billionth of the tick's instructions or less is left, or after 1000 of them.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> needs = {0: 10.0, 1: 500.0}
    >>> work = SimpleNamespace(costs=[1.0, 1.0], required=needs.get)
    >>> for position, given in DynamicScheduling().schedule(work, 100.0, UniformAllocation()):
    ...     needs[position] -= given
    ...     needs = {vertex: need for vertex, need in needs.items() if need}
    ...     work.required = needs.get
    ...     print(position, given)
    0 10.0
    1 50.0
    1 40.0
    """

    def schedule(
        self, work: VertexWork, instructions: float, allocation: Allocation
    ) -> Iterator[tuple[int, float]]:
        """Yield vertices in topological order, round by round.

        Parameters
        ----------
        work
            The vertices.
        instructions
            How many there are in a tick.
        allocation
            What divides them among vertices.
        """
        costs = work.costs
        ready: Sequence[int] = range(len(costs))
        left = instructions
        for _ in range(ROUNDS):
            granted = [0.0] * len(costs)
            shares: Sequence[float] = [left] * len(ready)
            if left > LAST * instructions:
                shares = allocation.allocate(left, [costs[position] for position in ready])
            for position, share in zip(ready, shares, strict=True):
                granted[position] = share
            for position, cost in enumerate(costs):
                share = min(granted[position], left)
                if cost and not share:
                    continue
                required = work.required(position)
                if required is not None:
                    given = min(share, required)
                    yield position, given
                    left -= given
            ready = [p for p in range(len(costs)) if work.required(p) is not None]
            if not ready or left <= LEFTOVER * instructions:
                return
