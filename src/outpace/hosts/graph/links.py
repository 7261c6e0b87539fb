"""The sockets of a process of a graph: who listens, who connects, and who is kept out.

All sockets are opened here, so that all links are alike: with the keys of the graph where it has
some (CURVE: who does not have them gets no connection, and nothing can be read on the way), and
else on loopback alone. A connection on which nothing comes any more, not even a sign of life, is
lost, as after a cable was pulled.
"""

from __future__ import annotations

import socket as sockets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

from outpace.errors import DataError
from outpace.hosts.graph.message import MESSAGE_BYTES, write
from outpace.hosts.graph.placement import Address

#: Milliseconds between two signs of life on a quiet connection, and without any until it is lost.
_SIGN_MS: Final = 10_000
_SILENCE_MS: Final = 30_000
#: How long who was ended may still have an address.
_PATIENCE_S: Final = 5.0
_TURN_S: Final = 0.05
#: Who connects has so many seconds to say that it may, before it counts as refused.
_HANDSHAKE_S: Final = 1.0
#: So many more bytes at most has a message that is encrypted.
_SEAL_BYTES: Final = 64
#: Milliseconds that the last word may take.
LINGER_MS: Final = 500


@dataclass(frozen=True)
class Secret:
    """What those who belong to a run know.

    Parameters
    ----------
    token
        Tells the run from others.
    key
        The secret key of the graph; None on loopback.
    """

    token: str
    key: str | None = None


class Links:
    """Opens the sockets of a process.

    Parameters
    ----------
    secret
        What those who belong to the run know.
    """

    def __init__(self, secret: Secret) -> None:
        self.secret = secret
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(1)
        self._public = None if secret.key is None else zmq.curve_public(secret.key.encode())
        self._doorman: ThreadAuthenticator | None = None

    def listen(self, address: Address) -> ListeningSocket:
        """Return a socket that others connect to, at an address; port 0 is any free one."""
        socket = self._open(zmq.ROUTER)
        if self._public is not None:
            socket.curve_server = True
            self._admit_own_keys()
        return ListeningSocket(socket, address)

    def connect(self, address: str, *, again: bool) -> ConnectedSocket:
        """Return a socket that is connected to an address, and when it was lost, again or not."""
        socket = self._open(zmq.DEALER)
        if self._public is not None:
            socket.curve_serverkey = self._public
        if not again:
            socket.setsockopt(zmq.RECONNECT_IVL, -1)
        return ConnectedSocket(socket, address)

    def close(self, patience_ms: int = 0) -> None:
        """Close all sockets; what was said last may take so long."""
        if self._doorman is not None:
            self._doorman.stop()
            self._doorman = None
        self._context.destroy(patience_ms)

    def _open(self, kind: int) -> zmq.Socket[bytes]:
        """Return a socket that holds what it is given: who gives it knows how much that may be.

        Anybody may give it something, so each part of a message is of a bounded size.
        """
        socket = self._context.socket(kind)
        for option in (zmq.LINGER, zmq.SNDHWM, zmq.RCVHWM):
            socket.setsockopt(option, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES + _SEAL_BYTES)
        socket.setsockopt(zmq.HEARTBEAT_IVL, _SIGN_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _SILENCE_MS)
        if self._public is not None and self.secret.key is not None:
            socket.curve_publickey, socket.curve_secretkey = self._public, self.secret.key.encode()
        return socket

    def _admit_own_keys(self) -> None:
        """Let those connect who have the keys, and nobody else."""
        if self._doorman is None:
            self._doorman = ThreadAuthenticator(self._context)
            self._doorman.start()
            self._doorman.configure_curve_callback("*", self)

    def callback(self, domain: str, key: bytes) -> bool:
        """Say whether a key is that of the graph, as `ThreadAuthenticator` asks."""
        del domain
        return key == self._public


class ListeningSocket:
    """A socket that others connect to.

    Parameters
    ----------
    socket
        The socket.
    address
        Where it listens; port 0 is any free one.
    """

    def __init__(self, socket: zmq.Socket[bytes], address: Address) -> None:
        self.socket = socket
        wanted = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        self._events = socket.get_monitor_socket(wanted)
        self._bind(address)
        port = int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
        #: Where others connect.
        self.address = f"tcp://{address.host}:{port}"
        self._strange, self._open = 0, dict[int, float]()
        self._refused = 0

    def receive(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield what came, behind who sent it."""
        while self.socket.poll(0):
            peer, *frames = self.socket.recv_multipart()
            yield peer, b"".join(frames)

    def refuse(self, peer: bytes, why: str | None) -> None:
        """Count a message of who does not belong here, who hears why where there is a reason."""
        self._refused += 1
        if why is not None:
            self.socket.send_multipart([peer, write("refused", why=why)])

    @property
    def refused(self) -> int:
        """How many messages were refused, and connections of others than peers with the keys.

        These have other keys, or say strange bytes.
        """
        while self._events.poll(0):
            event = recv_monitor_message(self._events)
            match event["event"]:
                case zmq.EVENT_ACCEPTED:
                    self._strange += 1
                    self._open[event["value"]] = time.monotonic()
                case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self._strange -= 1
                case zmq.EVENT_DISCONNECTED:
                    self._open.pop(event["value"], None)
        # Nobody says whose handshake it was, so those that have just come may still have theirs.
        soon = time.monotonic() - _HANDSHAKE_S
        strange = self._strange - sum(came > soon for came in self._open.values())
        return self._refused + max(0, strange)

    def close(self) -> None:
        """Listen no more."""
        self.socket.disable_monitor()
        self._events.close()
        self.socket.close()

    def _bind(self, address: Address) -> None:
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self.socket.bind(f"tcp://{_resolved(address.host)}:{address.port}")
                return
            except (zmq.ZMQError, OSError) as error:
                in_use = isinstance(error, zmq.ZMQError) and error.errno == zmq.EADDRINUSE
                if not in_use or time.monotonic() > end:
                    self.socket.close()
                    raise DataError(
                        f"cannot listen at '{address}': {(error.strerror or str(error)).lower()}",
                        hint="give the machine an address of its own, whose ports are free: "
                        "'tcp://host:port'",
                    ) from error
            time.sleep(_TURN_S)


class ConnectedSocket:
    """A socket that is connected to another one.

    Parameters
    ----------
    socket
        The socket.
    address
        Where the other one listens.
    """

    def __init__(self, socket: zmq.Socket[bytes], address: str) -> None:
        self.socket = socket
        wanted = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_HANDSHAKE_SUCCEEDED
        self._events = socket.get_monitor_socket(wanted)
        self._lost_at: float | None = None
        socket.connect(address)

    @property
    def lost_for(self) -> float:
        """The seconds since the connection was lost, or could not be made; 0 while it is there."""
        while self._events.poll(0):
            made = recv_monitor_message(self._events)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if made:
                self._lost_at = None
            elif self._lost_at is None:
                self._lost_at = time.monotonic()
        return 0.0 if self._lost_at is None else time.monotonic() - self._lost_at

    def close(self, patience_ms: int = 0) -> None:
        """Be connected no more; what was said last may take so long."""
        self.socket.disable_monitor()
        self._events.close()
        self.socket.close(patience_ms)


def _resolved(host: str) -> str:
    """Return the number of a host, as who listens has to say it."""
    found = sockets.getaddrinfo(host, None, sockets.AF_INET, sockets.SOCK_STREAM)
    return str(found[0][4][0])
