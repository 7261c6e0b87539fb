"""The processes of a machine: started, and seen to end.

`Machine` has those of this machine; `RemoteMachine` is what the monitor knows of another one, which
hears again and again which processes it is to run, and tells which it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

import pyarrow as pa

from outpace.engine.operator_spec import OperatorSpec
from outpace.hosts.graph.graph import SINK_OF, BoundNode, Graph
from outpace.hosts.graph.links import Secret
from outpace.hosts.graph.message import SINK, write
from outpace.hosts.graph.operator_process import OperatorReader, OperatorSetup, run_operator
from outpace.hosts.graph.sink import SinkSetup, run_sink
from outpace.hosts.processes.processes import process_context, start_process

#: How long processes may take to end by themselves.
END_S: Final = 2.0
#: What processes load before they start.
_BODIES: Final = ("outpace.hosts.graph.operator_process", "outpace.hosts.graph.sink")


@dataclass(frozen=True)
class NodeProcess:
    """What a process is started from.

    Parameters
    ----------
    name, machine
        What the monitor calls it, and where it runs.
    inputs
        The nodes that it reads.
    body, setup
        What it does, and with what.
    spec
        What it is made from, which has to get there.
    """

    name: str
    machine: str
    inputs: tuple[str, ...]
    body: Callable[..., None]
    setup: Any
    spec: OperatorSpec | None = None


def processes_of(
    graph: Graph, bound: Mapping[str, BoundNode], logs: Mapping[str, str]
) -> list[NodeProcess]:
    """Return the processes of a graph: those of its operators, and of sinks that are logs."""
    place, found = graph.placement, list[NodeProcess]()
    for name, node in bound.items():
        setup = OperatorSetup(
            node,
            _readers(graph, bound, name),
            graph.followers(name),
            graph.queue_events,
            place.listens(name),
        )
        machine = place.places[name]
        found.append(NodeProcess(name, machine, node.inputs, run_operator, setup, node.spec))
    for name, path in logs.items():
        called = f"{SINK_OF}{name}"
        sink = SinkSetup(called, name, path)
        found.append(NodeProcess(called, place.first, (name,), run_sink, sink))
    return found


def _readers(graph: Graph, bound: Mapping[str, BoundNode], name: str) -> tuple[OperatorReader, ...]:
    """Return who reads an operator."""
    found = [
        OperatorReader(one.name, one.columns, len(one.inputs) > 1)
        for one in bound.values()
        if name in one.inputs
    ]
    if name in graph.sinks:
        found.append(OperatorReader(SINK, None, False))
    return tuple(found)


@dataclass(frozen=True)
class ProcessState:
    """How it stands with a process.

    Parameters
    ----------
    number
        How often the node was started before.
    pid
        Its identifier.
    code
        The exit code; None while it runs.
    """

    number: int
    pid: int
    code: int | None


@dataclass(frozen=True)
class _Started:
    number: int
    process: BaseProcess
    #: It sees by this that its parent is gone.
    alive: Connection

    @property
    def state(self) -> ProcessState:
        return ProcessState(self.number, self.process.pid or 0, self.process.exitcode)

    def end(self, patience_s: float) -> None:
        self.process.join(patience_s)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.alive.close()


class Machine:
    """The processes of this machine, by name.

    Parameters
    ----------
    processes
        Those that may be started here.
    monitor, secret
        The address of the monitor, and what those who belong to the run know.
    """

    is_here, silence_s = True, 0.0

    def __init__(self, processes: Iterable[NodeProcess], monitor: str, secret: Secret) -> None:
        self._known = {one.name: one for one in processes}
        self._monitor, self._secret = monitor, secret
        self._context = process_context(*_BODIES)
        self._started: dict[str, _Started] = {}

    def start(self, name: str, number: int) -> None:
        """Start a process, in place of the one that was started before it."""
        if name in self._started:
            self._started[name].end(0.0)
        one = self._known[name]
        watched, alive = self._context.Pipe(duplex=False)
        arguments = one.setup, self._monitor, self._secret, number, watched
        process = start_process(
            self._context, f"outpace-graph-{name}", one.spec, one.body, *arguments
        )
        # Only the process itself may hold its end.
        watched.close()
        # Other threads may look at it.
        self._started = {**self._started, name: _Started(number, process, alive)}

    @property
    def states(self) -> dict[str, ProcessState]:
        """How it stands with the processes that were started."""
        return {name: one.state for name, one in self._started.items()}

    @property
    def sentinels(self) -> list[int]:
        """What can be read once a process has ended."""
        return [one.process.sentinel for one in self._started.values()]

    def close(self, patience_s: float = 0.0) -> None:
        """End all processes; they have so long to end by themselves."""
        end = time.monotonic() + patience_s
        for one in self._started.values():
            one.end(max(0.0, end - time.monotonic()))
        self._started = {}


class RemoteMachine:
    """What the monitor knows of another machine.

    Parameters
    ----------
    token
        Tells the run from others.
    schemas
        The columns of the sources, by which operators are bound there as here.
    """

    def __init__(self, token: str, schemas: Mapping[str, pa.Schema]) -> None:
        self._about = {"token": token, "sources": list(schemas)}
        self._tables = [schema.empty_table() for schema in schemas.values()]
        #: Which processes it is to run, by name the number of each; whether it was not told yet.
        self._wanted: dict[str, int] = {}
        self.untold = False
        self.states: dict[str, ProcessState] = {}
        #: Who it is on the socket, since when it is that, and when it was heard.
        self.peer: bytes | None = None
        self.session, self.heard = -1, float("-inf")
        self.is_here = False

    @property
    def silence_s(self) -> float:
        """The seconds since it was heard."""
        return time.monotonic() - self.heard

    def start(self, name: str, number: int) -> None:
        """Let it start a process, in place of the one that was started before it."""
        self._wanted[name], self.untold = number, True

    def hear(self, peer: bytes, states: Mapping[str, list[Any]]) -> None:
        """Hear which processes it runs."""
        self.peer, self.heard = peer, time.monotonic()
        self.states = {name: ProcessState(*one) for name, one in states.items()}

    def orders(self) -> bytes:
        """Return what it is told."""
        self.untold = False
        return write("orders", self._tables, numbers=self._wanted, **self._about)
