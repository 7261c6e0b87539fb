"""The load of a host: how busy it is by the clock, and how long its processor works."""

import time

import pytest

from outpace.hosts.clock import BusyMeter


def test_who_waits_is_busy_but_its_processor_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outpace.hosts.clock._STRETCH", 0.0)
    meter = BusyMeter()
    with meter.work():
        time.sleep(0.2)
    load = meter.load()
    assert load is not None
    assert load.busy > 0.5
    assert load.worked < 0.1
