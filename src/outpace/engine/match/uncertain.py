"""The matcher for events whose order is not certain: sequences, each match with its confidence.

A match is final when no event can come any more that may have happened before its last one ended:
when time is past that by more than the bound; where something must not happen until WITHIN ends,
by so much more. Rows are kept as far back as a later match may reach. What can be between two steps
is told by events next to them alone, so a match costs what lies within the bound of its events.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from outpace.compiler.kernel import fitting, read_only
from outpace.engine.arrays import NO_TIME, Booleans, Integers
from outpace.engine.evaluate.columns import evaluate_columns, predicate_mask
from outpace.engine.evaluate.frame import PredicateFrame
from outpace.engine.kernels import uncertain as kernel
from outpace.engine.kernels.find import find_pairs
from outpace.engine.kernels.uncertain import DONE, FOUND, FULL, START, WRITTEN, find_uncertain
from outpace.engine.match.contract import Block, BlockMatches, Outcome, Resume, Task, Turns
from outpace.engine.match.graph import clock_of, row_shift
from outpace.engine.rows.partition import column_codes
from outpace.errors import MatchError
from outpace.pattern import types
from outpace.pattern.bind.uncertain import (
    HOLDS,
    OWN,
    TOGETHER,
    PairComparison,
    StepCondition,
    conditions_of,
)
from outpace.pattern.bound import (
    BoundExpression,
    BoundUncertainty,
    Gap,
    Present,
    Read,
    ReadPlace,
    walk,
)

#: Rows of matches that there is room for at first, and at most.
_ROOM: Final = 1 << 10
_ROOM_MAX: Final = 1 << 27

#: Pairs of events that a condition may read at most, and at once.
_PAIRS_MAX: Final = 1 << 26
_PAIRS_AT_ONCE: Final = 1 << 20

#: As many events as any step can take.
_ANY_NUMBER: Final = 1 << 62

_SIGNS: Final = {
    HOLDS: kernel.HOLDS, TOGETHER: kernel.TOGETHER, "=": kernel.EQUAL, "<>": kernel.DIFFERENT,
    "<": kernel.LESS, "<=": kernel.AT_MOST, ">": kernel.GREATER, ">=": kernel.AT_LEAST,
}  # fmt: skip


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

    @cached_property
    def _conditions(self) -> tuple[StepCondition, ...]:
        return conditions_of(self.task.bound.predicates, self._uncertainty.steps)

    def _match(self, block: Block, resume: Resume) -> Outcome:
        shift, known = row_shift(block), self._uncertainty
        low, high = block.segments[:-1], block.segments[1:]
        begin = np.clip(resume.completed_to + shift, low, high)
        end = np.maximum(begin, self._completed(block))
        rows, ends, sizes = self._found(block, np.stack([low, high, begin, end], axis=1))
        segment = np.repeat(np.arange(len(low)), sizes)
        # The search goes through rows in their order, step by step.
        order = np.argsort(ends[:, 1], kind="stable")
        lengths = np.diff(ends[:, 0], prepend=0)[order]
        offsets = np.append(0, np.cumsum(lengths))
        taken = _taken(rows, ends[order, 0] - lengths, lengths, offsets)
        before = np.cumsum(sizes) - sizes
        keep = self._needed(block, end)
        present = low < high
        return Outcome(
            BlockMatches(
                segment=segment,
                start=taken[offsets[:-1], 0],
                number=np.arange(len(ends)) - before[segment] + resume.number[segment] + 1,
                offsets=offsets,
                rows=taken[:, 0].copy(),
                positions=taken[:, 1].copy(),
                settled=_settled(block, block.times[ends[order, 1]] + known.delay + 1),
                confirmed=ends[order, 2] == 1,
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
        passed = block.times + self._uncertainty.delay < block.watermark
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
    def _gaps(self) -> list[Gap]:
        """All gaps: behind each step, then between the events of those that are repeated."""
        steps = self._uncertainty.steps
        return [step.behind for step in steps] + [s.between for s in steps if s.most != 1]

    def _steps(self) -> kernel.SearchedSteps:
        """Return the pattern as the kernel takes it."""
        known, comparisons = self._uncertainty, self._comparisons
        steps, gaps = known.steps, self._gaps
        taken_by = [position.variable for position in self.task.program.positions]
        table = np.zeros((7, len(steps)), np.int64)
        repeated = len(steps)
        for place, step in enumerate(steps):
            table[kernel.LEAST_TAKEN, place] = step.least
            table[kernel.MOST_TAKEN, place] = _ANY_NUMBER if step.most is None else step.most
            table[kernel.BETWEEN, place], table[kernel.BEHIND, place] = repeated, place
            table[kernel.POSITION, place] = taken_by.index(step.variable)
            table[kernel.POSITIONS, place] = taken_by.count(step.variable)
            repeated += step.most != 1
        read = np.array([len(condition.others) for condition in self._conditions])
        varying = sum(
            1 << number
            for number, gap in enumerate(gaps)
            if not gap.every and any(read[variable] for variable in gap.variables)
        )
        listed = [variable for gap in gaps for variable in gap.variables]
        return kernel.SearchedSteps(
            table,
            np.array([step.variable for step in steps], np.int64),
            np.cumsum([0, *(len(gap.variables) for gap in gaps)]),
            np.array(listed, np.int64),
            np.append(0, np.cumsum(read)),
            np.array(comparisons, np.int64).reshape(-1, 5),
            varying,
            len(steps) - 1 if steps[-1].behind.variables else -1,
            known.source is not None,
            known.bound,
            known.within,
        )

    @cached_property
    def _comparisons(self) -> list[list[int]]:
        """All comparisons, variable after variable; each has two columns of codes."""
        others = [one for condition in self._conditions for one in condition.others]
        return [
            [_SIGNS[one.sign], 2 * number, one.steps[0], 2 * number + 1, one.steps[-1]]
            for number, one in enumerate(others)
        ]

    def _events(self, block: Block) -> kernel.SearchedRows:
        """Return the rows as the kernel takes them."""
        size, columns = block.size, {name: block.columns[name] for name in self.task.bound.columns}
        fits = np.empty((size, len(self._conditions)), np.bool_)
        for variable, condition in enumerate(self._conditions):
            fits[:, variable] = predicate_mask(condition.own, columns, block.segments)
        forbidden = np.zeros(size, np.int64)
        for number, gap in enumerate(self._gaps):
            for variable in gap.variables:
                forbidden |= fits[:, variable].astype(np.int64) << number
            forbidden |= gap.every << number
        variables = np.array([step.variable for step in self._uncertainty.steps], np.int64)
        next_forbidden = np.empty((len(self._gaps), size + 1), np.int64)
        next_any = np.empty(size + 1, np.int64)
        next_fitting = np.empty((len(variables), size + 1), np.int64)
        kernel.find_next(forbidden, fits, variables, next_forbidden, next_any, next_fitting)
        sources = _sources(block, self._uncertainty.source)
        times = read_only(np.ascontiguousarray(block.times))
        early, late = np.empty((2, size), np.int64)
        kernel.find_reach(times, block.segments, self._uncertainty.bound, early, late)
        codes, pairs = self._codes(columns, fits, _Near(times, block.segments, early))
        return kernel.SearchedRows(
            times,
            self._widths(block),
            sources,
            np.zeros(int(sources.max(initial=-1)) + 1, np.int64),
            early,
            late,
            fits,
            next_fitting,
            forbidden,
            next_forbidden,
            next_any,
            codes,
            pairs,
        )

    def _widths(self, block: Block) -> Integers:
        """Return how far the true times of each row may lie apart."""
        bound, column = self._uncertainty.bound, self._uncertainty.errors
        if column is None:
            return np.full(block.size, bound)
        errors = block.columns[column].to_numpy(zero_copy_only=False)
        widths: Integers = np.minimum(2 * np.minimum(errors, bound), bound)
        return widths

    def _codes(
        self, columns: dict[str, pa.Array], fits: Booleans, near: _Near
    ) -> tuple[Integers, Integers]:
        """Return the values that comparisons look at, as numbers that compare like them.

        Behind them: the rows that others go together with, where a comparison asks for both.
        """
        codes, pairs, size = [], [np.zeros(0, np.int64)], 0
        for variable, condition in enumerate(self._conditions):
            for one in condition.others:
                if one.sign == TOGETHER:
                    ends, rows = self._together(one, variable, columns, fits, near)
                    codes += [*(ends + size)]
                    pairs.append(rows)
                    size += len(rows)
                else:
                    codes += self._sides(one, variable, columns, fits)
        return np.array(codes, np.int64).reshape(len(codes), len(fits)), np.concatenate(pairs)

    def _together(
        self,
        one: PairComparison,
        variable: int,
        columns: dict[str, pa.Array],
        fits: Booleans,
        near: _Near,
    ) -> tuple[Integers, Integers]:
        """Return where the rows begin and end that each row goes together with, and these rows."""
        known = self._uncertainty
        earlier = np.flatnonzero(fits[:, known.steps[one.steps[0]].variable])
        own = np.flatnonzero(fits[:, variable])
        low = np.searchsorted(own, near.early[earlier])
        high = np.searchsorted(own, near.behind(known.within + 2 * known.bound)[earlier])
        counts = high - low
        if counts.sum() > _PAIRS_MAX:
            raise MatchError(
                f"a condition reads more than {_PAIRS_MAX} pairs of events",
                hint="shorten WITHIN, or compare a value of each: price > A.price + 5",
            )
        found, sizes = [np.zeros(0, np.int64)], np.zeros(len(fits), np.int64)
        for part in np.split(np.arange(len(earlier)), _cuts(counts)):
            many = counts[part]
            offset = np.repeat(low[part] - (np.cumsum(many) - many), many)
            rows = own[offset + np.arange(many.sum())]
            beside = np.repeat(earlier[part], many)
            held = _hold(one.sides[0], columns, rows, beside)
            found.append(rows[held])
            sizes += np.bincount(beside[held], minlength=len(sizes))
        end = np.cumsum(sizes)
        return np.stack([end - sizes, end]), np.concatenate(found)

    def _sides(
        self, one: PairComparison, variable: int, columns: dict[str, pa.Array], fits: Booleans
    ) -> list[Integers]:
        """Return the codes of both sides of a comparison.

        A value is computed of the rows alone that may have to do with it: of others it may fail.
        """
        places, values = [], []
        for side, step in zip(one.sides, one.steps, strict=True):
            read = variable if step == OWN else self._uncertainty.steps[step].variable
            places.append(np.flatnonzero(fits[:, read]))
            values.append(_values(side, columns, places[-1]))
        coded = []
        for place, code in zip(places, _coded(values), strict=True):
            coded.append(np.full(len(fits), kernel.NOTHING))
            coded[-1][place] = code
        return [coded[0], coded[-1]]

    def _found(self, block: Block, bounds: Integers) -> tuple[Integers, Integers, Integers]:
        """Return the rows of all matches, where each ends, and how many each segment has."""
        steps, events, turns = self._steps(), self._events(block), Turns(self.task, block.size)
        times, known = events.times, self._uncertainty
        most = int(np.minimum(steps.steps[kernel.MOST_TAKEN], block.size).sum())
        level = np.zeros((kernel.LINES, min(most, block.size) + 2), np.int64)
        # Memory that nobody has written to costs nothing.
        ends = np.empty((max(_ROOM, block.size), 3), np.int64)
        rows = np.empty((len(ends) * len(known.steps), 2), np.int64)
        place, sizes = np.zeros(4, np.int64), np.zeros(len(bounds), np.int64)
        for number, own in enumerate(bounds):
            if own[2] >= own[3]:
                continue
            before = int(place[FOUND])
            reach = times[own[2]] - known.reach
            place[START] = own[0] + np.searchsorted(times[own[0] : own[1]], reach)
            while (
                status := find_uncertain(
                    events, steps, own, place, level, rows, ends, self.task.pace.work
                )
            ) != DONE:
                if status == FULL:
                    rows, ends = _larger(rows, place[WRITTEN]), _larger(ends, place[FOUND])
                else:
                    turns.end(self.task.pace.work, int(place[START]))
            sizes[number] = place[FOUND] - before
        return rows[: place[WRITTEN]], ends[: place[FOUND]], sizes


def _taken(rows: Integers, first: Integers, lengths: Integers, offsets: Integers) -> Integers:
    """Return the rows of matches one after the other, given where each begins."""
    if len(lengths) and (lengths == (width := lengths[0])).all():
        whole: Integers = rows.reshape(len(lengths), -1)[first // width]
        return whole.reshape(-1, 2)
    taken: Integers = rows[np.repeat(first - offsets[:-1], lengths) + np.arange(offsets[-1])]
    return taken


def _larger(table: Integers, used: int) -> Integers:
    """Return a table with room for more."""
    if 2 * table.size > _ROOM_MAX:
        raise MatchError(
            f"there are more than {used} matches",
            hint="shorten WITHIN, or use -> in place of ->>",
        )
    return np.concatenate([table, np.empty_like(table)])


@dataclass(frozen=True)
class _Near:
    """Which rows lie near others: times, segments, and the first that may lie before each row."""

    times: Integers
    segments: Integers
    early: Integers

    def behind(self, distance: int) -> Integers:
        """Return for each row the first that lies further behind it."""
        early, late = np.empty((2, len(self.times)), np.int64)
        kernel.find_reach(self.times, self.segments, distance, early, late)
        return late


@dataclass(frozen=True)
class _PairFrame:
    """Leaves of a condition on two events: one at the place `last`, an earlier one at `first`."""

    own: PredicateFrame
    earlier: PredicateFrame

    @property
    def size(self) -> int:
        """The number of pairs."""
        return self.own.size

    def leaf(self, node: BoundExpression) -> pa.Array:
        """Return the values of a leaf."""
        assert isinstance(node, Read | Present)
        frame = self.earlier if node.place.origin == "first" else self.own
        return frame.leaf(replace(node, place=ReadPlace("last")))


def _cuts(counts: Integers) -> Integers:
    """Return where to cut a list so that the parts have about as many pairs each."""
    total = np.cumsum(counts)
    at: Integers = np.flatnonzero(np.diff(total // _PAIRS_AT_ONCE)) + 1
    return at


def _hold(
    expression: BoundExpression, columns: dict[str, pa.Array], own: Integers, earlier: Integers
) -> Booleans:
    """Say which pairs of rows a condition holds for."""
    read = {node.column for node in walk(expression) if isinstance(node, Read)}
    size = np.array([0, len(own)])
    frames = [
        PredicateFrame({name: columns[name].take(pa.array(rows)) for name in read}, size)
        for rows in (own, earlier)
    ]
    held = evaluate_columns(expression, _PairFrame(*frames))
    return np.asarray(held.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _values(
    expression: BoundExpression, columns: dict[str, pa.Array], places: Integers
) -> pa.Array:
    """Return the values of an expression of one event, for some rows."""
    read = {node.column for node in walk(expression) if isinstance(node, Read)}
    there = {name: columns[name].take(pa.array(places)) for name in read}
    return evaluate_columns(expression, PredicateFrame(there, np.array([0, len(places)])))


def _coded(values: list[pa.Array]) -> list[Integers]:
    """Return numbers that compare with each other like the values of two columns, or of one."""
    kinds = [column.type for column in values]
    common = kinds[0] if kinds[0] == kinds[-1] else types.common_type(*kinds)
    whole = pa.concat_arrays([column.cast(common) for column in values])
    known = np.asarray(whole.is_valid())
    if types.is_floating(common):
        codes = _float_codes(whole.cast(pa.float64()).fill_null(0.0).to_numpy())
    else:
        encoded = whole.fill_null(whole.drop_null()[0]).dictionary_encode() if known.any() else None
        codes = np.zeros(len(whole), np.int64) if encoded is None else _ranks(encoded)
    codes = np.where(known, codes, kernel.NOTHING)
    return np.split(codes, np.cumsum([len(column) for column in values[:-1]]))


def _ranks(encoded: pa.DictionaryArray) -> Integers:
    """Return the places of values in their order."""
    ranks = np.empty(len(encoded.dictionary), np.int64)
    ranks[pc.array_sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(ranks))
    places: Integers = ranks[encoded.indices.to_numpy()]
    return places


def _float_codes(values: npt.NDArray[np.float64]) -> Integers:
    """Return whole numbers in the order of floats: their bits, turned where negative."""
    bits = (values + 0.0).view(np.int64)
    codes = np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)
    return np.where(np.isnan(values), kernel.NAN, codes)


def _sources(block: Block, column: str | None) -> Integers:
    """Return the source of each row as a number; without sources each row has its own."""
    if column is None:
        return np.arange(block.size)
    return column_codes(block.columns[column])[0].astype(np.int64)


def _settled(block: Block, deadline: Integers) -> Integers:
    """Return the number of the row, of any partition, that showed that a deadline has passed."""
    clock, numbers = clock_of(block)
    tick = np.searchsorted(clock, deadline)
    return np.append(numbers, block.next_arrival)[tick].astype(np.int64)
