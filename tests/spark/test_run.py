"""`outpace run`: what it writes is the result in process; bad input is named and leaves nothing."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession
from rich.console import Console
from support.run_inputs import (
    CLAUSE,
    NAMES,
    STATEMENT,
    TICKS,
    bad_csv,
    expected,
    rows,
    write_inputs,
)
from typer.testing import CliRunner

import outpace as op
from outpace.cli.main import app
from outpace.cli.progress import ClassicFeed, Tasks, spark_progress
from outpace.cli.run_input import TextOptions, read_inputs
from outpace.cli.run_local import LeftToSpark, found_in_process, why_spark
from outpace.cli.run_query import SqlText
from outpace.errors import DataError
from outpace.hosts.spark.failure import spark_error


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the same ticks in every format, and the same query in every form."""
    write_inputs(tmp_path)
    return tmp_path


@pytest.fixture
def run(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.chdir(folder)
    yield Run(folder)
    spark.catalog.dropTempView("ticks")


class Run:
    """Runs the command in this process, on the session of the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, ["run", *arguments, "--spark"])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, done.stderr


def read_json(path: Path) -> pa.Table:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return pa.Table.from_pylist(found).select(NAMES)


def test_a_join_with_within_is_left_to_spark(run: Run, folder: Path) -> None:
    text = (
        "SELECT a.symbol, a.ts, b.volume AS other FROM ticks a LEFT JOIN"
        " (SELECT * FROM ticks WHERE volume > 900) b ON a.symbol = b.symbol"
        " WITHIN INTERVAL '2' SECOND BETWEEN a.ts AND b.ts WHERE a.volume < 300"
    )
    asked = SqlText(text, "outpace", folder / "join.sql")
    (folder / "join.sql").write_text(text)
    inputs = read_inputs(["ticks.parquet"], None, TextOptions())
    assert why_spark(asked, inputs) == "the statement has a join with WITHIN"
    code, _, error = run("join.sql", "--input", "ticks.parquet", "-o", "joined.parquet")
    assert (code, error) == (0, "")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("ticks", TICKS)
        wanted = op.sql(connection, text)
    assert wanted.num_rows > wanted["other"].null_count > 10
    tables = [table.sort_by("ts") for table in (wanted, pq.read_table(folder / "joined.parquet"))]
    found = [[str(row) for row in table.drop(["ts"]).to_pylist()] for table in tables]
    assert sorted(found[0]) == sorted(found[1])
    assert tables[0]["ts"].cast("int64").equals(tables[1]["ts"].cast("int64"))


def test_each_kind_of_query_input_and_output(run: Run, folder: Path) -> None:
    good = expected()
    assert len(good) > 50

    code, out, error = run("statement.sql", "--input", "ticks.parquet", "-o", "found.parquet")
    assert (code, error) == (0, "")
    assert out == f"{len(good)} rows in {folder}/found.parquet\n"
    assert rows(pq.read_table(folder / "found.parquet")) == good

    assert run("program.py", "-i", "ticks.csv", "--output", "found.csv")[0] == 0
    assert rows(pa.csv.read_csv(folder / "found.csv")) == good

    assert run("clause.sql", "-i", "ticks.jsonl", "--output", "found.jsonl.gz")[0] == 0
    (folder / "found.jsonl").write_bytes(gzip.decompress((folder / "found.jsonl.gz").read_bytes()))
    assert rows(read_json(folder / "found.jsonl")) == good

    assert run("statement.sql", "-i", "ticks=many", "--output", "parts/")[0] == 0
    assert rows(pq.read_table(folder / "parts")) == good
    hidden = [one.name for one in folder.iterdir() if one.name.startswith(".")]
    assert hidden == []


def test_the_console_shows_the_first_rows_and_their_number(run: Run) -> None:
    good = expected()
    code, out, _ = run("statement.sql", "-i", "ticks=packed.csv.gz", "--limit", "2")
    assert code == 0
    assert out.splitlines()[-1] == f"{len(good)} rows, the first 2 shown"
    assert out.count("ACME") + out.count("BOLT") + out.count("CORE") + out.count("DUNE") == 2
    code, out, _ = run("statement.sql", "-i", "ticks.parquet", "--limit", "0")
    assert (code, out) == (0, f"{len(good)} rows, the first 0 shown\n")
    code, out, _ = run("program.py", "-i", "ticks.parquet", "--output-format", "csv")
    assert code == 0
    assert rows(pa.csv.read_csv(io.BytesIO(out.encode()))) == good


def test_a_statement_joins_several_inputs(run: Run, folder: Path) -> None:
    (folder / "names.csv").write_text("symbol,title\nACME,Acme Corporation\n")
    (folder / "join.sql").write_text(
        f"SELECT title, count(*) AS n FROM (SELECT * FROM ticks WHERE volume > 0) {CLAUSE} m "
        "JOIN names ON names.symbol = m.symbol GROUP BY title"
    )
    arguments = ["-i", "ticks.parquet", "-i", "names.csv", "--output-format", "json"]
    code, out, error = run("join.sql", *arguments)
    assert (code, error) == (0, "")
    count = sum(1 for row in expected() if row[0] == "ACME")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"title": "Acme Corporation", "n": count}
    ]


def test_a_result_without_rows_keeps_its_columns(run: Run, folder: Path) -> None:
    (folder / "none.sql").write_text(f"SELECT * FROM ticks {CLAUSE} WHERE ticks < 0")
    for name in ("none.parquet", "none.csv"):
        assert run("none.sql", "-i", "ticks.parquet", "-o", name)[0] == 0
    assert pq.read_table(folder / "none.parquet").schema.names == NAMES
    assert pq.read_table(folder / "none.parquet").num_rows == 0
    assert (folder / "none.csv").read_text() == "symbol,bottom,ticks,ends\n"
    assert run("none.sql", "-i", "ticks.parquet")[1] == "0 rows\n"


def test_what_is_written_in_process_is_what_spark_writes(run: Run, folder: Path) -> None:
    pq.write_table(every_type(), folder / "zoo.parquet")
    (folder / "zoo.sql").write_text(
        "MATCH_RECOGNIZE (ORDER BY id ALL ROWS PER MATCH PATTERN (A) DEFINE A AS TRUE)"
    )
    for name in ("found.csv", "found.json", "found.parquet"):
        arguments = ["zoo.sql", "-i", "zoo.parquet", "--overwrite", "-o"]
        assert run(*arguments, f"spark-{name}")[0] == 0
        done = CliRunner().invoke(app, ["run", *arguments, f"here-{name}"])
        assert done.exit_code == 0
        assert done.stderr.startswith("in process: ")
        if name.endswith("parquet"):
            here, there = (pq.read_table(folder / f"{host}-{name}") for host in ("here", "spark"))
            assert here.schema == there.schema
            assert str(here.sort_by("id").to_pylist()) == str(there.sort_by("id").to_pylist())
        else:
            here_text, there_text = (
                (folder / f"{host}-{name}").read_text().splitlines() for host in ("here", "spark")
            )
            assert sorted(here_text) == sorted(there_text)
    assert run(*arguments[:3], "-o", "spark/", "--output-format", "csv")[0] == 0
    arguments = ["run", *arguments[:3], "-o", "here/", "--output-format", "csv"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    endings = [
        sorted({one.name.partition(".")[2] or one.name for one in (folder / host).glob("[!.]*")})
        for host in ("here", "spark")
    ]
    assert endings[0] == endings[1] == ["_SUCCESS", "csv"]


def every_type() -> pa.Table:
    """Rows with every type that is written in process, and values that are hard to write."""
    numbers = [1.0, 1e7, 9999999.5, 0.001, 0.00012, -0.0, 1e300, float("inf"), float("nan"), None]
    texts = ["a", "", None, ' "b" ', "c,d", " e", "ü/\\", "\t", "'", "#f"]
    whole = [0, 1, -1, 100, None, 7, 8, 9, 10, 11]
    moments = [n if n is None else n * 1_000_001 for n in whole]
    exact = [n if n is None else Decimal(n).scaleb(-3) for n in whole]
    return pa.table(
        {
            "id": range(10),
            "text": texts,
            "double": numbers,
            "float": pa.array([*numbers[:6], 1.5e30, 0.1, 3.3, None], pa.float32()),
            "tiny": pa.array(whole, pa.int8()),
            "exact": pa.array(exact, pa.decimal128(10, 3)),
            "small": pa.array([n if n is None else Decimal(n).scaleb(-9) for n in whole]),
            "truth": pa.array([n if n is None else n > 0 for n in whole]),
            "day": pa.array(whole, pa.date32()),
            "moment": pa.array(moments, pa.timestamp("us", "UTC")),
            "local": pa.array(moments, pa.timestamp("us")),
        }
    )


#: Over `numbers()`: what DuckDB is told to compute must be what Spark computes.
SAME = [
    "SELECT id, tiny + tiny AS a, tiny + 1 AS b, small - tiny AS c, whole * small AS d, "
    "large - 3000000000 AS e, -tiny AS f, - -large AS g, whole / small AS h, large / 3 AS i, "
    "double / whole AS j, double % 3 AS k, tiny % small AS l, whole % -1 AS m, 7 % small AS n, "
    "double * 1.1 - whole AS o, (whole - tiny) / large * 100 AS p, 5 AS q, 3000000000 AS r, "
    "-double / -3 AS s, NULL IS NULL AS t FROM numbers WHERE small <> 0 AND whole > -100",
    "SELECT least % -1 AS a, least_long % -1 AS b, least + 1, lacking / zero, lacking % zero AS c "
    "FROM numbers WHERE id = 0",
    "SELECT count(*), COUNT(1) AS n, count(TINY), min(N.large), max(whole - 1 * tiny), "
    "max(-double), count(DISTINCT small), min(double * 1.10) FROM numbers N",
    "SELECT sum(tiny), SUM(small) AS b, sum(whole), avg(whole), avg(tiny + small), sum(large), "
    "Avg(N.large), sum(DISTINCT tiny % 2) AS d, avg(DISTINCT small), sum(lacking), avg(lacking), "
    "sum(whole) / avg(large), -sum(whole), sum(large) / count(*), avg(whole) * 2 - sum(tiny), "
    "sum(whole * tiny), sum(5), avg(zero) FROM numbers N",
    "SELECT id % 2 AS odd, sum(whole) AS s, avg(large) AS a, sum(tiny) % avg(whole) AS m "
    "FROM numbers GROUP BY id HAVING sum(whole) > -50 ORDER BY avg(large), s",
    "SELECT sum(whole), avg(tiny), sum(whole) / avg(tiny) AS n FROM numbers WHERE id < 0",
    "SELECT avg(n) AS a, sum(m) / 3 AS b FROM (SELECT sum(whole) AS n, count(*) AS m FROM numbers "
    "GROUP BY tiny) WHERE n <> 0",
    "SELECT * FROM (SELECT Whole, count(*) FROM numbers GROUP BY whole) WHERE `count(1)` > 0",
    "SELECT (tiny + 1), -small, whole / 2, LARGE, tiny - -1, -5 * tiny FROM numbers",
    "WITH a AS (SELECT tiny + 1 AS n FROM numbers), b AS (SELECT n * 2 AS m FROM a) "
    "SELECT m - 1 AS k FROM b WHERE m / 2 > 1 ORDER BY k DESC LIMIT 3",
]
#: Spark refuses these, and what runs in process leaves them to Spark.
REFUSED = [
    "SELECT least - 1 AS n FROM numbers",
    "SELECT id FROM numbers WHERE least - 1 < 5",
    "SELECT -least_long AS n FROM numbers",
    "SELECT least_long * 2 AS n FROM numbers",
    "SELECT tiny * tiny * tiny AS n FROM numbers WHERE id = 3",
    "SELECT double / zero AS n FROM numbers",
    "SELECT whole % zero AS n FROM numbers",
    "SELECT id FROM numbers WHERE whole / 0 > 1",
    "SELECT sum(least_long) AS n FROM numbers",
    "SELECT sum(least * whole) AS n FROM numbers",
    "SELECT sum(whole) / sum(zero) AS n FROM numbers",
]


def numbers() -> pa.Table:
    """Rows with whole numbers of every width, doubles, the smallest ones and none."""
    rows = range(5)
    return pa.table(
        {
            "id": rows,
            "tiny": pa.array([1, -2, None, 7, 3], pa.int8()),
            "small": pa.array([3, 0, 5, -4, None], pa.int16()),
            "whole": pa.array([-9, 4, 2**20, 12, -100], pa.int32()),
            "large": pa.array([2**40 + 1, 5, -1, None, 8], pa.int64()),
            "double": [0.1, -7.5, 1e17, None, -0.0],
            "least": pa.array([-(2**31) for _ in rows], pa.int32()),
            "least_long": pa.array([-(2**63) for _ in rows], pa.int64()),
            "zero": pa.array([0 for _ in rows], pa.int32()),
            "lacking": pa.array([None for _ in rows], pa.int32()),
        }
    )


def test_numbers_and_names_in_process_are_those_of_spark(spark: SparkSession, folder: Path) -> None:
    pq.write_table(numbers(), folder / "numbers.parquet")
    inputs = read_inputs([str(folder / "numbers.parquet")], None, TextOptions())
    spark.read.parquet(str(folder / "numbers.parquet")).createOrReplaceTempView("numbers")
    for text in SAME:
        asked = SqlText(text, "outpace", Path("same.sql"))
        assert why_spark(asked, inputs) is None
        here, there = found_in_process(asked, inputs).table, spark.sql(text).toArrow()
        assert here.schema.names == there.schema.names
        assert here.schema.types == there.schema.types
        assert sorted(map(str, here.to_pylist())) == sorted(map(str, there.to_pylist()))
    for text in REFUSED:
        asked = SqlText(text, "outpace", Path("refused.sql"))
        assert why_spark(asked, inputs) is None
        with pytest.raises(LeftToSpark):
            found_in_process(asked, inputs)
        with pytest.raises(ArithmeticException):
            spark.sql(text).toArrow()


def bad_json(folder: Path) -> tuple[list[str], list[str]]:
    lines = (folder / "ticks.jsonl").read_text().splitlines()
    row = json.loads(lines[300])
    lines[300] = json.dumps({**row, "volume": "many"})
    (folder / "bad.jsonl").write_text("\n".join(lines))
    types = ["--schema", "volume bigint"]
    return ["ticks=bad.jsonl", *types], [
        "'\"many\"' is not of type bigint",
        "bad.jsonl, line 301, column volume\n",
    ]


def bad_parquet(folder: Path) -> tuple[list[str], list[str]]:
    content = bytearray((folder / "ticks.parquet").read_bytes())
    metadata = pq.read_metadata(folder / "ticks.parquet").row_group(2)
    column = metadata.column(2)
    assert column.path_in_schema == "price"
    start = column.data_page_offset
    content[start : start + 20] = b"\xff" * 20
    (folder / "bad.parquet").write_bytes(content)
    return ["ticks=bad.parquet"], ["column 'price' in row group 2 of", "bad.parquet"]


@pytest.mark.parametrize("query", ["statement.sql", "filtered.sql"])
@pytest.mark.parametrize("spoil", [bad_csv, bad_json, bad_parquet])
def test_bad_data_is_named_and_leaves_nothing(
    run: Run, folder: Path, spoil: object, query: str
) -> None:
    assert callable(spoil)
    (folder / "filtered.sql").write_text(
        f"SELECT symbol, bottom FROM (SELECT * FROM ticks WHERE volume > 0) {CLAUSE}"
    )
    arguments, said = spoil(folder)
    (folder / "found.csv").write_text("what was there before")
    before = sorted(folder.iterdir())
    code, out, error = run(query, "-i", *arguments, "-o", "found.csv", "--overwrite")
    assert (code, out) == (2, "")
    assert error.startswith("[data] ")
    assert all(words in error for words in said), error
    assert "Traceback" not in error
    assert len(error.splitlines()) < 8
    assert sorted(folder.iterdir()) == before
    assert (folder / "found.csv").read_text() == "what was there before"


def test_what_spark_says_of_a_job_is_kept(run: Run, folder: Path) -> None:
    (folder / "cast.sql").write_text(f"SELECT CAST(symbol AS INT) AS n FROM ticks {CLAUSE}")
    before = sorted(folder.iterdir())
    code, _, error = run("cast.sql", "-i", "ticks.parquet", "-o", "found/")
    assert code == 2
    assert error.startswith("[data] Spark: ")
    assert "cannot be cast" in error
    assert "\tat " not in error
    assert sorted(folder.iterdir()) == before


def test_an_output_is_replaced_only_when_asked(run: Run, folder: Path) -> None:
    assert (
        run("clause.sql", "-i", "ticks.parquet", "-o", "found/", "--output-format", "csv")[0] == 0
    )
    first = sorted(one.name for one in (folder / "found").iterdir())
    code, _, error = run("clause.sql", "-i", "ticks.parquet", "-o", "found/")
    assert code == 2
    assert "--overwrite replaces it" in error
    assert sorted(one.name for one in (folder / "found").iterdir()) == first
    assert run("clause.sql", "-i", "ticks.parquet", "-o", "found/", "--overwrite")[0] == 0
    assert rows(pq.read_table(folder / "found")) == expected()
    (folder / "found" / "notes.txt").write_text("mine")
    code, _, error = run("clause.sql", "-i", "ticks.parquet", "-o", "found/", "--overwrite")
    assert code == 2
    assert "notes.txt" in error


def test_explain_shows_the_plan_and_runs_nothing(
    run: Run, folder: Path, spark: SparkSession
) -> None:
    before = sorted(folder.iterdir())
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    code, out, _ = run("program.py", "-i", "ticks.parquet", "-o", "found.csv", "--explain")
    assert code == 0
    assert "STRT DOWN+ UP+" in out
    assert "row groups: 4" in out
    assert "Spark's plan" in out
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs
    assert sorted(folder.iterdir()) == before
    code, out, _ = run("statement.sql", "-i", "ticks.csv", "--explain")
    assert code == 0
    assert "STRT DOWN+ UP+" in out
    assert "divided by key" in out
    assert "MapInArrow" in out


def test_an_error_in_a_statement_names_the_file(run: Run, folder: Path) -> None:
    (folder / "wrong.sql").write_text(STATEMENT.replace("DOWN.price", "DOWN.pirce"))
    code, _, error = run("wrong.sql", "-i", "ticks.parquet")
    assert code == 2
    assert error.startswith("[bind] unknown column 'pirce'")
    assert "wrong.sql, line 3, column 19" in error


def test_an_error_of_a_task_comes_back_word_for_word(spark: SparkSession) -> None:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            raise DataError("no", where="x.csv, line 2", detail="one\n  two", hint="try again")
        yield from ()

    frame = spark.range(2).mapInArrow(fail, "id bigint")
    written = frame.write.format("noop").mode("append")
    for act in (frame.collect, frame.toArrow, written.save):
        with pytest.raises(Exception, match="no") as caught:
            act()
        told = spark_error(caught.value)
        assert type(told) is DataError
        assert str(told) == ("[data] no\n  x.csv, line 2\n  one\n    two\n  hint: try again"), str(
            caught.value
        )


def test_tasks_are_counted_while_a_job_runs(spark: SparkSession) -> None:
    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(0.3)
            yield batch

    feed = ClassicFeed(spark)
    # Spark runs what stands below the groups first and on its own, then skips it in the last job.
    groups = spark.range(0, 6, 1, 6).mapInArrow(slow, "id bigint").groupBy("id").count()
    job = threading.Thread(target=groups.toArrow, daemon=True)
    seen = [feed.tasks()]
    job.start()
    while job.is_alive():
        time.sleep(0.1)
        seen.append(feed.tasks())
    seen.append(feed.tasks())
    assert seen[0] == Tasks(0, 0)
    assert seen[-1].done == seen[-1].total
    assert 6 <= seen[-1].total < 12  # the last job may be too short to be seen
    done = [tasks.done for tasks in seen]
    assert done == sorted(done)
    assert len(set(done)) > 2


def shown_while(spark: SparkSession, seconds: float, patience: float, *, terminal: bool) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=80)
    with spark_progress(spark, "dip.sql", console=console, patience_seconds=patience):
        time.sleep(seconds)
    return text.getvalue()


def test_nothing_is_printed_into_the_bar(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes what is not a terminal for one
    at_once = partial(spark_progress, patience_seconds=0)
    monkeypatch.setattr("outpace.cli.progress.spark_progress", at_once)
    arguments = ["statement.sql", "-i", "ticks.parquet"]
    code, out, error = run(*arguments, "--output", "found.parquet")
    assert (code, out) == (0, f"{len(expected())} rows in {run.folder}/found.parquet\n")
    assert "statement.sql" in error
    assert "tasks" in error
    assert "found.parquet" not in error
    for format, lines in (("json", len(expected())), ("csv", len(expected()) + 1)):
        code, out, error = run(*arguments, "--output-format", format)
        assert (code, len(out.splitlines())) == (0, lines)
        assert "ACME" not in error


def test_the_bar_can_be_taken_away_before_the_work_ends(spark: SparkSession) -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=80)
    with spark_progress(spark, "dip.sql", console=console, patience_seconds=0) as take_away:
        time.sleep(0.3)
        take_away()
        shown = text.getvalue()
        assert "dip.sql" in shown
        time.sleep(0.3)
    assert text.getvalue() == shown


def test_a_bar_appears_only_on_a_terminal_and_only_when_it_takes_long(spark: SparkSession) -> None:
    assert "dip.sql" in shown_while(spark, 0.6, 0.1, terminal=True)
    assert shown_while(spark, 0.2, 30, terminal=True) == ""
    assert shown_while(spark, 0.6, 0.1, terminal=False) == ""


@pytest.mark.usefixtures("java")
def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "long.sql").write_text("SELECT sum(id % 7) AS n FROM range(1000000000000)")
    (tmp_path / "one.csv").write_text("x\n1\n")
    (tmp_path / "out").mkdir()
    command = [f"{sysconfig.get_path('scripts')}/outpace", "run", "long.sql", "-i", "one.csv"]
    with subprocess.Popen(
        [*command, "-o", "out/found.csv", "--master", "local[2]"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as process:
        until = time.monotonic() + 240
        while not list((tmp_path / "out").iterdir()):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=240)
    assert process.returncode == 130
    assert (out, error.strip()) == ("", "")
    assert list((tmp_path / "out").iterdir()) == []
    assert sorted(one.name for one in tmp_path.iterdir()) == ["long.sql", "one.csv", "out"]


@pytest.mark.usefixtures("java")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_an_interrupt_while_java_starts_leaves_no_java(tmp_path: Path) -> None:
    (tmp_path / "one.sql").write_text("SELECT x FROM one")
    (tmp_path / "one.csv").write_text("x\n1\n")
    command = [sys.executable, "-m", "outpace_command", "run", "one.sql", "-i", "one.csv"]
    with subprocess.Popen(
        [*command, "--master", "local[1]"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until = time.monotonic() + 60
        while not (started := children(process.pid)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (130, "", "")
    assert not any(Path(f"/proc/{one}").exists() for one in started)


def children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # a process that has ended meanwhile
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found
