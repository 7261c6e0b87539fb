"""How studies measure: rates of work that is done again and again for a given time.

Work that is to be compared is measured in turns, so that what else happens on the machine happens
to all of it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

#: Something to do, and the number of events that it handles.
Work: TypeAlias = "tuple[Callable[[], object], int]"


def rates_of(works: Sequence[Work], seconds: float) -> list[float]:
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
    >>> some, more = (lambda: sum(range(1000)), 1000), (lambda: sum(range(9000)), 9000)
    >>> [rate > 0 for rate in rates_of([some, more], seconds=0.01)]
    [True, True]
    """
    for work, _ in works:
        work()
    taken: list[list[float]] = [[] for _ in works]
    until = time.perf_counter() + seconds * len(works)
    while not taken[0] or time.perf_counter() < until:
        for times, (work, _) in zip(taken, works, strict=True):
            times.append(_seconds_of(work))
    return [
        events / statistics.median(times) for times, (_, events) in zip(taken, works, strict=True)
    ]


def rate_of(work: Callable[[], object], events: int, seconds: float) -> float:
    """Return the events per second of work that handles so many of them.

    Examples
    --------
    >>> rate_of(lambda: sum(range(1000)), 1000, seconds=0.01) > 0
    True
    """
    return rates_of([(work, events)], seconds)[0]


def _seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    # A clock may be too coarse for very short work.
    return max(time.perf_counter() - started, 1e-9)
