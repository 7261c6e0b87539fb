"""Results: percentiles within their error, warm-up, tables and histories."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.simulated import chain

from outpace.errors import ScenarioError
from outpace.simulate import (
    VM,
    Consumer,
    Edge,
    FailVM,
    OperatorModel,
    Producer,
    QueryModel,
    RecordedTimes,
    Scenario,
    StartQuery,
    Uniform,
    simulate,
)
from outpace.simulate.metrics import BINS, histogram_percentile, latency_bin, latency_bins

QUERY = chain(Producer("in", Uniform(100), 1000), OperatorModel("filter", 4000), Consumer("out"))
WORKER = (VM("worker", 1),)


@given(
    st.lists(st.tuples(st.floats(2e-6, 8e4), st.floats(0.1, 100)), min_size=1, max_size=50),
    st.sampled_from([1.0, 50.0, 95.0, 99.0, 100.0]),
)
def test_a_percentile_is_within_two_percent(
    sets: list[tuple[float, float]], percentile: float
) -> None:
    histogram = np.zeros(BINS)
    for latency, events in sets:
        histogram[latency_bin(latency)] += events
    found = histogram_percentile(histogram, percentile)
    # The histogram adds in another order, so either neighbour is right where the sums are equal.
    wanted = sum(events for _, events in sets) * percentile / 100
    below, exact = 0.0, []
    for latency, events in sorted(sets):
        if below <= wanted * (1 + 1e-9) and below + events >= wanted * (1 - 1e-9):
            exact.append(latency)
        below += events
    assert any(found == pytest.approx(latency, rel=0.02) for latency in exact)


def test_latencies_beyond_the_histogram_are_in_its_last_bins() -> None:
    assert latency_bin(0.0) == latency_bin(9e-7) == 0
    assert latency_bin(86_400 * 1.05) == latency_bin(1e12) == BINS - 1
    assert math.isnan(histogram_percentile(np.zeros(BINS), 50))


def test_a_spread_that_is_a_rounding_error_is_none() -> None:
    assert latency_bins(1.5, 1e-17) == [(latency_bin(1.5), 1.0)]


def test_the_warm_up_does_not_count() -> None:
    cold = simulate(Scenario((QUERY,), WORKER, 20, tick=1))
    warm = simulate(Scenario((QUERY,), WORKER, 20, tick=1, warm_up=10))
    assert cold.throughput("out") == pytest.approx(95)
    assert warm.throughput("out") == pytest.approx(100)
    assert warm.recording.events.tolist() == pytest.approx([1000])
    assert warm.recording.consumer_events.sum() == pytest.approx(1900)


def test_a_table_has_a_row_for_each_consumer_query_vertex_and_machine() -> None:
    other = QueryModel(
        "r",
        (*QUERY.vertices[:2], Consumer("a"), Consumer("b")),
        (QUERY.edges[0], Edge("filter", "a", 0.5), Edge("filter", "b", 0.25)),
    )
    machines = (VM("worker", 1), VM("idle", 1))
    placement = {v.id: "worker" for query in (QUERY, other) for v in query.vertices}
    result = simulate(Scenario((QUERY, other), machines, 20, placement, tick=1, warm_up=10))
    consumers = result.consumers().to_pydict()
    assert consumers["consumer"] == ["out", "a", "b"]
    assert consumers["events"] == pytest.approx([1000, 500, 250])
    # A fifth of the tick is allocated to each: the operator needs two fifths, so it runs twice.
    assert consumers["latency"] == pytest.approx([0.4] * 3)
    assert consumers["p50"] == pytest.approx([0.3] * 3, rel=0.02)
    assert consumers["p99"] == pytest.approx([0.5] * 3, rel=0.02)
    assert consumers["throughput"] == pytest.approx([100] * 3)
    queries = result.queries().to_pydict()
    assert queries["query"] == ["q", "r"]
    assert queries["events"] == pytest.approx([1000, 750])
    assert queries["throughput"] == pytest.approx([100, 100])
    vertices = result.vertices().to_pydict()
    assert vertices["vertex"] == ["in", "filter", "out", "a", "b"]
    assert vertices["kind"] == ["producer", "operator", "consumer", "consumer", "consumer"]
    assert vertices["utilisation"] == pytest.approx([0.1, 0.4, 0, 0, 0])
    assert vertices["queue_max"] == [0.0] * 5
    machine_rows = result.vms().to_pydict()
    assert machine_rows["utilisation"][0] == pytest.approx(0.5)
    assert math.isnan(machine_rows["utilisation"][1])


def test_a_query_without_events_has_no_latency() -> None:
    query = chain(Producer("in", RecordedTimes(())), Consumer("out"))
    result = simulate(Scenario((query,), WORKER, 20, tick=1))
    assert math.isnan(result.latency("out"))
    assert math.isnan(result.percentile("out", 99))
    assert result.throughput("out") == 0.0


def test_a_query_that_never_ran_has_no_throughput() -> None:
    scenario = Scenario((QUERY,), WORKER, 20, tick=1, changes=(StartQuery(99, "q"),))
    assert math.isnan(simulate(scenario).throughput("out"))


def test_histories_have_a_row_for_each_step() -> None:
    scenario = Scenario((QUERY,), WORKER, 5, tick=0.5, sample=2, changes=(FailVM(2, "worker"),))
    result = simulate(scenario)
    assert result.times.tolist() == [2.0, 4.0, 5.0]
    consumers = result.consumer_history().to_pydict()
    assert consumers["time"] == [2.0, 4.0, 5.0]
    assert consumers["events"] == pytest.approx([150, 0, 0])
    assert consumers["throughput"] == pytest.approx([75, 0, 0])
    # A third of the tick is allocated to the operator, which needs two fifths.
    assert consumers["latency"][0] == pytest.approx((5 * (0.05 + 0.5 / 3) + 0.25) / 6)
    assert math.isnan(consumers["latency"][1])
    vertices = result.vertex_history().to_pydict()
    assert vertices["vertex"] == ["in", "filter", "out"] * 3
    assert vertices["processed"] == pytest.approx([150, 150, 150] + [0] * 6)
    assert vertices["dropped"] == pytest.approx([0, 0, 0, 200, 0, 0, 100, 0, 0])
    machines = result.vm_history().to_pydict()
    assert machines["utilisation"][0] == pytest.approx(0.375)
    assert math.isnan(machines["utilisation"][1])
    assert sum(vertices["utilisation"][:3]) == pytest.approx(0.375)
    assert all(math.isnan(used) for used in vertices["utilisation"][3:])


def test_an_overloaded_operator_shows_in_its_queue() -> None:
    query = chain(Producer("in", Uniform(100)), OperatorModel("slow", 20_000), Consumer("out"))
    result = simulate(Scenario((query,), WORKER, 20, tick=1))
    vertices = result.vertices().to_pydict()
    assert vertices["queue_max"] == pytest.approx([0, 19 * 50, 0])
    assert vertices["queue_mean"] == pytest.approx([0, 19 * 25, 0])
    assert vertices["utilisation"][1] == pytest.approx(0.95)
    assert result.percentile("out", 99) > result.percentile("out", 50)


def test_an_unknown_consumer_or_engine_is_an_error() -> None:
    result = simulate(Scenario((QUERY,), WORKER, 2, tick=1))
    with pytest.raises(ScenarioError, match="unknown consumer 'ouf'") as caught:
        result.latency("ouf")
    assert caught.value.hint == "did you mean 'out'?"
    with pytest.raises(ScenarioError, match="unknown engine 'steam'"):
        simulate(Scenario((QUERY,), WORKER, 2, tick=1), engine="steam")  # type: ignore[arg-type]  # a name that there is not
