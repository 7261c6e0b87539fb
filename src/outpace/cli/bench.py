"""The command `outpace bench`: how fast workloads run, what they find and what memory they take.

Each workload runs in a process of its own, pinned to one core. Times cover the whole `match` call,
from the Arrow table to the Arrow table of matches. `peak_bytes` is how far the resident memory of
the process rose above what it held before the call, with the input loaded and the kernels warm.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from outpace.errors import BindError, OutpaceError, did_you_mean
from outpace.testing.workloads import WORKLOADS

_SHOWN = ("workload", "n", "seconds", "events_per_s", "matches", "peak_bytes")
_ALL = ",".join(WORKLOADS)


def bench(
    workload: Annotated[str, typer.Option(help="Names of workloads, with commas.")] = _ALL,
    n: Annotated[int, typer.Option("--n", min=1, help="The number of events.")] = 4_000_000,
    host: Annotated[str, typer.Option(help="Where to run: local.")] = "local",
    repeat: Annotated[int, typer.Option(min=1, help="Timed runs; the median counts.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
) -> None:
    """Measure the matcher on deterministic workloads."""
    if host != "local":
        raise BindError(f"there is no host '{host}' to measure", hint="the only host is local")
    names = [name.strip() for name in workload.split(",") if name.strip()]
    for name in names:
        if name not in WORKLOADS:
            raise BindError(f"there is no workload '{name}'", hint=did_you_mean(name, WORKLOADS))
    results = []
    for name in names:
        result = measure(name, n, repeat)
        results.append(result)
        if as_json:
            typer.echo(json.dumps(result))
    if not as_json:
        _show(results)


def measure(workload: str, n: int, repeat: int) -> dict[str, object]:
    """Measure one workload in a new process."""
    command = [sys.executable, "-m", "outpace.cli.bench_worker", workload, str(n), str(repeat)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OutpaceError(f"workload '{workload}' failed", detail=done.stderr.strip())
    result: dict[str, object] = json.loads(done.stdout)
    return result


def _show(results: list[dict[str, object]]) -> None:
    table = Table(*_SHOWN)
    for result in results:
        table.add_row(*(_text(result[name]) for name in _SHOWN))
    Console().print(table)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if value < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
