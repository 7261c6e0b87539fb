"""The input of the search for uncertain matches: a way through a pattern, and rows, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from outpace.compiler.kernel import read_only
from outpace.engine.arrays import Booleans, Integers, pooled
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
    def _sets(self) -> list[Gap]:
        """The sets of rows that fit a step, or must not be in a gap: which are often the same."""
        sets = [Gap((step.variable,)) for step in self.steps]
        sets += [step.behind for step in self.steps[:-1]]
        sets += [step.between for step in self.steps if step.most != 1]
        last = self.steps[-1].behind
        return list(dict.fromkeys([*sets, last] if last.variables else sets))

    def pattern(self) -> kernel.SearchedSteps:
        """Return the steps as the kernel takes them, which notes in them where it is."""
        return self._pattern._replace(steps=self._pattern.steps.copy())

    @cached_property
    def _pattern(self) -> kernel.SearchedSteps:
        known, comparisons = self._uncertainty, self._comparisons
        steps, sets = self.steps, self._sets
        number = {rows: place for place, rows in enumerate(sets)}
        taken_by = [position.variable for position in self.task.program.positions]
        table = np.zeros((kernel.STEP_LINES, len(steps)), np.int64)
        for place, step in enumerate(steps):
            table[kernel.LEAST_TAKEN, place] = step.least
            table[kernel.MOST_TAKEN, place] = _ANY_NUMBER if step.most is None else step.most
            table[kernel.FITTING, place] = number[Gap((step.variable,))]
            table[kernel.BETWEEN, place] = -1 if step.most == 1 else number[step.between]
            behind = place + 1 < len(steps) or step.behind.variables
            table[kernel.BEHIND, place] = number[step.behind] if behind else -1
            table[kernel.POSITION, place] = taken_by.index(step.variable)
            table[kernel.POSITIONS, place] = taken_by.count(step.variable)
        read = np.zeros(len(self.task.bound.predicates), np.int64)
        for variable, condition in self._conditions.items():
            read[variable] = len(condition.others)
        listed = [variable for rows in sets for variable in rows.variables]
        return kernel.SearchedSteps(
            table,
            np.array([step.variable for step in steps], np.int64),
            np.cumsum([0, *(len(rows.variables) for rows in sets)]),
            np.array(listed, np.int64),
            np.array([rows.every for rows in sets], np.bool_),
            np.array(
                [not rows.every and any(read[one] for one in rows.variables) for rows in sets],
                np.bool_,
            ),
            np.append(0, np.cumsum(read)),
            np.array(comparisons, np.int64).reshape(-1, 5),
            int(table[kernel.BEHIND, -1]),
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
        next_rows = pooled(len(self._sets) * (size + 1), np.int64).reshape(-1, size + 1)
        next_any = pooled(size + 1 if steps.sourced else 0, np.int64)
        find_next(fits, steps, next_rows, next_any)
        sources = _sources(block, self._uncertainty.source)
        times = read_only(np.ascontiguousarray(block.times))
        codes, pairs = self._codes(columns, fits, _Near(times, block.segments))
        return kernel.SearchedRows(
            times,
            self._widths(block),
            sources,
            np.zeros(int(sources.max(initial=-1)) + 1, np.int64),
            fits,
            next_rows,
            next_any,
            codes,
            pairs,
            self._free(steps, fits),
        )

    def _free(self, steps: kernel.SearchedSteps, fits: Booleans) -> bool:
        """Say whether events can be placed one by one; see `SearchedRows`."""
        held = self._uncertainty.columns or steps.windowed or steps.trailing >= 0
        if held or any(step.most != 1 for step in self.steps):
            return False
        gaps = [
            np.ones(fits.shape[1], np.bool_) if gap.every else fits[[*gap.variables]].any(axis=0)
            for gap in (step.behind for step in self.steps[:-1])
        ]
        return not any((one & other).any() for one, other in pairwise(gaps))

    def _widths(self, block: Block) -> Integers:
        """Return how far the true times of each row may lie apart."""
        bound, column = self._uncertainty.bound, self._uncertainty.errors
        if column is None:
            every = pooled(block.size, np.int64)
            every[:] = bound
            return every
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
        low = np.searchsorted(own, near.reach(known.bound)[0][earlier])
        high = np.searchsorted(own, near.reach(known.within + 2 * known.bound)[1][earlier])
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
    """Which rows lie near others, by their times in their segments."""

    times: Integers
    segments: Integers

    def reach(self, distance: int) -> tuple[Integers, Integers]:
        """Return for each row the first at most so far before it, and the first further behind."""
        earliest, behind = np.empty((2, len(self.times)), np.int64)
        find_reach(self.times, self.segments, distance, earliest, behind)
        return earliest, behind


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
    """Return the source of each row as a number."""
    if column is None:
        return np.zeros(0, np.int64)
    return column_codes(block.columns[column])[0].astype(np.int64)
