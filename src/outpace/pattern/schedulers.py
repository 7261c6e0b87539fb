"""Schedulers as values: which instance gets a window.

`outpace.schedulers` holds the names for users; `outpace.engine.split.schedule` runs them, those of
this module for many windows at once. Which instance matches a window changes what travels and who
works, never the result. Paper: SPACE (Amann 2018) 2.3.4 and 4.4.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from outpace.pattern.argument import a_whole_number


@dataclass(frozen=True, slots=True)
class Candidate:
    """A window that has just opened, as a scheduler sees it.

    Parameters
    ----------
    partition, number
        The partition's number, and the window's number in it.
    opened
        How many windows opened before it, over all partitions.
    place
        How many windows opened before it in its partition.
    """

    partition: int
    number: int
    opened: int
    place: int


class Scheduler(ABC):
    """Gives every window that opens to an instance; own ones are subclasses.

    Examples
    --------
    >>> class Halves(Scheduler):
    ...     '''Every hundredth window has an instance for itself.'''
    ...     def assign(self, window, loads):
    ...         return 0 if window.number % 100 == 0 else 1
    >>> Halves().assign(Candidate(partition=0, number=200, opened=200, place=200), [0, 0])
    0
    """

    @abstractmethod
    def assign(self, window: Candidate, loads: Sequence[float]) -> int:
        """Return the instance, from 0 on, that gets a window.

        Parameters
        ----------
        window
            The window.
        loads
            For each instance the events that wait for it, as last reported, and those of the
            windows that it was given since.
        """


@dataclass(frozen=True, slots=True)
class RoundRobin(Scheduler):
    """Every instance in turn gets the next window.

    Where windows overlap, almost every event goes to as many instances as windows hold it.

    Examples
    --------
    >>> RoundRobin().assign(Candidate(partition=0, number=5, opened=5, place=5), [0, 0])
    1
    """

    def assign(self, window: Candidate, loads: Sequence[float]) -> int:
        """Return the instance whose turn it is."""
        return window.opened % len(loads)


@dataclass(frozen=True, slots=True)
class Batches(Scheduler):
    """Every instance in turn gets the next `size` windows of a partition.

    Only events at the borders of batches go to two instances: of windows of `w` events that start
    every `s` events, each event is sent 1 + (w - s) / (size * s) times.

    Parameters
    ----------
    size
        The windows of a batch; None chooses by overlap and number of instances.

    Examples
    --------
    >>> Batches(size=4).assign(Candidate(partition=0, number=6, opened=6, place=6), [0, 0])
    1
    """

    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            size = a_whole_number(self.size, "the size of a batch", least=1)
            object.__setattr__(self, "size", size)

    def assign(self, window: Candidate, loads: Sequence[float]) -> int:
        """Return the instance that has the batch; one window is a batch where no size is known."""
        return (window.partition + window.place // (self.size or 1)) % len(loads)


@dataclass(frozen=True, slots=True)
class LeastLoaded(Scheduler):
    """The instance that the fewest events wait for gets the next window.

    Examples
    --------
    >>> LeastLoaded().assign(Candidate(partition=0, number=5, opened=5, place=5), [9, 7, 7])
    1
    """

    def assign(self, window: Candidate, loads: Sequence[float]) -> int:
        """Return the first of the instances with the smallest load."""
        return min(range(len(loads)), key=loads.__getitem__)


@dataclass(frozen=True, slots=True)
class ByKey(Scheduler):
    """All windows of a key go to the same instance, so that no event is sent twice.

    Examples
    --------
    >>> ByKey().assign(Candidate(partition=3, number=5, opened=9, place=5), [0, 0])
    1
    """

    def assign(self, window: Candidate, loads: Sequence[float]) -> int:
        """Return the instance of the window's partition."""
        return window.partition % len(loads)
