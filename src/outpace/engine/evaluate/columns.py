"""The vectorised evaluator: a bound expression over whole Arrow columns.

A `Frame` says what the leaves are: for predicates a column shifted inside its partition, for
measures the values at given row numbers. The result equals that of `row` on every row. Where Arrow
has no kernel with SQL's meaning, or a kernel fails on a row that SQL would not even look at, that
part of the expression is computed row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Booleans
from outpace.engine.evaluate.frame import Column, Frame, Indices, PredicateFrame, in_one_piece
from outpace.engine.evaluate.mask import truth
from outpace.engine.evaluate.row import compile_scalar
from outpace.errors import DataError
from outpace.pattern import types
from outpace.pattern.bound import Apply, BoundExpression, Constant, Predicate, walk
from outpace.pattern.functions import function_of
from outpace.pattern.functions.function import ArrowKernel, ArrowOperand
from outpace.pattern.values import column_values, computed, gathered, to_array


def evaluate_columns(expression: BoundExpression, frame: Frame) -> pa.Array:
    """Return the values of an expression, one for each row of the frame.

    Examples
    --------
    >>> from outpace.pattern.bound import ReadPlace, Read
    >>> frame = PredicateFrame({"x": pa.array([1, 5, None])})
    >>> x = Read(pa.int64(), "x", (), ReadPlace("last"))
    >>> evaluate_columns(Apply(pa.bool_(), ">", (x, Constant(pa.int64(), 3))), frame).to_pylist()
    [False, True, None]
    """
    try:
        value = _evaluate(expression, frame)
    except DataError:
        if not isinstance(expression, Apply):
            raise
        # A part failed on a row where another part may be NULL: that is for plain Python to say.
        value = _row_by_row(expression, frame)
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, frame.size)
    return _of_type(value, expression.type)


def predicate_mask(
    predicate: Predicate, columns: Mapping[str, Column], segments: Indices | None = None
) -> Booleans:
    """Return for each row whether it satisfies a predicate that does not read the match.

    Parameters
    ----------
    predicate
        Of the class ALWAYS, LOCAL or OFFSET.
    columns
        The columns that it reads, sorted by partition and order.
    segments
        The first row of each partition, and the number of rows at the end; None: one partition.

    Examples
    --------
    >>> from outpace.pattern.bound import ReadPlace, PredicateClass, Read
    >>> x = Read(pa.int64(), "x", (), ReadPlace("last"))
    >>> before = Read(pa.int64(), "x", (), ReadPlace("last", shift=-1))
    >>> rising = Predicate("UP", Apply(pa.bool_(), ">", (x, before)), PredicateClass.OFFSET)
    >>> predicate_mask(rising, {"x": pa.array([1, 2, 5, 6])}, np.array([0, 2, 4])).tolist()
    [False, True, False, True]
    """
    frame = PredicateFrame(columns, segments)
    if predicate.expression is None:
        return np.ones(frame.size, np.bool_)
    try:
        return truth(predicate.expression, frame, evaluate_columns).holds
    except DataError:
        # A part failed on a row that AND or OR may never look at: that is for plain Python to say.
        return np.array([value is True for value in _values(predicate.expression, frame)], np.bool_)


def _evaluate(node: BoundExpression, frame: Frame) -> ArrowOperand:
    match node:
        case Constant(value=int() as number):
            return _whole_number(number, node.type)
        case Constant(value=value):
            return to_array([value], node.type)[0]
        case Apply():
            kernel = function_of(node).arrow
            return _row_by_row(node, frame) if kernel is None else _attempt(node, kernel, frame)
        case _:
            return frame.leaf(node)


@lru_cache(maxsize=1024)
def _whole_number(value: int, kind: pa.DataType) -> pa.Scalar:
    """Return a constant; lists of them are long, and blocks may be small."""
    return to_array([value], kind)[0]


def _attempt(node: Apply, kernel: ArrowKernel, frame: Frame) -> ArrowOperand:
    """Run the kernel; where it fails, let plain Python decide whether that matters."""
    try:
        operands = [_evaluate(argument, frame) for argument in node.arguments]
    except DataError:
        if not function_of(node).lazy:
            raise
        return _row_by_row(node, frame)
    try:
        if all(isinstance(operand, pa.Scalar) for operand in operands):
            return _row_by_row(node, frame)
        result = kernel(node, operands)
    except (pa.ArrowException, DataError):
        return _row_by_row(node, frame)
    return result


def _row_by_row(node: Apply, frame: Frame) -> pa.Array:
    try:
        return to_array(_values(node, frame), node.type)
    except DataError as problem:
        raise problem if node.origin is None else node.origin.of(problem) from None


def _values(node: BoundExpression, frame: Frame) -> list[Any]:
    columns: dict[BoundExpression, list[Any]] = {}

    def leaf(part: BoundExpression) -> Callable[[int], Any]:
        held = columns[part]
        return lambda row: held[row]

    for part in walk_leaves(node):
        if part not in columns:
            columns[part] = column_values(_of_type(frame.leaf(part), part.type))
    compute = compile_scalar(node, leaf)
    found = (compute(row) for row in range(frame.size))
    # Of texts only those that are made longer are counted: the others are as long as the input's.
    calls = (part for part in walk(node) if isinstance(part, Apply))
    counted = _grows(node.type) and (
        not types.is_string(node.type) or any(function_of(call).lengthens for call in calls)
    )
    return gathered(found) if counted else list(found)


def _grows(kind: pa.DataType) -> bool:
    return not (pa.types.is_primitive(kind) or pa.types.is_null(kind))


def walk_leaves(node: BoundExpression) -> list[BoundExpression]:
    """Return what an expression reads: all but its calls and constants, aggregates as a whole."""
    if isinstance(node, Apply):
        return [leaf for argument in node.arguments for leaf in walk_leaves(argument)]
    return [] if isinstance(node, Constant) else [node]


def _of_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = in_one_piece(column)
    return computed(column, kind)
