"""The study `skip`: what is replayed and retained, and that replays give what they must."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outpace.cli.main import app
from outpace.engine.message import EventsArrived
from outpace.engine.operator import emit_of
from outpace.engine.recover.recoverable import RecoverableOperator
from outpace.studies import skip
from outpace.studies.skip import (
    FIGURES,
    NOTICES,
    OFF,
    ON,
    QUICK,
    SLIDES,
    WHOLE,
    failed,
    random_events,
    skip_study,
)


@pytest.mark.parametrize("slide", SLIDES)
@pytest.mark.parametrize("interval", [8, 128])
def test_skipping_replays_fewer_events(slide: int, interval: int) -> None:
    failure = failed(slide, interval, random_events(24_000, 3))
    replayed = {way: len(backup.numbers) for way, backup in failure.backups.items()}
    largest = {way: backup.largest for way, backup in failure.backups.items()}
    assert replayed[NOTICES] <= replayed[ON] < replayed[OFF]
    assert largest[NOTICES] <= largest[ON] < largest[OFF]
    assert replayed[NOTICES] < 0.5 * replayed[OFF]
    assert replayed[ON] < (0.43 if slide == 50 else 0.57) * replayed[OFF] or interval > 8


@pytest.mark.parametrize("way", [OFF, ON, NOTICES])
def test_the_rest_is_that_of_a_run_without_a_failure(way: str) -> None:
    events = random_events(12_000, 5)
    whole = RecoverableOperator(skip.sequence_spec(50))
    first, second = (events.slice(at, 6000) for at in (0, 6000))
    emit_of(whole.step(EventsArrived(first)))
    expected = emit_of(whole.step(EventsArrived(second))).matches
    _, again = failed(50, 16, events).recover(way)
    found = emit_of(again.step(EventsArrived(second))).matches
    assert found.table.equals(expected.table)
    assert found.window.tolist() == expected.window.tolist()


def test_quick_has_the_settings_of_the_paper() -> None:
    assert (QUICK.seeds, WHOLE.seeds, WHOLE.events) == (5, 50, 1_000_000)
    assert QUICK.intervals == WHOLE.intervals == (8, 16, 32, 64, 128)


def test_the_command_writes_rows_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(QUICK, events=12_000, seeds=1, intervals=(8,), single=20)
    monkeypatch.setattr(skip, "QUICK", small)
    done = CliRunner().invoke(app, ["study", "skip", "--quick", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "skip.json").read_text())
    assert {row["figure"] for row in rows} == {figure.name for figure in FIGURES}
    assert "windows that slide by 800" in (tmp_path / "skip.html").read_text()
    assert len(skip_study(small).experiments) == 4
