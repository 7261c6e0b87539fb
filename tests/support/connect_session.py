"""Runs queries on a Connect session with a server of its own: a program for the tests.

A process has either classic or Connect sessions, so this one is started by a test. It reads a list
of (name, dialect, statement) from `asked.json` in the folder that it is given, and writes to
`answered.json` what each statement gives (columns and rows, or an error), what is found in the
files that it writes there, in windows and streams too, what `outpace run` says of the inputs in the
folder `run`, how `outpace stream` ends in the folder `stream`, and on which addresses it and its
server listen.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from support import streamed, windowed_parity
from support.file_parity import from_files, write_files
from support.statements import answer, ticks
from support.stream_command import events_per_second, free_port, written
from typer.testing import CliRunner

import outpace as op
from outpace.cli.main import app
from outpace.cli.progress import ConnectFeed
from outpace.hosts.spark.session import ROCKSDB

#: The events of streams, and the queries that run over them.
STREAM = (150, 3)
STREAMED = {name: streamed.QUERIES[name] for name in ("keyed", "three stages")}

COMMANDS = [
    ["statement.sql", "--spark", "-i", "ticks.parquet", "-o", "found.parquet"],
    ["program.py", "--spark", "-i", "ticks.csv", "--limit", "1"],
    [
        "statement.sql",
        "--spark",
        "-i",
        "ticks=bad.csv",
        "--schema",
        "price double",
        "-o",
        "bad.json",
    ],
]

STREAM_COMMAND = ["clause.sql", "--from", "log:ticks.log", "--to", "found", "--late-to", "late"]
STREAM_COMMAND += ["--trigger", "100 ms", "--spark"]

#: Long enough for a machine that does much else; nothing is said about speed.
STREAM_SECONDS_MAX = 300


def outcome(session: SparkSession, text: str, dialect: str) -> dict[str, object]:
    try:
        table = op.sql(session, text, dialect).toArrow()
    except (op.OutpaceError, PySparkException) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"columns": table.column_names, "rows": answer(table)}


def windows(session: SparkSession, folder: Path) -> dict[str, windowed_parity.Answers]:
    """Run queries over windows of a DataFrame and of files."""
    folder.mkdir()
    windowed_parity.write_files(folder)
    return {
        "frame": windowed_parity.from_frame(session, folder, windowed_parity.CONNECT_FRAME),
        "files": windowed_parity.from_files(session, folder, windowed_parity.CONNECT_FILES),
    }


def streams(session: SparkSession, folder: Path) -> dict[str, streamed.Rows]:
    """Run queries over a stream, one of them fed by another."""
    session.conf.set(streamed.PROVIDER, ROCKSDB)
    streamed.write_pieces(streamed.pieces(streamed.events(*STREAM), 3, 2), folder / "in")
    stream = streamed.read_pieces(session, folder / "in")
    frames = {name: op.match(stream, query) for name, query in STREAMED.items()}
    frames["chained"] = op.match(frames["keyed"], streamed.CHAINED)
    streamed.run(streamed.together(frames), folder)
    return streamed.apart(streamed.rows_of(session, folder), frames)


def commands(session: SparkSession, folder: Path) -> dict[str, object]:
    """Run commands on the session, which is active, and count the tasks that they take."""
    os.chdir(folder)
    feed = ConnectFeed(session)
    said = [CliRunner().invoke(app, ["run", *arguments]) for arguments in COMMANDS]
    tasks = feed.tasks()
    feed.close()
    return {
        "said": [(done.exit_code, done.stdout, done.stderr) for done in said],
        "tasks": (tasks.done, tasks.total),
    }


def stopped(folder: Path) -> dict[str, object]:
    """Run a stream on the session, which is active, until a signal stops it."""
    os.chdir(folder)
    table = streamed.events(200, 2)
    log = op.log.create("ticks.log", table.schema)
    port = free_port()
    seen: dict[str, object] = {}

    def append(rows: pa.Table) -> None:
        with log.writer() as writer:
            writer.append(rows)

    def until(happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STREAM_SECONDS_MAX
        while not happened() and time.monotonic() < deadline:
            time.sleep(0.1)

    def watch() -> None:
        until(lambda: events_per_second(port) > 0)
        seen["batches"] = [one.name for one in Path("found.checkpoint/commits").glob("[0-9]*")]
        append(table.slice(0, 3))
        until(lambda: len(written("late")) == 3)
        os.kill(os.getpid(), signal.SIGTERM)

    append(table.slice(table.num_rows - 1))
    watching = threading.Thread(target=watch)
    watching.start()
    done = CliRunner().invoke(app, ["stream", *STREAM_COMMAND, "--metrics-port", str(port)])
    watching.join()
    return seen | {"said": (done.exit_code, done.stdout, done.stderr), "late": written("late")}


def listening() -> list[str]:
    """Return the addresses that this process and those below it listen on, as Linux writes them."""
    sockets = set()
    for process in _family():
        with suppress(OSError):
            sockets |= {str(handle.readlink()) for handle in (process / "fd").iterdir()}
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path("/proc/net", table).read_text().splitlines()[1:]
    ]
    listens = "0A"
    return sorted(
        {
            line[1].partition(":")[0]
            for line in lines
            if line[3] == listens and f"socket:[{line[9]}]" in sockets
        }
    )


def _family() -> list[Path]:
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    found = [os.getpid()]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return [Path("/proc", str(process)) for process in found]


def main(folder: Path) -> None:
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        # By default the server tells progress every two seconds: a quick command has none then.
        "spark.connect.progress.reportInterval": "50ms",
    }
    session = op.spark.session(remote="local[2]", conf=settings)
    assert type(session).__module__ == "pyspark.sql.connect.session"
    session.createDataFrame(ticks()).createOrReplaceTempView("ticks")
    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    found = {name: outcome(session, text, dialect) for name, dialect, text in asked}
    write_files(folder)
    answers = {
        "statements": found,
        "files": from_files(session, folder),
        "windows": windows(session, folder / "windows"),
        "streams": streams(session, folder / "streams"),
        "commands": commands(session, folder / "run"),
        "stopped": stopped(folder / "stream"),
        "listening": listening(),
    }
    (folder / "answered.json").write_text(json.dumps(answers), encoding="utf-8")
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
