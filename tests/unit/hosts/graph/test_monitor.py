"""The monitor: who counts as stuck."""

from __future__ import annotations

import time
from collections import deque

from support.graphs import start_late

from outpace.hosts.graph.links import Links, Secret
from outpace.hosts.graph.machine import Machine, NodeProcess
from outpace.hosts.graph.monitor import Monitor
from outpace.hosts.graph.placement import Address


def test_a_process_that_starts_slowly_is_not_stuck() -> None:
    """On a busy machine a start takes longer than a heart may be silent."""
    links = Links(Secret("secret"))
    monitor = Monitor(links, Address("127.0.0.1", 0), patience_s=2.0)
    try:
        processes = [NodeProcess("late", "here", (), start_late, 3.0)]
        here = Machine(processes, monitor.address, links.secret)
        monitor.start(processes, {"here": here})
        end = time.monotonic() + 50
        while not monitor.is_done("late") and time.monotonic() < end:
            deque(monitor.turn(), maxlen=0)
            monitor.socket.poll(20)
        assert monitor.is_done("late")
        assert monitor.metrics("late").replays == 0
    finally:
        monitor.close()
        links.close()
