"""A bounded number of the kills of `make chaos`: every row is in the sink once, whatever died."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.burst import TIMES, run_burst
from chaos.harness import run_scenario
from chaos.scenario import Kill, Scenario, Sink, Victim


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("quantile", marks=pytest.mark.soak),
        pytest.param("group", marks=pytest.mark.soak),
        pytest.param("join", marks=pytest.mark.soak),
        # What it has taken back is not there, and all that is is confirmed.
        "early group",
    ],
)
def test_kills_of_a_worker_and_of_all_leave_every_row_once_in_files(
    java: None, tmp_path: Path, query: str
) -> None:
    kills = (Kill(Victim.WORKER, 2, 0.4), Kill(Victim.MACHINE, 1, 0.7))
    scenario = Scenario(1, query, Sink.FILES, "rows", kills)
    outcome = run_scenario(scenario, tmp_path, None)
    assert outcome.ok, outcome
    assert outcome.rows
    assert any(kill.running for kill in outcome.killed)
    # With a worker only its tasks die, and run again: the program was started again once.
    assert outcome.restarts == 1


# With two executors one goes on, and every start takes a Java more.
@pytest.mark.parametrize(
    ("query", "executors"),
    [
        ("keyed", 1),
        pytest.param("windowed", 2, marks=pytest.mark.soak),
        pytest.param("group", 1, marks=pytest.mark.soak),
        pytest.param("join", 1, marks=pytest.mark.soak),
        pytest.param("speculative", 1, marks=pytest.mark.soak),
        pytest.param("early windows", 1, marks=pytest.mark.soak),
    ],
)
def test_kills_of_an_executor_and_of_the_driver_leave_every_row_once_in_postgres(
    java: None, postgres: str, tmp_path: Path, query: str, executors: int
) -> None:
    # The first comes in the second batch: there is a state by then.
    kills = (Kill(Victim.EXECUTOR, 2, 0.5), Kill(Victim.DRIVER, 1, 0.8))
    form = "rows" if query == "join" else "blocks"
    scenario = Scenario(2, query, Sink.POSTGRES, form, kills, executors)
    outcome = run_scenario(scenario, tmp_path, postgres)
    assert outcome.ok, outcome
    assert outcome.rows
    assert any(kill.running for kill in outcome.killed)


@pytest.mark.soak
def test_a_burst_is_taken_batch_by_batch_in_the_memory_of_a_batch(
    java: None, tmp_path: Path
) -> None:
    seen = run_burst(tmp_path, batches=2, events_per_batch=20_000)
    assert seen.failure is None, seen
    assert (seen.lost, seen.doubled) == (0, 0)
    assert max(seen.batches) <= seen.events_per_batch
    assert len(seen.batches) >= 2 + 2 * TIMES
    # The delay is seen while the burst is worked off, and is gone after it.
    assert seen.burst.behind_events > TIMES * seen.events_per_batch
    assert seen.burst.behind_seconds > seen.steady.behind_seconds
    assert seen.behind_at_the_end == 0
    assert seen.burst.python_bytes < 1.3 * seen.steady.python_bytes, seen
