"""Arrow kernels for functions and operators, where Arrow's meaning is SQL's.

Each takes the node and its operands (arrays, or scalars for constants) and returns an array. A
kernel may raise Arrow's errors: the caller then computes row by row, which either succeeds or
raises the error that the user sees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.pattern import types
from outpace.pattern.bound import Apply
from outpace.pattern.functions_operator import like_expression

Operand: TypeAlias = "pa.Array | pa.Scalar"
Kernel = Callable[[Apply, Sequence[Operand]], pa.Array]


def _unsuitable(reason: str) -> pa.ArrowNotImplementedError:
    return pa.ArrowNotImplementedError(reason)


def _arithmetic(checked: Any, plain: Any) -> Kernel:
    """Integers, timestamps and intervals are checked for overflow; floats follow IEEE 754."""

    def kernel(node: Apply, operands: Sequence[Operand]) -> pa.Array:
        if types.is_floating(node.type):
            return plain(*operands)
        if any(pa.types.is_date(argument.type) for argument in node.arguments):
            raise _unsuitable("dates are moved by whole days")
        result = checked(*(_in_microseconds(operand) for operand in operands))
        if types.is_temporal(node.type):
            return result.cast(node.type)
        if result.type != node.type:
            raise _unsuitable("another precision or unit")
        return result

    return kernel


def _in_microseconds(operand: Operand) -> Operand:
    """Bring timestamps and intervals to the unit in which expressions count time."""
    kind = operand.type
    if pa.types.is_timestamp(kind) and kind.unit != "us":
        return operand.cast(pa.timestamp("us", kind.tz), safe=False)
    if pa.types.is_duration(kind) and kind.unit != "us":
        return operand.cast(pa.duration("us"), safe=False)
    return operand


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
    pattern = operands[1]
    if len(operands) == 3 or not isinstance(pattern, pa.Scalar) or not pattern.is_valid:
        raise _unsuitable("only a constant pattern")
    text = pattern.as_py()
    core = text.strip("%")
    if "%" not in core and "_" not in core:
        return _like_simple(operands[0], text, core)
    whole = f"^(?s:{like_expression(text).pattern})$"
    return pc.match_substring_regex(operands[0], whole)


def _like_simple(column: Operand, text: str, core: str) -> pa.Array:
    """Match patterns whose percent signs are only at the ends."""
    if text == core:
        return pc.equal(column, pa.scalar(core, column.type))
    if not core or (text[0] == "%" and text[-1] == "%"):
        return pc.match_substring(column, core)
    return pc.ends_with(column, core) if text[0] == "%" else pc.starts_with(column, core)


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
    return lambda node, operands: function(operands[0]).cast(node.type)


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
    "year": _part(pc.year),
    "month": _part(pc.month),
    "day": _part(pc.day),
    "hour": _part(pc.hour),
    "minute": _part(pc.minute),
    "second": _part(pc.second),
}
