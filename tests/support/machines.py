"""Graphs on several machines, which are processes of this one on its loopback."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa
from support.graphs import WINDOWS, PacedRows, chain, diamond

import outpace as op
from outpace.hosts.graph.graph import Graph
from outpace.hosts.graph.graph_run import GraphRun
from outpace.hosts.graph.keys import make_keys
from outpace.hosts.processes.processes import process_context

#: Which operators run beside the first machine.
PLACES: dict[str, dict[str, str]] = {
    "chain": {"two": "south", "three": "east"},
    "diamond": {"left": "south", "right": "east", "join": "south"},
}
SHAPES: dict[str, Callable[..., Any]] = {"chain": chain, "diamond": diamond}
#: So many ports are free behind that of a machine.
_PORTS = 8
PATIENCE_S = 3.0


def free_addresses(count: int) -> list[str]:
    """Return addresses on loopback, each with some free ports behind it."""
    found: list[str] = []
    while len(found) < count:
        first = random.randrange(20_000, 32_000, _PORTS)
        with ExitStack() as opened, suppress(OSError):
            for port in range(first, first + _PORTS):
                opened.enter_context(socket.socket()).bind(("127.0.0.1", port))
            if (address := f"tcp://127.0.0.1:{first}") not in found:
                found.append(address)
    return found


@dataclass(frozen=True)
class GraphOnMachines:
    """What all machines know of a graph; without a log its matches come out.

    Parameters
    ----------
    shape, kind
        Its operators and their windows.
    machines, keys, places
        Where they run; by default as `PLACES` says.
    log
        A folder for its matches.
    """

    shape: str
    kind: str
    machines: dict[str, str]
    keys: Path
    log: Path | None = None
    places: dict[str, str] | None = None

    def graph(self, source: PacedRows) -> Graph:
        """Return the graph."""
        operators = SHAPES[self.shape](WINDOWS[self.kind])
        return op.graph(
            source,
            operators,
            None if self.log is None else {list(operators)[-1]: self.log},
            machines=self.machines,
            places=PLACES[self.shape] if self.places is None else self.places,
            keys=self.keys,
            patience_s=PATIENCE_S,
        )

    def work(self, name: str, rows: pa.Table) -> None:
        """Be a machine; the body of a process."""
        graph = self.graph(PacedRows("events", rows=rows))
        if name != graph.placement.first:
            graph.serve(name)
            return
        with graph.run(self.keys.parent / "graph") as run:
            run.tables()


class MachineProcesses:
    """The processes of machines.

    Parameters
    ----------
    graph, rows
        The graph, and the events of its source.
    """

    def __init__(self, graph: GraphOnMachines, rows: pa.Table) -> None:
        self.about, self._rows = graph, rows
        self.processes: dict[str, BaseProcess] = {}
        self.killed: list[str] = []

    def start(self, name: str) -> None:
        """Start a machine, again where it was lost."""
        process: BaseProcess = process_context().Process(  # type: ignore[attr-defined] # typeshed leaves it to subclasses
            target=self.about.work, args=(name, self._rows)
        )
        process.start()
        self.processes[name] = process

    def kill(self, name: str) -> None:
        """Lose a machine as a whole, and start it again."""
        pid = self.processes[name].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self.processes[name].join()
        self.killed.append(f"machine {name}")
        self.start(name)

    def kill_operator(self, run: GraphRun, name: str, sign: int = signal.SIGKILL) -> None:
        """Lose an operator, wherever it runs."""
        pid = run.processes.get(name)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, sign)
                self.killed.append(name)


@contextmanager
def machine_processes(
    shape: str, kind: str, folder: Path, rows: pa.Table, *names: str, log: bool = False
) -> Iterator[MachineProcesses]:
    """Start some machines of a graph with new keys, and end them."""
    make_keys(folder / "graph.key")
    machines = dict(zip(("north", "south", "east"), free_addresses(3), strict=True))
    keys, place = folder / "graph.key", folder / "log" if log else None
    found = MachineProcesses(GraphOnMachines(shape, kind, machines, keys, place), rows)
    try:
        for name in names:
            found.start(name)
        yield found
    finally:
        for one in found.processes.values():
            one.join(20)
            one.kill()
            one.join()


def run_on_machines(
    graph: GraphOnMachines, rows: pa.Table, acts: Mapping[int, Callable[[GraphRun], object]]
) -> tuple[pa.Table, GraphRun]:
    """Run the graph on the first machine, act before some batches, and return its matches."""
    runs: list[GraphRun] = []

    def act(number: int) -> None:
        if number in acts:
            await_goes_on(runs[0])
            acts[number](runs[0])

    with graph.graph(PacedRows("events", rows=rows, before=act)).run() as run:
        runs.append(run)
        (found,) = run.tables().values()
    return found, run


def await_goes_on(run: GraphRun, seconds: float = 60) -> None:
    """Wait until all operators run, and have given savepoints."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        known, processes = run.metrics.operators, run.processes
        names = run._graph.nodes
        if all(name in known and name in processes and known[name].saves for name in names):
            return
        time.sleep(0.01)
    raise AssertionError("an operator did not go on")
