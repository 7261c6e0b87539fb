"""A burst in the log: ten times what the query keeps up with, taken batch by batch.

First the log gets as much as the query takes, and no more; then ten times that at once. Admission
control cuts the burst into batches of the usual size, so that memory stays what it was, while a
metric says how far the query is behind.
"""

from __future__ import annotations

import json
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
from chaos import processes
from chaos.checkpoint import Checkpoint
from chaos.harness import STALL_SECONDS_MAX, counted
from chaos.program import Program
from chaos.streams import make_stream

import outpace as op

TIMES = 10
_BEHIND = ("outpace_source_behind_events", "outpace_source_behind_seconds")


@dataclass
class Peak:
    """The most that was seen in a phase."""

    python_bytes: int = 0
    all_bytes: int = 0
    behind_events: float = 0
    behind_seconds: float = 0
    seconds: float = 0


@dataclass
class Burst:
    """What came of a burst."""

    events_per_batch: int
    steady: Peak = field(default_factory=Peak)
    burst: Peak = field(default_factory=Peak)
    batches: list[int] = field(default_factory=list)
    behind_at_the_end: float = -1
    lost: int = 0
    doubled: int = 0
    failure: str | None = None


def run_burst(folder: Path, *, batches: int, events_per_batch: int) -> Burst:
    """Run so many batches at the query's own rate, and then a burst of ten times as many."""
    events = (TIMES + 1) * batches * events_per_batch
    stream = make_stream("keyed", events, seed=1, piece=events_per_batch)
    seen = Burst(events_per_batch)
    log = op.log.create(folder / "log", stream.arriving.schema)
    about: dict[str, object] = {
        "master": "local[2]",
        "query": "keyed",
        "sink": "files",
        "form": "blocks",
        "events_per_batch": events_per_batch,
    }
    checkpoint = Checkpoint(folder / "checkpoint")
    with log.writer() as writer, Program(folder, about) as program:
        watching = _Watching(program, folder)
        for _ in range(batches):
            writer.append(stream.arriving.slice(writer.stop, events_per_batch))
            seen.failure = watching.until(checkpoint, writer.stop, seen.steady)
            if seen.failure:
                return seen
        writer.append(stream.arriving.slice(writer.stop))
        seen.failure = watching.until(checkpoint, writer.stop, seen.burst)
        seen.behind_at_the_end = watching.behind_in_the_end()
        program.ask_to_stop()
        if program.wait(STALL_SECONDS_MAX) != 0:
            seen.failure = program.said
    if seen.failure:
        return seen
    ends = checkpoint.ends
    seen.batches = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    wanted = counted(stream.expected.to_pylist())
    there = counted(pq.read_table(folder / "found.parquet").to_pylist())
    seen.lost, seen.doubled = (wanted - there).total(), (there - wanted).total()
    return seen


class _Watching:
    """Looks at the memory of a program and at its metrics while it works."""

    def __init__(self, program: Program, folder: Path) -> None:
        self._program = program
        self._address = folder / "metrics"

    def until(self, checkpoint: Checkpoint, stop: int, peak: Peak) -> str | None:
        """Wait until events are read up to an offset; return what went wrong."""
        began = time.monotonic()
        while checkpoint.read < stop:
            if self._program.has_ended or time.monotonic() - began > STALL_SECONDS_MAX:
                return self._program.said
            self._look(peak)
            time.sleep(0.1)
        peak.seconds += time.monotonic() - began
        return None

    def behind_in_the_end(self) -> float:
        """Return how many events are left once the last batch is told."""
        began = time.monotonic()
        while (left := self._behind()[0]) and time.monotonic() - began < STALL_SECONDS_MAX:
            time.sleep(0.1)
        return left

    def _look(self, peak: Peak) -> None:
        there = processes.processes(self._program.session)
        held = [(each.memory_bytes, each.runs("java")) for each in there]
        python = sum(size for size, java in held if not java)
        peak.python_bytes = max(peak.python_bytes, python)
        peak.all_bytes = max(peak.all_bytes, sum(size for size, _ in held))
        events, seconds = self._behind()
        peak.behind_events = max(peak.behind_events, events)
        peak.behind_seconds = max(peak.behind_seconds, seconds)

    def _behind(self) -> tuple[float, float]:
        try:
            address = self._address.read_text("utf-8")
            with urllib.request.urlopen(f"{address}/metrics.json", timeout=10) as answer:
                samples = json.load(answer)["samples"]
        except OSError:
            return 0, 0  # the program is still starting
        values = {sample["name"]: sample["value"] for sample in samples}
        events, seconds = (values.get(name, 0) for name in _BEHIND)
        return events, seconds
