"""The command `outpace bench`: how fast workloads run, what they find and what memory they take.

In process, each workload runs in a process of its own, pinned to one core. Times cover the whole
`match` call, from the Arrow table to the Arrow table of matches. `peak_bytes` is how far the
resident memory of the process rose above what it held before the call, with the input loaded and
the kernels warm. On Spark, each number of cores has a process and a session of its own; see
`bench.spark` and `bench.spark_stream` for what is measured. The simulator runs queries of its own,
each number of them in a process of its own; see `bench.simulate`. Results appear as soon as they
are there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from outpace.bench.simulate import SIZES
from outpace.errors import BindError, OutpaceError, did_you_mean
from outpace.hosts.spark.session import check_cores, require_spark
from outpace.ingest.workloads import WORKLOADS
from outpace.report.table import FittedTable

HOSTS: Final = ("local", "spark", "stream", "simulate")

#: How many events there are where nothing is said. A stream takes so many micro-batches that what
#: each of them costs is in the rate.
EVENTS: Final = {"local": 4_000_000, "spark": 4_000_000, "stream": 24_000_000}

#: Where the events of a host come from; the first is taken where nothing is said.
INPUTS: Final = {
    "spark": ("parquet", "dataframe"),
    "stream": ("blocks", "rows", "files"),
}

#: Where the files of Spark's workloads are kept.
DATA_FOLDER: Final = Path("build/bench")

#: What the tables show of each result, and the heading of its column.
_SHOWN: Final = {
    "local": {
        "workload": "workload",
        "seconds": "seconds",
        "events_per_s": "M/s",
        "matches": "matches",
        "peak_bytes": "peak_bytes",
    },
    "spark": {
        "workload": "workload",
        "input": "input",
        "cores": "cores",
        "seconds": "seconds",
        "events_per_s": "M/s",
        "ceiling_events_per_s": "ceiling",
        "share_of_ceiling": "share",
        "matches": "matches",
        "speedup": "speedup",
    },
    "stream": {
        "workload": "workload",
        "input": "input",
        "cores": "cores",
        "seconds": "seconds",
        "events_per_s": "M/s",
        "events_per_s_plain": "plain M/s",
        "matches": "matches",
        "speedup": "speedup",
    },
    "simulate": {
        "queries": "queries",
        "vms": "vms",
        "seconds": "seconds",
        "processor_seconds": "processor",
        "peak_bytes": "peak_bytes",
        "vertices": "vertices",
        "ticks": "ticks",
    },
}
_ALL: Final = ",".join(WORKLOADS)

#: How much is shown of what a failing measurement printed.
_ERROR_LINES: Final = 20

BenchNumbers = dict[str, object]


def bench(
    workload: Annotated[str, typer.Option(help="Names of workloads, with commas.")] = _ALL,
    n: Annotated[
        int | None,
        typer.Option(
            "--n",
            min=1,
            max=10**10,
            help="The number of events; 4 million, on stream six micro-batches.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to run: local, spark or stream; or simulate.")
    ] = ("local"),
    repeat: Annotated[
        int, typer.Option(min=1, max=1000, help="Timed runs; the median counts.")
    ] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
    read: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="On spark: parquet (default), dataframe; on stream: blocks (default), rows, files;"
            " several with commas.",
        ),
    ] = None,
    cores: Annotated[
        str | None, typer.Option(help="On Spark: numbers of cores, with commas; 2 by default.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="On Spark: where the files are kept; build/bench.")
    ] = None,
) -> None:
    """Measure the matcher on deterministic workloads."""
    _known("host", [host], HOSTS)
    results: Iterator[BenchNumbers]
    names = _known("workload", _listed(workload), WORKLOADS)
    if host == "simulate":
        _only_for_spark(**{"--input": read, "--cores": cores, "--data": data})
        results = (measure_simulator(queries, vms, repeat) for queries, vms in SIZES)
    elif host == "local":
        n = n or EVENTS[host]
        _only_for_spark(**{"--input": read, "--cores": cores, "--data": data})
        results = (measure(name, n, repeat) for name in names)
    else:
        n = n or EVENTS[host]
        inputs = _known("input", _listed(read or INPUTS[host][0]), INPUTS[host])
        counts = _core_counts(cores or "2")
        require_spark()
        results = measure_on_spark(host, names, inputs, n, counts, repeat, data or DATA_FOLDER)
    if as_json:
        for result in results:
            typer.echo(json.dumps(result))
    else:
        _show(host, results)


def measure(workload: str, n: int, repeat: int) -> BenchNumbers:
    """Measure one workload in a new process."""
    command = [sys.executable, "-m", "outpace.bench.worker", workload, str(n), str(repeat)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OutpaceError(f"workload '{workload}' failed", detail=done.stderr.strip())
    result: BenchNumbers = json.loads(done.stdout)
    return result


def measure_simulator(queries: int, vms: int, repeat: int) -> BenchNumbers:
    """Measure the simulator with so many queries and machines in a new process."""
    arguments = map(str, (queries, vms, repeat))
    command = [sys.executable, "-m", "outpace.bench.simulate", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OutpaceError(f"simulating {queries} queries failed", detail=done.stderr.strip())
    result: BenchNumbers = json.loads(done.stdout)
    return result


def measure_on_spark(
    host: str,
    workloads: Sequence[str],
    inputs: Sequence[str],
    n: int,
    cores: Sequence[int],
    repeat: int,
    folder: Path,
) -> Iterator[BenchNumbers]:
    """Measure workloads on Spark, with a new process and session for each number of cores.

    From the second number of cores on, a result has `speedup`: how many times the steady rate is
    that of the first number of cores.
    """
    first: dict[object, object] = {}
    for count in cores:
        arguments = [host, ",".join(workloads), ",".join(inputs), n, count, repeat, folder]
        for result in _lines_of("outpace.bench.spark_worker", *map(str, arguments)):
            case, rate = (result["workload"], result["input"]), result["events_per_s"]
            earlier = first.setdefault(case, rate)
            if count != cores[0] and isinstance(earlier, int) and isinstance(rate, int):
                result["speedup"] = round(rate / earlier, 2)
            yield result


def _lines_of(module: str, *arguments: str) -> Iterator[BenchNumbers]:
    """Run a module in a new process and give each line that it prints as it comes."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            assert process.stdout is not None
            yield from map(json.loads, process.stdout)
        except BaseException:
            process.terminate()
            raise
        finally:
            status = process.wait()
        if status:
            errors.seek(0)
            last = deque(errors, _ERROR_LINES)
            raise OutpaceError("the measurement on Spark failed", detail="".join(last).strip())


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _known(what: str, names: list[str], known: Iterable[str]) -> list[str]:
    """Return the names, all of which must be known."""
    choices = list(known)
    if not names:
        raise BindError(f"no {what} is named", hint=f"one of {', '.join(choices)}")
    for name in names:
        if name not in choices:
            hint = did_you_mean(name, choices) or f"one of {', '.join(choices)}"
            raise BindError(f"there is no {what} '{name}'", hint=hint)
    return names


def _core_counts(text: str) -> list[int]:
    parts = _listed(text)
    if not parts or not all(part.isascii() and part.isdigit() for part in parts):
        raise BindError(f"'{text}' is not a list of numbers of cores", hint="for example 2 or 1,2")
    for part in parts:
        check_cores(f"local[{part}]")
    return [int(part) for part in parts]


def _only_for_spark(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise BindError(f"{name} is only for --host spark and stream")


def _show(host: str, results: Iterable[BenchNumbers]) -> None:
    rows = list(results)
    shown = {name: head for name, head in _SHOWN[host].items() if any(name in row for row in rows)}
    title = f"{rows[0]['n']:,} events" if "n" in rows[0] else "five simulated minutes"
    table = Table(title=title, box=None, padding=(0, 1, 0, 0))
    for name, head in shown.items():
        numeric = not isinstance(rows[0].get(name), str)
        table.add_column(head, justify="right" if numeric else "left", no_wrap=numeric)
    for row in rows:
        table.add_row(*(_text(name, row.get(name)) for name in shown))
    Console().print(FittedTable(table))


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and name.endswith("events_per_s"):
        return f"{value / 1e6:.2f}"
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
