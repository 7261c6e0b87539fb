"""Pairs of equal ids in two lists, by a hash table: each id is looked at about once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from outpace.compiler.kernel import compiled_when_worth

Integers = npt.NDArray[Any]


def paired_ids(before: npt.NDArray[np.uint64], after: npt.NDArray[np.uint64]) -> Integers:
    """Return for each id of a list which one of another it is, the first that is left; -1: none.

    Ids are two words each, of well mixed bits.

    Examples
    --------
    >>> before, after = np.array([[7, 0], [8, 0], [7, 0]]), np.array([[8, 0], [7, 0], [9, 0]])
    >>> paired_ids(before.astype(np.uint64), after.astype(np.uint64)).tolist()
    [1, 0, -1]
    """
    out = np.empty(len(after), np.int64)
    # Half of the slots stay empty, so that few ids are not in their own.
    slots = np.full(2 << len(before).bit_length(), -1)
    chains = np.full((len(before), 3), -1)
    _pair_ids(before.view(np.int64), after.view(np.int64), slots, chains, out)
    return out


@compiled_when_worth
def _pair_ids(
    before: Integers, after: Integers, slots: Integers, chains: Integers, out: Integers
) -> None:
    """Fill `out`.

    A slot has the first place of an id. There `chains` has the first place that is left, the last
    place, and everywhere the next one of the same id.
    """
    mask = len(slots) - 1
    for place in range(len(before)):
        slot = before[place, 0] & mask
        first = slots[slot]
        while first >= 0 and (
            before[first, 0] != before[place, 0] or before[first, 1] != before[place, 1]
        ):
            slot = (slot + 1) & mask
            first = slots[slot]
        if first < 0:
            slots[slot] = chains[place, 0] = chains[place, 1] = place
        else:
            chains[chains[first, 1], 2] = place
            chains[first, 1] = place
    for place in range(len(after)):
        slot = after[place, 0] & mask
        first = slots[slot]
        while first >= 0 and (
            before[first, 0] != after[place, 0] or before[first, 1] != after[place, 1]
        ):
            slot = (slot + 1) & mask
            first = slots[slot]
        out[place] = -1
        if first >= 0 and chains[first, 0] >= 0:
            out[place] = chains[first, 0]
            chains[first, 0] = chains[chains[first, 0], 2]
