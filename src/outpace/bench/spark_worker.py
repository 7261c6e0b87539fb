"""Workloads on a Spark session of their own: one process for each number of cores.

Run as `python -m outpace.bench.spark_worker spark w1,w2 parquet 20000000 2 3 build/bench`.
Prints one JSON object per line, as soon as it is measured; `outpace bench` starts it and says what
the numbers mean. The session, its JVM and its workers end with the process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from outpace.bench import spark as bench_spark
from outpace.bench import spark_stream as bench_stream
from outpace.errors import OutpaceError
from outpace.hosts.spark.session import session


def main(
    host: str, workloads: str, inputs: str, n: str, cores: str, repeat: str, folder: str
) -> None:
    """Measure every workload from every input."""
    measure = bench_stream.measure if host == "stream" else bench_spark.measure
    # A stream has a state store in every partition, so as few of them as there are cores.
    conf = {"spark.sql.shuffle.partitions": cores} if host == "stream" else {}
    spark = session("outpace bench", master=f"local[{cores}]", conf=conf)
    try:
        for kind in inputs.split(","):
            for workload in workloads.split(","):
                result = measure(
                    spark, workload, kind, int(n), int(cores), int(repeat), Path(folder)
                )
                sys.stdout.write(json.dumps(result) + "\n")
                sys.stdout.flush()
    finally:
        spark.stop()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OutpaceError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
