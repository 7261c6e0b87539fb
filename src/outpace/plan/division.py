"""How the rows of a query are divided among tasks."""

from __future__ import annotations

from enum import Enum


class Division(Enum):
    """How rows, or windows of them, are divided among tasks."""

    KEY = "by key"
    KEY_AND_RANGE = "by key and time range"
    RANGE = "by time range"
    TIME = "by time, in batches of windows"
    SPLIT = "in batches of windows"
    NUMBERED = "by key, after one task has numbered the events of all keys"
    NONE = "not at all"

    @property
    def by_range(self) -> bool:
        """Whether ranges of time are tasks of their own."""
        return self in (Division.RANGE, Division.KEY_AND_RANGE)
