"""The clock of a host, by which events arrive and timers fire."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: A load is measured over at least so long, in seconds.
_STRETCH: Final = 0.1


def clock_time() -> int:
    """Return the time of this machine, in microseconds since 1970."""
    return time.time_ns() // 1000


class BusyMeter:
    """Measures for which part of the time a host is busy."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._worked = 0.0

    @contextmanager
    def work(self) -> Iterator[None]:
        """Count the time that something takes."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.add(time.perf_counter() - begin)

    def add(self, seconds: float) -> None:
        """Count time that something took."""
        self._worked += seconds

    def share(self) -> float | None:
        """Return how busy it was since it was asked last; None where that is too short ago."""
        now = time.perf_counter()
        if now - self._began < _STRETCH:
            return None
        share = self._worked / (now - self._began)
        self._began, self._worked = now, 0.0
        return min(1.0, share)
