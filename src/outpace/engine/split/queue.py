"""A queue of integers: arrays are added at one end, and pieces leave at the other.

Arrays are kept as they come, as to fill fresh memory costs more than all else; short ones are put
together. Memory: the integers in it, those of the oldest array that left, and some hundred bytes
for every so many integers.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from outpace.engine.arrays import Integers
from outpace.engine.snapshot import Stateful

#: Arrays are put together up to so many integers.
_SHORT: Final = 1024


class Queue(Stateful):
    """Integers in the order in which they came.

    Examples
    --------
    >>> queue = Queue()
    >>> queue.add(np.arange(3))
    >>> queue.add(np.array([7, 8]))
    >>> queue.pop(4).tolist(), queue.values.tolist()
    ([0, 1, 2, 7], [8])
    """

    CHANGED = ("_parts",)

    def __init__(self) -> None:
        self._parts: deque[Integers] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> Integers:
        """All that is in it, the oldest first."""
        return np.concatenate([_NOTHING, *self._parts])

    def add(self, values: Integers) -> None:
        """Add integers at the end, which nobody changes any more."""
        if not len(values):
            return
        self._size += len(values)
        if self._parts and len(self._parts[-1]) + len(values) <= _SHORT:
            values = np.concatenate([self._parts.pop(), values])
        self._parts.append(values)

    def pop(self, count: int) -> Integers:
        """Take the oldest `count` integers out."""
        self._size -= count
        taken = [] if count else [_NOTHING]
        while count:
            part = self._parts.popleft()
            taken.append(part[:count])
            if len(part) > count:
                self._parts.appendleft(part[count:])
            count -= len(taken[-1])
        return taken[0] if len(taken) == 1 else np.concatenate(taken)


_NOTHING = np.zeros(0, np.int64)
