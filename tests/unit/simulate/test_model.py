"""Queries that are no graphs from producers to consumers are errors that name the place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outpace.errors import ScenarioError
from outpace.simulate import (
    ConstantOutput,
    Consumer,
    Edge,
    OperatorModel,
    Producer,
    QueryModel,
    ShareOutput,
    Uniform,
    WindowedOperator,
)

SOURCE = Producer("in", Uniform(10))
FILTER = OperatorModel("filter", 100)
MAP = OperatorModel("map", 100)
SINK = Consumer("out")


def message(make: Callable[[], object]) -> str:
    with pytest.raises(ScenarioError) as caught:
        make()
    return str(caught.value)


def test_a_cycle_names_its_vertices() -> None:
    edges = (
        Edge("in", "filter"),
        Edge("filter", "map"),
        Edge("map", "filter"),
        Edge("map", "out"),
    )
    text = message(lambda: QueryModel("q", (SOURCE, FILTER, MAP, SINK), edges))
    assert "the vertices form a cycle" in text
    assert "filter -> map -> filter" in text or "map -> filter -> map" in text


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (
            lambda: QueryModel("q", (SOURCE, SINK), (Edge("in", "outt"),)),
            ["unknown vertex 'outt'", "edge 'in' -> 'outt'", "did you mean 'out'?"],
        ),
        (lambda: Edge("in", "out", -0.1), ["selectivity", "-0.1", "edge 'in' -> 'out'"]),
        (lambda: Edge("in", "out", float("nan")), ["selectivity"]),
        (
            lambda: QueryModel("q", (SOURCE, SOURCE, SINK), (Edge("in", "out"),)),
            ["'q' has two vertices of this name", "vertex 'in'"],
        ),
        (
            lambda: QueryModel("q", (SOURCE, SINK), (Edge("in", "out"), Edge("in", "out", 0.5))),
            ["two edges between these", "edge 'in' -> 'out'"],
        ),
        (lambda: QueryModel("q", (), ()), ["no vertices", "query 'q'"]),
        (lambda: QueryModel("", (SOURCE, SINK), (Edge("in", "out"),)), ["a query has no name"]),
        (
            lambda: QueryModel(
                "q", (SOURCE, FILTER, SINK), (Edge("in", "out"), Edge("in", "filter"))
            ),
            ["no edge leads out of this operator", "vertex 'filter'"],
        ),
        (
            lambda: QueryModel(
                "q", (SOURCE, FILTER, SINK), (Edge("in", "out"), Edge("filter", "out"))
            ),
            ["no edge leads into this operator", "vertex 'filter'"],
        ),
        (
            lambda: QueryModel(
                "q", (SOURCE, FILTER, SINK), (Edge("filter", "in"), Edge("in", "out"))
            ),
            ["an edge leads into a producer", "vertex 'in'"],
        ),
        (
            lambda: QueryModel(
                "q", (SOURCE, SINK, FILTER), (Edge("in", "out"), Edge("out", "filter"))
            ),
            ["an edge leads out of a consumer", "vertex 'out'"],
        ),
        (lambda: OperatorModel("", 1), ["a vertex has no id"]),
        (lambda: OperatorModel("f", -1), ["instructions per event", "-1", "vertex 'f'"]),
        (lambda: OperatorModel("f", 1, queue=0), ["the queue has no room", "vertex 'f'"]),
        (lambda: Producer("p", 10), ["the generator of Producer 'p' is a Generator, not 10"]),
        (
            lambda: WindowedOperator("w", window=15, advance=4),
            ["the window of 15 s is no multiple of its advance of 4 s", "vertex 'w'"],
        ),
        (
            lambda: WindowedOperator("w", window=5, advance=10),
            ["no multiple of its advance", "vertex 'w'"],
        ),
        (lambda: WindowedOperator("w", window=0), ["the window is not longer than 0 s"]),
        (lambda: WindowedOperator("w", window=1, advance=-1), ["the advance is not longer"]),
        (lambda: WindowedOperator("w", combination=1), ["the combination of WindowedOperator 'w'"]),
        (lambda: ConstantOutput(-1), ["combination's number of events"]),
        (lambda: ShareOutput(float("inf")), ["combination's share"]),
    ],
)
def test_what_is_wrong_is_named(make: Callable[[], object], parts: list[str]) -> None:
    text = message(make)
    for part in parts:
        assert part in text


def test_a_copy_is_the_same_query_under_other_names() -> None:
    query = QueryModel("q", (SOURCE, SINK), (Edge("in", "out", 0.5),))
    copy = query.copy("7")
    assert copy.name == "7/q"
    assert [vertex.id for vertex in copy.vertices] == ["7/in", "7/out"]
    assert copy.edges == (Edge("7/in", "7/out", 0.5),)
    assert copy.vertices[0].generator is SOURCE.generator


@pytest.mark.parametrize(
    ("window", "advance", "slots"), [(30, 10, 3), (0.3, 0.1, 3), (15, None, 1)]
)
def test_a_window_has_a_slot_for_each_advance(
    window: float, advance: float | None, slots: int
) -> None:
    assert WindowedOperator("w", window=window, advance=advance).slots == slots
