"""Runs a streaming query, kills parts of it at seeded moments, and compares what it has written.

The log is written while the query runs, so that kills meet work. A kill comes a part of a batch
after the batch has begun, as the checkpoint shows. A program that has ended is started again, as a
supervisor would. In the end the sink must hold the matches of the table, each as often as there.
"""

from __future__ import annotations

import statistics
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
from chaos.program import Program
from chaos.scenario import Kill, Scenario, Sink, Victim
from chaos.streams import Stream, make_stream
from psycopg import sql

import outpace as op

EVENTS_PER_PIECE = 400
#: The log is at most so many pieces ahead of the query.
PIECES_AHEAD = 2
#: A run without a finished batch for so long has failed.
STALL_SECONDS_MAX = 900
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
        return self.failure is None and self.rows > 0 and not (self.lost or self.doubled)


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
    stream = make_stream(scenario.query, events, scenario.seed, EVENTS_PER_PIECE)
    outcome = Outcome(scenario, rows=stream.expected.num_rows)
    log = op.log.create(folder / "log", stream.arriving.schema)
    about: dict[str, object] = {
        "master": scenario.master,
        "query": scenario.query,
        "sink": scenario.sink.value,
        "form": scenario.form,
        "events_per_batch": EVENTS_PER_PIECE,
        "dsn": dsn,
        "table": f"chaos_{scenario.seed}_{time.time_ns()}",
    }
    with log.writer() as writer, Program(folder, about) as program:
        run = _Run(program, Checkpoint(folder / "checkpoint"), writer, stream, outcome, tell)
        outcome.failure = run.until_all_is_read() or run.stop()
    outcome.batches = run.checkpoint.committed + 1
    if outcome.failure is None:
        in_files = scenario.sink is Sink.FILES
        found = _in_files(folder) if in_files else _in_table(str(dsn), str(about["table"]))
        wanted = counted(stream.expected.to_pylist())
        there = counted(
            {name: value for name, value in row.items() if name not in stream.unlike}
            for row in found
        )
        outcome.lost = (wanted - there).total()
        outcome.doubled = (there - wanted).total()
        if len(outcome.killed) < len(scenario.kills):
            outcome.failure = f"only {len(outcome.killed)} of {len(scenario.kills)} kills were done"
    return outcome


def counted(rows: Iterable[dict[str, Any]]) -> Counter[tuple[tuple[str, Any], ...]]:
    """Return how often each row is there."""
    return Counter(tuple(sorted(row.items())) for row in rows)


class _Run:
    """One stream: its log, the program that reads it, and the kills still to come."""

    def __init__(
        self,
        program: Program,
        checkpoint: Checkpoint,
        writer: op.log.Writer,
        stream: Stream,
        outcome: Outcome,
        tell: Callable[[Outcome], None],
    ) -> None:
        self.checkpoint = checkpoint
        self._program = program
        self._writer = writer
        self._events = stream.arriving
        self._outcome = outcome
        self._tell = tell
        self._kills = list(outcome.scenario.kills)
        self._began = time.monotonic()

    def until_all_is_read(self) -> str | None:
        """Feed, kill and start again until all is read; return what went wrong."""
        seen, changed = -1, time.monotonic()
        durations = [BATCH_SECONDS]
        begun = -1  # the batch that was planned last, and when, if it met no restart
        began: float | None = None
        due: float | None = None
        last = -1  # the batch of the last kill
        while self.checkpoint.read < self._events.num_rows:
            self._feed()
            now = time.monotonic()
            if self.checkpoint.committed > seen:
                seen, changed = self.checkpoint.committed, now
                if began is not None:
                    durations.append(now - began)
            if now - changed > STALL_SECONDS_MAX:
                return f"no batch was finished in {STALL_SECONDS_MAX} s: {self._program.said}"
            if self._program.has_ended:
                if self._outcome.restarts > 2 * len(self._outcome.scenario.kills):
                    return f"the program ends again and again: {self._program.said}"
                self._outcome.restarts += 1
                self._program.start()
                # A batch that meets a restart takes as long as Java does to start.
                changed, began = now, None
            planned = self.checkpoint.planned
            if planned > begun:
                # So does the first, and kills that go by it come when all is over.
                begun, began = planned, None if begun < 0 else now
            if self._kills and due is None and planned >= last + self._kills[0].batches:
                due = now + self._kills[0].part * statistics.median_low(durations)
            if due is not None and now >= due and self._kill(self._kills[0]):
                self._kills.pop(0)
                due, last, changed = None, planned, now
            time.sleep(0.01)
        return None

    def stop(self) -> str | None:
        """Let the program stop by itself; return what went wrong."""
        self._program.ask_to_stop()
        while (code := self._program.wait(STALL_SECONDS_MAX)) != 0:
            if code is None or self._outcome.restarts > 2 * len(self._outcome.scenario.kills):
                return f"the program did not stop: {self._program.said}"
            self._outcome.restarts += 1  # the last kill met it after the last batch
            self._program.start()
        return None

    def _feed(self) -> None:
        ahead = self.checkpoint.read + PIECES_AHEAD * EVENTS_PER_PIECE
        end = self._events.num_rows
        while self._writer.stop < min(ahead, end):
            self._writer.append(self._events.slice(self._writer.stop, EVENTS_PER_PIECE))

    def _kill(self, kill: Kill) -> bool:
        """Kill, and return whether there was something to kill."""
        session = self._program.session
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


def _in_files(folder: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(folder / "found.parquet").to_pylist())


def _in_table(dsn: str, table: str) -> list[dict[str, Any]]:
    with psycopg.connect(dsn) as connection:
        asked = sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))
        cursor = connection.execute(asked)
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]
