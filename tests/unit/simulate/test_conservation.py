"""Nothing appears and nothing vanishes: what was produced is consumed, held, on its way or lost.

For every producer and consumer the totals that can still come to the consumer, or have come, or
were lost on the way, each by as many paths as lead on from where they are, are what was produced
times the paths between the two.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.simulated import scenarios

from outpace.simulate import (
    VM,
    BatchOperator,
    Consumer,
    DynamicScheduling,
    Edge,
    FailVM,
    OperatorModel,
    Producer,
    QueryModel,
    RestartVM,
    Scenario,
    SimpleScheduling,
    Uniform,
    WindowedOperator,
)
from outpace.simulate.phases import new_events, phases
from outpace.simulate.twin import Twin
from outpace.simulate.vertex_state import BatchState, WindowState


def paths_to(twin: Twin, consumer: int) -> list[int]:
    """The number of paths from each vertex to a consumer."""
    layout = twin.layout
    paths = [0] * len(layout.vertices)
    paths[consumer] = 1
    for vertex in reversed(range(consumer)):
        paths[vertex] = sum(paths[layout.targets[edge]] for edge in layout.outgoing[vertex])
    return paths


def accounted(twin: Twin, consumer: int) -> dict[str, float]:
    """The totals by producer that have come, may come or were lost, times paths."""
    paths = paths_to(twin, consumer)
    found: dict[str, float] = defaultdict(float)

    def add(totals: Mapping[str, float], times: int) -> None:
        for producer, total in totals.items():
            found[producer] += total * times

    add(twin.outputs[consumer].totals, 1)
    for vertex, state in enumerate(twin.states):
        for queue in state.queues:
            for event_set in queue:
                add(event_set.totals, paths[vertex])
        if isinstance(state, WindowState):
            add(state.uncounted, paths[vertex])
        if isinstance(state, BatchState):
            add(state.batch.totals, paths[vertex])
    for inbox in twin.arrivals:
        for _, _, edge, event_set in inbox:
            add(event_set.totals, paths[twin.layout.targets[edge]])
    for vertex, totals in twin.lost.items():
        add(totals, paths[vertex])
    return found


def check(twin: Twin) -> None:
    layout = twin.layout
    for consumer in layout.consumers:
        found = accounted(twin, consumer)
        paths = paths_to(twin, consumer)
        for producer in layout.producers:
            events = new_events(layout, phases(layout), producer, 0, twin.tick).sum()
            expected = float(events) * paths[producer]
            name = layout.vertices[producer].id
            assert found[name] == pytest.approx(expected, rel=1e-9, abs=1e-6)


@examples(60)
@given(scenarios())
def test_totals_are_conserved_in_every_tick(scenario: Scenario) -> None:
    twin = Twin(replace(scenario, warm_up=0.0))
    while twin.tick < twin.layout.ticks:
        twin.step()
        check(twin)


@examples(40)
@given(scenarios())
def test_a_machine_never_does_more_than_it_can(scenario: Scenario) -> None:
    twin = Twin(scenario)
    while twin.tick < twin.layout.ticks:
        twin.step()
    offered = np.zeros(len(scenario.vms))
    for phase in phases(twin.layout):
        ticks = phase.end_tick - phase.first_tick
        offered += np.array(phase.capacities) * 1e6 * ticks * scenario.tick
    used = twin.recording.vm_instructions.sum(axis=0)
    assert (used <= offered * (1 + 1e-6)).all()


@examples(40)
@given(scenarios())
def test_a_queue_is_never_longer_than_its_bound_but_for_what_a_window_keeps(
    scenario: Scenario,
) -> None:
    twin = Twin(scenario)
    layout = twin.layout
    while twin.tick < layout.ticks:
        before = [twin.sent(edge) for edge in range(len(layout.edges))]
        twin.step()
        for edge, (source, target) in enumerate(zip(layout.sources, layout.targets, strict=True)):
            bound = layout.bounds[target] * (1 + 1e-6)
            if not isinstance(layout.vertices[source], WindowedOperator):
                assert twin.sent(edge) <= bound
            elif min(before[edge], twin.sent(edge)) > bound:
                # It was blocked all the time, and sent nothing.
                assert twin.sent(edge) <= before[edge]


@examples(40)
@given(scenarios(changing=False))
def test_a_step_of_history_adds_up_to_the_whole(scenario: Scenario) -> None:
    twin = Twin(replace(scenario, warm_up=0.0))
    while twin.tick < twin.layout.ticks:
        twin.step()
    recording = twin.recording
    near = pytest.approx
    assert recording.consumer_events.sum(axis=0) == near(recording.events)
    assert recording.consumer_totals.sum(axis=0) == near(recording.totals)
    assert recording.consumer_delay.sum(axis=0) == near(recording.events * recording.latency)
    assert recording.histogram.sum(axis=1) == near(recording.events)
    assert recording.vertex_processed.sum(axis=0) == near(recording.processed)
    assert recording.vertex_dropped.sum(axis=0) == near(recording.dropped)
    assert recording.vm_instructions.sum(axis=0) == near(recording.instructions)


@examples(40)
@given(
    rates=st.lists(st.sampled_from([0.0, 3.0, 70.0, 400.0]), min_size=1, max_size=2),
    interval=st.sampled_from([0.0, 0.3, 1.0]),
    setup=st.sampled_from([0.0, 1e5, 2e6]),
    cost=st.sampled_from([0.0, 500.0, 40_000.0]),
    most=st.sampled_from([1.0, 50.0, math.inf]),
    queue=st.sampled_from([None, 30.0]),
    simple=st.booleans(),
    failing=st.booleans(),
)
def test_totals_are_conserved_with_batches(
    rates: list[float],
    interval: float,
    setup: float,
    cost: float,
    most: float,
    queue: float | None,
    simple: bool,
    failing: bool,
) -> None:
    producers = [Producer(f"in{n}", Uniform(rate)) for n, rate in enumerate(rates)]
    batch = BatchOperator("batch", cost, interval, setup, most, queue)
    after = OperatorModel("after", 300.0)
    query = QueryModel(
        "q",
        (*producers, batch, after, Consumer("out")),
        (
            *(Edge(producer.id, "batch", 0.5) for producer in producers),
            Edge("batch", "after", 2.0),
            Edge("after", "out"),
        ),
    )
    scenario = Scenario(
        (query,),
        (VM("worker", mips=5.0),),
        duration=4,
        scheduling=SimpleScheduling() if simple else DynamicScheduling(),
        changes=(FailVM(1.5, "worker"), RestartVM(2.0, "worker")) if failing else (),
    )
    twin = Twin(scenario)
    while twin.tick < twin.layout.ticks:
        twin.step()
        check(twin)
    offered = 5e6 * (3.5 if failing else 4.0)
    assert twin.recording.vm_instructions.sum() <= offered * (1 + 1e-6)
