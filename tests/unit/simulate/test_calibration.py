"""Calibration without Spark: estimates of exact data, endless events, files, comparisons."""

from __future__ import annotations

import datetime
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import ScenarioError
from outpace.simulate import BatchOperator, Scenario, Uniform, read_scenario, simulate
from outpace.simulate.calibration.calibrated_scenario import (
    CONSUMER,
    MeasuredRun,
    batch_operator,
    calibrated,
    calibrated_text,
    read_calibrated,
)
from outpace.simulate.calibration.compare import Comparison, Reading, capacity_of, compare, predict
from outpace.simulate.calibration.estimates import (
    Costs,
    Estimate,
    TimedBatch,
    estimate_costs,
    selectivity_of,
)
from outpace.simulate.calibration.feed import Endless
from outpace.simulate.calibration.live_stream import RateStretch, latency_of, steady, throughput_of

TRIGGER = 2.0


def costs(setup: float = 0.6, event: float = 4e-6) -> Costs:
    return Costs(setup, Estimate(event, True), Estimate(event, True), 1 / event)


def scenario(setup: float = 0.6, event: float = 4e-6, most: int = 1_000_000) -> Scenario:
    measured = MeasuredRun("w2k", trigger=TRIGGER, events_max=most)
    return calibrated(measured, costs(setup, event), 0.01, mips=1000, rate=50_000)


def took(events: int, setup: float, event: float, noise: float = 0.0) -> TimedBatch:
    return TimedBatch(events, 100.0, 99.5, 100.0 + setup + events * event + noise, 1.0)


# Estimates


@given(setup=st.floats(0.01, 5), event=st.floats(1e-8, 1e-3))
def test_both_methods_find_the_costs_that_batches_had(setup: float, event: float) -> None:
    paced = {rate: [took(rate, setup, event)] * 3 for rate in (1_000, 30_000, 90_000)}
    found = estimate_costs(paced, [took(400_000, setup, event)] * 3)
    assert found.setup == pytest.approx(setup, rel=1e-6, abs=1e-9)
    assert found.latency.seconds == pytest.approx(event, rel=1e-5)
    assert found.throughput.seconds == pytest.approx(event, rel=1e-5)
    assert found.event == found.latency.seconds
    assert found.difference == pytest.approx(0, abs=1e-4)


def test_a_slow_batch_among_quick_ones_does_not_count() -> None:
    paced = {
        rate: [took(rate, 0.5, 1e-6), took(rate, 0.5, 1e-6, noise=3.0), took(rate, 0.5, 1e-6)]
        for rate in (10_000, 90_000)
    }
    found = estimate_costs(paced, [took(400_000, 0.5, 1e-6)])
    assert found.setup == pytest.approx(0.5)
    assert found.latency.seconds == pytest.approx(1e-6)


def test_the_costs_say_how_far_batches_are_from_them() -> None:
    noises = (-0.05, 0.0, 0.05)
    paced = {
        rate: [took(rate, 0.5, 1e-6, noise=noise) for noise in noises] for rate in (10_000, 90_000)
    }
    found = estimate_costs(paced, [took(400_000, 0.5, 1e-6)])
    assert found.error == pytest.approx(0.05 / 0.59)


def test_where_noise_hides_the_events_the_whole_time_counts_and_is_marked() -> None:
    paced = {10_000: [took(10_000, 0.9, 0.0)], 90_000: [took(90_000, 0.7, 0.0)]}
    found = estimate_costs(paced, [took(400_000, 0.6, 2e-6)])
    assert found.setup == pytest.approx(0.7)
    assert not found.latency.exact
    assert found.latency.seconds == pytest.approx(0.7 / 90_000)
    assert found.throughput.exact
    assert found.event == found.throughput.seconds == pytest.approx(0.7 / 400_000)
    other = estimate_costs(
        {10_000: [took(10_000, 0.5, 1e-6)], 90_000: [took(90_000, 0.5, 1e-6)]},
        [took(100_000, 0.4, 0.0)],
    )
    assert not other.throughput.exact
    assert other.event == other.latency.seconds > 0


def test_the_estimates_of_simulated_batches_are_what_the_simulator_was_given() -> None:
    given = scenario()
    paced = {rate: simulated_batches(given, rate) for rate in (20_000, 80_000, 150_000)}
    found = estimate_costs(paced, simulated_batches(scenario(most=300_000), 400_000))
    assert found.setup == pytest.approx(0.6, abs=0.02)
    assert found.latency.seconds == pytest.approx(4e-6, rel=0.02)
    assert found.throughput.seconds == pytest.approx(4e-6, rel=0.03)


def simulated_batches(given: Scenario, rate: float) -> list[TimedBatch]:
    """The batches of a simulation, seen from outside as those of a real run are."""
    operator = given.vertices()["match"]
    assert isinstance(operator, BatchOperator)
    (query,) = given.queries
    producer = replace(query.vertices[0], generator=Uniform(rate))
    changed = replace(query, vertices=(producer, *query.vertices[1:]))
    recording = simulate(
        replace(given, queries=(changed,), sample=given.tick, duration=40.0, warm_up=0.0)
    ).recording
    batches = []
    for step in np.flatnonzero(recording.consumer_events[:, 0]):
        committed = (step + 0.5) * given.tick
        # A batch that takes less than the interval began with it.
        started = math.floor(committed / TRIGGER) * TRIGGER
        events = round(recording.consumer_totals[step, 0])
        batches.append(TimedBatch(events, started, started, committed, 1.0))
    return batches[2:]


def test_too_little_to_estimate_from_is_an_error() -> None:
    with pytest.raises(ScenarioError, match="too few batches"):
        estimate_costs({1.0: [took(10, 0.1, 1e-6)]}, [took(10, 0.1, 1e-6)])
    with pytest.raises(ScenarioError, match="too few batches"):
        estimate_costs({1.0: [took(10, 0.1, 1e-6)], 2.0: [took(20, 0.1, 1e-6)]}, [])


def test_a_query_that_finds_nothing_has_no_selectivity() -> None:
    assert selectivity_of(3, 12) == 0.25
    with pytest.raises(ScenarioError, match="found nothing in 1,000 events"):
        selectivity_of(0, 1000)


# Events and batches


@given(
    times=st.lists(st.integers(-5, 50), min_size=1, max_size=8).map(sorted),
    takes=st.lists(st.integers(1, 5), max_size=12),
)
def test_endless_events_are_the_same_again_at_later_times(
    times: list[int], takes: list[int]
) -> None:
    table = pa.table({"n": range(len(times)), "at": pa.array(times, pa.int64())})
    endless = Endless(table, "at")
    parts = [endless.take(count) for count in takes]
    assert all(1 <= part.num_rows <= count for part, count in zip(parts, takes, strict=True))
    numbers = [n for part in parts for n in part["n"].to_pylist()]
    assert numbers == [n % len(times) for n in range(len(numbers))]
    came = [at for part in parts for at in part["at"].to_pylist()]
    assert came[: len(times)] == times[: len(came)]
    assert came == sorted(came)
    assert all(came[n] < came[n + len(times)] for n in range(len(came) - len(times)))


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.int32(), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.date32()]
)
def test_endless_events_keep_the_type_of_their_times(kind: pa.DataType) -> None:
    day = datetime.date(2024, 1, 2)
    values = [1, 2] if pa.types.is_integer(kind) else [day, day + datetime.timedelta(days=1)]
    table = pa.table({"ts": pa.array(values, pa.date32() if values[0] == day else kind).cast(kind)})
    endless = Endless(table, "ts")
    taken = pa.concat_tables([endless.take(2), endless.take(2)])
    assert taken.schema == table.schema
    assert taken["ts"].to_pylist() == sorted(set(taken["ts"].to_pylist()))


def test_only_batches_whose_events_all_came_at_a_rate_belong_to_it() -> None:
    batches = [TimedBatch(10, cut, cut, cut + 0.5, 1.0) for cut in (1.0, 3.0, 5.0, 7.0, 9.0)]
    found = steady(batches, RateStretch(5.0, began=2.0, ended=8.0))
    assert [batch.cut for batch in found] == [5.0, 7.0]
    assert throughput_of(found) == 5.0


def test_a_batch_for_which_events_stopped_coming_does_not_count() -> None:
    whole = [TimedBatch(10, cut, cut, cut + 0.5, 1.0) for cut in (1.0, 3.0, 5.0, 7.0)]
    last = TimedBatch(4, started=9.0, cut=7.9, committed=9.5, latency=1.0)
    found = steady([*whole, last], RateStretch(5.0, began=0.0, ended=8.0))
    assert throughput_of(found) == 5.0


def test_the_latency_of_batches_is_that_of_all_their_events() -> None:
    batches = [TimedBatch(10, 0.0, 0.0, 1.0, 1.0), TimedBatch(30, 2.0, 2.0, 3.0, 2.0)]
    assert latency_of(batches) == 1.75


# Files


def test_a_written_scenario_says_what_ran_and_is_read_by_all(tmp_path: Path) -> None:
    measured = MeasuredRun("w2k", trigger=TRIGGER, events_max=1_000_000)
    path = tmp_path / "w2k.toml"
    path.write_text(calibrated_text(scenario(), measured, ["measured by hand", ""]))
    assert path.read_text().startswith("# measured by hand\n#\n")
    assert read_calibrated(path) == (scenario(), measured)
    assert read_scenario(path) == scenario()
    assert simulate(read_scenario(path)).throughput(CONSUMER) == pytest.approx(50_000, rel=0.01)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("[calibration]", "[changes]"), None),
        (('workload = "w2k"', ""), "does not say what ran"),
        (('workload = "w2k"', 'workload = "w2k"\nquery = "q.sql"'), "does not say what ran"),
        (('workload = "w2k"', 'workload = "w2k"\nfast = 1'), "does not say what ran"),
        (("cores = 2", 'cores = "2"'), r"'cores' in \[calibration\] is not a int"),
        (('kind = "batch"', 'kind = "operator"'), None),
    ],
)
def test_what_is_wrong_with_a_calibrated_file_names_it(
    tmp_path: Path, changed: tuple[str, str], said: str | None
) -> None:
    measured = MeasuredRun("w2k", trigger=TRIGGER)
    path = tmp_path / "w2k.toml"
    text = calibrated_text(scenario(), measured, [])
    assert changed[0] in text
    path.write_text(text.replace(*changed))
    with pytest.raises(ScenarioError, match=said) as error:
        read_calibrated(path)
    assert "w2k.toml" in str(error.value)


def test_a_scenario_that_nobody_measured_cannot_be_validated(tmp_path: Path) -> None:
    path = tmp_path / "alarms.toml"
    path.write_text(
        calibrated_text(scenario(), MeasuredRun("w2k"), []).partition("[calibration]")[0]
    )
    with pytest.raises(ScenarioError, match=r"no table \[calibration\]") as error:
        read_calibrated(path)
    assert "alarms.toml" in str(error.value)


def test_costs_do_not_depend_on_what_a_machine_is_said_to_do() -> None:
    slow, quick = (
        calibrated(MeasuredRun("w2k"), costs(), 0.01, mips=mips, rate=1000) for mips in (100, 9000)
    )
    assert predict(slow, 90_000).latency == pytest.approx(predict(quick, 90_000).latency)


# Comparisons


@pytest.mark.parametrize("rate", [10_000, 100_000, 170_000])
def test_below_overload_the_prediction_is_what_batches_take(rate: float) -> None:
    found = predict(scenario(), rate)
    expected = TRIGGER / 2 + 0.6 + rate * TRIGGER * 4e-6
    assert found.latency == pytest.approx(expected, abs=TRIGGER / 100)
    assert found.throughput == pytest.approx(rate, rel=1e-3)


def test_beyond_the_knee_the_prediction_is_what_the_largest_batches_do() -> None:
    given = scenario(most=200_000)
    in_time, greatest = capacity_of(given, batch_operator(given, Path("w2k.toml")))
    assert in_time == pytest.approx(greatest)
    assert greatest == pytest.approx(100_000)
    assert predict(given, 1.3 * greatest).throughput == pytest.approx(greatest, rel=0.01)
    late, later = (predict(given, 1.3 * greatest, seconds).latency for seconds in (20, 60))
    assert late < later
    costly = scenario(event=20e-6, most=200_000)
    in_time, greatest = capacity_of(costly, batch_operator(costly, Path("w2k.toml")))
    assert in_time == pytest.approx(1.4 / 20e-6 / TRIGGER)
    assert greatest == pytest.approx(200_000 / 4.6)
    assert predict(costly, 1.3 * greatest).throughput == pytest.approx(greatest, rel=0.05)


def test_the_medians_of_runs_are_compared() -> None:
    readings = [Reading(50_000, latency, 50_000 + latency) for latency in (1.5, 9.0, 2.0)]
    row = compare(scenario(), False, readings)
    assert (row.latency, row.latency_spread, row.runs) == (2.0, 7.5, 3)
    assert row.latency_error == pytest.approx((1 + 0.6 + 0.4) / 2.0 - 1, abs=0.02)
    assert row.within


@pytest.mark.parametrize(
    ("latency", "throughput", "overload", "within"),
    [
        (1.0, 1000, False, True),
        (1.07, 1000, False, True),
        (1.08, 1000, False, False),
        (0.92, 1000, False, False),
        (1.0, 1025, False, False),
        (3.0, 1000, True, True),
        (1.0, 950, True, False),
    ],
)
def test_bounds(latency: float, throughput: float, overload: bool, within: bool) -> None:
    row = Comparison(1000, overload, latency, 1.0, 0.0, throughput, 1000, 0.0, 1)
    assert row.within is within
