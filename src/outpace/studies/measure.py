"""How studies measure: rates of work that is done again and again for a given time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def rate_of(work: Callable[[], object], events: int, seconds: float) -> float:
    """Return the events per second of work that handles so many of them.

    The first run loads and warms what is needed and does not count. Of the others, as many as fit
    into the time and at least one, the median counts.

    Examples
    --------
    >>> rate_of(lambda: sum(range(1000)), 1000, seconds=0.01) > 0
    True
    """
    work()
    until = time.perf_counter() + seconds
    taken = [_seconds_of(work)]
    while time.perf_counter() < until:
        taken.append(_seconds_of(work))
    return events / statistics.median(taken)


def _seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    # A clock may be too coarse for very short work.
    return max(time.perf_counter() - started, 1e-9)
