"""Automatic placement: every vertex once, no overloaded machine, and what each strategy aims at."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.simulated import chain, queries

from outpace.errors import ScenarioError
from outpace.simulate import (
    VM,
    Cloud,
    ConstantOutput,
    Consumer,
    Datacentre,
    Edge,
    Host,
    OperatorModel,
    Producer,
    QueryModel,
    Scenario,
    Uniform,
    WindowedOperator,
    simulate,
)
from outpace.simulate.placement import (
    FirstFit,
    LoadBalanced,
    NetworkAware,
    PlacementStrategy,
    place,
)
from outpace.simulate.placement_flow import Flow, flow_of, mean_rates

STRATEGIES = [FirstFit(), LoadBalanced(), NetworkAware()]
CAPACITIES = st.lists(st.sampled_from([0.5, 3.0, 20.0]), min_size=1, max_size=4)


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    drawn = [draw(queries(f"q{n}")) for n in range(draw(st.integers(1, 3)))]
    return flow_of(drawn, mean_rates(drawn, 6.0))


def load_by_vm(flow: Flow, placement: dict[str, str]) -> dict[str, float]:
    return {
        vm: sum(flow.loads[vertex] for vertex, home in placement.items() if home == vm)
        for vm in placement.values()
    }


def crossing(flow: Flow, placement: dict[str, str]) -> float:
    """The events a second between machines."""
    ends = flow.traffic.items()
    return sum(events for (one, other), events in ends if placement[one] != placement[other])


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
@given(flow=flows(), mips=CAPACITIES, fill=st.sampled_from([0.5, 1.0]))
@examples(60)
def test_every_vertex_is_placed_once_and_machines_carry_what_they_get(
    strategy: PlacementStrategy, flow: Flow, mips: list[float], fill: float
) -> None:
    capacities = {f"vm{n}": capacity for n, capacity in enumerate(mips)}
    caught: ScenarioError | None = None
    try:
        placement = type(strategy)(fill).place(flow, capacities)  # type: ignore[call-arg]  # each has it
    except ScenarioError as error:
        caught = error
    if caught is not None:
        # The error tells the truth: not everything would fit on any one machine.
        assert caught.subject[0] == "vertex"
        assert caught.subject[1] in flow.loads
        assert sum(flow.loads.values()) > max(capacities.values()) * fill
        return
    assert list(placement) == list(flow.loads)
    for vm, load in load_by_vm(flow, placement).items():
        assert load <= capacities[vm] * fill * (1 + 1e-6)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
@given(flow=flows())
@examples(30)
def test_a_machine_that_carries_all_is_enough(strategy: PlacementStrategy, flow: Flow) -> None:
    whole = {"only": sum(flow.loads.values()) + 1e-3}
    assert set(strategy.place(flow, whole).values()) == {"only"}


def test_first_fit_takes_the_first_machine_with_room() -> None:
    flow = Flow({"a": 4.0, "b": 7.0, "c": 6.0, "d": 3.0}, {})
    assert FirstFit().place(flow, {"x": 10.0, "y": 10.0}) == {
        "a": "x",
        "b": "y",
        "c": "x",
        "d": "y",
    }


def test_balancing_evens_out_machines_of_different_sizes() -> None:
    flow = Flow({f"v{n}": 1.0 for n in range(9)}, {})
    placement = LoadBalanced().place(flow, {"small": 5.0, "large": 10.0})
    assert load_by_vm(flow, placement) == {"small": 3.0, "large": 6.0}


def test_chatty_neighbours_stay_together() -> None:
    loads = {"in": 3.0, "parse": 3.0, "join": 3.0, "out": 3.0}
    flow = Flow(loads, {("in", "parse"): 9.0, ("parse", "join"): 1.0, ("join", "out"): 8.0})
    placement = NetworkAware().place(flow, {"x": 6.0, "y": 6.0})
    assert placement == {"in": "x", "parse": "x", "join": "y", "out": "y"}
    assert crossing(flow, placement) == 1.0


def test_a_group_that_fits_nowhere_any_more_is_taken_apart_towards_its_neighbours() -> None:
    loads = {"a": 3.0, "b": 3.0, "c": 2.0, "d": 2.0}
    flow = Flow(loads, {("a", "b"): 9.0, ("c", "d"): 8.0, ("a", "c"): 2.0, ("b", "d"): 1.0})
    placement = NetworkAware().place(flow, {"x": 8.0, "y": 2.0})
    assert placement == {"a": "x", "b": "x", "c": "x", "d": "y"}


@given(drawn=queries("q"), count=st.integers(2, 3))
@examples(40)
def test_network_aware_sends_nothing_between_machines_if_one_carries_all(
    drawn: QueryModel, count: int
) -> None:
    flow = flow_of([drawn], mean_rates([drawn], 6.0))
    capacities = {f"vm{n}": sum(flow.loads.values()) + 1e-3 for n in range(count)}
    assert crossing(flow, NetworkAware().place(flow, capacities)) == 0.0


def test_the_flow_is_what_a_simulation_processes() -> None:
    query = QueryModel(
        "q",
        (
            Producer("in", Uniform(100), 1e3),
            OperatorModel("split", 2e3),
            OperatorModel("left", 3e3),
            WindowedOperator("right", 4e3, window=2.0, advance=1.0, combination=ConstantOutput(5)),
            Consumer("out", 5e3),
        ),
        (
            Edge("in", "split"),
            Edge("split", "left", 0.25),
            Edge("split", "right", 1.5),
            Edge("left", "out", 2.0),
            Edge("right", "out", 3.0),
        ),
    )
    flow = flow_of([query], mean_rates([query], 60.0))
    result = simulate(Scenario((query,), (VM("vm", mips=1000),), duration=60, warm_up=10))
    rows = {row["vertex"]: row for row in result.vertices().to_pylist()}
    for vertex in query.vertices:
        processed = rows[vertex.id]["processed"] / 50
        assert flow.loads[vertex.id] == pytest.approx(processed * vertex.instructions / 1e6)
    assert flow.traffic["right", "out"] == 15.0


def test_shared_vertices_count_once() -> None:
    one = chain(Producer("in", Uniform(10)), OperatorModel("op", 1e6), Consumer("a"), name="one")
    other = chain(
        Producer("in", Uniform(10)), OperatorModel("op", 1e6), Consumer("b"), name="other"
    )
    assert flow_of([one, other], {"in": 10}).loads["op"] == 10.0


@pytest.mark.parametrize(
    ("rates", "message"), [({}, "no rate"), ({"in": 1.0, "inn": 1.0}, "unknown producer 'inn'")]
)
def test_rates_must_be_those_of_the_producers(rates: dict[str, float], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        flow_of([chain(Producer("in", Uniform(10)), Consumer("out"))], rates)


def test_a_vertex_without_room_is_named_with_what_it_needs() -> None:
    query = chain(Producer("in", Uniform(10)), OperatorModel("heavy", 1e6), Consumer("out"))
    with pytest.raises(ScenarioError, match="room") as caught:
        place([query], [VM("a", mips=9), VM("b", mips=8)], FirstFit(), {"in": 10})
    assert caught.value.subject == ("vertex", "heavy")
    assert "10 MIPS" in str(caught.value.detail)
    assert "9" in str(caught.value.detail)


def test_machines_that_share_a_host_carry_less() -> None:
    query = chain(Producer("in", Uniform(10)), OperatorModel("heavy", 0.8e6), Consumer("out"))
    vms = [VM("a", mips=10), VM("b", mips=10)]
    cloud = Cloud("c", (Datacentre("d", (Host("h", 10),)),))
    assert place([query], vms, FirstFit(), {"in": 10})["heavy"] == "a"
    with pytest.raises(ScenarioError, match="room"):
        place([query], vms, FirstFit(), {"in": 10}, [cloud])


@pytest.mark.parametrize("fill", [0.0, -1.0, 1.1])
def test_a_machine_is_filled_by_a_part(fill: float) -> None:
    for strategy in (FirstFit, LoadBalanced, NetworkAware):
        with pytest.raises(ScenarioError, match="part"):
            strategy(fill)


class OneEach:
    """An own strategy: vertices in turn."""

    def place(self, flow: Flow, capacities: Mapping[str, float]) -> dict[str, str]:
        names = list(capacities)
        return {vertex: names[n % len(names)] for n, vertex in enumerate(flow.loads)}


def test_own_strategies_are_small_classes() -> None:
    query = chain(Producer("in", Uniform(10)), OperatorModel("op"), Consumer("out"))
    placement = place([query], [VM("a", mips=1), VM("b", mips=1)], OneEach(), {"in": 10})
    assert placement == {"in": "a", "op": "b", "out": "a"}
