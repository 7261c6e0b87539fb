"""More rows than memory: match 200 million rows of Parquet on Spark and watch what it takes.

Run `python bench/large.py`; `--help` lists the options. The file is made first, one row group in
memory at a time. Then each workload runs in a new process with a session of its own, and this
process reads the resident memory of that driver, its JVM and all its Python workers every 50 ms,
from their start to their end. This process itself matches nothing and is not counted. Prints a
JSON object for each workload, and ends with exit code 1 where JVM and workers took more than
`--limit` together.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from memory import PeakMemory

from outpace.bench.data import events_file
from outpace.bench.spark import job
from outpace.cli.bench import DATA_FOLDER
from outpace.hosts.spark.session import session
from outpace.ingest.workloads import WORKLOADS

GIBIBYTE = 1 << 30


def main():
    options = parse(sys.argv[1:])
    path = events_file(options.data, options.n)
    over = False
    for workload in options.workload.split(","):
        found = watch(workload, options.input, path, options.cores, options.heap)
        found["n"] = options.n
        found["file_bytes"] = path.stat().st_size
        found["events_per_s_plain"] = round(options.n / found["seconds"])
        print(json.dumps(found), flush=True)
        over = over or found["peak_spark_bytes"] > options.limit * GIBIBYTE
    if options.remove:
        path.unlink()
    if over:
        sys.exit(f"JVM and workers took more than {options.limit} GiB together")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=200_000_000, help="the number of rows")
    parser.add_argument(
        "--workload", default="w1,w1k,w3a", help="names, with commas; w1 has no key"
    )
    parser.add_argument("--input", choices=["parquet", "dataframe"], default="parquet")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--heap", default="640m", help="the most that Java may take for objects")
    parser.add_argument("--limit", type=float, default=2.0, help="GiB for JVM and workers together")
    parser.add_argument("--data", type=Path, default=DATA_FOLDER, help="where the file is kept")
    parser.add_argument("--remove", action="store_true", help="remove the file at the end")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.workload.split(",") if name not in WORKLOADS]
    if unknown:
        parser.error(f"there is no workload '{unknown[0]}'; one of {', '.join(WORKLOADS)}")
    return options


def watch(workload, kind, path, cores, heap):
    """Run a workload in a new process and return what it found, with the peaks of its memory."""
    arguments = [workload, kind, path, cores, heap]
    command = [sys.executable, __file__, "run", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with PeakMemory(process.pid) as memory:
        output, _ = process.communicate()
    if process.returncode:
        sys.exit(f"workload '{workload}' failed")
    peak = memory.peak
    return {
        **json.loads(output),
        "heap": heap,
        "peak_jvm_bytes": peak.jvm,
        "peak_workers_bytes": peak.workers,
        "peak_spark_bytes": peak.spark,
        "peak_driver_bytes": peak.driver,
        "peak_total_bytes": peak.total,
        "readings": memory.readings,
    }


def run(workload, kind, path, cores, heap):
    spark = session("outpace large", master=f"local[{cores}]", conf={"spark.driver.memory": heap})
    try:
        started = time.perf_counter()
        found = job(spark, WORKLOADS[workload](), kind, path)
        seconds = time.perf_counter() - started
    finally:
        spark.stop()
    result = {"workload": workload, "input": kind, "cores": int(cores)}
    print(json.dumps({**result, "seconds": round(seconds, 3), **found._asdict()}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(*sys.argv[2:])
    else:
        main()
