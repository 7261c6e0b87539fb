"""`outpace graph run`: graphs from TOML files, and what is wrong in them shown with its place."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
from support.machines import free_addresses
from typer.testing import CliRunner

import outpace as op
from outpace.cli.main import app

FALLS = """MATCH_RECOGNIZE (
  ORDER BY ts
  MEASURES LAST(DOWN.ts) AS at, LAST(DOWN.price) AS low
  PATTERN (DOWN DOWN)
  DEFINE DOWN AS price < PREV(price)
)"""
ALARM = """MATCH_RECOGNIZE (
  ORDER BY at
  MEASURES B.at AS at, A.low AS before, B.low AS low
  PATTERN (A B)
  DEFINE B AS low < A.low
)"""
GRAPH = f'''
[sources.ticks]
path = "ticks.csv"

[operators.falls]
file = "falls.sql"

[operators.alarm]
of = "falls"
sql = """
{ALARM}"""
'''
MACHINES = '[machines]\nnorth = "tcp://127.0.0.1:7000"\nsouth = "tcp://127.0.0.1:7100"\n'
#: One machine, which has all.
NORTH = '[machines]\nnorth = "tcp://127.0.0.1:7000"\n[sources.ticks]'
PRICES = [9, 8, 7, 8, 7, 6, 9, 8, 6, 7, 5, 4, 8, 7, 3, 9]
TICKS = pa.table({"ts": range(len(PRICES)), "price": PRICES})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pyarrow.csv.write_csv(TICKS, "ticks.csv")
    Path("falls.sql").write_text(FALLS)
    return tmp_path


def run(text: str, *options: str) -> tuple[int, str, str]:
    Path("graph.toml").write_text(text)
    done = CliRunner().invoke(app, ["graph", "run", "graph.toml", *options])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def expected() -> tuple[pa.Table, pa.Table]:
    falls = op.match(TICKS, op.Query.from_sql(FALLS))
    return falls, op.match(falls, op.Query.from_sql(ALARM))


def test_matches_are_written_as_lines() -> None:
    code, out, err = run(GRAPH, "--metrics")
    assert code == 0, err
    assert [json.loads(line) for line in out.splitlines()] == expected()[1].to_pylist()
    assert "replays" in err
    assert "falls" in err


def test_matches_go_to_logs_and_the_others_to_lines(folder: Path) -> None:
    other = '\n[operators.other]\nof = ["ticks"]\nfile = "falls.sql"\n[sinks]\nfalls = "out/log"\n'
    code, out, err = run(GRAPH + other)
    assert code == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    falls, alarm = expected()
    assert [one for one in rows if one.pop("operator") == "alarm"] == alarm.to_pylist()
    assert len(rows) == falls.num_rows + alarm.num_rows
    assert op.log.open(folder / "out" / "log").read().equals(falls)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('of = "falls"', 'of = "fals"', "operator 'alarm' reads 'fals'"),
        ('of = "falls"', 'of = "alarm"', "the graph has a cycle"),
        ('of = "falls"', "of = 3", "of is a list of names"),
        ('path = "ticks.csv"', 'pth = "ticks.csv"', "unknown key 'pth'"),
        ('path = "ticks.csv"', 'path = "ticks.txt"', "tells no format"),
        ('path = "ticks.csv"', "path = 3", "path is a text"),
        ('path = "ticks.csv"', 'time = "ts"', "source 'ticks' has no path"),
        ('path = "ticks.csv"', 'path = "ticks.csv"\nheader = 1', "header is true or false"),
        ('file = "falls.sql"', 'file = "none.sql"', "there is no query file"),
        ('file = "falls.sql"', "", "operator 'falls' has either sql or file"),
        ("B.low AS low", "B.lo AS low", "unknown column 'lo'"),
        ("PATTERN (A B)", "PATTERN (A", "syntax"),
        ("[operators.alarm]", "[operators.falls]", "is not TOML"),
        ("[sources.ticks]", "[[[sources]]]", "is not TOML"),
        ("[sources.ticks]", "[sources.falls]", "are named 'falls'"),
        ("[sources.ticks]", "patience_s = 0\n[sources.ticks]", "patience_s is a number above 0"),
        ("[sources.ticks]", "[sinks]\nnone = 'log'\n[sources.ticks]", "no operator 'none'"),
        ("[sources.ticks]", "sinks = 3\n[sources.ticks]", "sinks are names"),
        ("[sources.ticks]", "[source.ticks]", "unknown key 'source'"),
        ("[sources.ticks]", "queue_events = 0\n[sources.ticks]", "queue_events is a whole number"),
        ('path = "ticks.csv"', 'path = "ticks.csv"\ndelimiter = ";;"', "is one character"),
        ('of = "falls"', 'of = ["falls", "ticks"]', "falls and ticks have no column"),
        ("[sources.ticks]", "machines = 3\n[sources.ticks]", "machines are names"),
        ("[sources.ticks]", "keys = 'k'\n[sources.ticks]", "places or keys names its machines"),
        ('of = "falls"', 'of = "falls"\nmachine = "south"', "places or keys names its machines"),
        ("[sources.ticks]", NORTH.replace("tcp://", ""), "has no address of the form"),
        ("[sources.ticks]", NORTH.replace("127.0.0.1", "10.0.0.1"), "can be reached from others"),
        ("[sources.ticks]", f"keys = 3\n{NORTH}", "the file with the keys is text"),
    ],
)
def test_what_is_wrong_ends_with_code_2_and_its_place(old: str, new: str, message: str) -> None:
    assert old in GRAPH
    code, out, err = run(GRAPH.replace(old, new, 1))
    assert (code, out) == (2, "")
    assert message in err
    assert "graph.toml" in err or "operator '" in err


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('of = "falls"', 'of = "fals"', "[operators.alarm]"),
        ('of = "falls"', 'of = "alarm"', "[operators.alarm]"),
        ("[sources.ticks]", "patience_s = 0\n[sources.ticks]", "patience_s = 0"),
        ("[sources.ticks]", "[sinks]\nnone = 'log'\n[sources.ticks]", "none = 'log'"),
        ("[sources.ticks]", "[sources.falls]", "[operators.falls]"),
        ('file = "falls.sql"', 'file = "falls.sql"\nof = "alarm"', "[operators.falls]"),
        ('of = "falls"', f'of = "falls"\nmachine = "sout"\n{MACHINES}', "[operators.alarm]"),
        ("[sources.ticks]", NORTH.replace("tcp", "http"), 'north = "http://127.0.0.1:7000"'),
    ],
)
def test_what_does_not_go_together_is_shown_with_its_line(old: str, new: str, line: str) -> None:
    assert old in GRAPH
    code, _, err = run(GRAPH.replace(old, new, 1))
    assert code == 2
    assert re.search(rf"graph.toml.*, line \d+, column 1\n +{re.escape(line)}\n", err), err


@pytest.mark.parametrize("text", ["", "[sources.ticks]\npath = 'ticks.csv'"])
def test_a_graph_without_its_parts_is_refused(text: str) -> None:
    code, _, err = run(text)
    assert code == 2
    assert "the graph has no" in err


def test_a_file_that_is_missing_is_refused() -> None:
    done = CliRunner().invoke(app, ["graph", "run", "none.toml"])
    assert done.exit_code == 2
    assert "there is no file 'none.toml'" in done.stderr


def test_a_log_that_is_there_is_not_written_to(folder: Path) -> None:
    op.log.create(folder / "log", pa.schema({"ts": pa.int64()}))
    code, _, err = run(GRAPH + '[sinks]\nalarm = "log"\n')
    assert code == 2
    assert "there is a log in" in err


def test_a_graph_goes_on_from_its_folder(folder: Path) -> None:
    for _ in range(2):
        code, out, err = run(GRAPH + '[sinks]\nalarm = "log"\n', "--folder", "savepoints")
        assert (code, out) == (0, ""), err
        assert op.log.open(folder / "log").read().equals(expected()[1])
    code, _, err = run(GRAPH, "--folder", "savepoints")
    assert code == 2
    assert "is that of another graph" in err


def test_metrics_are_served_while_a_graph_runs() -> None:
    code, out, err = run(GRAPH, "--metrics-port", "0")
    assert code == 0, err
    assert "metrics at http://127.0.0.1:" in err
    assert [json.loads(line) for line in out.splitlines()] == expected()[1].to_pylist()


def test_data_out_of_order_ends_with_code_2() -> None:
    pyarrow.csv.write_csv(TICKS.take([1, 0, 2]), "ticks.csv")
    code, _, err = run(GRAPH)
    assert code == 2
    assert "operator 'falls'" in err


def test_a_graph_runs_on_several_machines_with_keys(folder: Path) -> None:
    made = CliRunner().invoke(app, ["graph", "keys", "graph.key"])
    assert (made.exit_code, made.stdout) == (0, "")
    north, south = free_addresses(2)
    machines = f'keys = "graph.key"\n[machines]\nnorth = "{north}"\nsouth = "{south}"\n'
    text = machines + GRAPH.replace('of = "falls"', 'of = "falls"\nmachine = "south"')
    Path("graph.toml").write_text(text)
    program = "from outpace_command import main; main()"
    command = [sys.executable, "-c", program, "graph", "run", "graph.toml", "--machine", "south"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as other:
        code, out, err = run(text, "--machine", "north", "--metrics")
        assert code == 0, err
        assert other.stderr is not None
        told = other.stderr.read()
    assert other.returncode == 0, told
    assert "machine 'south' runs alarm" in told
    assert [json.loads(line) for line in out.splitlines()] == expected()[1].to_pylist()


def test_which_machine_this_is_has_to_be_said() -> None:
    for options, message in {
        (): "it is not said which this is",
        ("--machine", "east"): "the graph has no machine 'east'",
        ("--machine", "south", "--metrics"): "machine 'south' has no savepoints and no metrics",
    }.items():
        code, _, err = run(MACHINES + GRAPH, *options)
        assert code == 2
        assert message in err
    code, _, err = run(GRAPH, "--machine", "east")
    assert code == 2
    assert "write [machines] into the file" in err
    code, _, err = run(f"keys = 'none'\n{MACHINES}{GRAPH}", "--machine", "north")
    assert code == 2
    assert "there are no keys in 'none'" in err
