"""Which instance has which open window, while windows open and close in any order.

Memory: at most four times 17 bytes for each open window; with partitions, also its name.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.snapshot import Stateful
from outpace.engine.split.windows import Windows
from outpace.engine.state import ANY, NATURAL, integers, require


class WindowPlaces(Stateful):
    """Which instance has which open window.

    Windows stand in the order of their opening. A closed one only loses its mark; when there is no
    room for more, the closed ones are dropped, and there is twice the room that the others need.
    """

    CHANGED = ("_names", "_key", "_instance", "_alive")

    def __init__(self, *, keyed: bool) -> None:
        #: Without partitions a window's number finds it; with them its place in the order of
        #: opening does, which this tells.
        self._names: dict[tuple[int, int], int] | None = {} if keyed else None
        self._opened = 0
        self._size = 0
        self._key = np.zeros(64, np.int64)
        self._instance = np.zeros(64, np.int64)
        self._alive = np.zeros(64, np.bool_)

    def add(self, windows: Windows, instance: Integers) -> None:
        """Remember windows that open."""
        key = windows.number
        if self._names is not None:
            key = np.arange(self._opened, self._opened + len(windows))
            self._opened += len(windows)
            names = zip(windows.partition.tolist(), windows.number.tolist(), strict=True)
            self._names.update(zip(names, key.tolist(), strict=True))
        if self._size + len(windows) > len(self._key):
            self._drop_closed(len(windows))
        added = slice(self._size, self._size + len(windows))
        self._key[added], self._instance[added], self._alive[added] = key, instance, True
        self._size = added.stop

    def remove(self, windows: Windows) -> Integers:
        """Forget windows that close, and return their instances."""
        key = windows.number
        if self._names is not None:
            names = zip(windows.partition.tolist(), windows.number.tolist(), strict=True)
            key = np.array([self._names.pop(name) for name in names], np.int64)
        at = np.searchsorted(self._key[: self._size], key)
        self._alive[at] = False
        return self._instance[at]

    def tables(self) -> list[pa.Table]:
        """Return the windows that are open, for a saved state."""
        alive = np.flatnonzero(self._alive[: self._size])
        places = pa.table({"key": self._key[alive], "instance": self._instance[alive]})
        # Names are in the order of opening, as the places are.
        names = np.array(list(self._names or ()), np.int64).reshape(-1, 2)
        return [places, pa.table({"partition": names[:, 0], "number": names[:, 1]})]

    def restore(self, tables: list[pa.Table], instances: int, opened: Windows | None) -> None:
        """Go on from what `tables` returned, with so many instances.

        These windows are open, where that is known.
        """
        places, names = tables
        self._key, self._instance = integers(places, key=ANY, instance=range(instances))
        require((np.diff(self._key) > 0).all(), "windows are out of order")
        self._size = places.num_rows
        self._alive = np.ones(self._size, np.bool_)
        given = True
        if self._names is None and opened is not None:
            given = np.array_equal(self._key, np.sort(opened.number))
        elif self._names is not None:
            partition, number = integers(names, partition=NATURAL, number=ANY)
            pairs = zip(partition.tolist(), number.tolist(), strict=True)
            self._names = dict(zip(pairs, self._key.tolist(), strict=True))
            require(len(self._names) == self._size, "a window is there twice")
            if opened is not None:
                known = zip(opened.partition.tolist(), opened.number.tolist(), strict=True)
                given = self._names.keys() == set(known)
            self._opened = int(self._key[-1]) + 1 if self._size else 0
        require(given, "windows are not given to instances")

    def _drop_closed(self, added: int) -> None:
        kept = np.flatnonzero(self._alive[: self._size])
        room = 2 * (len(kept) + added)
        self._size = len(kept)
        self._key = np.resize(self._key[kept], room)
        self._instance = np.resize(self._instance[kept], room)
        self._alive = np.arange(room) < self._size
