"""The paper's queries behave as its text says: latency, and a knee near 21 000 events a second."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outpace.simulate import QueryModel, Result, Scenario, simulate
from outpace.studies.cepsim_queries import (
    CLOUD_COSTS,
    OWN_COSTS,
    QUEUE,
    average_query,
    convert_query,
    worker,
)

LENGTH = {"warm_up": 30.0, "duration": 90.0}


def run(query: QueryModel) -> Result:
    return simulate(Scenario((query,), (worker(),), queue=QUEUE, overflow="discard", **LENGTH))


@pytest.mark.parametrize("make", [average_query, convert_query])
def test_below_the_knee_everything_comes_through(make: Callable[[int], QueryModel]) -> None:
    result = run(make(2000))
    assert result.throughput("consumer") == pytest.approx(20_000, rel=0.01)
    assert result.recording.dropped.sum() == 0


@pytest.mark.parametrize("make", [average_query, convert_query])
def test_above_the_knee_not_many_more_than_21_000_events_come_through(
    make: Callable[[int], QueryModel],
) -> None:
    result = run(make(2500))
    assert 19_000 < result.throughput("consumer") < 22_500
    assert result.vms()["utilisation"].to_pylist() == pytest.approx([1.0], rel=0.001)


def test_an_average_waits_for_half_a_window() -> None:
    assert run(average_query(10)).latency("consumer") == pytest.approx(7.5, rel=0.02)


def test_a_conversion_takes_its_instructions() -> None:
    # One event in a tick: all vertices one after the other on 2500 MIPS.
    result = run(convert_query(1))
    assert result.latency("consumer") == pytest.approx(114_037.5 / 2.5e9)


def test_a_query_costs_what_the_text_says() -> None:
    # 4.5 ms for a database write, on processors of 2400 and of 2500 MIPS.
    assert CLOUD_COSTS.database == pytest.approx(0.0045 * 2400e6)
    assert OWN_COSTS.database == pytest.approx(0.0045 * 2500e6, rel=0.03)
