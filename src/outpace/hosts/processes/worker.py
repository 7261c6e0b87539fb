"""The process of an instance: takes work from a pipe, reads events from shared memory, answers.

A thread of its own reads the pipe, so the parent never waits for an instance that is busy. When the
parent closes the pipe, or is gone, the instance ends: after what it is doing, or soon if that takes
long. Where Python gives no thread a turn, as in one long expression, Linux ends the process when
its parent is gone. What goes wrong is told with its traceback before the process ends.

What a pipe carries is a delivery or an answer (`outpace.engine.wire`) behind a few numbers of the
host, which know of shared memory and seconds, as the engine does not.
"""

from __future__ import annotations

import os
import queue
import signal
import struct
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

import pyarrow as pa

from outpace.engine.instance import Instance
from outpace.engine.message import Answer
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.speculate.recall import SentRows
from outpace.engine.wire import read_delivery, write_answer
from outpace.errors import OutpaceError
from outpace.hosts.processes.ring import Ring, RingReader

#: A piece of work: the slot and how many bytes are in it; the delivery follows.
_WORK: Final = struct.Struct("<qq")
#: An answer: seconds, rows and bytes kept, and how many slots are released; they and it follow.
_DONE: Final = struct.Struct("<dqqq")

#: How long a process may go on with what it is doing when nobody waits for it.
_PATIENCE_S: Final = 1.0


@dataclass(frozen=True)
class Setup:
    """What an instance is started with.

    Parameters
    ----------
    spec
        The operator.
    ring, share
        The shared memory, and how many of its slots the instance may hold.
    """

    spec: OperatorSpec
    ring: Ring
    share: int


@dataclass(frozen=True)
class WorkItem:
    """What an instance is to do next.

    Parameters
    ----------
    slot, size
        Where the events are: the slot, and how many bytes; slot -1 where only windows close.
    delivery
        What `write_delivery` writes where events lie apart.
    """

    slot: int
    size: int
    delivery: pa.Buffer | bytes

    def write(self) -> bytes:
        """Return it as bytes."""
        return _WORK.pack(self.slot, self.size) + self.delivery

    @staticmethod
    def read(data: bytes) -> WorkItem:
        """Read what `write` wrote."""
        slot, size = _WORK.unpack_from(data)
        return WorkItem(slot, size, pa.py_buffer(data).slice(_WORK.size))


@dataclass(frozen=True)
class WorkResult:
    """The answer to a piece of work.

    Parameters
    ----------
    answer
        What was found, as `write_answer` writes it.
    released
        Slots that the instance does not need any more.
    seconds
        How long it worked.
    rows_kept, bytes_kept
        The rows that undecided matches may need, and the memory that Arrow holds for the process.
    """

    answer: pa.Buffer | bytes
    released: tuple[int, ...]
    seconds: float
    rows_kept: int
    bytes_kept: int

    def write(self) -> bytes:
        """Return it as bytes."""
        known = self.seconds, self.rows_kept, self.bytes_kept, len(self.released)
        slots = struct.pack(f"<{len(self.released)}q", *self.released)
        return b"".join([_DONE.pack(*known), slots, self.answer])

    @staticmethod
    def read(data: bytes) -> WorkResult:
        """Read what `write` wrote."""
        *known, count = _DONE.unpack_from(data)
        slots = struct.Struct(f"<{count}q")
        answer = pa.py_buffer(data).slice(_DONE.size + slots.size)
        return WorkResult(answer, slots.unpack_from(data, _DONE.size), *known)


@dataclass(frozen=True)
class Ready:
    """The instance has started."""


@dataclass(frozen=True)
class WorkFailure:
    """The instance cannot go on; `error` is set where Outpace itself refused something."""

    error: OutpaceError | None
    message: str
    trace: str


def run_instance(setup: Setup, connection: Connection, parent: Connection) -> None:
    """Work until there is no more work; the body of the process.

    Parameters
    ----------
    setup
        The query.
    connection
        Where work comes from and answers go.
    parent
        A pipe that nothing is sent through: its other end closes when the parent is gone.
    """
    # An interrupt from the keyboard goes to all processes; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)
    # Two threads of Arrow beside each instance would only take the cores from other instances.
    pa.set_cpu_count(1)
    try:
        worker = _Worker(setup)
        _tell(connection, Ready())
        inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
        while (work := inbox.get()) is not None:
            _tell(connection, worker.do(WorkItem.read(work)))
    except Exception as error:
        known = error if isinstance(error, OutpaceError) else None
        message = f"{type(error).__name__}: {error}"
        _tell(connection, WorkFailure(known, message, traceback.format_exc()))


def sent_rows(spec: OperatorSpec) -> SentRows | None:
    """Return who keeps what an instance was sent, where it may be sent it again.

    Without windows all read all events, which lie in shared memory.
    """
    return SentRows() if spec.corrects and spec.windows is not None else None


class _Worker:
    """An instance that reads its events from shared memory."""

    def __init__(self, setup: Setup) -> None:
        self._reader = RingReader(setup.ring, setup.share)
        self._spec = setup.spec
        self._instance = Instance(setup.spec)
        self._sent = sent_rows(setup.spec)

    def do(self, work: WorkItem) -> WorkResult:
        """Do a piece of work."""
        start = time.perf_counter()
        answer = self._answer(work)
        return WorkResult(
            write_answer(answer),
            self._reader.released(),
            time.perf_counter() - start,
            self._instance.rows_kept,
            pa.total_allocated_bytes(),
        )

    def _answer(self, work: WorkItem) -> Answer:
        # A call of its own: when it returns, nothing but the instance refers to the slot.
        block = self._reader.read(work.slot, work.size) if work.slot >= 0 else None
        return self._instance.step(read_delivery(work.delivery, self._spec, block, self._sent))


def end_with(parent: Connection) -> None:
    """Let the system end this process when the other end of a pipe closes, whatever Python does."""
    if sys.platform == "linux":
        import fcntl

        # The signal of a pipe that something happens to ends a process that does not handle it.
        fcntl.fcntl(parent, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(parent, fcntl.F_SETFL, fcntl.fcntl(parent, fcntl.F_GETFL) | os.O_ASYNC)


def _tell(connection: Connection, message: Ready | WorkResult | WorkFailure) -> None:
    """Send a message, if anybody still listens; who does not has ended the work, too.

    What is no answer, such as any error, follows behind no bytes.
    """
    with suppress(ConnectionError):
        connection.send_bytes(message.write() if isinstance(message, WorkResult) else b"")
        if not isinstance(message, WorkResult):
            connection.send(message)


def _receive(connection: Connection, inbox: queue.SimpleQueue[bytes | None]) -> None:
    """Read work as it comes; end the process when there is no more."""
    with suppress(EOFError, OSError):
        while True:
            inbox.put(connection.recv_bytes())
    inbox.put(None)
    time.sleep(_PATIENCE_S)
    os._exit(0)
