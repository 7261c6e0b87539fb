"""Which matches stay when matches come in order of their starts and rule out later ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outpace.engine.kernels.compiled import compiled_when_worth
from outpace.engine.match.contract import Booleans, Integers


@compiled_when_worth
def keep_starts(
    times: Integers,
    ranks: Integers,
    target_times: Integers,
    target_ranks: Integers,
    at_start: Booleans,
    past_last: bool,
    strict: bool,
    barrier: Integers,
) -> tuple[npt.NDArray[np.bool_], int]:
    """Mark the matches that stay; `barrier` (time, rank) is the first start that may, updated.

    Returns the marks, and the first match whose skip target is its own start or missing where that
    is an error, or -1.
    """
    kept = np.zeros(len(times), np.bool_)
    for match in range(len(times)):
        time, rank = times[match], ranks[match]
        if time < barrier[0] or (time == barrier[0] and rank < barrier[1]):
            continue
        kept[match] = True
        if not past_last and at_start[match]:
            if strict:
                return kept, match
            barrier[0], barrier[1] = time, rank + 1
            continue
        barrier[0], barrier[1] = target_times[match], target_ranks[match]
        if past_last:
            barrier[1] += 1
    return kept, -1


@compiled_when_worth
def reachable_starts(starts: Integers, targets: Integers, last_entry: int) -> npt.NDArray[np.bool_]:
    """Mark the matches that may stay when it is not known where the search enters.

    The matches of all starts come in order of their starts, each with its target: the first start
    that it leaves, later than its own. The search enters at any row up to `last_entry`, takes the
    first start from there, goes on at its target, and so on. What no such chain meets is ruled out
    whatever came before.
    """
    reached = np.zeros(len(starts), np.bool_)
    entering = 0
    while entering < len(starts) and (entering == 0 or starts[entering - 1] < last_entry):
        reached[entering] = True
        entering += 1
    for match in range(len(starts)):
        if reached[match]:
            following = match + np.searchsorted(starts[match:], targets[match])
            if following < len(starts):
                reached[following] = True
    return reached


@compiled_when_worth
def exit_positions(starts: Integers, targets: Integers, exits: Integers) -> None:
    """Find for each row of a stretch where a search that enters there leaves the stretch.

    `exits` has one place per row; positions behind the stretch are counted from its end, so 0 means
    that the first row behind it may start a match.
    """
    size = len(exits)
    match = len(starts) - 1
    leaving = 0
    for row in range(size - 1, -1, -1):
        if match >= 0 and starts[match] == row:
            target = targets[match]
            leaving = target - size if target >= size else exits[target]
            match -= 1
        exits[row] = leaving
