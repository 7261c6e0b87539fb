"""Metrics: totals now, and samples of any run in bounded memory."""

from __future__ import annotations

import pytest

from outpace.hosts.processes.metrics import Metrics


def values(metrics: Metrics, part: str, metric: str) -> list[tuple[float, float]]:
    table = metrics.over_time(part, metric)
    return list(zip(table["seconds"].to_pylist(), table["value"].to_pylist(), strict=True))


def test_rates_are_those_since_the_sample_before() -> None:
    metrics = Metrics.of(["a"], 2)
    for second, total in ((1, 10), (2, 40), (4, 40)):
        metrics.instances[1].events = total
        metrics.sample(float(second))
    found = metrics.over_time("instance", "rate").to_pylist()
    assert [row["value"] for row in found if row["name"] == "1"] == [10.0, 30.0, 0.0]
    assert [row["value"] for row in found if row["name"] == "0"] == [0.0, 0.0, 0.0]


def test_the_wait_of_a_source_is_what_waits_divided_by_the_rate() -> None:
    metrics = Metrics.of(["a"], 1)
    for second, total, buffered in ((1, 10, 5), (2, 50, 20), (3, 50, 20)):
        metrics.sources["a"].events, metrics.sources["a"].buffered = total, buffered
        metrics.sample(float(second))
    # Nothing came in the last second, so nobody knows how long what waits will.
    assert values(metrics, "source", "wait") == [(1.0, 0.5), (2.0, 0.5)]


def test_a_long_run_keeps_a_bounded_number_of_samples() -> None:
    metrics = Metrics.of([], 1)
    metrics._most = 16
    for step in range(1, 2000):
        metrics.operator.events = 10 * step
        if metrics.due(step * 0.1):
            metrics.sample(step * 0.1)
    rates = values(metrics, "operator", "rate")
    assert 8 <= len(rates) <= 16
    assert all(rate == pytest.approx(100.0) for _, rate in rates)
    assert rates[-1][0] > 150


def test_the_table_has_all_parts() -> None:
    metrics = Metrics.of(["a", "b"], 2)
    metrics.operator.events, metrics.operator.sent = 10, 15
    metrics.sample(1.0)
    rows = metrics.table.to_pylist()
    parts = {(row["part"], row["name"]) for row in rows}
    assert parts == {
        ("source", "a"),
        ("source", "b"),
        ("instance", "0"),
        ("instance", "1"),
        ("operator", ""),
    }
    assert values(metrics, "operator", "duplication") == [(1.0, 1.5)]
    assert {row["metric"] for row in rows if row["part"] == "instance"} >= {
        "rate",
        "waiting",
        "open_windows",
        "state_bytes",
    }


def test_a_run_that_has_not_begun_has_no_samples() -> None:
    assert Metrics.of(["a"], 1).table.num_rows == 0
