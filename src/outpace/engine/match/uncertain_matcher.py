"""The matcher for events whose order is not certain: sequences, each match with its confidence.

A match is final when no event can come any more that may have happened before its last one ended:
when time is past that by more than the bound; where something must not happen until WITHIN ends,
by so much more. Rows are kept as far back as a later match may reach. What can be between two steps
is told by events next to them alone, so a match costs what lies within the bound of its events.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from outpace.compiler.kernel import fitting, read_only
from outpace.engine.arrays import NO_TIME, Integers, pooled
from outpace.engine.kernels import uncertain_sequences as kernel
from outpace.engine.kernels.grouping import find_pairs
from outpace.engine.kernels.uncertain_sequences import (
    DONE,
    FOUND,
    FULL,
    START,
    WRITTEN,
    find_uncertain,
)
from outpace.engine.kernels.uncertain_worlds import LINES, MOST_TAKEN
from outpace.engine.match.contract import Block, BlockMatches, Outcome, Resume, Task, Turns
from outpace.engine.match.graph import row_shift
from outpace.engine.match.uncertain_layout import SearchedWay
from outpace.errors import MatchError
from outpace.pattern.bound import BoundUncertainty

#: Rows of matches that there is room for at first, and at most.
_ROOM: Final = 1 << 10
_ROOM_MAX: Final = 1 << 27

#: Tables of so many rows are kept for the next search, some megabytes.
_SPARE_MAX: Final = 1 << 19


@dataclass(frozen=True)
class UncertainMatcher:
    """A matcher for one query with `Query.uncertain`.

    Parameters
    ----------
    task
        The query.
    """

    task: Task
    #: Tables that a search has done with, for the next one: memory that is known costs less.
    _spare: list[tuple[Integers, Integers]] = field(default_factory=list, repr=False, compare=False)

    def __call__(self, block: Block, resume: Resume) -> Outcome:
        """Match a block from where an earlier call stopped."""
        with fitting():
            return self._match(block, resume)

    @cached_property
    def _uncertainty(self) -> BoundUncertainty:
        uncertainty = self.task.bound.uncertainty
        assert uncertainty is not None
        return uncertainty

    @cached_property
    def _ways(self) -> list[SearchedWay]:
        return [SearchedWay(self.task, steps) for steps in self._uncertainty.ways]

    def _match(self, block: Block, resume: Resume) -> Outcome:
        shift = row_shift(block)
        low, high = block.segments[:-1], block.segments[1:]
        begin = np.clip(resume.completed_to + shift, low, high)
        end = np.maximum(begin, self._completed(block))
        spans = np.zeros((len(low), 2), np.int64) if block.spans is None else block.spans
        bounds = np.concatenate([np.stack([low, high, begin, end], axis=1), spans], axis=1)
        tables, written, found = self._found(block, bounds)
        rows, ends = tables[0][:written], tables[1][:found]
        # The search goes through rows in their order, step by step, and way after way.
        ordered = kernel.OrderedMatches(
            segment=pooled(len(ends), np.int64),
            start=pooled(len(ends), np.int64),
            number=pooled(len(ends), np.int64),
            offsets=pooled(len(ends) + 1, np.int64),
            taken=pooled(len(rows), np.int64),
            positions=pooled(len(rows), np.int64),
            times=pooled(len(ends), np.int64),
            sure=pooled(len(ends), np.bool_),
        )
        numbers, segments = resume.number.copy(), np.ascontiguousarray(block.segments)
        counts, order = pooled(block.size + 1, np.int64), pooled(len(ends), np.int64)
        times = read_only(np.ascontiguousarray(block.times))
        kernel.order_found(rows, ends, times, segments, numbers, counts, order, ordered)
        if len(tables[0]) <= _SPARE_MAX:
            self._spare[:] = [tables]
        keep = self._needed(block, end)
        present = low < high
        settled, awaited = self._settled(block, ordered.times)
        return Outcome(
            BlockMatches(
                segment=ordered.segment,
                start=ordered.start,
                number=ordered.number,
                offsets=ordered.offsets,
                rows=ordered.taken,
                positions=ordered.positions,
                settled=settled,
                confirmed=ordered.sure,
                awaited=awaited,
            ),
            Resume(
                next_start=np.where(present, keep - shift, resume.next_start),
                barrier=resume.barrier.copy(),
                number=numbers,
                completed_to=np.where(present, end - shift, resume.completed_to),
                consumed=list(resume.consumed),
            ),
            keep_from=keep,
        )

    def _settled(self, block: Block, latest: Integers) -> tuple[Integers, Integers | None]:
        """Return what made matches final that end at some times: rows, of any partition, and time.

        The times become those that had to pass.
        """
        if block.spans is not None:
            return np.full(len(latest), block.next_arrival), None
        settled = pooled(len(latest), np.int64)
        latest += self._uncertainty.delay
        kernel.find_settled(latest, *block.clock(), block.next_arrival, settled)
        return settled, latest

    def _completed(self, block: Block) -> Integers:
        """Return for each segment the row up to which matches may end that are final."""
        if block.ended:
            return block.segments[1:]
        if block.watermark == NO_TIME:
            return block.segments[:-1]
        return self._first_at(block, np.full(1, block.watermark - self._uncertainty.delay))

    def _needed(self, block: Block, end: Integers) -> Integers:
        """Return for each segment the first row that a later match may need."""
        low, high = block.segments[:-1], block.segments[1:]
        if block.ended:
            return high.copy()
        if block.watermark == NO_TIME or not block.size:
            return low.copy()
        waiting = end < high
        time = np.where(waiting, block.times[np.minimum(end, block.size - 1)], block.watermark)
        return self._first_at(block, time - self._uncertainty.reach)

    def _first_at(self, block: Block, times: Integers) -> Integers:
        """Return for each segment the first row at or behind a time, one for each or for all."""
        low, high = block.segments[:-1], block.segments[1:]
        if len(low) == 1:
            return np.searchsorted(block.times, times)
        number, found = np.arange(len(low)), np.empty(len(low), np.int64)
        times = np.broadcast_to(times, len(low)).copy()
        find_pairs(np.repeat(number, high - low), block.times, number, times, found)
        return found

    def _found(self, block: Block, bounds: Integers) -> tuple[tuple[Integers, Integers], int, int]:
        """Return tables of the rows of all matches, and where each ends; and how full they are."""
        turns, known = Turns(self.task, block.size), self._uncertainty
        rows, ends = self._tables(max(_ROOM, block.size))
        place = np.zeros(4, np.int64)
        for way in self._ways:
            steps = way.pattern()
            events = way.events(block, steps)
            most = int(np.minimum(steps.steps[MOST_TAKEN], block.size).sum())
            level = np.zeros((LINES, min(most, block.size) + 2), np.int64)
            for own in bounds:
                if own[2] >= own[3]:
                    continue
                reach = events.times[own[2]] - known.reach
                place[START] = own[0] + np.searchsorted(events.times[own[0] : own[1]], reach)
                while (
                    status := find_uncertain(
                        events, steps, own, place, level, rows, ends, self.task.pace.work
                    )
                ) != DONE:
                    if status == FULL:
                        rows, ends = _larger(rows, place[WRITTEN]), _larger(ends, place[FOUND])
                    else:
                        turns.end(self.task.pace.work, int(place[START]))
        return (rows, ends), int(place[WRITTEN]), int(place[FOUND])

    def _tables(self, room: int) -> tuple[Integers, Integers]:
        """Return tables with any content for the rows of so many matches, and where each ends."""
        size = room * len(self._uncertainty.ways[0])
        with suppress(IndexError):  # Who searches at the same time finds none left.
            rows, ends = self._spare.pop()
            if len(rows) >= size:
                return rows, ends
        return (
            pooled(2 * size, np.int64).reshape(-1, 2),
            pooled(3 * room, np.int64).reshape(-1, 3),
        )


def _larger(table: Integers, used: int) -> Integers:
    """Return a table with room for more."""
    if 2 * table.size > _ROOM_MAX:
        raise MatchError(
            f"there are more than {used} matches",
            hint="shorten WITHIN, or use -> in place of ->>",
        )
    return np.concatenate([table, np.empty_like(table)])
