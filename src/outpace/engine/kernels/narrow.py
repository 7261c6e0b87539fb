"""Columns as narrower ones: texts of which there are few as numbers, decimals as integers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outpace.compiler.kernel import compiled_when_worth
from outpace.engine.arrays import Integers

#: Places of the table that tells the number of a text, a power of two.
_PLACES: Final = 1024
#: Below this, doubles hold every integer.
_EXACT: Final = 2.0**53


@compiled_when_worth
def number_texts(
    bounds: npt.NDArray[Any],
    data: npt.NDArray[np.uint8],
    numbers: npt.NDArray[np.uint8],
    firsts: Integers,
) -> int:
    """Number texts in the order of their first rows, and return how many differ.

    Parameters
    ----------
    bounds, data
        Where each text begins, and the end of the last; and their bytes.
    numbers
        Gets the number of each text.
    firsts
        Gets the first row of each number. It is done at the first text that has no room there, and
        returns -1.
    """
    table = np.full(_PLACES, -1, np.int64)
    count = 0
    for row in range(len(numbers)):
        begin, end = bounds[row], bounds[row + 1]
        place = end - begin
        for at in range(begin, end):
            place = (place * 31 + data[at]) & (_PLACES - 1)
        number = table[place]
        while number >= 0:
            first = bounds[firsts[number]]
            same = bounds[firsts[number] + 1] - first == end - begin
            at = begin
            while same and at < end:
                same = data[at] == data[first + at - begin]
                at += 1
            if same:
                break
            place = (place + 1) & (_PLACES - 1)
            number = table[place]
        if number < 0:
            if count == len(firsts):
                return -1
            number = count
            table[place] = count
            firsts[count] = row
            count += 1
        numbers[row] = number
    return count


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
