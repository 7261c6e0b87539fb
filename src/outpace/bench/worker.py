"""One workload in a process of its own: `python -m outpace.bench.worker w1 4000000 3`.

Prints one JSON object; `outpace bench` starts it and says what the numbers mean.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from outpace.hosts.local.table import match
from outpace.ingest.workloads import WORKLOADS, events
from outpace.pattern.query import Query
from outpace.pattern.windows import CountWindows

T = TypeVar("T")

#: Rows of the run that loads the kernels: enough to leave the first-use fallback behind.
_WARM_ROWS = 250_000


def run(workload: str, n: int, repeat: int) -> dict[str, object]:
    """Run a workload once for its memory, then `repeat` times for its speed."""
    query = WORKLOADS[workload]()
    match(events(_WARM_ROWS), query)
    table = events(n)
    release_memory()
    peak, result = peak_of(lambda: match(table, query))
    seconds, processor_seconds = [], []
    for _ in range(repeat):
        del result
        gc.collect()
        started, processor_started = time.perf_counter(), time.process_time()
        result = match(table, query)
        seconds.append(time.perf_counter() - started)
        processor_seconds.append(time.process_time() - processor_started)
    median = statistics.median(seconds)
    read = _input_bytes(table, query)
    return {
        "workload": workload,
        "host": "local",
        "n": n,
        "seconds": round(median, 6),
        "seconds_best": round(min(seconds), 6),
        "processor_seconds": round(statistics.median(processor_seconds), 6),
        "repeat": repeat,
        "events_per_s": round(n / median),
        "matches": result.num_rows,
        "sum_start": _total(result, "start"),
        "sum_end": _total(result, "end"),
        "sum_length": _total(result, "length"),
        **_window_counts(result, query, n),
        "peak_bytes": peak,
        "input_bytes": read,
        "peak_per_input_byte": round(peak / read, 2),
    }


def pin_to_one_core() -> None:
    """Keep this process, and Arrow's threads, to one core."""
    pa.set_cpu_count(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def release_memory() -> None:
    """Give back what is free, so that it does not hide what the call takes."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def peak_of(call: Callable[[], T]) -> tuple[int, T]:
    """Return how far the resident memory rose during a call, and the call's result."""
    before = _resident("VmRSS")
    if before is not None:
        # Linux starts the high-water mark anew on request.
        Path("/proc/self/clear_refs").write_text("5")
    else:
        before = highest_memory()
    result = call()
    after = _resident("VmHWM")
    return (highest_memory() if after is None else after) - before, result


def _resident(field: str) -> int | None:
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    lines = (line for line in status.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(next(lines).split()[1]) * 1024


def highest_memory() -> int:
    """Return the most resident memory that the process has had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _input_bytes(table: pa.Table, query: Query) -> int:
    from outpace.pattern.bind.query import bind

    return int(sum(table.column(name).nbytes for name in bind(query, table.schema).columns))


def _window_counts(result: pa.Table, query: Query, n: int) -> dict[str, int]:
    """Count the windows with matches, and the matches in windows that the input fills.

    Other systems do not fire the windows by count that the end of the input cuts short.
    """
    if query.windows is None:
        return {}
    number, whole = result.column("window"), result.num_rows
    if isinstance(query.windows, CountWindows):
        last = (n - query.windows.size - query.windows.offset) // query.windows.slide
        whole = pc.sum(pc.less_equal(number, last)).as_py() or 0
    keys = [*query.partitions, "window"]
    windows = result.select(keys).group_by(keys).aggregate([]).num_rows
    return {"windows": windows, "matches_in_whole_windows": whole}


def _total(result: pa.Table, name: str) -> int:
    return int(pc.sum(result.column(name)).as_py() or 0)


if __name__ == "__main__":
    pin_to_one_core()
    sys.stdout.write(json.dumps(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))) + "\n")
