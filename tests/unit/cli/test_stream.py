"""`outpace stream` without Spark: what it shows, how it hears signals, how options are read."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.listener import QueryIdleEvent, QueryTerminatedEvent
from rich.console import Console
from support.patient_order import Patient

import outpace as op
from outpace.cli.run_input import TextOptions
from outpace.cli.run_query import SqlText
from outpace.cli.stream_input import input_of
from outpace.cli.stream_listener import StatusListener
from outpace.cli.stream_local import why_spark
from outpace.cli.stream_output import Checkpoint, ConsoleWriter, FolderWriter, checkpoint_of
from outpace.cli.stream_query import Additions, check_query, disorder_of, endings
from outpace.cli.stream_status import status_view
from outpace.engine.codec.cell import COUNTERS
from outpace.errors import BindError
from outpace.pattern.disorder import Invalid, KSlack, Late

QUERY = op.Query("q").order_by("ts").pattern("A").define(A="price > 1").within(5)


def test_the_table_on_the_console_grows_and_keeps_its_columns() -> None:
    console = Console(file=io.StringIO(), width=60)
    writer = ConsoleWriter(console, limit=2)
    writer.show(pa.table({"symbol": ["ACME", None], "n": [1, 20]}), 2)
    writer.show(pa.table({"symbol": ["[b]", "LONGER"], "n": [3, 4]}), 1005)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert [line.split() for line in lines] == [
        ["symbol", "n"],
        ["ACME", "1"],
        ["NULL", "20"],
        ["[b]", "3"],
        ["LONGER", "4"],
        ["and", "1,003", "more"],
    ]
    assert len({line.rstrip().index(line.split()[1]) for line in (lines[1], lines[3])}) == 1


PROGRAM = """
import sys, time
from outpace.cli.stream_stop import StopRequest
with StopRequest() as stop:
    print("ready", flush=True)
    stop.event.wait()
    print("asked", flush=True)
    if sys.argv[1] == "twice":
        time.sleep(600)
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", ["once", "twice"])
def test_the_first_signal_asks_and_the_second_ends(number: signal.Signals, times: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, times],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == "asked\n"
        if times == "twice":
            process.send_signal(number)
        out = process.stdout.read()
        process.wait(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    expected = (0, "ended\n") if times == "once" else (128 + number, "")
    assert (process.returncode, out) == expected


READ_ENOUGH = """
from outpace.cli.stream_stop import PipeConsole, StopRequest
stop = StopRequest()
console = PipeConsole(stop)
console.print("row")
input()
assert not stop.event.is_set()
console.print("row")
console.print("row")
raise SystemExit(7 if stop.event.is_set() else 1)
"""


def test_it_asks_to_stop_when_nobody_reads_the_rows() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", READ_ENOUGH],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"row\n"
        process.stdout.close()
        process.stdin.write(b"go on\n")
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=120) == 7


def test_a_checkpoint_keeps_the_number_of_partitions(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert not checkpoint.is_begun
    assert checkpoint.settings() == {}
    (tmp_path / "offsets").mkdir()
    told = {"batchWatermarkMs": 0, "conf": {"spark.sql.shuffle.partitions": "7"}}
    (tmp_path / "offsets" / "12").write_text(f'v1\n{json.dumps(told)}\n{{"offset": 3}}')
    assert checkpoint.is_begun
    assert checkpoint.settings() == {"spark.sql.shuffle.partitions": "7"}


@pytest.mark.parametrize(
    "said",
    ["{", '{"conf": 7, ', '["', '{"conf": {"spark.sql.shuffle.partitions": "x"}}', "[" * 9999],
)
def test_a_checkpoint_that_spark_did_not_write_is_refused(tmp_path: Path, said: str) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(f"v1\n{said} spark.sql.shuffle.partitions")
    with pytest.raises(op.StateError, match="is not what Spark wrote there"):
        Checkpoint(tmp_path).settings()


def test_the_checkpoint_is_beside_a_folder_and_temporary_for_the_console(tmp_path: Path) -> None:
    beside = checkpoint_of(None, FolderWriter(tmp_path / "dips"), tmp_path / "t")
    assert beside == Checkpoint(tmp_path / "dips.checkpoint")
    console = ConsoleWriter(Console(), 1)
    assert checkpoint_of(None, console, tmp_path / "t") == Checkpoint(tmp_path / "t", True)
    assert checkpoint_of("c", console, tmp_path / "t") == Checkpoint(Path("c").absolute())


def test_options_change_the_disorder_of_a_query_and_keep_the_rest() -> None:
    said = QUERY.disorder(op.KSlack(5, ahead=100))
    assert Additions().of(said) is said
    changed = Additions(op.KSlack(7), late=True, invalid=True).of(said).order_of_arrival
    assert changed == KSlack(7, late=Late.SIDE, invalid=Invalid.QUARANTINE, ahead=100)
    assert Additions(op.KSlack("2 s")).of(QUERY).order_of_arrival == op.KSlack("2 s")
    with pytest.raises(BindError, match="invalid events of 'q' have no place"):
        Additions(late=True).of(QUERY.disorder(op.InOrder(invalid="quarantine")))


def test_disorder_is_given_as_sql_has_it() -> None:
    told = disorder_of(None, "SLACK 7 LATE PASS")
    assert told == op.KSlack(7, late="pass")
    said = QUERY.disorder(op.KSlack(5, late="side", ahead=100))
    assert Additions(told).of(said).order_of_arrival == op.KSlack(7, late="pass", ahead=100)
    with pytest.raises(op.PatternSyntaxError, match="--disorder, line 1, column 7"):
        disorder_of(None, "SLACK soon")
    with pytest.raises(op.PatternSyntaxError, match="'AND' does not belong here"):
        disorder_of(None, "SLACK 7 AND 8")
    with pytest.raises(BindError, match="give one of them"):
        disorder_of("7", "SLACK 7")


def test_a_query_that_goes_by_the_clock_ends_when_all_is_taken() -> None:
    asked, now = QUERY.disorder(Patient(5, "1 s")), {"availableNow": True}
    ((name, value),) = endings(asked, Additions(), now).items()
    assert (name, value) == ("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    assert endings(asked, Additions(), {"once": True}) == {}
    assert endings(asked, Additions(op.KSlack(5)), now) == {}


def test_sources_are_told_apart_on_spark(tmp_path: Path) -> None:
    op.log.create(str(tmp_path / "t.log"), pa.schema({"ts": pa.int64(), "source": pa.string()}))
    read = input_of(f"log:{tmp_path}/t.log")
    additions = Additions(sources=("east", "west"))
    assert why_spark(QUERY, [read], additions, TextOptions()) == "sources are told apart there"
    statement = SqlText("SELECT 1", "outpace", tmp_path / "s.sql")
    with pytest.raises(BindError, match="a statement has no sources that are told apart"):
        check_query(statement, [read], additions)
    beats = Additions(op.Punctuation(), heartbeats="told")
    assert why_spark(QUERY, [read], beats, TextOptions()) == "rows are heartbeats there"
    check_query(QUERY, [read], beats)
    with pytest.raises(BindError, match="a statement has no heartbeats"):
        check_query(statement, [read], beats)


def test_inputs_have_a_name_for_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    op.log.create("trades.log", pa.schema({"ts": pa.int64()}))
    columns = TextOptions("ts bigint")
    assert input_of("log:trades.log").name == "trades"
    assert input_of("t=log:trades.log", events_max=5).options == {"maxEventsPerTrigger": "5"}
    assert input_of("t=log:trades.log").name == "t"
    assert input_of("events:simple").name == "events"
    assert input_of(None, format="kafka", options={"subscribe": "x"}).name == "input"
    assert input_of("new/ticks", format="json", columns=columns).name == "ticks"
    assert (
        input_of("new/ticks", format="json", columns=columns).path == f"file://{tmp_path}/new/ticks"
    )


def test_the_header_of_csv_has_to_fit_the_schema() -> None:
    columns = TextOptions("ts bigint, price double", ";")
    read = input_of("ticks", format="csv", columns=columns).options
    assert (read["sep"], read["header"], read["enforceSchema"]) == (";", "true", "false")
    bare = TextOptions("ts bigint, price double", header=False)
    assert input_of("ticks", format="csv", columns=bare).options["enforceSchema"] == "true"


def test_the_line_of_status_is_gone_from_a_terminal_afterwards() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    listener = StatusListener()
    with status_view(console, listener) as view:
        view.show()
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "waiting for the first batch" in shown
    assert shown.endswith("\x1b[2K")


def test_a_stream_without_new_events_says_so_and_not_that_its_last_batch_had_none() -> None:
    id, run, at = uuid.uuid4(), uuid.uuid4(), "2024-01-02T09:30:00.000Z"
    reports = [[0, 8, *[0] * (len(COUNTERS) - 1)]]
    told = {
        "id": str(id),
        "runId": str(run),
        "name": "dips",
        "batchId": 0,
        "batchDuration": 2000,
        "timestamp": at,
        "observedMetrics": {"outpace:dips:1": {"pack > order + match": reports}},
    }
    listener = StatusListener()
    listener.take(told)
    assert listener.line() == "batch 0 in 2.0 s, 4 events/s, 0 rows"
    listener.onQueryIdle(QueryIdleEvent(id, run, at))
    assert listener.line() == "batch 0 in 2.0 s, no new events, 0 rows"
    listener.take({**told, "batchId": 1, "timestamp": "2024-01-02T09:30:02.000Z"})
    assert listener.line() == "batch 1 in 2.0 s, 4 events/s, 0 rows"
    listener.onQueryTerminated(QueryTerminatedEvent(id, run, None, None))
    assert listener.line() == "batch 1 in 2.0 s, 0 rows"
