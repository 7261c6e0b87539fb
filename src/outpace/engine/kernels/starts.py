"""Which matches stay when matches come in order of their starts and rule out later ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outpace.compiler.kernel import compiled_when_worth
from outpace.engine.arrays import Booleans, Integers


@compiled_when_worth
def keep_starts(
    times: Integers,
    ranks: Integers,
    barrier_times: Integers,
    barrier_ranks: Integers,
    fresh: Booleans,
) -> npt.NDArray[np.bool_]:
    """Mark the matches that stay, in order of their starts.

    A place is a time and a rank among the rows with that time. Each match comes with the last start
    that it rules out; where `fresh`, nothing before counts.
    """
    kept = np.zeros(len(times), np.bool_)
    barrier_time = barrier_rank = 0
    for match in range(len(times)):
        time, rank = times[match], ranks[match]
        ruled_out = time < barrier_time or (time == barrier_time and rank <= barrier_rank)
        if ruled_out and not fresh[match]:
            continue
        kept[match] = True
        barrier_time, barrier_rank = barrier_times[match], barrier_ranks[match]
    return kept


@compiled_when_worth
def reachable_starts(
    starts: Integers, targets: Integers, entered: Booleans
) -> npt.NDArray[np.bool_]:
    """Mark the matches that may stay when it is not known where the search enters.

    The matches of all starts come in order of their starts, each with its target: the first start
    that it leaves, later than its own. The search enters before any match that is `entered`, takes
    the first start from there, goes on at its target, and so on. What no such chain meets is ruled
    out whatever came before.
    """
    reached = entered.copy()
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
