"""`outpace stream`: what it writes is the result in process, over stops; nothing comes twice."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sysconfig
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.dataset as ds
import pytest
from psycopg.rows import dict_row
from pyspark.sql import SparkSession
from support.joins import LEFT, RIGHT, joined, some_rows
from support.stream_command import CLAUSE, events_per_second, free_port, written
from support.streamed import events, ordered
from typer.testing import CliRunner

import outpace as op
from outpace.cli.main import app
from outpace.cli.stream_listener import StatusListener
from outpace.pattern.query import Query

OUTPACE = Path(sysconfig.get_path("scripts")) / "outpace"

#: Long enough for a machine that does much else; nothing is said about speed.
SECONDS_MAX = 900


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a query, a log of events, and an odd name."""
    made = tmp_path / "my streams"
    made.mkdir()
    monkeypatch.chdir(made)
    (made / "clause.sql").write_text(CLAUSE)
    op.log.create("ticks.log", events(1, 1).schema)
    return made


Started = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def started(java: None, folder: Path) -> Iterator[Started]:
    """Starts the command; what still runs at the end of the test is killed."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [OUTPACE, "stream", *arguments, "--master", "local[2]"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def here(*arguments: str) -> tuple[int, str, str]:
    """Run the command in this process, on the session of the tests."""
    done = CliRunner().invoke(app, ["stream", *arguments, "--spark"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, error = process.communicate(timeout=SECONDS_MAX)
    return process.returncode, out, error


def wait_for(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.2)


def asked_of(page: str) -> Any:
    with urllib.request.urlopen(page, timeout=60) as answer:
        return json.load(answer)


def append(table: pa.Table) -> None:
    with op.log.open("ticks.log").writer() as writer:
        writer.append(table)


def test_a_stream_that_is_stopped_and_resumed_finds_what_the_table_has(
    streaming: SparkSession, started: Started, folder: Path
) -> None:
    """The command goes on where another process has stopped, and that one where it has."""
    table = events(300, 1)
    query = Query.from_sql(CLAUSE)
    append(table.slice(0, 200))
    arguments = ("clause.sql", "--from", "log:ticks.log", "--to", "found")

    code, out, error = here(*arguments, "--trigger", "available-now")
    assert (code, out) == (0, ""), error
    first = written("found")
    assert first
    place = folder / "found.checkpoint"
    assert error == f"{len(first)} rows; the same command goes on from {place}\n"

    append(table.slice(200))
    good = ordered(op.match(table, query).to_pylist())
    assert len(good) > len(first)
    process = started(*arguments, "--trigger", "100 ms", "--metrics-port", "0")
    wait_for(process, lambda: len(written("found")) >= len(good))
    process.send_signal(signal.SIGINT)
    code, _, error = ended(process)
    assert code == 0, error
    assert "metrics at http://127.0.0.1:" in error
    assert f"{len(good) - len(first)} rows; the same command goes on from {place}\n" in error
    assert ordered(written("found")) == good

    append(table.slice(table.num_rows - 1))
    Path("clause.sql").write_text(CLAUSE.replace("WITHIN 40", "WITHIN 50"))
    code, _, error = here(*arguments, "--trigger", "available-now")
    assert code == 2
    assert error.startswith("[state] ")
    assert "Traceback" not in error
    assert ordered(written("found")) == good


def test_a_stream_with_savepoints_alone_goes_on_with_them(
    streaming: SparkSession, folder: Path
) -> None:
    table = events(300, 1)
    arguments = ("clause.sql", "--from", "log:ticks.log", "--to", "found")
    arguments += ("--trigger", "available-now")
    for cut in (table.slice(0, 200), table.slice(200)):
        append(cut)
        code, _, error = here(*arguments, "--recovery", "replay")
        assert code == 0, error
    good = ordered(op.match(table, Query.from_sql(CLAUSE)).to_pylist())
    assert ordered(written("found")) == good
    append(table.slice(table.num_rows - 1))
    code, _, error = here(*arguments)
    assert code == 2, error
    assert error.startswith("[state] ")
    assert ordered(written("found")) == good


@pytest.mark.soak
def test_late_events_and_broken_lines_go_to_folders_of_their_own(started: Started) -> None:
    Path("in").mkdir()
    rows = [
        {"id": 0, "ts": 10, "key": "x", "kind": "a"},
        {"id": 1, "ts": 12, "key": "x", "kind": "b"},
        {"id": 2, "ts": 30, "key": "x", "kind": "c"},
    ]
    lines = [json.dumps(row) for row in rows]
    lines.insert(1, '{"id": 7, "ts": 11, "key": "x", "kind": ')
    Path("in/1.jsonl").write_text("\n".join([*lines, '{"id": 8, "ts": "noon", "key": "x"}']) + "\n")
    process = started(
        *("clause.sql", "--from", "in", "--from-format", "json"),
        *("--schema", "id bigint, ts bigint, key string, kind string"),
        *("--to", "found", "--to-format", "json", "--late-to", "late", "--invalid-to", "invalid"),
        *("--slack", "5", "--trigger", "100 ms", "--timed-out-to", "timed out"),
    )
    wait_for(process, lambda: len(written("invalid")) == 2)
    later = [
        {"id": 3, "ts": 9, "key": "x", "kind": "b"},
        {"id": 4, "ts": 50, "key": "x", "kind": "a"},
        {"id": 5, "ts": 900, "key": "x", "kind": "end"},
    ]
    hidden = Path("in/.2.jsonl")
    hidden.write_text("".join(json.dumps(row) + "\n" for row in later))
    hidden.rename("in/2.jsonl")
    wait_for(process, lambda: bool(written("late") and written("timed out")))
    process.send_signal(signal.SIGTERM)
    code, out, error = ended(process)
    assert (code, out) == (0, ""), error
    assert "1 row; the same command goes on from " in error
    assert written("found", "json") == [{"key": "x", "first": 0, "last": 2, "n": 3}]
    assert [row["id"] for row in written("late")] == [3]
    broken = {str(row["_corrupt_record"]) for row in written("invalid")}
    assert broken == {lines[1], '{"id": 8, "ts": "noon", "key": "x"}'}


@pytest.mark.soak
def test_a_stream_on_spark_connect_that_is_stopped(started: Started, folder: Path) -> None:
    table = events(200, 2)
    append(table.slice(table.num_rows - 1))
    port = free_port()
    process = started(
        *("clause.sql", "--from", "log:ticks.log", "--to", "found", "--late-to", "late"),
        *("--trigger", "100 ms", "--remote", "local[2]", "--metrics-port", str(port)),
    )

    # The first batch tells its events, though it has only one of them.
    wait_for(process, lambda: events_per_second(port) > 0)
    assert [one.name for one in Path("found.checkpoint/commits").glob("[0-9]*")] == ["0"]
    append(table.slice(0, 3))
    wait_for(process, lambda: len(written("late")) == 3)
    process.send_signal(signal.SIGTERM)
    code, out, error = ended(process)
    assert (code, out) == (0, ""), error
    assert error.endswith(
        f"\n0 rows; the same command goes on from {folder / 'found.checkpoint'}\n"
    )
    assert ordered(written("late")) == ordered(table.slice(0, 3).to_pylist())


@pytest.mark.soak
def test_any_source_and_any_sink_of_spark(started: Started, folder: Path) -> None:
    table = events(60, 3)
    Path("in").mkdir()
    csv.write_csv(table.select(["id", "ts", "key", "kind"]), "in/1.csv")
    process = started(
        *("clause.sql", "--from", f"file://{folder / 'in'}", "--from-format", "csv"),
        *("--option", "header=true", "--schema", "id bigint, ts bigint, key string, kind string"),
        *("--to", f"file://{folder / 'found'}", "--to-format", "orc", "--checkpoint", "kept"),
        *("--trigger", "available-now"),
    )
    code, out, error = ended(process)
    assert (code, out) == (0, ""), error
    files = [str(file) for file in Path("found").glob("*.orc")]
    good = ordered(op.match(table, Query.from_sql(CLAUSE)).to_pylist())
    assert ordered(ds.dataset(files, format="orc").to_table().to_pylist()) == good
    assert error.endswith(f"{len(good)} rows; the same command goes on from {folder / 'kept'}\n")


@pytest.mark.soak
def test_a_stream_into_postgresql_that_is_stopped_and_resumed(
    started: Started, folder: Path, postgres: str
) -> None:
    def rows() -> list[dict[str, object]]:
        with psycopg.connect(postgres, row_factory=dict_row) as connection:
            if connection.execute("SELECT to_regclass('found') AS it").fetchone() == {"it": None}:
                return []
            return connection.execute("SELECT * FROM found").fetchall()

    table = events(300, 4)
    good = ordered(op.match(table, Query.from_sql(CLAUSE)).to_pylist())
    arguments = ("clause.sql", "--from", "log:ticks.log", "--to", f"postgres:{postgres}#found")
    arguments += ("--checkpoint", "kept", "--trigger", "100 ms")
    append(table.slice(0, 150))
    process = started(*arguments)
    wait_for(process, lambda: bool(rows()))
    append(table.slice(150, 80))  # so that there may be a batch that runs
    process.send_signal(signal.SIGINT)
    code, out, error = ended(process)
    assert (code, out) == (0, ""), error
    assert "stopping after this batch; once more ends at once\n" in error
    assert error.endswith(f" rows; the same command goes on from {folder / 'kept'}\n")
    assert 0 < len(rows()) < len(good)

    append(table.slice(230))
    code, out, error = ended(started(*arguments[:-1], "available-now"))
    assert (code, out) == (0, ""), error
    assert ordered(rows()) == good


@pytest.mark.soak
def test_sparks_own_generator_goes_into_nowhere_until_stopped_and_sparks_pages_name_it(
    started: Started, folder: Path
) -> None:
    Path("tens.sql").write_text(
        """MATCH_RECOGNIZE (
            ORDER BY timestamp MEASURES TEN.value AS value PATTERN (TEN)
            DEFINE TEN AS value % 10 = 0
        )"""
    )
    commits = folder / "kept" / "commits"

    def batches() -> int:
        return 1 + max((int(one.name) for one in commits.glob("[0-9]*")), default=-1)

    rows = before = 0
    for more in (2, 1):
        port = free_port()
        process = started(
            *("tens.sql", "--from-format", "rate-micro-batch", "--option", "rowsPerBatch=100"),
            *("--to-format", "noop", "--checkpoint", "kept", "--trigger", "100 ms"),
            *("--conf", "spark.ui.enabled=true", "--conf", f"spark.ui.port={port}"),
        )
        wait_for(process, lambda least=before + more: batches() >= least)
        pages = f"http://127.0.0.1:{port}/api/v1/applications"
        batch = asked_of(f"{pages}/{asked_of(pages)[0]['id']}/sql?details=true")[0]
        assert batch["description"].startswith("tens\n")
        for title in ("outpace tens: pack(", "outpace_tens_order_match#", "outpace tens: matches("):
            assert title in batch["planDescription"]
        process.send_signal(signal.SIGINT)
        code, out, error = ended(process)
        assert (code, out) == (0, ""), error
        rows += int(re.search(r"([\d,]+) rows; the same", error)[1].replace(",", ""))
        # A batch that was interrupted between its commit and its report is not counted.
        assert 10 * (batches() - 2) <= rows <= 10 * batches()
        before = batches()


def test_a_statement_over_generated_events_on_the_console(
    streaming: SparkSession, folder: Path
) -> None:
    Path("dips.sql").write_text(
        """SELECT symbol, n + 0 AS n FROM ticks MATCH_RECOGNIZE (
            PARTITION BY symbol ORDER BY ts
            MEASURES COUNT(*) AS n
            PATTERN (STRT DOWN{2,} UP) WITHIN INTERVAL '1' MINUTE
            DEFINE DOWN AS close < PREV(close), UP AS close > PREV(close)
        ) WHERE n > 3"""
    )
    source = "ticks=events:stock?limit=2000&rate=1000&paced=false&keys=4&start=2024-01-02T09:30:00"
    listeners = streaming._jsparkSession.streams().listListeners
    # The first one of Python makes Spark add one that stays, to call it from Java.
    first = StatusListener()
    streaming.streams.addListener(first)
    streaming.streams.removeListener(first)
    before = len(listeners())
    code, out, error = here(
        *("dips.sql", "--from", source, "--trigger", "available-now", "--limit", "3")
    )
    assert code == 0, error
    assert error.startswith("without --checkpoint the stream cannot be resumed\n")
    names, *rows, more = out.splitlines()
    assert names.split() == ["symbol", "n"]
    assert len(rows) == 3
    assert all(int(row.split()[1]) > 3 for row in rows)
    left = int(more.removeprefix("and ").removesuffix(" more").replace(",", ""))
    assert error.endswith(f"\n{left + 3:,} rows\n")
    # The session was there before: it is left as it was.
    assert len(listeners()) == before


def test_rows_that_are_heartbeats_tell_the_time(streaming: SparkSession, folder: Path) -> None:
    Path("all.sql").write_text(
        "MATCH_RECOGNIZE (ORDER BY ts MEASURES A.ts AS at PATTERN (A) DEFINE A AS ts > 0)"
    )
    rows = pa.table({"ts": [1, 5, 3, 4], "told": pa.array([None, None, None, 4], pa.int64())})
    with op.log.create("beats.log", rows.schema).writer() as writer:
        writer.append(rows)
    code, out, error = here(
        *("all.sql", "--from", "log:beats.log", "--trigger", "available-now"),
        *("--disorder", "PUNCTUATION", "--heartbeats", "told"),
    )
    assert code == 0, error
    # The event of time 5 waits for the next heartbeat.
    assert [line.strip() for line in out.splitlines()] == ["at", "1", "3"]


@pytest.mark.soak
def test_late_events_and_broken_lines_of_several_queries(
    streaming: SparkSession, folder: Path
) -> None:
    clause = "MATCH_RECOGNIZE (ORDER BY ts MEASURES A.ts AS at PATTERN (A) DEFINE A AS ts > {})"
    for name, least in (("all", 0), ("some", 4)):
        Path(f"{name}.sql").write_text(clause.format(least))
    Path("in").mkdir()
    Path("in/1.jsonl").write_text('{"ts": 1}\n{"ts": 9}\n{"ts": \n')
    arguments = [
        *("all.sql", "some.sql", "--from", "in", "--from-format", "json", "--schema", "ts bigint"),
        *("--to", "found", "--late-to", "late", "--invalid-to", "invalid", "--slack", "2"),
        *("--trigger", "available-now"),
    ]
    code, _, error = here(*arguments)
    assert code == 0, error
    Path("in/2.jsonl").write_text('{"ts": 3}\n{"ts": 20}\n')
    code, _, error = here(*arguments)
    assert code == 0, error
    assert {(row["query"], row["at"]) for row in written("found")} == {
        ("all", 1),
        ("all", 9),
        ("some", 9),
    }
    assert {(row["query"], row["ts"]) for row in written("late")} == {("all", 3), ("some", 3)}
    broken = {(row["query"], row["_corrupt_record"]) for row in written("invalid")}
    assert broken == {("all", '{"ts": '), ("some", '{"ts": ')}


REFUSED = {
    "no query": (
        ["missing.sql", "--from", "log:ticks.log"],
        "there is no query file 'missing.sql'",
    ),
    "no input": (["clause.sql"], "there is no input"),
    "no log": (["clause.sql", "--from", "log:other.log"], "is no event log"),
    "no kind of events": (["clause.sql", "--from", "events:smple?rate=5"], "smple"),
    "no rate": (["clause.sql", "--from", "events:simple?rate=x"], "the option 'rate' is"),
    "no option": (["clause.sql", "--from", "events:simple?rat=5"], "has no option 'rat'"),
    "no folder": (["clause.sql", "--from", "nothing"], "there is no file or folder"),
    "empty folder": (["clause.sql", "--from", "empty"], "there are no files in"),
    "no format": (
        ["clause.sql", "--from", "json", "--schema", "ts bigint"],
        "--from-format parquet, csv or json",
    ),
    "one file": (["clause.sql", "--from", "clause.sql"], "'clause.sql' is one file"),
    "no trigger": (["clause.sql", "--from", "log:ticks.log", "--trigger", "soon"], "soon"),
    "no slack": (["clause.sql", "--from", "log:ticks.log", "--slack", "2 parsecs"], "parsecs"),
    "no setting": (["clause.sql", "--from", "log:ticks.log", "--conf", "x"], "'x' is no setting"),
    "no parent": (["clause.sql", "--from", "log:ticks.log", "--to", "a/b"], "there is no folder"),
    "rows of files": (["clause.sql", "--from", "json", "--max-events", "5"], "--max-events goes"),
    "no table": (["clause.sql", "--from", "log:ticks.log", "--to", "postgres:x"], "names no table"),
    "other files": (["clause.sql", "--from", "log:ticks.log", "--to", "json"], "holds more than"),
    "other checkpoint": (["clause.sql", "--from", "log:ticks.log", "--to", "old"], "[state]"),
    "no checkpoint": (["clause.sql", "--from", "log:ticks.log", "--to-format", "noop"], "a folder"),
    "sides of a sink": (
        ["clause.sql", "--from", "log:ticks.log", "--to-format", "noop", "--late-to", "late"],
        "side outputs do not go with the sink 'noop'",
    ),
    "one folder twice": (
        ["clause.sql", "--from", "log:ticks.log", "--to", "x", "--late-to", "./x"],
        "two outputs go to",
    ),
    "sides of a statement": (
        ["statement.sql", "--from", "log:ticks.log", "--late-to", "late"],
        "a statement has no side outputs",
    ),
    "slack of a subquery": (
        ["statement.sql", "--from", "log:ticks.log", "--slack", "5"],
        "--slack and --disorder go with a clause that reads 'ticks' as it is",
    ),
    "replay of files": (
        ["clause.sql", "--from", "json", "--recovery", "replay", "--to", "x"],
        "--recovery reads a log again, and this input is none",
    ),
    "replay of a statement": (
        ["statement.sql", "--from", "log:ticks.log", "--recovery", "replay"],
        "--recovery goes with one query",
    ),
    "nowhere to go": (["side.sql", "--from", "log:ticks.log"], "--late-to FOLDER"),
    "no timeouts": (
        ["window.sql", "--from", "log:ticks.log", "--timed-out-to", "x"],
        "has no partial matches that time out",
    ),
    "console far away": (
        ["clause.sql", "--from", "log:ticks.log", "--remote", "sc://127.0.0.1:1"],
        "do not come to the console",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused_before_spark_is_started(folder: Path, name: str) -> None:
    Path("empty").mkdir()
    Path("json").mkdir()
    Path("json/1.jsonl").write_text('{"ts": 1}\n')
    Path("old/batch=0").mkdir(parents=True)
    Path("statement.sql").write_text(f"SELECT * FROM (SELECT * FROM ticks WHERE id > 5) {CLAUSE}")
    Path("side.sql").write_text(CLAUSE.replace("WITHIN 40", "WITHIN 40 DISORDER SLACK 5 LATE SIDE"))
    Path("window.sql").write_text(CLAUSE.replace("WITHIN 40", ""))
    arguments, said = REFUSED[name]
    before = sorted(Path().iterdir())
    done = CliRunner().invoke(app, ["stream", *arguments])
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert done.stderr.startswith("[")
    assert done.stdout == ""
    assert sorted(Path().iterdir()) == before


@pytest.mark.soak
def test_a_statement_joins_two_inputs_over_a_stop(streaming: SparkSession, folder: Path) -> None:
    sides = [some_rows(7, 60, side, end=300) for side in (0, 1)]
    tables = [
        pa.Table.from_pylist(rows, schema)
        for rows, schema in zip(sides, (LEFT, RIGHT), strict=True)
    ]
    text = "SELECT o.a, p.* FROM left_side AS o JOIN right_side AS p USING (id) WITHIN 9 BETWEEN"
    Path("join.sql").write_text(f"{text} o.ts AND p.ts DISORDER SLACK 3")
    names = ("left_side", "right_side")
    for name, schema in zip(names, (LEFT, RIGHT), strict=True):
        op.log.create(f"{name}.log", schema)
    inputs = [word for name in names for word in ("--from", f"log:{name}.log")]
    for cut in (slice(0, 25), slice(25, 60)):
        for name, table in zip(names, tables, strict=True):
            with op.log.open(f"{name}.log").writer() as writer:
                writer.append(table.slice(cut.start, cut.stop - cut.start))
        code, _, error = here("join.sql", *inputs, "--to", "found", "--trigger", "available-now")
        assert code == 0, error
    until = min(rows[-1]["ts"] for rows in sides) - 3
    wanted = [
        {"a": row["a"], "ts": row["ts_right"], "id": row["id"], "v": row["v_right"]}
        for row in joined(*sides, 9, "inner")
        if row["ts"] < until
    ]
    assert ordered(written("found")) == ordered(wanted)
    assert wanted
    text = "import outpace as op\njoin = op.Join(on='id', within=9, time='ts')\n"
    Path("join.py").write_text(text)
    slack = ["--slack", "3", "--trigger", "available-now"]
    code, _, error = here("join.py", *inputs, "--to", "python", *slack)
    assert code == 0, error
    whole = [row for row in joined(*sides, 9, "inner") if row["ts"] < until]
    assert ordered(written("python")) == ordered(whole)


@pytest.mark.soak
def test_late_rows_of_a_join_come_into_a_folder(streaming: SparkSession, folder: Path) -> None:
    text = "import outpace as op\njoin = op.Join(on='id', within=9, time='ts')\n"
    Path("join.py").write_text(text)
    logs = {"left.log": LEFT, "right.log": RIGHT}
    for name, schema in logs.items():
        op.log.create(name, schema)
    inputs = [word for name in logs for word in ("--from", f"log:{name}")]
    sinks = ["--to", "found", "--late-to", "late", "--invalid-to", "invalid"]
    sinks += ["--disorder", "NONE AHEAD 100"]
    for times in ([3, 20, 900], [4, 30, 900]):
        for name, schema in logs.items():
            rows = [{"id": 1, "ts": time, "v": time} for time in times]
            with op.log.open(name).writer() as writer:
                writer.append(pa.Table.from_pylist(rows, schema))
        code, _, error = here("join.py", *inputs, *sinks, "--trigger", "available-now")
        assert code == 0, error
    pairs = [(row["ts_left"], row["ts_right"]) for row in written("found")]
    assert sorted(pairs) == [(3, 3), (20, 20)]
    late = [(row["source"], row["ts"], row["v_left"], row["v_right"]) for row in written("late")]
    assert sorted(late) == [("left", 4, 4, None), ("right", 4, None, 4)]
    assert sorted(row["source"] for row in written("invalid")) == ["left", "left", "right", "right"]
