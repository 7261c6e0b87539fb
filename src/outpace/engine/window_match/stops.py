"""Where matching stopped in each partition, by its number; arrays that grow with the numbers.

The cost of a step here depends on the partitions that it touches. Memory: five integers for each
number that there ever was at once, and the consumed rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers, grown
from outpace.engine.match.contract import Resume
from outpace.engine.snapshot import Stateful
from outpace.engine.state import NATURAL, integers, lists, require

#: What is known of each partition, and what it is before the first row.
_FRESH: Final = {"next_start": 0, "barrier": -1, "number": 0, "completed_to": 0}
#: What it may be, where that is not a natural number.
_BOUNDS: Final = {"barrier": range(-1, NATURAL.stop)}

_NONE: Final = np.zeros(0, np.int64)


class Stops(Stateful):
    """Where matching stopped in each partition of which something is known.

    Examples
    --------
    >>> stops = Stops()
    >>> both = np.array([0, 3])
    >>> stops.make_room(both)
    >>> stops.resume(both).barrier.tolist(), stops.partitions.tolist()
    ([-1, -1], [])
    >>> stops.stop(both, stops.resume(both))
    >>> stops.partitions.tolist()
    [0, 3]
    >>> stops.forget(np.array([0]))
    >>> len(stops)
    1
    """

    CHANGED = ("_values", "_known", "_consumed")

    def __init__(self) -> None:
        self._values = {name: np.zeros(0, np.int64) for name in _FRESH}
        self._known = np.zeros(0, np.int64)
        self._consumed: dict[int, Integers] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def partitions(self) -> Integers:
        """The numbers of the partitions that are known."""
        return np.flatnonzero(self._known)

    @property
    def next_start(self) -> Integers:
        """The first start of each partition that is not settled, by number."""
        return self._values["next_start"]

    def make_room(self, numbers: Integers) -> None:
        """Let `resume` be asked for partitions; new ones are as they are before their first row."""
        size = int(numbers.max(initial=-1)) + 1
        if size > len(self._known):
            for name, fresh in _FRESH.items():
                self._values[name] = grown(self._values[name], size, fresh)
            self._known = grown(self._known, size, 0)

    def resume(self, numbers: Integers) -> Resume:
        """Return where matching stopped in some partitions."""
        nothing = np.zeros(0, np.int64)
        consumed = [nothing] * len(numbers)
        for place in self._consuming(numbers).tolist():
            consumed[place] = self._consumed.get(int(numbers[place]), nothing)
        next_start, barrier, number, completed_to = (
            values[numbers] for values in self._values.values()
        )
        return Resume(next_start, barrier, number, completed_to, consumed)

    def stop(self, numbers: Integers, resume: Resume) -> None:
        """Note where matching stopped in some partitions, which are known then."""
        self._know(numbers)
        for name, values in self._values.items():
            values[numbers] = getattr(resume, name)
        self._drop_consumed(numbers)
        for place in resume.consuming:
            self._consumed[int(numbers[place])] = resume.consumed[place]

    def forget(self, numbers: Integers) -> None:
        """Forget partitions: should one of their numbers come again, it is new."""
        self._count -= int(self._known[numbers].sum())
        self._known[numbers] = 0
        for name, fresh in _FRESH.items():
            self._values[name][numbers] = fresh
        self._drop_consumed(numbers)

    def table(self) -> pa.Table:
        """Return what is known, for a saved state; of numbers without a gap only how many."""
        numbers = self.partitions
        resume = self.resume(numbers).normal()
        consumed = pa.array([part.tolist() for part in resume.consumed], pa.list_(pa.int64()))
        columns = {name: getattr(resume, name) for name in _FRESH}
        return pa.table({"partition": numbers, **columns, "consumed": consumed})

    def restore(self, table: pa.Table, taken: Integers) -> None:
        """Take what `table` returned, at first; of partitions so many rows were taken."""
        numbers, *read = integers(
            table,
            partition=range(len(taken)),
            **{name: _BOUNDS.get(name, NATURAL) for name in _FRESH},
        )
        require((np.diff(numbers) > 0).all(), "partitions do not rise")
        self.make_room(numbers)
        self._know(numbers)
        for values, saved in zip(self._values.values(), read, strict=True):
            values[numbers] = saved
        count = taken[numbers]
        for name in ("next_start", "barrier", "completed_to"):
            require((self._values[name][numbers] <= count).all(), f"{name} is behind the rows")
        consumed = zip(numbers.tolist(), lists(table, "consumed", NATURAL), strict=True)
        self._consumed = {number: rows for number, rows in consumed if len(rows)}
        for number, rows in self._consumed.items():
            fits = self.next_start[number] <= rows[0] and rows[-1] < taken[number]
            require(fits and (np.diff(rows) > 0).all(), "consumed rows do not rise")

    def _consuming(self, numbers: Integers) -> Integers:
        """Return the places of partitions that may have consumed rows: most have none."""
        if not self._consumed:
            return _NONE
        if len(self._consumed) > len(numbers):
            return np.arange(len(numbers))
        held = np.fromiter(self._consumed, np.int64, len(self._consumed))
        return np.flatnonzero(np.isin(numbers, held))

    def _drop_consumed(self, numbers: Integers) -> None:
        for number in numbers[self._consuming(numbers)].tolist():
            self._consumed.pop(number, None)

    def _know(self, numbers: Integers) -> None:
        self._count += len(numbers) - int(self._known[numbers].sum())
        self._known[numbers] = 1
