"""Decimals as integers: exact, or not at all."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from outpace.compiler.kernel import compiled_when_worth

#: Below this, doubles hold every integer.
_EXACT: Final = 2.0**53


@compiled_when_worth
def scale_exactly(
    values: npt.NDArray[np.float64], scale: float, out: npt.NDArray[np.int64]
) -> bool:
    """Fill `out` with the values times `scale`; say whether dividing gives back every bit.

    It stops at the first value that does not come back: NaN, an infinity, negative zero, or one
    with more places than `scale` has.
    """
    for row in range(len(values)):
        value = values[row]
        scaled = np.rint(value * scale)
        if not abs(scaled) < _EXACT or scaled / scale != value:
            return False
        if value == 0.0 and 1.0 / value < 0.0:
            return False
        out[row] = np.int64(scaled)
    return True
