"""What tells a match from all others, written as numbers."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from outpace.engine.kernels.compiled import compiled_when_worth

Integers = npt.NDArray[Any]


@compiled_when_worth
def write_identities(
    arrivals: Integers,
    start: Integers,
    offsets: Integers,
    rows: Integers,
    positions: Integers,
    variables: Integers,
    labels: int,
    values: Integers,
) -> None:
    """Write for each match the arrival of its start, and of each take with the variable.

    `variables` has the variable of each position, out of so many `labels`.
    """
    place = 0
    for match in range(len(start)):
        values[place] = arrivals[start[match]]
        place += 1
        for take in range(offsets[match], offsets[match + 1]):
            values[place] = arrivals[rows[take]] * labels + variables[positions[take]]
            place += 1
