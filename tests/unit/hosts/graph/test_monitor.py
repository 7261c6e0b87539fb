"""The monitor: who counts as stuck."""

from __future__ import annotations

import time
from collections import deque

import zmq
from support.graphs import start_late

from outpace.hosts.graph.monitor import Monitor


def test_a_process_that_starts_slowly_is_not_stuck() -> None:
    """On a busy machine a start takes longer than a heart may be silent."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(1)
    monitor = Monitor(context, "secret", patience_s=2.0)
    try:
        monitor.start("late", start_late, 3.0, [])
        end = time.monotonic() + 50
        while not monitor.is_done("late") and time.monotonic() < end:
            deque(monitor.turn(), maxlen=0)
            monitor.socket.poll(20)
        assert monitor.is_done("late")
        assert monitor.metrics("late").replays == 0
    finally:
        monitor.close()
        context.destroy(0)
