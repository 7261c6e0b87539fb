"""What more threads gain: match a table or a Parquet file in process, with one and with more.

Run `python bench/threads.py`; `--help` lists the options. Each workload has a process of its own,
in which each number of threads takes its turn, as often as `--repeat` says. Of a table, a run of
each number before them is for its memory, with what was free given back, and is not timed. All
runs of a workload must find the same rows in the same order. With `--files` the rows are in a
Parquet file that is made first, one row group in memory at a time, and the memory is the most that
the whole process has had.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import outpace as op
from outpace.bench.data import events_file
from outpace.bench.worker import highest_memory, peak_of, release_memory
from outpace.cli.bench import DATA_FOLDER
from outpace.ingest.workloads import WORKLOADS, events

_WARM_ROWS = 250_000


def main():
    options = parse()
    if options.child:
        print(json.dumps(measure(options)), flush=True)
        return
    if options.files:
        events_file(options.data, options.n)
    names = options.workload.split(",")
    for name in names:
        command = [sys.executable, __file__, *sys.argv[1:], "--workload", name, "--child"]
        if subprocess.run(command, check=False).returncode:
            sys.exit(f"workload '{name}' failed")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", default="w1,w2,w1k,w3b,w4s", help="names, with commas")
    parser.add_argument("--n", type=int, default=8_000_000, help="the number of rows")
    parser.add_argument("--threads", type=int, default=2, help="the threads beside one")
    parser.add_argument("--repeat", type=int, default=5, help="the turns")
    parser.add_argument("--files", action="store_true", help="match a Parquet file")
    parser.add_argument("--data", type=Path, default=DATA_FOLDER, help="where files are kept")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.workload.split(",") if name not in WORKLOADS]
    if unknown:
        parser.error(f"there is no workload '{unknown[0]}'; one of {', '.join(WORKLOADS)}")
    return options


def measure(options):
    query = WORKLOADS[options.workload]()
    op.match(events(_WARM_ROWS), query, threads=1)
    if options.files:
        given = op.parquet(str(events_file(options.data, options.n)))
    else:
        given = events(options.n)
    seconds, peaks, first = {1: [], options.threads: []}, {}, None
    for turn in range(options.repeat + 1):
        for threads in seconds:
            release_memory()
            started = time.perf_counter()
            if turn or options.files:
                found = op.match(given, query, threads=threads)
            else:
                peaks[threads], found = peak_of(
                    lambda threads=threads: op.match(given, query, threads=threads)
                )
            if turn or options.files:
                seconds[threads].append(time.perf_counter() - started)
            if first is None:
                first = found
            elif not found.equals(first):
                sys.exit(f"{threads} threads found other rows")
            del found
    ratios = [one / more for one, more in zip(seconds[1], seconds[options.threads], strict=True)]
    return {
        "workload": options.workload,
        "n": options.n,
        "threads": options.threads,
        "million_events_per_s": {
            threads: round(options.n / statistics.median(taken) / 1e6, 2)
            for threads, taken in seconds.items()
        },
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "peak_bytes": peaks or highest_memory(),
        "matches": first.num_rows,
    }


if __name__ == "__main__":
    main()
