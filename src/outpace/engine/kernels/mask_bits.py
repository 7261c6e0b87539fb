"""Putting predicates together: one bit per variable in one small number per row."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from outpace.engine.kernels.compiled import compiled

Integers = npt.NDArray[Any]


@compiled
def add_by_table(codes: Integers, table: Integers, masks: Integers) -> None:
    """Add to each row's mask what the table holds for the row's code."""
    for row in range(len(codes)):
        masks[row] |= table[codes[row]]


@compiled
def add_where(holds: Integers, bit: int, masks: Integers) -> None:
    """Add a bit to the masks of the rows where a predicate holds."""
    kind = masks.dtype.type
    for row in range(len(holds)):
        masks[row] |= kind(holds[row]) * kind(bit)
