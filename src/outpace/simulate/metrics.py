"""What a run records, and the results that follow from it.

An engine fills the arrays of a `Recording`, whatever it is made of; `Result` reads them. Latency is
equation 8 of the CEPSim paper, throughput equation 9 (section 5.5): the events of the producers
that came through to a consumer, each counted once however many paths there are, for each second in
which the consumer ran.

Percentiles come from a histogram of latencies with bins that grow by 4 %, so that a percentile is
within 2 % of the latency of the event set in which it lies (between a microsecond and a day). All
events of a set count with the set's average, unless it is a batch: their ages differ by as much as
the batch was collecting them.

The arrays take 8 bytes for each step of the history and each number: four for every vertex, three
for every consumer, one for every VM; and 5 KB for each consumer's histogram.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outpace.simulate.layout import Layout

Floats = NDArray[np.float64]

#: The first bin is for all below the least latency, the last one for all above the greatest.
LEAST_LATENCY = 1e-6
BIN_GROWTH = 1.04
BINS = 2 + math.ceil(math.log(86_400 / LEAST_LATENCY) / math.log(BIN_GROWTH))
_LOG_GROWTH = math.log(BIN_GROWTH)

#: The least latency of each bin but the first.
BIN_ENDS = tuple(LEAST_LATENCY * BIN_GROWTH**number for number in range(BINS))


@dataclass(frozen=True, slots=True)
class Recording:
    """The arrays that an engine fills; `c` counts consumers, `v` vertices, `m` VMs, `s` samples.

    Parameters
    ----------
    events, latency, totals, histogram
        Of each consumer after the warm-up: the cardinality and latency of the output set, its
        totals with each producer's divided by the number of paths, and events by latency. [c],
        [c], [c], [c, BINS]
    processed, dropped
        Events of each vertex after the warm-up. [v]
    done, delay
        Events that each vertex was done with after the warm-up, which for a batch is at its end,
        and the sum of their ages then. [v]
    setup
        What batches of each vertex cost after the warm-up, however many events they had. [v]
    instructions
        What each VM used after the warm-up. [m]
    consumer_events, consumer_delay, consumer_totals
        In each step of the history: events consumed, the sum of their latencies, totals by paths.
        [s, c]
    vertex_processed, vertex_dropped, vertex_queue
        In each step: events processed, dropped, and waiting at its end in queues. [s, v]
    vm_instructions
        In each step. [s, m]
    """

    events: Floats
    latency: Floats
    totals: Floats
    histogram: Floats
    processed: Floats
    dropped: Floats
    done: Floats
    delay: Floats
    setup: Floats
    instructions: Floats
    consumer_events: Floats
    consumer_delay: Floats
    consumer_totals: Floats
    vertex_processed: Floats
    vertex_dropped: Floats
    vertex_queue: Floats
    vm_instructions: Floats

    @classmethod
    def empty(cls, layout: Layout) -> Recording:
        """Return arrays of the right sizes, filled with 0."""
        samples = layout.samples
        consumers, vertices = len(layout.consumers), len(layout.vertices)
        vms = len(layout.scenario.vms)
        return cls(
            events=np.zeros(consumers),
            latency=np.zeros(consumers),
            totals=np.zeros(consumers),
            histogram=np.zeros((consumers, BINS)),
            processed=np.zeros(vertices),
            dropped=np.zeros(vertices),
            done=np.zeros(vertices),
            delay=np.zeros(vertices),
            setup=np.zeros(vertices),
            instructions=np.zeros(vms),
            consumer_events=np.zeros((samples, consumers)),
            consumer_delay=np.zeros((samples, consumers)),
            consumer_totals=np.zeros((samples, consumers)),
            vertex_processed=np.zeros((samples, vertices)),
            vertex_dropped=np.zeros((samples, vertices)),
            vertex_queue=np.zeros((samples, vertices)),
            vm_instructions=np.zeros((samples, vms)),
        )


def latency_bin(latency: float) -> int:
    """Return the bin of the histogram that a latency belongs to.

    Examples
    --------
    >>> latency_bin(0.0), latency_bin(1e-6), latency_bin(1e9) == BINS - 1
    (0, 1, True)
    """
    if latency < LEAST_LATENCY:
        return 0
    return min(BINS - 1, 1 + int(math.log(latency / LEAST_LATENCY) / _LOG_GROWTH))


def latency_bins(latency: float, spread: float) -> list[tuple[int, float]]:
    """Return the bins that the latencies of a set belong to, each with its part of the events.

    Parameters
    ----------
    latency, spread
        All latencies from `latency - spread` to `latency + spread` are as likely.

    Examples
    --------
    >>> latency_bins(1.5, 0.0) == [(latency_bin(1.5), 1.0)]
    True
    >>> found = dict(latency_bins(1.5, 0.5))
    >>> min(found) == latency_bin(1.0), max(found) == latency_bin(2.0)
    (True, True)
    >>> round(sum(found.values()), 9)
    1.0
    """
    least, greatest = latency - spread, latency + spread
    if not greatest > least:  # A spread that is a rounding error makes no difference.
        return [(latency_bin(latency), 1.0)]
    first, last = latency_bin(least), latency_bin(greatest)
    borders = [least, *BIN_ENDS[first:last], greatest]
    return [
        (found, (after - before) / (greatest - least))
        for found, (before, after) in enumerate(itertools.pairwise(borders), start=first)
    ]


def histogram_percentile(histogram: Floats, percentile: float) -> float:
    """Return the latency below which this part, in percent, of the events lies; NaN without events.

    Examples
    --------
    >>> histogram = np.zeros(BINS); histogram[latency_bin(0.25)] = 10
    >>> round(histogram_percentile(histogram, 99), 2)
    0.25
    """
    below = np.cumsum(histogram)
    if not below[-1]:
        return math.nan
    wanted = min(below[-1] * percentile / 100, below[-1])
    found = int(np.searchsorted(below, wanted))
    if found == 0:
        return 0.0
    # The middle of the bin in the sense of ratios: as far from its lower as from its upper end.
    return float(LEAST_LATENCY * BIN_GROWTH ** (found - 0.5))
