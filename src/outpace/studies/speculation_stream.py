"""The stream of the study `speculation`: its generator, and a source whose events come late.

Events are equally far apart, and each is of one of some sources, at random (the paper's section
7.1). One source is late for a while: its delay starts at zero and grows by a step after each
stretch of time (section 7.2.1, figure 7-1). A source sends in the order of its times, so events
behind the end of the delay wait for those before.

    delay              ___
                   ___|   |
               ___|       |
    __________|           |__________
              begin       end
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.pattern.query import Query
from outpace.pattern.schedulers import RoundRobin
from outpace.pattern.windows import CountWindows

#: Microseconds between two events: 100 thousand come in a second.
APART: Final = 10
SOURCES: Final = ("A", "B", "C")
#: The source that is late, as a number.
_LATE: Final = 2
SEED: Final = 7
#: K where no event is late, in microseconds: what it is after the delays of figure 7-1.
SLACK: Final = 540


@dataclass(frozen=True)
class DelayRamp:
    """How late the events of a source are; all in microseconds.

    Parameters
    ----------
    begin, end
        Events that happen from here to there are late.
    step, every
        The delay grows by so much after each so long.

    Examples
    --------
    >>> ramp = DelayRamp(begin=100, end=400, step=30, every=100)
    >>> ramp.delays(np.array([0, 100, 199, 250, 399, 400])).tolist()
    [0, 0, 0, 30, 60, 0]
    >>> ramp.greatest
    60
    """

    begin: int
    end: int
    step: int = 30
    every: int = 50_000

    @property
    def greatest(self) -> int:
        """The greatest delay."""
        return (self.end - 1 - self.begin) // self.every * self.step

    def delays(self, times: Integers) -> Integers:
        """Return how late events of some times are."""
        inside = (times >= self.begin) & (times < self.end)
        return np.where(inside, (times - self.begin) // self.every * self.step, 0)


def stream_of(events: int, ramp: DelayRamp | None = None, *, seed: int = SEED) -> pa.Table:
    """Return events in the order in which they arrive, late where a ramp says so.

    Examples
    --------
    >>> stream_of(4)["ts"].to_pylist()
    [0, 10, 20, 30]
    """
    times = np.arange(events, dtype=np.int64) * APART
    sources = np.random.default_rng(seed).integers(0, len(SOURCES), events)
    arrivals = times.copy()
    if ramp is not None:
        late = np.flatnonzero(sources == _LATE)
        sent = times[late] + ramp.delays(times[late])
        # A source sends its events in their order.
        arrivals[late] = np.maximum.accumulate(sent)
    order = np.lexsort((times, arrivals))
    return pa.table({"ts": times[order], "source": sources[order].astype(np.int64)})


def sequence_query(size: int, slide: int, instances: int) -> Query:
    """Return the query: a sequence of events of sources, one behind the other, in windows.

    An event that is missing may be part of a match, or lie between those of a wrong one.
    """
    defined = {"A": "source = 0", "B": "source > 0", "Z": "source = 0"}
    query = Query("sequence").order_by("ts").pattern("A B Z").define(**defined)
    query = query.measures(first="A.ts", last="Z.ts").skip_to_next_row()
    return query.over(CountWindows(size, slide)).instances(instances, RoundRobin())


def loads_of(first: int, stop: int, size: int, slide: int, instances: int) -> Integers:
    """Return how often each instance has the events of a stretch, once in each of its windows.

    Windows are given to instances in turn.

    Examples
    --------
    >>> loads_of(0, 10, size=10, slide=5, instances=2).tolist()
    [10, 5]
    """
    windows = np.arange(max(0, (first - size) // slide + 1), (stop - 1) // slide + 1)
    begin = windows * slide
    shared = np.minimum(stop, begin + size) - np.maximum(first, begin)
    return np.bincount(windows % instances, np.maximum(shared, 0), instances).astype(np.int64)
