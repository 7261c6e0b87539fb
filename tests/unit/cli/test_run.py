"""`outpace run` before Spark starts: query files, inputs and outputs that are refused."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import outpace as op
from outpace.cli.main import app
from outpace.cli.run_input import DataFormat, TextOptions, read_inputs, split_name
from outpace.cli.run_output import target_of
from outpace.cli.run_query import SqlText, read_query
from outpace.errors import OutpaceError

RISE = 'op.Query("rise").order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts")'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"ts": [1, 2], "x": [1, 2]}), "ticks.parquet")
    Path("ticks.csv").write_text("ts,x\n1,1\n2,2\n")
    Path("rise.py").write_text(f"import outpace as op\nquery = {RISE}\n")
    return tmp_path


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["run", *arguments])
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return done.stderr


def error_of(text: str, *, name: str = "q.py", choose: str | None = None) -> str:
    Path(name).write_text(text)
    with pytest.raises(OutpaceError) as caught:
        read_query(Path(name), name=choose)
    return str(caught.value)


def test_a_query_is_the_one_that_a_program_defines() -> None:
    rise = op.Query("rise").order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts")
    assert read_query(Path("rise.py")) == rise
    Path("two.py").write_text(
        f"import outpace as op\nfirst = {RISE}\nsecond = first.within(3)\nnumber = 3\n"
    )
    assert read_query(Path("two.py"), name="second") == rise.within(3)
    Path("two.py").write_text(f"import outpace as op\nother = {RISE}.within(3)\nquery = {RISE}\n")
    assert read_query(Path("two.py")) == rise
    assert read_query(Path("two.py"), name="other") == rise.within(3)


def test_a_program_sees_the_modules_beside_it_and_is_not_the_main_one() -> None:
    Path("beside_query.py").write_text('NAME = "from beside"\n')
    Path("q.py").write_text(
        "import outpace as op\nfrom beside_query import NAME\n"
        'assert __name__ != "__main__"\nquery = op.Query(NAME).pattern("A")\n'
    )
    found = read_query(Path("q.py"))
    assert isinstance(found, op.Query)
    assert found.name == "from beside"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import outpace as op\n\nx = 1 / 0\n", "q.py, line 3\n  ZeroDivisionError"),
        ("import outpace as op\nx = (\n", "q.py, line 2\n  SyntaxError"),
        ("import outpace_does_not_exist\n", "q.py, line 1\n  ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "q.py, line 1\n  SystemExit"),
        (
            "import outpace as op\nquery = (\n    op.Query()\n    .pattern('A{x}')\n)\n",
            "[syntax] expected a quantifier bound, found 'x'\n  q.py, line 4: pattern, line 1",
        ),
        ("x = 3\n", "[bind] the file defines no query\n  q.py"),
        (
            "import outpace as op\njoin = op.Join(on='id', within=5, time='ts')\n",
            "[unsupported] the file defines a join, not a query\n  q.py\n  hint: outpace stream",
        ),
        (
            "import outpace as op\na, b = (op.Query(n).pattern('A') for n in 'ab')\n"
            "query = op.group(a, b)\n",
            "[unsupported] the file defines a group, not a query\n  q.py\n  hint: outpace stream",
        ),
        (
            f"import outpace as op\na = {RISE}\nb = a.within(3)\n",
            "[bind] the file defines 2 queries\n  q.py\n  a, b",
        ),
    ],
)
def test_what_is_wrong_with_a_program_is_told_with_its_line(text: str, said: str) -> None:
    assert said in error_of(text)


def test_an_unknown_name_gets_a_hint() -> None:
    text = f"import outpace as op\nrise = {RISE}\n"
    assert "hint: did you mean 'rise'?" in error_of(text, choose="rize")
    assert "SQL has only one" in error_of("SELECT 1", name="q.sql", choose="rise")


def test_sql_is_a_statement_or_a_clause() -> None:
    Path("clause.sql").write_text("-- falls\nMATCH_RECOGNIZE (ORDER BY ts PATTERN (A B+))")
    clause = read_query(Path("clause.sql"))
    assert isinstance(clause, op.Query)
    assert (clause.name, clause.to_text()) == ("clause", "A B+")
    Path("statement.sql").write_text("SELECT 1")
    assert read_query(Path("statement.sql"), dialect="trino") == SqlText(
        "SELECT 1", "trino", Path("statement.sql")
    )
    joined = "SELECT * FROM a JOIN b USING (id) WITHIN 5 BETWEEN a.ts AND b.ts"
    Path("join.sql").write_text(joined)
    assert "there is no table 'b'" in refused("join.sql", "-i", "a=ticks.csv")
    error = error_of("MATCH_RECOGNIZE (\n  ORDER BY ts\n  PATTERN (A{x}))", name="q.sql")
    assert "q.sql, line 3, column 14" in error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.sql", "-i", "ticks.csv"], "there is no query file 'none.sql'"),
        (["ticks.csv", "-i", "ticks.csv"], "a query file ends in .sql or in .py"),
        (["rise.py", "-i", "none.csv"], "none.csv"),
        (["rise.py", "-i", "ticks.csv", "-i", "ticks.parquet"], "--input name=path"),
        (["rise.py", "-i", "a=ticks.csv", "-i", "b=ticks.csv"], "reads one input, not 2"),
        (["rise.py", "-i", "ticks.csv", "--format", "xml"], "there is no format 'xml'"),
        (["rise.py", "-i", "ticks.csv", "--format", "parquet"], "as Parquet"),
        (["rise.py", "-i", "ticks.parquet", "--schema", "x int"], "Parquet has its own schema"),
        (["rise.py", "-i", "ticks.csv", "--schema", "x inty"], "'inty' is no known type"),
        (["rise.py", "-i", "ticks.csv", "--delimiter", "ab"], "the delimiter is one character"),
        (["rise.py", "-i", "ticks.csv", "--conf", "nonsense"], "'nonsense' is no setting"),
        (["rise.py", "-i", "ticks.csv", "--remote", "host"], "'host' is no address of a Spark"),
        (["rise.py", "-i", "ticks.csv", "-o", "found.xls"], "tells no format"),
        (["rise.py", "-i", "ticks.csv", "-o", "none/found.csv"], "there is no folder"),
        (["rise.py", "-i", "ticks.csv", "-o", "ticks.csv", "--overwrite"], "replace the input"),
        (["rise.py", "-i", "ticks.csv", "-o", "rise.py", "--output-format", "csv"], "--overwrite"),
        (["rise.py", "-i", "ticks.csv", "--output-format", "parquet"], "not go to the console"),
        (["rise.py", "-i", "ticks.csv", "-o", "s3://bucket/x.csv"], "cannot write to the address"),
    ],
)
def test_what_cannot_run_is_refused_before_spark_starts(arguments: list[str], said: str) -> None:
    assert said in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "nonsense"),
        (["run"], "query"),
        (["run", "rise.py"], "--input"),
        (["run", "rise.py", "-i", "ticks.csv", "--limit", "few"], "--limit"),
        (["run", "rise.py", "-i", "ticks.csv", "--outptu", "x"], "--outptu"),
        (["demo", "--local", "--rows", "9", "--out", "rise.py"], "file exists: 'rise.py'"),
        (["run", "folder.sql", "-i", "ticks.csv"], "there is no query file"),
    ],
)
def test_a_command_that_cannot_start_exits_with_2(arguments: list[str], said: str) -> None:
    Path("folder.sql").mkdir()
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_text_is_refused_before_spark_starts() -> None:
    Path("bad.csv").write_text("ts,x\n1,2\n2,many\n3,4\n")
    error = refused("rise.py", "-i", "bad.csv")
    assert "bad.csv, line 3, column x" in error


def test_an_input_may_be_named() -> None:
    assert split_name("a=b/c.csv") == ("a", "b/c.csv")
    assert split_name("b/2024.csv") == ("b", "b/2024.csv")
    assert split_name("/2024.csv") == (None, "/2024.csv")
    Path("a=1").mkdir()
    assert split_name("a=1") == (None, "a=1")


def test_the_same_name_joins_files_and_endings_tell_formats() -> None:
    Path("more.csv").write_text("ts,x\n3,3\n")
    (joined,) = read_inputs(["t=ticks.csv", "t=more.csv"], None, TextOptions())
    assert (joined.name, len(joined.files)) == ("t", 2)
    with pytest.raises(OutpaceError, match="different formats"):
        read_inputs(["t=ticks.csv", "t=ticks.parquet"], None, TextOptions())
    Path("notes.txt").write_text("ts,x\n")
    with pytest.raises(OutpaceError, match="tells no format"):
        read_inputs(["notes.txt"], None, TextOptions())
    (forced,) = read_inputs(["notes.txt"], DataFormat.CSV, TextOptions())
    assert forced.schema.names == ["ts", "x"]


def test_a_folder_of_others_is_not_replaced(folder: Path) -> None:
    with pytest.raises(OutpaceError, match="would replace the input"):
        target_of(f"{folder}/", None, overwrite=True, inputs=[str(folder / "ticks.csv")])
    with pytest.raises(OutpaceError, match="holds more than an output"):
        target_of(f"{folder}/", None, overwrite=True)
    (folder / "empty").mkdir()
    assert target_of("empty", None).folder


def test_without_java_a_hint_says_what_to_install(folder: Path) -> None:
    empty = folder / "bin"
    empty.mkdir()
    environment = {**os.environ, "PATH": str(empty)}
    environment.pop("JAVA_HOME", None)
    done = subprocess.run(
        [
            f"{sysconfig.get_path('scripts')}/outpace",
            "run",
            "rise.py",
            "-i",
            "ticks.csv",
            "--spark",
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "[error] Spark needs Java 17 or newer, and none is found\n"
        "  there is no java on the PATH\n"
        "  hint: install Java 17 and set JAVA_HOME to its folder\n"
    )
