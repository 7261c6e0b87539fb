"""`outpace top`: what a program serves is shown, once or live, and its absence is said clearly."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from support.stage_reports import observed
from support.terminal import read_to_end, read_until
from typer.testing import CliRunner

import outpace as op
from outpace.cli import top as top_module
from outpace.cli.main import app
from outpace.cli.top_view import view
from outpace.engine.codec.cell import COUNTERS
from outpace.hosts.spark.metrics_account import Account
from outpace.hosts.spark.metrics_server import MetricsServer

OUTPACE = Path(sysconfig.get_path("scripts")) / "outpace"


def account(batches: int = 3) -> Account:
    made = Account()
    for batch in range(batches):
        matched = {"events": 1500, "matches": 12, "state_bytes": 3 << 20, "late": 4}
        matched |= {"step_us": 200_000, "buffered": 77}
        reports = {"pack": [{"events": 1500}], "order + match": [matched]}
        told = observed(reports, ["pack", "order + match"])
        latest = {"offset": 9000, "oldest": 0, "now": 1_500_000 * (batch + 1)}
        made.progressed(
            {
                "id": "q1",
                "runId": "r1",
                "name": "dips",
                "timestamp": f"2024-01-02T09:30:{batch:02}.000Z",
                "batchId": batch,
                "batchDuration": 800,
                "durationMs": {"addBatch": 600, "walCommit": 150, "triggerExecution": 800},
                "sources": [
                    {"numInputRows": 5, "endOffset": {"offset": 500}, "latestOffset": latest}
                ],
                "observedMetrics": {"outpace:dips:1": told},
            }
        )
    return made


def values(known: Account) -> dict[str, Any]:
    samples = [
        {"name": sample.name, "labels": dict(sample.labels), "value": sample.value}
        for sample in known.samples()
    ]
    return {"version": 1, "queries": known.queries(), "samples": samples}


def shown(known: Account, *, ascii_only: bool = False, width: int = 140) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(view([values(known)], ascii_only=ascii_only))
    return captured.get()


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    known = account()
    made = MetricsServer(str, lambda: values(known), "127.0.0.1", 0)
    yield made
    made.close()


def test_a_query_is_shown_with_its_delay_its_time_and_its_stages() -> None:
    lines = shown(account()).splitlines()
    assert lines[0].startswith("dips  running  batch 2 in 800 ms  in 1.50K events/s  out 12 match")
    assert lines[1].startswith("  behind 8.50K events, 4.5 s  ")
    assert lines[1].rstrip().endswith("█")
    assert re.match(r"  batch +█{24} +addBatch 600 ms +walCommit 150 ms", lines[2])
    assert re.match(r"  stages +█{24} +order \+ match: step 200 ms", lines[3])
    assert lines[5].split() == ["stage", "in/s", "out/s", "late", "buffer", "state"]
    (stage,) = [line for line in lines if line.startswith("order + match ")]
    assert stage.split()[3:] == ["1.50K", "12", "12", "77", "3.00M"]


def test_a_reorderer_is_shown_with_its_slack_and_how_long_events_waited() -> None:
    known = account()
    counters = {"events": 1500, "released": 1000, "slack": 250, "waited": 120_000}
    told = observed({"order + match": [counters | {"longest_wait": 400}]}, ["order + match"])
    known.progressed(
        {"id": "q1", "runId": "r1", "name": "dips", "timestamp": "2024-01-02T09:30:09Z",
         "batchId": 9, "batchDuration": 1, "observedMetrics": {"outpace:dips:1": told}}
    )  # fmt: skip
    lines = shown(known).splitlines()
    (titles,) = [line for line in lines if line.startswith("stage ")]
    (stage,) = [line for line in lines if line.startswith("order + match ")]
    values = dict(zip(titles.split()[1:], stage.split()[3:], strict=True))
    assert (values["slack"], values["latency"], values["longest"]) == ("250", "120", "400")


def test_events_that_went_on_without_a_silent_source_are_shown() -> None:
    known = account()
    counters = {"events": 9, "silent": 1, "unawaited": 7, "unawaited_first": 3}
    told = observed({"order + match": [counters | {"unawaited_last": 5}]}, ["order + match"])
    known.progressed(
        {"id": "q1", "runId": "r1", "name": "dips", "timestamp": "2024-01-02T09:30:09Z",
         "batchId": 9, "batchDuration": 1, "observedMetrics": {"outpace:dips:1": told}}
    )  # fmt: skip
    lines = shown(known).splitlines()
    (titles,) = [line for line in lines if line.startswith("stage ")]
    (stage,) = [line for line in lines if line.startswith("order + match ")]
    values = dict(zip(titles.split()[1:], stage.split()[3:], strict=True))
    assert (values["silent"], values["unawaited"]) == ("1", "7")


def test_eighty_columns_are_enough() -> None:
    known = account()
    many = dict.fromkeys(COUNTERS, 123_456)
    told = observed({"order + split": [many]}, ["pack", "order + split"])
    known.progressed(
        {"id": "q1", "runId": "r1", "name": "dips", "timestamp": "2024-01-02T09:30:09Z",
         "batchId": 9, "batchDuration": 1, "observedMetrics": {"outpace:dips:1": told}}
    )  # fmt: skip
    for ascii_only in (True, False):
        assert "…" not in shown(known, ascii_only=ascii_only, width=80)


def test_ascii_is_enough() -> None:
    text = shown(account(), ascii_only=True)
    assert text.isascii()
    assert re.search("a{19}w{5} +addBatch 600 ms", text)


def test_what_ended_and_what_failed_is_said() -> None:
    known = account()
    known.ended("q1", None)
    assert shown(known).startswith("dips  ended")
    known.ended("q1", "the disk is full\n  at line 7")
    lines = shown(known).splitlines()
    assert lines[0].startswith("dips  failed")
    assert lines[1].strip() == "the disk is full"


def test_a_query_that_has_only_started_is_shown() -> None:
    known = Account()
    known.started("q1", "r1", None)
    assert "q1  running" in shown(known)
    assert "the source does not tell" in shown(known)
    assert "no query has been started yet" in shown(Account())


def test_several_operators_are_named() -> None:
    known = account()
    told = observed({"pack": [{"events": 1}]}, ["pack"])
    more = {"outpace:dips:1": told, "outpace:falls:2": told}
    known.progressed(
        {"id": "q1", "runId": "r1", "name": "dips", "timestamp": "2024-01-02T09:30:09Z",
         "batchId": 9, "batchDuration": 1, "observedMetrics": more}
    )  # fmt: skip
    assert re.search(r"operator +stage", shown(known))
    assert re.search(r"falls +pack", shown(known))


def test_once_shows_and_ends(server: MetricsServer) -> None:
    for url in (server.url, f"{server.url}/", f"{server.url}/metrics.json"):
        done = CliRunner().invoke(app, ["top", "--once", "--url", url])
        assert done.exit_code == 0
        assert "dips  running" in done.stdout


def test_json_is_what_is_served(server: MetricsServer) -> None:
    done = CliRunner().invoke(app, ["top", "--once", "--json", "--url", server.url])
    (told,) = json.loads(done.stdout)
    assert told["queries"][0]["name"] == "dips"
    assert told == json.loads(json.dumps(values(account())))


def test_nothing_that_listens_is_exit_code_2(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top_module, "PORTS", 0)
    done = CliRunner().invoke(app, ["top", "--once"])
    assert done.exit_code == 2
    assert "call op.spark.metrics.watch(spark) or run.watch() in the program" in done.stderr
    free = MetricsServer(str, dict, "127.0.0.1", 0)
    free.close()
    done = CliRunner().invoke(app, ["top", "--url", free.url])
    assert done.exit_code == 2
    assert f"nothing serves metrics at {free.url}" in done.stderr
    assert "refused" in done.stderr


@pytest.mark.parametrize("served", [[], {"queries": []}, "x"])
def test_other_servers_are_told_apart(served: object) -> None:
    other = MetricsServer(str, lambda: served, "127.0.0.1", 0)
    done = CliRunner().invoke(app, ["top", "--once", "--url", other.url])
    other.close()
    assert done.exit_code == 2
    assert "are no metrics of streaming queries" in done.stderr


@pytest.mark.parametrize("url", ["localhost:9468", "file:///etc/passwd", "ftp://127.0.0.1"])
def test_only_web_addresses_are_asked(url: str) -> None:
    done = CliRunner().invoke(app, ["top", "--once", "--url", url])
    assert done.exit_code == 2
    assert f"'{url}' is no address" in done.stderr


def test_without_a_url_all_that_listen_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known = account()
    made = MetricsServer(str, lambda: values(known), "127.0.0.1", None)
    done = CliRunner().invoke(app, ["top", "--once"])
    made.close()
    assert done.exit_code == 0
    assert "dips  running" in done.stdout


@pytest.mark.parametrize("ends", ["interrupt", "server"])
def test_on_a_terminal_it_goes_on_until_it_is_told_to_end(ends: str) -> None:
    known = account()
    server = MetricsServer(str, lambda: values(known), "127.0.0.1", 0)
    terminal, inside = pty.openpty()
    # A shell may start jobs that ignore interrupts; a terminal's do not.
    running = subprocess.Popen(
        ["env", "--default-signal=INT", OUTPACE, "top", "--every", "0.1", "--url", server.url],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
        start_new_session=True,
    )
    os.close(inside)
    said = read_until(terminal, "batch 2")
    known.progressed(
        {"id": "q1", "runId": "r1", "name": "dips", "timestamp": "2024-01-02T09:30:09Z",
         "batchId": 3, "batchDuration": 700}
    )  # fmt: skip
    said += read_until(terminal, "batch 3")
    if ends == "interrupt":
        running.send_signal(signal.SIGINT)
    else:
        server.close()
    read_to_end(terminal)
    assert running.wait(60) == 0
    if ends == "interrupt":
        server.close()
    assert "Traceback" not in said


def test_operators_of_a_run_are_shown_with_what_is_retained() -> None:
    query = op.Query("pairs").order_by("ts").pattern("A -> B").define(A="type = 'a'")
    query = query.measures(a="A.seq", b="B.seq").over(op.windows.count(50), numbered=True)
    log = op.recover.RetainedLog()
    for _ in range(2):
        source = op.sources.simple_events(2000, types="abc")
        with (
            op.run(query, source, batch_rows=500, recovery="replay", log=log) as run,
            run.watch(port=0) as watch,
        ):
            next(run)
            next(run)
            done = CliRunner().invoke(app, ["top", "--once", "--url", watch.url])
    assert done.exit_code == 0, done.stderr
    titles, row = done.stdout.splitlines()[-2:]
    told = dict(zip(titles.replace(" s ", "_s ").split(), row.split(), strict=True))
    assert done.stdout.startswith("pairs  running")
    assert told["operator"] == "pairs"
    assert told["retained"] != "0"
    assert told["replays"] == "1"


@pytest.mark.parametrize("queries", [1, 2])
def test_a_run_is_shown_with_its_slack_and_how_long_events_waited(
    queries: int, tmp_path: Path
) -> None:
    each = [
        op.Query(f"q{number}").order_by("ts").pattern("A").disorder(op.KSlack(40 * number))
        for number in range(1, queries + 1)
    ]
    ticks = pa.table({"ts": [*range(1, 201), 3, *range(201, 401)]})
    pq.write_table(ticks, tmp_path / "ticks.parquet")
    source = op.sources.parquet(tmp_path / "ticks.parquet", time="ts")
    query = each[0].instances(2) if queries == 1 else op.group(*each)
    with op.run(query, source, batch_rows=100) as run, run.watch(port=0) as watch:
        assert sum(1 for _ in run)
        done = CliRunner().invoke(app, ["top", "--once", "--url", watch.url])
        served = watch.text()
    assert done.exit_code == 0, done.stderr
    titles, row = done.stdout.splitlines()[-2:]
    told = dict(zip(titles.split(), row.replace("q1, q2", "q1").split(), strict=True))
    assert told["slack"] == str(40 * queries)
    assert told["late"] == "1"
    assert float(told["latency"]) > 0
    assert float(told["longest"]) >= 40
    for name in ("late_total", "slack", "latency", "longest_wait", "buffered"):
        assert f'outpace_operator_{name}{{query="' in served


def test_operators_of_a_graph_are_shown_and_what_its_sources_retain() -> None:
    pairs = op.Query("pairs").order_by("ts").pattern("A B").measures(at="B.ts")
    later = op.Query("later").order_by("at").pattern("A B").measures(at="B.at")
    ticks = op.sources.simple_events(1000, id="ticks")
    with (
        op.graph(ticks, {"pairs": pairs, "later": later.of("pairs")}).run() as run,
        run.watch(port=0) as watch,
    ):
        assert run.tables()["later"].num_rows == 250
        done = CliRunner().invoke(app, ["top", "--once", "--url", watch.url])
        served = watch.text()
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["operator", "sources", "pairs", "later"]
    assert 'outpace_operator_events_total{query="pairs, later"' in served
