"""The arithmetic operators, of numbers, dates, timestamps and intervals.

Division by zero gives NULL. An integer result that does not fit its type is a `DataError`. Decimals
follow Trino's rules of precision and scale, except that `/` gives the scale that Spark gives. Spark
computes only floats: what it does on overflow depends on its settings, and it fails on division by
zero.
"""

from __future__ import annotations

import datetime
import decimal
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from outpace.errors import DataError
from outpace.pattern import types, values
from outpace.pattern.bound import Apply, BoundExpression, Constant
from outpace.pattern.functions.function import (
    ArrowKernel,
    ArrowOperand,
    Code,
    Compile,
    CompiledType,
    Function,
    MismatchError,
    Signature,
    Term,
    Uncompilable,
    ValueFunction,
    all_known,
    infix,
    of_floats,
    require,
    unify,
    unsuitable,
)
from outpace.pattern.functions.time import DAY, FIRST_TIME, LAST_TIME, check_years
from outpace.pattern.types import type_name

#: The greatest power of ten that compiled code multiplies with to bring decimals to one scale.
_POWER_MAX: Final = 15

#: Intervals of fewer microseconds are exact as doubles, and so is half of one.
_EXACT_INTERVAL: Final = 1 << 52

#: An interval is a number of microseconds of 64 bits.
_LONGEST = datetime.timedelta(microseconds=(1 << 63) - 1)


def _rule(symbol: str) -> Callable[[Sequence[BoundExpression]], Signature]:
    def resolve(arguments: Sequence[BoundExpression]) -> Signature:
        left, right = (argument.type for argument in arguments)
        if types.is_temporal(left) or types.is_temporal(right):
            found = _temporal_signature(symbol, arguments[0], arguments[1])
            if found is None:
                pair = f"{type_name(left)} and {type_name(right)}"
                raise MismatchError(f"'{symbol}' has no meaning for {pair}")
            return found
        for position, kind in enumerate((left, right)):
            if not (types.is_numeric(kind) or pa.types.is_null(kind)):
                raise MismatchError(f"expected a number, found {type_name(kind)}", position)
        return _number_signature(symbol, arguments)

    return resolve


def _number_signature(symbol: str, arguments: Sequence[BoundExpression]) -> Signature:
    left, right = (argument.type for argument in arguments)
    common = types.common_type(left, right)
    if common is None or pa.types.is_null(common):
        common = pa.int32() if symbol != "/" else pa.float64()
    if pa.uint64() in (left, right) and types.is_decimal(common):
        # An integer literal beside an unsigned column does not make it a decimal.
        common = unify(arguments)
    if symbol == "/" and types.is_integer(common):
        common = pa.float64()
    if not types.is_decimal(common):
        return Signature((common, common), common)
    first = types.as_decimal(right if pa.types.is_null(left) else left)
    second = types.as_decimal(left if pa.types.is_null(right) else right)
    return Signature((first, second), _decimal_result(symbol, first, second))


def _decimal_result(symbol: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    scale = max(s1, s2)
    match symbol:
        case "+" | "-":
            return types.decimal_type(1 + scale + max(p1 - s1, p2 - s2), scale)
        case "*":
            return types.decimal_type(p1 + p2, s1 + s2)
        case "div":
            return types.decimal_type(p1 + s2 + max(0, s2 - s1), scale)
        case "/":
            wide = max(6, s1 + p2 + 1)
            whole = p1 - s1 + s2
            # Where 38 digits do not suffice, the whole part is kept and at least six decimals.
            kept = min(wide, max(types.MAX_PRECISION - whole, min(wide, 6)))
            return types.decimal_type(whole + kept, kept)
        case _:
            return types.decimal_type(min(p1 - s1, p2 - s2) + scale, scale)


def _temporal_signature(
    symbol: str, left: BoundExpression, right: BoundExpression
) -> Signature | None:
    first, second = left.type, right.type
    interval = types.INTERVAL
    if symbol in ("+", "-") and types.is_instant(first) and pa.types.is_duration(second):
        result = _moved_type(first, right)
        return Signature((result, interval), result)
    if symbol == "+" and pa.types.is_duration(first) and types.is_instant(second):
        result = _moved_type(second, left)
        return Signature((interval, result), result)
    if symbol in ("+", "-") and pa.types.is_date(first) and types.is_integer(second):
        return Signature((pa.date32(), pa.int64()), pa.date32())
    if symbol == "-" and types.is_instant(first) and types.is_instant(second):
        common = types.common_type(first, second)
        return None if common is None else Signature((common, common), interval)
    if not (pa.types.is_duration(first) or pa.types.is_duration(second)):
        return None
    if symbol in ("+", "-") and pa.types.is_duration(first) and pa.types.is_duration(second):
        return Signature((interval, interval), interval)
    if symbol in ("*", "/") and types.is_numeric(second):
        return Signature((interval, pa.float64()), interval)
    if symbol == "*" and types.is_numeric(first):
        return Signature((pa.float64(), interval), interval)
    return None


def _moved_type(kind: pa.DataType, interval: BoundExpression) -> pa.DataType:
    """A date moved by whole days stays a date; by anything else it becomes a timestamp."""
    if pa.types.is_timestamp(kind):
        return kind
    value = interval.value if isinstance(interval, Constant) else None
    # The caller has made sure that the constant is an interval.
    whole_days = value is not None and not (value.seconds or value.microseconds)  # type: ignore[union-attr]
    return pa.date32() if whole_days else types.TIMESTAMP


def _moving(symbol: str) -> Callable[[Signature], ValueFunction]:
    """Implement `+`, `-` and `*` for numbers, dates, timestamps and intervals."""
    plain = {"+": operator.add, "-": operator.sub, "*": operator.mul}[symbol]

    def implement(signature: Signature) -> ValueFunction:
        first, second = signature.arguments
        if pa.types.is_date(first) and types.is_integer(second):
            return lambda a, b: _guarded(plain, a, datetime.timedelta(days=b))
        if types.is_instant(first) and types.is_instant(second):
            return lambda a, b: a - b
        return _rounded(plain, signature.result)

    return implement


def _guarded(function: ValueFunction, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (OverflowError, ValueError) as problem:
        # A timedelta times NaN is a ValueError.
        raise DataError("a date or interval is out of range") from problem


#: What rounds decimals to the digits of Python's context, and what does not.
_EXACT: dict[ValueFunction, ValueFunction] = {
    operator.add: values.CONTEXT.add,
    operator.sub: values.CONTEXT.subtract,
    operator.mul: values.CONTEXT.multiply,
    operator.neg: decimal.Decimal.copy_negate,
}


def _rounded(function: ValueFunction, result: pa.DataType) -> ValueFunction:
    """Give a function's result the precision of its type."""
    if types.is_integer(result):
        return lambda *given: values.check_integer(function(*given), result)
    if types.is_decimal(result):
        exact = _EXACT.get(function, function)
        return lambda *given: values.round_decimal(exact(*given), result)
    if pa.types.is_float32(result):
        return lambda *given: values.round_float32(function(*given))
    if pa.types.is_duration(result):
        return lambda *given: _fitting(_guarded(function, *given))
    if types.is_temporal(result):
        return lambda *given: _guarded(function, *given)
    return function


def _fitting(interval: datetime.timedelta) -> datetime.timedelta:
    if not -_LONGEST < interval < _LONGEST:
        raise DataError("a date or interval is out of range")
    return interval


def _truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _divide(signature: Signature) -> ValueFunction:
    result = signature.result
    if types.is_integer(result):
        quotient: ValueFunction = _truncated
    elif types.is_decimal(result):
        quotient = values.CONTEXT.divide
    else:
        quotient = operator.truediv
    exact = _rounded(quotient, result)
    return lambda left, right: None if right == 0 else exact(left, right)


def _remainder(signature: Signature) -> ValueFunction:
    result = signature.result
    if types.is_integer(result):
        return lambda left, right: (
            None if right == 0 else int(math.copysign(1, left)) * (abs(left) % abs(right))
        )
    if types.is_decimal(result):
        return lambda left, right: (
            None
            if right == 0
            else values.round_decimal(values.CONTEXT.remainder(left, right), result)
        )
    return lambda left, right: None if right == 0 else _float_remainder(left, right)


def _float_remainder(left: float, right: float) -> float:
    return math.nan if math.isinf(left) else math.fmod(left, right)


def _negation(arguments: Sequence[BoundExpression]) -> Signature:
    kind = arguments[0].type
    if not pa.types.is_duration(kind):
        kind = require(arguments[0], "number", 0)
    if kind in (pa.uint8(), pa.uint16(), pa.uint32()):
        kind = pa.int64()
    if kind == pa.uint64():
        kind = pa.decimal128(20, 0)
    return Signature((kind,), kind)


def _moved_columns(checked: Any, plain: Any) -> ArrowKernel:
    """Integers, timestamps and intervals are checked for overflow; floats follow IEEE 754."""

    def kernel(node: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
        if types.is_floating(node.type):
            return plain(*operands)
        if any(pa.types.is_date(argument.type) for argument in node.arguments):
            raise unsuitable("dates are moved by whole days")
        result = checked(*operands)
        if types.is_decimal(node.type) and result.type.scale == node.type.scale:
            # Arrow leaves room for a digit that no product has.
            result = result.cast(node.type)
        if result.type != node.type:
            raise unsuitable("another precision or unit")
        if pa.types.is_timestamp(node.type):
            check_years(result)
        return result

    return kernel


def _without_zero(divisor: ArrowOperand) -> ArrowOperand:
    """Turn zeros into NULL, because dividing by zero gives NULL."""
    if isinstance(divisor, pa.Scalar):
        return pa.scalar(None, divisor.type) if divisor.as_py() == 0 else divisor
    return pc.if_else(pc.equal(divisor, pa.scalar(0, divisor.type)), None, divisor)


def _divided_columns(node: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
    if not (types.is_integer(node.type) or types.is_floating(node.type)):
        raise unsuitable("decimals and intervals are rounded")
    divide = pc.divide if types.is_floating(node.type) else pc.divide_checked
    return divide(operands[0], _without_zero(operands[1]))


def _remainder_columns(node: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
    if not types.is_integer(node.type):
        raise unsuitable("only integers")
    left, right = operands[0], _without_zero(operands[1])
    return pc.subtract_checked(left, pc.multiply_checked(pc.divide_checked(left, right), right))


def _negated_column(node: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
    if types.is_floating(node.type):
        return pc.negate(operands[0])
    return pc.negate_checked(operands[0])


def _compiled(symbol: str) -> Compile:
    """Write code for what is held as numbers; what wraps around or loses digits is the twin's."""

    def write(code: Code, node: Apply, terms: Sequence[Term]) -> Term:
        left, right = terms
        known = all_known(left, right)
        if node.type in (pa.float64(), pa.float32()):
            return _compiled_floats(code, symbol, node, terms, known)
        if symbol == "*" and pa.types.is_duration(node.type):
            return _compiled_interval(code, terms, known)
        # Of a negation there is one argument, beside zero.
        first, second = node.arguments[0].type, node.arguments[-1].type
        factors = _factors(symbol, first, second, node.type)
        # What wraps around cannot be seen afterwards, so operands that could are left to the twin.
        if symbol == "*":
            code.product_within(left.value, right.value)
        else:
            for part, factor in zip(terms, factors, strict=True):
                code.within(part.value, (1 << 62) // factor)
        parts = [
            part.value if factor == 1 else f"{part.value} * {factor}"
            for part, factor in zip(terms, factors, strict=True)
        ]
        term = code.line(f"{parts[0]} {symbol} {parts[1]}", known, CompiledType.INTEGER)
        if (bounds := _bounds(node.type)) is not None:
            low, high = bounds
            code.lines.append(
                f"if {known} and ({term.value} > {high} or {term.value} < {low}): return -1"
            )
        return term

    return write


def _factors(
    symbol: str, first: pa.DataType, second: pa.DataType, result: pa.DataType
) -> tuple[int, int]:
    """Return what operands, as they are held, are multiplied by to give a result as it is held."""
    moving = symbol in ("+", "-")
    if types.is_integer(result) and first == second == result and symbol != "/":
        return 1, 1
    if types.is_decimal(first) and types.is_decimal(second) and types.is_decimal(result):
        if symbol == "*" and result.scale == first.scale + second.scale:
            return 1, 1
        powers = result.scale - first.scale, result.scale - second.scale
        if moving and min(powers) >= 0 and max(powers) <= _POWER_MAX:
            return int(10 ** powers[0]), int(10 ** powers[1])
    if moving and pa.types.is_duration(result):
        if pa.types.is_duration(first) and first == second:
            return 1, 1
        if types.is_instant(first) and first == second:
            return (DAY, DAY) if pa.types.is_date(first) else (1, 1)
    timed = pa.types.is_timestamp(result) and result in (first, second)
    if moving and timed and types.INTERVAL in (first, second):
        return 1, 1
    if moving and pa.types.is_date(first) and types.is_integer(second):
        return 1, 1
    raise Uncompilable


def _bounds(kind: pa.DataType) -> tuple[int, int] | None:
    """Return between which numbers a value of a type lies surely where it is held as one."""
    if types.is_integer(kind):
        return types.integer_range(kind)
    if pa.types.is_timestamp(kind):
        return FIRST_TIME, LAST_TIME
    if pa.types.is_date(kind):
        return FIRST_TIME // DAY + 1, LAST_TIME // DAY
    return None


def _compiled_floats(
    code: Code, symbol: str, node: Apply, terms: Sequence[Term], known: str
) -> Term:
    for term in terms:
        if term.kind is CompiledType.INTEGER:
            code.exact(term.value)
    first, second = (f"float({term.value})" for term in terms)
    text = f"{first} {symbol} {second}"
    if symbol in ("/", "%"):
        known, divisor = _apart(code, terms[1], known)
        text = f"{first} / {divisor}" if symbol == "/" else f"remainder({first}, {divisor})"
    if node.type == pa.float32():
        text = f"float(float32({text}))"
    return code.line(text, known, CompiledType.FLOAT)


def _apart(code: Code, divisor: Term, known: str) -> tuple[str, str]:
    """Return whether a quotient is known, and a divisor that is not 0 where it is not."""
    apart = code.line(f"{divisor.value} != 0", "True", CompiledType.BOOLEAN).value
    return f"{known} and {apart}", f"({divisor.value} if {apart} else 1)"


def _compiled_interval(code: Code, terms: Sequence[Term], known: str) -> Term:
    """Write an interval times a number."""
    terms = sorted(terms, key=lambda term: term.kind is CompiledType.FLOAT)
    interval, number = (term.value for term in terms)
    code.exact(interval)
    code.lines.append(f"if not abs({interval} * {number}) < {float(_EXACT_INTERVAL)}: return -1")
    return code.line(f"times_so_many({interval}, {number})", known, CompiledType.INTEGER)


def _compiled_remainder(code: Code, node: Apply, terms: Sequence[Term]) -> Term:
    if types.is_floating(node.type):
        return _compiled("%")(code, node, terms)
    first, second = (argument.type for argument in node.arguments)
    factors = _factors("-", first, second, node.type)
    for term, factor in zip(terms, factors, strict=True):
        code.within(term.value, (1 << 62) // factor)
    known, divisor = _apart(code, terms[1], all_known(*terms))
    left, right = f"{terms[0].value} * {factors[0]}", f"abs({divisor} * {factors[1]})"
    text = f"(1 if {terms[0].value} >= 0 else -1) * (abs({left}) % {right})"
    return code.line(text, known, CompiledType.INTEGER)


def _compiled_quotient(code: Code, node: Apply, terms: Sequence[Term]) -> Term:
    if not types.is_integer(node.type):
        raise Uncompilable
    for term in terms:
        code.within(term.value, 1 << 62)
    known, divisor = _apart(code, terms[1], all_known(*terms))
    left = terms[0].value
    term = code.line(
        f"(1 if ({left} < 0) == ({divisor} < 0) else -1) * (abs({left}) // abs({divisor}))",
        known,
        CompiledType.INTEGER,
    )
    code.lines.append(
        f"if {known} and {term.value} > {types.integer_range(node.type)[1]}: return -1"
    )
    return term


def _compiled_negation(code: Code, node: Apply, terms: Sequence[Term]) -> Term:
    return _compiled("-")(code, node, [Term("0", "True", terms[0].kind), *terms])


ARITHMETIC: tuple[Function, ...] = (
    Function("+", 2, 2, _rule("+"), _moving("+"),
             "the sum; a time later by an interval, or a date by days", "1 + 2 = 3",
             arrow=_moved_columns(pc.add_checked, pc.add),
             numba=_compiled("+"), catalyst=of_floats(infix("+"))),
    Function("-", 2, 2, _rule("-"), _moving("-"),
             "the difference; an earlier time; the interval between two",
             "date '2024-03-01' - 1 = date '2024-02-29'",
             arrow=_moved_columns(pc.subtract_checked, pc.subtract),
             numba=_compiled("-"), catalyst=of_floats(infix("-"))),
    Function("*", 2, 2, _rule("*"), _moving("*"),
             "the product; an interval so many times", "2 * 1.5 = 3",
             arrow=_moved_columns(pc.multiply_checked, pc.multiply),
             numba=_compiled("*"), catalyst=of_floats(infix("*"))),
    Function("/", 2, 2, _rule("/"), _divide,
             "the quotient, of integers a double; NULL where the divisor is 0", "7 / 2 = 3.5",
             arrow=_divided_columns, numba=_compiled("/")),
    Function("div", 2, 2, _rule("div"), _divide,
             "the quotient, of integers without its fraction", "-7 div 2 = -3",
             arrow=_divided_columns, numba=_compiled_quotient),
    Function("%", 2, 2, _rule("%"), _remainder,
             "the remainder, with the sign of what is divided", "-7 % 3 = -1", ("mod",),
             arrow=_remainder_columns, numba=_compiled_remainder),
    Function("negate", 1, 1, _negation, lambda s: _rounded(operator.neg, s.result),
             "with the other sign, as `-x`", "negate(3) = -3",
             arrow=_negated_column, numba=_compiled_negation,
             catalyst=of_floats(lambda _, parts: f"(- {parts[0]})")),
)  # fmt: skip
