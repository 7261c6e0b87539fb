"""How long events waited until their turn came, by when they and those behind them arrived.

Sums are fractions, so that times at both ends of their range do no harm.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from outpace.compiler.kernel import compiled_when_worth
from outpace.engine.arrays import NO_TIME, Floats, Integers

#: In place of the number of the last event where there was none.
NO_NUMBER: Final = int(NO_TIME)


@compiled_when_worth
def wait_for_time(
    times: Integers,
    arrivals: Integers,
    met: Integers,
    moments: Integers,
    order: Integers,
    final: int,
    now: int,
    found: Floats,
) -> None:
    """Add up how long events waited for a watermark that each event of a piece may move.

    Parameters
    ----------
    times, arrivals
        Of the events that had their turn, in the order of time.
    met
        The watermark that each event of the piece met, as they arrived.
    moments, order
        When the events of the piece arrived, as they lie in it, and where each is that arrived.
    final
        The watermark behind all of them.
    now
        When those go on that no event of the piece lets go.
    found
        The sum and the longest, to which is added.
    """
    step, waited, longest = 0, 0.0, found[1]
    for row in range(len(times)):
        time = times[row]
        while step < len(met):
            reached = met[step + 1] if step + 1 < len(met) else final
            if reached > time:
                break
            step += 1
        turn = moments[order[step]] if step < len(met) else now
        wait = max(np.float64(turn) - np.float64(arrivals[row]), 0.0)
        waited += wait
        longest = max(longest, wait)
    found[0] += waited
    found[1] = longest


@compiled_when_worth
def wait_for_numbers(
    numbers: Integers,
    arrivals: Integers,
    patience: int,
    now: int,
    last: Integers,
    found: Floats,
) -> None:
    """Add up how long events waited for those that have lower numbers.

    An event goes on with the one before it, unless it came later. Where numbers are missing before
    it, nobody waited for them any more: it was held for so long, or until now.

    Parameters
    ----------
    numbers, arrivals
        Of the events that had their turn, in turn.
    patience
        How long a gap is waited for.
    now
        How far the clock has come.
    last
        The number of the last event before these, and when it had its turn; they are changed.
    found
        The sum and the longest, to which is added.
    """
    waited, longest = 0.0, found[1]
    number, turn = last[0], last[1]
    for row in range(len(numbers)):
        came = arrivals[row]
        goes = came
        if number != NO_NUMBER and numbers[row] - number > 1:
            goes = came + min(patience, max(now - came, 0))
        turn = max(turn, goes)
        number = numbers[row]
        wait = np.float64(turn) - np.float64(came)
        waited += wait
        longest = max(longest, wait)
    last[0], last[1] = number, turn
    found[0] += waited
    found[1] = longest
