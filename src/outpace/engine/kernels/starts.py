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
