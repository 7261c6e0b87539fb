"""Metrics of real queries on Spark, over HTTP and in the terminal, on classic and on Connect."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import outpace as op
from outpace.hosts.spark.metrics import Watch
from outpace.ingest.event_options import read_options

OUTPACE = Path(sysconfig.get_path("scripts")) / "outpace"
CONNECT = Path(__file__).resolve().parents[1] / "support" / "connect_metrics.py"
EVENTS = 3000
OPTIONS = {
    "rate": "1000",
    "keys": "5",
    "types": "abc",
    "limit": str(EVENTS),
    "paced": "false",
    "disorder": "500 ms",
    "start": "2024-01-02T09:30:00",
    "maxEventsPerTrigger": "1000",
}

PAIRS = (
    op.Query("pairs")
    .partition_by("key")
    .order_by("ts")
    .pattern("A -> B")
    .define(A="type = 'a'", B="type = 'b'")
    .measures(first="A.seq", last="B.seq")
    .within("1 s")
    .disorder(op.KSlack("500 ms"))
)


@pytest.fixture
def watched(streaming: SparkSession) -> Iterator[Watch]:
    with op.spark.metrics.watch(streaming, port=0) as made:
        yield made


def served(watched: Watch) -> dict[str, float]:
    """The values that Prometheus would read, by their name and labels."""
    with urllib.request.urlopen(f"{watched.url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    found = {}
    for line in lines:
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            known = re.sub(r'query="(?:[^"\\]|\\.)*",id="[^"]*",?', "", name)
            found[known.replace("{}", "")] = float(value)
    return found


def wait_for(watched: Watch, name: str, value: float) -> dict[str, float]:
    """Spark tells listeners a little later than it ends."""
    deadline = time.monotonic() + 120
    while (found := served(watched)).get(name) != value:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def test_a_real_query_is_counted_served_and_shown(
    spark: SparkSession, watched: Watch, tmp_path: Path
) -> None:
    stream = spark.readStream.format("outpace.events").options(**OPTIONS).load()
    folder = str(tmp_path / "pairs")
    query = (
        op.match(stream, PAIRS)
        .writeStream.format("parquet")
        .queryName('pairs of "a"')
        .option("path", folder)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(400)
    found = wait_for(watched, "outpace_query_running", 0)
    written = spark.read.parquet(folder).count()
    assert written > 100

    def stage(name: str, metric: str) -> float:
        return found[f'outpace_stage_{metric}{{operator="pairs",stage="{name}"}}']

    assert stage("pack", "events_total") == EVENTS
    # Events that fit no step go nowhere.
    used = stage("order + match", "events_total")
    types = read_options(OPTIONS).stream.source.table()["type"].to_pylist()
    assert used == types.count("a") + types.count("b")
    assert stage("order + match", "matches_total") == written
    assert stage("order + match", "late_total") == 0
    assert 0 < stage("order + match", "keys") <= 5
    # The last half second waits for what may still come before it.
    assert 250 <= stage("order + match", "buffered") <= 400
    assert stage("order + match", "released_total") == used - stage("order + match", "buffered")
    assert stage("order + match", "state_bytes") > 1000
    for part in ("restore", "step", "save"):
        label = f'operator="pairs",stage="order + match",part="{part}"'
        assert found[f"outpace_stage_seconds_total{{{label}}}"] > 0
    assert found["outpace_batches_total"] >= 3
    assert found['outpace_source_rows_total{source="0"}'] == EVENTS
    assert found['outpace_source_behind_events{source="0"}'] == 0
    assert found['outpace_store_rows{store="0"}'] >= 1
    assert found['outpace_phase_seconds_total{phase="addBatch"}'] > 0

    shown = subprocess.run(
        [OUTPACE, "top", "--once", "--url", watched.url],
        capture_output=True,
        text=True,
        env=os.environ | {"TERM": "dumb", "COLUMNS": "150"},
        timeout=120,
        check=True,
    ).stdout
    assert shown.startswith('pairs of "a"  ended  batch ')
    assert re.search(r"order \+ match +0 +0 +0", shown)
    assert "addBatch" in shown


def test_a_query_that_fails_is_counted_and_explained(
    spark: SparkSession, watched: Watch, tmp_path: Path
) -> None:
    stream = spark.readStream.format("outpace.events").options(limit=10, paced="false").load()
    query = (
        stream.selectExpr("assert_true(seq < 5, 'too many')")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(120)
    found = wait_for(watched, "outpace_query_failures_total", 1)
    assert found["outpace_query_running"] == 0
    (told,) = watched.values()["queries"]
    assert "too many" in told["error"]
    assert told["name"] == str(query.id)


def test_a_closed_watch_hears_nothing(spark: SparkSession, tmp_path: Path) -> None:
    watched = op.spark.metrics.watch(spark, port=0)
    watched.close()
    stream = spark.readStream.format("outpace.events").options(limit=10, paced="false").load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination(120)
    assert watched.text() == ""


@pytest.mark.soak
def test_a_connect_session_is_watched(java: None, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, CONNECT, tmp_path],
        capture_output=True,
        text=True,
        timeout=500,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = json.loads((tmp_path / "answered.json").read_text(encoding="utf-8"))["text"]
    total = (
        r'outpace_stage_events_total\{query="dips",id="[^"]+",operator="dips",stage="pack"\} 300'
    )
    assert re.search(total, text)
    assert re.search(r'outpace_stage_buffered\{[^}]*stage="pack"\} 299', text)
    assert re.search(r'outpace_query_running\{query="dips",id="[^"]+"\} 1', text)
