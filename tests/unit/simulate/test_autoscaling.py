"""Autoscaling: instances come when those that there are have much to do, and go again."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from support.simulated import chain

from outpace.errors import ScenarioError
from outpace.simulate import (
    VM,
    Autoscaling,
    Cloud,
    Consumer,
    Datacentre,
    Host,
    Producer,
    Scenario,
    SetRate,
    Uniform,
    simulate,
)


def at_rate(rate: float, rule: Autoscaling | None, *changes: SetRate) -> Scenario:
    """A producer of which an instance takes in 100 events a second at most."""
    query = chain(Producer("in", Uniform(rate), 1e6), Consumer("out"))
    vms = (VM("vm", 100, price=2.0),)
    return Scenario((query,), vms, duration=200, changes=changes, scaling=rule)


RULE = Autoscaling(most=5, above=0.8, below=0.3, every=10, startup=5)


def test_an_instance_comes_after_its_start_and_divides_the_events() -> None:
    result = simulate(at_rate(150, RULE))
    # Two instances are used to 75 %, but first they work off what waited: the first one alone.
    assert result.instances[:2] == ((0.0, 1), (15.0, 2))
    produced = sum(result.recording.events)
    assert produced == pytest.approx(150 * 200, rel=0.01)
    assert result.latency("1/out") < 0.2


def test_a_rule_that_never_fires_is_a_run_without_it() -> None:
    alone, ruled = simulate(at_rate(60, None)), simulate(at_rate(60, RULE))
    assert ruled.instances == ((0.0, 1),)
    assert ruled.latency("0/out") == pytest.approx(alone.latency("out"))
    assert ruled.price == alone.price == 2.0


def test_instances_go_when_the_rate_falls_and_nothing_is_lost() -> None:
    changes = (SetRate(20, "in", factor=5), SetRate(100, "in", factor=0.5))
    result = simulate(at_rate(60, RULE, *changes))
    counts = [count for _, count in result.instances]
    assert max(counts) >= 4
    assert counts[-1] == 1
    assert all(abs(one - other) == 1 for one, other in itertools.pairwise(counts))
    assert not result.recording.dropped.any()
    produced = 20 * 60 + 80 * 300 + 100 * 30
    assert sum(result.recording.events) == pytest.approx(produced, rel=0.02)


def test_a_decision_does_not_know_what_comes_after_it() -> None:
    """What was decided by a time is the same, whatever the rate becomes later."""
    early = simulate(at_rate(90, RULE)).instances
    late = simulate(at_rate(90, RULE, SetRate(120, "in", factor=3))).instances
    assert [one for one in late if one[0] <= 120] == [one for one in early if one[0] <= 120]
    assert len(late) > len(early)


def test_the_price_is_that_of_the_instances_over_time() -> None:
    result = simulate(at_rate(150, RULE))
    ends = [*(time for time, _ in result.instances[1:]), 200.0]
    hours = sum(
        (end - begin) * count for (begin, count), end in zip(result.instances, ends, strict=True)
    )
    assert result.price == pytest.approx(2.0 * hours / 200)


def test_rules_that_cannot_be_are_refused() -> None:
    for wrong in ({"least": 3, "most": 2}, {"above": 0.2}, {"every": 0}, {"step": 0}):
        with pytest.raises(ScenarioError):
            replace(RULE, **wrong)
    cloud = Cloud("c", (Datacentre("d", (Host("h", 100),)),))
    with pytest.raises(ScenarioError, match="VMs of their own"):
        replace(at_rate(10, RULE), clouds=(cloud,))
    with pytest.raises(ScenarioError, match="cannot divide a generator"):
        at_rate(10, RULE, SetRate(5, "in", generator=Uniform(3)))
