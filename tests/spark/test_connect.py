"""Spark Connect, with a real server: the same answers as in process and as on classic Spark.

One process with one server answers everything, as each start of a server takes seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from support import streamed, windowed_parity
from support.connect_session import STREAM, STREAMED
from support.file_parity import in_process
from support.run_inputs import bad_csv, expected, rows, write_inputs
from support.statements import ERRORS, PARITY, answer, is_sample, read_public_cases, ticks
from support.stream_command import CLAUSE

import outpace as op

TESTS = Path(__file__).resolve().parents[1]


def test_statements_files_and_commands_on_connect(java: None, tmp_path: Path) -> None:
    # Classic Spark answers ten times as many.
    sample = [case for number, case in enumerate(read_public_cases()) if is_sample(number)][::10]
    cases = {case["id"]: case for case in sample}
    questions = [(name, "outpace", text) for name, text in PARITY.items()]
    questions += [(name, "trino", case["sql"]) for name, case in cases.items()]
    refused = [(f"error {number}", "outpace", row[0]) for number, row in enumerate(ERRORS)]
    (tmp_path / "run").mkdir()
    write_inputs(tmp_path / "run")
    _, bad = bad_csv(tmp_path / "run")
    (tmp_path / "stream").mkdir()
    (tmp_path / "stream" / "clause.sql").write_text(CLAUSE)
    answers = on_connect(questions + refused, tmp_path)
    check_refused(answers["statements"], refused)
    check_statements(answers["statements"], questions, cases)
    assert answers["files"] == in_process()
    check_windows(answers["windows"])
    check_streams(answers["streams"])
    check_commands(answers["commands"], tmp_path / "run", bad)
    check_stopped(answers["stopped"], tmp_path / "stream")
    check_addresses(answers["listening"])


def check_addresses(listening: list[str]) -> None:
    """A server of one's own is for this machine alone."""
    loopback = ("0100007F", "0" * 16 + "FFFF00000100007F", "0" * 24 + "01000000")
    assert listening
    assert set(listening) <= set(loopback)


def check_refused(found: dict[str, Any], refused: list[tuple[str, str, str]]) -> None:
    for (name, _, _), (_, error, message, place) in zip(refused, ERRORS, strict=True):
        said = str(found[name].get("error"))
        assert said.startswith(f"{error.__name__}: "), said
        assert message in said
        assert "^" * len(place) in said


def check_statements(
    found: dict[str, Any], questions: list[tuple[str, str, str]], cases: dict[str, Any]
) -> None:
    with duckdb.connect() as connection:
        connection.register("ticks", ticks())
        for name, dialect, text in questions:
            if "error" in cases.get(name, {}):
                for kind, message in cases[name]["error"]:
                    if kind.startswith("hasMessage"):
                        assert message.lower() in str(found[name]["error"]).lower(), name
                continue
            expected = op.sql(connection, text, dialect)
            assert "error" not in found[name], f"{name}: {found[name]}"
            assert found[name]["rows"] == answer(expected), name
            if name in PARITY:
                assert found[name]["columns"] == expected.column_names, name


def check_windows(answers: dict[str, windowed_parity.Answers]) -> None:
    expected = windowed_parity.in_process()
    for found in answers.values():
        assert found == {name: expected[name] for name in found}
    assert tuple(answers["frame"]) == windowed_parity.CONNECT_FRAME


def check_streams(answers: dict[str, streamed.Rows]) -> None:
    table = streamed.events(*STREAM)
    expected = {name: op.match(table, query) for name, query in STREAMED.items()}
    expected["chained"] = op.match(expected["keyed"], streamed.CHAINED)
    for name, found in answers.items():
        assert streamed.ordered(found) == streamed.ordered(expected[name].to_pylist()), name
        assert found, name


def check_commands(answers: dict[str, Any], folder: Path, bad: list[str]) -> None:
    good = expected()
    written, shown, refused = answers["said"]
    assert written == [0, f"{len(good)} rows in {folder}/found.parquet\n", ""]
    assert rows(pq.read_table(folder / "found.parquet")) == good
    assert shown[0] == 0
    assert f"{len(good)} rows, the first 1 shown" in shown[1]
    assert refused[:2] == [2, ""]
    assert all(words in refused[2] for words in bad), refused
    assert not (folder / "bad.json").exists()
    done, total = answers["tasks"]
    assert done == total > 0


def check_stopped(answers: dict[str, Any], folder: Path) -> None:
    # The first batch tells its events, though it has only one of them.
    assert answers["batches"] == ["0"]
    code, out, error = answers["said"]
    assert (code, out) == (0, ""), error
    kept = folder / "found.checkpoint"
    assert error.endswith(f"\n0 rows; the same command goes on from {kept}\n")
    late = streamed.events(200, 2).slice(0, 3)
    assert streamed.ordered(answers["late"]) == streamed.ordered(late.to_pylist())


def on_connect(questions: list[tuple[str, str, str]], folder: Path) -> dict[str, Any]:
    """Ask a process with a Connect session."""
    (folder / "asked.json").write_text(json.dumps(questions), encoding="utf-8")
    # With SPARK_TESTING the server listens on a free port, so several can run at once.
    environment = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    environment |= {"SPARK_TESTING": "1", "PYSPARK_PYTHON": sys.executable}
    kept = ("SPARK_HOME", "SPARK_SUBMIT_OPTS")
    environment |= {name: os.environ[name] for name in kept if name in os.environ}
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment["PYTHONPATH"] = path
    done = subprocess.run(
        [sys.executable, "-m", "support.connect_session", str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((folder / "answered.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]
