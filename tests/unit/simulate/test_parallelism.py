"""Operators on machines with several processors: how many each uses, and when it begins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from support.properties import examples
from support.simulated import chain, scenarios

from outpace.errors import ScenarioError
from outpace.simulate import (
    VM,
    BatchOperator,
    Consumer,
    Edge,
    OperatorModel,
    Producer,
    QueryModel,
    Scenario,
    Uniform,
    simulate,
)
from outpace.simulate.phases import phases
from outpace.simulate.run import Engine
from outpace.simulate.twin import Twin

ENGINES = pytest.mark.parametrize("engine", ["fast", "twin"])


def on(processors: int, query: QueryModel, duration: float = 30.0) -> Scenario:
    """A machine on which a million instructions take a processor a second."""
    return Scenario((query,), (VM("vm", 1, processors),), duration, warm_up=duration / 3)


def stages(rate: float, *costs: float, parallelism: int = 1) -> QueryModel:
    operators = [
        OperatorModel(f"op{n}", cost, parallelism=parallelism) for n, cost in enumerate(costs)
    ]
    return chain(Producer("in", Uniform(rate)), *operators, Consumer("out"))


@ENGINES
@pytest.mark.parametrize(
    ("processors", "parallelism", "width"), [(1, 1, 1), (16, 1, 1), (16, 4, 4), (4, 16, 4)]
)
def test_an_operator_is_as_fast_as_the_processors_that_it_uses(
    engine: Engine, processors: int, parallelism: int, width: int
) -> None:
    few = simulate(on(processors, stages(10, 5_000, parallelism=parallelism)), engine)
    # An event a tick, which takes 5 ms of one processor.
    assert few.latency("out") == pytest.approx(0.005 / width)
    many = simulate(on(processors, stages(10_000, 5_000, parallelism=parallelism)), engine)
    assert many.throughput("out") == pytest.approx(200 * width, rel=0.01)
    used = many.vms()["utilisation"].to_pylist()
    assert used == pytest.approx([width / processors], rel=0.01)


@ENGINES
def test_the_stages_of_a_query_work_at_the_same_time(engine: Engine) -> None:
    query = stages(100, 8_000, 8_000)
    assert simulate(on(2, query), engine).throughput("out") == pytest.approx(100, rel=0.01)
    assert simulate(on(1, query), engine).throughput("out") < 80


@ENGINES
def test_three_operators_share_two_processors_that_have_time_enough(engine: Engine) -> None:
    operators = [OperatorModel(f"op{n}", 6_600) for n in range(3)]
    query = QueryModel(
        "q",
        (Producer("in", Uniform(100)), *operators, Consumer("out")),
        (
            *(Edge("in", operator.id) for operator in operators),
            *(Edge(operator.id, "out") for operator in operators),
        ),
    )
    result = simulate(on(2, query), engine)
    assert result.throughput("out") == pytest.approx(100, rel=0.01)
    assert result.vms()["utilisation"].to_pylist() == pytest.approx([0.99], rel=0.01)


@ENGINES
def test_what_is_sent_is_not_worked_on_before(engine: Engine) -> None:
    # Ten events a tick take the first stage 50 ms, and then the second 20 ms.
    result = simulate(on(8, stages(100, 5_000, 2_000)), engine)
    assert result.latency("out") == pytest.approx(0.07)


def test_what_a_batch_costs_by_itself_takes_as_long_on_many_processors() -> None:
    def latency(processors: int) -> float:
        batch = BatchOperator("batch", 1_000, 1.0, setup=200_000, parallelism=processors)
        query = chain(Producer("in", Uniform(400)), batch, Consumer("out"))
        return simulate(on(processors, query)).latency("out")

    assert latency(1) == pytest.approx(0.45 + 0.2 + 0.4, abs=0.06)
    assert latency(4) == pytest.approx(0.45 + 0.2 + 0.1, abs=0.06)


@examples(40)
@given(scenarios(changing=False))
def test_no_operator_uses_more_processors_than_its_parallelism(scenario: Scenario) -> None:
    result = simulate(scenario)
    layout = result.layout
    (phase,) = phases(layout)
    used = result.recording.vertex_processed * np.array(layout.costs)
    machines = {vm.id: vm for vm in scenario.vms}
    for number, vertex in enumerate(layout.vertices):
        machine = machines[scenario.placement[vertex.id]]
        speed = 1e6 * phase.capacities[phase.homes[number]] / machine.processors
        width = min(vertex.parallelism, machine.processors)
        seconds = layout.ticks_per_sample * scenario.tick
        assert (used[:, number] <= width * speed * seconds * (1 + 1e-6)).all()


@examples(25)
@given(scenarios())
def test_nothing_is_taken_before_it_was_sent(scenario: Scenario) -> None:
    twin = Twin(scenario)
    while twin.tick < twin.layout.ticks:
        twin.step()
        for output in twin.outputs.values():
            assert output.latency >= -1e-9


def test_a_parallelism_is_a_number_of_processors() -> None:
    with pytest.raises(ScenarioError, match="parallelism is not a whole number from 1 on: 0"):
        OperatorModel("op", parallelism=0)
