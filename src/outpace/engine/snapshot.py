"""Snapshots: a part of the operator as it stands now, in memory, whatever it does later.

Most of what parts keep are values: Arrow tables and arrays that a step replaces by others. A
snapshot shares these. The attributes that steps change in place a class names once, in `CHANGED`; a
snapshot copies them, part by part. So it costs the size of `CHANGED`, not that of the whole state:
rows are never copied. A dictionary that is large is kept in `Layers`, of which a snapshot costs
what changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import numpy as np

Key = TypeVar("Key")
Value = TypeVar("Value")

#: Changes are kept apart from what snapshots share up to this part of it, or so many.
_CHANGED_PART: Final = 8
_CHANGED_MIN: Final = 1024
#: What an entry of a list takes, in bytes.
_REFERENCE: Final = 8


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
    #: Other attributes that are parts, or lists or dictionaries of these, by the names that
    #: `SavedPart` saves them by; keys end these.
    PARTS: ClassVar[Mapping[str, str]] = {}

    def snapshot(self) -> Self:
        """Return a part that stands where this one does; steps of either do not change the other.

        To go back is to go on with the snapshot in place of the part.
        """
        twin = self.twin()
        for name in (*self.CHANGED, *self.PARTS.values()):
            setattr(twin, name, _copied(getattr(self, name)))
        return twin

    def twin(self) -> Self:
        """Return a part that has all in common with this one."""
        # What `copy.copy` does takes several times as long.
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    @property
    def copied_bytes(self) -> int:
        """How many bytes a snapshot copies: what steps change in place, of entries a reference."""
        changed = (*self.CHANGED, *self.PARTS.values())
        return sum(_bytes_of(getattr(self, name)) for name in changed)

    def become(self, other: Self) -> None:
        """Stand where another part of the kind does, which is then of no more use."""
        vars(self).clear()
        vars(self).update(vars(other))


class Layers(Stateful, Generic[Key, Value]):
    """A dictionary that snapshots share; later changes lie above it, for each by itself.

    Examples
    --------
    >>> one = Layers({"a": 1, "b": 2})
    >>> other = one.snapshot()
    >>> one.update([("c", 3)])
    >>> one.remove(["a"])
    >>> one.find(["a", "b", "c"], -1), other.find(["a", "b", "c"], -1)
    ([-1, 2, 3], [1, 2, -1])
    """

    CHANGED = ("_above",)

    def __init__(self, content: dict[Key, Value]) -> None:
        self._base = content
        #: What differs from the base, None where it is removed; empty while nobody shares it.
        self._above: dict[Key, Value | None] = {}
        self._size = len(content)
        self._shared = False

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[Key, Value]]:
        above = self._above
        yield from ((key, value) for key, value in self._base.items() if key not in above)
        yield from ((key, value) for key, value in above.items() if value is not None)

    def snapshot(self) -> Self:
        """Return a dictionary that is the same, and stays so."""
        self._shared = True
        return super().snapshot()

    def find(self, keys: Iterable[Key], missing: Value) -> list[Value]:
        """Return the values of keys, and another one where a key is missing."""
        base, above = self._base, self._above
        if not above:
            return [base.get(key, missing) for key in keys]
        found = [above[key] if key in above else base.get(key, missing) for key in keys]
        return [missing if value is None else value for value in found]

    def update(self, items: Iterable[tuple[Key, Value]]) -> None:
        """Set values of keys."""
        if not self._shared:
            self._base.update(items)
            self._size = len(self._base)
            return
        base, above, changed = self._base, self._above, dict(items)
        known = [above[key] is not None if key in above else key in base for key in changed]
        self._size += len(known) - sum(known)
        above.update(changed)
        self._settle()

    def remove(self, keys: Sequence[Key]) -> None:
        """Remove different keys that are there."""
        self._size -= len(keys)
        if self._shared:
            self._above.update(dict.fromkeys(keys))
            self._settle()
            return
        for key in keys:
            del self._base[key]

    def _settle(self) -> None:
        """Make one dictionary of all where much has changed, so that a change costs little."""
        if len(self._above) > max(_CHANGED_MIN, self._size // _CHANGED_PART):
            self._base, self._above, self._shared = dict(self), {}, False


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


def _bytes_of(value: Any) -> int:
    """Return how many bytes `_copied` copies; containers hold values of one kind."""
    if value is None:
        return 0
    if isinstance(value, Stateful):
        return value.copied_bytes
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    own = _REFERENCE * len(value)
    each = value.values() if isinstance(value, dict) else value
    if isinstance(value, set) or not _is_changed(next(iter(each), None)):
        return own
    return own + sum(map(_bytes_of, each))


def _is_changed(value: object) -> bool:
    return isinstance(value, Stateful | np.ndarray | list | deque | dict)
