"""The side of a process that the monitor sees: its heart beats, and it hears what to do."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

import pyarrow as pa
import zmq

from outpace.compiler.kernel import compiler
from outpace.hosts.background import CompileNotice
from outpace.hosts.graph.links import LINGER_MS, Links, Secret
from outpace.hosts.graph.message import read, told_failure, write
from outpace.hosts.processes.worker import end_with

#: Seconds between two beats of the heart.
BEAT_S: Final = 0.2


class Member:
    """A process of a graph.

    Parameters
    ----------
    name, number
        Whose it is, and how often that was started before.
    monitor, secret
        The address of the monitor, and what those who belong to the run know.
    parent
        A pipe that nothing is sent through: its other end closes when the parent is gone.
    """

    def __init__(
        self, name: str, monitor: str, secret: Secret, number: int, parent: Connection
    ) -> None:
        # An interrupt from the keyboard goes to all processes; the parent decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end_with(parent)
        pa.set_cpu_count(1)
        self._parent, self.number = parent, number
        self.links = Links(secret)
        self._connected = self.links.connect(monitor, again=True)
        self._socket = self._connected.socket
        self.stopped = False
        self._beat_at = 0.0
        self._who: dict[str, Any] = {"token": secret.token, "name": name, "number": number}
        self._peers: dict[str, str] = {}
        self._metrics: dict[str, Any] = {}
        # Who waits for the compiler works.
        compiler.run = CompileNotice(meanwhile=lambda: self.beat(self._metrics))
        self._tell("begun")

    @property
    def due(self) -> bool:
        """Whether it is time for a beat."""
        return time.monotonic() - self._beat_at >= BEAT_S

    def beat(self, metrics: dict[str, Any]) -> None:
        """Let the monitor know that work goes on."""
        self._beat_at, self._metrics = time.monotonic(), metrics
        self._tell("beat", metrics=metrics)

    def ready(self, address: str | None) -> None:
        """Let the monitor know that the process stands where it should, and can be read."""
        self._tell("ready", address=address)

    def done(self) -> None:
        """Let the monitor know that all has been taken."""
        self._tell("done")

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Let the monitor know why the process cannot go on, and end."""
        try:
            yield
        except Exception as error:
            self._tell("failed", **told_failure(error))
            self._end()

    def leave(self, metrics: dict[str, Any]) -> None:
        """Let the monitor know how it stands with a process whose work is done."""
        self.beat(metrics)
        self._end()

    def ask(self, node: str) -> None:
        """Ask where a node is."""
        self._tell("where", node=node)

    def peers(self) -> Iterator[tuple[str, str]]:
        """Yield which nodes are at new addresses."""
        peers, self._peers = self._peers, {}
        yield from peers.items()

    def wait(self, sockets: Sequence[zmq.Socket[bytes]], seconds: float) -> None:
        """Wait until something can be received, or for so many seconds, and hear the monitor."""
        poller = zmq.Poller()
        for socket in [self._socket, *sockets]:
            poller.register(socket, zmq.POLLIN)
        poller.register(self._parent.fileno(), zmq.POLLIN)
        if self._parent.fileno() in dict(poller.poll(int(seconds * 1000))):
            self.stopped = True  # The parent is gone.
        while self._socket.poll(0):
            kind, message = read(self._socket.recv())
            if kind == "peer":
                self._peers[str(message.numbers["node"])] = str(message.numbers["address"])
            elif kind == "stop":
                self.stopped = True

    def _end(self) -> None:
        self._connected.close(LINGER_MS)
        self.links.close()

    def _tell(self, kind: str, **numbers: Any) -> None:
        self._socket.send(write(kind, **self._who, **numbers))
