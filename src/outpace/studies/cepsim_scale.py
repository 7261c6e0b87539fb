"""How long and how much memory large simulations take (the CEPSim paper, section 6.5).

Each setting runs in a process of its own, which simulates one query first, so that compiled code is
loaded, and then tells its time and by how much the peak of its memory has grown since. As a program
(`python -m outpace.studies.cepsim_scale QUERIES VMS SECONDS`) this module is that process.
"""

from __future__ import annotations

import json
import math
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from outpace.errors import OutpaceError
from outpace.simulate import Scenario, simulate
from outpace.studies import cepsim_figures as figures
from outpace.studies.cepsim_queries import QUEUE, READINGS_PER_SECOND, convert_query, worker
from outpace.studies.report import Row

#: Linux tells a process the peak of its memory, and forgets it when asked to.
_STATUS: Final = Path("/proc/self/status")
_PEAK_RESET: Final = Path("/proc/self/clear_refs")

#: Of each query, in events a second, and the simulated time, in seconds.
RATE: Final = 100
PAPER_SECONDS: Final = 300.0

#: What the paper says of 100 queries on one VM, and of 10 000 on many: seconds, and megabytes.
ONE_VM: Final = {100: (7.0, 40.0)}
MANY_VMS: Final = {10_000: (420.0, 1000.0)}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a simulation took."""

    seconds: float
    peak_bytes: int


def one_vm(counts: Sequence[int], seconds: float) -> Iterator[Row]:
    """Simulate several numbers of copies of q2 on one VM (figure 14)."""
    for count in counts:
        cost = cost_of(count, 1, seconds)
        said, bytes_said = ONE_VM.get(count, (None, None))
        known = seconds == PAPER_SECONDS
        setting = f"{count:,} queries, {seconds:g} s"
        time_row = (setting, cost.seconds, "s", said if known else None, "here", count)
        memory = (cost.peak_bytes / 1e6, "MB", bytes_said if known else None, "here", count)
        yield Row(figures.TIME_ONE.name, *time_row)
        yield Row(figures.MEMORY_ONE.name, setting, *memory)


def many_vms(queries_per_vm: int, vms: Sequence[int], seconds: float) -> Iterator[Row]:
    """Simulate several numbers of VMs with the same number of copies of q2 on each (figure 15)."""
    for count in vms:
        queries = count * queries_per_vm
        cost = cost_of(queries, count, seconds)
        said, bytes_said = MANY_VMS.get(queries, (None, None))
        known = seconds == PAPER_SECONDS
        curve = f"{queries_per_vm} queries on each VM"
        setting = f"{queries:,} queries on {count:,} VMs, {seconds:g} s"
        time_row = (setting, cost.seconds, "s", said if known else None, curve, queries)
        memory = (cost.peak_bytes / 1e6, "MB", bytes_said if known else None, curve, queries)
        yield Row(figures.TIME_MANY.name, *time_row)
        yield Row(figures.MEMORY_MANY.name, setting, *memory)


def cost_of(queries: int, vms: int, seconds: float) -> Cost:
    """Simulate in a process of its own."""
    command = [sys.executable, "-m", "outpace.studies.cepsim_scale"]
    done = subprocess.run(
        [*command, str(queries), str(vms), str(seconds)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OutpaceError("a simulation in a process of its own failed", detail=done.stderr)
    return Cost(**json.loads(done.stdout))


def copies_on_vms(queries: int, vms: int, seconds: float) -> Scenario:
    """Return copies of q2, divided evenly among VMs.

    Examples
    --------
    >>> scenario = copies_on_vms(queries=6, vms=3, seconds=1.0)
    >>> scenario.placement["0/spout"], scenario.placement["5/consumer"]
    ('worker-0', 'worker-2')
    """
    query = convert_query(RATE // READINGS_PER_SECOND)
    copies = [query.copy(str(number)) for number in range(queries)]
    machines = [worker(f"worker-{number}") for number in range(vms)]
    placement = {
        vertex.id: machines[number * vms // queries].id
        for number, copy in enumerate(copies)
        for vertex in copy.vertices
    }
    return Scenario(
        tuple(copies),
        tuple(machines),
        duration=seconds,
        placement=placement,
        queue=QUEUE,
        overflow="discard",
        sample=math.inf,
    )


def measure(queries: int, vms: int, seconds: float) -> Cost:
    """Simulate in this process."""
    simulate(copies_on_vms(1, 1, 1.0))
    scenario = copies_on_vms(queries, vms, seconds)
    before = _forget_peak()
    started = time.perf_counter()
    simulate(scenario)
    return Cost(time.perf_counter() - started, _peak_bytes() - before)


def _forget_peak() -> int:
    """Let the peak of the memory begin anew, where the system can, and return where it begins."""
    with suppress(OSError):
        _PEAK_RESET.write_text("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    """The peak of the resident memory of this process."""
    if _STATUS.exists():
        found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
        assert found is not None, "Linux tells the peak of every process"
        return 1024 * int(found.group(1))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # macOS counts in bytes


if __name__ == "__main__":
    cost = measure(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
    sys.stdout.write(json.dumps({"seconds": cost.seconds, "peak_bytes": cost.peak_bytes}))
