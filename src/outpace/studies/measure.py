"""How studies measure: rates of work that is done again and again for a given time.

Work that is to be compared is measured in turns, so that what else happens on the machine happens
to all of it. One core does it, so processor time counts and not the time on the wall.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple


class MeasuredWork(NamedTuple):
    """Something to do again and again.

    Parameters
    ----------
    act
        What to do.
    events
        The number of events that it handles.
    prepare
        What comes before it each time, and is not measured.
    """

    act: Callable[[], object]
    events: int
    prepare: Callable[[], object] = lambda: None


def rates_of(works: Sequence[MeasuredWork], seconds: float) -> list[float]:
    """Return the events per second of several pieces of work, measured in turns.

    The first turn loads and warms what is needed and does not count. Of the others, as many as fit
    into the time and at least one, the median counts.

    Parameters
    ----------
    works
        What to do.
    seconds
        How long to measure, for each of them.

    Examples
    --------
    >>> some, more = (MeasuredWork(lambda: sum(range(size)), size) for size in (1000, 9000))
    >>> [rate > 0 for rate in rates_of([some, more], seconds=0.01)]
    [True, True]
    """
    for work in works:
        _seconds_of(work)
    taken: list[list[float]] = [[] for _ in works]
    until = time.perf_counter() + seconds * len(works)
    while not taken[0] or time.perf_counter() < until:
        for times, work in zip(taken, works, strict=True):
            times.append(_seconds_of(work))
    return [
        work.events / statistics.median(times) for times, work in zip(taken, works, strict=True)
    ]


def rate_of(act: Callable[[], object], events: int, seconds: float) -> float:
    """Return the events per second of work that handles so many of them.

    Examples
    --------
    >>> rate_of(lambda: sum(range(1000)), 1000, seconds=0.01) > 0
    True
    """
    return rates_of([MeasuredWork(act, events)], seconds)[0]


def _seconds_of(work: MeasuredWork) -> float:
    work.prepare()
    started = time.process_time()
    work.act()
    # A clock may be too coarse for very short work.
    return max(time.process_time() - started, 1e-9)
