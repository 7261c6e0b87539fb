"""The first starts of windows, whose searches see other rows than those of windows before them.

PREV finds nothing before a window's first row, and `^` holds there. So the first starts of a window
are searched in its own rows, a few at first and more where that does not decide; behind them its
search is that of all windows that get there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from outpace.engine.arrays import Integers
from outpace.engine.event import Events
from outpace.engine.kernels.chains import Outcomes, enter_chains
from outpace.engine.match.contract import Block, BlockMatches, Task
from outpace.engine.match.kernel import KernelMatcher
from outpace.engine.match.reach import reach_of
from outpace.engine.window_match.spread import WindowRuns
from outpace.engine.window_match.stretches import Stretches, StretchMatcher, chunks

#: Rows of a window that its first starts are searched in at first, and how much more come then.
_ROWS: Final = 64
_MORE: Final = 4


@dataclass
class Entering:
    """Windows whose first starts are not decided yet.

    Parameters
    ----------
    low, high
        Their rows, among those held, from what the search needs on.
    base
        The ordinal of the first of these rows.
    first
        The ordinal of the first event.
    cursor
        The ordinal that the search has come to.
    reach
        The row behind the last that had to be looked at.
    """

    low: Integers
    high: Integers
    base: Integers
    first: Integers
    cursor: Integers
    reach: Integers

    @property
    def row(self) -> Integers:
        """The row that the search has come to."""
        return self.low + self.cursor - self.base


@dataclass(frozen=True)
class EntranceMatches:
    """Matches of windows, each for itself."""

    block: Block
    found: BlockMatches
    runs: WindowRuns


def entrance_starts(task: Task) -> int:
    """Return how many starts of a window are searched in its own rows."""
    program = task.program
    anchored = any(move.at_start for moves in (program.initial, *program.follow) for move in moves)
    return max(reach_of(task).back, int(anchored))


class Entrance:
    """Searches the first starts of windows."""

    def __init__(self, task: Task, kernel: KernelMatcher, rows_at_once: int) -> None:
        self.starts = entrance_starts(task)
        self._kernel = kernel
        self._rows_at_once = rows_at_once
        self._stretches = StretchMatcher(task, kernel)
        reach = reach_of(task)
        self._back, self._ahead = reach.back, reach.ahead

    def search(self, held: Events, entering: Entering) -> list[EntranceMatches] | None:
        """Move the cursors of windows on, as far as rows allow; None where arithmetic gives up."""
        found = []
        length = _ROWS
        waiting = np.arange(len(entering.first))
        while len(waiting):
            low = np.maximum(entering.low[waiting], entering.row[waiting] - self._back)
            high = np.minimum(entering.high[waiting], low + length)
            for begin, end in chunks(high - low, self._rows_at_once):
                at = waiting[begin:end]
                part = self._search(held, entering, at, low[begin:end], high[begin:end])
                if part is None:
                    return None
                found.append(part)
            undecided = entering.cursor[waiting] < entering.first[waiting] + self.starts
            waiting = waiting[undecided & (high < entering.high[waiting])]
            length *= _MORE
        return found

    def _search(
        self, held: Events, entering: Entering, at: Integers, low: Integers, high: Integers
    ) -> EntranceMatches | None:
        first = entering.first[at]
        stretches = Stretches(low, high, first, np.zeros(len(at), np.int64))
        block = self._stretches.block(held, stretches, np.arange(len(at)), ended=False)
        begin = block.segments[:-1]
        # What added to an ordinal gives the row in the block.
        shift = begin - low + entering.low[at] - entering.base[at]
        row = shift + entering.cursor[at]
        wanted = np.zeros(block.size + 1, np.uint8)
        wanted[row] = 1
        swept = self._kernel.sweep(block, wanted)
        if swept is None:
            return None
        outcomes = Outcomes(
            begin, block.segments[1:], swept.limit, swept.found.segment, swept.found.start,
            swept.found.number, swept.found.settled, swept.looked,
        )  # fmt: skip
        reach = np.maximum(entering.reach[at] - low + begin, 0)
        match, segment, looked = enter_chains(outcomes, row, shift + first + self.starts, reach)
        entering.cursor[at] = row - shift
        entering.reach[at] = np.where(reach > begin, reach - begin + low, 0)
        event = block.arrivals[looked - 1 + self._ahead]
        runs = WindowRuns(match, event, np.arange(1, 1 + len(match)), at[segment])
        return EntranceMatches(block, swept.found, runs)
