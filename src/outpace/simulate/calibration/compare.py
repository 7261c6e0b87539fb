"""What the simulator predicts for a rate, beside what real runs at that rate did.

Below overload a batch ends before the next one is due. There the bounds of the CEPSim paper
(section 6.4.1) hold the prediction to account: throughput within 2 %, latency within 7.5 %. In
overload events wait longer and longer, and how long depends on how long one looks: there only the
throughput is judged.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from outpace.simulate.calibration.calibrated_scenario import CONSUMER, PRODUCER
from outpace.simulate.generators import Uniform
from outpace.simulate.model import BatchOperator, Producer
from outpace.simulate.placement_flow import saturation
from outpace.simulate.run import simulate
from outpace.simulate.scenario import Scenario

#: How far a prediction may be from what was measured, as a part of the latter.
THROUGHPUT_BOUND: Final = 0.02
LATENCY_BOUND: Final = 0.075


@dataclass(frozen=True, slots=True)
class Reading:
    """What a run at a rate did: events a second that came and that went, and their latency."""

    rate: float
    latency: float
    throughput: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A rate, what was predicted for it, and the medians of what was measured.

    Parameters
    ----------
    rate
        The events a second that came.
    overload
        Whether batches cannot keep up with it.
    predicted_latency, latency, latency_spread
        In seconds; the spread is the greatest minus the least of the runs.
    predicted_throughput, throughput, throughput_spread
        In events a second.
    runs
        How often it was measured.

    Examples
    --------
    >>> row = Comparison(1000, False, 1.6, 1.5, 0.1, 1000, 1010, 20, 3)
    >>> round(row.latency_error, 4), round(row.throughput_error, 4), row.within
    (0.0667, -0.0099, True)
    """

    rate: float
    overload: bool
    predicted_latency: float
    latency: float
    latency_spread: float
    predicted_throughput: float
    throughput: float
    throughput_spread: float
    runs: int

    @property
    def latency_error(self) -> float:
        """How much more was predicted than measured, as a part of the latter."""
        return self.predicted_latency / self.latency - 1

    @property
    def throughput_error(self) -> float:
        """The same of the throughput."""
        return self.predicted_throughput / self.throughput - 1

    @property
    def within(self) -> bool:
        """Whether the bounds hold."""
        if abs(self.throughput_error) > THROUGHPUT_BOUND:
            return False
        return self.overload or abs(self.latency_error) <= LATENCY_BOUND


def capacity_of(scenario: Scenario, operator: BatchOperator) -> tuple[float, float]:
    """Return the rate up to which a batch ends before the next is due, and the knee.

    Parameters
    ----------
    scenario, operator
        A calibrated scenario, and its operator.

    Examples
    --------
    >>> from outpace.simulate.calibration.estimates import Costs, Estimate
    >>> from outpace.simulate.calibration.calibrated_scenario import MeasuredRun, calibrated
    >>> costs = Costs(0.5, Estimate(5e-6, True), Estimate(5e-6, True), 180_000)
    >>> scenario = calibrated(MeasuredRun("w1"), costs, 0.01, mips=1000, rate=1000)
    >>> [round(rate) for rate in capacity_of(scenario, scenario.vertices()["match"])]
    [150000, 181818]
    """
    (machine,) = scenario.vms
    speed = machine.mips * 1e6
    width = min(operator.parallelism, machine.processors)
    event, setup = operator.instructions / (width * speed), operator.setup / speed
    largest = float(operator.events_max)
    fitting = min(largest, max(0.0, operator.interval - setup) / event) if event else largest
    return fitting / operator.interval, saturation(scenario)


def predict(scenario: Scenario, rate: float, seconds: float | None = None) -> Reading:
    """Simulate a scenario at a rate.

    Parameters
    ----------
    scenario
        A calibrated one.
    rate
        Events a second.
    seconds
        In overload, how long events come from the beginning: so long latencies grow.
    """
    steady = _simulated(scenario, rate)
    if seconds is None:
        return steady
    whole = _simulated(replace(scenario, duration=seconds, warm_up=0.0), rate)
    return replace(steady, latency=whole.latency)


def _simulated(scenario: Scenario, rate: float) -> Reading:
    queries = tuple(
        replace(
            query,
            vertices=tuple(
                replace(vertex, generator=Uniform(rate))
                if isinstance(vertex, Producer) and vertex.id == PRODUCER
                else vertex
                for vertex in query.vertices
            ),
        )
        for query in scenario.queries
    )
    result = simulate(replace(scenario, queries=queries))
    return Reading(rate, result.latency(CONSUMER), result.throughput(CONSUMER))


def compare(
    scenario: Scenario, overload: bool, readings: Sequence[Reading], seconds: float | None = None
) -> Comparison:
    """Compare a prediction with runs at about the same rate; their medians count.

    Parameters
    ----------
    scenario
        A calibrated one.
    overload
        Whether batches cannot keep up.
    readings
        The runs.
    seconds
        As for `predict`.
    """
    rate = statistics.median(reading.rate for reading in readings)
    latencies = [reading.latency for reading in readings]
    throughputs = [reading.throughput for reading in readings]
    predicted = predict(scenario, rate, seconds)
    return Comparison(
        rate,
        overload,
        predicted.latency,
        statistics.median(latencies),
        max(latencies) - min(latencies),
        predicted.throughput,
        statistics.median(throughputs),
        max(throughputs) - min(throughputs),
        len(readings),
    )
