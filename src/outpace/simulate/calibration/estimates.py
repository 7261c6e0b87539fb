"""What a batch and an event cost, from the batches of real runs: CEPSim's two methods.

A batch of n events takes `setup + n · event` seconds. Both methods of the CEPSim paper (section
6.3, equations 11 and 12) give the cost of an event; they were made for operators without batches,
so what a batch costs by itself is taken off first:

- latency: batches at several rates; the line through their times, of which the slope is the
  processing time of an event and the rest is what a batch costs;
- maximum throughput: batches as large as they may be, right after each other; the inverse of their
  throughput is the time of an event, and a share of what a batch costs.

No file, clock or machine is read here.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outpace.errors import ScenarioError


@dataclass(frozen=True, slots=True)
class TimedBatch:
    """What a batch of a run did; times in seconds since 1970.

    Parameters
    ----------
    events
        How many it took.
    started
        When it began.
    cut
        When the last of its events came.
    committed
        When its rows were in the sink.
    latency
        How old its events were then, on average, in seconds.

    Examples
    --------
    >>> TimedBatch(100, started=10.0, cut=9.99, committed=10.5, latency=1.4).seconds
    0.5
    """

    events: int
    started: float
    cut: float
    committed: float
    latency: float

    @property
    def seconds(self) -> float:
        """How long it took to process what it took.

        A batch also takes what comes while it begins; for that, the time from the cut counts.
        """
        return self.committed - max(self.started, self.cut)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an event costs, by one method.

    Parameters
    ----------
    seconds
        The time that an event takes, in seconds.
    exact
        Whether what a batch costs could be taken off. Where noise hides the one behind the other,
        the whole time counts, and the estimate is too large.
    """

    seconds: float
    exact: bool


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a query, as they were estimated.

    Parameters
    ----------
    setup
        The time that a batch takes however few events it has, in seconds.
    latency, throughput
        What an event costs, by both methods.
    events_per_second
        The maximum throughput.
    error
        How far what a batch took is from what these costs say of it, as a part of the latter; the
        median of all batches that came at a rate.
    """

    setup: float
    latency: Estimate
    throughput: Estimate
    events_per_second: float
    error: float = 0.0

    @property
    def event(self) -> float:
        """The time of an event that goes into the scenario, in seconds.

        It is that of the latency, whose line goes through what batches took while events came, as
        they do in use; at full speed they are all there before. Where noise hides it, it is that of
        the maximum throughput.
        """
        return self.latency.seconds if self.latency.exact else self.throughput.seconds

    @property
    def difference(self) -> float:
        """How much more the latency method says than the other, as a part of the latter."""
        return self.latency.seconds / self.throughput.seconds - 1


def estimate_costs(
    paced: Mapping[float, Sequence[TimedBatch]], full: Sequence[TimedBatch]
) -> Costs:
    """Estimate what a batch and an event cost.

    Parameters
    ----------
    paced
        Batches by rate, at two rates or more.
    full
        Batches at full speed, as large as they may be.

    Examples
    --------
    >>> def took(events):
    ...     return TimedBatch(events, 0.0, 0.0, 0.5 + events * 2e-6, 1.0)
    >>> paced = {rate: [took(rate)] * 3 for rate in (1000, 50_000, 100_000)}
    >>> costs = estimate_costs(paced, [took(400_000)] * 4)
    >>> round(costs.setup, 9), round(costs.latency.seconds, 12), round(costs.throughput.seconds, 12)
    (0.5, 2e-06, 2e-06)
    >>> abs(costs.difference) < 1e-9, costs.error < 1e-9, round(costs.events_per_second)
    (True, True, 307692)
    """
    rows = [
        (_median(batch.events for batch in found), _median(batch.seconds for batch in found))
        for found in paced.values()
        if found
    ]
    if len({events for events, _ in rows}) < 2 or not full:
        raise ScenarioError(
            "there are too few batches to estimate from",
            detail=f"{len(rows)} rates and {len(full)} batches at full speed",
            hint="measure for longer",
        )
    events, seconds = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    slope, setup = (float(number) for number in np.polyfit(events, seconds, 1))
    plausible = slope > 0 and setup >= 0
    if not plausible:
        # The times hardly depend on the events: the quickest tell what a batch costs.
        setup = float(seconds.min())
    latency = Estimate(slope if plausible else float((seconds / events).min()), plausible)
    size, length = _median(b.events for b in full), _median(b.seconds for b in full)
    plausible = length > setup
    throughput = Estimate((length - setup if plausible else length) / size, plausible)
    costs = Costs(setup, latency, throughput, size / length)
    error = _median(
        abs(batch.seconds / (setup + batch.events * costs.event) - 1)
        for found in paced.values()
        for batch in found
    )
    return replace(costs, error=error)


def selectivity_of(matches: int, events: int) -> float:
    """Return how many matches there are for each event.

    Examples
    --------
    >>> selectivity_of(5, 1000)
    0.005
    """
    if not matches:
        raise ScenarioError(
            f"the query found nothing in {events:,} events",
            detail="what never comes out has no latency",
            hint="measure for longer, or with events in which it finds something",
        )
    return matches / events


def _median(values: Iterable[float]) -> float:
    return float(statistics.median(values))
