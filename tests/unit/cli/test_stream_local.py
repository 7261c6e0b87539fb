"""`outpace stream` in process: small sources on the console need no Spark, and find the same."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sysconfig
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from support.patient_order import ASKED, Patient, PatientOrder
from support.run_inputs import CLAUSE, TICKS, write_inputs
from support.terminal import read_to_end, read_until
from typer.testing import CliRunner

import outpace as op
from outpace.cli.main import app
from outpace.cli.run_input import DataFormat, TextOptions
from outpace.cli.run_query import QueryFiles, SqlText
from outpace.cli.stream_feed import FilesFeed
from outpace.cli.stream_input import input_of
from outpace.cli.stream_local import run_in_process, why_spark
from outpace.cli.stream_output import ConsoleWriter, checkpoint_of, output_of
from outpace.cli.stream_query import Additions
from outpace.cli.stream_stop import StopRequest
from outpace.engine.order.choose import ORDERS
from outpace.ingest.log import create

OUTPACE = f"{sysconfig.get_path('scripts')}/outpace"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_java: None) -> Path:
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    return tmp_path


def stream(*arguments: str) -> tuple[int, list[str], str]:
    done = CliRunner().invoke(app, ["stream", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout.splitlines(), done.stderr


def pushed() -> int:
    """How many matches there are while the stream goes on."""
    return int(op.open(op.Query.from_sql(CLAUSE)).push(TICKS).num_rows)


def whole() -> int:
    """How many matches there are where nothing more comes."""
    return int(op.match(TICKS, op.Query.from_sql(CLAUSE)).num_rows)


@pytest.mark.parametrize("kind", ["log", "parquet", "csv", "json"])
def test_what_is_there_is_shown(kind: str) -> None:
    source = {"log": "log:ticks.log", "parquet": "many", "csv": "text", "json": "text"}[kind]
    if kind == "log":
        with create("ticks.log", TICKS.schema).writer() as writer:
            writer.append(TICKS)
    if source == "text":
        Path("text").mkdir()
        ending = "csv" if kind == "csv" else "jsonl"
        Path(f"ticks.{ending}").rename(f"text/ticks.{ending}")
    arguments = ["clause.sql", "--from", source, "--limit", "1000"]
    code, out, error = stream(*arguments, "--trigger", "available-now")
    assert whole() > pushed()
    assert (code, len(out)) == (0, 1 + whole())
    assert out[0].split() == ["symbol", "bottom", "ticks", "ends"]
    assert error.splitlines()[0].startswith("in process: ")
    assert error.splitlines()[-1] == f"{whole()} rows"


def test_generated_events_come_in_batches() -> None:
    Path("all.sql").write_text("MATCH_RECOGNIZE (ORDER BY ts MEASURES A.seq AS n PATTERN (A))")
    source = "events:simple?rate=10&limit=25&paced=false"
    arguments = ["all.sql", "--from", source, "--max-events", "10", "--limit", "9"]
    code, out, error = stream(*arguments, "--trigger", "available-now")
    assert (code, error.splitlines()[-1]) == (0, "25 rows")
    shown = [*range(9), *range(10, 19), *range(20, 25)]
    assert [int(line) for line in out[1:] if line.strip().isdigit()] == shown


@pytest.mark.parametrize(
    ("disorder", "trigger"),
    [
        ("SLACK '1 hour'", "available-now"),
        ("SLACK '1 hour'", "once"),
        ("SLACK '1 hour'", "10 ms"),
        ("MP AT_LEAST '1 hour'", "available-now"),
        ("AQ WINDOW '1 s' AT_LEAST '1 hour'", "available-now"),
        ("LDOP WINDOW '1 s' AT_LEAST '1 hour'", "available-now"),
        ("QUANTILE 0.9 AT_LEAST '1 hour'", "available-now"),
        ("SEQUENCE '1 hour' AT_LEAST '1 hour'", "available-now"),
        ("SPECULATIVE SLACK '1 hour' ALPHA 1", "available-now"),
    ],
)
def test_the_end_of_the_input_lets_go_what_waits(disorder: str, trigger: str) -> None:
    Path("all.sql").write_text(
        f"MATCH_RECOGNIZE (ORDER BY ts MEASURES A.seq AS n PATTERN (A) DISORDER {disorder} "
        "EMIT CONFIRMED)"
    )
    Path("pairs.sql").write_text(PAIRS.replace("DEFINE", f"DISORDER {disorder} DEFINE"))
    delayed = "events:simple?rate=1000&limit=25&paced=false&disorder=9 ms&delayed=0.5"
    arguments = ["--from", delayed, "--max-events", "10", "--trigger", trigger, "--limit", "100"]
    code, out, error = stream("all.sql", *arguments)
    numbers = [int(line) for line in out if line.strip().isdigit()]
    assert (code, numbers) == (0, list(range(25))), error
    code, out, error = stream("all.sql", "pairs.sql", *arguments)
    assert (code, error.splitlines()[-1]) == (0, "27 rows")


FIRST = "MATCH_RECOGNIZE (ORDER BY ts MEASURES A.seq AS n PATTERN (A) DEFINE A AS seq < 2)"
PAIRS = """MATCH_RECOGNIZE (ORDER BY ts MEASURES B.seq AS n, B.seq - A.seq AS steps PATTERN (A B)
                           DEFINE A AS seq > 20)"""
GENERATED = ["--from", "events:simple?rate=10&limit=25&paced=false", "--trigger", "available-now"]


def test_several_queries_read_one_stream_and_rows_say_whose_they_are() -> None:
    Path("first.sql").write_text(FIRST)
    Path("pairs.sql").write_text(PAIRS)
    several = ["first.sql", "pairs.sql", *GENERATED, "--max-events", "10", "--record", "kept"]
    code, out, error = stream(*several)
    assert (code, error.splitlines()[-1]) == (0, "4 rows")
    shown = [line.split() for line in out if line]
    assert shown == [
        ["query", "n", "steps"],
        ["first", "0", "NULL"],
        ["first", "1", "NULL"],
        ["pairs", "22", "1"],
        ["pairs", "24", "1"],
    ]
    replayed = CliRunner().invoke(app, ["replay", "kept"]).stdout.splitlines()
    assert [line.split()[3] for line in replayed[1:-2]] == ["2", "0", "2"]
    assert replayed[-2].split()[:3] == ["4", "end", "0"]
    assert replayed[-1] == "4 steps of 'first', 'pairs'"
    explained = CliRunner().invoke(app, ["replay", "kept", "--explain", "--until", "1"]).stdout
    assert "\nfirst:\nn\n0\n1\n" in explained


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["first.sql", "other/first.sql"], "'first.sql' and 'other/first.sql' have queries of one"),
        (["first.sql", "statement.sql"], "statement.sql"),
        (["first.sql", "bad.sql"], "bad.sql: measure n, line 1"),
        (["first.sql", "text.sql"], "varchar in 'text'"),
        (["first.sql", "pairs.sql", "--name", "first"], "--name goes with one query file"),
    ],
)
def test_queries_that_cannot_run_together_are_refused(arguments: list[str], said: str) -> None:
    Path("other").mkdir()
    for name in ("first", "other/first"):
        Path(f"{name}.sql").write_text(FIRST)
    Path("pairs.sql").write_text(PAIRS)
    Path("statement.sql").write_text(f"SELECT * FROM events {FIRST}")
    Path("bad.sql").write_text(FIRST.replace("A.seq", "A.nothing"))
    Path("text.sql").write_text(FIRST.replace("A.seq AS", "'x' AS"))
    code, out, error = stream(*arguments, *GENERATED)
    assert (code, out) == (2, [])
    assert said in error


GROUP = """
import outpace as op
first = op.Query("first").order_by("ts").pattern("A").define(A="seq < 2").measures(n="A.seq")
pairs = (op.Query("pairs").order_by("ts").pattern("A B").define(A="seq > 20")
         .measures(n="B.seq", steps="B.seq - A.seq"))
both = op.group(first, pairs)
"""


def test_a_group_in_python_runs_as_files_do() -> None:
    Path("first.sql").write_text(FIRST)
    Path("pairs.sql").write_text(PAIRS)
    Path("more.sql").write_text(FIRST)
    Path("both.py").write_text(GROUP)
    wanted = stream("first.sql", "pairs.sql", *GENERATED)
    assert stream("both.py", *GENERATED, "--record", "kept") == wanted
    replayed = CliRunner().invoke(app, ["replay", "kept", "--query", "both.py"])
    assert replayed.stdout.splitlines()[-1] == "2 steps of 'first', 'pairs'"
    assert stream("both.py", *GENERATED, "--name", "both") == wanted
    code, out, _ = stream("both.py", *GENERATED, "--name", "pairs")
    assert (code, [line.split() for line in out]) == (0, [["n", "steps"], ["22", "1"], ["24", "1"]])
    code, out, error = stream("both.py", "more.sql", *GENERATED)
    assert (code, error.splitlines()[-1]) == (0, "6 rows")
    Path("both.py").write_text(GROUP.replace("seq > 20", "seqq > 20"))
    assert "both.py, query 'pairs': define A" in stream("both.py", *GENERATED)[2]
    Path("both.py").write_text(f"{GROUP}join = op.Join(on='id', within=5, time='ts')\n")
    assert "defines 2 queries\n  both.py\n  both, join\n" in stream("both.py", *GENERATED)[2]
    assert "first.py' and 'both.py'" in stream_twice()


def stream_twice() -> str:
    Path("both.py").write_text(GROUP)
    Path("first.py").write_text(GROUP)
    return stream("first.py", "both.py", *GENERATED)[2]


def test_new_files_are_taken_until_it_is_stopped(folder: Path) -> None:
    Path("grows").mkdir()
    pq.write_table(TICKS.slice(0, 300), "grows/1.parquet")
    feed = FilesFeed(folder / "grows", DataFormat.PARQUET, TextOptions(), TICKS.schema)
    text, stop = io.StringIO(), StopRequest()
    console = Console(file=text, width=100)
    writer = ConsoleWriter(console, 1000)
    query = op.Query.from_sql(CLAUSE)
    arguments = (query, [feed], writer, {"processingTime": "10 milliseconds"}, stop, console)
    running = threading.Thread(target=run_in_process, args=arguments)
    running.start()
    pq.write_table(TICKS.slice(300), ".hidden")
    Path(".hidden").rename("grows/2.parquet")
    while text.getvalue().count("2024-01-02") < pushed() and running.is_alive():
        stop.event.wait(0.01)
    stop.event.set()
    running.join()
    assert text.getvalue().splitlines()[-1] == f"{pushed()} rows"


@dataclass
class Once:
    """A feed that has two events and then none."""

    schema: pa.Schema
    rows: pa.Table
    ended: bool = False

    def freeze(self) -> None:
        """Nothing else comes."""

    def take(self) -> pa.Table:
        """Return the events, once."""
        rows, self.rows = self.rows, self.schema.empty_table()
        return rows


def test_what_waits_by_the_clock_is_shown_without_another_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ORDERS, Patient, PatientOrder)
    rows = pa.table({"ts": [3, 2], "x": [3, 2]})
    text, stop = io.StringIO(), StopRequest()
    console = Console(file=text, width=100)
    asked = ASKED.disorder(Patient(100, "20 ms"))
    timing = {"processingTime": "5 milliseconds"}
    feeds = [Once(rows.schema, rows)]
    arguments = (asked, feeds, ConsoleWriter(console, 9), timing, stop, console)
    running = threading.Thread(target=run_in_process, args=arguments)
    running.start()
    stop.event.wait(0.01)
    deadline = time.monotonic() + 20
    while "3" not in text.getvalue() and running.is_alive() and time.monotonic() < deadline:
        stop.event.wait(0.01)
    stop.event.set()
    running.join()
    assert text.getvalue().splitlines()[-1] == "1 row"


def test_a_later_file_with_another_type_is_named_with_its_column(folder: Path) -> None:
    grows = folder / "grows"
    grows.mkdir()
    feed = FilesFeed(grows, DataFormat.PARQUET, TextOptions(), pa.schema({"ts": pa.int64()}))
    pq.write_table(pa.table({"ts": [1.5]}), grows / "a.parquet")
    with pytest.raises(op.DataError) as caught:
        feed.take()
    assert caught.value.message == f"column 'ts' is double in '{grows}/a.parquet'"
    assert caught.value.detail == "it is int64 in the files before it"
    for name, text in (("1.csv", "ts,x\n1,1\n"), ("2.csv", "ts,x\n2,2.5\n")):
        (folder / "csv").mkdir(exist_ok=True)
        (folder / "csv" / name).write_text(text)
    for command in (["run", "clause.sql", "-i"], ["stream", "clause.sql", "--from"]):
        (folder / "clause.sql").write_text("MATCH_RECOGNIZE (ORDER BY ts PATTERN (A))")
        more = ["--trigger", "once"] if command[0] == "stream" else []
        done = CliRunner().invoke(app, [*command, "csv", *more])
        assert done.exit_code == 2
        assert f"{folder}/csv/2.csv, line 2, column x" in done.stderr
        assert 'hint: name the types: --schema "ts bigint, x double"' in done.stderr


@dataclass
class Pieces:
    """Times that come piece by piece."""

    times: list[list[int]]
    schema: pa.Schema = field(default_factory=lambda: pa.schema([("ts", pa.int64())]))

    @property
    def ended(self) -> bool:
        return not self.times

    def freeze(self) -> None:
        """All is there."""

    def take(self) -> pa.Table:
        return pa.table({"ts": self.times.pop(0) if self.times else []}, schema=self.schema)


def test_late_events_are_dropped_as_on_spark(folder: Path) -> None:
    Path("late").mkdir()
    pq.write_table(pa.table({"ts": [1, 3, 2], "x": [1, 2, 3]}), "late/1.parquet")
    Path("all.sql").write_text("MATCH_RECOGNIZE (ORDER BY ts MEASURES A.ts AS at PATTERN (A))")
    feed = FilesFeed(
        folder / "late", DataFormat.PARQUET, TextOptions(), pq.read_schema("late/1.parquet")
    )
    matcher = op.open(op.Query.from_sql(Path("all.sql").read_text()).disorder(op.InOrder()))
    assert matcher.push(feed.take())["at"].to_pylist() == [1, 2, 3]
    code, out, _ = stream("all.sql", "--from", "late", "--trigger", "once")
    assert (code, [line.strip() for line in out]) == (0, ["at", "1", "2", "3"])


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("mp", op.MPKSlack(arrival="at")),
        (
            "AQ ERROR 0.5 AGGREGATE COUNT WINDOW 9",
            op.AQKSlack(error=0.5, aggregate="count", window=9, arrival="at"),
        ),
        ("LDOP WINDOW 9", op.LDOP(window=9, arrival="at")),
        ("SEQUENCE '3 us' ALPHA 0.5", op.Sequence("3 us", alpha=0.5, arrival="at")),
        ("QUANTILE 0.6", op.Quantile(0.6, arrival="at")),
    ],
)
def test_every_reorderer_is_chosen_by_an_option(said: str, meant: op.MPKSlack) -> None:
    numbers = [0, 2, 1, 3, 6, 4, 5, 8, 7, 12, 9, 10, 11, 13, 3]
    rows = {"ts": [10 * one for one in numbers], "seq": numbers, "at": range(len(numbers))}
    table = pa.table(rows)
    Path("disordered").mkdir()
    pq.write_table(table, "disordered/1.parquet")
    Path("all.sql").write_text("MATCH_RECOGNIZE (ORDER BY ts MEASURES A.seq AS n PATTERN (A))")
    query = op.Query.from_sql(Path("all.sql").read_text()).disorder(meant)
    matcher = op.open(query)
    expected = matcher.push(table)["n"].to_pylist()
    assert matcher.order.late
    assert expected
    arguments = ["--from", "disordered", "--trigger", "once", "--disorder", f"{said} ARRIVAL at"]
    code, out, error = stream("all.sql", *arguments)
    assert code == 0
    assert [int(line) for line in out[1:]][: len(expected)] == expected
    assert error.endswith(f", {matcher.order.late} late\n")


def test_an_event_that_several_queries_drop_is_late_once() -> None:
    queries = [op.Query(name).order_by("ts").pattern("A").measures(at="A.ts") for name in "ab"]
    both = QueryFiles(tuple((Path(query.name), query) for query in queries))
    text, feed = io.StringIO(), Pieces([[5, 9], [7, 6]])
    console = Console(file=text, force_terminal=True, width=200)
    timing = {"availableNow": True}
    run_in_process(both, [feed], ConsoleWriter(console, 5), timing, StopRequest(), console)
    assert "2 late" in text.getvalue()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["clause.sql", "--from", "many", "--to", "out"], "progress is kept in a checkpoint"),
        (["clause.sql", "--from", "many", "--checkpoint", "c"], "progress is kept in a checkpoint"),
        (["clause.sql", "--from", "many", "--metrics-port", "0"], "metrics are counted there"),
        (["statement.sql", "--from", "ticks=many"], "a statement runs there"),
        (["clause.sql", "--from", "many", "--late-to", "l"], "side outputs are written there"),
        (["clause.sql", "--from", "many", "--option", "maxFilesPerTrigger=1"], "looked for there"),
    ],
)
def test_everything_else_goes_to_spark(arguments: list[str], said: str) -> None:
    code, _, error = stream(*arguments)
    assert code == 2
    assert error.startswith("on Spark: ")
    assert said in error.splitlines()[0]
    assert "Spark needs Java" in error


def test_wrong_columns_are_refused_at_once() -> None:
    Path("wrong.sql").write_text(CLAUSE.replace("DOWN.price", "DOWN.pirce"))
    code, out, error = stream("wrong.sql", "--from", "many")
    assert (code, out) == (2, [])
    assert "unknown column 'pirce'" in error


@pytest.mark.parametrize(
    ("options", "sql", "python"),
    [
        ([], "INVALID QUARANTINE behind", 'invalid="quarantine"'),
        (["--disorder", "SLACK 1 FLAG timed"], "PATIENCE '2 s'", None),
        (["--emit", "latest"], "DISORDER SPECULATIVE SLACK '2 s'", 'op.Speculative("2 s")'),
    ],
)
def test_hints_are_in_the_notation_of_the_query(
    options: list[str], sql: str, python: str | None
) -> None:
    """An option is in SQL also beside a query in Python."""
    Path("events").mkdir()
    Path("events/some.jsonl").write_text('{"ts": 5}\n{"ts": null}\n')
    Path("q.sql").write_text("MATCH_RECOGNIZE (ORDER BY ts MEASURES A.ts AS t PATTERN (A))")
    built = 'op.Query().order_by("ts").pattern("A").measures(t="A.ts")'
    Path("q.py").write_text(f"import outpace as op\nquery = {built}\n")
    for name, said in (("q.sql", sql), ("q.py", python or sql)):
        code, _, error = stream(name, "--from", "events", "--from-format", "json", *options)
        assert code == 2
        (hint,) = (line for line in error.splitlines() if line.startswith("  hint: "))
        assert said in hint


def test_a_stream_is_recorded_and_replayed() -> None:
    with create("ticks.log", TICKS.schema).writer() as writer:
        writer.append(TICKS)
    arguments = ["clause.sql", "--from", "log:ticks.log", "--max-events", "100"]
    code, _, error = stream(*arguments, "--trigger", "available-now", "--record", "recording")
    assert (code, error.splitlines()[-1]) == (0, f"{whole()} rows")
    done = CliRunner().invoke(app, ["replay", "recording"])
    lines = done.stdout.splitlines()
    assert (done.exit_code, done.stderr) == (0, "")
    assert lines[0].split()[:4] == ["step", "came", "matches", "kept"]
    assert sum(int(line.split()[3]) for line in lines[1:-2]) == pushed()
    assert lines[-2].split()[:4] == [str(len(lines) - 2), "end", str(whole() - pushed()), "0"]
    assert lines[-1] == f"{-(-TICKS.num_rows // 100) + 1} steps of 'clause'"
    assert stream(*arguments, "--trigger", "once", "--record", "recording")[0] == 2


@pytest.mark.parametrize("reason", [["--spark"], ["--to", "found"], ["--checkpoint", "kept"]])
def test_a_stream_on_spark_is_not_recorded(reason: list[str]) -> None:
    code, _, error = stream("clause.sql", "--from", "many", "--record", "recording", *reason)
    assert (code, error.splitlines()[0]) == (2, "[unsupported] a stream on Spark is not recorded")
    assert not Path("recording").exists()


JOIN = """SELECT * FROM orders AS o LEFT JOIN payments AS p ON o.id = p.order_id
          WITHIN 5 BETWEEN o.ts AND p.ts"""
SIDES = ["--from", "log:orders.log", "--from", "payments=log:paid.log"]


def write_sides() -> None:
    items = ["tea", "jam", "oil", "rye"]
    orders = pa.table({"id": [1, 2, 3, 4], "ts": [10, 20, 30, 40], "item": items})
    paid = pa.table({"order_id": [1, 3], "ts": [12, 29], "paid": [3.5, 1.0]})
    for name, rows in (("orders", orders), ("paid", paid)):
        with create(f"{name}.log", rows.schema).writer() as writer:
            writer.append(rows)


def test_a_join_of_two_inputs_is_shown_and_recorded() -> None:
    write_sides()
    Path("join.sql").write_text(JOIN)
    arguments = ["join.sql", *SIDES, "--trigger", "available-now", "--record", "kept"]
    code, out, error = stream(*arguments)
    assert (code, error.splitlines()[-1]) == (0, "4 rows"), error
    assert [line.split() for line in out] == [
        ["id", "ts", "ts_left", "item", "ts_right", "paid"],
        ["1", "12", "10", "tea", "12", "3.5"],
        ["2", "25", "20", "jam", "NULL", "NULL"],
        ["3", "30", "30", "oil", "29", "1.0"],
        ["4", "45", "40", "rye", "NULL", "NULL"],
    ]
    replayed = CliRunner().invoke(app, ["replay", "kept"]).stdout.splitlines()
    assert [re.split(r" {2,}", line.strip())[1:3] for line in replayed[1:-1]] == [
        ["4 rows of left", "0"],
        ["2 rows of right", "2"],
        ["end of left", "0"],
        ["end", "2"],
    ]


def test_nobody_tells_the_time_on_the_command_line() -> None:
    Path("all.sql").write_text(FIRST)
    code, _, error = stream("all.sql", *GENERATED, "--disorder", "PUNCTUATION")
    assert (code, error.splitlines()[0]) == (
        2,
        "[bind] nobody tells outpace stream that no earlier event comes",
    )


PYTHON_JOIN = """
import outpace as op
joined = op.Join(on="id", within=5, time="ts", how="left")
"""


def write_python_join() -> None:
    """Write the sides by their own names, and the join of them in Python."""
    write_sides()
    paid = pa.table({"id": [1, 3], "ts": [12, 29], "paid": [3.5, 1.0]})
    with create("by_id.log", paid.schema).writer() as writer:
        writer.append(paid)
    Path("join.sql").write_text(JOIN)
    Path("join.py").write_text(PYTHON_JOIN)


def test_a_join_in_python_runs_as_a_statement_does() -> None:
    write_python_join()
    wanted = stream("join.sql", *SIDES, "--trigger", "once")
    inputs = ["--from", "log:orders.log", "--from", "log:by_id.log"]
    assert stream("join.py", *inputs, "--trigger", "once", "--record", "kept") == wanted
    assert stream("join.py", *inputs, "--trigger", "once", "--slack", "7") == wanted
    named = ["--from", "right=log:by_id.log", "--from", "left=log:orders.log"]
    assert stream("join.py", *named, "--trigger", "once") == wanted
    replayed = CliRunner().invoke(app, ["replay", "kept", "--query", "join.py"])
    assert replayed.stdout.splitlines()[-1] == "4 steps of 'join'"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (SIDES[:2], "a join reads two inputs, not 1"),
        (["other.sql", *SIDES], "a join does not run together with others\n  join.py"),
        ([*SIDES, "--emit", "confirmed"], "--emit goes with a query"),
        ([*SIDES, "--timed-out-to", "late"], "a join has no partial matches that time out"),
        ([*SIDES, "--late-to", "late", "--record", "x"], "side outputs are written there"),
        ([*SIDES, "--source", "east"], "a join has no sources that are told apart"),
        ([*SIDES, "--disorder", "SLACK 5 LATE SIDE"], "the late events of 'join' have no place"),
        ([*SIDES, "--current"], "--current goes with one query"),
        (SIDES, "unknown column 'id'"),
    ],
)
def test_a_join_in_python_that_cannot_run_is_refused(arguments: list[str], said: str) -> None:
    write_python_join()
    Path("other.sql").write_text(FIRST)
    code, out, error = stream("join.py", *arguments)
    assert (code, out) == (2, [])
    assert said in error


WINDOW = """SELECT count(*) OVER w FROM orders WINDOW w AS (ORDER BY ts
    ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING PATTERN (A))"""


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (JOIN.replace("p.order_id", "p.odrer_id"), SIDES, "join.sql, line 1, column "),
        (f"{JOIN} DISORDER SLACK 5 LATE SIDE", SIDES, "late rows of a join have no place"),
        (f"{JOIN} DISORDER PUNCTUATION", SIDES, "nobody tells outpace stream"),
        (f"{JOIN} DISORDER SPECULATIVE", SIDES, "op.Speculative does not go with a join"),
        (JOIN, [*SIDES, "--slack", "5"], "or into the join"),
        (JOIN, [*SIDES, "--late-to", "late"], "a statement has no side outputs"),
        (JOIN, [*SIDES[:2], *SIDES[:2]], "two inputs are called 'orders'"),
        (FIRST, SIDES, "a query reads one input, not 2"),
        (JOIN.replace("*", "count(*)"), SIDES, "the aggregate count needs all matches"),
        (f"{JOIN} ORDER BY id", SIDES, "ORDER BY needs all matches"),
        (WINDOW, SIDES[:2], "a row pattern in a window does not go with a stream"),
        (JOIN, [], "there is no input"),
    ],
)
def test_statements_that_cannot_run_are_refused(text: str, arguments: list[str], said: str) -> None:
    write_sides()
    Path("join.sql").write_text(text)
    code, out, error = stream("join.sql", *arguments, "--trigger", "available-now")
    assert (code, out) == (2, [])
    assert said in error


@pytest.mark.parametrize(
    "text",
    [
        JOIN.replace("*", "o.item, p.paid"),
        f"{JOIN} WHERE id > 1",
        JOIN.replace("orders AS", "(SELECT * FROM orders WHERE id > 1) AS"),
    ],
)
def test_other_statements_with_joins_run_on_spark(text: str) -> None:
    write_sides()
    inputs = [input_of(one) for one in SIDES[1::2]]
    asked = SqlText(text, "outpace", Path("join.sql"))
    assert why_spark(asked, inputs, Additions(), TextOptions()) is not None


SPECULATIVE = """
MATCH_RECOGNIZE (ORDER BY ts MEASURES A.price AS low, B.price AS high
    AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) DISORDER SPECULATIVE SLACK (SLACK 10) ALPHA 0
    DEFINE B AS B.price > A.price)
"""
LEGEND = "tentative: may be taken back   confirmed: stays   retracted: taken back"


def changing(folder: Path) -> list[str]:
    """Write a query and a stream whose second file takes a match back; return the arguments."""
    (folder / "rise.sql").write_text(SPECULATIVE)
    (folder / "coming").mkdir()
    for number, (ts, price) in enumerate([([1, 3, 4], [1, 3, 2]), ([2, 14, 15], [2, 0, 0])]):
        pq.write_table(pa.table({"ts": ts, "price": price}), folder / f"coming/{number}.parquet")
    return ["rise.sql", "--from", "coming"]


def test_changes_are_told_in_plain_words_where_no_terminal_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*changing(folder), "--trigger", "available-now"]
    # Both files are one batch here, so nothing is taken back.
    code, out, _ = stream(*arguments)
    assert code == 0
    assert [line.split()[:3] for line in out] == [
        ["match", "low", "high"],
        ["confirmed", "1", "2"],
        ["confirmed", "2", "3"],
    ]
    _, out, _ = stream(*arguments, "--emit", "confirmed")
    assert [line.split() for line in out] == [["low", "high"], ["1", "2"], ["2", "3"]]
    code, _, error = stream("clause.sql", "--from", "coming", "--emit", "latest")
    assert (code, "every match is the latest" in error) == (2, True)


def test_events_that_wait_for_the_clock_are_told_of() -> None:
    schema = pa.schema({"ts": pa.int64(), "source": pa.string()})
    disorder = op.Speculative(2, alpha=0, clock="cam")
    query = op.Query("q").order_by("ts").pattern("A").measures(n="A.ts").disorder(disorder)
    for pieces, said in (
        ([[(1, "a"), (2, "b")], [(3, "a")]], True),
        ([[(1, "a"), (2, "cam")], [(3, "a")]], False),
    ):
        text, stop = io.StringIO(), StopRequest()
        console = Console(file=text, width=100)
        tables = [pa.table([*zip(*piece, strict=True)], schema=schema) for piece in pieces]
        feed = Stopping(schema, tables, stop)
        arguments = ([feed], ConsoleWriter(console, 9), {"processingTime": "1 milliseconds"})
        run_in_process(query, *arguments, stop, console)
        told = "2 events wait: none of 'cam' has come, which moves the clock"
        assert text.getvalue().count(told) == said
        # The end says it, too.
        assert ("3 without a clock" in text.getvalue().splitlines()[-1]) == said


@dataclass
class Stopping:
    """A feed that asks to stop when it has no more."""

    schema: pa.Schema
    pieces: list[pa.Table]
    stop: StopRequest
    ended: bool = False

    def freeze(self) -> None:
        """Nothing else comes."""

    def take(self) -> pa.Table:
        if self.pieces:
            return self.pieces.pop(0)
        self.stop.event.set()
        return self.schema.empty_table()


@pytest.mark.parametrize("plain", [False, True])
def test_on_a_terminal_changes_have_three_colours_and_a_legend(folder: Path, plain: bool) -> None:
    arguments = changing(folder)
    (folder / "coming" / "1.parquet").rename(folder / "later.parquet")
    terminal, inside = pty.openpty()
    settings = {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    given = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    running = subprocess.Popen(
        ["env", "--default-signal=INT", OUTPACE, "stream", *arguments, "--trigger", "200 ms"],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env={**given, **settings, **({"NO_COLOR": "1"} if plain else {})},
        start_new_session=True,
    )
    os.close(inside)
    said = read_until(terminal, "tentative ")
    (folder / "later.parquet").rename(folder / "coming" / "1.parquet")
    said += read_until(terminal, "confirmed  ")
    running.send_signal(signal.SIGINT)
    said += read_to_end(terminal)
    assert running.wait(60) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said)
    assert (LEGEND in text) != plain
    rows = [
        line.strip().split()[:3]
        for line in text.splitlines()
        if re.match(r"(tentative|confirmed|retracted) +\d", line.strip())
    ]
    assert rows == [
        ["tentative", "1", "3"],
        ["retracted", "1", "3"],
        ["confirmed", "1", "2"],
        ["confirmed", "2", "3"],
    ]
    for word, colour in (("tentative", 33), ("retracted", 31), ("confirmed", 32)):
        assert bool(re.search(rf"\x1b\[{colour}m{word}", said)) != plain


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "present", "--emit", "confirmed"], "the rows do not tell them"),
        (["--to", "present", "--to-format", "csv"], "a folder of Parquet files, or a table"),
        ([], "a folder of Parquet files, or a table"),
        (["--to", "s3://bucket/present"], "has no links"),
        (["clause.sql", "--to", "present"], "--current goes with one query"),
    ],
)
def test_what_cannot_follow_changes_is_refused(
    folder: Path, arguments: list[str], message: str
) -> None:
    code, _, error = stream(*changing(folder), "--current", *arguments)
    assert (code, message in error) == (2, True)


def test_present_matches_have_a_checkpoint_beside_them(folder: Path) -> None:
    written = output_of("present", console=Console(), current=True)
    assert checkpoint_of(None, written, folder).path == folder / "present.checkpoint"
    table = output_of("postgres:host=/nowhere#present", console=Console(), current=True)
    assert getattr(table, "current", False)
