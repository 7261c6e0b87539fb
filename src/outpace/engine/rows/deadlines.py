"""When time concerns a key although no event of it comes: its deadline.

Deadlines lie in sorted runs, each at most half as long as the one before. So to find those that
have passed, or to set some, costs their number, times the logarithm of all. Memory: a few integers
for each key, and for each deadline that was replaced before it passed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from outpace.engine.arrays import Integers, distinct, grown
from outpace.engine.snapshot import Stateful

#: The deadline of a key that waits for no time.
NEVER: Final = np.iinfo(np.int64).max


class _DeadlineRun(NamedTuple):
    """Deadlines in order, and whose they are."""

    times: Integers
    keys: Integers

    def after(self, time: int) -> _DeadlineRun:
        """Return what is behind a time; without a copy as long as that is most of all there was."""
        behind = int(np.searchsorted(self.times, time, "right"))
        times, keys = self.times[behind:], self.keys[behind:]
        if times.base is not None and 2 * len(times) < len(times.base):
            return _DeadlineRun(times.copy(), keys.copy())
        return _DeadlineRun(times, keys)


class Deadlines(Stateful):
    """One deadline for each key; keys are small integers.

    Examples
    --------
    >>> deadlines = Deadlines()
    >>> deadlines.replace(np.array([0, 1, 2]), np.array([30, 10, NEVER]))
    >>> deadlines.passed(9).tolist(), deadlines.passed(30).tolist()
    ([], [0, 1])
    >>> deadlines.replace(np.array([1]), np.array([40]))
    >>> deadlines.passed(30).tolist()
    [0]
    >>> deadlines.forget(30)
    >>> deadlines.passed(40).tolist()
    [1]
    """

    CHANGED = ("_at", "_runs")

    def __init__(self) -> None:
        self._at = np.zeros(0, np.int64)
        self._runs: list[_DeadlineRun] = []

    def passed(self, time: int) -> Integers:
        """Return the keys whose deadline is not after a time, in order."""
        found = [run.keys[: run.times.searchsorted(time, "right")] for run in self._runs]
        if not any(map(len, found)):
            return np.zeros(0, np.int64)
        keys = distinct(*found)
        return keys[self._at[keys] <= time]

    def forget(self, time: int) -> None:
        """Forget the deadlines that are not after a time."""
        self._at[self.passed(time)] = NEVER
        rest = [run.after(time) for run in self._runs]
        self._runs = [run for run in rest if len(run.times)]

    def replace(self, keys: Integers, deadline: Integers) -> None:
        """Set the deadlines of different keys."""
        self._at = grown(self._at, int(keys.max(initial=-1)) + 1, NEVER)
        changed = self._at[keys] != deadline
        self._at[keys] = deadline
        self._append(_DeadlineRun(deadline[changed], keys[changed]))

    def _append(self, run: _DeadlineRun) -> None:
        parts, size = [run], len(run.times)
        while self._runs and len(self._runs[-1].times) <= 2 * size:
            parts.append(self._runs.pop())
            size += len(parts[-1].times)
        times = np.concatenate([part.times for part in parts])
        keys = np.concatenate([part.keys for part in parts])
        current = np.flatnonzero((self._at[keys] == times) & (times != NEVER))
        if len(current):
            order = current[np.argsort(times[current], kind="stable")]
            self._runs.append(_DeadlineRun(times[order], keys[order]))
