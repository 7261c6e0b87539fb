"""The twin does what the algorithms of the CEPSim paper say, in cases small enough to work out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from support.properties import examples
from support.simulated import chain, scenarios

from outpace.simulate import (
    VM,
    Bandwidth,
    BatchOperator,
    ConstantDelay,
    ConstantOutput,
    Consumer,
    Edge,
    FailVM,
    MoveVertex,
    OperatorModel,
    Producer,
    QueryModel,
    RecordedTimes,
    RestartVM,
    Scenario,
    SimpleScheduling,
    StartQuery,
    StopQuery,
    Uniform,
    WeightedAllocation,
    WindowedOperator,
    simulate,
)
from outpace.simulate.run import Engine
from outpace.simulate.strategies import Allocation, VertexWork
from outpace.simulate.twin import Twin

WORKER = (VM("worker", 1),)
SIMPLE = SimpleScheduling()


def steps(scenario: Scenario, ticks: int) -> Twin:
    twin = Twin(scenario)
    for _ in range(ticks):
        twin.step()
    return twin


def waiting(twin: Twin, vertex: str) -> float:
    return next(
        state.waiting()
        for value, state in zip(twin.layout.vertices, twin.states, strict=True)
        if value.id == vertex
    )


def line(rate: float = 100, costs: Sequence[float] = (1000, 1000, 0), **kwargs: Any) -> QueryModel:
    producer, operator, consumer = costs
    return chain(
        Producer("in", Uniform(rate), producer),
        OperatorModel("filter", operator, **kwargs),
        Consumer("out", consumer),
    )


def test_simple_scheduling_gives_each_vertex_its_share_of_the_tick() -> None:
    # A third of a second each: the events of a tick leave when the third slice ends.
    result = simulate(Scenario((line(),), WORKER, 10, tick=1, scheduling=SIMPLE))
    assert result.latency("out") == pytest.approx(1.0)
    assert result.throughput("out") == pytest.approx(90)
    assert result.recording.events.tolist() == pytest.approx([900])


def test_weighted_shares_follow_the_costs() -> None:
    query = line(costs=(1000, 3000, 1000))
    scenario = Scenario(
        (query,), WORKER, 10, tick=1, scheduling=SIMPLE, allocation=WeightedAllocation()
    )
    twin = steps(scenario, 2)
    # 0.2 s for the producer and 0.6 s for the operator; the consumer ends with the tick.
    assert twin.outputs[2].latency == pytest.approx(1.0)
    assert twin.outputs[2].cardinality == pytest.approx(100)
    overloaded = steps(Scenario((line(500, (1000, 3000, 1000)),), WORKER, 10, tick=1,
                                scheduling=SIMPLE, allocation=WeightedAllocation()), 2)  # fmt: skip
    assert overloaded.outputs[2].cardinality == pytest.approx(200)
    assert waiting(overloaded, "in") == pytest.approx(300)


def test_dynamic_scheduling_takes_only_what_is_needed() -> None:
    result = simulate(Scenario((line(),), WORKER, 10, tick=1))
    assert result.latency("out") == pytest.approx(0.2)
    assert result.vms()["utilisation"].to_pylist() == pytest.approx([0.18])


def test_dynamic_scheduling_gives_the_rest_to_who_needs_it() -> None:
    query = line(500, (100, 1800, 0))
    simple = simulate(Scenario((query,), WORKER, 10, tick=1, scheduling=SIMPLE))
    dynamic = simulate(Scenario((query,), WORKER, 10, tick=1))
    assert simple.throughput("out") == pytest.approx(0.9 * 1e6 / 3 / 1800)
    assert dynamic.throughput("out") == pytest.approx(450)


def test_an_overloaded_machine_uses_all_of_its_instructions() -> None:
    result = simulate(Scenario((line(900, (1000, 1000, 10)),), WORKER, 60, tick=1, warm_up=10))
    assert result.vms()["utilisation"].to_pylist() == pytest.approx([1.0])
    assert result.throughput("out") < 500


def test_own_strategies_are_classes_with_one_method() -> None:
    @dataclass(frozen=True)
    class Backwards:
        def schedule(
            self, work: VertexWork, instructions: float, allocation: Allocation
        ) -> Iterator[tuple[int, float]]:
            shares = allocation.allocate(instructions, work.costs)
            yield from reversed(list(enumerate(shares)))

    @dataclass(frozen=True)
    class AllToTheFirst:
        def allocate(self, instructions: float, costs: Sequence[float]) -> list[float]:
            return [instructions, *[0.0] * (len(costs) - 1)]

    free = line(costs=(1000, 0, 0))
    scenario = Scenario(
        (free,), WORKER, 10, tick=1, scheduling=Backwards(), allocation=AllToTheFirst()
    )
    # An event waits a tick before the operator and one more before the consumer, which both run
    # first; it is sent when the tick ends.
    assert steps(scenario, 3).outputs[2].cardinality == 0
    assert steps(scenario, 4).outputs[2].latency == pytest.approx(2.0)


def test_figure_8_comes_out_of_a_run() -> None:
    @dataclass(frozen=True)
    class Slices:
        def schedule(
            self, work: VertexWork, instructions: float, allocation: Allocation
        ) -> Iterator[tuple[int, float]]:
            yield from enumerate(seconds * 1e6 for seconds in (5, 3, 2, 2, 1))

    query = QueryModel(
        "q",
        (
            Producer("p1", Uniform(0.5), 1000),
            Producer("p2", Uniform(1.0), 1000),
            OperatorModel("f1", 1000),
            OperatorModel("f2", 1000),
            Consumer("c1", 1000),
        ),
        (Edge("p1", "f1"), Edge("p2", "f1"), Edge("f1", "f2", 0.5), Edge("f2", "c1")),
    )
    # The figure's times, 15 s later: made at 20, sent by p1 at 25, by p2 at 28, by f1 at 30.
    twin = steps(Scenario((query,), WORKER, 40, tick=20, scheduling=Slices()), 2)
    assert twin.recording.vertex_processed[1].tolist() == pytest.approx([10, 20, 30, 15, 15])
    output = twin.outputs[4]
    assert output.totals == pytest.approx({"p1": 10, "p2": 20})
    assert (output.cardinality, output.timestamp) == pytest.approx((15, 33))
    assert output.latency == pytest.approx(13)


def test_queues_are_drained_in_proportion_to_their_lengths() -> None:
    query = QueryModel(
        "q",
        (
            Producer("few", Uniform(100)),
            Producer("many", Uniform(300)),
            OperatorModel("merge", 5000),
            Consumer("out"),
        ),
        (Edge("few", "merge"), Edge("many", "merge"), Edge("merge", "out")),
    )
    twin = steps(Scenario((query,), WORKER, 10, tick=1), 2)
    assert twin.outputs[3].totals == pytest.approx({"few": 50.0, "many": 150.0})


def test_selectivity_changes_counts_but_not_what_they_result_from() -> None:
    query = chain(
        Producer("in", Uniform(100)),
        OperatorModel("filter"),
        OperatorModel("double"),
        Consumer("out"),
        selectivities=(1.0, 0.25, 2.0),
    )
    result = simulate(Scenario((query,), WORKER, 10, tick=1))
    assert result.recording.events.tolist() == pytest.approx([450])
    assert result.throughput("out") == pytest.approx(90)


def test_events_that_come_by_two_paths_count_once() -> None:
    query = QueryModel(
        "q",
        (
            Producer("in", Uniform(100)),
            OperatorModel("left"),
            OperatorModel("right"),
            OperatorModel("merge"),
            Consumer("out"),
        ),
        (
            Edge("in", "left", 0.5),
            Edge("in", "right", 0.5),
            Edge("left", "merge"),
            Edge("right", "merge"),
            Edge("merge", "out"),
        ),
    )
    result = simulate(Scenario((query,), WORKER, 10, tick=1))
    assert result.throughput("out") == pytest.approx(90)
    assert result.recording.events.tolist() == pytest.approx([900])


def test_two_queries_share_vertices() -> None:
    source, shared = Producer("in", Uniform(100), 1000), OperatorModel("filter", 1000)
    queries = (
        chain(source, shared, Consumer("a"), name="one"),
        chain(source, shared, Consumer("b"), name="two", selectivities=(1.0, 0.5)),
    )
    result = simulate(Scenario(queries, WORKER, 10, tick=1))
    assert result.recording.processed.tolist() == pytest.approx([900, 900, 900, 450])
    assert result.throughput("a") == result.throughput("b") == pytest.approx(90)


@dataclass(frozen=True)
class Spy:
    """A combination that remembers what it was asked."""

    asked: list[tuple[float, ...]] = field(default_factory=list)

    def combine(self, counts: Sequence[float]) -> float:
        self.asked.append(tuple(counts))
        return 1.0


def figure_5(combination: Any, rate: float = 1.0) -> QueryModel:
    return QueryModel(
        "q",
        (
            Producer("p1", Uniform(rate)),
            Producer("p2", Uniform(2 * rate)),
            WindowedOperator("w", window=30, advance=10, combination=combination),
            Consumer("out"),
        ),
        (Edge("p1", "w"), Edge("p2", "w"), Edge("w", "out")),
    )


def test_windows_of_figure_5_add_up_their_slots_by_predecessor() -> None:
    spy = Spy()
    twin = Twin(Scenario((figure_5(spy),), WORKER, 61, tick=1))
    outputs = []
    while twin.tick < 61:
        before = twin.outputs[3]
        twin.step()
        if twin.outputs[3] is not before:
            after = twin.outputs[3]
            new = {p: after.totals[p] - before.totals.get(p, 0.0) for p in after.totals}
            latency = after.cardinality * after.latency - before.cardinality * before.latency
            outputs.append((twin.tick - 1, new, latency))
    # The events of tick k count from tick k on, and no event comes at tick 0.
    assert spy.asked == [(29, 58), (30, 60), (30, 60), (30, 60)]
    ticks, totals, latencies = zip(*outputs, strict=True)
    assert ticks == (30, 40, 50, 60)
    # The first window brings all that came before; the next ones what came in their last slot.
    assert totals == ({"p1": 29, "p2": 58}, *({"p1": 10, "p2": 20},) * 3)
    assert latencies == pytest.approx((15.0, 15.5, 15.5, 15.5))


def test_an_empty_window_sends_nothing() -> None:
    query = chain(
        Producer("in", RecordedTimes((0.5, 25.5))),
        WindowedOperator("w", window=10),
        Consumer("out"),
    )
    twin = steps(Scenario((query,), WORKER, 61, tick=1), 61)
    assert twin.outputs[2].cardinality == 2
    assert twin.outputs[2].totals == {"in": 2}


def test_windows_that_end_between_two_looks_close_one_after_the_other() -> None:
    query = chain(Producer("in", Uniform(10)), WindowedOperator("w", window=1), Consumer("out"))
    # A tick of 4 s: three of the four windows that end in it are empty.
    twin = steps(Scenario((query,), WORKER, 40, tick=4), 10)
    assert twin.outputs[2].cardinality == 8
    assert twin.outputs[2].totals == {"in": 320}


def test_totals_of_windows_without_output_go_with_the_next_output() -> None:
    @dataclass(frozen=True)
    class EverySecond:
        asked: list[float] = field(default_factory=list)

        def combine(self, counts: Sequence[float]) -> float:
            self.asked.append(counts[0])
            return float(len(self.asked) % 2 == 0)

    window = WindowedOperator("w", window=5, combination=EverySecond())
    query = chain(Producer("in", Uniform(10)), window, Consumer("out"))
    twin = steps(Scenario((query,), WORKER, 60, tick=1), 11)
    assert twin.outputs[2].cardinality == 1
    assert twin.outputs[2].totals == {"in": 90}


def test_backpressure_goes_back_to_the_producer() -> None:
    query = chain(
        Producer("in", Uniform(100)),
        OperatorModel("a"),
        OperatorModel("slow", 20_000),
        Consumer("out"),
    )
    twin = Twin(Scenario((query,), WORKER, 60, tick=1, queue=30))
    while twin.tick < 60:
        twin.step()
        assert waiting(twin, "a") <= 30
        assert waiting(twin, "slow") <= 30
    assert waiting(twin, "in") == pytest.approx(59 * 100 - 59 * 50 - 60, abs=30)
    assert twin.recording.dropped.sum() == 0


def test_a_producer_discards_what_it_has_no_room_for() -> None:
    query = chain(Producer("in", Uniform(100)), OperatorModel("slow", 20_000), Consumer("out"))
    twin = steps(Scenario((query,), WORKER, 60, tick=1, queue=150, overflow="discard"), 60)
    dropped = twin.recording.dropped
    assert waiting(twin, "in") <= 150
    assert dropped[0] == pytest.approx(
        59 * 100 - twin.outputs[2].cardinality - waiting(twin, "in") - waiting(twin, "slow")
    )
    assert dropped[0] > 0
    assert dropped[1:].tolist() == [0, 0]


def test_the_events_of_one_tick_are_not_too_many_for_a_producer() -> None:
    query = chain(Producer("in", Uniform(1000)), Consumer("out"))
    scenario = Scenario((query,), WORKER, 10, tick=1, queue=150, overflow="discard")
    result = simulate(scenario)
    assert result.recording.dropped.sum() == 0
    assert result.throughput("out") == pytest.approx(900)


def test_a_window_keeps_what_a_queue_has_no_room_for_and_does_nothing_meanwhile() -> None:
    window = WindowedOperator("w", window=5, combination=ConstantOutput(100))
    query = chain(
        Producer("in", Uniform(10)),
        window,
        OperatorModel("slow", 50_000, queue=10),
        Consumer("out"),
    )
    twin = steps(Scenario((query,), WORKER, 60, tick=1), 6)
    # Of the hundred, twenty are done in a second.
    assert (waiting(twin, "slow"), twin.kept(1), waiting(twin, "w")) == pytest.approx((10, 70, 10))
    for _ in range(3):
        twin.step()
    assert (waiting(twin, "slow"), twin.kept(1), waiting(twin, "w")) == pytest.approx((10, 10, 40))
    twin.step()
    assert (waiting(twin, "slow"), twin.kept(1), waiting(twin, "w")) == pytest.approx((0, 0, 0))


def test_a_batch_keeps_what_a_queue_has_no_room_for_and_the_next_one_waits() -> None:
    query = chain(
        Producer("in", Uniform(100)),
        BatchOperator("batch", interval=1.0, events_max=100),
        OperatorModel("slow", 20_000, queue=40),
        Consumer("out"),
    )
    twin = Twin(Scenario((query,), WORKER, 20, tick=1))
    while twin.tick < 20:
        twin.step()
        assert waiting(twin, "slow") <= 40
        assert twin.kept(1) <= 100
    # Fifty a second are done, so the operator that sends batches is behind by all the others.
    assert waiting(twin, "batch") > 500
    assert twin.outputs[3].cardinality == pytest.approx(50 * 19, rel=0.03)


def test_what_a_failed_machine_kept_is_lost() -> None:
    window = WindowedOperator("w", window=5, combination=ConstantOutput(100))
    query = chain(Producer("in", Uniform(10)), window, OperatorModel("slow", 50_000, queue=10),
                  Consumer("out"))  # fmt: skip
    machines = (VM("one", 1), VM("two", 1))
    placement = {"in": "one", "w": "one", "slow": "two", "out": "two"}
    scenario = Scenario((query,), machines, 20, placement, tick=1, changes=(FailVM(6, "one"),))
    twin = steps(scenario, 6)
    assert (twin.kept(1), waiting(twin, "slow")) == pytest.approx((70, 10))
    twin.step()
    assert (twin.kept(1), waiting(twin, "slow")) == pytest.approx((0, 0))
    assert twin.recording.dropped.tolist() == pytest.approx([10, 10, 70, 0])
    assert twin.outputs[3].cardinality == pytest.approx(30)


def two_machines(**arguments: Any) -> Scenario:
    query = chain(Producer("in", RecordedTimes((0.5,))), Consumer("out", 1e6))
    machines = (VM("one", 1), VM("two", 1))
    placement = {"in": "one", "out": "two"}
    return Scenario((query,), machines, 10, placement, tick=1, **arguments)


def test_a_set_that_arrives_splits_the_slice() -> None:
    scenario = two_machines(network=ConstantDelay(0.25), scheduling=SIMPLE)
    # The producer's slice is the whole second, so its set arrives a quarter into the next tick.
    twin = steps(scenario, 2)
    assert twin.outputs[1].cardinality == 0
    twin.step()
    assert twin.outputs[1].cardinality == pytest.approx(0.75)
    assert twin.outputs[1].latency == pytest.approx(2.0)


def test_an_idle_machine_waits_for_a_set_that_arrives_within_its_tick() -> None:
    twin = steps(two_machines(network=ConstantDelay(0.25)), 2)
    # It comes at 1.25 and costs a second, of which half is allocated: each has its turn again.
    assert not twin.arrivals[1]
    assert twin.outputs[1].cardinality == pytest.approx(0.75)
    twin.step()
    assert twin.outputs[1].cardinality == pytest.approx(1)
    assert twin.outputs[1].latency == pytest.approx(0.75 * 1.0 + 0.25 * 1.25)


def hops(count: int, delay: float, tick: float, backwards: bool = False) -> Scenario:
    """A chain with each vertex on a machine of its own."""
    names = [f"hop{n}" for n in range(count)]
    query = chain(Producer("in", Uniform(100)), *(OperatorModel(name) for name in names[1:]),
                  Consumer("out"))  # fmt: skip
    vertices = [vertex.id for vertex in query.vertices]
    machines = tuple(VM(f"vm{n}", 1000) for n in range(len(vertices)))
    placement = {vertex: f"vm{n}" for n, vertex in enumerate(vertices)}
    return Scenario((query,), machines[::-1] if backwards else machines, 20, placement,
                    network=ConstantDelay(delay), tick=tick)  # fmt: skip


@pytest.mark.parametrize("tick", [0.1, 0.05, 0.01])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("engine", ["fast", "twin"])
def test_a_hop_takes_as_long_as_the_network_says(count: int, tick: float, engine: Engine) -> None:
    scenario = hops(count, 0.001, tick)
    assert simulate(scenario, engine).latency("out") == pytest.approx(count * 0.001)


def test_a_set_for_a_machine_that_has_had_its_turn_waits_for_the_next_tick() -> None:
    assert simulate(hops(1, 0.001, 0.1, backwards=True)).latency("out") == pytest.approx(0.1)


def test_sets_on_one_link_wait_for_each_other() -> None:
    query = QueryModel(
        "q",
        (Producer("a", Uniform(1)), Producer("b", Uniform(2)), Consumer("out")),
        (Edge("a", "out"), Edge("b", "out")),
    )
    machines = (VM("one", 1), VM("two", 1))
    network = Bandwidth(latency=1.5, bits_per_second=1000, bytes_per_event=25)
    placement = {"a": "one", "b": "one", "out": "two"}
    twin = steps(Scenario((query,), machines, 10, placement, network=network, tick=1), 2)
    # 0.2 s for an event: the first set leaves the link at 1.2, the second, of two events, at 1.6.
    assert [arrival[0] for arrival in sorted(twin.arrivals[1])] == pytest.approx([2.7, 3.1])


def test_the_memory_of_a_failed_machine_is_lost_and_what_arrives_meanwhile() -> None:
    query = chain(Producer("in", Uniform(10)), OperatorModel("slow", 200_000), Consumer("out"))
    machines = (VM("one", 1), VM("two", 1))
    placement = {"in": "one", "slow": "two", "out": "two"}
    changes = (FailVM(5, "two"), RestartVM(8, "two"))
    scenario = Scenario((query,), machines, 20, placement, tick=1, changes=changes)
    twin = steps(scenario, 5)
    held = waiting(twin, "slow")
    assert held == pytest.approx(4 * 10 - 4 * 5)
    done = twin.outputs[2].cardinality
    twin.step()
    assert waiting(twin, "slow") == 0
    assert twin.outputs[2].cardinality == done
    for _ in range(3):
        twin.step()
    # Lost: what waited, and what arrived in the ticks 5, 6 and 7.
    assert twin.recording.dropped[1] == pytest.approx(held + 30)
    assert twin.outputs[2].cardinality == pytest.approx(done + 5)


def test_what_arrived_while_a_machine_was_down_is_lost_in_any_order_of_machines() -> None:
    query = chain(Producer("in", Uniform(10)), Consumer("out"))
    placement = {"in": "one", "out": "two"}
    changes = (FailVM(5, "two"), RestartVM(8, "two"))
    one, two = VM("one", 1), VM("two", 1)
    # A machine that runs first gets what it is sent a tick later: one more set waits when it fails.
    for machines, sets in (((one, two), 3), ((two, one), 4)):
        scenario = Scenario((query,), machines, 20, placement, tick=1, changes=changes)
        assert steps(scenario, 20).recording.dropped.tolist() == [0, 10 * sets]


def test_bounded_queues_have_room_again_after_a_failure() -> None:
    query = chain(Producer("in", Uniform(10)), OperatorModel("next", 1000), Consumer("out"))
    machines = (VM("one", 1), VM("two", 1))
    placement = {"in": "one", "next": "two", "out": "two"}
    changes = (FailVM(5, "two"), RestartVM(15, "two"))
    scenario = Scenario((query,), machines, 30, placement, tick=1, queue=25, changes=changes)
    twin = steps(scenario, 30)
    assert waiting(twin, "in") == 0
    # What was produced from second 4 to second 14 arrived at a machine that was down.
    assert twin.recording.dropped.tolist() == [0, 100, 0]
    assert twin.outputs[2].cardinality == pytest.approx(190)


def test_events_for_a_failed_machine_with_a_producer_are_dropped() -> None:
    changes = (FailVM(5, "worker"), RestartVM(8, "worker"))
    result = simulate(Scenario((line(),), WORKER, 10, tick=1, changes=changes))
    assert result.recording.dropped[0] == 300
    assert result.recording.events.tolist() == pytest.approx([600])


def test_a_vertex_moves_with_what_it_holds() -> None:
    query = chain(Producer("in", Uniform(10)), OperatorModel("slow", 200_000), Consumer("out"))
    machines = (VM("one", 1), VM("two", 10))
    placement = dict.fromkeys(["in", "slow", "out"], "one")
    changes = (MoveVertex(5, "slow", "two"), MoveVertex(5, "out", "two"))
    scenario = Scenario((query,), machines, 20, placement, tick=1, changes=changes)
    twin = steps(scenario, 5)
    held = waiting(twin, "slow") + waiting(twin, "in")
    done = twin.outputs[2].cardinality
    twin.step()
    assert twin.recording.dropped.sum() == 0
    assert twin.outputs[2].cardinality == pytest.approx(done + held, abs=11)
    assert steps(scenario, 20).outputs[2].cardinality == pytest.approx(190)


def test_what_is_on_its_way_follows_a_vertex_that_moves() -> None:
    scenario = two_machines(network=ConstantDelay(1.5), changes=(MoveVertex(2, "out", "one"),))
    assert len(steps(scenario, 2).arrivals[1]) == 1
    # It comes at 2.5, to where the vertex is by then.
    assert steps(scenario, 3).outputs[1].cardinality == pytest.approx(0.5)
    twin = steps(scenario, 4)
    assert twin.outputs[1].totals == pytest.approx({"in": 1.0})
    # Half of the time is allocated to each vertex, so the consumer runs in parts.
    assert twin.outputs[1].latency == pytest.approx(0.25 * 1.75 + 0.25 * 2.0 + 0.5 * 2.5)


def test_a_query_starts_and_stops() -> None:
    changes = (StartQuery(3, "q"), StopQuery(7, "q"))
    result = simulate(Scenario((line(),), WORKER, 10, tick=1, changes=changes))
    assert result.recording.events.tolist() == pytest.approx([300])
    # Four seconds, in the first of which nothing has been produced.
    assert result.throughput("out") == pytest.approx(75)


def test_what_a_stopped_query_holds_is_dropped() -> None:
    query = chain(Producer("in", Uniform(10)), WindowedOperator("w", window=10), Consumer("out"))
    changes = (StopQuery(5, "q"), StartQuery(7, "q"))
    twin = steps(Scenario((query,), WORKER, 30, tick=1, changes=changes), 18)
    assert twin.recording.dropped.tolist() == [0, 40, 0]
    # Windows count from the new start: the first one ends at 17.
    assert twin.outputs[2].totals == {"in": 90}


def test_an_edge_to_a_stopped_query_carries_nothing_and_holds_nothing_back() -> None:
    source, shared = Producer("in", Uniform(100)), OperatorModel("filter", 100)
    queries = (
        chain(source, shared, Consumer("a"), name="one"),
        chain(source, shared, Consumer("b", 1e6, queue=5), name="two"),
    )
    changes = (StopQuery(5, "two"),)
    result = simulate(Scenario(queries, WORKER, 20, tick=1, changes=changes))
    assert result.recording.vertex_processed[5:, 3].sum() == 0
    assert result.recording.events[0] == pytest.approx(1900)


def test_a_run_is_repeated_exactly() -> None:
    query = line(333, (700, 2900, 13), queue=40)
    scenario = Scenario((query,), WORKER, 10, queue=50, overflow="discard")
    assert_same(simulate(scenario).recording, simulate(scenario).recording)


@examples(15)
@given(scenarios())
def test_any_run_is_repeated_exactly(scenario: Scenario) -> None:
    assert_same(simulate(scenario).recording, simulate(scenario).recording)


def assert_same(one: Any, two: Any) -> None:
    for name in one.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
