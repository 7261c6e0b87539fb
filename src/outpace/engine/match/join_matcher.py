"""The matcher for joins: pairs of rows of two sides close in time, and rows without a partner.

A pair is final with its later row, which is the one that completes it. A left row without a partner
is final when no row can come any more that would be one. Of the rows whose time has not passed by
as much, all are kept, and of left ones whether they are in a pair; nothing else is. Where times are
uncertain, pairs are those that may be some: sure is one whose rows are close enough in any case.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from outpace.compiler.kernel import fitting
from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.kernels.close_pairs import LEFT, RIGHT, find_partners, write_pairs
from outpace.engine.kernels.grouping import find_pairs
from outpace.engine.match.contract import Block, BlockMatches, Outcome, Resume, Task
from outpace.engine.match.count_candidates import truth_table
from outpace.engine.match.graph import row_shift
from outpace.engine.match.task import take_matches
from outpace.errors import MatchError
from outpace.pattern.query import JoinKind

#: Pairs that there is room for.
_PAIRS_MAX: Final = 1 << 26


@dataclass(frozen=True)
class JoinMatcher:
    """A matcher for one join.

    Parameters
    ----------
    task
        The query: its variables are the two sides.
    """

    task: Task

    def __call__(self, block: Block, resume: Resume) -> Outcome:
        """Join a block from where an earlier call stopped."""
        with fitting("shorten within"):
            return self._match(block, resume)

    @cached_property
    def _width(self) -> int:
        """How far apart two rows must be to be no pair."""
        within = self.task.bound.within
        assert within is not None
        return within

    @cached_property
    def _lonely(self) -> bool:
        return self.task.bound.query.join is JoinKind.LEFT

    @cached_property
    def _positions(self) -> Integers:
        """The position of the program for each side."""
        sides = [self.task.program.names[one.variable] for one in self.task.program.positions]
        return np.array([-1, sides.index("L"), sides.index("R")])

    def _match(self, block: Block, resume: Resume) -> Outcome:
        shift, low, high = row_shift(block), block.segments[:-1], block.segments[1:]
        begin = np.clip(resume.completed_to + shift, low, high)
        side, joined = self._sides(block), np.zeros(block.size, np.int64)
        for segment in resume.consuming:
            joined[resume.consumed[segment] + shift[segment]] = 1
        pairs = self._pairs(block, begin, side, joined)
        passed = np.zeros(block.size, np.bool_)
        if block.ended:
            passed[:] = True
        elif block.watermark != NO_TIME:
            passed = block.times + self._width <= block.watermark
        alone = np.flatnonzero(passed & (side == LEFT) & (joined == 0)) if self._lonely else low[:0]
        found = self._found(block, resume, pairs, alone, side)
        keep = high - np.diff(np.append(0, np.cumsum(~passed))[block.segments])
        present = low < high
        counts = np.bincount(found.segment, minlength=len(low))
        return Outcome(
            found,
            Resume(
                next_start=np.where(present, keep - shift, resume.next_start),
                barrier=resume.barrier.copy(),
                number=resume.number + counts,
                completed_to=np.where(present, high - shift, resume.completed_to),
                consumed=self._consumed(block, joined, keep),
            ),
            keep_from=keep,
        )

    def _sides(self, block: Block) -> Integers:
        """Return the side of each row."""
        truth, names = truth_table(self.task, block), self.task.program.names
        left, right = truth[:, names.index("L")], truth[:, names.index("R")]
        return left.astype(np.int64) * LEFT + right.astype(np.int64) * RIGHT

    def _pairs(self, block: Block, begin: Integers, side: Integers, joined: Integers) -> Integers:
        """Return the pairs that new rows complete, by their later rows, the earlier one first."""
        lefts, rights, first = (np.zeros(block.size, np.int64) for _ in range(3))
        counts = np.empty(block.size, np.int64)
        find_partners(
            block.times, side, block.segments, begin, self._width, lefts, rights, first, counts
        )
        size = int(counts.sum())
        if size > _PAIRS_MAX:
            raise MatchError(
                f"{block.size} rows have {size} pairs at once",
                detail=f"there is room for {_PAIRS_MAX}",
                hint="shorten within, or join on more columns",
            )
        pairs = np.empty((size, 2), np.int64)
        write_pairs(side, lefts, rights, first, counts, pairs, joined)
        return pairs

    def _found(
        self, block: Block, resume: Resume, pairs: Integers, alone: Integers, side: Integers
    ) -> BlockMatches:
        """Return pairs and rows without a partner, in each segment as they became final."""
        start, last = (np.concatenate([pairs[:, place], alone]) for place in (0, 1))
        sizes = np.repeat([2, 1], [len(pairs), len(alone)])
        rows = np.concatenate([pairs.reshape(-1), alone])
        awaited = np.full(len(start), NO_TIME)
        awaited[len(pairs) :] = block.times[alone] + self._width - 1
        confirmed = None
        if (known := self.task.bound.uncertainty) is not None:
            confirmed = block.times[last] - block.times[start] < self._width - 2 * known.bound
        settled = block.arrivals[last].astype(np.int64)
        settled[len(pairs) :] = block.passed_at(awaited[len(pairs) :])
        owner = np.repeat(np.arange(len(resume.number)), np.diff(block.segments))
        found = BlockMatches(
            segment=owner[start],
            start=start,
            number=np.zeros(len(start), np.int64),
            offsets=np.append(0, np.cumsum(sizes)),
            rows=rows,
            positions=self._positions[side[rows]],
            settled=settled,
            awaited=awaited,
            confirmed=confirmed,
        )
        if len(alone):
            # Two lists in order: a row alone comes before the next one that is too far behind.
            behind = np.empty(len(alone), np.int64)
            find_pairs(owner, block.times, owner[alone], awaited[len(pairs) :] + 1, behind)
            places = np.concatenate([2 * pairs[:, 1] + 1, 2 * behind])
            found = take_matches(found, np.argsort(places, kind="stable"))
        sizes = np.bincount(found.segment, minlength=len(resume.number))
        first = np.repeat(np.cumsum(sizes) - sizes - resume.number, sizes)
        return replace(found, number=np.arange(1, len(start) + 1) - first)

    def _consumed(self, block: Block, joined: Integers, keep: Integers) -> list[Integers]:
        """Return for each segment the rows kept that are in a pair, where that matters later."""
        nothing = np.zeros(0, np.int64)
        rows = np.flatnonzero(joined) if self._lonely else nothing
        segment = np.searchsorted(block.segments, rows, side="right") - 1
        kept = rows >= keep[segment]
        rows, segment = rows[kept], segment[kept]
        consumed = [nothing] * len(keep)
        ordinals = block.ordinals[rows].astype(np.int64, copy=False)
        begin = np.flatnonzero(np.diff(segment, prepend=-1))
        for place, (low, high) in zip(
            segment[begin].tolist(), pairwise([*begin.tolist(), len(rows)]), strict=True
        ):
            consumed[place] = ordinals[low:high]
        return consumed
