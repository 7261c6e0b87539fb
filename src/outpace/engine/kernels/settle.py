"""When matches became final: the latest arrival among the rows that had to be looked at."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from outpace.engine.kernels.compiled import compiled_when_worth
from outpace.engine.kernels.search import REACHED_END

Integers = npt.NDArray[Any]


@compiled_when_worth
def latest_arrivals(
    arrivals: Integers,
    segments: Integers,
    segment: Integers,
    reach: Integers,
    following: int,
    settled: Integers,
) -> None:
    """Fill `settled` from each match's reach; `following` stands for the end of the input.

    Within a segment the reach never falls, so one pass over its rows serves all its matches.
    """
    row = 0
    latest = 0
    for match in range(len(reach)):
        if match == 0 or segment[match] != segment[match - 1]:
            row = segments[segment[match]]
            latest = arrivals[row]
        if reach[match] == REACHED_END:
            settled[match] = following
            continue
        while row < reach[match]:
            if arrivals[row] > latest:
                latest = arrivals[row]
            row += 1
        settled[match] = latest
