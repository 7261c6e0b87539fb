"""How long and how much memory large simulations take: figures 14 and 15 of the CEPSim paper.

Each setting runs in a process of its own, that of `outpace bench --host simulate`: copies of q2 for
five simulated minutes. It simulates one query first, so that compiled code is loaded, and then
tells its time and by how much the peak of its memory has grown since.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from outpace.errors import OutpaceError
from outpace.studies import cepsim_figures as figures
from outpace.studies.report import Figure, Row

#: What the paper says, by the number of queries: seconds, and megabytes.
ONE_VM: Final = {100: (7.0, 40.0)}
MANY_VMS: Final = {10_000: (420.0, 1000.0)}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a simulation took."""

    seconds: float
    peak_bytes: int


def one_vm(counts: Sequence[int], repeat: int) -> Iterator[Row]:
    """Simulate several numbers of copies of q2 on one VM (figure 14)."""
    for queries in counts:
        cost = cost_of(queries, 1, repeat)
        said = ONE_VM.get(queries, (None, None))
        setting = f"{queries:,} queries"
        yield from _rows(figures.TIME_ONE, figures.MEMORY_ONE, setting, cost, said, "here", queries)


def many_vms(queries_per_vm: int, vms: Sequence[int], repeat: int) -> Iterator[Row]:
    """Simulate several numbers of VMs with the same number of copies of q2 on each (figure 15)."""
    for count in vms:
        queries = count * queries_per_vm
        cost = cost_of(queries, count, repeat)
        said = MANY_VMS.get(queries, (None, None))
        setting = f"{queries:,} queries, {queries_per_vm} on each VM"
        curve = f"{queries_per_vm} queries on each VM"
        yield from _rows(
            figures.TIME_MANY, figures.MEMORY_MANY, setting, cost, said, curve, queries
        )


def cost_of(queries: int, vms: int, repeat: int) -> Cost:
    """Simulate in a process of its own; the time is the median of so many runs."""
    arguments = [str(number) for number in (queries, vms, repeat)]
    done = subprocess.run(
        [sys.executable, "-m", "outpace.bench.simulate", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OutpaceError("a simulation in a process of its own failed", detail=done.stderr)
    found = json.loads(done.stdout)
    return Cost(found["seconds"], found["peak_bytes"])


def _rows(
    time: Figure,
    memory: Figure,
    setting: str,
    cost: Cost,
    said: tuple[float | None, float | None],
    curve: str,
    at: int,
) -> Iterator[Row]:
    yield Row(time.name, setting, cost.seconds, "s", said[0], curve, at)
    yield Row(memory.name, setting, cost.peak_bytes / 1e6, "MB", said[1], curve, at)
