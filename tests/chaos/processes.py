"""The processes of a Spark program on this machine, told apart by what they run.

A program that is started in a session of its own keeps its processes there: Java, executors and
Python workers, even those whose parent was killed.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process as /proc shows it."""

    pid: int
    parent: int
    command: str

    def runs(self, program: str) -> bool:
        """Whether it is a program of this name; one that has just been forked has no name yet."""
        return program in self.command.partition(" ")[0]

    def kill(self) -> None:
        """End it at once, unless it has ended by itself."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    @property
    def memory_bytes(self) -> int:
        """What it holds in memory of its own, 0 once it has ended."""
        try:
            lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text("utf-8").splitlines()
        except OSError:
            return 0
        held = dict(line.split(":") for line in lines[1:])
        return int(held["Pss"].split()[0]) * 1024


def processes(session: int) -> list[Process]:
    """The processes of a session that are alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            about = (entry / "stat").read_text("utf-8").rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8")
        except OSError:
            continue  # it has ended since
        state, parent, _, of = about[:4]
        if int(of) == session and state != "Z":
            found.append(Process(int(entry.name), int(parent), command))
    return found


def workers(session: int) -> list[Process]:
    """Python processes that run tasks: what the daemons of executors have forked."""
    there = processes(session)
    daemons = {
        each.pid for each in there if each.command.endswith("-m pyspark.daemon pyspark.worker ")
    }
    return [each for each in there if each.parent in daemons]


def executors(session: int) -> list[Process]:
    """Executors: Java processes beside the driver's own, in the mode local-cluster."""
    return [each for each in processes(session) if "CoarseGrainedExecutorBackend" in each.command]


def driver(session: int) -> list[Process]:
    """The program itself and its Java, without the executors, which notice it after a while."""
    there = processes(session)
    beside = {each.pid for each in executors(session)}
    return [
        each
        for each in there
        if each.pid == session or (each.parent == session and each.pid not in beside)
    ]
