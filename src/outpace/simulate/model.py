"""Queries as directed graphs: producers, operators of three kinds, and consumers.

A vertex is known by its id. Several queries of a scenario may name the same vertex, with the same
definition, and so share it. What is wrong with a query is an error that names the vertex or edge
when the value is made (the CEPSim paper, section 4.1). How many events leave a window, given how
many came in from each predecessor, is the combination function of its equation 1, a value with one
method; own functions are classes with such a method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from outpace.errors import ScenarioError, did_you_mean
from outpace.simulate.fields import Bytes, Instructions, Seconds, check_fields, not_negative
from outpace.simulate.generators import Generator

Overflow = Literal["accumulate", "discard"]


@runtime_checkable
class Combination(Protocol):
    """A function from the counts of a window's input to the count of its output."""

    def combine(self, counts: Sequence[float]) -> float:
        """Return the number of output events for these numbers of input events."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantOutput:
    """The same number of events from every window that is not empty, for example a count.

    Parameters
    ----------
    events
        The number of events.

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
        """Return the constant.

        Parameters
        ----------
        counts
            The numbers of input events, by predecessor.
        """
        return float(self.events)


@dataclass(frozen=True, slots=True)
class ShareOutput:
    """A share of all events of the window, for example one event for every ten.

    Parameters
    ----------
    share
        The share: 0.1 for one of ten.

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
        """Return the share of the sum, added up in the order of the predecessors.

        Parameters
        ----------
        counts
            The numbers of input events, by predecessor.
        """
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
        """Return the smallest of the counts.

        Parameters
        ----------
        counts
            The numbers of input events, by predecessor.
        """
        return min(counts)


@dataclass(frozen=True, slots=True)
class Producer:
    """A source of events.

    Parameters
    ----------
    id
        The vertex's name in the scenario.
    generator
        How many events it has produced by a time.
    instructions
        What it costs to take one event in, in CPU instructions.
    queue
        How many events may wait in it; None for the scenario's own bound.
    parallelism
        How many processors of its VM it uses at a time, at most.
    overflow
        What it does with events that its queue has no room for; None for what the scenario says.
    state_bytes, event_bytes
        The memory that it takes at all times, and for each event that waits in it or that its
        window or batch holds, in bytes.
    rate_max
        The most events a second that it takes in; it sheds the others, as soon as they come. What
        it did not take in of that in the last second it may take in at once.

    Examples
    --------
    >>> from outpace.simulate import Uniform
    >>> Producer("sensors", Uniform(100), instructions=1000).generator
    Uniform(rate=100)
    """

    id: str
    generator: Generator
    instructions: Instructions = 0.0
    queue: float | None = None
    parallelism: int = 1
    overflow: Overflow | None = None
    state_bytes: Bytes = 0
    event_bytes: Bytes = 0
    rate_max: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, "vertex")
        _check_vertex(self)
        if self.rate_max is not None:
            not_negative("the most events a second are", self.rate_max, ("vertex", self.id))


@dataclass(frozen=True, slots=True)
class OperatorModel:
    """An operator that looks at each event by itself; its edges say what it lets through.

    Parameters
    ----------
    id
        The vertex's name in the scenario.
    instructions
        What one event costs, in CPU instructions. 0 is no cost at all.
    queue
        How many events may wait on each edge into it; None for the scenario's own bound.
    parallelism
        How many processors of its VM it uses at a time, at most.
    state_bytes, event_bytes
        The memory that it takes at all times, and for each event that waits in it or that its
        window or batch holds, in bytes.

    Examples
    --------
    >>> OperatorModel("filter", instructions=25_000, queue=2048).queue
    2048
    """

    id: str
    instructions: Instructions = 0.0
    queue: float | None = None
    parallelism: int = 1
    state_bytes: Bytes = 0
    event_bytes: Bytes = 0

    def __post_init__(self) -> None:
        check_fields(self, "vertex")
        _check_vertex(self)


@dataclass(frozen=True, slots=True)
class WindowedOperator:
    """An operator that gathers events and sends some when a window closes.

    Parameters
    ----------
    id, instructions, queue, parallelism, state_bytes, event_bytes
        As for `OperatorModel`.
    window
        The length of a window, in seconds.
    advance
        The time between the ends of two windows, in seconds; the window's length if not given. The
        window must be a multiple of it.
    combination
        How many events a window sends.

    Examples
    --------
    >>> WindowedOperator("average", window=30, advance=10, combination=ConstantOutput(1)).slots
    3
    """

    id: str
    instructions: Instructions = 0.0
    window: Seconds = 1.0
    advance: Seconds | None = None
    combination: Combination = field(default_factory=ConstantOutput)
    queue: float | None = None
    parallelism: int = 1
    state_bytes: Bytes = 0
    event_bytes: Bytes = 0

    def __post_init__(self) -> None:
        check_fields(self, "vertex")
        _check_vertex(self)
        subject = ("vertex", self.id)
        for name, length in (("window", self.window), ("advance", self.period)):
            if not 0 < length < math.inf:
                raise ScenarioError(f"the {name} is not longer than 0 s: {length}", subject=subject)
        if abs(self.window / self.period - self.slots) > 1e-9 * self.slots or not self.slots:
            raise ScenarioError(
                f"the window of {self.window} s is no multiple of its advance of {self.period} s",
                subject=subject,
            )

    @property
    def period(self) -> float:
        """The time between the ends of two windows, in seconds."""
        return self.window if self.advance is None else self.advance

    @property
    def slots(self) -> int:
        """The number of advance periods in a window."""
        return round(self.window / self.period)


@dataclass(frozen=True, slots=True)
class BatchOperator:
    """An operator that takes all that waits as one batch, and sends it when all of it is done.

    So do engines with micro-batches, such as Spark's streams: nothing of a batch is seen before its
    end, and what comes meanwhile waits for the next one.

    Parameters
    ----------
    id, instructions, queue, parallelism, state_bytes, event_bytes
        As for `OperatorModel`.
    interval
        The time between the begins of two batches, in seconds. A batch that takes longer delays the
        next one, which then begins at once. 0 is a batch right after the other.
    setup
        What a batch costs, however few events it has, in CPU instructions of one processor: it
        takes as long on many.
    events_max
        The most events of a batch; the others wait.

    Examples
    --------
    >>> BatchOperator("match", instructions=1000, interval=2, setup=1e9).events_max
    inf
    """

    id: str
    instructions: Instructions = 0.0
    interval: Seconds = 1.0
    setup: Instructions = 0.0
    events_max: float = math.inf
    queue: float | None = None
    parallelism: int = 1
    state_bytes: Bytes = 0
    event_bytes: Bytes = 0

    def __post_init__(self) -> None:
        check_fields(self, "vertex")
        _check_vertex(self)
        subject = ("vertex", self.id)
        for name, value in (("interval", self.interval), ("setup", self.setup)):
            not_negative(f"the {name} is", value, subject)
        if not self.events_max > 0:
            raise ScenarioError(f"a batch has no events: {self.events_max}", subject=subject)


@dataclass(frozen=True, slots=True)
class Consumer:
    """Where events leave a query. Latency and throughput are measured here.

    Parameters
    ----------
    id, instructions, queue, parallelism, state_bytes, event_bytes
        As for `OperatorModel`.

    Examples
    --------
    >>> Consumer("alarms").instructions
    0.0
    """

    id: str
    instructions: Instructions = 0.0
    queue: float | None = None
    parallelism: int = 1
    state_bytes: Bytes = 0
    event_bytes: Bytes = 0

    def __post_init__(self) -> None:
        check_fields(self, "vertex")
        _check_vertex(self)


Vertex: TypeAlias = Producer | OperatorModel | WindowedOperator | BatchOperator | Consumer


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream of events from one vertex to another.

    Parameters
    ----------
    source, target
        The ids of the vertices.
    selectivity
        How many events go this way for each event that the source processes; above 1 if it makes
        several of one.

    Examples
    --------
    >>> Edge("filter", "alarms", 0.05).selectivity
    0.05
    """

    source: str
    target: str
    selectivity: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        not_negative("the selectivity is", self.selectivity, ("edge", self.source, self.target))


@dataclass(frozen=True, slots=True)
class QueryModel:
    """A directed graph without cycles, from producers through operators to consumers.

    Parameters
    ----------
    name
        What the scenario calls it.
    vertices, edges
        The graph. The order of the edges into a vertex is the order in which its inputs are added
        up; the order of the vertices decides where the topological order leaves a choice.

    Examples
    --------
    >>> from outpace.simulate import Uniform
    >>> query = QueryModel("alarms",
    ...     (Producer("sensors", Uniform(100)), OperatorModel("filter", 25_000), Consumer("pager")),
    ...     (Edge("sensors", "filter"), Edge("filter", "pager", 0.05)))
    >>> query.copy("7").vertices[1].id
    '7/filter'
    """

    name: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        subject = ("query", self.name)
        if not self.name:
            raise ScenarioError("a query has no name", subject=subject)
        if not self.vertices:
            raise ScenarioError("the query has no vertices", subject=subject)
        self._check_names()
        self._check_ends()
        check_cycles(self.edges)

    def copy(self, prefix: str) -> QueryModel:
        """Return the query with `prefix/` before its name and all its vertices' ids.

        Parameters
        ----------
        prefix
            The text before the names.
        """
        return QueryModel(
            f"{prefix}/{self.name}",
            tuple(replace(vertex, id=f"{prefix}/{vertex.id}") for vertex in self.vertices),
            tuple(
                Edge(f"{prefix}/{edge.source}", f"{prefix}/{edge.target}", edge.selectivity)
                for edge in self.edges
            ),
        )

    def _check_names(self) -> None:
        names: set[str] = set()
        for vertex in self.vertices:
            if vertex.id in names:
                raise ScenarioError(
                    f"the query {self.name!r} has two vertices of this name",
                    subject=("vertex", vertex.id),
                )
            names.add(vertex.id)
        pairs: set[tuple[str, str]] = set()
        for edge in self.edges:
            subject = ("edge", edge.source, edge.target)
            for end in (edge.source, edge.target):
                if end not in names:
                    raise ScenarioError(
                        f"unknown vertex {end!r}", subject=subject, hint=did_you_mean(end, names)
                    )
            if (edge.source, edge.target) in pairs:
                raise ScenarioError("there are two edges between these", subject=subject)
            pairs.add((edge.source, edge.target))

    def _check_ends(self) -> None:
        sources = {edge.source for edge in self.edges}
        targets = {edge.target for edge in self.edges}
        for vertex in self.vertices:
            kind, subject = kind_of(vertex), ("vertex", vertex.id)
            if isinstance(vertex, Producer) and vertex.id in targets:
                raise ScenarioError("an edge leads into a producer", subject=subject)
            if isinstance(vertex, Consumer) and vertex.id in sources:
                raise ScenarioError("an edge leads out of a consumer", subject=subject)
            if not isinstance(vertex, Producer) and vertex.id not in targets:
                raise ScenarioError(f"no edge leads into this {kind}", subject=subject)
            if not isinstance(vertex, Consumer) and vertex.id not in sources:
                raise ScenarioError(f"no edge leads out of this {kind}", subject=subject)


_KINDS = {
    Producer: "producer",
    OperatorModel: "operator",
    WindowedOperator: "windowed operator",
    BatchOperator: "batch operator",
    Consumer: "consumer",
}


def kind_of(vertex: Vertex) -> str:
    """Return what a vertex is, in words.

    Examples
    --------
    >>> kind_of(Consumer("alarms"))
    'consumer'
    """
    return _KINDS[type(vertex)]


def check_cycles(edges: tuple[Edge, ...]) -> None:
    """Raise an error that names the vertices of a cycle, if there is one."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for edge in edges:
        sorter.add(edge.target, edge.source)
    try:
        sorter.prepare()
    except CycleError as error:
        # graphlib lists each vertex after the one that it depends on.
        cycle = error.args[1]
        raise ScenarioError(
            "the vertices form a cycle",
            subject=("edge", cycle[0], cycle[1]),
            detail=" -> ".join(cycle),
        ) from None


def _check_vertex(vertex: Vertex) -> None:
    subject = ("vertex", vertex.id)
    if not vertex.id:
        raise ScenarioError("a vertex has no id", subject=subject)
    not_negative("the instructions per event are", vertex.instructions, subject)
    if vertex.parallelism < 1:
        raise ScenarioError(
            f"the parallelism is not a whole number from 1 on: {vertex.parallelism}",
            subject=subject,
        )
    not_negative("the bytes of its state are", vertex.state_bytes, subject)
    not_negative("the bytes per event are", vertex.event_bytes, subject)
    if vertex.queue is not None and not vertex.queue > 0:
        raise ScenarioError(f"the queue has no room: {vertex.queue}", subject=subject)
