"""Networks: which link lies between two machines, and what a run makes of it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from support.simulated import chain

from outpace.errors import ScenarioError
from outpace.simulate import (
    VM,
    Bandwidth,
    Cloud,
    ConstantDelay,
    Consumer,
    Datacentre,
    Host,
    Producer,
    RecordedTimes,
    Scenario,
    Tiers,
    simulate,
)
from outpace.simulate.cloud import Place
from outpace.simulate.network import Network, NetworkLink

TIERS = Tiers(ConstantDelay(0.1), ConstantDelay(0.2), ConstantDelay(0.3), ConstantDelay(0.4))
CLOUDS = (
    Cloud(
        "c1",
        (
            Datacentre("d1", (Host("h1", 1, 2, "space"), Host("h2", 1))),
            Datacentre("d2", (Host("h3", 1),)),
        ),
    ),
    Cloud("c2", (Datacentre("d3", (Host("h4", 1),)),)),
)


def latency(network: Network, host: str | None, clouds: tuple[Cloud, ...] = CLOUDS) -> float:
    """How late one event is that a machine on h1 sends to a machine on another host."""
    query = chain(Producer("in", RecordedTimes((0.5,))), Consumer("out"))
    machines = (VM("a", 1), VM("b", 1, host=host))
    placement = {"in": "a", "out": "b"}
    # Ticks of 10 ms, so that an event waits for less than one of them when it arrives.
    return simulate(Scenario((query,), machines, 2, placement, clouds, network, tick=0.01)).latency(
        "out"
    )


@pytest.mark.parametrize(("host", "delay"), [("h1", 0.1), ("h2", 0.2), ("h3", 0.3), ("h4", 0.4)])
def test_the_tier_is_the_smallest_thing_with_both_machines(host: str, delay: float) -> None:
    assert latency(TIERS, host) == pytest.approx(delay, abs=0.011)


def test_machines_on_their_own_are_elsewhere() -> None:
    assert latency(TIERS, None, ()) == pytest.approx(0.4, abs=0.011)
    assert TIERS.link(Place("a"), Place("b")) == NetworkLink(0.4)


def test_an_own_network_is_a_class_with_one_method() -> None:
    @dataclass(frozen=True)
    class Modem:
        def link(self, source: Place, target: Place) -> NetworkLink:
            return NetworkLink(0.05, seconds_per_event=0.5)

    assert latency(Modem(), "h2") == pytest.approx(0.55, abs=0.011)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ConstantDelay(-1),
        lambda: Bandwidth(-1, 1e9, 100),
        lambda: Bandwidth(0, 0, 100),
        lambda: Bandwidth(0, 1e9, float("nan")),
    ],
)
def test_impossible_networks_are_errors(make: object) -> None:
    with pytest.raises(ScenarioError, match="the network's"):
        make()  # type: ignore[operator]  # a parameter of the test
