"""What an operator of one's own is asked, so that it is recovered by a replay.

It takes events with their numbers, gives matches with numbers of their own, and says what it still
needs when one of them is acknowledged. What it does not say is skipped, it gets again.

Paper: Lima et al., section IV (push, pop, save and restore of libgem).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.savepoint import Savepoint


@dataclass(frozen=True)
class OwnMatch:
    """A match that an operator of one's own gives.

    Parameters
    ----------
    x, y
        Its number: x is the number of the event that completed it, y tells apart those of the same
        event. Numbers rise from match to match, and a replay gives each the number that it had.
    row
        What it says.

    Examples
    --------
    >>> OwnMatch(7, 0, {"at": 3}).number
    (7, 0)
    """

    x: int
    y: int = 0
    row: Mapping[str, object] = field(default_factory=dict)

    @property
    def number(self) -> tuple[int, int]:
        """Its number x:y."""
        return self.x, self.y


@runtime_checkable
class Recoverable(Protocol):
    """An operator of one's own that keeps no state: see `OperatorStream`.

    What it gives depends on the events that it was pushed, their numbers and what was restored
    alone.
    """

    #: Tells its savepoints from those of other operators.
    name: str

    def push(self, events: pa.Table, numbers: Integers) -> None:
        """Take the next events, each with its number; these rise, by more than 1 in a replay.

        Parameters
        ----------
        events, numbers
            The events, and their numbers.
        """

    def pop(self) -> OwnMatch | None:
        """Return the next match that the events have given; None where there is none."""

    def save(self, match: OwnMatch | None) -> Savepoint:
        """Take the acknowledgement of all matches up to one, if any, and say what is needed now.

        See `Savepoint.of`. Events that it skips are those that make no difference to what it gives
        in a replay from there; who skips nothing gets all again behind `trim`.

        Parameters
        ----------
        match
            The last match that was acknowledged; None where there is none.
        """

    def restore(self, savepoint: Savepoint) -> None:
        """Stand where a replay begins: all events that were retained are pushed next.

        Parameters
        ----------
        savepoint
            The savepoint that `save` returned last.
        """


@runtime_checkable
class SeekableLog(Protocol):
    """A log of one's own that a stream on Spark comes from, and that is read again by a replay.

    The rows of the stream say in columns where they lie. It is sent to the tasks that read it.
    """

    #: Tells it from other logs, wherever it is.
    name: str
    #: The columns that say in which part a row lies, as `("topic", "partition")`; maybe none.
    parts: Sequence[str]
    #: The column of integers that says where in its part; a part has each once, and they rise.
    offset: str

    def read(self, part: Mapping[str, Any], first: int, stop: int) -> Iterable[pa.Table]:
        """Yield the rows of a part, from an offset on up to another, as the stream has them.

        Parameters
        ----------
        part
            The values of `parts`, by their names.
        first, stop
            The first offset, and the one behind the last.
        """
        ...
