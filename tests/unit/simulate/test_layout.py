"""The order of vertices, paths, phases and new events, which all engines start from."""

from __future__ import annotations

import math

import numpy as np
from support.simulated import chain

from outpace.simulate import (
    VM,
    Cloud,
    Consumer,
    Datacentre,
    Edge,
    FailVM,
    Host,
    Increasing,
    MoveVertex,
    OperatorModel,
    Producer,
    QueryModel,
    RestartVM,
    Scenario,
    SetRate,
    StartQuery,
    StopQuery,
    Uniform,
)
from outpace.simulate.layout import Layout, lay_out
from outpace.simulate.phases import new_events, phases

WORKER = (VM("worker", 1000),)


def ids(layout: Layout) -> list[str]:
    return [vertex.id for vertex in layout.vertices]


def test_queries_follow_each_other_each_in_topological_order() -> None:
    query = QueryModel(
        "q",
        (Consumer("out"), OperatorModel("b"), OperatorModel("a"), Producer("in", Uniform(1))),
        (Edge("in", "a"), Edge("in", "b"), Edge("a", "out"), Edge("b", "out")),
    )
    layout = lay_out(Scenario((query.copy("2"), query.copy("1")), WORKER, 10))
    assert ids(layout) == [f"{n}/{name}" for n in (2, 1) for name in ("in", "b", "a", "out")]


def test_a_shared_vertex_comes_after_all_its_predecessors() -> None:
    merge, sink = OperatorModel("merge"), Consumer("out")
    one = chain(Producer("x", Uniform(1)), merge, sink, name="one")
    two = chain(Producer("y", Uniform(1)), merge, sink, name="two")
    layout = lay_out(Scenario((one, two), WORKER, 10))
    assert ids(layout) == ["x", "y", "merge", "out"]
    assert [layout.edges[edge].source for edge in layout.incoming[2]] == ["x", "y"]
    assert layout.paths == ({0: 1, 1: 1},)


def test_paths_are_counted_through_every_branch() -> None:
    middle = [OperatorModel(name) for name in "abc"]
    query = QueryModel(
        "q",
        (Producer("in", Uniform(1)), *middle, OperatorModel("merge"), Consumer("out")),
        (
            *(Edge("in", vertex.id) for vertex in middle),
            *(Edge(vertex.id, "merge") for vertex in middle),
            Edge("merge", "out"),
            Edge("in", "out"),
        ),
    )
    assert lay_out(Scenario((query,), WORKER, 10)).paths == ({0: 4},)


def test_ticks_and_samples_cover_the_duration() -> None:
    query = chain(Producer("in", Uniform(1)), Consumer("out"))
    layout = lay_out(Scenario((query,), WORKER, 10.05, tick=0.1, sample=2.0, warm_up=0.3))
    assert (layout.ticks, layout.ticks_per_sample, layout.samples) == (101, 20, 6)
    assert layout.warm_up_ticks == 3
    assert lay_out(Scenario((query,), WORKER, 10, sample=math.inf)).samples == 1
    assert lay_out(Scenario((query,), WORKER, 10, tick=0.3)).ticks_per_sample == 3


def test_new_events_are_those_of_the_tick_before() -> None:
    query = chain(Producer("in", Increasing(10, over=4)), Consumer("out"))
    layout = lay_out(Scenario((query,), WORKER, 6, tick=1))
    events = new_events(layout, phases(layout), 0, 0, 6)
    assert events.tolist() == [0, 1, 4, 6, 9, 10]
    assert new_events(layout, phases(layout), 0, 2, 5).tolist() == [4, 6, 9]


def test_a_rate_changes_from_its_time_on() -> None:
    query = chain(Producer("in", Uniform(10)), Consumer("out"))
    changes = (SetRate(5, "in", generator=Increasing(8, over=4)), SetRate(2, "in", factor=1.5))
    layout = lay_out(Scenario((query,), WORKER, 8, tick=1, changes=changes))
    events = new_events(layout, phases(layout), 0, 0, 8)
    assert events.tolist() == [0, 10, 10, 15, 15, 15, 1, 3]


def test_a_query_that_does_not_run_produces_nothing() -> None:
    query = chain(Producer("in", Uniform(10)), Consumer("out"))
    changes = (StartQuery(2, "q"), StopQuery(4, "q"), StartQuery(6, "q"))
    layout = lay_out(Scenario((query,), WORKER, 9, tick=1, changes=changes))
    events = new_events(layout, phases(layout), 0, 0, 9)
    assert events.tolist() == [0, 0, 0, 10, 0, 0, 0, 10, 10]
    assert [phase.running for phase in phases(layout)] == [
        (False, False), (True, True), (False, False), (True, True),
    ]  # fmt: skip


def test_a_shared_vertex_runs_while_one_of_its_queries_runs() -> None:
    source = Producer("in", Uniform(10))
    one, two = chain(source, Consumer("a"), name="one"), chain(source, Consumer("b"), name="two")
    changes = (StopQuery(2, "one"), StopQuery(4, "two"))
    layout = lay_out(Scenario((one, two), WORKER, 9, tick=1, changes=changes))
    _, middle, last = phases(layout)
    assert ids(layout) == ["in", "a", "b"]
    assert middle.running == (True, False, True)
    assert middle.cleared == {1}
    assert last.cleared == {0, 2}


def test_changes_of_one_time_come_in_their_order_and_late_ones_not_at_all() -> None:
    query = chain(Producer("in", Uniform(10)), Consumer("out"))
    machines = (VM("one", 100), VM("two", 100))
    changes = (
        MoveVertex(1.95, "out", "two"),
        FailVM(1.95, "two"),
        MoveVertex(1.95, "out", "one"),
        RestartVM(99, "two"),
    )
    layout = lay_out(
        Scenario((query,), machines, 4, {"in": "one", "out": "one"}, tick=1, changes=changes)
    )
    first, second = phases(layout)
    assert (first.first_tick, second.first_tick, second.end_tick) == (0, 2, 4)
    assert (second.homes, second.up, second.cleared) == ((0, 0), (True, False), {1})


def test_machines_on_one_host_get_alike_of_what_there_is() -> None:
    queries = [
        chain(Producer("in", Uniform(1)), Consumer("out")).copy(name) for name in ("x", "y", "z")
    ]
    vms = tuple(VM(name, 100, processors=2) for name in ("x", "y", "z"))
    placement = {v.id: v.id[0] for query in queries for v in query.vertices}
    clouds = (Cloud("c", (Datacentre("d", (Host("h", 100, processors=4),)),)),)
    changes = (StopQuery(1, "z/q"), FailVM(2, "x"))
    layout = lay_out(Scenario(queries, vms, 4, placement, clouds, tick=1, changes=changes))
    capacities = np.array([phase.capacities for phase in phases(layout)])
    expected = np.array([[400 / 3] * 3, [200, 200, 0], [0, 200, 0]])
    np.testing.assert_allclose(capacities, expected)
