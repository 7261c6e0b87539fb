"""Plans: the number of instances, the knee, and instances that are copies with a part each."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.simulated import chain, scenarios

from outpace.errors import ScenarioError
from outpace.simulate import (
    VM,
    BatchOperator,
    Bursty,
    Cloud,
    ConstantOutput,
    Consumer,
    Datacentre,
    FailVM,
    Host,
    OperatorModel,
    Poisson,
    Producer,
    RecordedTimes,
    Scenario,
    SetRate,
    ShareOutput,
    Uniform,
    WindowedOperator,
    simulate,
)
from outpace.simulate.calibration.compare import capacity_of
from outpace.simulate.instances import many_instances
from outpace.simulate.placement_flow import saturation
from outpace.simulate.plan import one_instance, plan, total_rate
from outpace.simulate.plan_target import LatencyTarget

QUIET = WindowedOperator("quiet", window=1.0, combination=ConstantOutput(0.0))
END = Consumer("out")


def scenario(mips: float = 100.0, rate: float = 20.0, cost: float = 1e6) -> Scenario:
    """A VM that keeps up with `mips / cost` million events a second."""
    query = chain(Producer("in", Uniform(rate)), OperatorModel("op", cost), Consumer("out"))
    return Scenario((query,), (VM("vm", mips=mips),), duration=20, warm_up=5)


@pytest.mark.parametrize("cost", [1e5, 1e6, 4e6])
@pytest.mark.parametrize("rate", [7.0, 300.0])
def test_the_knee_is_where_the_machine_is_full_whatever_the_scenario_produces(
    rate: float, cost: float
) -> None:
    found = plan(scenario(rate=rate, cost=cost), 10.0, LatencyTarget(1.0))
    assert found.knee == pytest.approx(100e6 / cost, rel=1e-9)


@pytest.mark.parametrize("duration", [110, 120])
def test_bursts_are_judged_over_whole_cycles(duration: float) -> None:
    bursts = Producer("in", Bursty(2000, on=5, off=55))
    query = chain(bursts, OperatorModel("op", 1e6), Consumer("out"))
    burst = Scenario((query,), (VM("vm", mips=1000),), duration)
    overload = plan(burst, 1400, LatencyTarget(60.0))
    assert overload.knee == pytest.approx(1000, rel=1e-9)
    assert overload.instances == 2
    assert not overload.choices[0].keeps_up
    assert plan(burst, 190, LatencyTarget(60.0)).instances == 1


def test_long_ticks_and_windows_hide_no_overload() -> None:
    short = replace(scenario(), tick=1.0, warm_up=0.0)
    assert plan(short, 102, LatencyTarget(60.0)).knee == pytest.approx(100, rel=1e-9)
    window = WindowedOperator("count", 1e6, window=60.0)
    query = chain(Producer("in", Uniform(10)), window, Consumer("out"))
    found = plan(Scenario((query,), (VM("vm", mips=100),), 130), 102, LatencyTarget(200.0))
    assert found.knee == pytest.approx(100, rel=1e-9)
    assert not found.choices[0].keeps_up


GENERATORS = st.one_of(
    st.builds(Uniform, st.floats(1, 500)),
    st.builds(Bursty, st.floats(5, 500), st.integers(1, 4), st.integers(1, 6)),
    st.builds(Poisson, st.floats(5, 500), st.integers(0, 9)),
)


@given(
    GENERATORS,
    st.lists(
        st.tuples(st.floats(0.2, 2), st.sampled_from([0.25, 1.0, 2.0])), min_size=1, max_size=3
    ),
    st.sampled_from([None, 1.0, 3.0]),
    st.sampled_from([0.1, 0.25]),
    st.sampled_from([7.0, 20.0]),
)
@examples(20)
def test_the_knee_is_the_arithmetic_one(
    generator: Any,
    operators: list[tuple[float, float]],
    window: float | None,
    tick: float,
    duration: float,
) -> None:
    # On one machine, whose time goes round as long as there is work.
    vertices: list[Any] = [Producer("in", generator)]
    share, shares, instructions = 1.0, [], 0.0
    for number, (cost, selectivity) in enumerate(operators):
        instructions += share * cost
        vertices.append(OperatorModel(f"op{number}", cost * 1e6))
        shares.append(selectivity)
        share *= selectivity
    if window is not None:
        instructions += share
        combination = ShareOutput(1.0)
        vertices.append(WindowedOperator("w", 1e6, window=window, combination=combination))
    query = chain(*vertices, Consumer("out"), selectivities=(1.0, *shares))
    drawn = Scenario((query,), (VM("vm", mips=300),), duration, tick=tick)
    knee = plan(drawn, 1.0, LatencyTarget(100.0)).knee
    assert 0.99 * 300 / instructions <= knee <= 300 / instructions * (1 + 1e-9)


@pytest.mark.parametrize(("rate", "instances"), [(60, 1), (97, 1), (150, 2), (290, 3), (970, 10)])
def test_instances_are_the_fewest_that_meet_the_target(rate: float, instances: int) -> None:
    found = plan(scenario(), rate, LatencyTarget(0.5))
    assert found.instances == instances
    assert found.needed is not None
    assert found.needed.meets_target
    assert found.needed.vms == instances
    assert found.needed.throughput == pytest.approx(rate, rel=0.01)
    fewer = [load for load in found.choices if load.instances < instances]
    assert not any(load.meets_target for load in fewer)
    assert found.choices[-1].instances == instances + 1


def test_a_stricter_target_needs_more_instances_and_lowers_the_capacity() -> None:
    loose, strict = (plan(scenario(), 300, LatencyTarget(p99)) for p99 in (0.5, 0.06))
    assert loose.instances is not None
    assert strict.instances is not None
    assert loose.instances < strict.instances
    assert strict.capacity < loose.capacity <= loose.knee == strict.knee


def test_a_target_that_no_number_of_instances_meets() -> None:
    found = plan(scenario(), 50, LatencyTarget(1e-5))
    assert found.instances is None
    assert found.needed is None
    assert found.capacity == 0.0
    assert found.knee > 90


def calibrated(setup: float, interval: float, processors: int = 2) -> Scenario:
    """What calibration writes: 2 us an event on each core, and seconds of setup on one."""
    match = BatchOperator("match", 4000, interval, 2e9 * setup, 1e6, parallelism=processors)
    query = chain(Producer("in", Uniform(50_000)), match, Consumer("out"))
    spark = VM("spark", mips=2000, processors=processors)
    return Scenario((query,), (spark,), 45 * interval, warm_up=5 * interval, tick=interval / 100)


def test_a_plan_shortens_intervals_where_they_are_too_long_for_the_target() -> None:
    found = plan(calibrated(0.1, 2.0), 200_000, LatencyTarget(2.0))
    assert found.changed == ("batches of 'match' every 1 s",)
    assert found.instances == 1
    assert found.needed is not None
    assert found.needed.processors == 2
    assert found.binds == "'match', which uses 2 of 2 processors"


def test_a_plan_takes_more_processors_where_no_interval_does() -> None:
    # A second on two processors.
    query = chain(Producer("in", Uniform(1)), OperatorModel("op", 2e8, parallelism=2), END)
    heavy = Scenario((query,), (VM("vm", mips=100, processors=2),), 60)
    found = plan(heavy, 1.5, LatencyTarget(0.8))
    assert found.changed == ("4 processors of 'vm'",)
    assert found.instances is not None


def test_more_processors_do_not_shorten_what_a_batch_costs() -> None:
    found = plan(calibrated(3.0, 2.0), 1_000, LatencyTarget(2.0))
    assert found.instances is None
    assert "what a batch costs" in found.binds
    few, many = (saturation(calibrated(3.0, 2.0, n)) for n in (2, 16))
    # 1 000 000 events in 3 s and 1 s, or in 3 s and an eighth.
    assert few == pytest.approx(1e6 / 4)
    assert many == pytest.approx(1e6 / 3.125)


def test_a_plan_and_a_validation_have_the_same_knee() -> None:
    scenario = calibrated(0.5, 2.0)
    match = scenario.vertices()["match"]
    assert isinstance(match, BatchOperator)
    _, knee = capacity_of(scenario, match)
    assert plan(scenario, 1_000, LatencyTarget(60.0)).knee == pytest.approx(knee, rel=1e-9)


def test_windows_that_send_a_share_are_planned_for() -> None:
    window = WindowedOperator("average", 1e6, window=2.0, combination=ShareOutput(0.1))
    query = chain(Producer("in", Uniform(10)), window, OperatorModel("store", 1e7), Consumer("out"))
    found = plan(
        Scenario((query,), (VM("vm", mips=100),), duration=40, warm_up=10), 120, LatencyTarget(6.0)
    )
    # A reading costs 1e6 in the window and a tenth of 1e7 after it.
    assert found.knee == pytest.approx(50, rel=1e-9)
    assert found.instances == 3


@given(scenarios(), st.integers(2, 3))
@examples(25)
def test_instances_without_hosts_are_alike(drawn: Scenario, count: int) -> None:
    alone = replace(drawn, clouds=(), vms=tuple(replace(vm, host=None) for vm in drawn.vms))
    one, many = simulate(alone), simulate(many_instances(alone, count))
    mine = one.queries().to_pylist()
    for number, row in enumerate(many.queries().to_pylist()):
        own = mine[number % len(mine)]
        assert row.pop("query") == f"{number // len(mine)}/{own['query']}"
        expected = {key: value for key, value in own.items() if key != "query"}
        assert row == pytest.approx(expected, nan_ok=True)


def test_instances_on_one_host_compete() -> None:
    host = Cloud("c", (Datacentre("d", (Host("h", mips=150),)),))
    found = plan(replace(scenario(), clouds=(host,)), 190, LatencyTarget(0.5))
    # A machine alone does 100 events/s, but the host does no more than 150 for all together.
    assert found.knee == pytest.approx(100, rel=0.05)
    assert found.instances is None
    assert found.capacity > 0


def test_machines_that_fit_on_no_host_end_the_choices() -> None:
    host = Cloud("c", (Datacentre("d", (Host("h", mips=100, processors=2, sharing="space"),)),))
    found = plan(replace(scenario(), clouds=(host,)), 250, LatencyTarget(0.5))
    assert found.instances is None
    assert [load.instances for load in found.choices] == [1, 2]


def test_rates_are_multiplied_whatever_the_generator_and_the_changes() -> None:
    query = chain(Producer("in", Poisson(100, seed=1)), Consumer("out"))
    base = Scenario((query,), (VM("vm", mips=1),), duration=30)
    base = replace(base, changes=(SetRate(15.0, "in", factor=2.0),))
    one, double = (simulate(one_instance(base, factor)) for factor in (1.0, 2.0))
    assert double.throughput("out") == pytest.approx(2 * one.throughput("out"), rel=0.05)
    assert total_rate(base) == 100


def test_recorded_times_are_multiplied() -> None:
    recorded = RecordedTimes(tuple(n / 10 for n in range(300)))
    base = Scenario((chain(Producer("in", recorded), Consumer("out")),), (VM("vm", 1),), 30)
    assert simulate(one_instance(base, 2.5)).throughput("out") == pytest.approx(25, rel=0.02)


def test_changes_are_copied_with_their_machines() -> None:
    failing = replace(scenario(), changes=(FailVM(10.0, "vm"), SetRate(5.0, "in", factor=3.0)))
    changes = many_instances(failing, 2).changes
    assert FailVM(10.0, "1/vm") in changes
    assert SetRate(5.0, "0/in", factor=3.0) in changes


@pytest.mark.parametrize(
    ("wrong", "rate", "message"),
    [
        (scenario(), 0.0, "rate to plan for"),
        (scenario(rate=0.0), 10.0, "produce nothing"),
        (scenario(cost=0.0), 10.0, "any rate"),
        (
            replace(scenario(), changes=(SetRate(1.0, "in", generator=Uniform(5)),)),
            10.0,
            "a generator that a change brings",
        ),
        (
            Scenario((chain(Producer("in", Uniform(9), 1e6), QUIET, END),), (VM("vm", 100),), 20),
            10.0,
            "both halves of a run",
        ),
    ],
)
def test_what_cannot_be_planned_is_an_error(wrong: Scenario, rate: float, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        plan(wrong, rate, LatencyTarget(1.0))
    assert message in str(caught.value)


def test_a_plan_does_not_depend_on_the_history_that_the_scenario_asks_for() -> None:
    whole = plan(replace(scenario(), sample=math.inf), 150, LatencyTarget(0.5))
    assert whole == plan(scenario(), 150, LatencyTarget(0.5))


def test_simulations_are_told_and_none_is_done_twice() -> None:
    told: list[int] = []
    plan(scenario(), 250, LatencyTarget(0.5), on_simulation=told.append)
    assert told == list(range(1, len(told) + 1))
    assert len(told) < 40
