"""The end of a link at who reads: connected anew whenever the other end was lost.

Who takes matches for good, a sink or the program of the run, drops those that come again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import zmq

from outpace.engine.state import NATURAL, State, integer
from outpace.errors import StateError
from outpace.hosts.graph.message import open_socket, read, read_events, write


class Inlet:
    """What is read of one node.

    Parameters
    ----------
    context, token
        That of the process, and the secret of the run.
    node, reader
        What is read, and who reads it.
    number
        How often who reads was started before.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        token: str,
        node: str,
        reader: str,
        number: int = 0,
    ) -> None:
        self._context = context
        self.node, self.reader = node, reader
        self._who: dict[str, Any] = {"token": token, "node": node, "reader": reader}
        self._who["number"] = number
        self.socket: zmq.Socket[bytes] | None = None
        self._told = -1

    def connect(self, address: str, wanted: int | None) -> None:
        """Read from an address on, from an event on; None: all that is retained."""
        self.close()
        self.socket = open_socket(self._context, zmq.DEALER)
        # What comes to the address later is another one, which is told of.
        self.socket.setsockopt(zmq.RECONNECT_IVL, -1)
        self.socket.connect(address)
        self._told = -1
        self.send("hello", **self._who, next=wanted)

    def receive(self) -> Iterator[tuple[str, State]]:
        """Yield what came and was not yielded yet, one message at most."""
        if self.socket is None or not self.socket.poll(0):
            return
        kind, message = read(self.socket.recv())
        if kind == "refused":
            raise StateError(
                f"'{self.node}' refused '{self.reader}'", detail=message.numbers["why"]
            )
        yield kind, message

    def taken(self, number: int) -> None:
        """Say that all events before a number are taken."""
        if number > self._told:
            self._told = number
            self.send("taken", number=number)

    def send(self, kind: str, tables: Sequence[pa.Table] = (), **numbers: Any) -> None:
        """Say something, if anybody is there."""
        if self.socket is not None:
            # Where the other end was lost nobody hears it; who comes after it is told anew.
            with suppress(zmq.Again):
                self.socket.send(write(kind, tables, **numbers), zmq.NOBLOCK)

    def close(self) -> None:
        """Read no more."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None


class TakenMatches:
    """The matches of an operator that are taken for good, each once and in their order.

    Parameters
    ----------
    inlet
        What reads the operator.
    stop
        How many of its matches have been taken before.
    """

    def __init__(self, inlet: Inlet, stop: int = 0) -> None:
        self.inlet = inlet
        #: Behind the last that was taken, whether all were, and how many came again.
        self.stop, self.ended, self.doubles = stop, False, 0

    def tables(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield what came, with the first number; it is taken for good when more is asked for."""
        for kind, message in self.inlet.receive():
            if kind == "events":
                rows, numbers = read_events(message)
                low = int(np.searchsorted(numbers, self.stop))
                self.doubles += low
                if low < len(numbers):
                    yield int(numbers[low]), rows.slice(low)
                    self.stop = int(numbers[-1]) + 1
                self.inlet.taken(self.stop)
                self.inlet.send("saved", number=self.stop)
            elif kind == "end":
                self.stop, self.ended = integer(message.numbers, "count", NATURAL), True
