"""Functions of numbers.

`round` takes halves away from zero. Functions outside their domain (`sqrt(-1)`, `ln(0)`) give NaN
or an infinity, as IEEE 754 has it. `greatest` and `least` are NULL if any argument is.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from outpace.errors import DataError
from outpace.pattern import types, values
from outpace.pattern.bound import BoundExpression
from outpace.pattern.functions.aggregate import order_key
from outpace.pattern.functions.signature import (
    Function,
    MismatchError,
    Scalar,
    Signature,
    fixed,
    require,
    returns,
    same_type,
)
from outpace.pattern.types import type_name

#: Wide enough for all digits of a double before its point, and for 38 behind it.
_ROUNDING = decimal.Context(prec=400)


def _same_number(arguments: Sequence[BoundExpression]) -> Signature:
    kind = require(arguments[0], "number", 0)
    return Signature((kind, *(pa.int64() for _ in arguments[1:])), kind)


def _whole(arguments: Sequence[BoundExpression]) -> Signature:
    kind = require(arguments[0], "number", 0)
    if types.is_decimal(kind):
        # Rounding up may need one digit more.
        return Signature((kind,), types.decimal_type(kind.precision - kind.scale + 1, 0))
    return Signature((kind,), kind)


def _absolute(signature: Signature) -> Scalar:
    if types.is_integer(signature.result):
        return lambda value: values.check_integer(abs(value), signature.result)
    # abs() of a decimal would round it to the digits of Python's context.
    return decimal.Decimal.copy_abs if types.is_decimal(signature.result) else abs


def _to_whole(rounding: str, floating: Callable[[float], int]) -> Callable[[Signature], Scalar]:
    def implement(signature: Signature) -> Scalar:
        if types.is_integer(signature.result):
            return lambda value: value
        if types.is_decimal(signature.result):
            return lambda value: value.quantize(
                decimal.Decimal(1), rounding=rounding, context=values.CONTEXT
            )
        return lambda value: float(floating(value)) if math.isfinite(value) else value

    return implement


def _round_rule(arguments: Sequence[BoundExpression]) -> Signature:
    signature = _same_number(arguments)
    if len(arguments) == 2:
        require(arguments[1], "integer", 1)
    kind = signature.result
    if types.is_decimal(kind):
        # 9.99 rounds to 10.00: one digit more.
        return Signature(signature.arguments, types.decimal_type(kind.precision + 1, kind.scale))
    return signature


def _round(signature: Signature) -> Scalar:
    result = signature.result

    def compute(value: Any, digits: int = 0) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return value
        exact = decimal.Decimal(str(value)) if isinstance(value, float) else decimal.Decimal(value)
        if not -38 <= digits <= 38:
            return value if digits > 0 else type(value)(0)
        near = exact
        if exact != exact.to_integral_value() or digits < 0:
            step = decimal.Decimal(1).scaleb(-digits)
            near = exact.quantize(step, rounding=decimal.ROUND_HALF_UP, context=_ROUNDING)
        if types.is_integer(result):
            return values.check_integer(int(near), result)
        if types.is_decimal(result):
            return values.round_decimal(near, result)
        return float(near)

    return compute


def _sign_rule(arguments: Sequence[BoundExpression]) -> Signature:
    kind = require(arguments[0], "number", 0)
    return Signature((kind,), pa.decimal128(1, 0) if types.is_decimal(kind) else kind)


def _sign(value: Any) -> Any:
    if value != value:
        return value
    return type(value)((value > 0) - (value < 0))


def _safely(function: Callable[..., float], domain: float = math.nan) -> Scalar:
    """Turn Python's refusals into what IEEE 754 gives."""

    def compute(*given: float) -> float:
        try:
            return function(*given)
        except ValueError:
            return domain
        except OverflowError:
            return math.inf

    return compute


def _logarithm(function: Callable[[float], float]) -> Scalar:
    return lambda value: -math.inf if value == 0 else _safely(function)(value)


def _power(base: float, exponent: float) -> float:
    if base == 0 and exponent < 0:
        return math.inf
    result = _safely(math.pow)(base, exponent)
    odd = exponent % 2 == 1
    return -math.inf if result == math.inf and base < 0 and odd else float(result)


def _log_of_base(base: float, value: float) -> float:
    numerator, divisor = _logarithm(math.log)(value), _logarithm(math.log)(base)
    return math.nan if divisor == 0 else float(numerator / divisor)


def _extreme_rule(arguments: Sequence[BoundExpression]) -> Signature:
    signature = same_type(arguments)
    if not types.is_ordered(signature.result):
        raise MismatchError(f"{type_name(signature.result)} has no order", 0)
    return signature


def _truncate(signature: Signature) -> Scalar:
    return _to_whole(decimal.ROUND_DOWN, math.trunc)(signature)


def _bucket(value: float, low: float, high: float, count: int) -> int:
    if count < 1 or low == high:
        raise DataError("width_bucket needs two different bounds and at least one bucket")
    share = (value - low) / (high - low)
    if math.isnan(share):
        raise DataError("width_bucket needs numbers that can be compared and divided, not NaN")
    return 0 if share < 0 else count + 1 if share >= 1 else int(share * count) + 1


def _double(name: str, function: Scalar, count: int = 1, *aliases: str) -> Function:
    rule = returns(pa.float64(), "double")
    return Function(name, count, count, rule, fixed(function), aliases)


def _bits(name: str, function: Scalar) -> Function:
    return Function(name, 2, 2, returns(pa.int64(), "integer"), fixed(function))


def _text_double(test: Callable[[float], bool]) -> Function:
    name = test.__name__
    short = name.removeprefix("is")
    aliases = {"nan": ("is_nan",), "inf": ("is_infinite",), "finite": ("is_finite",)}[short]
    return Function(name, 1, 1, returns(pa.bool_(), "double"), fixed(test), aliases)


NUMBERS: tuple[Function, ...] = (
    Function("abs", 1, 1, _same_number, _absolute),
    Function("ceil", 1, 1, _whole, _to_whole(decimal.ROUND_CEILING, math.ceil), ("ceiling",)),
    Function("floor", 1, 1, _whole, _to_whole(decimal.ROUND_FLOOR, math.floor)),
    Function("truncate", 1, 1, _whole, _truncate, ("trunc",)),
    Function("round", 1, 2, _round_rule, _round),
    Function("sign", 1, 1, _sign_rule, fixed(_sign), ("signum",)),
    _double("sqrt", _safely(math.sqrt)),
    _double("cbrt", math.cbrt),
    _double("power", _power, 2, "pow"),
    _double("exp", _safely(math.exp)),
    _double("ln", _logarithm(math.log)),
    _double("log", _log_of_base, 2),
    _double("log2", _logarithm(math.log2)),
    _double("log10", _logarithm(math.log10)),
    _double("sin", _safely(math.sin)),
    _double("cos", _safely(math.cos)),
    _double("tan", _safely(math.tan)),
    _double("asin", _safely(math.asin)),
    _double("acos", _safely(math.acos)),
    _double("atan", math.atan),
    _double("atan2", math.atan2, 2),
    _double("degrees", math.degrees),
    _double("radians", math.radians),
    Function("pi", 0, 0, returns(pa.float64(), "double"), fixed(lambda: math.pi)),
    Function("e", 0, 0, returns(pa.float64(), "double"), fixed(lambda: math.e)),
    _text_double(math.isnan),
    _text_double(math.isinf),
    _text_double(math.isfinite),
    Function(
        "width_bucket",
        4,
        4,
        lambda given: Signature(
            (
                *(require(argument, "double", i) for i, argument in enumerate(given[:3])),
                require(given[3], "integer", 3),
            ),
            pa.int64(),
        ),
        fixed(_bucket),
    ),
    Function("greatest", 1, None, _extreme_rule, fixed(lambda *given: max(given, key=order_key))),
    Function("least", 1, None, _extreme_rule, fixed(lambda *given: min(given, key=order_key))),
    _bits("bitwise_and", lambda left, right: left & right),
    _bits("bitwise_or", lambda left, right: left | right),
    _bits("bitwise_xor", lambda left, right: left ^ right),
)
