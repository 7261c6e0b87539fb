"""The processes of the instances: started, spoken with, and taken down with all that they had.

A process that ends before it should is reported with its cause: the signal or the exit code, or the
traceback of what was raised in it. Taking down works from any state and leaves no process behind.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Final

from outpace.compiler.kernel import load_numba
from outpace.engine.operator_spec import OperatorSpec
from outpace.errors import BindError, InstanceError
from outpace.hosts.processes.worker import (
    Ready,
    Setup,
    WorkFailure,
    WorkItem,
    WorkResult,
    run_instance,
)

#: How long a process may take to end by itself.
_PATIENCE_S: Final = 2.0

_STARTS: Final = "start instances from a script file, under: if __name__ == '__main__':"
_MEMORY: Final = "the system may have run out of memory"

#: Held while a process starts, since all threads have one `__main__`.
_STARTING: Final = threading.Lock()


def process_context(*modules: str) -> BaseContext:
    """Return how processes are started: fresh, never as a copy of a process with threads.

    The server that they are copies of begins to load the library, if it runs not yet.

    Parameters
    ----------
    modules
        What the processes load beside what instances do.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # The server loads the library once; processes that it starts then need no time for that.
    context.set_forkserver_preload(["outpace.hosts.processes.preload", *modules])
    with _STARTING, _main_if_needed(None):
        ensure_running()
    return context


def load_aside(*, processes: bool) -> None:
    """Load what a front and most sources need while the first events come, and what processes do.

    Parameters
    ----------
    processes
        Whether there will be any.
    """
    if processes:
        process_context()
    threading.Thread(target=load_numba, name="outpace-load", daemon=True).start()


class Processes:
    """The processes of the instances, by number.

    Parameters
    ----------
    context
        How they are started.
    setups
        What each is started with.
    """

    def __init__(self, context: BaseContext, setups: Sequence[Setup]) -> None:
        self._processes: list[BaseProcess] = []
        self._connections: list[Connection] = []
        #: Ends of pipes that only this process has, by which instances know that it is there.
        self._alive: list[Connection] = []
        self._ready: set[int] = set()
        try:
            for number, setup in enumerate(setups):
                self._start(context, number, setup)
            while len(self._ready) < len(setups):
                for _ in self.receive(None):
                    pass
        except BaseException:
            self.close()
            raise

    def send(self, instance: int, work: WorkItem) -> None:
        """Give an instance work."""
        try:
            self._connections[instance].send_bytes(work.write())
        except OSError:
            raise self._died(instance) from None

    def receive(
        self, timeout: float | None, also: Sequence[Connection] = ()
    ) -> Iterator[tuple[int, WorkResult]]:
        """Wait for the first answer, or for something in `also`, and yield what there is.

        Parameters
        ----------
        timeout
            The seconds to wait at most; None waits for as long as it takes.
        also
            Other connections that end the waiting.
        """
        ready = wait([*self._connections, *also], timeout)
        numbers = {id(connection): number for number, connection in enumerate(self._connections)}
        for connection in ready:
            number = numbers.get(id(connection))
            if number is not None:
                yield from self._messages(number)

    def close(self) -> None:
        """End all processes; those that do not end by themselves are made to."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(_PATIENCE_S)
            if process.exitcode is None:
                process.kill()
                process.join()
            process.close()
        for alive in self._alive:
            alive.close()
        self._processes, self._connections, self._alive = [], [], []

    def _start(self, context: BaseContext, number: int, setup: Setup) -> None:
        ours, theirs = context.Pipe()
        self._connections.append(ours)
        watched, alive = context.Pipe(duplex=False)
        self._alive.append(alive)
        name = f"outpace-instance-{number}"
        process = start_process(context, name, setup.spec, run_instance, setup, theirs, watched)
        self._processes.append(process)
        # Only the process itself may hold its end, or nobody would notice when it is gone.
        theirs.close()
        watched.close()

    def _messages(self, number: int) -> Iterator[tuple[int, WorkResult]]:
        connection = self._connections[number]
        while connection.poll():
            try:
                data = connection.recv_bytes()
                message = WorkResult.read(data) if data else connection.recv()
            except (EOFError, OSError):
                raise self._died(number) from None
            if isinstance(message, WorkFailure):
                raise _failure(number, message)
            if isinstance(message, Ready):
                self._ready.add(number)
            else:
                yield number, message

    def _died(self, number: int) -> InstanceError:
        process = self._processes[number]
        process.join(_PATIENCE_S)
        code = process.exitcode
        if code is None:
            return InstanceError(f"instance {number} closed its connection and still runs")
        if code < 0:
            name = signal.Signals(-code).name
            hint = _MEMORY if -code == signal.SIGKILL else None
            return InstanceError(f"instance {number} was ended by {name}", hint=hint)
        started = number in self._ready
        return InstanceError(
            f"instance {number} ended with exit code {code}"
            + ("" if started else " as it started"),
            hint=None if started else _STARTS,
        )


def start_process(
    context: BaseContext,
    name: str,
    spec: OperatorSpec | None,
    target: Callable[..., None],
    *arguments: object,
) -> BaseProcess:
    """Start a process that works for an operator, if it does, and return it."""
    process: BaseProcess = context.Process(  # type: ignore[attr-defined] # typeshed leaves it to subclasses
        target=target, args=arguments, name=name, daemon=True
    )
    try:
        with _STARTING, _main_if_needed(spec):
            process.start()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BindError(
            "the query cannot be sent to another process",
            detail=str(error),
            hint="define operators and predicates at the top level of a module",
        ) from error
    return process


@contextmanager
def _main_if_needed(spec: OperatorSpec | None) -> Iterator[None]:
    """Let a process that starts run the user's script again only where it needs what is in it.

    A new process loads the module `__main__` of its parent. That fails for a script that was typed
    in, and runs everything twice that is not under `if __name__ == "__main__"`.
    """
    if b"__main__" in pickle.dumps(spec):
        yield
        return
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _failure(number: int, failed: WorkFailure) -> Exception:
    """Return what is raised here for what was raised there."""
    if failed.error is not None:
        failed.error.add_note(f"raised in instance {number}:\n{failed.trace}")
        return failed.error
    return InstanceError(f"instance {number} failed: {failed.message}", detail=failed.trace)
