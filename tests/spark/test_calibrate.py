"""`outpace simulate calibrate` and `validate` with real runs, small ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support import streamed

from outpace.cli.simulate_measure import setting_of
from outpace.hosts.spark.session import ROCKSDB
from outpace.simulate import read_scenario, simulate
from outpace.simulate.calibration.calibrated_scenario import CONSUMER, MeasuredRun, read_calibrated
from outpace.simulate.calibration.compare import Comparison
from outpace.simulate.calibration.live_stream import SETTINGS, live_stream

pytestmark = pytest.mark.soak


def outpace(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, which has no session yet."""
    command = [sys.executable, "-c", "from outpace.cli.main import app; app()", "simulate"]
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_a_query_is_calibrated_and_its_scenario_validated(java: None, tmp_path: Path) -> None:
    events = tmp_path / "ticks.csv"
    rows = "".join(f"{n},{n % 3}\n" for n in range(900))
    events.write_text("ts,kind\n" + rows)
    query = tmp_path / "rises.sql"
    query.write_text(
        "MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(ts) AS start PATTERN (A B) "
        "DEFINE A AS kind = 0, B AS kind = 1)"
    )
    path = tmp_path / "rises.toml"
    done = outpace(
        *("calibrate", query, "--from", events, "--out", path, "--quick"),
        *("--trigger", "500 ms", "--max-events", 2000),
    )
    assert done.returncode == 0, done.stderr
    for word in ("latency", "maximum throughput", "difference", "written", "rises.toml"):
        assert word in done.stdout
    text = path.read_text()
    assert re.search(r"# Selectivity: [\d,]+ matches of [\d,]+ events; 0 late, 0 invalid\.", text)
    scenario, measured = read_calibrated(path)
    assert (measured.query, measured.events, measured.trigger) == ("rises.sql", "ticks.csv", 0.5)
    operator = scenario.vertices()["match"]
    assert operator.instructions > 0
    # Every third event ends a match.
    assert scenario.queries[0].edges[1].selectivity == pytest.approx(1 / 3, rel=0.05)
    assert simulate(read_scenario(path)).throughput(CONSUMER) > 0

    page = tmp_path / "page.html"
    checked = outpace("validate", path, "--quick", "--json", "--html", page)
    assert checked.returncode in (0, 1), checked.stderr
    found = json.loads(checked.stdout)
    assert found["within"] is (checked.returncode == 0)
    assert [row["overload"] for row in found["rows"]][-1] is True
    for row in found["rows"]:
        assert set(Comparison.__dataclass_fields__) <= set(row)
        assert row["latency"] > 0
        assert row["throughput"] > 0
        assert row["predicted_latency"] > 0
        assert row["predicted_throughput"] > 0
    assert "plotly" in page.read_text()


def test_no_batch_of_a_long_measurement_is_forgotten(
    spark: SparkSession,
) -> None:
    # Spark deletes what its sink knows of batches: after ten minutes, here at once.
    hurried = {
        "spark.sql.streaming.fileSink.log.cleanupDelay": "1ms",
        "spark.sql.streaming.fileSink.log.compactInterval": "2",
        "spark.sql.streaming.minBatchesToRetain": "2",
        streamed.PROVIDER: ROCKSDB,
    }
    session = spark.newSession()
    for name, value in (SETTINGS | hurried).items():
        session.conf.set(name, value)
    setting = setting_of(MeasuredRun("w1", trigger=0.1, events_max=1000), Path())
    with live_stream(session, setting) as live:
        live.at_full_speed(8)
        assert sum(batch.events for batch in live.batches()) == 8000
