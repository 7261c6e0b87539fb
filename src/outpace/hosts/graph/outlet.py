"""The output queues of nodes, one for each who reads them, and the socket that serves them.

What a reader may need again is retained; so many events at most are on their way to it, then the
node waits. A reader that comes again says which event it wants next, or that it has lost all: then
it gets the backups that are kept here, and all that is retained for it.

Memory: what is retained, and the newest backup of each operator that reads, however far behind.
Paper: Lima et al., section II-A (there: output queue).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.recover.event_needs import NeededNumbers
from outpace.engine.savepoint import Savepoint
from outpace.engine.state import NATURAL, State, integer
from outpace.errors import OutpaceError
from outpace.hosts.graph.backup import Backup, keep_newest
from outpace.hosts.graph.links import Links
from outpace.hosts.graph.message import (
    knows_secret,
    read,
    read_backups,
    write,
    write_backups,
    write_events,
)
from outpace.hosts.graph.placement import Address
from outpace.ingest.retained_log import RetainedLog

#: So many events are in one message at most.
MESSAGE_EVENTS: Final = 1 << 13

_LOG: Final = logging.getLogger("outpace.graph")


class OutputQueue:
    """The events of a node that one reader has not taken for good, by their numbers.

    Parameters
    ----------
    columns
        Which of their columns it reads; None: all.
    most
        How many events are on their way at most.
    begin
        The number of the first event.

    Examples
    --------
    >>> queue = OutputQueue(("x",), most=2, begin=5)
    >>> queue.append(pa.table({"ts": [1, 2, 3], "x": [7, 8, 9]}))
    >>> queue.has_room, queue.begin_at(None), len(list(queue.messages()))
    (False, None, 1)
    >>> queue.taken(7)
    >>> queue.has_room, len(list(queue.messages()))
    (True, 1)
    """

    def __init__(self, columns: tuple[str, ...] | None, most: int, begin: int = 0) -> None:
        self.columns, self._most, self._begin = columns, most, begin
        self.log = RetainedLog()
        self.log.came = begin
        #: Who reads; None where nobody does at the moment.
        self.peer: bytes | None = None
        #: How often who reads was started before.
        self.number = 0
        #: The event that is sent next, and that which the reader takes next.
        self._sent = self._taken = begin
        #: Which events the reader had when it came, and how many of them came here again.
        self._had = self.doubles = 0
        self._ended = self._told_end = False
        self._promise = self._told = int(NO_TIME)

    @property
    def has_room(self) -> bool:
        """Whether more events may come."""
        return self.log.count_from(self._taken) < self._most

    @property
    def acknowledged(self) -> int:
        """How many events the reader will never need again, counted from the first of all."""
        savepoint = self.log.savepoint
        return self._begin if savepoint is None else max(self._begin, savepoint.trim + 1)

    def append(self, rows: pa.Table) -> None:
        """Take the next events."""
        if rows.num_rows:
            self._drop_doubles(self.log.came, self.log.came + rows.num_rows)
            self.log.append(rows if self.columns is None else rows.select(self.columns))
            known = self.log.savepoint
            if known is not None and self.log.came - rows.num_rows < known.at:
                self.log.thin(known)  # They came again, and are not all needed.

    def promise(self, time: int) -> None:
        """Let the reader know that no later event has a time before this."""
        self._promise = max(self._promise, time)

    def end(self) -> None:
        """Let the reader know that no more events come."""
        self._ended = True

    def thin(self, savepoint: Savepoint) -> None:
        """Forget what the reader does not need any more."""
        known = self.log.savepoint
        if known is None or (savepoint.at, savepoint.trim) >= (known.at, known.trim):
            self.log.thin(savepoint)

    def begin_at(self, number: int | None) -> None:
        """Send from an event on, or all that is retained."""
        if number is None:
            number = self.log.first
            self._had = 0
        else:
            self._had = number = max(number, self._begin)
            self._drop_doubles(self._begin, self.log.came)
        self._sent = self._taken = number
        self._told_end, self._told = False, int(NO_TIME)

    def _drop_doubles(self, begin: int, end: int) -> None:
        """Count events that came here again and that the reader has already."""
        self.doubles += max(0, min(self._had, end) - begin)

    def taken(self, number: int) -> None:
        """Hear that the reader has taken all events before a number."""
        self._taken = max(self._taken, number)

    def messages(self) -> Iterator[bytes]:
        """Yield what may be sent now."""
        if self._sent < self.log.came and len(self.log):
            open_now = self._most - self.log.count_from(self._taken)
            left = self.log.count_from(self._sent)
            while (count := min(left, left + open_now, MESSAGE_EVENTS)) > 0:
                rows, numbers = self.log.events(self._sent, count)
                for last, message in write_events(rows, numbers):
                    self._sent = last + 1
                    yield message
                left -= count
            if left:
                return
        self._sent = max(self._sent, self.log.came)
        if self._promise > self._told:
            self._told = self._promise
            yield write("promise", time=self._promise)
        if self._ended and not self._told_end:
            self._told_end = True
            yield write("end", count=self.log.came)


class Outlet:
    """The queues of nodes, by node and reader, behind one socket.

    Parameters
    ----------
    links, address
        Those of the process, and where to listen.
    queues
        The queues.
    """

    def __init__(
        self, links: Links, address: Address, queues: dict[tuple[str, str], OutputQueue]
    ) -> None:
        self.queues, self._token = queues, links.secret.token
        #: The newest backup of each operator that reads, directly or not.
        self.backups: dict[str, Backup] = {}
        self._peers: dict[bytes, tuple[str, str]] = {}
        self._listening = links.listen(address)
        self.socket, self.address = self._listening.socket, self._listening.address

    @property
    def refused(self) -> int:
        """How many messages and connections came from peers that are none of the run."""
        return self._listening.refused

    def keep(self, backups: Iterable[Backup]) -> None:
        """Keep backups, and forget the events that their operators do not need."""
        keep_newest(self.backups, backups)
        for (node, reader), queue in self.queues.items():
            backup = self.backups.get(reader)
            if backup is not None and node in backup.inputs:
                queue.thin(backup.inputs[node].savepoint)

    def receive(self) -> None:
        """Hear all that readers say."""
        for peer, data in self._listening.receive():
            try:
                self._hear(peer, *read(data))
            except OutpaceError as error:
                self._refuse(peer, error.message)

    def send(self) -> None:
        """Send all that may be sent."""
        for queue in self.queues.values():
            if queue.peer is not None:
                for message in queue.messages():
                    self.socket.send_multipart([queue.peer, message])

    def close(self) -> None:
        """Serve nobody any more."""
        self._listening.close()

    def _hear(self, peer: bytes, kind: str, message: State) -> None:
        numbers = message.numbers
        if kind == "hello":
            self._welcome(peer, message)
            return
        key = self._peers.get(peer)
        if key is None:
            self._refuse(peer, "it did not say who it is")
            return
        queue = self.queues[key]
        if queue.peer != peer:
            return  # One that was lost has said it, and another one is there.
        if kind == "taken":
            queue.taken(integer(numbers, "number", NATURAL))
        elif kind == "saved" and message.tables:
            self.keep(read_backups(message))
        elif kind == "saved":
            taken = integer(numbers, "number", NATURAL)
            queue.thin(NeededNumbers(taken).savepoint)

    def _welcome(self, peer: bytes, message: State) -> None:
        numbers = message.numbers
        key = str(numbers.get("node")), str(numbers.get("reader"))
        if not knows_secret(message, self._token) or key not in self.queues:
            self._refuse(peer, "it is none of this graph")
            return
        queue, number = self.queues[key], integer(numbers, "number", NATURAL)
        self._peers[peer] = key
        if number < queue.number:
            return  # It was lost, and who came after it was heard first.
        queue.peer, queue.number = peer, number
        wanted = numbers.get("next")
        queue.begin_at(None if wanted is None else integer(numbers, "next", NATURAL))
        welcome = write("welcome", [write_backups(self.backups.values())], token=self._token)
        self.socket.send_multipart([peer, welcome])

    def _refuse(self, peer: bytes, why: str) -> None:
        _LOG.warning("a peer on the socket of a graph was refused: %s", why)
        self._listening.refuse(peer, why)
