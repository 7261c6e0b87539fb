"""The clock of a host, by which events arrive and timers fire."""

from __future__ import annotations

import time


def clock_time() -> int:
    """Return the time of this machine, in microseconds since 1970."""
    return time.time_ns() // 1000
