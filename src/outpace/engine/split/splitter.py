"""The splitter as a state machine: the order of time and saved state, which all kinds share.

It takes the events of a stream in its order and says which windows they open and close. Any cut of
the stream into pushes, and any watermarks between them, give the same windows.

Paper: SPACE (Amann 2018) 3.2.3, 4.4.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import END_OF_TIME, NO_TIME, Integers
from outpace.engine.event import Events
from outpace.engine.kernels.grouping import is_ascending
from outpace.engine.rows.times import passed
from outpace.engine.split.windows import Split, Windows
from outpace.engine.state import ANY, NATURAL, SavedPart, State
from outpace.errors import DataError
from outpace.pattern.bind.window_kinds import BoundWindows
from outpace.pattern.values import TIME_LIMIT


class Splitter(SavedPart, ABC):
    """Tells which windows the events of a stream open and close.

    Parameters
    ----------
    windows
        Which windows.
    """

    SAME: ClassVar = {"windows": ("_spec", "other windows")}
    NUMBERS: ClassVar = {"arrived": ("_arrived", NATURAL), "watermark": ("_watermark", ANY)}

    def __init__(self, windows: BoundWindows) -> None:
        self.windows = windows
        self._arrived = 0
        #: The time before which no event will come; `NO_TIME` while it is not known.
        self._watermark = NO_TIME
        self._finished = False

    @property
    def arrived(self) -> int:
        """The arrival number that the next event would have."""
        return self._arrived

    @property
    @abstractmethod
    def open_windows(self) -> int:
        """How many windows are open."""

    def push(self, events: Events) -> Split:
        """Take the next events; after an error none is taken."""
        self._check_open()
        if not len(events.arrival):
            return Split(Windows.none(), Windows.none())
        self._check_times(events)
        split = self._push(events)
        self._arrived = int(events.arrival[-1]) + 1
        if self.windows.needs_time:
            self._watermark = int(events.times[-1])
        return split

    def advance(self, watermark: int) -> Split:
        """Promise that no later event has a time before `watermark`."""
        self._check_open()
        if watermark <= self._watermark:
            return Split(Windows.none(), Windows.none())
        self._watermark = min(max(watermark, -TIME_LIMIT), END_OF_TIME)
        return self._pass(self._watermark)

    def finish(self) -> Split:
        """Say that no more events come: the windows that are open close as they are."""
        self._check_open()
        split = self._rest()
        self._finished = True
        return split

    def idle(self, partitions: Integers) -> Integers:
        """Return those of some partitions whose past says nothing of the windows to come."""
        return partitions[:0]

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        return super().state().plus(State({}, self._tables()))

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, maybe in another process."""
        super().restore(state)
        self._set_tables(state.tables)

    @property
    def _spec(self) -> str:
        """What the windows are, for saved state."""
        return f"{self.windows.kind!r}{' by key' if self.windows.keyed else ''}"

    @abstractmethod
    def _push(self, events: Events) -> Split:
        """Say what events open and close."""

    def _pass(self, watermark: int) -> Split:
        """Say what the passing of time closes."""
        return Split(Windows.none(), Windows.none())

    @property
    @abstractmethod
    def event_counts(self) -> Integers:
        """How many events each partition has had, by its number."""

    def opened(self) -> Windows:
        """Return the windows that are open, as they would close if the input ended."""
        return self.snapshot()._rest().closed

    @abstractmethod
    def _rest(self) -> Split:
        """Say what the end of the input closes."""

    @abstractmethod
    def _tables(self) -> list[pa.Table]:
        """Return what is kept."""

    @abstractmethod
    def _set_tables(self, tables: Sequence[pa.Table]) -> None:
        """Take over what `_tables` returned."""

    def _check_times(self, events: Events) -> None:
        """Refuse events that come before those already taken, where time closes windows."""
        if not self.windows.needs_time:
            return
        times = events.times
        if int(times[0]) < self._watermark or not is_ascending(times):
            before = np.maximum.accumulate(np.concatenate([[self._watermark], times[:-1]]))
            row = int(np.flatnonzero(times < before)[0])
            raise passed(row, f"its time is {int(times[row])}, after {int(before[row])}")

    def _check_open(self) -> None:
        if self._finished:
            raise DataError("the splitter is finished", hint="make a new one for more input")
