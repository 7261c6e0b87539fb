"""The matcher for events whose order is not certain: sequences, each match with its confidence.

A match is final when no event can come any more that may have happened before its last one ended:
when time is past that by more than the bound. Rows are kept as far back as a later match may reach.
What can be between two steps is told by events next to them alone, so a match costs what lies
within the bound of its events.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from outpace.compiler.kernel import fitting, read_only
from outpace.engine.arrays import NO_TIME, Booleans, Integers
from outpace.engine.kernels.find import find_pairs
from outpace.engine.kernels.uncertain import (
    DONE,
    FOUND,
    FULL,
    LINES,
    START,
    find_uncertain,
)
from outpace.engine.match.contract import Block, BlockMatches, Outcome, Resume, Task, Turns
from outpace.engine.match.count_candidates import truth_table
from outpace.engine.match.graph import clock_of, row_shift
from outpace.engine.rows.partition import column_codes
from outpace.errors import MatchError
from outpace.pattern.ast import Link
from outpace.pattern.bound import BoundUncertainty

#: Rows of matches that there is room for at first, and at most.
_ROOM: Final = 1 << 10
_ROOM_MAX: Final = 1 << 27


@dataclass(frozen=True)
class UncertainMatcher:
    """A matcher for one query with `Query.uncertain`.

    Parameters
    ----------
    task
        The query.
    """

    task: Task

    def __call__(self, block: Block, resume: Resume) -> Outcome:
        """Match a block from where an earlier call stopped."""
        with fitting():
            return self._match(block, resume)

    @cached_property
    def _uncertainty(self) -> BoundUncertainty:
        uncertainty = self.task.bound.uncertainty
        assert uncertainty is not None
        return uncertainty

    def _match(self, block: Block, resume: Resume) -> Outcome:
        shift, known = row_shift(block), self._uncertainty
        low, high = block.segments[:-1], block.segments[1:]
        begin = np.clip(resume.completed_to + shift, low, high)
        end = np.maximum(begin, self._completed(block))
        rows, sizes = self._found(block, np.stack([low, high, begin, end], axis=1))
        steps = rows.shape[1] - 1
        segment = np.repeat(np.arange(len(low)), sizes)
        last = rows[:, :steps].max(axis=1, initial=0)
        order = np.lexsort((*rows[:, steps - 1 :: -1].T, last, segment))
        rows, last = rows[order], last[order]
        before = np.cumsum(sizes) - sizes
        keep = self._needed(block, end)
        present = low < high
        return Outcome(
            BlockMatches(
                segment=segment,
                start=rows[:, 0].copy(),
                number=np.arange(len(rows)) - before[segment] + resume.number[segment] + 1,
                offsets=steps * np.arange(len(rows) + 1),
                rows=rows[:, :steps].reshape(-1),
                positions=np.tile(np.array(self._positions, np.int64), len(rows)),
                settled=_settled(block, block.times[last] + known.bound + 1),
                confirmed=rows[:, steps] == 1,
            ),
            Resume(
                next_start=np.where(present, keep - shift, resume.next_start),
                barrier=resume.barrier.copy(),
                number=resume.number + sizes,
                completed_to=np.where(present, end - shift, resume.completed_to),
                consumed=list(resume.consumed),
            ),
            keep_from=keep,
        )

    def _completed(self, block: Block) -> Integers:
        """Return for each segment the row up to which matches may end that are final."""
        if block.ended:
            return block.segments[1:]
        if block.watermark == NO_TIME:
            return block.segments[:-1]
        passed = block.times + self._uncertainty.bound < block.watermark
        completed: Integers = block.segments[:-1] + np.add.reduceat(
            np.append(passed, False), block.segments[:-1]
        ) * (block.segments[:-1] < block.segments[1:])
        return completed

    def _needed(self, block: Block, end: Integers) -> Integers:
        """Return for each segment the first row that a later match may need."""
        low, high = block.segments[:-1], block.segments[1:]
        if block.ended:
            return high.copy()
        if block.watermark == NO_TIME or not block.size:
            return low.copy()
        waiting = end < high
        time = np.where(waiting, block.times[np.minimum(end, block.size - 1)], block.watermark)
        number = np.arange(len(low))
        needed = np.empty(len(low), np.int64)
        since = time - self._uncertainty.reach
        find_pairs(np.repeat(number, high - low), block.times, number, since, needed)
        return needed

    @cached_property
    def _positions(self) -> list[int]:
        """The positions of the program, one behind the other."""
        program = self.task.program
        (first,) = program.initial
        positions = [first.target]
        while (target := program.follow[positions[-1]][0].target) >= 0:
            positions.append(target)
        return positions

    def _gaps(self, truth: Booleans) -> list[Booleans]:
        """Return for each step but the last the rows that must not be between it and the next."""
        program = self.task.program
        gaps: list[Booleans] = []
        for before in self._positions[:-1]:
            (move,) = program.follow[before]
            variables = [negation.variable for negation in move.negations]
            if move.link is Link.NEXT:
                variables.append(program.positions[move.target].variable)
            gaps.append(np.asarray(truth[:, variables].any(axis=1), np.bool_))
        return gaps

    def _found(self, block: Block, bounds: Integers) -> tuple[Integers, Integers]:
        """Return the rows of the steps of all matches, with their confidence, and their numbers."""
        truth = truth_table(self.task, block)
        variables = [self.task.program.positions[place].variable for place in self._positions]
        fits = np.ascontiguousarray(truth[:, variables])
        steps, size = fits.shape[1], block.size
        forbidden = np.zeros(size, np.int64)
        next_forbidden = np.full((max(1, steps - 1), size + 1), size, np.int64)
        for gap, rows in enumerate(self._gaps(truth)):
            forbidden |= rows.astype(np.int64) << gap
            next_forbidden[gap] = _next(rows)
        next_any = next_forbidden[0] if steps <= 2 else _next(forbidden != 0)
        known, turns = self._uncertainty, Turns(self.task, size)
        table = np.empty((max(_ROOM, size // 4), steps + 1), np.int64)
        place, level = np.zeros(3, np.int64), np.zeros((LINES, steps), np.int64)
        sizes = np.zeros(len(bounds), np.int64)
        sources = _sources(block, known.source)
        slots = np.zeros(int(sources.max(initial=-1)) + 1, np.int64)
        times = read_only(np.ascontiguousarray(block.times))
        for number, own in enumerate(bounds):
            if own[2] >= own[3]:
                continue
            before = int(place[FOUND])
            reach = times[own[2]] - known.reach
            place[START] = own[0] + np.searchsorted(times[own[0] : own[1]], reach)
            while (
                status := find_uncertain(
                    times, fits, forbidden, next_forbidden, next_any, sources, slots, own,
                    known.bound, known.within, place, level, table, self.task.pace.work,
                )
            ) != DONE:  # fmt: skip
                if status == FULL:
                    table = _larger(table)
                else:
                    turns.end(self.task.pace.work, int(place[START]))
            sizes[number] = place[FOUND] - before
        return table[: place[FOUND]], sizes


def _next(rows: Booleans) -> Integers:
    """Return for each row, and behind the last, the first of some rows from there on."""
    places = np.flatnonzero(rows)
    counts = np.diff(places, prepend=-1)
    return np.repeat(np.append(places, len(rows)), np.append(counts, len(rows) + 1 - counts.sum()))


def _larger(table: Integers) -> Integers:
    if 2 * table.size > _ROOM_MAX:
        raise MatchError(
            f"there are more than {len(table)} matches",
            hint="shorten WITHIN, or use -> in place of ->>",
        )
    return np.concatenate([table, np.empty_like(table)])


def _sources(block: Block, column: str | None) -> Integers:
    """Return the source of each row as a number; without sources each row has its own."""
    if column is None:
        return np.arange(block.size)
    return column_codes(block.columns[column])[0].astype(np.int64)


def _settled(block: Block, deadline: Integers) -> Integers:
    """Return the number of the row, of any partition, that showed that a deadline has passed."""
    at_end = int(block.arrivals.max()) + 1 if block.size else 0
    clock, numbers = clock_of(block)
    tick = np.searchsorted(clock, deadline)
    return np.append(numbers, at_end)[tick].astype(np.int64)
