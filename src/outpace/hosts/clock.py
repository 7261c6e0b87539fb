"""The clock of a host, by which events arrive and timers fire."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from outpace.engine.message import HostLoad

#: A load is measured over at least so long, in seconds.
_STRETCH: Final = 0.1


def clock_time() -> int:
    """Return the time of this machine, in microseconds since 1970."""
    return time.time_ns() // 1000


class BusyMeter:
    """Measures for which part of the time a host is busy, and how long its processor works.

    A host that waits for a processor is busy, but events cost no more for that.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._busy = self._worked = 0.0

    @contextmanager
    def work(self) -> Iterator[None]:
        """Count the time that something takes, in this thread."""
        begin, worked = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            self.add(time.perf_counter() - begin, time.thread_time() - worked)

    def add(self, busy: float, worked: float) -> None:
        """Count time that something took, by the clock and of the processor."""
        self._busy += busy
        self._worked += worked

    def load(self) -> HostLoad | None:
        """Return how busy it was since it was asked last; None where that is too short ago."""
        now = time.perf_counter()
        if now - self._began < _STRETCH:
            return None
        load = HostLoad(min(1.0, self._busy / (now - self._began)), self._worked)
        self._began, self._busy, self._worked = now, 0.0, 0.0
        return load


@dataclass(frozen=True)
class BatchLoad:
    """How busy an instance is that takes a step in each micro-batch, as it is kept between them.

    What a batch decides by was measured before it, and is kept with the batch before it: a batch
    that is run again decides the same, however long it takes then.

    Parameters
    ----------
    busy
        For which part of the time it was busy that lies between the last two batches; None where
        that is not known yet.
    began, worked
        When the step of the last batch began, and how long it took, in microseconds.

    Examples
    --------
    >>> load = BatchLoad(None, 0, 0).after(1_000_000, 200_000).after(2_000_000, 800_000)
    >>> load.busy, load.after(3_000_000, 0).busy
    (0.2, 0.8)
    """

    busy: float | None
    began: int
    worked: int

    @property
    def report(self) -> HostLoad | None:
        """What the next batch is told; None where nothing is known yet."""
        return None if self.busy is None else HostLoad(self.busy, self.worked / 1e6)

    def after(self, began: int, worked: int) -> BatchLoad:
        """Return the load after one more batch, whose step began at a time and took so long."""
        if not self.began or began <= self.began:
            return BatchLoad(self.busy, began, worked)  # A clock was set back, or another began.
        return BatchLoad(min(1.0, self.worked / (began - self.began)), began, worked)
