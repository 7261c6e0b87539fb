"""Snapshots: a part of the operator as it stands now, in memory, whatever it does later.

Most of what parts keep are values: Arrow tables and arrays that a step replaces by others. A
snapshot shares these. What steps change in place a class names once, in `CHANGED`; a snapshot
copies it, part by part. So it costs what `CHANGED` holds, not what is kept: rows are never copied.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import Any, ClassVar, Self

import numpy as np


class Stateful:
    """A part with state, of which snapshots can be taken.

    Examples
    --------
    >>> class Counts(Stateful):
    ...     CHANGED = ("by_key",)
    ...     def __init__(self) -> None:
    ...         self.by_key = np.zeros(2, np.int64)
    >>> counts = Counts()
    >>> before = counts.snapshot()
    >>> counts.by_key[1] += 5
    >>> before.by_key.tolist(), counts.by_key.tolist()
    ([0, 0], [0, 5])
    """

    #: The attributes that steps change in place: arrays, lists, dictionaries and parts.
    CHANGED: ClassVar[tuple[str, ...]] = ()

    def snapshot(self) -> Self:
        """Return a part that stands where this one does; steps of either do not change the other.

        To go back is to go on with the snapshot in place of the part.
        """
        twin = copy.copy(self)
        for name in self.CHANGED:
            setattr(twin, name, _copied(getattr(self, name)))
        return twin

    def become(self, other: Self) -> None:
        """Stand where another part of the kind does, which is then of no more use."""
        vars(self).clear()
        vars(self).update(vars(other))


def _copied(value: Any) -> Any:
    if isinstance(value, Stateful):
        return value.snapshot()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        inner = next(iter(value.values()), None)
        if _is_changed(inner):
            return {key: _copied(one) for key, one in value.items()}
        return value.copy()
    if isinstance(value, list | deque):
        if value and _is_changed(value[0]):
            return type(value)(_copied(one) for one in value)
        return value.copy()
    if isinstance(value, set):
        return value.copy()
    assert value is None, f"nobody knows how to copy {type(value).__name__}"
    return value


def _is_changed(value: object) -> bool:
    return isinstance(value, Stateful | np.ndarray | list | deque | dict)
