"""Runs a streaming query, kills parts of it at seeded moments, and compares what it has written.

The log is written while the query runs, so that kills meet work. A kill comes a part of a batch
after the batch has begun, as the checkpoint shows. A program that has ended is started again, as a
supervisor would. In the end the sink must hold the matches of the table, each as often as there.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
from chaos import processes
from chaos.checkpoint import Checkpoint
from chaos.scenario import Kill, Scenario, Sink, Victim
from chaos.streams import Stream, make_stream
from psycopg import sql

import outpace as op

TESTS = Path(__file__).resolve().parents[1]
EVENTS_PER_PIECE = 400
#: The log is at most so many pieces ahead of the query.
PIECES_AHEAD = 2
#: A run without a finished batch for so long has failed.
STALL_SECONDS_MAX = 300
#: What a batch takes before one is measured.
BATCH_SECONDS = 1.0


@dataclass(frozen=True)
class Killed:
    """A kill that was done: in which batch, and whether it was being worked on."""

    victim: Victim
    batch: int
    running: bool
    seconds: float


@dataclass
class Outcome:
    """What came of a scenario."""

    scenario: Scenario
    killed: list[Killed] = field(default_factory=list)
    restarts: int = 0
    batches: int = 0
    rows: int = 0
    lost: int = 0
    doubled: int = 0
    failure: str | None = None

    @property
    def ok(self) -> bool:
        """Whether every kill was done, and every row is there once."""
        done = len(self.killed) == len(self.scenario.kills)
        return done and self.failure is None and not (self.lost or self.doubled)


def run_scenario(
    scenario: Scenario,
    folder: Path,
    dsn: str | None,
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Run a scenario in an empty folder.

    Parameters
    ----------
    scenario
        What happens.
    folder
        For the log, the checkpoint and what the programs say.
    dsn
        Where PostgreSQL is, for the scenarios that write there.
    tell
        Called after every kill.
    """
    events = scenario.pieces * EVENTS_PER_PIECE
    stream = make_stream(scenario.query, events, scenario.seed)
    outcome = Outcome(scenario, rows=stream.expected.num_rows)
    table = f"chaos_{scenario.seed}_{os.getpid()}_{time.monotonic_ns()}"
    about = {
        "master": scenario.master,
        "query": scenario.query,
        "sink": scenario.sink.value,
        "form": scenario.form,
        "events_per_batch": EVENTS_PER_PIECE,
        "dsn": dsn,
        "table": table,
    }
    (folder / "run.json").write_text(json.dumps(about), encoding="utf-8")
    with _Run(scenario, folder, stream, outcome, tell) as run:
        outcome.failure = run.until_all_is_read() or run.stop()
    outcome.batches = run.checkpoint.committed + 1
    if outcome.failure is None:
        found = _in_files(folder) if scenario.sink is Sink.FILES else _in_table(str(dsn), table)
        wanted, there = _counted(stream.expected.to_pylist()), _counted(found)
        outcome.lost = (wanted - there).total()
        outcome.doubled = (there - wanted).total()
    return outcome


class _Run:
    """One stream: its log, the program that reads it, and the kills still to come."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        stream: Stream,
        outcome: Outcome,
        tell: Callable[[Outcome], None],
    ) -> None:
        self.checkpoint = Checkpoint(folder / "checkpoint")
        self._folder = folder
        self._outcome = outcome
        self._tell = tell
        self._kills = list(scenario.kills)
        self._log = op.log.create(folder / "log", stream.arriving.schema).writer()
        self._stream = stream
        self._began = time.monotonic()
        self._sessions: list[int] = []
        self._starts = 0
        self._program = self._start()

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()
        for session in self._sessions:
            _end(session)
        self._program.wait()

    def until_all_is_read(self) -> str | None:
        """Feed, kill and start again until all is read; return what went wrong."""
        seen, changed = -1, time.monotonic()
        durations = [BATCH_SECONDS]
        due: float | None = None
        last = -1  # the batch of the last kill
        while self.checkpoint.read < self._stream.arriving.num_rows:
            self._feed()
            now = time.monotonic()
            if self.checkpoint.committed > seen:
                if seen >= 0:
                    durations.append(now - changed)
                seen, changed = self.checkpoint.committed, now
            if now - changed > STALL_SECONDS_MAX:
                return f"no batch was finished in {STALL_SECONDS_MAX} s: {self._said()}"
            if self._program.poll() is not None:
                if self._outcome.restarts > 2 * len(self._outcome.scenario.kills):
                    return f"the program ends again and again: {self._said()}"
                self._outcome.restarts += 1
                self._program = self._start()
                changed = now
            planned = self.checkpoint.planned
            if self._kills and due is None and planned >= last + self._kills[0].batches:
                due = now + self._kills[0].part * statistics.median(durations)
            if due is not None and now >= due and self._kill(self._kills[0]):
                self._kills.pop(0)
                due, last, changed = None, planned, now
            time.sleep(0.01)
        return None

    def stop(self) -> str | None:
        """Let the program stop by itself; return what went wrong."""
        (self._folder / "stop").touch()
        while (code := _wait(self._program)) != 0:
            if code is None or self._outcome.restarts > 2 * len(self._outcome.scenario.kills):
                return f"the program did not stop: {self._said()}"
            self._outcome.restarts += 1  # the last kill met it after the last batch
            self._program = self._start()
        return None

    def _feed(self) -> None:
        ahead = self.checkpoint.read + PIECES_AHEAD * EVENTS_PER_PIECE
        end = self._stream.arriving.num_rows
        while self._log.stop < min(ahead, end):
            self._log.append(self._stream.arriving.slice(self._log.stop, EVENTS_PER_PIECE))

    def _kill(self, kill: Kill) -> bool:
        """Kill, and return whether there was something to kill."""
        session = self._program.pid
        victims = {
            Victim.WORKER: processes.workers,
            Victim.EXECUTOR: processes.executors,
            Victim.DRIVER: processes.driver,
            Victim.MACHINE: processes.processes,
        }[kill.victim](session)
        if not victims:
            return False
        if kill.victim in (Victim.WORKER, Victim.EXECUTOR):
            # Which one is part of the seed, as far as the same ones are there.
            victims = [victims[int(kill.part * 1000) % len(victims)]]
        batch = self.checkpoint.planned
        running = batch > self.checkpoint.committed
        for victim in victims:
            victim.kill()
        seconds = time.monotonic() - self._began
        self._outcome.killed.append(Killed(kill.victim, batch, running, seconds))
        if kill.victim in (Victim.DRIVER, Victim.MACHINE):
            self._program.wait()
        self._tell(self._outcome)
        return True

    def _start(self) -> subprocess.Popen[bytes]:
        self._starts += 1
        # A number is free for others once the session is empty.
        self._sessions = [session for session in self._sessions if processes.processes(session)]
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        with (self._folder / f"driver-{self._starts}.log").open("wb") as log:
            program = subprocess.Popen(
                [sys.executable, "-m", "chaos.driver", str(self._folder)],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        self._sessions.append(program.pid)
        return program

    def _said(self) -> str:
        log = self._folder / f"driver-{self._starts}.log"
        return f"{log}\n" + log.read_text("utf-8", "replace")[-2000:]


def _wait(program: subprocess.Popen[bytes]) -> int | None:
    try:
        return program.wait(STALL_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return None


def _end(session: int) -> None:
    while alive := processes.processes(session):
        for each in alive:
            each.kill()
        time.sleep(0.05)


def _in_files(folder: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(folder / "found.parquet").to_pylist())


def _in_table(dsn: str, table: str) -> list[dict[str, Any]]:
    with psycopg.connect(dsn) as connection:
        asked = sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))
        cursor = connection.execute(asked)
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def _counted(rows: Iterable[dict[str, Any]]) -> Counter[tuple[tuple[str, Any], ...]]:
    return Counter(tuple(sorted(row.items())) for row in rows)
