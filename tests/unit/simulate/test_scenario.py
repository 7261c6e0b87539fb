"""Scenarios that do not fit together are errors that name what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from support.simulated import chain

from outpace.errors import ScenarioError
from outpace.simulate import (
    VM,
    Cloud,
    Consumer,
    Datacentre,
    Edge,
    FailVM,
    Host,
    MoveVertex,
    OperatorModel,
    Producer,
    QueryModel,
    Scenario,
    SetRate,
    StartQuery,
    Uniform,
)

QUERY = chain(Producer("in", Uniform(10)), OperatorModel("filter", 100), Consumer("out"))
OTHER = chain(Producer("in", Uniform(10)), OperatorModel("filter", 200), Consumer("out2"), name="r")
WORKERS = (VM("one", 1000), VM("two", 1000))
PLACED = {"in": "one", "filter": "one", "out": "two"}


def error(**arguments: Any) -> str:
    whole = {"queries": (QUERY,), "vms": WORKERS, "duration": 10.0, "placement": PLACED}
    with pytest.raises(ScenarioError) as caught:
        Scenario(**(whole | arguments))
    return str(caught.value)


def hosts(*values: Host) -> tuple[Cloud, ...]:
    return (Cloud("cloud", (Datacentre("centre", values),)),)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"queries": ()}, ["the scenario has no queries"]),
        ({"vms": ()}, ["the scenario has no VMs"]),
        ({"queries": (QUERY, QUERY)}, ["two queries of this name", "query 'q'"]),
        ({"vms": (WORKERS[0], WORKERS[0])}, ["two VMs of this name", "vm 'one'"]),
        ({"placement": {"in": "one", "out": "one"}}, ["on no VM", "vertex 'filter'"]),
        (
            {"placement": PLACED | {"fliter": "one"}},
            ["unknown vertex 'fliter'", "placement 'fliter'", "did you mean 'filter'?"],
        ),
        ({"placement": PLACED | {"in": "three"}}, ["unknown vm 'three'", "placement 'in'"]),
        (
            {"queries": (QUERY, OTHER)},
            ["two queries define this vertex differently", "vertex 'filter'", "instructions=200"],
        ),
        ({"duration": 0}, ["the duration", "simulation 'duration'"]),
        ({"duration": 1e7}, ["more than 20,000,000 ticks of 0.1 s", "a longer tick"]),
        ({"tick": -1}, ["the tick", "simulation 'tick'"]),
        ({"tick": 11}, ["a tick is longer than the whole simulation: 11"]),
        ({"warm_up": 10}, ["the warm-up does not end before the simulation: 10"]),
        ({"sample": 0}, ["the sample"]),
        ({"queue": 0}, ["the queue has no room: 0"]),
        (
            {"overflow": "panic"},
            ["the overflow of Scenario is 'accumulate' or 'discard', not 'panic'"],
        ),
        ({"changes": (FailVM(1, "onw"),)}, ["unknown vm 'onw'", "change '1'", "'one'"]),
        ({"changes": (StartQuery(1, "p"),)}, ["unknown query 'p'"]),
        (
            {"changes": (FailVM(1, "one"), MoveVertex(1, "filt", "one"))},
            ["unknown vertex 'filt'", "change '2'", "'filter'"],
        ),
        ({"changes": (SetRate(1, "filter", 2.0),)}, ["unknown producer 'filter'"]),
        (
            {"clouds": hosts(Host("big", 1000), Host("big", 1000))},
            ["two hosts of this name", "host 'big'"],
        ),
        (
            {"clouds": hosts(Host("small", 999, processors=8))},
            ["the VM fits on no host", "vm 'one'", "1 free processors of 1000 MIPS"],
        ),
        (
            {"clouds": hosts(Host("only", 1000, processors=1, sharing="space"))},
            ["the VM fits on no host", "vm 'two'"],
        ),
        (
            {"vms": (VM("one", 1000, host="b"), WORKERS[1]), "clouds": hosts(Host("a", 1000))},
            ["unknown host 'b'", "vm 'one'"],
        ),
        (
            {
                "vms": (VM("one", 1000, host="b"), WORKERS[1]),
                "clouds": hosts(Host("a", 1000), Host("b", 500)),
            },
            ["the VM does not fit on 'b'", "vm 'one'"],
        ),
    ],
)
def test_what_is_wrong_is_named(arguments: dict[str, Any], parts: list[str]) -> None:
    text = error(**arguments)
    for part in parts:
        assert part in text


def test_shared_edges_must_agree() -> None:
    other = chain(*QUERY.vertices, name="r", selectivities=(0.5,))
    text = error(queries=(QUERY, other))
    assert "different selectivities" in text
    assert "edge 'in' -> 'filter'" in text


def test_two_queries_may_not_form_a_cycle_together() -> None:
    a, b = OperatorModel("a"), OperatorModel("b")
    source, sink = Producer("in", Uniform(1)), Consumer("out")
    one = QueryModel(
        "one", (source, a, b, sink), (Edge("in", "a"), Edge("a", "b"), Edge("b", "out"))
    )
    two = QueryModel(
        "two", (source, b, a, sink), (Edge("in", "b"), Edge("b", "a"), Edge("a", "out"))
    )
    text = error(queries=(one, two), placement=dict.fromkeys(["in", "a", "b", "out"], "one"))
    assert "the vertices form a cycle" in text


@pytest.mark.parametrize(
    "make",
    [
        lambda: VM("", 10),
        lambda: VM("v", 0),
        lambda: VM("v", 10, processors=0),
        lambda: VM("v", 10, processors=1.5),
        lambda: Host("h", float("nan")),
        lambda: Host("h", 10, sharing="both"),
        lambda: FailVM(-1, "v"),
        lambda: SetRate(1, "p"),
        lambda: SetRate(1, "p", factor=1.0, generator=Uniform(1)),
        lambda: SetRate(1, "p", factor=-1.0),
    ],
)
def test_impossible_machines_and_changes_are_errors(make: Any) -> None:
    with pytest.raises(ScenarioError):
        make()


def test_on_one_machine_everything_is_placed() -> None:
    scenario = Scenario((QUERY,), WORKERS[:1], duration=10)
    assert scenario.placement == dict.fromkeys(["in", "filter", "out"], "one")
