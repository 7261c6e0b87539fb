"""How the command `outpace` begins and ends: its version, Ctrl-C, and what is not installed."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outpace.cli.main import app
from outpace.errors import BindError, OutpaceError
from outpace.hosts.spark.session import _not_started, session

#: Runs a program in which some modules cannot be imported.
WITHOUT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def without_spark(program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    blocked = ("pyspark", "pandas", "py4j", "grpc")
    text = WITHOUT.format(blocked=blocked) + program
    return subprocess.run(
        [sys.executable, "-c", text, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_version_is_shown() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (
        0,
        f"outpace {importlib.metadata.version('outpace')}\n",
    )


@pytest.mark.parametrize("module", ["outpace", "outpace_command"])
def test_the_command_runs_as_a_module(module: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"outpace {importlib.metadata.version('outpace')}\n"


def test_an_interrupt_while_modules_load_says_nothing() -> None:
    # The first module that is written in C is loaded long before the last one.
    with subprocess.Popen(
        [sys.executable, "-m", "outpace_command", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        loaded = Path(f"/proc/{process.pid}/maps")
        if not loaded.parent.is_dir():
            process.kill()
            pytest.skip("what a process has loaded is told by /proc")
        until = time.monotonic() + 60
        while "numpy" not in loaded.read_text():
            assert time.monotonic() < until
            assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (130, "", "")


DROPPED = """
import signal, sys, time, types, weakref

class Object:
    pass

def run():
    kept = Object()
    dropped = weakref.ref(kept, lambda _: signal.raise_signal(signal.SIGINT))
    del kept
    time.sleep(10)

sys.modules["outpace.cli.main"] = types.SimpleNamespace(app=run)
from outpace_command import main
try:
    main()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_that_python_drops_comes_again() -> None:
    """Python drops it in what it calls by itself: after an import, or for PySpark's objects."""
    done = subprocess.run(
        [sys.executable, "-c", DROPPED], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_a_server_that_is_not_there_is_refused_with_its_address() -> None:
    pytest.importorskip("grpc")
    with pytest.raises(OutpaceError) as caught:
        session(remote="sc://127.0.0.1:9")
    assert "cannot reach Spark Connect at sc://127.0.0.1:9" in str(caught.value)


def test_what_needs_spark_says_so(tmp_path: Path) -> None:
    done = without_spark("import outpace as op\nop.spark.session()\n", tmp_path)
    assert "OutpaceError: [error] PySpark is not installed" in done.stderr
    assert 'hint: pip install "outpace[spark]"' in done.stderr


@pytest.mark.parametrize("command", ["run", "stream"])
def test_the_commands_need_spark_only_where_they_use_it(tmp_path: Path, command: str) -> None:
    (tmp_path / "rise.sql").write_text(
        "MATCH_RECOGNIZE (ORDER BY ts MEASURES B.ts AS at PATTERN (A B) DEFINE B AS x > A.x)"
    )
    (tmp_path / "ticks").mkdir()
    (tmp_path / "ticks" / "1.csv").write_text("ts,x\n1,1\n2,2\n")
    program = "from outpace.cli.main import app\napp()"
    given = {"run": ["-i", "ticks/1.csv"], "stream": ["--from", "ticks"]}[command]
    done = without_spark(program, tmp_path, command, "rise.sql", *given, "--master", "local[1]")
    assert done.returncode == 2, done.stderr
    assert "[error] PySpark is not installed" in done.stderr
    assert 'hint: pip install "outpace[spark]"' in done.stderr
    assert "Traceback" not in done.stderr
    given += ["--trigger", "once"] if command == "stream" else []
    done = without_spark(program, tmp_path, command, "rise.sql", *given)
    assert done.returncode == 0, done.stderr
    assert "1 row" in done.stdout + done.stderr


@pytest.mark.parametrize("host", ["spark", "stream"])
def test_a_benchmark_on_spark_needs_it_and_says_so(tmp_path: Path, host: str) -> None:
    program = "from outpace.cli.main import app\napp()"
    done = without_spark(program, tmp_path, "bench", "--host", host, "--n", "10")
    assert done.returncode == 2
    assert "[error] PySpark is not installed" in done.stderr
    assert 'hint: pip install "outpace[spark]"' in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("master", ["local[99999999999]", "local[0,4]", f"local[{'9' * 5000}]"])
def test_cores_that_no_machine_has_are_refused(master: str) -> None:
    with pytest.raises(BindError, match="Spark runs on 1 to 1024 cores"):
        session(master=master)


@pytest.mark.parametrize("command", ["run", "stream"])
def test_a_small_input_is_done_before_anything_large_is_loaded(
    tmp_path: Path, command: str
) -> None:
    (tmp_path / "rise.sql").write_text(
        "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES LAST(B.x) AS high, COUNT(*) AS n"
        " PATTERN (A B+) DEFINE B AS x > A.x AND x > PREV(x))"
    )
    (tmp_path / "ticks").mkdir()
    lines = [f"{ts},{'ab'[ts % 2]},{ts * 7 % 11}\n" for ts in range(1000)]
    (tmp_path / "ticks" / "1.csv").write_text("ts,k,x\n" + "".join(lines))
    program = (
        "import sys\nfrom outpace.cli.main import app\napp(standalone_mode=False)\n"
        "large = {'duckdb', 'numba', 'pandas', 'pyspark', 'outpace.hosts.spark'}\n"
        "print(sorted(large & sys.modules.keys()))"
    )
    given = ["-i", "ticks/1.csv"] if command == "run" else ["--from", "ticks", "--trigger", "once"]
    done = subprocess.run(
        [sys.executable, "-c", program, command, "rise.sql", *given],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "in process" in done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "command",
    [
        ["run", "query.sql", "--limit", "9" * 23],
        ["replay", "recording", "--limit", "9" * 23],
        ["stream", "query.sql", "--limit", "9" * 23],
        ["stream", "query.sql", "--max-events", "9" * 20],
        ["simulate", "calibrate", "--workload", "w1", "--cores", "9" * 11],
        ["simulate", "calibrate", "--workload", "w1", "--max-events", "9" * 20],
        ["demo", "--local", "--rows", "9" * 17],
        ["bench", "--n", "9" * 20],
        ["simulate", "run", "scenario.toml", "--rows", "9" * 23],
    ],
)
def test_a_number_that_is_too_large_is_refused(command: list[str]) -> None:
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert "less than or equal to 1" in done.stderr


def test_what_does_not_fit_into_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*args: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr("outpace.cli.bench.measure", fill)
    done = CliRunner().invoke(app, ["bench", "--n", "10"])
    assert done.exit_code == 2
    assert "this does not fit into memory" in done.stderr


def test_a_server_that_does_not_answer_is_told_without_the_words_of_grpc() -> None:
    said = """<_InactiveRpcError of RPC that terminated with:
    status = StatusCode.UNAVAILABLE
    details = "Received http2 header with status: 404"
    debug_error_string = "UNKNOWN:Error received from peer"
>"""
    error = _not_started(RuntimeError(said), "sc://host", [])
    assert error.detail == "Received http2 header with status: 404"
