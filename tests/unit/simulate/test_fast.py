"""The compiled engine gives the twin's numbers, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import given
from support.properties import examples
from support.simulated import chain, scenarios

from outpace.errors import ScenarioError
from outpace.simulate import (
    VM,
    Bursty,
    ConstantDelay,
    Consumer,
    DynamicScheduling,
    Edge,
    Increasing,
    OperatorModel,
    Producer,
    QueryModel,
    Scenario,
    SetRate,
    SimpleScheduling,
    StopQuery,
    Uniform,
    UniformAllocation,
    WeightedAllocation,
    WindowedOperator,
    fast,
    simulate,
)
from outpace.simulate.fast import needs_twin, run_fast
from outpace.simulate.generators import Generator
from outpace.simulate.layout import lay_out
from outpace.simulate.metrics import Recording
from outpace.simulate.run import Engine
from outpace.simulate.strategies import Allocation, Scheduling, VertexWork
from outpace.simulate.twin import run_twin
from outpace.studies.cepsim_queries import average_query, convert_query, worker


def assert_equal(found: Recording, expected: Recording) -> None:
    for field in fields(Recording):
        np.testing.assert_array_equal(
            getattr(found, field.name), getattr(expected, field.name), err_msg=field.name
        )


@examples(300)
@given(scenarios())
def test_both_engines_record_the_same(scenario: Scenario) -> None:
    assert_equal(run_fast(lay_out(scenario)), run_twin(scenario))


@pytest.mark.parametrize("engine", ["fast", "twin"])
def test_both_tell_how_far_they_are(engine: Engine) -> None:
    queries = tuple(average_query(4).copy(str(number)) for number in range(3))
    machines = tuple(worker(f"worker-{number}") for number in range(3))
    homes = {
        vertex.id: machine.id
        for query, machine in zip(queries, machines, strict=True)
        for vertex in query.vertices
    }
    told: list[float] = []
    simulate(Scenario(queries, machines, 30, homes), engine, told.append)
    assert told
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_they_do_so_for_the_queries_of_the_paper() -> None:
    queries = (
        average_query(20).copy("a"),
        convert_query(10).copy("b"),
        convert_query(50).copy("c"),
    )
    scenario = Scenario(queries, (worker(),), duration=40, warm_up=5)
    assert_equal(run_fast(lay_out(scenario)), run_twin(scenario))


def test_they_do_so_while_queues_and_sets_on_their_way_pile_up() -> None:
    # Rings and the store of flights grow many times: a tenth of what comes is processed, and a set
    # is on its way for five seconds.
    query = chain(
        Producer("in", Uniform(1000), 10), OperatorModel("slow", 10_000), Consumer("out", 10)
    )
    vms = (VM("near", 1), VM("far", 1))
    placement = {"in": "near", "slow": "far", "out": "near"}
    scenario = Scenario((query,), vms, 20, placement, network=ConstantDelay(5.0))
    found = run_fast(lay_out(scenario))
    assert_equal(found, run_twin(scenario))
    assert found.vertex_queue[-1, 1] > 1000


def diamond(name: str, generator: Generator) -> QueryModel:
    """Two ways of different length, and events that a producer sends in parts."""
    vertices = (
        Producer(f"{name}-in", generator, 2_000),
        OperatorModel(f"{name}-split", 30_000),
        OperatorModel(f"{name}-long", 9_000),
        OperatorModel(f"{name}-join", 5_000),
        Consumer(f"{name}-out", 1_000),
        Consumer(f"{name}-rest"),
    )
    ends = [(0, 1, 1.0), (1, 2, 0.95), (1, 3, 0.3), (2, 3, 1.1), (3, 4, 1.0), (2, 5, 0.5)]
    edges = tuple(Edge(vertices[a].id, vertices[b].id, part) for a, b, part in ends)
    return QueryModel(name, vertices, edges)


@pytest.mark.parametrize("scheduling", [DynamicScheduling(), SimpleScheduling()])
@pytest.mark.parametrize("allocation", [UniformAllocation(), WeightedAllocation()])
@pytest.mark.parametrize("queue", [math.inf, 4.0])
def test_they_do_so_where_ticks_are_alike(
    scheduling: Scheduling, allocation: Allocation, queue: float
) -> None:
    # New events come again after 1, 2 and 3 ticks, then as none before, then there are no more.
    generators = (Uniform(40), Uniform(15), Bursty(200.0, 0.4, 0.7), Increasing(60, 8.0))
    queries = tuple(diamond(f"q{n}", generator) for n, generator in enumerate(generators))
    scenario = Scenario(
        queries,
        (VM("worker", 50),),
        15,
        scheduling=scheduling,
        allocation=allocation,
        queue=queue,
        warm_up=2.3,
        changes=(StopQuery(10.0, "q3"), SetRate(12.0, "q0-in", factor=0.0)),
    )
    assert_equal(run_fast(lay_out(scenario)), run_twin(scenario))


def test_they_do_so_where_a_tick_goes_through_many_turns() -> None:
    # A queue of one event makes a tick of a hundred events longer than what is kept of it.
    query = chain(
        Producer("in", Uniform(1000), 10), OperatorModel("one", 10, 1), Consumer("out", 10)
    )
    scenario = Scenario((query,), (VM("worker", 1),), 5)
    found = run_fast(lay_out(scenario))
    assert_equal(found, run_twin(scenario))
    assert not found.vertex_queue.any()


def test_machines_run_in_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "PART", 6)
    queries = tuple(convert_query(10 * (n + 1)).copy(str(n)) for n in range(6))
    vms = tuple(worker(f"worker-{n}") for n in range(3))
    placement = {v.id: vms[n % 3].id for n, query in enumerate(queries) for v in query.vertices}
    layout = lay_out(Scenario(queries, vms, 20, placement))
    expected = run_twin(layout.scenario)
    for threads in (1, 2, 3):
        monkeypatch.setattr(fast.os, "sched_getaffinity", lambda _, n=threads: range(n))
        assert_equal(run_fast(layout), expected)


@dataclass(frozen=True)
class Backwards:
    """The last vertex first."""

    def schedule(
        self, work: VertexWork, instructions: float, allocation: Allocation
    ) -> Iterator[tuple[int, float]]:
        yield from reversed(list(enumerate(allocation.allocate(instructions, work.costs))))


@dataclass(frozen=True)
class Half:
    """One event for two."""

    def combine(self, counts: Sequence[float]) -> float:
        return sum(counts) / 2


@dataclass(frozen=True)
class First:
    """All to the first vertex."""

    def allocate(self, instructions: float, costs: Sequence[float]) -> Sequence[float]:
        return [instructions, *([0.0] * (len(costs) - 1))]


def own_scenarios() -> dict[str, Scenario]:
    query = chain(Producer("in", Uniform(10)), Consumer("out"))
    window = chain(
        Producer("in", Uniform(10)), WindowedOperator("w", combination=Half()), Consumer("out")
    )
    plain = Scenario((query,), (VM("worker", 1),), 10)
    return {
        "scheduling": replace(plain, scheduling=Backwards()),
        "allocation": replace(plain, allocation=First()),
        "combination": replace(plain, queries=(window,), placement={}),
    }


@pytest.mark.parametrize("what", ["scheduling", "allocation", "combination"])
def test_what_users_write_themselves_runs_in_the_twin(what: str) -> None:
    scenario = own_scenarios()[what]
    assert what in (needs_twin(scenario) or "")
    assert_equal(simulate(scenario).recording, run_twin(scenario))
    with pytest.raises(ScenarioError, match="library's own values") as error:
        simulate(scenario, engine="fast")
    assert what in str(error.value.detail)


def test_an_unknown_engine_is_an_error() -> None:
    query = chain(Producer("in", Uniform(10)), Consumer("out"))
    with pytest.raises(ScenarioError, match="unknown engine 'quick'"):
        simulate(Scenario((query,), (VM("worker", 1),), 10), engine="quick")  # type: ignore[arg-type]  # a name that there is not
