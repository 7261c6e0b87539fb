"""The places of matches that came out: of those that wait for an acknowledgement, or are live.

A live match is one of a window that a replay opens, so that it gives the match again. Matches come
out in one order, so places are found by halving, and adding matches costs nothing: what they are
told apart by they have anyhow.

Memory: seven integers for each match.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.savepoint import MatchPlace
from outpace.engine.snapshot import Stateful

#: Places that came one after the other, as columns: what `MatchPlace` has, in that order.
PlaceColumns: TypeAlias = Sequence[Integers]

#: Parts are put together once they are so many.
_MANY: Final = 64
#: Where places have the window and its partition.
_WINDOW: Final = MatchPlace._fields.index("window")
_PARTITION: Final = MatchPlace._fields.index("partition")


class GivenPlaces(Stateful):
    """Places of matches, in their order.

    Examples
    --------
    >>> given = GivenPlaces()
    >>> event, phase, window, none = np.array([[3, 3, 5], [1, 1, 1], [0, 1, 1], [0, 0, 0]])
    >>> given.add((event, phase, none, window, none, window, none))
    >>> last = given.find(3, 1)
    >>> last.event, last.window, given.after(last).event
    (3, 1, 5)
    """

    CHANGED = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[PlaceColumns] = []

    @property
    def first(self) -> MatchPlace | None:
        """The first place; None where there is none."""
        return _place(self._parts[0], 0) if self._parts else None

    @property
    def last(self) -> MatchPlace | None:
        """The last place; None where there is none."""
        return _place(self._parts[-1], -1) if self._parts else None

    def add(self, places: PlaceColumns) -> None:
        """Add places behind all others; some may be there already."""
        self._parts.append(places)
        if len(self._parts) > _MANY:
            self._parts = [_joined(self._parts)]

    def find(self, x: int, y: int) -> MatchPlace | None:
        """Return the last place of a number; None where it is not known."""
        for part in reversed(self._parts):
            if len(part[0]) and part[0][-1] >= x:
                low, high = _span(part, x)
                windows = part[_WINDOW][low:high].tolist()
                if y in windows:
                    return _place(part, high - 1 - windows[::-1].index(y))
        return None

    def after(self, place: MatchPlace) -> MatchPlace | None:
        """Return the first place behind one; None where there is none."""
        for part in self._parts:
            if part[0][-1] >= place.event and (at := _behind(part, place)) < len(part[0]):
                return _place(part, at)
        return None

    def leading(self, place: MatchPlace, count: int) -> tuple[int, MatchPlace]:
        """Return so many of the places behind one, less those that others share, and the last."""
        places = _joined([[np.zeros(0, np.int64)] * len(place), *self._parts])
        places = [column[_behind(places, place) :] for column in places]
        size = len(places[0])
        count = min(count, size)
        while 0 < count < size and all(column[count - 1] == column[count] for column in places):
            count -= 1
        return count, _place(places, count - 1) if count else place

    def keep(
        self,
        settled: MatchPlace,
        floor: int,
        is_live: Callable[[Integers, Integers], Booleans] | None,
    ) -> None:
        """Forget the matches up to a place, but for those in live windows.

        These have no event before a floor. Windows are asked for by partition and number.
        """
        least = min(floor, settled.event)
        lows = [bisect_left(part[0], least) for part in self._parts]
        tails = [
            [column[low:] for column in part]
            for part, low in zip(self._parts, lows, strict=True)
            if low < len(part[0])
        ]
        self._parts = []
        if not tails:
            return
        # Copies, so that what is left holds no memory of what is not.
        places = _joined(tails)
        done = _behind(places, settled)
        if done:
            kept = np.ones(len(places[0]), np.bool_)
            kept[:done] = False
            if is_live is not None:
                kept[:done] = is_live(places[_PARTITION][:done], places[_WINDOW][:done])
            places = [column[kept] for column in places]
        if len(places[0]):
            self._parts.append(places)


def _joined(parts: Sequence[PlaceColumns]) -> PlaceColumns:
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def _behind(part: PlaceColumns, place: MatchPlace) -> int:
    """Return where the places begin that come behind one."""
    low, high = _span(part, place.event)
    if low == high:
        return low
    own = [column[low:high].tolist() for column in part]
    return low + bisect_right([*zip(*own, strict=True)], place)


def _span(part: PlaceColumns, event: int) -> tuple[int, int]:
    """Return where the places of an event begin and end."""
    # Of one number this is sooner there than NumPy's.
    low = bisect_left(part[0], event)
    return low, bisect_right(part[0], event, low)


def _place(part: PlaceColumns, at: int) -> MatchPlace:
    return MatchPlace(*[column.item(at) for column in part])
