"""The least of many keys, kept in a tree of groups.

The keys of sources are the leaves. Each group of at most `fan_in` has its least key in the level
above, which is grouped in the same way, up to the one key at the root. After a key has changed, its
group is looked at again when somebody asks, and a group whose least key stays tells nothing to the
level above. A search for the keys before a bound goes past the groups that have none.

So up to `fan_in` keys are one group, and beyond it a change costs no more than a look at one group
in each level. Memory: a key for each source, and one for each group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from outpace.engine.snapshot import Stateful

#: The key of an event, or of the first one that a source may still send: time, number, source.
OrderKey = tuple[int, int, int]

#: A key behind those of all events.
NEVER: Final[OrderKey] = (1 << 63, 0, 0)


class KeyTree(Stateful):
    """Keys by place, of which the least is known.

    Parameters
    ----------
    keys
        The key at each place, one at least.
    fan_in
        How many keys a group has at most, 2 or more.

    Examples
    --------
    >>> tree = KeyTree([(7, 0, 0), (4, 1, 1), (5, 0, 2)], fan_in=2)
    >>> tree.least
    (4, 1, 1)
    >>> tree[1] = (6, 2, 1)
    >>> tree.least, tree.before((7, 0, 0))
    ((5, 0, 2), [1, 2])
    """

    CHANGED = ("_levels", "_changed")

    def __init__(self, keys: Iterable[OrderKey], *, fan_in: int) -> None:
        self._fan_in = fan_in
        #: The keys, then the least ones of their groups, and so on up to one key alone.
        self._levels = [list(keys)]
        while len(self._levels) == 1 or len(self._levels[-1]) > 1:
            below = self._levels[-1]
            self._levels.append([min(below[i : i + fan_in]) for i in range(0, len(below), fan_in)])
        #: Groups of the lowest level whose least key may not be what the level above says.
        self._changed: set[int] = set()

    def __setitem__(self, place: int, key: OrderKey) -> None:
        self._levels[0][place] = key
        self._changed.add(place // self._fan_in)

    @property
    def least(self) -> OrderKey:
        """The least of all keys."""
        self._settle()
        return self._levels[-1][0]

    def before(self, bound: OrderKey) -> list[int]:
        """Return the places with keys before a bound, in their order."""
        self._settle()
        fan_in = self._fan_in
        places = [0]
        for level in reversed(self._levels[:-1]):
            starts = [place * fan_in for place in places]
            places = [
                place
                for start in starts
                for place, key in enumerate(level[start : start + fan_in], start)
                if key < bound
            ]
        return places

    def _settle(self) -> None:
        """Tell the levels above what has changed."""
        fan_in = self._fan_in
        changed, self._changed = self._changed, set()
        for below, level in zip(self._levels, self._levels[1:], strict=False):
            further = set()
            for group in changed:
                least = min(below[group * fan_in : (group + 1) * fan_in])
                if least != level[group]:
                    level[group] = least
                    further.add(group // fan_in)
            changed = further
