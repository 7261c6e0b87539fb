"""Conditions as NumPy masks: the fast path of predicates over columns.

Comparisons of numbers, of text with a constant, NULL tests and boolean logic run on NumPy arrays
without going through Arrow; every other part of a condition comes from the general evaluator. The
truth of a condition is two masks, where it holds and where it fails, so NULL is where neither does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import Booleans
from outpace.engine.evaluate.frame import PredicateFrame
from outpace.pattern import types
from outpace.pattern.bound import Apply, BoundExpression, Constant, Read, ReadPlace, guarded
from outpace.pattern.functions.condition import COMPARISONS
from outpace.pattern.values import computed

General = Callable[[BoundExpression, PredicateFrame], pa.Array]


@dataclass(frozen=True, slots=True)
class Truth:
    """Where a condition holds, and where it is NULL (None: nowhere)."""

    holds: Booleans
    unknown: Booleans | None = None

    def fails(self) -> Booleans:
        """Return where the condition is false."""
        return ~self.holds if self.unknown is None else ~(self.holds | self.unknown)


def truth(expression: BoundExpression, frame: PredicateFrame, general: General) -> Truth:
    """Return the truth of a condition for all rows of a frame."""
    part = guarded(expression)
    if part is not None:
        return _where_present(part[0], truth(part[1], frame, general), frame)
    match expression:
        case Constant(value=value):
            return _constant(value, frame.size)
        case Apply(function="and", arguments=arguments):
            return reduce(_and, (truth(part, frame, general) for part in arguments))
        case Apply(function="or", arguments=arguments):
            parts = (_negated(truth(part, frame, general)) for part in arguments)
            return _negated(reduce(_and, parts))
        case Apply(function="not", arguments=(argument,)):
            return _negated(truth(argument, frame, general))
        case Apply():
            found = _compared(expression, frame)
            return _from_arrow(general(expression, frame)) if found is None else found
        case _:
            return _from_arrow(general(expression, frame))


def _where_present(place: ReadPlace, given: Truth, frame: PredicateFrame) -> Truth:
    absent = frame.missing(place.shift)
    holds = given.holds.copy()
    unknown = np.zeros_like(holds) if given.unknown is None else given.unknown.copy()
    holds[absent], unknown[absent] = False, True
    return Truth(holds, unknown)


def _constant(value: object, size: int) -> Truth:
    if value is None:
        return Truth(np.zeros(size, np.bool_), np.ones(size, np.bool_))
    return Truth(np.full(size, value is True))


def _and(left: Truth, right: Truth) -> Truth:
    holds = left.holds & right.holds
    if left.unknown is None and right.unknown is None:
        return Truth(holds)
    return Truth(holds, ~(holds | left.fails() | right.fails()))


def _negated(given: Truth) -> Truth:
    return Truth(given.fails(), given.unknown)


def _from_arrow(column: pa.Array) -> Truth:
    if column.null_count == 0:
        return Truth(column.to_numpy(zero_copy_only=False).astype(np.bool_, copy=False))
    holds = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return Truth(holds, column.is_null().to_numpy(zero_copy_only=False))


def _compared(node: Apply, frame: PredicateFrame) -> Truth | None:
    """Return the truth of a comparison that NumPy can do, else None."""
    if node.function == "is null" and isinstance(node.arguments[0], Read):
        return _null_test(node.arguments[0], frame)
    if node.function not in COMPARISONS:
        return None
    left, right = node.arguments
    if isinstance(right, Constant) and isinstance(left, Read) and types.is_string(left.type):
        if node.function in ("=", "<>") and right.value is not None:
            return _text_equality(left, str(right.value), frame, node.function == "<>")
        return None
    numbers_left, numbers_right = _numbers(left, frame), _numbers(right, frame)
    if numbers_left is None or numbers_right is None:
        return None
    (first, first_null), (second, second_null) = numbers_left, numbers_right
    with np.errstate(invalid="ignore"):
        holds = np.asarray(COMPARISONS[node.function](first, second))
    if holds.ndim == 0:
        return None
    nulls = [mask for mask in (first_null, second_null) if mask is not None]
    if not nulls:
        return Truth(holds)
    unknown = reduce(np.logical_or, nulls)
    return Truth(holds & ~unknown, unknown)


_Numbers = tuple[Any, Booleans | None]


def _numbers(node: BoundExpression, frame: PredicateFrame) -> _Numbers | None:
    """Return values as NumPy numbers and where they are NULL, if they have such a form."""
    kind = node.type
    plain = types.is_integer(kind) or types.is_floating(kind)
    if isinstance(node, Constant):
        if node.value is None:
            return None
        if plain:
            return np.array(node.value, kind.to_pandas_dtype())[()], None
        number = _as_integer(node)
        return None if number is None else (number, None)
    if not isinstance(node, Read) or node.path:
        return None
    column = frame.column(node.column)
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(column.type):
        column = computed(column, kind).view(pa.int64())
    elif column.type != kind or not (plain or kind == pa.date32()):
        return None
    elif not plain:
        column = column.view(pa.int32())
    return _shifted(column, node.place.shift, frame)


def _as_integer(node: Constant) -> Any:
    """Return the number that a timestamp or date constant is stored as."""
    if pa.types.is_timestamp(node.type):
        return np.int64(pa.scalar(node.value, node.type).cast(pa.int64()).as_py())
    if node.type == pa.date32():
        return np.int32(pa.scalar(node.value, node.type).cast(pa.int32()).as_py())
    return None


def _shifted(column: pa.Array, shift: int, frame: PredicateFrame) -> _Numbers:
    values = stored_values(column)
    unknown = None
    if column.null_count:
        unknown = column.is_null().to_numpy(zero_copy_only=False)
    if shift == 0:
        return values, unknown
    moved = _moved(values, shift)
    outside = frame.missing(shift)
    if unknown is not None or len(outside):
        unknown = np.zeros(len(values), np.bool_) if unknown is None else _moved(unknown, shift)
        unknown[outside] = True
    return moved, unknown


def _moved(values: npt.NDArray[Any], shift: int) -> npt.NDArray[Any]:
    moved = np.zeros_like(values)
    if abs(shift) < len(values):
        if shift < 0:
            moved[-shift:] = values[:shift]
        else:
            moved[:-shift] = values[shift:]
    return moved


def stored_values(column: pa.Array) -> npt.NDArray[Any]:
    """Return a numeric column's values without a copy; those of NULLs are undefined."""
    dtype = np.dtype(column.type.to_pandas_dtype())
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(len(column), dtype)
    return np.frombuffer(buffer, dtype, len(column), column.offset * dtype.itemsize)


def _null_test(node: Read, frame: PredicateFrame) -> Truth | None:
    if node.path:
        return None
    column = frame.column(node.column)
    if pa.types.is_dictionary(column.type) and column.dictionary.null_count:
        return None
    shift = node.place.shift
    null = np.zeros(len(column), np.bool_)
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
    if shift:
        null = _moved(null, shift)
        null[frame.missing(shift)] = True
    return Truth(null)


def _text_equality(node: Read, text: str, frame: PredicateFrame, negated: bool) -> Truth | None:
    if node.path:
        return None
    column = frame.column(node.column)
    if pa.types.is_dictionary(column.type):
        same = _dictionary_equality(column, text)
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        same = _plain_equality(column, text.encode())
    else:
        same = None
    if same is None:
        return None
    unknown = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    shift = node.place.shift
    if shift:
        same = _moved(same, shift)
        unknown = np.zeros(len(same), np.bool_) if unknown is None else _moved(unknown, shift)
        unknown[frame.missing(shift)] = True
    if unknown is not None:
        same = same & ~unknown
    result = Truth(same, unknown)
    return _negated(result) if negated else result


def _dictionary_equality(column: pa.DictionaryArray, text: str) -> Booleans | None:
    if not types.is_string(column.type.value_type) or column.dictionary.null_count:
        return None
    codes = stored_values(column.indices)
    found = [code for code, value in enumerate(column.dictionary.to_pylist()) if value == text]
    same = np.zeros(len(codes), np.bool_)
    for code in found:
        same |= codes == codes.dtype.type(code)
    return same


def _plain_equality(column: pa.Array, sought: bytes) -> Booleans:
    """Compare lengths first, then bytes where the length fits."""
    width: type[Any] = np.int64 if pa.types.is_large_string(column.type) else np.int32
    _, offsets_buffer, data_buffer = column.buffers()
    if offsets_buffer is None or not len(column):
        return np.zeros(len(column), np.bool_)
    itemsize = np.dtype(width).itemsize
    offsets = np.frombuffer(offsets_buffer, width, len(column) + 1, column.offset * itemsize)
    same: Booleans = (offsets[1:] - offsets[:-1]) == len(sought)
    if not sought or data_buffer is None:
        return same
    data = np.frombuffer(data_buffer, np.uint8)
    rows = np.flatnonzero(same)
    for position, byte in enumerate(sought):
        rows = rows[data[offsets[rows] + position] == byte]
    same[:] = False
    same[rows] = True
    return same
