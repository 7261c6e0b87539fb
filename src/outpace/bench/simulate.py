"""One size of the simulator, in its own process: `python -m outpace.bench.simulate 100 1 3`.

The scenario is that of the CEPSim paper's section 6.5: copies of q2 with 100 events a second each,
five minutes in ticks of 100 ms, spread evenly over worker machines. Times go from the `Scenario`
value to the `Result`: numbering, arrays, all ticks, and the recording, with a history in steps of
10 s; the kernels are loaded, and the Python values of the scenario are there. `scenario_seconds` is
how long making these took. `peak_bytes` is how far the resident memory of the process rose in the
call; `process_bytes` is the most that the process had, with Python, the libraries and the scenario.
Prints one JSON object.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time

from outpace.bench.worker import highest_memory, peak_of, pin_to_one_core, release_memory
from outpace.simulate import Result, Scenario, simulate
from outpace.studies.cepsim_queries import convert_query, worker

#: Queries and machines of each size.
SIZES = ((1, 1), (10, 1), (100, 1), (1_000, 10), (1_000, 100), (10_000, 100), (10_000, 1_000))

_SENSORS = 10
_DURATION = 300.0
_HISTORY_STEP = 10.0


def scenario(queries: int, vms: int) -> Scenario:
    """Return copies of q2 on worker machines."""
    query = convert_query(_SENSORS)
    copies = tuple(query.copy(str(number)) for number in range(queries))
    machines = tuple(worker(f"worker-{number}") for number in range(vms))
    placement = {
        vertex.id: machines[number % vms].id
        for number, copy in enumerate(copies)
        for vertex in copy.vertices
    }
    return Scenario(copies, machines, _DURATION, placement, sample=_HISTORY_STEP)


def run(queries: int, vms: int, repeat: int) -> dict[str, object]:
    """Simulate once for the memory, then `repeat` times for the speed."""
    simulate(scenario(1, 1), engine="fast")
    started = time.perf_counter()
    chosen = scenario(queries, vms)
    scenario_seconds = time.perf_counter() - started
    release_memory()
    peak, result = peak_of(lambda: simulate(chosen, engine="fast"))
    process_bytes = highest_memory()
    seconds, processor_seconds = [], []
    for _ in range(repeat):
        del result
        gc.collect()
        started, processor_started = time.perf_counter(), time.process_time()
        result = simulate(chosen, engine="fast")
        seconds.append(time.perf_counter() - started)
        processor_seconds.append(time.process_time() - processor_started)
    return {
        "host": "simulate",
        "queries": queries,
        "vms": vms,
        "seconds": round(statistics.median(seconds), 6),
        "seconds_best": round(min(seconds), 6),
        "processor_seconds": round(min(processor_seconds), 6),
        "scenario_seconds": round(scenario_seconds, 6),
        "repeat": repeat,
        "peak_bytes": peak,
        "process_bytes": process_bytes,
        "vertices": len(result.layout.vertices),
        "ticks": result.layout.ticks,
        "events": _events(result),
    }


def _events(result: Result) -> float:
    """The events that all vertices processed."""
    return float(result.recording.processed.sum())


if __name__ == "__main__":
    queries_, vms_, repeat_ = (int(argument) for argument in sys.argv[1:4])
    if queries_ <= 100:
        pin_to_one_core()
    sys.stdout.write(json.dumps(run(queries_, vms_, repeat_)) + "\n")
