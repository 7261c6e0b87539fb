"""Metrics of streaming queries: what is counted, how it is written, and who may read it."""

from __future__ import annotations

import json
import math
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stage_reports import observed

from outpace.engine.codec.cell import COUNTERS
from outpace.errors import OutpaceError
from outpace.hosts.spark import metrics_account, metrics_names, metrics_server
from outpace.hosts.spark.metrics_account import Account
from outpace.hosts.spark.metrics_names import METRICS, Sort
from outpace.hosts.spark.metrics_server import CLIENTS_MAX, PORT, PORTS, MetricsServer
from outpace.hosts.spark.metrics_text import Sample, prometheus_text

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "monitor-a-stream.md"

WINDOWED = ("pack", "order + split", "match", "merge")


def report(stages: tuple[str, ...] = WINDOWED, **counters: int) -> dict[str, list[list[int]]]:
    """What is observed when two instances of every stage report, all of the same."""
    half = {name: value // 2 for name, value in counters.items()}
    rest = {name: value - half[name] for name, value in counters.items()}
    return observed({stage: [half, rest] for stage in reversed(stages)}, stages)


def progress(batch: int, *, second: float | None = None, **more: Any) -> dict[str, Any]:
    """A progress as Spark writes it: one batch a second, each of which takes half of one."""
    at = batch if second is None else second
    return {
        "id": "11111111-aaaa",
        "runId": "run 1",
        "name": "dips",
        "timestamp": f"2024-01-02T09:30:{at:06.3f}Z",
        "batchId": batch,
        "batchDuration": 500,
        "durationMs": {"addBatch": 300, "walCommit": 100, "triggerExecution": 500},
        "stateOperators": [],
        "sources": [{"numInputRows": 2, "startOffset": None, "endOffset": 7, "latestOffset": None}],
        "sink": {"numOutputRows": 1},
        **more,
    }


def values(account: Account, **labels: str) -> dict[str, float]:
    """The values that have these labels, by the metric's name."""
    return {
        sample.name: sample.value
        for sample in account.samples()
        if labels.items() <= sample.labels.items()
    }


def test_every_counter_of_a_stage_becomes_a_metric() -> None:
    taken = {
        *metrics_names.STAGE_TOTALS,
        *metrics_names.STAGE_HELD,
        *metrics_names.STAGE_TIMES,
        *metrics_names.STAGE_MATCH_WAITS,
        *metrics_names.STAGE_UNAWAITED,
    }
    assert taken | {"early", "checkpoint_us"} == set(COUNTERS)


def test_every_metric_has_samples_and_no_sample_is_without_a_metric() -> None:
    account = Account()
    offset = {"offset": 10, "arrival": 5}
    latest = {"offset": 30, "arrival": 9, "oldest": 1, "bytes": 80, "lost": 2, "now": 1_000_001}
    source = {"numInputRows": 2, "endOffset": offset, "latestOffset": latest}
    store = {"numRowsTotal": 4, "memoryUsedBytes": 9, "commitTimeMs": 3, "allUpdatesTimeMs": 8}
    counted = report(
        events=6,
        released=3,
        unawaited=2,
        unawaited_first=10,
        unawaited_last=30,
        step_us=5,
        tentative=4,
        tentative_wait=10,
        confirmed=2,
        confirmed_wait=40,
        retracted=1,
        early=750_000,
        checkpoint_us=2_500_000,
    )
    told = {"outpace:dips:1": counted}
    account.progressed(progress(0, sources=[source], stateOperators=[store], observedMetrics=told))
    by_name = {sample.name: sample for sample in account.samples()}
    # Operators of runs are counted by these, not by Spark.
    told_here = [metric for metric in METRICS if metric not in metrics_names.OPERATOR.values()]
    assert set(by_name) == {metric.name for metric in told_here}
    for metric in told_here:
        assert tuple(by_name[metric.name].labels) == ("query", "id", *metric.labels)
    # Each of two instances has half of a number, and of this one the greatest counts.
    assert by_name["outpace_stage_early"].value == 0.375
    assert by_name["outpace_stage_checkpoint_seconds_total"].value == 2.5
    assert by_name["outpace_stage_tentative_latency"].value == 2.5
    assert by_name["outpace_stage_confirmed_latency"].value == 20
    assert by_name["outpace_stage_retracted_share"].value == 0.25
    assert by_name["outpace_stage_unawaited_first"].value == 5
    assert by_name["outpace_stage_unawaited_last"].value == 15


def test_names_follow_the_rules_of_prometheus() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"outpace_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.sort is Sort.COUNTER)
        assert metric.help.endswith(".")
        assert "\n" not in metric.help


def test_times_of_events_that_went_on_without_a_source_stay_until_others_do() -> None:
    account = Account()
    without = {"unawaited": 3, "unawaited_first": -7, "unawaited_last": -2}
    for batch, each in enumerate([[{}], [{}, without], [{"events": 5}]]):
        told = observed({"order + match": each}, ["pack", "order + match"])
        account.progressed(progress(batch, observedMetrics={"outpace:dips:1": told}))
        found = values(account, stage="order + match")
        times = [found.get(f"outpace_stage_unawaited_{one}") for one in ("first", "last")]
        assert times == ([-7, -2] if batch else [None, None])


def test_totals_add_up_and_what_is_held_is_the_last() -> None:
    account = Account()
    for batch, (events, buffered) in enumerate([(10, 5), (20, 7), (30, 2)]):
        told = {"outpace:dips:1": report(events=events, buffered=buffered, step_us=1_500_000)}
        account.progressed(progress(batch, observedMetrics=told))
    found = values(account, operator="dips", stage="match")
    assert found["outpace_stage_events_total"] == 60
    assert found["outpace_stage_buffered"] == 2
    # 30 events between the ends of two batches, which are a second apart.
    assert found["outpace_stage_events_per_second"] == pytest.approx(30)
    spent = values(account, stage="match", part="step")
    assert spent["outpace_stage_seconds_total"] == 4.5
    assert spent["outpace_stage_batch_seconds"] == 1.5
    whole = values(account)
    assert whole["outpace_batches_total"] == 3
    assert whole["outpace_batch_number"] == 2
    assert whole["outpace_sink_rows_total"] == 3
    assert values(account, source="0")["outpace_source_rows_total"] == 6


def test_the_wait_for_their_turn_follows_from_how_many_wait_and_the_slack_is_the_greatest() -> None:
    account = Account()
    for batch in range(2):
        told = {"outpace:dips:1": report(released=40, buffered=20, slack=7, waited=80)}
        account.progressed(progress(batch, observedMetrics=told))
    found = values(account, operator="dips", stage="order + split")
    assert found["outpace_stage_wait_seconds"] == pytest.approx(0.5)
    assert found["outpace_stage_slack"] == 4
    assert found["outpace_stage_latency"] == 2


def test_the_first_batch_has_only_its_own_time() -> None:
    account = Account()
    account.progressed(progress(0, observedMetrics={"outpace:dips:1": report(events=10)}))
    assert values(account, stage="pack")["outpace_stage_events_per_second"] == pytest.approx(20)


def test_a_batch_without_a_report_changes_no_stage() -> None:
    account = Account()
    account.progressed(progress(0, observedMetrics={"outpace:dips:1": report(events=4, keys=3)}))
    for told in (
        {},
        {"outpace:dips:1": None},
        {"outpace:dips:1": {"pack > order + match": None}},
        {"outpace:dips:1": observed({}, WINDOWED)},
    ):
        account.progressed(progress(1, observedMetrics=told))
    account.progressed(progress(2))
    found = values(account, stage="match")
    assert found["outpace_stage_events_total"] == 4
    assert found["outpace_stage_keys"] == 3


def test_counters_go_on_over_restarts_but_time_between_runs_counts_for_nothing() -> None:
    account = Account()
    for run, second in (("run 1", 0.0), ("run 2", 50.0)):
        told = {"outpace:dips:1" if run == "run 1" else "outpace:dips:9": report(events=10)}
        account.progressed(progress(3, second=second, runId=run, observedMetrics=told))
        account.ended("11111111-aaaa", None if run == "run 2" else "boom")
    found = values(account)
    assert found["outpace_query_starts_total"] == 2
    assert found["outpace_query_failures_total"] == 1
    assert found["outpace_query_running"] == 0
    assert values(account, stage="pack", operator="dips")["outpace_stage_events_total"] == 20
    moments = account.queries()[0]["history"]
    assert [events for _, _, events, _, _ in moments] == [20.0, 20.0]
    assert account.queries()[0]["error"] is None


def test_counters_never_fall_whatever_is_told() -> None:
    account = Account()
    before: dict[tuple[str, str], float] = {}
    for batch in range(4):
        told = report(events=[5, -7, 0, 2][batch])
        sink = {"numOutputRows": [-1, 3, -1, 0][batch]}
        account.progressed(progress(batch, sink=sink, observedMetrics={"outpace:dips:1": told}))
        now = {
            (sample.name, json.dumps(dict(sample.labels))): sample.value
            for sample in account.samples()
            if sample.name.endswith("_total")
        }
        assert all(now[key] >= value for key, value in before.items())
        before = now


def test_operators_of_one_query_are_told_apart() -> None:
    account = Account()
    told = {
        "outpace:dips:10": report(("pack", "order + match"), events=3),
        "outpace:a:b:2": report(("pack", "order + match"), events=5),
        "outpace:dips:9": report(("pack", "order + match"), events=7),
        "mine": {"pack": [[0, *range(len(COUNTERS))]]},
        "outpaced:x:1": report(events=99),
    }
    account.progressed(progress(0, observedMetrics=told))
    taken = {
        sample.labels["operator"]: sample.value
        for sample in account.samples()
        if sample.name == "outpace_stage_events_total" and sample.labels["stage"] == "pack"
    }
    assert taken == {"a:b": 5, "dips": 7, "dips (2)": 3}


def test_an_event_that_goes_to_two_instances_counts_as_duplicated() -> None:
    account = Account()
    told = observed({"order + split": [{"released": 100}], "match": [{"events": 150}]}, WINDOWED)
    account.progressed(progress(0, observedMetrics={"outpace:dips:1": told}))
    assert values(account)["outpace_duplication"] == 1.5


@pytest.mark.parametrize(
    ("end", "latest", "expected"),
    [
        ({"offset": 5}, {"offset": 25, "oldest": 1_000_000, "now": 3_500_000}, (20, 2.5)),
        ('{"offset": 5}', '{"offset": 5, "oldest": 0, "now": 9}', (0, 0.0)),
        ({"t": {"0": 5, "1": 7}}, {"t": {"0": 15, "1": 7}}, (10, None)),
        ({"t": {"0": 5}}, {"t": {"0": 5, "1": 7}}, (0, None)),
        (3, 4, (None, None)),
        ("3", None, (None, None)),
        (None, "null", (None, None)),
        ("not JSON", "neither", (None, None)),
        ({"logOffset": 3}, {"logOffset": 4}, (None, None)),
    ],
)
def test_how_far_behind_a_source_is_comes_from_its_offsets(
    end: Any, latest: Any, expected: tuple[int | None, float | None]
) -> None:
    account = Account()
    source = {"numInputRows": 1, "endOffset": end, "latestOffset": latest}
    account.progressed(progress(0, sources=[source]))
    found = values(account, source="0")
    events = found.get("outpace_source_behind_events")
    assert (events, found.get("outpace_source_behind_seconds")) == expected


def test_an_idle_query_is_not_behind() -> None:
    account = Account()
    latest = {"offset": 30, "oldest": 1, "now": 1_000_001}
    source = {"numInputRows": 1, "endOffset": {"offset": 5}, "latestOffset": latest}
    told = {"outpace:dips:1": report(events=4, keys=2)}
    account.progressed(progress(0, sources=[source], observedMetrics=told))
    account.idled("11111111-aaaa")
    account.idled("unknown")
    assert values(account)["outpace_source_behind_seconds"] == 0
    found = values(account, stage="pack")
    assert found["outpace_stage_events_per_second"] == 0
    assert found["outpace_stage_events_total"] == 4
    assert found["outpace_stage_keys"] == 2


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_account, "QUERIES_MAX", 3)
    account = Account()
    for number in range(3):
        account.started(f"q{number}", "run", None)
    account.ended("q1", None)
    account.started("q3", "run", None)
    assert [query["id"] for query in account.queries()] == ["q0", "q2", "q3"]
    account.started("q4", "run", None)
    assert [query["id"] for query in account.queries()] == ["q2", "q3", "q4"]
    for batch in range(metrics_account.HISTORY + 5):
        account.progressed(progress(batch % 60) | {"id": "q4"})
    assert len(account.queries()[-1]["history"]) == metrics_account.HISTORY


@given(st.text(), st.floats(allow_nan=True, allow_infinity=True))
def test_any_label_and_value_can_be_read_back(label: str, value: float) -> None:
    text = prometheus_text([Sample("outpace_batches_total", {"query": label, "id": "x"}, value)])
    lines = text.split("\n")
    assert lines[0].startswith("# HELP outpace_batches_total ")
    assert lines[1] == "# TYPE outpace_batches_total counter"
    assert lines[3:] == [""]
    found = re.fullmatch(
        r'outpace_batches_total\{query="((?:[^"\\]|\\["\\n])*)",id="x"\} (\S+)', lines[2]
    )
    assert found is not None
    unescaped = re.sub(r"\\(.)", lambda part: {"n": "\n"}.get(part[1], part[1]), found[1])
    assert unescaped == label
    read = float(found[2])
    assert read == value or (math.isnan(read) and math.isnan(value))


def test_samples_of_a_metric_stand_together() -> None:
    account = Account()
    account.started("a", "run", None)
    account.started("b", "run", 'b"')
    lines = prometheus_text(account.samples()).splitlines()
    assert lines[:4] == [
        "# HELP outpace_query_running 1 while the query runs, else 0.",
        "# TYPE outpace_query_running gauge",
        'outpace_query_running{query="a",id="a"} 1',
        'outpace_query_running{query="b\\"",id="b"} 1',
    ]
    assert len([line for line in lines if line.startswith("# TYPE")]) == 3


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    made = MetricsServer(lambda: "x 1\n", lambda: {"a": [1]}, "127.0.0.1", 0)
    yield made
    made.close()


def get(url: str) -> tuple[str, str]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_the_server_has_two_pages_and_no_other(server: MetricsServer) -> None:
    text = ("text/plain; version=0.0.4; charset=utf-8", "x 1\n")
    assert get(f"{server.url}/metrics") == text
    assert get(f"{server.url}/metrics?x=1") == text
    assert get(f"{server.url}/metrics.json") == ("application/json", '{"a": [1]}')
    for request in ("/", "/metrics/", "/../metrics", "/etc/passwd"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(server.url + request)
    posted = urllib.request.Request(f"{server.url}/metrics", data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="501"):
        urllib.request.urlopen(posted, timeout=10)


def test_a_client_that_goes_away_stops_nothing(server: MetricsServer, capfd: Any) -> None:
    port = int(server.url.rpartition(":")[2])
    for said in (b"", b"GET /metrics HTTP/1.1\r\n", b"\x00\xff\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(said)
    assert get(f"{server.url}/metrics")[1] == "x 1\n"
    assert capfd.readouterr() == ("", "")


def asked(server: MetricsServer, request: bytes) -> bytes:
    """Send bytes and return all that is answered."""
    with connected(server) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(4096), b""))


def connected(server: MetricsServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30)


def test_slow_clients_keep_nobody_waiting(server: MetricsServer) -> None:
    with ExitStack() as clients:
        for _ in range(CLIENTS_MAX - 1):
            clients.enter_context(connected(server)).sendall(b"GET /metrics HT")
        port = server.url.rpartition(":")[2]
        request = f"GET /metrics HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode()
        for _ in range(3):
            assert b"200 OK" in asked(server, request)
        clients.enter_context(connected(server)).sendall(b"GET /metrics HT")
        while b"200 OK" in (answer := refused(server, request)):
            pass  # The last one may not have been taken yet.
        assert answer == b""


def refused(server: MetricsServer, request: bytes) -> bytes:
    try:
        return asked(server, request)
    except ConnectionError:
        return b""


def test_a_client_that_dribbles_is_let_go(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "TIMEOUT_SECONDS", 0.2)
    with connected(server) as client, pytest.raises(ConnectionError):
        dribble(client)


def dribble(client: socket.socket) -> None:
    for _ in range(1000):
        client.sendall(b"G")
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("LOCALHOST:9468", 200), ("127.0.0.1:1", 200), ("[::1]:9468", 200),
        ("evil.example", 421), ("evil.example:9468", 421), ("127.0.0.1.evil.example", 421),
        ("", 421), ("[", 421), ("10.0.0.7", 421), ("localhost\r\nHost: evil.example", 421),
    ],
)  # fmt: skip
def test_another_host_is_refused(server: MetricsServer, host: str, status: int) -> None:
    answer = asked(server, f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert answer.split()[1] == str(status).encode()


def test_a_server_on_all_addresses_has_any_address_but_no_other_name() -> None:
    server = MetricsServer(str, dict, "0.0.0.0", 0)
    try:
        for host, status in (("10.0.0.7", 200), (socket.gethostname(), 200), ("evil.example", 421)):
            answer = asked(server, f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert answer.split()[1] == str(status).encode(), host
    finally:
        server.close()


def test_only_the_loopback_address_is_bound(server: MetricsServer) -> None:
    assert server.url.startswith("http://127.0.0.1:")


def test_a_taken_port_is_an_error_and_the_default_moves_on(server: MetricsServer) -> None:
    taken = int(server.url.rpartition(":")[2])
    with pytest.raises(OutpaceError, match=rf"cannot listen on 127\.0\.0\.1, port {taken}"):
        MetricsServer(str, dict, "127.0.0.1", taken)
    with pytest.raises(OutpaceError, match="cannot listen"):
        MetricsServer(str, dict, "127.0.0.1", 1 << 20)
    first = MetricsServer(str, dict, "127.0.0.1", None)
    second = MetricsServer(str, dict, "127.0.0.1", None)
    ports = [int(made.url.rpartition(":")[2]) for made in (first, second)]
    first.close()
    second.close()
    assert PORT <= ports[0] < ports[1] < PORT + PORTS


def test_a_closed_server_listens_no_more() -> None:
    made = MetricsServer(str, dict, "127.0.0.1", 0)
    made.close()
    with pytest.raises(urllib.error.URLError):
        get(f"{made.url}/metrics")


def test_the_documentation_has_the_table_of_all_metrics() -> None:
    assert metrics_names.table() in PAGE.read_text(encoding="utf-8")
