"""A run in a few numbers, and how sure the means of several runs are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.simulated import chain

from outpace.errors import ScenarioError
from outpace.simulate import (
    VM,
    Autoscaling,
    Consumer,
    Edge,
    Interval,
    Poisson,
    Producer,
    QueryModel,
    RandomFailures,
    Repeated,
    RunSummary,
    Scenario,
    Uniform,
    outcome_of,
    repeat,
    simulate,
)


def scenario(seed: int = 1, **given: object) -> Scenario:
    query = chain(Producer("in", Poisson(80, seed=seed), 1e6), Consumer("out"))
    return Scenario((query,), (VM("vm", 100, price=3.0),), duration=60, warm_up=10, **given)


def test_an_outcome_is_that_of_the_slowest_consumer() -> None:
    query = QueryModel(
        "q",
        (Producer("in", Uniform(50), 1e6), Consumer("quick"), Consumer("slow", 5e5)),
        (Edge("in", "quick"), Edge("in", "slow", 0.5)),
    )
    result = simulate(Scenario((query,), (VM("vm", 100, price=3.0),), duration=60, warm_up=10))
    outcome = outcome_of(result)
    assert outcome.latency == max(result.latency("quick"), result.latency("slow"))
    assert outcome.p99 == max(result.percentile("quick", 99), result.percentile("slow", 99))
    assert (outcome.loss, outcome.price) == (0.0, 3.0)


def test_instances_of_a_rule_count_together() -> None:
    rule = Autoscaling(most=3, every=10, startup=1, above=0.6)
    outcome, alone = outcome_of(simulate(scenario(scaling=rule))), outcome_of(simulate(scenario()))
    assert outcome.throughput == pytest.approx(80, rel=0.05)
    assert outcome.latency < alone.latency
    assert outcome.price > alone.price == 3.0


def test_what_never_comes_has_an_infinite_latency() -> None:
    query = chain(Producer("in", Uniform(50)), Consumer("out"), selectivities=(0.0,))
    outcome = outcome_of(simulate(Scenario((query,), (VM("vm", 1),), duration=10)))
    assert outcome.latency == outcome.p99 == math.inf


def test_the_first_run_has_the_seeds_that_are_written_and_the_others_differ() -> None:
    repeated = repeat(scenario(), 4)
    assert repeated.outcomes[0] == outcome_of(simulate(scenario()))
    assert len({one.latency for one in repeated.outcomes}) == 4
    assert repeat(scenario(), 4) == repeated


def test_failures_have_other_times_with_other_seeds() -> None:
    query = chain(Producer("in", Uniform(50)), Consumer("out"))
    failures = RandomFailures(0, "vm", per_hour=600, repair=2)
    failing = Scenario((query,), (VM("vm", 1),), duration=60, changes=(failures,))
    losses = [one.loss for one in repeat(failing, 5).outcomes]
    assert len(set(losses)) >= 3
    assert 0 < Repeated(repeat(failing, 5).outcomes).interval("loss").half < 1


def test_an_interval_has_the_true_mean_in_95_of_100_cases() -> None:
    drawn = np.random.default_rng(3).normal(7.0, 2.0, (1_000, 5))
    intervals = [Interval.of(values.tolist()) for values in drawn]
    inside = np.mean([abs(one.mean - 7.0) <= one.half for one in intervals])
    assert inside == pytest.approx(0.95, abs=0.02)
    assert math.isnan(Interval.of([3.0]).half)


def test_what_is_not_random_is_not_repeated() -> None:
    query = chain(Producer("in", Uniform(50)), Consumer("out"))
    still = Scenario((query,), (VM("vm", 1),), duration=10)
    with pytest.raises(ScenarioError, match="nothing in the scenario is random"):
        repeat(still, 2)
    assert isinstance(repeat(still, 1).outcomes[0], RunSummary)
    with pytest.raises(ScenarioError, match="no 'lateness'"):
        repeat(still, 1).interval("lateness")
