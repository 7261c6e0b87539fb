"""Batch operators: when a batch begins, what it takes, when it is seen, and what it costs."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from support.simulated import chain

from outpace.errors import ScenarioError
from outpace.simulate import (
    VM,
    BatchOperator,
    Consumer,
    Producer,
    Result,
    Scenario,
    SimpleScheduling,
    Uniform,
    WeightedAllocation,
    parse_scenario,
    plan,
    scenario_text,
    simulate,
)
from outpace.simulate.placement_flow import flow_of
from outpace.simulate.plan_target import LatencyTarget

#: What an event and a batch take on the machine below, in seconds.
EVENT, SETUP = 0.002, 0.25
CAPACITY = 1000e6
TICK = 0.01


def batched(rate: float, interval: float = 1.0, most: float = math.inf, **more: object) -> Scenario:
    match = BatchOperator("match", EVENT * CAPACITY, interval, SETUP * CAPACITY, most)
    query = chain(Producer("in", Uniform(rate)), match, Consumer("out"))
    machine = VM("worker", mips=CAPACITY / 1e6)
    return replace(
        Scenario((query,), (machine,), duration=60, warm_up=20, tick=TICK),
        **more,  # type: ignore[arg-type]  # fields of a scenario
    )


def run(scenario: Scenario) -> Result:
    return simulate(scenario)


@pytest.mark.parametrize("rate", [100, 200, 300])
def test_an_event_waits_half_an_interval_and_then_for_its_whole_batch(rate: int) -> None:
    result = run(batched(rate))
    expected = 0.5 + SETUP + rate * EVENT
    # What a producer makes within a tick counts from the end of it.
    assert result.latency("out") == pytest.approx(expected - TICK / 2, abs=TICK / 2)
    assert result.throughput("out") == pytest.approx(rate, rel=1e-3)
    (machine,) = result.vms().to_pylist()
    assert machine["utilisation"] == pytest.approx(SETUP + rate * EVENT, rel=0.01)
    (match,) = [row for row in result.vertices().to_pylist() if row["vertex"] == "match"]
    assert match["utilisation"] == pytest.approx(machine["utilisation"], rel=0.03)


@pytest.mark.parametrize("percentile", [1, 50, 95, 99, 100])
def test_percentiles_tell_how_long_each_event_of_a_batch_waited(percentile: int) -> None:
    waited = percentile / 100
    found = run(batched(200)).percentile("out", percentile)
    # Bins are 4 % wide.
    assert found == pytest.approx(waited + SETUP + 200 * EVENT, rel=0.025, abs=TICK)


def test_percentiles_keep_what_a_batch_waited_behind_another_one() -> None:
    first = BatchOperator("collect", 0.0, 1.0, 0.1 * CAPACITY)
    second = BatchOperator("match", 0.0, 1.0, 0.1 * CAPACITY)
    query = chain(Producer("in", Uniform(100)), first, second, Consumer("out"))
    result = run(replace(batched(1), queries=(query,)))
    assert result.percentile("out", 99) - result.percentile("out", 1) == pytest.approx(1.0, rel=0.1)


def test_a_batch_that_takes_longer_than_the_interval_delays_the_next() -> None:
    # Batches follow each other and grow until they take in what comes meanwhile.
    rate = 420
    longest = SETUP / (1 - rate * EVENT)
    result = run(batched(rate, duration=120, warm_up=60))
    assert result.latency("out") == pytest.approx(1.5 * longest, rel=0.02)
    assert result.throughput("out") == pytest.approx(rate, rel=0.03)


def test_the_most_events_of_a_batch_bound_the_throughput() -> None:
    most = 400
    result = run(batched(1000, most=most))
    assert result.throughput("out") == pytest.approx(most / (SETUP + most * EVENT), rel=0.03)
    quick = run(batched(1000, most=100))
    assert quick.throughput("out") == pytest.approx(100, rel=0.01)


def test_without_an_interval_batches_follow_each_other() -> None:
    rate = 100
    length = SETUP / (1 - rate * EVENT)
    result = run(batched(rate, interval=0.0))
    assert result.latency("out") == pytest.approx(1.5 * length, rel=0.05)


def test_nothing_of_a_batch_is_seen_before_its_end() -> None:
    scenario = batched(300, tick=0.05, duration=10, warm_up=0, sample=0.05)
    events = simulate(scenario).recording.consumer_events[:, 0]
    seen = events[events > 0]
    # The first batch takes what the first tick brought.
    assert seen[1:] == pytest.approx([300] * 9, rel=0.06)


@pytest.mark.parametrize(
    "other", [{"scheduling": SimpleScheduling()}, {"allocation": WeightedAllocation()}]
)
def test_every_strategy_lets_batches_run(other: dict[str, object]) -> None:
    # A batch more or less is a fortieth of what counts.
    result = run(batched(100, **other))
    assert result.throughput("out") == pytest.approx(100, rel=0.04)


def test_batches_that_cost_nothing_for_an_event_run_too() -> None:
    match = BatchOperator("match", 0.0, 1.0, SETUP * CAPACITY)
    query = chain(Producer("in", Uniform(50)), match, Consumer("out"))
    for allocation in (WeightedAllocation(), batched(1).allocation):
        scenario = replace(batched(1), queries=(query,), allocation=allocation)
        assert run(scenario).latency("out") == pytest.approx(0.5 + SETUP, abs=0.02)


def test_a_scenario_with_batches_is_written_and_read() -> None:
    scenario = batched(100, most=500)
    text = scenario_text(scenario)
    assert 'kind = "batch"' in text
    assert parse_scenario(text) == scenario


@pytest.mark.parametrize("rate", [100, 600])
@pytest.mark.parametrize("processors", [1, 4])
def test_both_engines_run_batches_alike(rate: float, processors: int) -> None:
    scenario = batched(rate, most=500)
    collect = BatchOperator("collect", 0.0, 0.3, 0.1 * CAPACITY)
    (query,) = scenario.queries
    first, *others = query.vertices
    query = chain(first, collect, *others)
    machine = VM("worker", mips=CAPACITY / 1e6, processors=processors)
    scenario = replace(scenario, queries=(query,), vms=(machine,), placement={})
    found, expected = (simulate(scenario, engine).recording for engine in ("fast", "twin"))
    for field in fields(found):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name))
    assert found.events.sum()


def test_a_plan_finds_the_knee_that_the_largest_batch_makes() -> None:
    scenario = batched(100, most=300, tick=0.05)
    found = plan(scenario, 500, LatencyTarget(2.0))
    assert found.knee == pytest.approx(300, rel=0.03)
    assert found.instances == 2


def test_the_flow_counts_what_batches_cost() -> None:
    query = batched(100).queries[0]
    loads = flow_of([query], {"in": 100}).loads
    assert loads["match"] == pytest.approx((SETUP + 100 * EVENT) * CAPACITY / 1e6)
    assert flow_of([query], {"in": 0}).loads["match"] == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"interval": -1.0}, "interval"),
        ({"setup": math.inf}, "setup"),
        ({"events_max": 0.0}, "no events"),
    ],
)
def test_what_is_wrong_with_a_batch_operator_names_it(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ScenarioError, match=said) as error:
        BatchOperator("match", **wrong)
    assert "match" in str(error.value)
