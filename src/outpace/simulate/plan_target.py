"""Whether a simulated system is good enough: whether it keeps up and is fast enough.

A system keeps up if it drops nothing and its latency does not grow without end. What one sees of
that in a run of limited length: after the warm-up, the greatest latency of any step of the second
half is at most a tenth and a tick above that of the first half. A run shows this only if every
consumer gets something in both halves; it must be long enough for its windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from outpace.errors import ScenarioError
from outpace.simulate.fields import check_fields
from outpace.simulate.result import Result
from outpace.simulate.scenario import Scenario

#: How much longer events may take in the second half of a run than in the first.
GROWTH = 1.1

#: The steps of the history of a run that is judged, without the warm-up.
STEPS = 40


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """How fast events must come through to every consumer.

    Parameters
    ----------
    seconds
        The latency.
    percentile
        The part of the events, in percent, that must not take longer.

    Examples
    --------
    >>> LatencyTarget(0.5).percentile
    99.0
    """

    seconds: float
    percentile: float = 99.0

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 < self.seconds < math.inf:
            raise ScenarioError(f"the latency to meet is no time above 0 s: {self.seconds}")
        if not 0 < self.percentile <= 100:
            raise ScenarioError(f"the percentile is not above 0 and up to 100: {self.percentile}")


def judged(scenario: Scenario) -> Scenario:
    """Return a scenario with a history that shows whether it keeps up, whatever it asks for."""
    return replace(scenario, sample=(scenario.duration - scenario.warm_up) / STEPS)


def keeps_up(result: Result) -> bool:
    """Return whether a run drops nothing and its latency does not grow.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Scenario, Uniform
    >>> from outpace.simulate import simulate
    >>> def at(rate):
    ...     query = QueryModel("q", (Producer("in", Uniform(rate), 1e6), Consumer("out")),
    ...                   (Edge("in", "out"),))
    ...     return keeps_up(simulate(Scenario((query,), (VM("worker", mips=100),), duration=20)))
    >>> at(99), at(103)
    (True, False)
    """
    if result.recording.dropped.any():
        return False
    counted = result.times > result.layout.warm_up_ticks * result.layout.scenario.tick
    events = result.recording.consumer_events[counted]
    delays = result.recording.consumer_delay[counted]
    latencies = np.divide(delays, events, out=np.zeros_like(delays), where=events > 0)
    half = len(events) // 2
    first, second = slice(None, half), slice(half, None)
    if not (events[first].any(axis=0) & events[second].any(axis=0)).all():
        return False
    allowed = GROWTH * latencies[first].max(axis=0) + result.layout.scenario.tick
    return bool((latencies[second].max(axis=0) <= allowed).all())


def worst_percentile(result: Result, percentile: float) -> float:
    """Return the latency percentile of the slowest consumer; infinite if one got nothing."""
    names = [result.layout.vertices[number].id for number in result.layout.consumers]
    found = [result.percentile(name, percentile) for name in names]
    return max((math.inf if math.isnan(value) else value for value in found), default=math.inf)
