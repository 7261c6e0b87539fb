"""Schedulers as values: which instance gets a window.

`outpace.schedulers` holds the names for users; `outpace.engine.window.schedule` runs them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A window that has just opened, as a scheduler sees it.

    Parameters
    ----------
    partition, number
        The partition's number, and the window's number in it.
    opened
        How many windows opened before it, over all partitions.
    """

    partition: int
    number: int
    opened: int


class Scheduler(ABC):
    """Gives every window that opens to an instance; own ones are subclasses."""

    @abstractmethod
    def assign(self, window: Candidate, loads: Sequence[float]) -> int:
        """Return the instance, from 0 on, that gets a window.

        Parameters
        ----------
        window
            The window.
        loads
            For each instance its last reported load: the events that wait for it.
        """
