"""How much memory a Spark program takes: its driver, its JVM and its Python workers.

A thread of another process reads the resident memory of the program and of all processes that it
started, many times a second, and keeps the peaks. Pages that processes share count once for each of
them, so the sum is never less than what is really taken but for what comes and goes between two
readings. Files in the page cache do not count. Needs Linux's /proc.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from outpace.errors import UnsupportedError

_PROC: Final = Path("/proc")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

#: Fields of /proc/PID/stat, counted behind the name.
_PARENT: Final = 1
_RESIDENT_PAGES: Final = 21


@dataclass(frozen=True, slots=True)
class Process:
    """A process at one moment."""

    parent: int
    name: str
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes of a Spark program: at one moment, or at the peak of each part.

    Parameters
    ----------
    driver
        The process asked for, and what it started beside the JVM.
    jvm
        Java.
    workers
        What Java started: Python's daemon and workers.
    spark
        The JVM and the workers together.
    total
        All together.
    """

    driver: int = 0
    jvm: int = 0
    workers: int = 0
    spark: int = 0
    total: int = 0

    def peak(self, other: Memory) -> Memory:
        """Return the greater of each part; sums are compared as sums of one moment.

        Examples
        --------
        >>> Memory(driver=1, jvm=5, spark=5, total=6).peak(Memory(driver=2, jvm=3, spark=3,
        ...                                                       total=5))
        Memory(driver=2, jvm=5, workers=0, spark=5, total=6)
        """
        names = self.__slots__
        return Memory(*(max(getattr(self, name), getattr(other, name)) for name in names))


def memory_of(root: int, processes: Mapping[int, Process]) -> Memory:
    """Add up the memory of a process and of those it started.

    Examples
    --------
    >>> memory_of(1, {1: Process(0, "python", 10), 2: Process(1, "java", 500),
    ...               3: Process(2, "python", 20), 4: Process(3, "python", 30),
    ...               9: Process(0, "java", 999)})
    Memory(driver=10, jvm=500, workers=50, spark=550, total=560)
    """
    sums = {"driver": 0, "jvm": 0, "workers": 0}
    for process in processes:
        role = _role(process, root, processes)
        if role is not None:
            sums[role] += processes[process].resident_bytes
    spark = sums["jvm"] + sums["workers"]
    return Memory(**sums, spark=spark, total=spark + sums["driver"])


class PeakMemory:
    """Watches a process, from `with` to its end, and keeps the peaks in `peak`.

    Parameters
    ----------
    root
        The number of the process that starts the JVM.
    every_s
        Seconds from reading to reading.
    """

    def __init__(self, root: int, every_s: float = 0.05) -> None:
        if not (_PROC / "self" / "stat").exists():
            raise UnsupportedError(
                "memory can be watched on Linux only", detail="there is no /proc"
            )
        self._root = root
        self._every_s = every_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak = Memory()
        self.readings = 0

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak = self.peak.peak(memory_of(self._root, running()))
            self.readings += 1
            if self._done.wait(self._every_s):
                return


def running() -> dict[int, Process]:
    """Return all processes of this machine by their numbers."""
    found = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue  # it has ended since the folder was listed
            name, _, rest = text.partition("(")[2].rpartition(")")
            fields = rest.split()
            found[int(folder.name)] = Process(
                int(fields[_PARENT]), name, int(fields[_RESIDENT_PAGES]) * _PAGE_BYTES
            )
    return found


def _role(process: int, root: int, processes: Mapping[int, Process]) -> str | None:
    """Return the part that a process belongs to, or None where it is not of this program."""
    if processes[process].name == "java":
        role = "jvm"
    else:
        role = "driver"
    # A process can get the number of one that ended: a circle of parents is left after one round.
    for _ in processes:
        if process == root:
            return role
        process = processes[process].parent
        if process not in processes:
            return None
        if processes[process].name == "java":
            role = "workers"
    return None
