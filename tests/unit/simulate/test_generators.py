"""Generators: whole numbers that never fall, the same for a time whatever else is asked."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import ScenarioError
from outpace.simulate import Bursty, Increasing, Poisson, RecordedTimes, Uniform
from outpace.simulate.generators import Generator

POSITIVE = st.floats(0.1, 500)
ALL = st.one_of(
    st.builds(Uniform, POSITIVE),
    st.builds(Increasing, POSITIVE, POSITIVE, POSITIVE),
    st.builds(Poisson, POSITIVE, st.integers(0, 99)),
    st.builds(Bursty, POSITIVE, POSITIVE, POSITIVE, POSITIVE),
    st.builds(lambda times: RecordedTimes(tuple(sorted(times))), st.lists(st.floats(0, 100))),
)
TIMES = st.lists(st.floats(0, 120), min_size=1, max_size=20)


@given(ALL, TIMES)
def test_totals_start_at_0_and_never_fall(generator: Generator, times: list[float]) -> None:
    totals = generator.totals(np.array([0.0, *sorted(times)]))
    assert totals.dtype == np.int64
    assert totals[0] == 0
    assert (np.diff(totals) >= 0).all()


@given(ALL, TIMES)
def test_a_total_does_not_depend_on_what_else_is_asked(
    generator: Generator, times: list[float]
) -> None:
    together = generator.totals(np.array(times)).tolist()
    alone = [int(generator.totals(np.array([time]))[0]) for time in times]
    assert together == alone


@pytest.mark.parametrize("rate", [10, 100, 12_345])
def test_a_uniform_rate_gives_the_same_in_every_tick(rate: int) -> None:
    ticks = np.arange(0, 1000) * 0.1
    totals = Uniform(rate * 10).totals(ticks)
    assert set(np.diff(totals).tolist()) == {rate}


def test_an_increasing_rate_rises_evenly_to_its_maximum() -> None:
    totals = Increasing(maximum=1000, over=10, start=200).totals(np.arange(0.0, 21.0))
    seconds = np.diff(totals)
    assert seconds[:10].tolist() == [240 + 80 * second for second in range(10)]
    assert set(seconds[10:].tolist()) == {1000}


def test_poisson_counts_have_mean_and_variance_of_the_rate_by_tick() -> None:
    counts = np.diff(Poisson(rate=2000, seed=1).totals(np.arange(0, 20_001) * 0.1))
    assert counts.mean() == pytest.approx(200, rel=0.01)
    assert counts.var() == pytest.approx(200, rel=0.05)


@pytest.mark.parametrize("mean", [0.001, 0.5, 1.0, 9.9, 10.0, 40.0])
def test_each_poisson_count_is_as_frequent_as_its_chance(mean: float) -> None:
    draws = 200_000
    totals = Poisson(rate=100 * mean, seed=3).totals(np.arange(draws + 1) * 0.01)
    counts = np.bincount(np.diff(totals))
    for number, found in enumerate(counts.tolist()):
        chance = math.exp(number * math.log(mean) - mean - math.lgamma(number + 1))
        error = math.sqrt(draws * chance * (1 - chance))
        assert abs(found - draws * chance) < 5 * error + 3


@pytest.mark.parametrize("mean", [0.5, 20.0])
def test_a_longer_poisson_run_begins_with_the_shorter_one(mean: float) -> None:
    times = np.arange(1000) * 0.1
    generator = Poisson(rate=100 * mean, seed=4)
    assert (generator.totals(times)[:300] == generator.totals(times[:300])).all()


def test_poisson_counts_differ_by_seed_alone() -> None:
    times = np.arange(0, 100) * 0.1
    assert (Poisson(50, 1).totals(times) == Poisson(50, 1).totals(times)).all()
    assert (Poisson(50, 1).totals(times) != Poisson(50, 2).totals(times)).any()


def test_bursts_come_in_every_cycle() -> None:
    totals = Bursty(rate=100, on=0.5, off=1.5, quiet=10).totals(np.array([0.5, 2.0, 2.5, 4.0]))
    assert totals.tolist() == [50, 65, 115, 130]


def test_a_trace_is_read_from_lines(tmp_path: Path) -> None:
    path = tmp_path / "times.txt"
    path.write_text("0.5\n1.25\n1.25\n")
    assert RecordedTimes.read(path) == RecordedTimes((0.5, 1.25, 1.25))


@pytest.mark.parametrize(
    ("text", "message"),
    [("1.0\nsoon\n", "not a time"), ("2.0\n1.0\n", "must not fall"), ("-1\n", "from 0 on")],
)
def test_a_trace_that_is_none_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "times.txt"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=message):
        RecordedTimes.read(path)


def test_a_missing_trace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        RecordedTimes.read(tmp_path / "none.txt")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Uniform(-1),
        lambda: Uniform(float("nan")),
        lambda: Increasing(10, over=0),
        lambda: Poisson(10, seed=-1),
        lambda: Poisson(10, seed=1, grain=0),
        lambda: Bursty(10, on=0, off=1),
    ],
)
def test_impossible_numbers_are_errors(make: object) -> None:
    with pytest.raises(ScenarioError, match="a generator's"):
        make()  # type: ignore[operator]  # a parameter of the test


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    ("generator", "time", "message"),
    [
        (Uniform(1e12), 1e20, "more than 1e.18 events"),
        (Increasing(1e12, over=1e30), 1e29, "more than 1e.18 events"),
        (Bursty(1e12, on=1, off=1), 1e20, "more than 1e.18 events"),
        (Poisson(1e12, seed=1, grain=1e9), 1e10, "more than 1e.18 events"),
        (Poisson(1, seed=1, grain=1e-9), 1.0, "draws more than 100,000,000 numbers"),
    ],
)
def test_more_events_than_can_be_counted_are_refused(
    generator: Generator, time: float, message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        generator.totals(np.array([time]))
