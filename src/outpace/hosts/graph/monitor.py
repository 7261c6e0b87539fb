"""The monitor: it starts the processes of a graph, and starts again those that are lost or stuck.

A process is lost when it ends without having said why; its predecessors and readers go on. It is
stuck when its heart has not beaten for some time; then it is ended first. What it says of an error
in the data or in the query ends the run: it would meet it again.
Paper: Lima et al., section II-C.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

import zmq

from outpace.engine.operator_spec import OperatorSpec
from outpace.errors import InstanceError, OutpaceError, StateError
from outpace.hosts.graph.message import LOOPBACK, knows_secret, open_socket, read, write
from outpace.hosts.graph.metrics import NodeMetrics
from outpace.hosts.processes.processes import process_context, start_process

#: So often a process is started again without having come any further.
_ATTEMPTS: Final = 10
#: How long a process may take to start, on a busy machine, before its heart beats.
_START_S: Final = 60.0
#: How long processes may take to end by themselves.
_END_S: Final = 2.0
_POLL_MS: Final = 20

#: What processes load before they start.
_BODIES: Final = ("outpace.hosts.graph.operator_process", "outpace.hosts.graph.sink")

_LOG: Final = logging.getLogger("outpace.graph")


@dataclass
class _WatchedProcess:
    """A process, and what is known of it."""

    body: Callable[..., None]
    setup: Any
    spec: OperatorSpec | None
    inputs: tuple[str, ...]
    number: int = -1
    process: BaseProcess | None = None
    alive: Connection | None = None
    #: Who it is on the socket; None where that is not known yet.
    peer: bytes | None = None
    heard: float = 0.0
    lost: float | None = None
    #: Whether it was ended because its heart did not beat.
    stuck: bool = False
    #: How far it had come when it was lost, and how often it was so without coming any further.
    reached: int = -1
    attempts: int = 0
    done: bool = False
    metrics: NodeMetrics = field(default_factory=NodeMetrics)


class Monitor:
    """The processes of a graph, by name.

    Parameters
    ----------
    context, token
        That of the process, and the secret of the run.
    patience_s
        How long a heart may not beat.
    """

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], token: str, patience_s: float
    ) -> None:
        self._token, self._patience_s = token, patience_s
        self._context = process_context(*_BODIES)
        self.socket = open_socket(context, zmq.ROUTER)
        port = self.socket.bind_to_random_port(LOOPBACK)
        self._address = f"{LOOPBACK}:{port}"
        self._watched: dict[str, _WatchedProcess] = {}
        #: Where nodes can be read.
        self.addresses: dict[str, str] = {}
        self.refused = 0

    def start(
        self,
        name: str,
        body: Callable[..., None],
        setup: object,
        inputs: Sequence[str],
        spec: OperatorSpec | None = None,
    ) -> None:
        """Start a process that reads some nodes."""
        self._watched[name] = _WatchedProcess(body, setup, spec, tuple(inputs))
        self._start(name)

    @property
    def pids(self) -> dict[str, int]:
        """The identifiers of the processes."""
        found = {name: one.process for name, one in self._watched.items()}
        return {name: one.pid for name, one in found.items() if one is not None and one.pid}

    @property
    def sentinels(self) -> list[int]:
        """What can be read once a process has ended."""
        return [one.process.sentinel for one in self._watched.values() if one.process is not None]

    def metrics(self, name: str) -> NodeMetrics:
        """Return what is known of a process."""
        return self._watched[name].metrics

    def is_done(self, name: str) -> bool:
        """Say whether a sink has taken everything."""
        return self._watched[name].done

    def turn(self) -> Iterator[str]:
        """Hear all processes, start lost ones again, and yield the nodes that can be read now."""
        yield from self._receive()
        now = time.monotonic()
        for name, one in self._watched.items():
            assert one.process is not None
            patience_s = self._patience_s
            if one.peer is None:
                patience_s = max(patience_s, _START_S)
            one.stuck = one.process.exitcode is None and now - one.heard > patience_s
            if one.stuck:
                _LOG.warning("'%s' is stuck, so it is ended", name)
                one.process.kill()
                one.process.join()
            if one.process.exitcode is not None:
                self._lose(name, one)

    def tell(self, node: str, address: str) -> None:
        """Let all who read a node know where it is."""
        self.addresses[node] = address
        for one in self._watched.values():
            if node in one.inputs and one.peer is not None:
                self._send(one.peer, "peer", node=node, address=address)

    def close(self) -> None:
        """End all processes."""
        for one in self._watched.values():
            if one.peer is not None:
                self._send(one.peer, "stop")
        end = time.monotonic() + _END_S
        # They tell how it stands with them before they end.
        while any(one.process and one.process.is_alive() for one in self._watched.values()):
            if time.monotonic() > end:
                break
            self.socket.poll(_POLL_MS)
            with suppress(OutpaceError):
                deque(self._receive(), maxlen=0)
        with suppress(OutpaceError):
            deque(self._receive(), maxlen=0)
        for one in self._watched.values():
            self._release(one, 0.0)
        self._watched = {}
        self.socket.close()

    def _receive(self) -> Iterator[str]:
        while self.socket.poll(0):
            peer, *frames = self.socket.recv_multipart()
            try:
                kind, message = read(b"".join(frames))
                known = knows_secret(message, self._token)
            except StateError:
                known = False
            if not known:
                self.refused += 1
                _LOG.warning("a peer on the socket of a monitor was refused")
                continue
            yield from self._hear(peer, kind, str(message.numbers["name"]), message.numbers)

    def _start(self, name: str) -> None:
        one = self._watched[name]
        one.number, one.heard, one.peer = one.number + 1, time.monotonic(), None
        watched, one.alive = self._context.Pipe(duplex=False)
        arguments = one.setup, self._address, self._token, one.number, watched
        one.process = start_process(
            self._context, f"outpace-graph-{name}", one.spec, one.body, *arguments
        )
        # Only the process itself may hold its end.
        watched.close()

    def _hear(self, peer: bytes, kind: str, name: str, numbers: Any) -> Iterator[str]:
        one = self._watched[name]
        if numbers.get("number") != one.number:
            return  # It was lost since.
        one.heard = time.monotonic()
        match kind:
            case "begun":
                one.peer = peer
                for node in one.inputs:
                    if node in self.addresses:
                        self._send(peer, "peer", node=node, address=self.addresses[node])
            case "ready":
                if one.lost is not None:
                    one.metrics.recover_s, one.lost = one.heard - one.lost, None
                if numbers["address"] is not None:
                    self.tell(name, str(numbers["address"]))
                    yield name
            case "beat":
                for part in fields(NodeMetrics):
                    counted_here = part.name in ("replays", "recover_s")
                    if not counted_here and part.name in numbers["metrics"]:
                        setattr(one.metrics, part.name, numbers["metrics"][part.name])
            case "done":
                one.done = True
            case "failed":
                raise _failure(name, numbers)

    def _lose(self, name: str, one: _WatchedProcess) -> None:
        """Start a process again that has ended."""
        process = one.process
        assert process is not None
        if one.metrics.events > one.reached:
            one.reached, one.attempts = one.metrics.events, 0
        one.attempts += 1
        code = process.exitcode
        if one.attempts > _ATTEMPTS:
            silent = f"it was silent for {self._patience_s:g} s; raise patience_s"
            raise InstanceError(
                f"operator '{name}' was lost {one.attempts} times without coming any further",
                detail=f"its exit code is {code}",
                hint=silent if one.stuck else "the system may have run out of memory",
            )
        _LOG.warning("'%s' was lost with exit code %s, so it is started again", name, code)
        one.lost = time.monotonic()
        one.metrics.replays += 1
        one.metrics.saves = 0
        self.addresses.pop(name, None)
        self._release(one, 0.0)
        self._start(name)

    def _release(self, one: _WatchedProcess, patience_s: float) -> None:
        if one.process is not None:
            one.process.join(patience_s)
            if one.process.exitcode is None:
                one.process.kill()
                one.process.join()
            one.process.close()
            one.process = None
        if one.alive is not None:
            one.alive.close()
            one.alive = None

    def _send(self, peer: bytes, kind: str, **numbers: Any) -> None:
        self.socket.send_multipart([peer, write(kind, **numbers)])


def _failure(name: str, numbers: Any) -> OutpaceError:
    """Return what is raised here for what was raised there."""
    kinds = {one.code: one for one in _kinds(OutpaceError)}
    place = f"operator '{name}'"
    where = place if numbers["where"] is None else f"{place}: {numbers['where']}"
    kind = kinds.get(numbers["code"], InstanceError)
    return kind(numbers["message"], detail=numbers["detail"], hint=numbers["hint"], where=where)


def _kinds(kind: type[OutpaceError]) -> Iterator[type[OutpaceError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _kinds(one)
