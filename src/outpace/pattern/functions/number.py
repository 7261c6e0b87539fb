"""Functions of numbers.

`round` takes halves away from zero. Functions outside their domain (`sqrt(-1)`, `ln(0)`) give NaN
or an infinity, as IEEE 754 has it. `greatest` and `least` are NULL if any argument is.
"""

from __future__ import annotations

import decimal
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.errors import DataError
from outpace.pattern import types, values
from outpace.pattern.bound import Apply, BoundExpression, Constant
from outpace.pattern.functions.aggregate import order_key
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
    called,
    compiled_as,
    fixed,
    of_floats,
    require,
    returns,
    same_type,
    unsuitable,
)
from outpace.pattern.types import type_name

_FLOAT = pa.float64()

#: Compiled code rounds doubles to so many digits, where they are less than this without a point.
_DIGITS, _ROUNDED = 12, 1e13

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


def _absolute(signature: Signature) -> ValueFunction:
    if types.is_integer(signature.result):
        return lambda value: values.check_integer(abs(value), signature.result)
    # abs() of a decimal would round it to the digits of Python's context.
    return decimal.Decimal.copy_abs if types.is_decimal(signature.result) else abs


def _absolute_column(node: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
    if not (types.is_integer(node.type) or types.is_floating(node.type)):
        raise unsuitable("only integers and floats")
    return pc.abs_checked(*operands)


def _compiled_absolute(code: Code, node: Apply, terms: Sequence[Term]) -> Term:
    (term,) = terms
    if types.is_integer(node.type):
        code.lines.append(f"if {term.value} < -{types.integer_range(node.type)[1]}: return -1")
    return code.line(f"abs({term.value})", term.known, term.kind)


def _compiled_whole(name: str, of_digits: str) -> Compile:
    """Return what writes a function that rounds; `of_digits` does it with a decimal's last ones."""

    def write(code: Code, node: Apply, terms: Sequence[Term]) -> Term:
        (term,), kind = terms, node.arguments[0].type
        if types.is_integer(kind):
            return term
        text = f"{name}({term.value}) + 0.0"
        if types.is_decimal(kind):
            text = of_digits.format(term.value, 10**kind.scale)
        return code.line(text, term.known, term.kind)

    return write


def _compiled_round(code: Code, node: Apply, terms: Sequence[Term]) -> Term:
    term, digits = terms[0], node.arguments[1] if len(node.arguments) == 2 else None
    kind, count = node.type, 0
    if digits is not None:
        if not (isinstance(digits, Constant) and type(digits.value) is int):
            raise Uncompilable
        count = digits.value
    if types.is_integer(kind) and 0 <= count <= _DIGITS:
        return term
    if types.is_decimal(kind) and 0 <= count <= _DIGITS:
        if count >= kind.scale:
            return term
        step = 10 ** (kind.scale - count)
        code.within(term.value, 1 << 61)
        near = f"(2 * abs({term.value}) + {step}) // {2 * step} * {step}"
        return code.line(f"{near} if {term.value} >= 0 else -({near})", term.known, term.kind)
    if not pa.types.is_float64(kind) or not 0 <= count <= _DIGITS:
        raise Uncompilable
    power = float(10**count)
    code.lines.append(
        f"if {term.known} and isfinite({term.value})"
        f" and not abs({term.value}) < {_ROUNDED / power}: return -1"
    )
    return code.line(f"round_to({term.value}, {power!r})", term.known, term.kind)


def _compiled_sign(code: Code, _: Apply, terms: Sequence[Term]) -> Term:
    (term,) = terms
    one, value = ("1.0" if term.kind is CompiledType.FLOAT else "1"), term.value
    text = f"{one} if {value} > 0 else (-{one} if {value} < 0 else {value})"
    return code.line(text, term.known, term.kind)


def _compiled_extreme(sign: str) -> Compile:
    """Return what writes `greatest` or `least`; NaN is greater than all numbers."""

    def write(code: Code, _: Apply, terms: Sequence[Term]) -> Term:
        found, kind = terms[0].value, terms[0].kind
        if any(term.kind is not kind for term in terms):
            raise Uncompilable
        for term in terms[1:]:
            unordered = found if sign == ">=" else term.value
            test = f"{found} {sign} {term.value} or {unordered} != {unordered}"
            found = code.line(f"{found} if {test} else {term.value}", "True", kind).value
        return Term(found, all_known(*terms), kind)

    return write


def _to_whole(
    rounding: str, floating: Callable[[float], int]
) -> Callable[[Signature], ValueFunction]:
    def implement(signature: Signature) -> ValueFunction:
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


def _round(signature: Signature) -> ValueFunction:
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


def _safely(function: Callable[..., float]) -> ValueFunction:
    """Turn Python's refusals into what IEEE 754 gives."""

    def compute(*given: float) -> float:
        try:
            return function(*given)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return compute


def _logarithm(function: Callable[[float], float]) -> ValueFunction:
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


def _bucket(value: float, low: float, high: float, count: int) -> int:
    if count < 1 or low == high:
        raise DataError("width_bucket needs two different bounds and at least one bucket")
    share = (value - low) / (high - low)
    if math.isnan(share):
        raise DataError("width_bucket needs numbers that can be compared and divided, not NaN")
    return 0 if share < 0 else count + 1 if share >= 1 else int(share * count) + 1


def _bucket_rule(given: Sequence[BoundExpression]) -> Signature:
    bounds = (require(argument, "double", i) for i, argument in enumerate(given[:3]))
    return Signature((*bounds, require(given[3], "integer", 3)), pa.int64())


def _root_column(_: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
    with np.errstate(invalid="ignore"):
        return pc.sqrt(operands[0])


def _double(
    name: str, python: ValueFunction, about: str, example: str, *aliases: str,
    count: int = 1, result: pa.DataType = _FLOAT, arrow: ArrowKernel | None = None,
    numba: str | None = None,
) -> Function:  # fmt: skip
    rule = returns(result, "double")
    kind = CompiledType.BOOLEAN if pa.types.is_boolean(result) else CompiledType.FLOAT
    written = compiled_as(numba or f"{name}({', '.join(['{}'] * count)})", kind)
    return Function(
        name, count, count, rule, fixed(python), about, example, aliases,
        arrow=arrow, numba=None if numba == "" else written,
    )  # fmt: skip


def _bits(name: str, sign: str, python: ValueFunction, about: str, example: str) -> Function:
    rule = returns(pa.int64(), "integer")
    written = compiled_as(f"{{}} {sign} {{}}", CompiledType.INTEGER)
    return Function(name, 2, 2, rule, fixed(python), about, example, numba=written)


NUMBERS: tuple[Function, ...] = (
    Function("abs", 1, 1, _same_number, _absolute, "without its sign", "abs(-3) = 3",
             arrow=_absolute_column, numba=_compiled_absolute, catalyst=of_floats(called("abs"))),
    Function("ceil", 1, 1, _whole, _to_whole(decimal.ROUND_CEILING, math.ceil),
             "the next whole number up", "ceil(1.2) = 2", ("ceiling",),
             numba=_compiled_whole("ceil", "-(-{0} // {1})")),
    Function("floor", 1, 1, _whole, _to_whole(decimal.ROUND_FLOOR, math.floor),
             "the next whole number down", "floor(-1.2) = -2",
             numba=_compiled_whole("floor", "{0} // {1}")),
    Function("truncate", 1, 1, _whole, _to_whole(decimal.ROUND_DOWN, math.trunc),
             "without the fraction", "truncate(-1.7) = -1", ("trunc",),
             numba=_compiled_whole("trunc", "abs({0}) // {1} * (1 if {0} >= 0 else -1)")),
    Function("round", 1, 2, _round_rule, _round,
             "to n decimals (0); halves away from zero", "round(2.45, 1) = 2.5",
             numba=_compiled_round),
    Function("sign", 1, 1, _sign_rule, fixed(_sign), "-1, 0 or 1", "sign(-7) = -1", ("signum",),
             numba=_compiled_sign),
    _double("sqrt", _safely(math.sqrt), "square root", "sqrt(9) = 3", arrow=_root_column),
    _double("cbrt", math.cbrt, "cube root", "round(cbrt(27)) = 3", numba=""),
    _double("power", _power, "x to the y", "power(2, 3) = 8", "pow", count=2),
    _double("exp", _safely(math.exp), "e to the x", "exp(0) = 1"),
    _double("ln", _logarithm(math.log), "natural logarithm", "ln(1) = 0", numba="log({})"),
    _double("log", _log_of_base, "logarithm to a base", "log(2, 8) = 3", count=2,
            numba="log_of_base({}, {})"),
    _double("log2", _logarithm(math.log2), "logarithm to base 2", "log2(8) = 3"),
    _double("log10", _logarithm(math.log10), "logarithm to base 10", "log10(1000) = 3"),
    _double("sin", _safely(math.sin), "sine", "sin(0) = 0"),
    _double("cos", _safely(math.cos), "cosine", "cos(0) = 1"),
    _double("tan", _safely(math.tan), "tangent", "tan(0) = 0"),
    _double("asin", _safely(math.asin), "arc sine", "asin(0) = 0"),
    _double("acos", _safely(math.acos), "arc cosine", "acos(1) = 0"),
    _double("atan", math.atan, "arc tangent", "atan(0) = 0"),
    _double("atan2", math.atan2, "the angle of the point (x, y), y first", "atan2(0, 1) = 0",
            count=2),
    _double("degrees", math.degrees, "from radians", "degrees(pi()) = 180",
            numba="{} * (180.0 / pi)"),
    _double("radians", math.radians, "from degrees", "radians(180) = pi()",
            numba="{} * (pi / 180.0)"),
    _double("pi", lambda: math.pi, "3.14…", "round(pi(), 2) = 3.14", count=0, numba=""),
    _double("e", lambda: math.e, "2.71…", "round(e(), 2) = 2.72", count=0, numba=""),
    _double("isnan", math.isnan, "whether it is not a number", "isnan(sqrt(-1))", "is_nan",
            result=pa.bool_()),
    _double("isinf", math.isinf, "whether it is infinite", "isinf(ln(0))", "is_infinite",
            result=pa.bool_()),
    _double("isfinite", math.isfinite, "whether it is a finite number", "isfinite(1)", "is_finite",
            result=pa.bool_()),
    Function("width_bucket", 4, 4, _bucket_rule, fixed(_bucket),
             "which of n equal parts of a range it is in", "width_bucket(7, 0, 10, 5) = 4"),
    Function("greatest", 1, None, _extreme_rule, fixed(lambda *given: max(given, key=order_key)),
             "the largest; NULL if any is", "greatest(1, 3, 2) = 3",
             numba=_compiled_extreme(">=")),
    Function("least", 1, None, _extreme_rule, fixed(lambda *given: min(given, key=order_key)),
             "the smallest; NULL if any is", "least(1, 3, 2) = 1",
             numba=_compiled_extreme("<=")),
    _bits("bitwise_and", "&", operator.and_, "the bits that both have", "bitwise_and(6, 3) = 2"),
    _bits("bitwise_or", "|", operator.or_, "the bits that either has", "bitwise_or(6, 3) = 7"),
    _bits("bitwise_xor", "^", operator.xor, "the bits that one has", "bitwise_xor(6, 3) = 5"),
)  # fmt: skip
