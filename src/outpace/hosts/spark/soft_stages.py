"""Soft state: instances of stages that a process still has from the batch before.

What is saved of an instance says all of it, as it can be rebuilt from that and the log. So an
instance that was saved with the same bytes is the one that a rebuild would give, whoever saved
it since; any other is forgotten.

Memory: so many instances at most, those that were used last.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final, Generic, TypeVar

Owner = TypeVar("Owner")
Value = TypeVar("Value")

#: A process has so many instances at most.
_MOST: Final = 32


class SoftStages(Generic[Owner, Value]):
    """Instances by what was saved of them.

    Parameters
    ----------
    most
        How many there are at most.

    Examples
    --------
    >>> soft, spec = SoftStages(), object()
    >>> soft.put(spec, 0, b"saved", "an instance")
    >>> soft.take(spec, 0, b"saved"), soft.take(spec, 0, b"saved")
    ('an instance', None)
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        #: The specification is kept, too, so that no other one has its identity.
        self._kept: OrderedDict[tuple[int, int], tuple[Owner, bytes, Value]] = OrderedDict()

    def take(self, owner: Owner, number: int, saved: bytes) -> Value | None:
        """Return the instance of a number that was saved so; it is the caller's alone then."""
        found = self._kept.pop((id(owner), number), None)
        return found[2] if found is not None and found[1] == _digest(saved) else None

    def put(self, owner: Owner, number: int, saved: bytes, kept: Value) -> None:
        """Keep an instance as it was saved, in place of an earlier one."""
        self._kept[id(owner), number] = owner, _digest(saved), kept
        self._kept.move_to_end((id(owner), number))
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


def _digest(saved: bytes) -> bytes:
    return hashlib.blake2b(saved, digest_size=16).digest()
