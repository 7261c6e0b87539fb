"""Run a scenario whose instances come and go: see `outpace.simulate.autoscaling`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from outpace.simulate.autoscaling import Autoscaling
from outpace.simulate.changes import Change, SetRate
from outpace.simulate.instances import many_instances
from outpace.simulate.layout import SAME_TIME
from outpace.simulate.model import Producer
from outpace.simulate.result import Result
from outpace.simulate.scenario import Scenario

#: From when on there are how many instances, in order.
Instances = tuple[tuple[float, int], ...]


def run_scaled(scenario: Scenario, run: Callable[[Scenario], Result]) -> Result:
    """Simulate a scenario with its rule; `run` simulates one without.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, QueryModel, Uniform, simulate
    >>> query = QueryModel("q", (Producer("in", Uniform(150), 1e6), Consumer("out")),
    ...                    (Edge("in", "out"),))
    >>> scenario = Scenario((query,), (VM("worker", mips=100),), duration=120,
    ...                     scaling=Autoscaling(most=4, every=10, startup=5, above=0.8))
    >>> simulate(scenario).instances
    ((0.0, 1), (15.0, 2), (35.0, 3))
    """
    rule = scenario.scaling
    assert rule is not None, "without a rule there is nothing to decide"
    alone = replace(scenario, scaling=None)
    instances: Instances = ((0.0, rule.least),)
    looked = 0.0
    while True:
        watched = replace(_divided(alone, instances), sample=rule.every, warm_up=0.0)
        decided = _decided(rule, instances, run(watched), looked)
        if decided is None or decided[1][0] >= scenario.duration:
            return replace(run(_divided(alone, instances)), instances=instances)
        looked, change = decided
        instances = (*instances, change)


def _decided(
    rule: Autoscaling, instances: Instances, result: Result, looked: float
) -> tuple[float, tuple[float, int]] | None:
    """Return when the rule next decides for another number, from when on, and which."""
    count = instances[-1][1]
    # What came into force since is seen in the intervals that begin later.
    since = max(looked, instances[-1][0])
    own = len(result.layout.scenario.vms) // max(number for _, number in instances)
    history = result.vm_history()["utilisation"].to_numpy().reshape(len(result.times), -1)
    busiest = np.nan_to_num(history[:, : own * count]).max(axis=1)
    for begin, end, used in zip((0.0, *result.times), result.times, busiest, strict=False):
        if begin < since - SAME_TIME or end - begin < rule.every / 2:
            continue
        if used > rule.above and count < rule.most:
            return float(end), (float(end + rule.startup), min(rule.most, count + rule.step))
        if used < rule.below and count > rule.least:
            return float(end), (float(end), max(rule.least, count - rule.step))
    return None


def _divided(scenario: Scenario, instances: Instances) -> Scenario:
    """Return as many instances as there are at most, with the events of those that take any."""
    most = max(count for _, count in instances)
    whole = many_instances(scenario, most)
    kept = tuple(change for change in whole.changes if not isinstance(change, SetRate))
    producers = [v.id for v in scenario.vertices().values() if isinstance(v, Producer)]
    shared = [
        change for producer in producers for change in _shares(scenario, producer, instances, most)
    ]
    return replace(whole, changes=(*kept, *shared))


def _shares(scenario: Scenario, producer: str, instances: Instances, most: int) -> Sequence[Change]:
    """Return the changes that give each copy of a producer its part, whatever the rate is then."""
    own = [c for c in scenario.changes if isinstance(c, SetRate) and c.producer == producer]
    rates = [(0.0, 1.0), *sorted((c.at, math.nan if c.factor is None else c.factor) for c in own)]
    changes = []
    for time in sorted({time for time, _ in (*rates, *instances)}):
        factor = next(one for at, one in reversed(rates) if at <= time)
        count = next(one for at, one in reversed(instances) if at <= time)
        changes += [
            SetRate(time, f"{number}/{producer}", factor / count if number < count else 0.0)
            for number in range(most)
        ]
    return changes
