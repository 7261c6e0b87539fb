"""Scenarios of the capacity simulator, drawn by Hypothesis, and small ones written by hand."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from outpace.simulate import (
    VM,
    Bandwidth,
    BatchOperator,
    Bursty,
    Cloud,
    ConstantDelay,
    ConstantOutput,
    Consumer,
    Datacentre,
    DynamicScheduling,
    Edge,
    FailVM,
    Host,
    MoveVertex,
    OperatorModel,
    PairedOutput,
    Poisson,
    Producer,
    QueryModel,
    RecordedTimes,
    RestartVM,
    Scenario,
    SetRate,
    ShareOutput,
    SimpleScheduling,
    StartQuery,
    StopQuery,
    Uniform,
    UniformAllocation,
    WeightedAllocation,
    WindowedOperator,
)

GENERATORS = st.one_of(
    st.builds(Uniform, st.sampled_from([0, 3, 40, 250.5])),
    st.builds(Poisson, st.sampled_from([5, 120]), st.integers(0, 5)),
    st.builds(Bursty, st.sampled_from([200.0]), st.sampled_from([0.4]), st.sampled_from([0.7, 2])),
    st.builds(
        lambda times: RecordedTimes(tuple(sorted(times))), st.lists(st.floats(0, 6), max_size=20)
    ),
)
COSTS = st.sampled_from([0.0, 100.0, 2_000.0, 30_000.0])
QUEUES = st.sampled_from([None, None, 5.0, 60.0, math.inf])
PARALLELISMS = st.sampled_from([1, 1, 1, 2, 5])
SELECTIVITIES = st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.0, 2.5])
COMBINATIONS = st.one_of(
    st.builds(ConstantOutput, st.sampled_from([0.0, 1.0, 7.0])),
    st.builds(ShareOutput, st.sampled_from([0.1, 1.0])),
    st.just(PairedOutput()),
)


def chain(*vertices: Any, name: str = "q", selectivities: tuple[float, ...] = ()) -> QueryModel:
    """A query whose vertices follow each other."""
    share = (*selectivities, *([1.0] * len(vertices)))
    edges = tuple(
        Edge(source.id, target.id, part)
        for source, target, part in zip(vertices, vertices[1:], share, strict=False)
    )
    return QueryModel(name, vertices, edges)


@st.composite
def queries(draw: st.DrawFn, name: str) -> QueryModel:
    """A connected graph of up to two producers, four operators and two consumers."""
    producers = [
        Producer(
            f"{name}-in{n}",
            draw(GENERATORS),
            draw(COSTS),
            draw(QUEUES),
            draw(PARALLELISMS),
            draw(st.sampled_from([None, None, "accumulate", "discard"])),
        )
        for n in range(draw(st.integers(1, 2)))
    ]
    operators = []
    for n in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["operator", "operator", "window", "batch"]))
        if kind == "operator":
            operators.append(
                OperatorModel(f"{name}-op{n}", draw(COSTS), draw(QUEUES), draw(PARALLELISMS))
            )
        elif kind == "batch":
            operators.append(
                BatchOperator(
                    f"{name}-op{n}",
                    draw(COSTS),
                    draw(st.sampled_from([0.0, 0.3, 1.0])),
                    draw(st.sampled_from([0.0, 20_000.0, 400_000.0])),
                    draw(st.sampled_from([7.0, 100.0, math.inf])),
                    draw(QUEUES),
                    draw(PARALLELISMS),
                )
            )
        else:
            advance = draw(st.sampled_from([0.5, 1.0]))
            window = advance * draw(st.integers(1, 3))
            combination = draw(COMBINATIONS)
            operators.append(
                WindowedOperator(
                    f"{name}-op{n}",
                    draw(COSTS),
                    window,
                    advance,
                    combination,
                    draw(QUEUES),
                    draw(PARALLELISMS),
                )
            )
    consumers = [
        Consumer(f"{name}-out{n}", draw(COSTS), draw(QUEUES), draw(PARALLELISMS))
        for n in range(draw(st.integers(1, 2)))
    ]
    earlier = [vertex.id for vertex in producers]
    edges: dict[tuple[str, str], Edge] = {}
    for vertex in (*operators, *consumers):
        for source in draw(st.lists(st.sampled_from(earlier), min_size=1, max_size=2)):
            edges[source, vertex.id] = Edge(source, vertex.id, draw(SELECTIVITIES))
        if not isinstance(vertex, Consumer):
            earlier.append(vertex.id)
    for source in earlier:
        if not any(edge.source == source for edge in edges.values()):
            edges[source, consumers[0].id] = Edge(source, consumers[0].id, draw(SELECTIVITIES))
    return QueryModel(name, (*producers, *operators, *consumers), tuple(edges.values()))


@st.composite
def scenarios(draw: st.DrawFn, changing: bool = True) -> Scenario:
    """A few seconds of up to three queries on up to three machines."""
    drawn = [draw(queries(f"q{n}")) for n in range(draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        drawn.append(_sharing(drawn[0], draw(COSTS)))
    vms = [
        VM(
            f"vm{n}",
            draw(st.sampled_from([1.0, 5.0])),
            draw(st.sampled_from([1, 1, 2, 3])),
            scheduling=draw(st.sampled_from([None, None, SimpleScheduling()])),
            allocation=draw(st.sampled_from([None, None, WeightedAllocation()])),
        )
        for n in range(draw(st.integers(1, 3)))
    ]
    ids = list(dict.fromkeys(vertex.id for query in drawn for vertex in query.vertices))
    placement = {vertex: draw(st.sampled_from(vms)).id for vertex in ids}
    clouds = ()
    if draw(st.booleans()):
        clouds = (Cloud("cloud", (Datacentre("centre", (Host("host", 6.0, 3),)),)),)
    return Scenario(
        tuple(drawn),
        tuple(vms),
        duration=draw(st.sampled_from([3.0, 5.3])),
        placement=placement,
        clouds=clouds,
        network=draw(st.sampled_from([ConstantDelay(0.0), ConstantDelay(0.03), _SLOW])),
        scheduling=draw(st.sampled_from([SimpleScheduling(), DynamicScheduling()])),
        allocation=draw(st.sampled_from([UniformAllocation(), WeightedAllocation()])),
        tick=draw(st.sampled_from([0.1, 0.25])),
        queue=draw(st.sampled_from([math.inf, 20.0])),
        overflow=draw(st.sampled_from(["accumulate", "discard"])),
        warm_up=draw(st.sampled_from([0.0, 1.0])),
        changes=tuple(draw(st.lists(_changes(drawn, vms, ids), max_size=4))) if changing else (),
    )


_SLOW = Bandwidth(latency=0.01, bits_per_second=80_000, bytes_per_event=100)


def _sharing(query: QueryModel, cost: float) -> QueryModel:
    """A query that shares all but the consumers with another."""
    own = [vertex for vertex in query.vertices if not isinstance(vertex, Consumer)]
    last = Consumer("shared-out", cost)
    kept = [edge for edge in query.edges if not _ends(edge, query)]
    sources = {edge.source for edge in kept}
    ends = [Edge(vertex.id, last.id) for vertex in own if vertex.id not in sources]
    return QueryModel("shared", (*own, last), (*kept, *ends))


def _ends(edge: Edge, query: QueryModel) -> bool:
    return any(isinstance(v, Consumer) and v.id == edge.target for v in query.vertices)


def _changes(drawn: list[QueryModel], vms: list[VM], ids: list[str]) -> st.SearchStrategy[Any]:
    at = st.sampled_from([0.0, 0.7, 1.5, 2.0, 2.9, 99.0])
    query = st.sampled_from([query.name for query in drawn])
    vm = st.sampled_from([vm.id for vm in vms])
    producers = [v.id for query in drawn for v in query.vertices if isinstance(v, Producer)]
    producer = st.sampled_from(producers)
    return st.one_of(
        st.builds(StartQuery, at, query),
        st.builds(StopQuery, at, query),
        st.builds(MoveVertex, at, st.sampled_from(ids), vm),
        st.builds(FailVM, at, vm),
        st.builds(RestartVM, at, vm),
        st.builds(SetRate, at, producer, factor=st.sampled_from([0.0, 0.5, 3.0])),
        st.builds(SetRate, at, producer, generator=GENERATORS),
    )
