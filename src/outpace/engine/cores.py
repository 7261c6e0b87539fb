"""Parts of one work at once, where a host has cores for it: kernels need no interpreter.

The engine says what may be done at once; a host decides how, see `hosts.local.threads`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Final, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Cores(Protocol):
    """What works on several things at once."""

    @property
    def count(self) -> int:
        """How many it works on."""
        ...

    def each(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        told: Callable[[int], object] | None = None,
    ) -> list[R]:
        """Return what a function gives for each item; of errors that of the first item is raised.

        `told` is called now and then with how far all are together, see `turn`.
        """
        ...

    def turn(self, done: int) -> bool:
        """Say how far the work is, and return whether somebody has been told so.

        What it raises ends the work.
        """
        ...


class OneCore:
    """One thing after the other."""

    count = 1

    def each(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        told: Callable[[int], object] | None = None,
    ) -> list[R]:
        """Return what a function gives for each item."""
        return [function(item) for item in items]

    def turn(self, done: int) -> bool:
        """Return that nobody has been told."""
        return False


_ONE_CORE: Final = OneCore()
_cores: ContextVar[Cores] = ContextVar("outpace_cores", default=_ONE_CORE)


def cores() -> Cores:
    """Return what work may be given to."""
    return _cores.get()


@contextmanager
def use_cores(chosen: Cores) -> Iterator[None]:
    """Give work to other cores inside the block."""
    token = _cores.set(chosen)
    try:
        yield
    finally:
        _cores.reset(token)


def stretches(size: int, least: int) -> list[tuple[int, int]]:
    """Cut a number of rows into as many stretches as there are cores; short ones are not worth it.

    Examples
    --------
    >>> stretches(10, 1)
    [(0, 10)]
    """
    count = max(1, min(cores().count, size // least))
    bounds = [size * part // count for part in range(count + 1)]
    return list(pairwise(bounds))
