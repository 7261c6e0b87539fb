"""The scenario of a stream that ran, from its metrics, its progress and its checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outpace.cli.main import app
from outpace.errors import DataError
from outpace.simulate import read_scenario
from outpace.simulate.calibration.running import RunningStream, read_running
from outpace.simulate.model import BatchOperator

#: What a batch takes, and an event of it.
SETUP, EVENT = 0.4, 2e-5
EVENTS = [10_000, 20_000, 15_000, 40_000, 5_000, 30_000, 25_000, 12_000]
BEGIN, INTERVAL = 1_700_000_000.0, 5.0


def seconds_of(events: int) -> float:
    return SETUP + EVENT * events


def metrics(path: Path) -> Path:
    history = []
    before = BEGIN - INTERVAL + seconds_of(0)
    for number, events in enumerate(EVENTS):
        end = BEGIN + INTERVAL * number + seconds_of(events)
        since = end - before if number else seconds_of(events)
        history.append([end, seconds_of(events), events / since, 0.1 * events / since, 0.0])
        before = end
    other = {"name": "other", "history": []}
    path.write_text(json.dumps({"queries": [{"name": "dips", "history": history}, other]}))
    return path


def progress(path: Path, matches: int = -1) -> Path:
    lines = []
    for number, events in enumerate(EVENTS):
        lines.append(
            {
                "id": "7",
                "runId": "1",
                "name": "dips",
                "batchId": number,
                "timestamp": f"2024-01-02T09:30:{5 * number:02}.000Z",
                "batchDuration": round(1000 * seconds_of(events)),
                "sources": [{"numInputRows": events}],
                "sink": {"numOutputRows": events // 10 if matches < 0 else matches},
            }
        )
    # Spark says a batch again that a listener hears of twice; one without events counts nothing.
    lines.append(lines[-1])
    lines.append({**lines[0], "batchId": 99, "sources": [{"numInputRows": 0}]})
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def checkpoint(folder: Path) -> Path:
    total = 0
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    for number, events in enumerate([1, *EVENTS]):
        total += events
        began = BEGIN + INTERVAL * number
        about = json.dumps({"batchTimestampMs": int(1000 * began), "conf": {}})
        offset = json.dumps({"ticks": {"0": total - 7, "1": 7}})
        (folder / "offsets" / str(number)).write_text(f"v1\n{about}\n{offset}")
        commit = folder / "commits" / str(number)
        commit.write_text('v1\n{"nextBatchWatermarkMs":0}')
        ended = began + seconds_of(events)
        os.utime(commit, (ended, ended))
    return folder


def check(found: RunningStream, matches: float | None) -> None:
    assert [batch.events for batch in found.batches] == EVENTS
    assert found.interval == pytest.approx(INTERVAL, abs=0.01)
    costs = found.costs()
    assert costs.setup == pytest.approx(SETUP, rel=0.02)
    assert costs.event == pytest.approx(EVENT, rel=0.02)
    assert found.matches == (None if matches is None else pytest.approx(matches))


def test_all_that_a_stream_leaves_behind_says_the_same(tmp_path: Path) -> None:
    check(read_running(metrics(tmp_path / "metrics.json"), "dips"), sum(EVENTS) / 10)
    check(read_running(progress(tmp_path / "progress.json")), sum(EVENTS) / 10)
    check(read_running(checkpoint(tmp_path / "checkpoint")), None)


def test_the_scenario_does_what_the_stream_did(tmp_path: Path) -> None:
    out = tmp_path / "scenario.toml"
    arguments = ["simulate", "calibrate", "--from-metrics", str(progress(tmp_path / "p.json"))]
    done = CliRunner().invoke(app, [*arguments, "--out", str(out), "--mips", "1000"])
    assert done.exit_code == 0, done.output
    scenario = read_scenario(out)
    (match,) = (v for v in scenario.vertices().values() if isinstance(v, BatchOperator))
    assert match.interval == INTERVAL
    assert match.setup == pytest.approx(SETUP * 1e9, rel=0.02)
    assert match.instructions == pytest.approx(EVENT * 2 * 1e9, rel=0.02)
    assert scenario.queries[0].edges[-1].selectivity == pytest.approx(0.1)
    printed = CliRunner().invoke(app, [*arguments, "--out", str(out), "--json"])
    assert json.loads(printed.stdout)["setup"] == pytest.approx(SETUP, rel=0.02)


def test_batches_right_after_each_other_have_no_interval(tmp_path: Path) -> None:
    path = progress(tmp_path / "p.json")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["batchDuration"] = 5000
    path.write_text("\n".join(map(json.dumps, lines)))
    assert read_running(path).interval == 0.0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "this is no JSON"),
        ('{"queries": []}', "has 0 streams"),
        ('{"queries": [{"name": "a", "history": [[1]]}]}', "neither metrics nor progress"),
        ('[{"batchId": 1}]', "neither metrics nor progress"),
        ('{"queries": [{"name": "a", "history": [[9, 1, 5, 1, 0]]}]}', "which are too few"),
        ("[3]", "a progress has a batchId"),
    ],
)
def test_what_is_no_stream_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        read_running(path)
    assert said in str(caught.value)
    done = CliRunner().invoke(app, ["simulate", "calibrate", "--from-metrics", str(path)])
    assert done.exit_code == 2


def test_several_streams_need_a_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 2 streams"):
        read_running(metrics(tmp_path / "metrics.json"))


def test_a_checkpoint_whose_offsets_count_files_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "checkpoint")
    about: Any = json.dumps({"batchTimestampMs": 1})
    (folder / "offsets" / "1").write_text(f'v1\n{about}\n{{"logOffset": 3}}')
    with pytest.raises(DataError, match="does not count events"):
        read_running(folder)
    with pytest.raises(DataError, match="no checkpoint of a stream"):
        read_running(tmp_path)
