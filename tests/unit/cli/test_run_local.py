"""`outpace run` in process: small runs need no Spark, find the same, and say where they run."""

from __future__ import annotations

import gzip
import io
import json
import re
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from support.run_inputs import CLAUSE, NAMES, STATEMENT, bad_csv, expected, rows, write_inputs
from typer.testing import CliRunner

from outpace.cli import run_local
from outpace.cli.main import app
from outpace.cli.run_input import TextOptions, read_inputs
from outpace.cli.run_query import SqlText
from outpace.report.progress import Bar


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_java: None) -> Path:
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    return tmp_path


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["run", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_each_kind_of_query_input_and_output(folder: Path) -> None:
    good = expected()
    code, out, error = run("statement.sql", "--input", "ticks.parquet", "-o", "found.parquet")
    assert (code, out) == (0, f"{len(good)} rows in {folder}/found.parquet\n")
    assert re.fullmatch(r"in process: [\d.]+ kB of input; --spark runs it on Spark\n", error)
    assert rows(pq.read_table("found.parquet")) == good
    assert run("program.py", "-i", "ticks.csv", "--output", "found.csv")[0] == 0
    assert rows(pa.csv.read_csv("found.csv")) == good
    assert run("clause.sql", "-i", "ticks.jsonl", "--output", "found.jsonl.gz")[0] == 0
    lines = gzip.decompress(Path("found.jsonl.gz").read_bytes()).splitlines()
    assert rows(pa.Table.from_pylist([json.loads(line) for line in lines]).select(NAMES)) == good
    assert run("statement.sql", "-i", "ticks=many", "--output", "parts/")[0] == 0
    assert rows(pq.read_table("parts")) == good
    assert [one.name for one in folder.iterdir() if one.name.startswith(".")] == []
    code, out, _ = run("statement.sql", "-i", "ticks=packed.csv.gz", "--limit", "2")
    assert (code, out.splitlines()[-1]) == (0, f"{len(good)} rows, the first 2 shown")
    code, out, _ = run("program.py", "-i", "ticks.parquet", "--output-format", "csv")
    assert rows(pa.csv.read_csv(io.BytesIO(out.encode()))) == good


def test_a_statement_joins_groups_and_orders() -> None:
    Path("names.csv").write_text("symbol,title\nACME,Acme Corporation\nCORE,Core\n")
    Path("join.sql").write_text(
        f"SELECT title, count(*) AS N, min(m.bottom) AS low "
        f"FROM (SELECT * FROM ticks WHERE volume > 0) {CLAUSE} m "
        "JOIN names ON names.symbol = m.symbol GROUP BY title ORDER BY title"
    )
    arguments = ["-i", "ticks.parquet", "-i", "names.csv", "--output-format", "json"]
    code, out, error = run("join.sql", *arguments)
    assert (code, error[:10]) == (0, "in process")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"title": title, "N": len(found), "low": min(row[1] for row in found)}
        for title, symbol in (("Acme Corporation", "ACME"), ("Core", "CORE"))
        for found in [[row for row in expected() if row[0] == symbol]]
    ]


def test_whole_numbers_are_computed_with() -> None:
    Path("whole.csv").write_text("symbol,ts,price\na,1,10\na,2,7\na,3,8\n")
    Path("deep.sql").write_text(
        "SELECT symbol, count(*), max(top - bottom) AS deepest, min(bottom / top) AS part "
        "FROM whole MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts "
        "MEASURES STRT.price AS top, LAST(DOWN.price) AS bottom PATTERN (STRT DOWN+ UP+) "
        "DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)) GROUP BY symbol"
    )
    code, out, error = run("deep.sql", "-i", "whole.csv", "--output-format", "csv")
    assert (code, error[:10]) == (0, "in process")
    assert out == "symbol,count(1),deepest,part\na,1,3,0.7\n"
    Path("zero.sql").write_text("SELECT price / (ts - 1) AS n FROM whole")
    error = run("zero.sql", "-i", "whole.csv")[2]
    assert (
        "\non Spark: in process the statement fails with division by zero\n[error] Spark" in error
    )
    Path("zero.sql").write_text("SELECT 1 / 0 AS n FROM whole")
    assert run("zero.sql", "-i", "whole.csv", "--spark")[2].startswith("[error] Spark needs Java")


def test_whole_numbers_are_added_up() -> None:
    lines = [(1, 10, 7), (2, 7, None), (3, 8, 2**62), (4, 9, 2**61), (5, 3, -(2**61))]
    symbols = ["a", "a", "a", "b", "b"]
    columns = zip(*lines, strict=True)
    table = pa.table([symbols, *columns], names=["symbol", "ts", "price", "large"])
    pq.write_table(table, "whole.parquet")
    inputs = read_inputs(["whole.parquet"], None, TextOptions())
    steps = "MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts MEASURES A.price AS p, A.large AS l"
    found = f"FROM whole {steps} PATTERN (A)) GROUP BY symbol ORDER BY symbol"

    def ask(columns: str) -> pa.Table:
        asked = SqlText(f"SELECT {columns} {found}", "outpace", Path("sums.sql"))
        assert run_local.why_spark(asked, inputs) is None
        return run_local.found_in_process(asked, inputs).table

    sums = ask("sum(p), avg(p) AS mean, sum(p) / avg(p) AS n, sum(l)")
    assert sums.schema.types == [pa.int64(), pa.float64(), pa.float64(), pa.int64()]
    assert sums.to_pylist() == [
        {"sum(p)": 25, "mean": 25 / 3, "n": 3.0, "sum(l)": 2**62 + 7},
        {"sum(p)": 12, "mean": 6.0, "n": 2.0, "sum(l)": 0},
    ]
    # What may not fit in some order, or loses digits as a double, is Spark's to decide.
    for column in ("avg(l)", "sum(l + l - 1)"):
        with pytest.raises(run_local.LeftToSpark, match=r"too large|[Oo]verflow"):
            ask(f"{column} AS a")


def test_a_result_without_rows_keeps_its_columns() -> None:
    Path("none.sql").write_text(f"SELECT * FROM ticks {CLAUSE} WHERE ticks < 0")
    for name in ("none.parquet", "none.csv"):
        assert run("none.sql", "-i", "ticks.parquet", "-o", name)[0] == 0
    assert pq.read_table("none.parquet").schema.names == NAMES
    assert Path("none.csv").read_text() == "symbol,bottom,ticks,ends\n"


def test_bad_data_is_named_and_leaves_nothing(folder: Path) -> None:
    arguments, said = bad_csv(folder)
    before = sorted(folder.iterdir())
    code, out, error = run("statement.sql", "-i", *arguments, "-o", "found.csv")
    assert (code, out) == (2, "")
    assert all(words in error for words in said), error
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            f"SELECT symbol FROM ticks {CLAUSE} WHERE symbol > 3",
            "different types: symbol > 3, line 6",
        ),
        (
            f"SELECT\n  ticks * 1.5  AS n FROM ticks {CLAUSE}",
            "numbers and doubles: ticks * 1.5, line 2",
        ),
        (
            f"SELECT ticks / (1 / ticks) AS n FROM ticks {CLAUSE}",
            "division of a quotient: ticks / (1 / ticks), line 1",
        ),
        (
            f"SELECT round(bottom) AS n FROM ticks {CLAUSE}",
            "that may differ in process: round(bottom), line 1",
        ),
        (
            f"SELECT avg(bottom) AS n FROM ticks {CLAUSE}",
            "other types than whole numbers: avg(bottom), line 1",
        ),
        ("SELECT count(*) AS n FROM range(9)", "that may differ in process: range(9), line 1"),
        ("SELECT volume % 2 FROM ticks", "column without a name: volume % 2, line 1"),
        (
            "SELECT volume, price AS volume FROM ticks",
            "two columns with one name: price AS volume, line 1",
        ),
        ("SELECT 0.5 AS half FROM ticks", "that may differ in process: 0.5, line 1"),
        (
            "SELECT volume AS a FROM ticks WHERE volume < 9223372036854775808",
            "that may differ in process: 9223372036854775808, line 1",
        ),
        (
            f"SELECT {'-'.join(['price'] * 999)} AS n FROM ticks",
            "more than 200 parts in one another",
        ),
        ("SELECT volume AS n FROM ticks UNION ALL SELECT 1", "more than one SELECT"),
        (
            f"SELECT *, 1 AS n FROM ticks {CLAUSE} m",
            "columns of one table: SELECT *, 1 AS n FROM m AS m",
        ),
    ],
)
def test_what_may_differ_goes_to_spark(statement: str, said: str) -> None:
    Path("other.sql").write_text(statement)
    code, _, error = run("other.sql", "-i", "ticks.parquet")
    assert code == 2
    reason, _, rest = error.partition("\n")
    assert reason.startswith("on Spark: the statement has ")
    assert reason.endswith(said)
    assert rest.startswith("[error] Spark needs Java")


def test_what_is_large_or_asked_for_goes_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("statement.sql", "-i", "ticks.csv", "--spark")[2].startswith("[error] Spark needs")
    monkeypatch.setattr(run_local, "ROWS_MAX", 599)
    error = run("statement.sql", "-i", "ticks.parquet")[2]
    assert error.startswith("on Spark: the input has 600 rows, more than 599\n")
    monkeypatch.setattr(run_local, "BYTES_MAX", 2_000)
    error = run("statement.sql", "-i", "ticks.csv")[2]
    assert re.match(r"on Spark: the input has [\d.]+ kB, more than 2.0 kB\n", error)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (STATEMENT.replace("FROM ticks", "FROM tiks"), "there is no table 'tiks'"),
        (STATEMENT.replace("DOWN.price", "DOWN.pirce"), "unknown column 'pirce'"),
        (STATEMENT.replace("SELECT symbol,", "SELECT symbl,"), "symbl"),
        (f"SELECT round(bottom) AS half FROM tiks {CLAUSE}", "the inputs are ticks"),
        (f"SELECT round(bottom) AS half FROM ticks {CLAUSE.replace('ts', 'tz')}", "column 'tz'"),
        (f"SELECT symbl, round(bottom) FROM ticks {CLAUSE}", "did you mean 'symbol'"),
        (
            f"SELECT round(bottom) FROM ticks {CLAUSE} m\nWHERE m.price > 1",
            "unknown column 'price'",
        ),
        (f"SELECT sum(tiks) AS n FROM ticks {CLAUSE} GROUP BY symbol", "line 1, column 12"),
        (f"SELECT sum(ticks) AS n FROM ticks {CLAUSE} GROUP BY symbl", "line 6, column 12"),
        (
            "WITH a AS (SELECT upper(symbol) AS u FROM ticks) SELECT uu FROM a",
            "unknown column 'uu'",
        ),
    ],
)
def test_wrong_names_are_refused_before_spark_starts(text: str, said: str) -> None:
    Path("wrong.sql").write_text(text)
    code, _, error = run("wrong.sql", "-i", "ticks.csv", "--spark")
    assert code == 2
    assert error.startswith("[bind] ")
    assert said in error
    assert "wrong.sql, line" in error


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT SYMBOL, user, current_time, round(bottom) AS b FROM ticks {CLAUSE} ORDER BY B",
        f"SELECT round(bottom), m.`symbol` FROM ticks {CLAUSE} m ORDER BY `round(bottom, 0)`",
        "SELECT explode(array(volume)) FROM ticks ORDER BY col",
        "SELECT col + 1 AS n FROM (SELECT explode(array(volume)) FROM ticks)",
        "SELECT abc FROM (SELECT 'abc', round(price) AS x FROM ticks)",
        "SELECT y FROM ticks LATERAL VIEW explode(array(volume)) e AS y",
        "SELECT transform(s, x -> x) AS t, r.a FROM (SELECT array(1) AS s, struct(1 AS a) AS r)",
        "SELECT c, d FROM (SELECT stack(1, volume, price) AS (c, d) FROM ticks)",
        "SELECT round(price) AS p, p + 1 AS q, timestampdiff(DAY, ts, ts) AS d FROM ticks",
        "SELECT id, round(id) AS r FROM range(3)",
    ],
)
def test_what_spark_may_know_is_left_to_it(text: str) -> None:
    inputs = read_inputs(["ticks.parquet"], None, TextOptions())
    run_local.check_query(SqlText(text, "outpace", Path("other.sql")), inputs, catalog=False)


@pytest.mark.parametrize("before", ["", "SELECT bottom FROM ticks "])
def test_a_bar_appears_where_matching_takes_long(
    before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    at_once = partial(Bar, console=console, patience_seconds=0)
    monkeypatch.setattr("outpace.report.progress.Bar", at_once)
    Path("windows.sql").write_text(before + CLAUSE.replace("DEFINE", "OVER COUNT (300) DEFINE"))
    assert run("windows.sql", "-i", "ticks.parquet")[0] == 0
    assert "100%" in console.file.getvalue()  # type: ignore[attr-defined]


def test_explain_says_where_it_runs() -> None:
    code, out, error = run("statement.sql", "-i", "ticks.csv", "-o", "found.csv", "--explain")
    assert code == 0
    assert "STRT DOWN+ UP+" in out
    assert error.startswith("in process: ")
    assert not Path("found.csv").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="not even root writes into /proc")
@pytest.mark.parametrize("output", ["/proc/found.csv", "/proc/found/"])
def test_an_output_that_cannot_be_written_is_refused_at_once(output: str) -> None:
    for more in ([], ["--spark"]):
        code, _, error = run("statement.sql", "-i", "ticks.csv", "-o", output, *more)
        assert code == 2
        assert error.startswith(f"[data] the output '{output.rstrip('/')}' cannot be written\n")


def test_the_name_of_an_output_can_be_long(folder: Path) -> None:
    name = f"{'x' * 251}.csv"
    assert run("statement.sql", "-i", "ticks.csv", "-o", name)[0] == 0
    assert (folder / name).exists()
