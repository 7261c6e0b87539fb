"""Measures: the output columns of matches, computed for all matches at once.

A place becomes an array of row numbers and a read becomes one gather; aggregates are reductions
over the takes of each match. A measure without such a form is evaluated row by row, by the twin of
expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers, Numbers
from outpace.engine.evaluate.columns import evaluate_columns
from outpace.engine.evaluate.frame import MatchFrame
from outpace.engine.evaluate.numbers import from_numbers, numbers_of
from outpace.engine.evaluate.row import RowContext, compile_row
from outpace.engine.kernels import reduce
from outpace.engine.match.codegen_layout import SPREADS
from outpace.engine.match.contract import Block, BlockMatches, Task
from outpace.engine.match.identity import MatchIds, match_ids
from outpace.errors import DataError
from outpace.pattern import types
from outpace.pattern.bound import Aggregate, Read, ReadPlace, walk
from outpace.pattern.query import RowsPerMatch
from outpace.pattern.values import column_values, gathered, to_array

#: The aggregates that are reductions, and the greatest integer that a double is sure to hold.
_REDUCED: Final = ("count", "count_if", "sum", "avg", "min", "max", *SPREADS)
_EXACT: Final = 1 << 53


def evaluate_measures(
    task: Task,
    block: Block,
    found: BlockMatches,
    rows_mode: RowsPerMatch,
    identify: Callable[[], MatchIds] | None = None,
) -> tuple[Integers, Integers, dict[str, pa.Array]]:
    """Return the output rows of matches: block row, match, and the measures by name.

    With ONE ROW PER MATCH there is a row for each match. Otherwise there is one for each take that
    is not in `{- -}`, and one for each empty match unless these are omitted. What returns the ids
    of the matches may be given, so that they are made once.
    """
    view = (
        _one_row(task, block, found)
        if rows_mode is RowsPerMatch.ONE
        else _all_rows(task, block, found, rows_mode)
    )

    def identities() -> pa.Array:
        """Return MATCH_ID."""
        ids = match_ids(task, block, found) if identify is None else identify()
        one = rows_mode is RowsPerMatch.ONE
        return ids.texts if one else ids.texts.take(pa.array(view.match))

    frame = MatchFrame(
        columns=block.columns,
        size=len(view.match),
        index=view.rows_of,
        label=view.labels_of,
        number=view.numbers,
        aggregate=view.aggregate,
        identity=identities,
    )
    measures = {}
    for measure in task.bound.measures:
        column = evaluate_columns(measure.expression, frame)
        wanted = measure.expression.type
        measures[measure.name] = column if column.type == wanted else column.cast(wanted)
    return view.row, view.match, measures


@dataclass(frozen=True)
class _View:
    """Output rows over matches: which takes each sees, up to its own row and to the match's end."""

    task: Task
    block: Block
    found: BlockMatches
    row: Integers
    match: Integers
    low: Integers
    high: Integers
    end: Integers

    @cached_property
    def _segment(self) -> Integers:
        return self.found.segment[self.match]

    def _high(self, final: bool) -> Integers:
        return self.end if final else self.high

    def _at_positions(self, variables: frozenset[int]) -> Numbers:
        wanted = [position.variable in variables for position in self.task.program.positions]
        return np.array(wanted, np.uint8)

    def takes_of(self, place: ReadPlace) -> Integers:
        """Return the take that a place stands for before its shift; -1 where there is none."""
        high = self._high(place.final)
        last = place.origin == "last"
        if place.variables is None:
            takes = high - 1 - place.steps if last else self.low + place.steps
            outside = (takes < self.low) | (takes >= high)
            if outside.any():
                takes = np.where(outside, -1, takes)
            return takes
        takes = np.empty(len(self.match), np.int64)
        wanted = self._at_positions(place.variables)
        search = reduce.nth_last if last else reduce.nth_first
        search(wanted, self.found.positions, self.low, high, place.steps, takes)
        return takes

    def rows_of(self, place: ReadPlace) -> Integers:
        """Return the block row that a place stands for; -1 where there is none."""
        takes = self.takes_of(place)
        out = np.empty(len(takes), np.int64)
        reduce.rows_at(takes, self.found.rows, self._segment, self.block.segments, place.shift, out)
        return out

    def labels_of(self, place: ReadPlace) -> pa.Array:
        """Return the name of the variable that labels the row at a place."""
        takes = self.takes_of(place)
        if place.shift:
            wanted = self.rows_of(place)
            reduce.takes_of_rows(wanted, self.found.rows, self.low, self.end, takes)
        known = takes >= 0
        variables = np.zeros(len(takes), np.int64)
        variables[known] = self.task.variables[self.found.positions[takes[known]]]
        names = pa.array(self.task.program.names, pa.string())
        return names.take(pa.array(variables, mask=~known))

    def numbers(self) -> pa.Array:
        """Return MATCH_NUMBER."""
        return pa.array(self.found.number[self.match].astype(np.int64))

    def aggregate(self, node: Aggregate) -> pa.Array:
        """Return the value of an aggregate."""
        plain = not node.distinct and not node.order and node.condition is None
        computed = self._reduce(node) if plain else None
        return self._row_by_row(node) if computed is None else computed

    def _reduce(self, node: Aggregate) -> pa.Array | None:
        high = self._high(node.final)
        if node.function == "count" and not node.arguments and node.variables is None:
            return pa.array(high - self.low)
        if node.function not in _REDUCED or len(node.arguments) > 1:
            return None
        counted = self._counted(node)
        if not node.arguments:
            return pa.array(self._count(counted, high))
        argument = node.arguments[0]
        values = evaluate_columns(argument, self._takes_frame())
        if values.null_count:
            counted = counted & values.is_valid().to_numpy(zero_copy_only=False)
        if node.function == "count":
            return pa.array(self._count(counted, high))
        (numbers,) = numbers_of([values], ordered=True)
        if numbers is None or numbers.dtype == np.uint64:
            return None
        if node.function == "count_if":
            return pa.array(self._count(counted & numbers.astype(np.bool_), high))
        if node.function in SPREADS:
            return self._spread(node.function, numbers, counted, high)
        if node.function in ("min", "max"):
            return self._extreme(node, values, numbers, counted, high)
        return self._sum(node, numbers, counted, high)

    def _counted(self, node: Aggregate) -> Numbers:
        """Return for each take whether its label is one that the aggregate takes."""
        if node.variables is None:
            return np.ones(len(self.found.rows), np.uint8)
        return self._at_positions(node.variables)[self.found.positions]

    def _count(self, counted: Numbers, high: Integers) -> Integers:
        out = np.empty(len(self.low), np.int64)
        reduce.count_takes(counted, self.low, high, out)
        return out

    def _extreme(
        self, node: Aggregate, values: pa.Array, numbers: Numbers, counted: Numbers, high: Integers
    ) -> pa.Array:
        takes = np.empty(len(self.low), np.int64)
        reduce.extreme_takes(numbers, counted, self.low, high, node.function == "max", takes)
        return values.take(pa.array(takes, mask=takes < 0))

    def _spread(self, name: str, numbers: Numbers, counted: Numbers, high: Integers) -> pa.Array:
        counts = self._count(counted, high) - SPREADS[name]
        squares = np.empty(len(self.low), np.float64)
        reduce.sum_squares(numbers.astype(np.float64), counted, self.low, high, squares)
        found = squares / np.maximum(counts, 1)
        return pa.array(np.sqrt(found) if name.startswith("stddev") else found, mask=counts < 1)

    def _sum(
        self, node: Aggregate, numbers: Numbers, counted: Numbers, high: Integers
    ) -> pa.Array | None:
        counts = self._count(counted, high)
        none = counts == 0
        if numbers.dtype.kind == "f":
            floats = np.empty(len(self.low), np.float64)
            reduce.sum_floats(numbers.astype(np.float64), counted, self.low, high, floats)
            if node.function == "avg":
                floats = floats / np.maximum(counts, 1)
            return pa.array(floats, mask=none).cast(node.type)
        total = np.empty(len(self.low), np.int64)
        if not reduce.sum_integers(numbers.astype(np.int64), counted, self.low, high, total):
            return None
        if node.function == "sum":
            return from_numbers(total, node.type, none)
        if np.abs(total).max(initial=0) > _EXACT:
            # Beyond 53 bits a quotient of doubles is not the nearest one.
            return None
        counts = np.maximum(counts, 1)
        if types.is_floating(node.type):
            return pa.array(total / counts, mask=none).cast(node.type)
        return from_numbers(_quotients(total, counts, node.type), node.type, none)

    def _takes_frame(self) -> MatchFrame:
        """Return the leaves of an aggregate's argument: one row for each take."""
        found, segments = self.found, self.block.segments
        segment = np.repeat(found.segment, np.diff(found.offsets))

        def index(place: ReadPlace) -> Integers:
            if place.origin != "row":
                raise AssertionError("an aggregate reads the row that it adds")
            if not place.shift:
                return found.rows
            out = np.empty(len(found.rows), np.int64)
            every = np.arange(len(found.rows))
            reduce.rows_at(every, found.rows, segment, segments, place.shift, out)
            return out

        def label(place: ReadPlace) -> pa.Array:
            assert place.origin == "row"
            assert not place.shift
            names = pa.array(self.task.program.names, pa.string())
            return names.take(pa.array(self.task.variables[found.positions]))

        def number() -> pa.Array:
            return pa.array(np.repeat(found.number, np.diff(found.offsets)).astype(np.int64))

        def aggregate(node: Aggregate) -> pa.Array:
            raise AssertionError("aggregates are not nested")

        return MatchFrame(self.block.columns, len(found.rows), index, label, number, aggregate)

    def _row_by_row(self, node: Aggregate) -> pa.Array:
        try:
            return to_array(gathered(self._each_row(node)), node.type)
        except DataError as problem:
            raise problem if node.origin is None else node.origin.of(problem) from None

    def _each_row(self, node: Aggregate) -> Iterator[Any]:
        evaluate = compile_row(node)
        read = {part.column for part in walk(node) if isinstance(part, Read)}
        context: RowContext | None = None
        seen_segment = -1
        begin = 0
        for output in range(len(self.match)):
            match = int(self.match[output])
            segment = int(self.found.segment[match])
            if context is None or segment != seen_segment:
                begin, end = (int(self.block.segments[segment + side]) for side in (0, 1))
                columns = {
                    name: column_values(self.block.columns[name][begin:end]) for name in read
                }
                context = RowContext(columns, end - begin, self.task.program.names)
                seen_segment = segment
            low, high = int(self.low[output]), int(self.end[output])
            context.rows = (self.found.rows[low:high] - begin).tolist()
            context.labels = self.task.variables[self.found.positions[low:high]].tolist()
            context.current = int(self.high[output]) - low - 1
            context.match_number = int(self.found.number[match])
            yield evaluate(context)


def _one_row(task: Task, block: Block, found: BlockMatches) -> _View:
    match = np.arange(len(found.start), dtype=np.int64)
    low, end = found.offsets[:-1], found.offsets[1:]
    return _View(task, block, found, found.start, match, low, end, end)


def _all_rows(task: Task, block: Block, found: BlockMatches, rows_mode: RowsPerMatch) -> _View:
    sizes = np.diff(found.offsets)
    excluded = np.array([p.excluded for p in task.program.positions], np.bool_)
    take = (
        np.flatnonzero(~excluded[found.positions])
        if len(found.positions)
        else np.zeros(0, np.int64)
    )
    match = np.repeat(np.arange(len(sizes)), sizes)[take]
    row = found.rows[take]
    high = take + 1
    if rows_mode is not RowsPerMatch.ALL_OMIT_EMPTY:
        empty = np.flatnonzero(sizes == 0)
        order = np.argsort(np.concatenate([match, empty]), kind="stable")
        match = np.concatenate([match, empty])[order]
        row = np.concatenate([row, found.start[empty]])[order]
        high = np.concatenate([high, found.offsets[empty]])[order]
    low, end = found.offsets[:-1][match], found.offsets[1:][match]
    return _View(task, block, found, row, match, low, high, end)


def _quotients(total: Integers, counts: Integers, kind: pa.DataType) -> Integers:
    """Divide as numbers of a type are: half of decimals goes away from zero, of others to even."""
    quotient, rest = np.divmod(np.abs(total), counts)
    above = 2 * rest > counts
    half = 2 * rest == counts
    if not types.is_decimal(kind):
        half &= quotient % 2 == 1
    rounded: Integers = np.sign(total) * (quotient + (above | half))
    return rounded
