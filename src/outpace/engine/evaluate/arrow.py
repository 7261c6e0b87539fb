"""Arrow kernels for functions and operators, where Arrow's meaning is SQL's.

Each takes the node and its operands (arrays, or scalars for constants) and returns an array. A
kernel may raise Arrow's errors: the caller then computes row by row, which either succeeds or
raises the error that the user sees.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.pattern import types
from outpace.pattern.bound import Apply
from outpace.pattern.functions.operator import Piece, like_pieces
from outpace.pattern.functions.text import (
    MOST_PARTS_IN_COLUMNS,
    MOST_STEPS,
    named_groups,
    pattern_parts,
    replaced_length,
    replacement_steps,
    replacement_template,
    search_steps,
)
from outpace.pattern.values import MOST_CHARACTERS, MOST_TEXT

Operand: TypeAlias = "pa.Array | pa.Scalar"
Kernel = Callable[[Apply, Sequence[Operand]], pa.Array]


#: A longer pattern of LIKE is matched row by row: RE2 has a state for each of its characters.
_MOST_IN_RE2 = 256


#: A day inside the years 1 to 9999, in microseconds since 1970. (Arrow loads pandas, if it is
#: there, to make a value.)
_FIRST, _LAST = (
    (day - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    for day in (datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 31))
)


def _unsuitable(reason: str) -> pa.ArrowNotImplementedError:
    return pa.ArrowNotImplementedError(reason)


def _arithmetic(checked: Any, plain: Any) -> Kernel:
    """Integers, timestamps and intervals are checked for overflow; floats follow IEEE 754."""

    def kernel(node: Apply, operands: Sequence[Operand]) -> pa.Array:
        if types.is_floating(node.type):
            return plain(*operands)
        if any(pa.types.is_date(argument.type) for argument in node.arguments):
            raise _unsuitable("dates are moved by whole days")
        result = checked(*operands)
        if result.type != node.type:
            raise _unsuitable("another precision or unit")
        if pa.types.is_timestamp(node.type):
            _check_years(result)
        return result

    return kernel


def _check_years(column: pa.Array) -> None:
    """Leave times that Python does not know, or not in every zone, to the row evaluator."""
    ends = pc.min_max(column.view(pa.int64()))
    if ends["min"].is_valid and not (ends["min"].as_py() > _FIRST and ends["max"].as_py() < _LAST):
        raise _unsuitable("times outside of the years 1 to 9999")


def _without_zero(divisor: Operand) -> Operand:
    """Turn zeros into NULL, because dividing by zero gives NULL."""
    if isinstance(divisor, pa.Scalar):
        return pa.scalar(None, divisor.type) if divisor.as_py() == 0 else divisor
    return pc.if_else(pc.equal(divisor, pa.scalar(0, divisor.type)), None, divisor)


def _divide(node: Apply, operands: Sequence[Operand]) -> pa.Array:
    if not (types.is_integer(node.type) or types.is_floating(node.type)):
        raise _unsuitable("decimals and intervals are rounded")
    divide = pc.divide if types.is_floating(node.type) else pc.divide_checked
    return divide(operands[0], _without_zero(operands[1]))


def _remainder(node: Apply, operands: Sequence[Operand]) -> pa.Array:
    if not types.is_integer(node.type):
        raise _unsuitable("only integers")
    left, right = operands[0], _without_zero(operands[1])
    return pc.subtract_checked(left, pc.multiply_checked(pc.divide_checked(left, right), right))


def _negate(node: Apply, operands: Sequence[Operand]) -> pa.Array:
    if types.is_floating(node.type):
        return pc.negate(operands[0])
    return pc.negate_checked(operands[0])


def _direct(function: Callable[..., pa.Array]) -> Kernel:
    return lambda _, operands: function(*operands)


def _folded(function: Callable[[Operand, Operand], pa.Array]) -> Kernel:
    def kernel(_: Apply, operands: Sequence[Operand]) -> pa.Array:
        result = operands[0]
        for operand in operands[1:]:
            result = function(result, operand)
        return result

    return kernel


def _same(left: Operand, right: Operand) -> pa.Array:
    """Return whether two values are equal or both NULL."""
    equal = pc.coalesce(pc.equal(left, right), pa.scalar(False))
    return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


def _in(node: Apply, operands: Sequence[Operand]) -> pa.Array:
    item, options = operands[0], operands[1:]
    if types.is_floating(item.type) or not all(isinstance(o, pa.Scalar) for o in options):
        result = pc.equal(item, options[0])
        for option in options[1:]:
            result = pc.or_kleene(result, pc.equal(item, option))
        return result
    known = pa.array([o.as_py() for o in options if o.is_valid], type=item.type)
    found = pc.is_in(item, value_set=known)
    if len(known) < len(options):
        found = pc.if_else(found, True, pa.scalar(None, pa.bool_()))
    return pc.if_else(pc.is_valid(item), found, pa.scalar(None, pa.bool_()))


def _like(node: Apply, operands: Sequence[Operand]) -> pa.Array:
    column, given = operands[0], _constants(operands[1:])
    pieces = like_pieces(*given)
    filled = [number for number, piece in enumerate(pieces) if piece]
    if len(filled) > 1 or any(None in piece for piece in pieces):
        return _like_several(column, pieces)
    text = "".join(sign or "" for piece in pieces for sign in piece)
    if len(pieces) == 1:
        return pc.equal(column, pa.scalar(text, column.type))
    if filled == [0]:
        return pc.starts_with(column, text)
    last = filled == [len(pieces) - 1]
    return pc.ends_with(column, text) if last else pc.match_substring(column, text)


def _like_several(column: Operand, pieces: tuple[Piece, ...]) -> pa.Array:
    if sum(map(len, pieces)) + len(pieces) > _MOST_IN_RE2:
        raise _unsuitable("a long pattern")
    written = (
        "".join("." if sign is None else re.escape(sign) for sign in piece) for piece in pieces
    )
    return pc.match_substring_regex(column, f"^(?s:{'.*'.join(written)})$")


def _constants(operands: Sequence[Operand]) -> list[Any]:
    """Return the values of operands that must be the same for all rows."""
    if not all(isinstance(operand, pa.Scalar) and operand.is_valid for operand in operands):
        raise _unsuitable("only constants")
    return [operand.as_py() for operand in operands]


def _found(_: Apply, operands: Sequence[Operand]) -> pa.Array:
    (pattern,) = _constants(operands[1:])
    named_groups(pattern)
    _check_steps(search_steps(_longest(operands[0]), pattern), pattern)
    return pc.match_substring_regex(operands[0], pattern)


def _extracted(_: Apply, operands: Sequence[Operand]) -> pa.Array:
    pattern, group = (*_constants(operands[1:]), 0)[:2]
    named, last = named_groups(pattern)
    if not 0 <= group <= last:
        raise _unsuitable("no such group")
    _check_steps(search_steps(_longest(operands[0]), pattern), pattern)
    return pc.struct_field(pc.extract_regex(operands[0], named), f"g{group}")


def _replaced(_: Apply, operands: Sequence[Operand]) -> pa.Array:
    column = operands[0]
    pattern, replacement = (*_constants(operands[1:]), "")[:2]
    longest = _longest(column)
    _check_steps(replacement_steps(longest, pattern), pattern)
    # A text may have so many parts; the row evaluator counts them where that is too much.
    most = replaced_length(longest, longest + 1, replacement)
    if most > MOST_CHARACTERS or most * len(column) > MOST_TEXT:
        raise _unsuitable("long texts")
    return pc.replace_substring_regex(column, pattern, replacement_template(replacement))


def _longest(column: Operand) -> int:
    return pc.max(pc.utf8_length(column)).as_py() or 0


def _check_steps(steps: int, pattern: str) -> None:
    if steps > MOST_STEPS or pattern_parts(pattern) > MOST_PARTS_IN_COLUMNS:
        raise _unsuitable("a search that may take long")


def _case(node: Apply, operands: Sequence[Operand]) -> pa.Array:
    length = next(len(operand) for operand in operands if isinstance(operand, pa.Array))
    conditions = [_repeated(condition, length) for condition in operands[0 : len(operands) - 1 : 2]]
    outcomes = list(operands[1::2])
    otherwise = operands[-1] if len(operands) % 2 else pa.scalar(None, node.type)
    names = [str(position) for position in range(len(conditions))]
    chosen = pa.StructArray.from_arrays(conditions, names=names)
    return pc.case_when(chosen, *(_repeated(o, length) for o in (*outcomes, otherwise)))


def _repeated(operand: Operand, length: int) -> pa.Array:
    return pa.repeat(operand, length) if isinstance(operand, pa.Scalar) else operand


def _cast(node: Apply, operands: Sequence[Operand]) -> pa.Array:
    source, target = operands[0].type, node.type
    if types.is_integer(source) or pa.types.is_boolean(source):
        if types.is_floating(target):
            return operands[0].cast(target, safe=False)
        if types.is_integer(target) or types.is_decimal(target):
            return operands[0].cast(target)
    if pa.types.is_float32(source) and pa.types.is_float64(target):
        return operands[0].cast(target)
    if types.is_decimal(source) and types.is_decimal(target) and source.scale <= target.scale:
        return operands[0].cast(target)
    stamps = pa.types.is_timestamp(source) and pa.types.is_timestamp(target)
    if stamps and (source.tz is None) == (target.tz is None):
        return operands[0].cast(target)
    if pa.types.is_date(source) and pa.types.is_timestamp(target) and target.tz is None:
        return operands[0].cast(target)
    if pa.types.is_duration(source) and pa.types.is_duration(target):
        return operands[0].cast(target)
    raise _unsuitable("Arrow's rules of this cast are not SQL's")


def _joined(node: Apply, operands: Sequence[Operand]) -> pa.Array:
    if not types.is_string(node.type):
        raise _unsuitable("only text")
    parts = [operand.cast(node.type) for operand in operands]
    longest = sum(map(_longest, parts))
    most = longest * max(len(part) for part in parts if isinstance(part, pa.Array))
    if longest > MOST_CHARACTERS or most > MOST_TEXT:
        raise _unsuitable("long texts")
    return pc.binary_join_element_wise(*parts, pa.scalar("", node.type))


def _numbers_only(function: Callable[..., pa.Array]) -> Kernel:
    def kernel(node: Apply, operands: Sequence[Operand]) -> pa.Array:
        if not (types.is_integer(node.type) or types.is_floating(node.type)):
            raise _unsuitable("only integers and floats")
        return function(*operands)

    return kernel


def _constant_second(function: Callable[..., pa.Array]) -> Kernel:
    """Text functions whose second argument Arrow takes as an option."""

    def kernel(_: Apply, operands: Sequence[Operand]) -> pa.Array:
        sought = operands[1]
        if not (isinstance(sought, pa.Scalar) and sought.is_valid):
            raise _unsuitable("only a constant")
        if not types.is_string(operands[0].type):
            raise _unsuitable("only text")
        return function(operands[0], sought.as_py())

    return kernel


def _part(function: Callable[..., pa.Array]) -> Kernel:
    def kernel(node: Apply, operands: Sequence[Operand]) -> pa.Array:
        if pa.types.is_timestamp(operands[0].type) and operands[0].type.tz:
            _check_years(operands[0])
        return function(operands[0]).cast(node.type)

    return kernel


def _square_root(_: Apply, operands: Sequence[Operand]) -> pa.Array:
    with np.errstate(invalid="ignore"):
        return pc.sqrt(operands[0])


KERNELS: dict[str, Kernel] = {
    "+": _arithmetic(pc.add_checked, pc.add),
    "-": _arithmetic(pc.subtract_checked, pc.subtract),
    "*": _arithmetic(pc.multiply_checked, pc.multiply),
    "/": _divide,
    "div": _divide,
    "%": _remainder,
    "negate": _negate,
    "=": _direct(pc.equal),
    "<>": _direct(pc.not_equal),
    "<": _direct(pc.less),
    "<=": _direct(pc.less_equal),
    ">": _direct(pc.greater),
    ">=": _direct(pc.greater_equal),
    "is distinct from": lambda _, operands: pc.invert(_same(*operands)),
    "is not distinct from": lambda _, operands: _same(*operands),
    "and": _folded(pc.and_kleene),
    "or": _folded(pc.or_kleene),
    "not": _direct(pc.invert),
    "is null": _direct(pc.is_null),
    "in": _in,
    "like": _like,
    "case": _case,
    "coalesce": _direct(pc.coalesce),
    # Where the argument fails, the caller computes it row by row.
    "try": lambda _, operands: operands[0],
    "cast": _cast,
    "||": _joined,
    "abs": _numbers_only(pc.abs_checked),
    "sqrt": _square_root,
    "length": _part(pc.utf8_length),
    "starts_with": _constant_second(pc.starts_with),
    "ends_with": _constant_second(pc.ends_with),
    "contains": _constant_second(pc.match_substring),
    "regexp_like": _found,
    "regexp_extract": _extracted,
    "regexp_replace": _replaced,
    "year": _part(pc.year),
    "month": _part(pc.month),
    "day": _part(pc.day),
    "hour": _part(pc.hour),
    "minute": _part(pc.minute),
    "second": _part(pc.second),
}
