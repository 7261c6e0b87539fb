"""The input of the search for uncertain matches: a way through a pattern, and rows, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from outpace.compiler.kernel import read_only
from outpace.engine.arrays import Booleans, Integers, pooled, rising
from outpace.engine.evaluate.columns import evaluate_columns, predicate_mask
from outpace.engine.evaluate.frame import PredicateFrame
from outpace.engine.kernels import uncertain_worlds as kernel
from outpace.engine.kernels.uncertain_sequences import find_next, find_reach
from outpace.engine.match.contract import Block, Task
from outpace.engine.rows.partition import column_codes
from outpace.errors import MatchError
from outpace.pattern import types
from outpace.pattern.bind.uncertainty import (
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
    UncertainStep,
    walk,
)

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
class SearchedWay:
    """A way through a pattern, as the kernel takes it.

    Parameters
    ----------
    task
        The query.
    steps
        The steps of the way.
    """

    task: Task
    steps: tuple[UncertainStep, ...]

    @property
    def _uncertainty(self) -> BoundUncertainty:
        uncertainty = self.task.bound.uncertainty
        assert uncertainty is not None
        return uncertainty

    @cached_property
    def _conditions(self) -> dict[int, StepCondition]:
        return conditions_of(self.task.bound.predicates, self.steps)

    @cached_property
    def _gaps(self) -> list[Gap]:
        """All gaps: behind each step, then between the events of those that are repeated."""
        behind = [step.behind for step in self.steps]
        if not behind[-1].variables:
            behind.pop()
        return behind + [step.between for step in self.steps if step.most != 1]

    def pattern(self) -> kernel.SearchedSteps:
        """Return the steps as the kernel takes them."""
        known, comparisons = self._uncertainty, self._comparisons
        steps, gaps = self.steps, self._gaps
        taken_by = [position.variable for position in self.task.program.positions]
        table = np.zeros((7, len(steps)), np.int64)
        repeated = len(gaps) - sum(step.most != 1 for step in steps)
        for place, step in enumerate(steps):
            table[kernel.LEAST_TAKEN, place] = step.least
            table[kernel.MOST_TAKEN, place] = _ANY_NUMBER if step.most is None else step.most
            table[kernel.BETWEEN, place], table[kernel.BEHIND, place] = repeated, place
            table[kernel.POSITION, place] = taken_by.index(step.variable)
            table[kernel.POSITIONS, place] = taken_by.count(step.variable)
            repeated += step.most != 1
        read = np.zeros(len(self.task.bound.predicates), np.int64)
        for variable, condition in self._conditions.items():
            read[variable] = len(condition.others)
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
            self.task.bound.query.windows is not None,
            known.bound,
            known.within,
        )

    @cached_property
    def _comparisons(self) -> list[list[int]]:
        """All comparisons, variable after variable; each has two columns of codes."""
        others = [one for condition in self._conditions.values() for one in condition.others]
        return [
            [_SIGNS[one.sign], 2 * number, one.steps[0], 2 * number + 1, one.steps[-1]]
            for number, one in enumerate(others)
        ]

    def events(self, block: Block, steps: kernel.SearchedSteps) -> kernel.SearchedRows:
        """Return the rows as the kernel takes them."""
        size, columns = block.size, {name: block.columns[name] for name in self.task.bound.columns}
        fits = np.zeros((len(self.task.bound.predicates), size), np.bool_)
        for variable, condition in self._conditions.items():
            fits[variable] = predicate_mask(condition.own, columns, block.segments)
        next_forbidden = _lines(len(self._gaps), size + 1)
        next_any, forbidden = pooled(size + 1, np.int64), pooled(size, np.int64)
        next_fitting = _lines(len(self.steps), size + 1)
        every = np.array([gap.every for gap in self._gaps], np.bool_)
        find_next(fits, steps, every, forbidden, next_forbidden, next_any, next_fitting)
        sources = _sources(block, self._uncertainty.source)
        times = read_only(np.ascontiguousarray(block.times))
        earliest, behind = _lines(2, size)
        find_reach(times, block.segments, self._uncertainty.bound, earliest, behind)
        codes, pairs = self._codes(columns, fits, _Near(times, block.segments, earliest))
        return kernel.SearchedRows(
            times,
            self._widths(block),
            sources,
            np.zeros(int(sources.max(initial=-1)) + 1 if steps.sourced else 0, np.int64),
            earliest,
            behind,
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
        for variable, condition in self._conditions.items():
            for one in condition.others:
                if one.sign == TOGETHER:
                    ends, rows = self._together(one, variable, columns, fits, near)
                    codes += [*(ends + size)]
                    pairs.append(rows)
                    size += len(rows)
                else:
                    codes += self._sides(one, variable, columns, fits)
        return np.array(codes, np.int64).reshape(len(codes), fits.shape[1]), np.concatenate(pairs)

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
        earlier = np.flatnonzero(fits[self.steps[one.steps[0]].variable])
        own = np.flatnonzero(fits[variable])
        low = np.searchsorted(own, near.earliest[earlier])
        high = np.searchsorted(own, near.behind(known.within + 2 * known.bound)[earlier])
        counts = high - low
        if counts.sum() > _PAIRS_MAX:
            raise MatchError(
                f"a condition reads more than {_PAIRS_MAX} pairs of events",
                hint="shorten WITHIN, or compare a value of each: price > A.price + 5",
            )
        found, sizes = [np.zeros(0, np.int64)], np.zeros(fits.shape[1], np.int64)
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
            read = variable if step == OWN else self.steps[step].variable
            places.append(np.flatnonzero(fits[read]))
            values.append(_values(side, columns, places[-1]))
        coded = []
        for place, code in zip(places, _coded(values), strict=True):
            coded.append(np.full(fits.shape[1], kernel.NOTHING))
            coded[-1][place] = code
        return [coded[0], coded[-1]]


@dataclass(frozen=True)
class _Near:
    """Which rows lie near others: times, segments, and the first that may lie before each row."""

    times: Integers
    segments: Integers
    earliest: Integers

    def behind(self, distance: int) -> Integers:
        """Return for each row the first that lies further behind it."""
        earliest, behind = np.empty((2, len(self.times)), np.int64)
        find_reach(self.times, self.segments, distance, earliest, behind)
        return behind


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


def _lines(count: int, size: int) -> Integers:
    """Return so many arrays with any content, in memory that is used again."""
    return pooled(count * size, np.int64).reshape(count, size)


def _sources(block: Block, column: str | None) -> Integers:
    """Return the source of each row as a number; without sources each row has its own."""
    if column is None:
        return rising(0, block.size)
    return column_codes(block.columns[column])[0].astype(np.int64)
