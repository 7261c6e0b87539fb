"""What a savepoint has beside its numbers: of windows how they stand, else how searches stood."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.front import Front
from outpace.engine.recover.arrivals import without_rows
from outpace.engine.recover.layout import WindowLayout
from outpace.engine.savepoint import MatchPlace
from outpace.engine.state import State


class WindowContent:
    """What a savepoint has of windows, as bytes: made when it leaves, which is mostly at once.

    Until then, and until something else is taken, it is read where it stands.
    """

    def __init__(
        self, front: Front, layout: WindowLayout, places: State | None, schema: pa.Schema
    ) -> None:
        self._front, self._layout = front, layout
        self._places, self._schema = places, schema
        self._made: bytes | None = None

    def __call__(self) -> bytes:
        """Return it."""
        if self._made is None:
            parts = {"front": self._front.unscheduled, "windows": self._layout.state()}
            if self._places is not None:
                parts["front"] = without_rows(parts["front"], self._schema)
                parts["places"] = self._places
            self._made = State({}, parts=parts).encode()
        return self._made

    def keep(self) -> None:
        """Let what is taken next not change it."""
        if self._made is None:
            self._front = self._front.snapshot()


@dataclass(frozen=True)
class SearchStanding:
    """Where searches without windows stood: behind so many events and turns, and which match.

    `held` are the numbers of the rows that they held, or where something puts events in order, the
    ids of these and of events that waited; `content` is what a savepoint has.
    """

    at: int
    turn: int
    last: MatchPlace
    held: Integers
    content: bytes
