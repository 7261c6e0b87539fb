"""Threads for what is done in process: by default as many as the process has cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Final, TypeVar

from outpace.engine.cores import use_cores
from outpace.errors import BindError
from outpace.pattern.argument import a_whole_number

T = TypeVar("T")
R = TypeVar("R")

#: How often who waits hears how far the threads are, and may end them.
_TURN_SECONDS: Final = 0.05

_VARIABLE: Final = "OUTPACE_THREADS"
_MOST: Final = 1024

#: What `set_threads` has said.
_chosen: int | None = None


def set_threads(count: int | None) -> None:
    """Say how many threads a table is matched with in this process.

    Parameters
    ----------
    count
        How many; None for the default: what the environment variable OUTPACE_THREADS says, else as
        many as there are cores that the process may use.

    Examples
    --------
    >>> set_threads(2)
    >>> set_threads(None)
    """
    global _chosen
    _chosen = None if count is None else _checked(count)


def thread_count(asked: int | None = None) -> int:
    """Return how many threads to use: what is asked for, or else what the process is set to."""
    if asked is not None:
        return _checked(asked)
    if _chosen is not None:
        return _chosen
    if text := os.environ.get(_VARIABLE):
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:5]) <= _MOST):
            raise BindError(
                f"{_VARIABLE} is a whole number from 1 to {_MOST}, not {text!r}",
                hint=f"{_VARIABLE}=4, or leave it unset for all cores",
            )
        return int(text)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _checked(count: int) -> int:
    number = a_whole_number(count, "a number of threads", least=1, hint="write threads=4")
    if number > _MOST:
        raise BindError(f"{number} are too many threads", detail=f"the limit is {_MOST}")
    return number


@contextmanager
def in_threads(count: int) -> Iterator[None]:
    """Let the engine work in so many threads inside the block."""
    if count == 1:
        yield
        return
    pool = _Pool(count)
    try:
        with use_cores(pool):
            yield
    finally:
        pool.close()


class _StoppedError(Exception):
    """Nobody waits for this work any more."""


class _Worker:
    """The one core that works on an item: it says how far it is, and hears when to stop."""

    count = 1

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self.done = 0

    def each(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        told: Callable[[int], object] | None = None,
    ) -> list[R]:
        return [function(item) for item in items]

    def turn(self, done: int) -> bool:
        if self._pool.stopped:
            raise _StoppedError
        self.done = done
        return True


class _Pool:
    """Threads that start with the first work."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.stopped = False
        self._executor: ThreadPoolExecutor | None = None

    def each(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        told: Callable[[int], object] | None = None,
    ) -> list[R]:
        if len(items) < 2:
            return [function(item) for item in items]
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self.count, thread_name_prefix="outpace")
        workers = [_Worker(self) for _ in items]

        def work(worker: _Worker, item: T) -> R:
            with use_cores(worker):
                return function(item)

        futures: list[Future[R]] = [
            self._executor.submit(work, *pair) for pair in zip(workers, items, strict=True)
        ]
        try:
            while wait(futures, _TURN_SECONDS).not_done:
                if told is not None:
                    told(sum(worker.done for worker in workers))
            return [future.result() for future in futures]
        except BaseException:
            self.stopped = True
            raise

    def turn(self, done: int) -> bool:
        return False

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
