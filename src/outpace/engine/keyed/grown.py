"""Arrays by number that grow as larger numbers come."""

from __future__ import annotations

import numpy as np

from outpace.engine.match.contract import Integers


def grown(values: Integers, size: int, fill: int) -> Integers:
    """Return an array with room for at least so many values; doubling, so each costs the same.

    Examples
    --------
    >>> grown(np.array([7]), 2, -1).tolist(), grown(np.array([7]), 1, -1).tolist()
    ([7, -1, -1, -1], [7])
    """
    if size <= len(values):
        return values
    larger = np.full(2 * size, fill, np.int64)
    larger[: len(values)] = values
    return larger
