"""Measures: the output columns of matches, computed for all matches at once.

A place becomes an array of row numbers and a read becomes one gather; aggregates are reductions
over the takes of each match. A measure without such a form is evaluated row by row, by the twin of
expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from outpace.pattern.bound import Aggregate, Constant, Read, ReadPlace, walk
from outpace.pattern.functions.aggregate import find_aggregate
from outpace.pattern.query import RowsPerMatch
from outpace.pattern.values import (
    ELEMENT_CHARACTERS,
    can_be_kept,
    column_values,
    gathered,
    to_array,
)

_LEAST, _GREATEST = ("min", "bool_and", "min_by"), ("max", "bool_or", "max_by")
_LISTED: Final = ("array_agg", "collect_list", "listagg")
#: The aggregates that are reductions or lists, with the most arguments that they are so with.
_REDUCED: Final = dict.fromkeys(
    ("count", "count_if", "sum", "avg", "arbitrary", *_LEAST, *_GREATEST, *_LISTED, *SPREADS), 1
) | {"min_by": 2, "max_by": 2, "listagg": 2}
#: So many takes in lists of each output row may be more than those of all matches.
_LISTED_MOST: Final = 1 << 24
#: The greatest integer that a double is sure to hold.
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
        try:
            computed = self._reduce(node)
        except DataError:
            # A column fails on rows that the aggregate may not take.
            computed = None
        return self._row_by_row(node) if computed is None else computed

    def _reduce(self, node: Aggregate) -> pa.Array | None:
        high = self._high(node.final)
        known = _REDUCED.get(node.function, 0)
        if len(node.arguments) > known or (node.distinct and len(node.arguments) != 1):
            return None
        frame = self._takes_frame()
        taken = _Taken(self._counted(node), self.low, high)
        if node.condition is not None:
            taken = taken.where(pc.fill_null(evaluate_columns(node.condition, frame), False))
        if not node.arguments:
            return pa.array(taken.counts) if node.function == "count" else None
        given = [evaluate_columns(argument, frame) for argument in node.arguments]
        aggregate = find_aggregate(node.function)
        if aggregate is not None and aggregate.skip_null:
            taken = taken.where_known(given[0])
        if node.distinct or node.order:
            keys = [evaluate_columns(key.operand, frame) for key in node.order]
            takes, sizes = taken.lists(len(self.found.rows))
            arranged = None if takes is None else _arranged(node, takes, sizes, given, keys)
            if arranged is None:
                return None
            takes, sizes = arranged
            given = [column.take(pa.array(takes)) for column in given]
            taken = _Taken.of_lists(sizes)
        return _computed(node, taken, given, len(self.found.rows))

    def _counted(self, node: Aggregate) -> Numbers:
        """Return for each take whether its label is one that the aggregate takes."""
        if node.variables is None:
            return np.ones(len(self.found.rows), np.uint8)
        return self._at_positions(node.variables)[self.found.positions]

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


@dataclass(frozen=True)
class _Taken:
    """The takes of aggregates: for each output row those from `low` to `high` that count."""

    counted: Numbers
    low: Integers
    high: Integers

    @staticmethod
    def of_lists(sizes: Integers) -> _Taken:
        """Return takes that lie one list after the other, and all count."""
        high = np.cumsum(sizes)
        return _Taken(np.ones(int(sizes.sum()), np.uint8), high - sizes, high)

    def where(self, holds: pa.Array) -> _Taken:
        """Return those for which something holds."""
        holds = holds.to_numpy(zero_copy_only=False)
        return replace(self, counted=self.counted & holds.astype(np.uint8))

    def where_known(self, values: pa.Array) -> _Taken:
        """Return those whose value is not NULL."""
        return self.where(values.is_valid()) if values.null_count else self

    @cached_property
    def counts(self) -> Integers:
        """How many there are for each output row."""
        out = np.empty(len(self.low), np.int64)
        reduce.count_takes(self.counted, self.low, self.high, out)
        return out

    def lists(self, rows: int) -> tuple[Integers | None, Integers]:
        """Return the takes of each output row, one after the other, and how many it has.

        None in place of them where they are far more than the rows that matches took: then output
        rows have most in common.
        """
        sizes = self.counts
        total = int(sizes.sum())
        if total > max(_LISTED_MOST, rows):
            return None, sizes
        chosen = np.flatnonzero(self.counted)
        first = chosen.searchsorted(self.low) - (np.cumsum(sizes) - sizes)
        return chosen[np.repeat(first, sizes) + np.arange(total)], sizes

    def extreme(self, numbers: Numbers, *, greatest: bool) -> pa.Array:
        """Return the takes with the least or the greatest number."""
        takes = np.empty(len(self.low), np.int64)
        reduce.extreme_takes(numbers, self.counted, self.low, self.high, greatest, takes)
        return pa.array(takes, mask=takes < 0)

    def total(self, numbers: Numbers, kind: type) -> Numbers | None:
        """Return the sums of numbers, None where integers overflow."""
        out: Numbers = np.empty(len(self.low), kind)
        if kind is np.float64:
            reduce.sum_floats(numbers.astype(kind), self.counted, self.low, self.high, out)
            return out
        fits = reduce.sum_integers(numbers.astype(kind), self.counted, self.low, self.high, out)
        return out if fits else None

    def squares(self, numbers: Numbers) -> Numbers:
        """Return how far numbers are spread: the sums of squares."""
        out = np.empty(len(self.low), np.float64)
        reduce.sum_squares(numbers.astype(np.float64), self.counted, self.low, self.high, out)
        return out


def _computed(
    node: Aggregate, taken: _Taken, given: Sequence[pa.Array], rows: int
) -> pa.Array | None:
    """Return the values of an aggregate of so many rows, None where it takes each by itself."""
    name, values = node.function, given[0]
    if name == "count":
        return pa.array(taken.counts)
    if name in _LISTED:
        takes, sizes = taken.lists(rows)
        return None if takes is None else _listed(node, values, takes, sizes)
    if name == "arbitrary":
        takes = np.append(np.flatnonzero(taken.counted), -1)
        first = takes[takes[:-1].searchsorted(taken.low)]
        return values.take(pa.array(first, mask=(first < 0) | (first >= taken.high)))
    taken = taken.where_known(given[-1])
    (numbers,) = numbers_of([given[-1]], ordered=True)
    if numbers is None or numbers.dtype == np.uint64:
        return None
    if name == "count_if":
        return pa.array(taken.where(pa.array(numbers.astype(np.bool_))).counts)
    if name in SPREADS:
        return _spread(name, numbers, taken)
    if name in (*_LEAST, *_GREATEST):
        return values.take(taken.extreme(numbers, greatest=name in _GREATEST))
    return _sum(node, numbers, taken)


def _listed(node: Aggregate, values: pa.Array, takes: Integers, sizes: Integers) -> pa.Array | None:
    """Return lists of takes, or texts of them; None where they are too long to be kept."""
    text = node.function == "listagg"
    if len(takes) > np.iinfo(np.int32).max:
        return None
    if not text and not can_be_kept(_most(sizes), ELEMENT_CHARACTERS * len(takes)):
        return None
    kind = pa.list_(node.type) if text else node.type
    items = values.take(pa.array(takes)).cast(kind.value_type)
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    none = None if node.function == "collect_list" else pa.array(sizes == 0)
    lists = pa.ListArray.from_arrays(ends, items, kind, mask=none)
    if not text:
        return lists
    last = node.arguments[-1]
    separator = last.value if len(node.arguments) > 1 and isinstance(last, Constant) else ""
    separator = str(separator or "")
    before = np.append(0, np.cumsum(pc.utf8_length(items).to_numpy(zero_copy_only=False)))
    lengths = before[ends[1:]] - before[ends[:-1]] + len(separator) * np.maximum(sizes - 1, 0)
    if not can_be_kept(_most(lengths), int(lengths.sum())):
        return None
    return pc.binary_join(lists, separator)


def _most(lengths: Integers) -> int:
    return int(lengths.max(initial=0))


def _spread(name: str, numbers: Numbers, taken: _Taken) -> pa.Array:
    counts = taken.counts - SPREADS[name]
    found = taken.squares(numbers) / np.maximum(counts, 1)
    return pa.array(np.sqrt(found) if name.startswith("stddev") else found, mask=counts < 1)


def _sum(node: Aggregate, numbers: Numbers, taken: _Taken) -> pa.Array | None:
    counts = taken.counts
    none = counts == 0
    if numbers.dtype.kind == "f":
        floats = taken.total(numbers, np.float64)
        assert floats is not None
        if node.function == "avg":
            floats = floats / np.maximum(counts, 1)
        return pa.array(floats, mask=none).cast(node.type)
    total = taken.total(numbers, np.int64)
    if total is None:
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


def _arranged(
    node: Aggregate,
    takes: Integers,
    sizes: Integers,
    given: Sequence[pa.Array],
    keys: Sequence[pa.Array],
) -> tuple[Integers, Integers] | None:
    """Return lists of takes without repetitions and in order, and how long they are.

    None where values have no numbers that say which are equal, and which is less.
    """
    ranks = [_ranks(column) for column in (*(given if node.distinct else ()), *keys)]
    group = np.repeat(np.arange(len(sizes)), sizes)
    by = [rank[takes] for rank in ranks if rank is not None]
    if len(by) < len(ranks):
        return None
    if node.distinct:
        order = np.lexsort((*by, group))
        first = np.ones(len(order), np.bool_)
        first[1:] = np.any([np.diff(each[order]) != 0 for each in (group, *by)], axis=0)
        chosen = np.sort(order[first])
        takes, group, by = takes[chosen], group[chosen], [each[chosen] for each in by]
    if node.order:
        sorting = []
        for key, rank in zip(reversed(node.order), reversed(by), strict=False):
            sorting += [-rank if key.descending else rank, (rank == 0) != key.nulls_first]
        takes = takes[np.lexsort((*sorting, group))]
    return takes, np.bincount(group, minlength=len(sizes))


def _ranks(column: pa.Array) -> Integers | None:
    """Return numbers from 1 on that are equal and less where values are; 0 is NULL."""
    (numbers,) = numbers_of([column], ordered=True)
    if numbers is None:
        return None
    ranks = np.unique(numbers, return_inverse=True)[1] + 1
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), ranks, 0)


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
