"""The end of a link at who reads: connected anew whenever the other end was lost.

Who takes matches for good, a sink or the program of the run, drops those that come again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa
import zmq

from outpace.engine.state import NATURAL, State, integer
from outpace.hosts.graph.links import ConnectedSocket, Links
from outpace.hosts.graph.message import read, read_events, write

#: Seconds before who has lost a node asks for it, and asks again.
_AGAIN_S: Final = 0.5

_LOG: Final = logging.getLogger("outpace.graph")


class Inlet:
    """What is read of one node.

    Parameters
    ----------
    links
        Those of the process.
    node, reader
        What is read, and who reads it.
    number
        How often who reads was started before.
    """

    def __init__(self, links: Links, node: str, reader: str, number: int = 0) -> None:
        self._links, self.node, self.reader = links, node, reader
        self._who: dict[str, Any] = {"token": links.secret.token, "node": node}
        self._who |= {"reader": reader, "number": number}
        self._connected: ConnectedSocket | None = None
        self._told, self._asked_at, self._refused = -1, 0.0, False

    def connect(self, address: str, wanted: int | None) -> None:
        """Read from an address on, from an event on; None: all that is retained."""
        self.close()
        # What comes to the address later may be another one, which is told of.
        self._connected = self._links.connect(address, again=False)
        self._told, self._refused = -1, False
        self.send("hello", **self._who, next=wanted)

    @property
    def socket(self) -> zmq.Socket[bytes] | None:
        """What comes from the node; None before it is known where that is."""
        return None if self._connected is None else self._connected.socket

    def asks(self) -> bool:
        """Say whether to ask where the node is, as the connection to it was lost."""
        now = time.monotonic()
        if self._connected is None or now - self._asked_at < _AGAIN_S:
            return False
        if not self._refused and self._connected.lost_for < _AGAIN_S:
            return False
        self._asked_at = now
        return True

    def receive(self) -> Iterator[tuple[str, State]]:
        """Yield what came and was not yielded yet, one message at most."""
        if self.socket is None or not self.socket.poll(0):
            return
        kind, message = read(self.socket.recv())
        if kind == "refused":
            # Another one may have got the address of who was lost.
            self._refused = True
            _LOG.warning("'%s' is not where it was; '%s' asks for it", self.node, self.reader)
            return
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
        if self._connected is not None:
            self._connected.close()
            self._connected = None


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
        """Yield all that came, with the first number; it is taken for good when more is asked for.

        It is one table, so that who writes to a disk waits for that once. No more comes than may be
        on its way.
        """
        stop, tables, heard, count = self.stop, list[pa.Table](), False, None
        while (came := next(self.inlet.receive(), None)) is not None:
            kind, message = came
            if kind == "events":
                (rows, numbers), heard = read_events(message), True
                low = int(np.searchsorted(numbers, stop))
                self.doubles += low
                if low < len(numbers):
                    tables.append(rows.slice(low))
                    stop = int(numbers[-1]) + 1
            elif kind == "end":
                count = integer(message.numbers, "count", NATURAL)
        if tables:
            rows = pa.concat_tables(tables)
            # Where some are missing this is not the next one.
            yield stop - rows.num_rows, rows
            self.stop = stop
        if heard:
            self.inlet.taken(stop)
            self.inlet.send("saved", number=stop)
        if count is not None:
            self.stop, self.ended = count, True
