"""The places of matches that came out: of those that wait for an acknowledgement, or are live.

A live match is one of a window that a replay opens, so that it gives the match again. Matches come
out in one order, so places are found by halving, and adding matches costs nothing.

Memory: seven integers for each match.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final

import numpy as np

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.savepoint import MatchPlace
from outpace.engine.snapshot import Stateful

#: Where places have the window and its partition.
_WINDOW: Final = MatchPlace._fields.index("window")
_PARTITION: Final = MatchPlace._fields.index("partition")


class GivenPlaces(Stateful):
    """Places of matches, in their order.

    Examples
    --------
    >>> given = GivenPlaces()
    >>> window, none = [0, 1, 1], [0, 0, 0]
    >>> given.add(np.array([[3, 3, 5], [1, 1, 1], none, window, none, window, none]))
    >>> last = given.find(3, 1)
    >>> last.event, last.window, given.after(last).event
    (3, 1, 5)
    """

    CHANGED = ("_parts",)

    def __init__(self) -> None:
        #: Rows are what `MatchPlace` has, columns are matches.
        self._parts: list[Integers] = []

    @property
    def first(self) -> MatchPlace | None:
        """The first place; None where there is none."""
        return _place(self._parts[0], 0) if self._parts else None

    @property
    def last(self) -> MatchPlace | None:
        """The last place; None where there is none."""
        return _place(self._parts[-1], -1) if self._parts else None

    def add(self, places: Integers) -> None:
        """Add places behind all others; some may be there already."""
        self._parts.append(places)

    def join(self) -> None:
        """Let all be found at once."""
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts, axis=1)]

    def find(self, x: int, y: int) -> MatchPlace | None:
        """Return the last place of a number; None where it is not known."""
        for part in reversed(self._parts):
            if len(part[0]) and part[0][-1] >= x:
                low, high = _span(part, x)
                windows = part[_WINDOW, low:high].tolist()
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
        nothing = np.zeros((len(place), 0), np.int64)
        places = np.concatenate([nothing, *self._parts], axis=1)
        places = places[:, _behind(places, place) :]
        count = min(count, places.shape[1])
        while 0 < count < places.shape[1] and (places[:, count - 1] == places[:, count]).all():
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
        tails = []
        for part in self._parts:
            low = bisect_left(part[0], least)
            if low < len(part[0]):
                tails.append(part[:, low:] if low else part)
        self._parts = []
        if not tails:
            return
        places = np.concatenate(tails, axis=1) if len(tails) > 1 else tails[0]
        done = _behind(places, settled)
        if is_live is not None and done:
            live = is_live(places[_PARTITION, :done], places[_WINDOW, :done])
            if not live.all():
                places = np.concatenate([places[:, :done][:, live], places[:, done:]], axis=1)
        elif done:
            places = places[:, done:]
        self._parts = [places] if places.shape[1] else []


def _behind(part: Integers, place: MatchPlace) -> int:
    """Return where the places begin that come behind one."""
    low, high = _span(part, place.event)
    return low + bisect_right(part[:, low:high].T.tolist(), [*place]) if low < high else low


def _span(part: Integers, event: int) -> tuple[int, int]:
    """Return where the places of an event begin and end."""
    # Of one number this is sooner there than NumPy's.
    low = bisect_left(part[0], event)
    return low, bisect_right(part[0], event, low)


def _place(part: Integers, at: int) -> MatchPlace:
    return MatchPlace(*part[:, at].tolist())
