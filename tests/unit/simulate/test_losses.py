"""What failures and shedding lose, and what memory is needed for what is kept."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.simulated import chain

from outpace.errors import ScenarioError
from outpace.simulate import (
    VM,
    Consumer,
    Edge,
    OperatorModel,
    Poisson,
    Producer,
    QueryModel,
    RandomFailures,
    Scenario,
    Uniform,
    WindowedOperator,
    simulate,
)
from outpace.simulate.changes import FailVM, RestartVM
from outpace.simulate.layout import lay_out
from outpace.simulate.phases import arriving_events, new_events, phases
from outpace.simulate.run import Engine

ENGINES: tuple[Engine, ...] = ("twin", "fast")


def test_failures_come_as_often_as_they_are_said_to() -> None:
    failures = RandomFailures(0, "vm", per_hour=6, repair=60, seed=3)
    changes = list(failures.until(1000 * 3600))
    fails, repairs = changes[::2], changes[1::2]
    assert all(isinstance(change, FailVM) for change in fails)
    assert all(isinstance(change, RestartVM) for change in repairs)
    assert all(r.at - f.at == pytest.approx(60) for f, r in zip(fails, repairs, strict=True))
    # 6 in an hour in which it runs, which is 10 minutes and a minute of repair for each.
    assert len(fails) == pytest.approx(1000 * 60 / 11, rel=0.05)
    gaps = [f.at - r.at for r, f in zip(repairs, fails[1:], strict=False)]
    assert np.std(gaps) == pytest.approx(np.mean(gaps), rel=0.1)
    with pytest.raises(ScenarioError, match="more than 100,000 failures"):
        list(failures.until(1e9))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_loss_is_the_part_of_the_time_in_which_the_machine_is_down(engine: Engine) -> None:
    query = chain(Producer("in", Uniform(100), 1e5), Consumer("out"))
    failures = RandomFailures(0, "vm", per_hour=60, repair=30, seed=1)
    scenario = Scenario((query,), (VM("vm", 1000),), duration=1800, tick=0.5, changes=(failures,))
    result = simulate(scenario, engine)
    changes = list(failures.until(1800))
    down = sum(
        min(1800, repair.at) - fail.at
        for fail, repair in zip(changes[::2], changes[1::2], strict=True)
    )
    assert result.consumers()["loss"][0].as_py() == pytest.approx(down / 1800, abs=0.01)
    assert 0.2 < down / 1800 < 0.45


def test_losses_on_the_way_multiply_and_weigh_by_what_would_have_come() -> None:
    result = simulate(
        Scenario(
            (
                QueryModel(
                    "q",
                    (
                        Producer("full", Uniform(300), rate_max=100),
                        Producer("half", Uniform(100), rate_max=50),
                        OperatorModel("op"),
                        Consumer("out"),
                    ),
                    (Edge("full", "op"), Edge("half", "op", 0.5), Edge("op", "out")),
                ),
            ),
            (VM("vm", 10),),
            duration=400,
            warm_up=100,
        )
    )
    # 300 and 50 would have come to the operator, 100 and 25 do.
    assert result.consumers()["loss"][0].as_py() == pytest.approx(1 - 125 / 350, abs=1e-3)
    assert result.queries()["loss"] == result.consumers()["loss"]
    lost = dict(
        zip(*(result.vertices()[c].to_pylist() for c in ("vertex", "dropped")), strict=True)
    )
    assert lost == {
        "full": pytest.approx(200 * 300, rel=0.01),
        "half": pytest.approx(50 * 300, rel=0.01),
        "op": 0,
        "out": 0,
    }
    assert result.vertex_history()["dropped"].to_numpy().sum() > sum(lost.values())


@given(
    st.one_of(
        st.builds(Uniform, st.sampled_from([3, 40, 250.5])),
        st.builds(Poisson, st.sampled_from([5, 120]), st.integers(0, 5)),
    ),
    st.sampled_from([0.0, 0.5, 7.0, 60.0, 1000.0]),
    st.sampled_from([0.05, 0.1, 1.0]),
)
@examples(40)
def test_no_second_takes_in_more_than_twice_what_it_may(
    generator: Uniform | Poisson, rate_max: float, tick: float
) -> None:
    query = chain(Producer("in", generator, rate_max=rate_max), Consumer("out"))
    layout = lay_out(Scenario((query,), (VM("vm", 10),), duration=20, tick=tick))
    every = phases(layout)
    came = arriving_events(layout, every, 0, 0, layout.ticks)
    taken = new_events(layout, every, 0, 0, layout.ticks)
    assert (taken <= came).all()
    assert (new_events(layout, every, 0, 7, 15) == taken[7:15]).all()
    most = max(1.0, rate_max)
    for first in range(len(taken)):
        sums = np.cumsum(taken[first:])
        spans = tick * np.arange(len(sums))
        assert (sums <= most + rate_max * spans + 1e-6).all()
    # A bucket that is not empty turns nothing away.
    if came.max() <= rate_max * tick:
        assert (taken == came).all()
    oracle, allowed = [], most
    for events in came:
        allowed = min(most, allowed + rate_max * tick)
        oracle.append(min(int(events), math.floor(allowed + 1e-9)))
        allowed -= oracle[-1]
    assert taken.tolist() == oracle


@pytest.mark.parametrize("engine", ENGINES)
def test_both_engines_shed_alike(engine: Engine) -> None:
    query = chain(Producer("in", Poisson(200, seed=2), 1e6, rate_max=80), Consumer("out"))
    result = simulate(Scenario((query,), (VM("vm", 100),), duration=60, warm_up=10), engine)
    assert result.throughput("out") == pytest.approx(80, rel=0.01)
    assert result.percentile("out", 99) < 1.2
    assert result.consumers()["loss"][0].as_py() == pytest.approx(0.6, abs=0.02)


def test_memory_is_that_of_states_of_what_waits_and_of_windows() -> None:
    window = WindowedOperator("window", 1e3, window=5, advance=1, event_bytes=10)
    query = chain(
        Producer("in", Uniform(200), event_bytes=100),
        OperatorModel("op", 1e6, state_bytes=1e6, event_bytes=1000),
        window,
        Consumer("out"),
    )
    base = Scenario(
        (query,),
        (VM("one", 1000), VM("two", 100), VM("three", 100)),
        duration=60,
        placement={"in": "one", "op": "one", "window": "two", "out": "three"},
    )
    assert memory_of(base) == {
        "one": pytest.approx(1e6, rel=0.02),
        "two": pytest.approx(5 * 200 * 10, rel=0.02),
        "three": 0,
    }
    slow = replace(base, vms=(VM("one", 100), *base.vms[1:]))
    # 100 events a second more come than it can take: 60 s · 100/s · 1000 bytes.
    assert memory_of(slow)["one"] == pytest.approx(1e6 + 6e6, rel=0.05)


def memory_of(scenario: Scenario) -> dict[str, float]:
    table = simulate(scenario).vms()
    return dict(zip(table["vm"].to_pylist(), table["memory_max"].to_pylist(), strict=True))
