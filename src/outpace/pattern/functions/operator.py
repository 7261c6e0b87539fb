"""The operators: arithmetic, comparison, boolean logic, LIKE, IN, CAST and their type rules.

Division by zero gives NULL. An integer result that does not fit its type is a `DataError`. Decimals
follow Trino's rules of precision and scale, except that `/` gives the scale that Spark gives.
"""

from __future__ import annotations

import datetime
import decimal
import math
import operator
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from outpace.errors import DataError
from outpace.pattern import types, values
from outpace.pattern.bound import BoundExpression, Constant
from outpace.pattern.functions.signature import (
    Function,
    MismatchError,
    Scalar,
    Signature,
    fixed,
    require,
    returns,
    unify,
)
from outpace.pattern.types import type_name

#: An interval is a number of microseconds of 64 bits.
_LONGEST = datetime.timedelta(microseconds=(1 << 63) - 1)


def comparison(arguments: Sequence[BoundExpression]) -> Signature:
    """Rule of `=` and `<>`: two values of one type."""
    kind = unify(arguments)
    return Signature((kind,) * len(arguments), pa.bool_())


def ordered_comparison(arguments: Sequence[BoundExpression]) -> Signature:
    """Rule of `<` and its like: two values of one type that has an order."""
    signature = comparison(arguments)
    if not types.is_ordered(signature.arguments[0]):
        raise MismatchError(f"{type_name(signature.arguments[0])} has no order", 0)
    return signature


def arithmetic(symbol: str) -> Callable[[Sequence[BoundExpression]], Signature]:
    """Return the rule of an arithmetic operator."""

    def resolve(arguments: Sequence[BoundExpression]) -> Signature:
        left, right = (argument.type for argument in arguments)
        if types.is_temporal(left) or types.is_temporal(right):
            found = _temporal_signature(symbol, arguments[0], arguments[1])
            if found is None:
                raise MismatchError(f"'{symbol}' has no meaning for {_pair(left, right)}")
            return found
        for position, kind in enumerate((left, right)):
            if not (types.is_numeric(kind) or pa.types.is_null(kind)):
                raise MismatchError(f"expected a number, found {type_name(kind)}", position)
        return _number_signature(symbol, arguments)

    return resolve


def _pair(left: pa.DataType, right: pa.DataType) -> str:
    return f"{type_name(left)} and {type_name(right)}"


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


def _moving(symbol: str) -> Callable[[Signature], Scalar]:
    """Implement `+`, `-` and `*` for numbers, dates, timestamps and intervals."""
    plain = {"+": operator.add, "-": operator.sub, "*": operator.mul}[symbol]

    def implement(signature: Signature) -> Scalar:
        first, second = signature.arguments
        if pa.types.is_date(first) and types.is_integer(second):
            return lambda a, b: _guarded(plain, a, datetime.timedelta(days=b))
        if types.is_instant(first) and types.is_instant(second):
            return lambda a, b: a - b
        return _rounded(plain, signature.result)

    return implement


def _guarded(function: Scalar, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (OverflowError, ValueError) as problem:
        # A timedelta times NaN is a ValueError.
        raise DataError("a date or interval is out of range") from problem


#: What rounds decimals to the digits of Python's context, and what does not.
_EXACT: dict[Scalar, Scalar] = {
    operator.add: values.CONTEXT.add,
    operator.sub: values.CONTEXT.subtract,
    operator.mul: values.CONTEXT.multiply,
    operator.neg: decimal.Decimal.copy_negate,
}


def _rounded(function: Scalar, result: pa.DataType) -> Scalar:
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


def _divide(signature: Signature) -> Scalar:
    result = signature.result
    if types.is_integer(result):
        quotient: Scalar = _truncated
    elif types.is_decimal(result):
        quotient = values.CONTEXT.divide
    else:
        quotient = operator.truediv
    exact = _rounded(quotient, result)
    return lambda left, right: None if right == 0 else exact(left, right)


def _remainder(signature: Signature) -> Scalar:
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


def _concatenation(arguments: Sequence[BoundExpression]) -> Signature:
    if any(types.is_list(argument.type) for argument in arguments):
        kind = unify(arguments)
        return Signature((kind,) * len(arguments), kind)
    for position, argument in enumerate(arguments):
        if types.is_binary(argument.type):
            return Signature((pa.binary(),) * len(arguments), pa.binary())
        require(argument, "text", position)
    return Signature((pa.string(),) * len(arguments), pa.string())


def _joined(*given: Any) -> Any:
    values.check_length(sum(map(len, given)))
    total = given[0]
    for part in given[1:]:
        total = total + part
    return total


def _is_in(item: Any, *options: Any) -> bool | None:
    if item is None:
        return None
    unknown = False
    for option in options:
        if option is None:
            unknown = True
        elif option == item:
            return True
    return None if unknown else False


#: A piece of a LIKE pattern between two percent signs: its characters, None for any character.
Piece = tuple[str | None, ...]


@lru_cache(maxsize=256)
def like_pieces(pattern: str, escape: str | None = None) -> tuple[Piece, ...]:
    """Return what a LIKE pattern has between its percent signs: one piece more than there are.

    Examples
    --------
    >>> like_pieces("a_%b!%%", "!")
    (('a', None), ('b', '%'), ())
    """
    if escape is not None and len(escape) != 1:
        raise DataError("the escape of LIKE is a single character")
    if len(pattern) > MOST_LIKE:
        raise DataError(f"a pattern of LIKE has at most {MOST_LIKE} characters")
    pieces: list[list[str | None]] = [[]]
    signs = iter(pattern)
    for sign in signs:
        if sign == escape:
            sign = next(signs, "")
            if sign not in ("%", "_", escape):
                raise DataError(
                    f"the escape character {escape!r} must be followed by '%', '_' or itself"
                )
            pieces[-1].append(sign)
        elif sign == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if sign == "_" else sign)
    return tuple(map(tuple, pieces))


#: The longest pattern of LIKE, and how many comparisons a piece with `_` may need.
MOST_LIKE = 10_000
_MOST_COMPARED = 100_000_000


def _like(text: str, pattern: str, escape: str | None = None) -> bool:
    """Find the pieces one after the other, each where it first fits: nothing is tried twice."""
    head, *middle = like_pieces(pattern, escape)
    if not middle:
        return len(text) == len(head) and _fits(head, text, 0)
    *middle, tail = middle
    position, end = len(head), len(text) - len(tail)
    if position > end or not _fits(head, text, 0) or not _fits(tail, text, end):
        return False
    for piece in middle:
        position = _after(piece, text, position, end)
        if position < 0:
            return False
    return True


def _fits(piece: Piece, text: str, position: int) -> bool:
    return all(sign is None or sign == text[position + i] for i, sign in enumerate(piece))


def _after(piece: Piece, text: str, position: int, end: int) -> int:
    """Return where a piece ends that is searched from a position on, or -1."""
    if None not in piece:
        start = text.find("".join(sign or "" for sign in piece), position, end)
        return start if start < 0 else start + len(piece)
    if len(piece) * (end - position) > _MOST_COMPARED:
        raise DataError("a text and a pattern this long cannot be compared by LIKE")
    found = _expression(piece).search(text, position, end)
    return -1 if found is None else found.end()


@lru_cache(maxsize=256)
def _expression(piece: Piece) -> re.Pattern[str]:
    """Return the regular expression of a piece; it has one length, so there is no way back."""
    return re.compile("".join("." if c is None else re.escape(c) for c in piece), re.DOTALL)


def _like_rule(arguments: Sequence[BoundExpression]) -> Signature:
    """Rule of LIKE, which refuses a broken constant pattern at once."""
    signature = returns(pa.bool_(), "text")(arguments)
    given = [part.value for part in arguments[1:] if isinstance(part, Constant)]
    if len(given) == len(arguments) - 1 and None not in given:
        try:
            like_pieces(*map(str, given))
        except DataError as problem:
            raise MismatchError(problem.message, 1) from problem
    return signature


def _distinct(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return (left is None) != (right is None)
    return bool(left != right)


def _case_signature(arguments: Sequence[BoundExpression]) -> Signature:
    """Rule of CASE: conditions and values take turns, then maybe the value of ELSE."""
    places = [i for i in range(len(arguments)) if i % 2 or i == len(arguments) - 1]
    try:
        kind = unify([arguments[place] for place in places])
    except MismatchError as problem:
        position = None if problem.position is None else places[problem.position]
        raise MismatchError(problem.message, position, problem.hint) from problem
    wanted = [
        kind if i % 2 or i == len(arguments) - 1 else require(argument, "boolean", i)
        for i, argument in enumerate(arguments)
    ]
    return Signature(tuple(wanted), kind)


def _case(*given: Any) -> Any:
    for position in range(0, len(given) - 1, 2):
        if given[position]:
            return given[position + 1]
    return given[-1] if len(given) % 2 else None


def _and(*given: bool | None) -> bool | None:
    if any(value is False for value in given):
        return False
    return None if None in given else True


def _or(*given: bool | None) -> bool | None:
    if any(value is True for value in given):
        return True
    return None if None in given else False


def _first_value(*given: Any) -> Any:
    return next((value for value in given if value is not None), None)


def _cast(signature: Signature) -> Scalar:
    function = values.converter(signature.arguments[0], signature.result)
    assert function is not None
    return function


def _try_cast(signature: Signature) -> Scalar:
    function = _cast(signature)

    def attempt(value: Any) -> Any:
        try:
            return function(value)
        except Exception:
            return None

    return attempt


def _unreachable(arguments: Sequence[BoundExpression]) -> Signature:
    raise MismatchError("this operator is bound by its own node")


def _as_given(arguments: Sequence[BoundExpression]) -> Signature:
    """Rule of TRY, which evaluators give its meaning: NULL where the argument fails."""
    return Signature((arguments[0].type,), arguments[0].type)


def _any_signature(result: pa.DataType) -> Callable[[Sequence[BoundExpression]], Signature]:
    return lambda arguments: Signature(tuple(a.type for a in arguments), result)


def _compare(symbol: str, rule: Callable[..., Signature], test: Scalar) -> Function:
    return Function(symbol, 2, 2, rule, fixed(test))


OPERATORS: tuple[Function, ...] = (
    Function("+", 2, 2, arithmetic("+"), _moving("+")),
    Function("-", 2, 2, arithmetic("-"), _moving("-")),
    Function("*", 2, 2, arithmetic("*"), _moving("*")),
    Function("/", 2, 2, arithmetic("/"), _divide),
    Function("div", 2, 2, arithmetic("div"), _divide),
    Function("%", 2, 2, arithmetic("%"), _remainder, aliases=("mod",)),
    Function("negate", 1, 1, _negation, lambda s: _rounded(operator.neg, s.result)),
    Function("||", 1, None, _concatenation, fixed(_joined), aliases=("concat",)),
    _compare("=", comparison, operator.eq),
    _compare("<>", comparison, operator.ne),
    _compare("<", ordered_comparison, operator.lt),
    _compare("<=", ordered_comparison, operator.le),
    _compare(">", ordered_comparison, operator.gt),
    _compare(">=", ordered_comparison, operator.ge),
    Function("is distinct from", 2, 2, comparison, fixed(_distinct), strict=False),
    Function(
        "is not distinct from",
        2,
        2,
        comparison,
        fixed(lambda left, right: not _distinct(left, right)),
        strict=False,
    ),
    Function("and", 2, None, returns(pa.bool_(), "boolean"), fixed(_and), strict=False),
    Function("or", 2, None, returns(pa.bool_(), "boolean"), fixed(_or), strict=False),
    Function("not", 1, 1, returns(pa.bool_(), "boolean"), fixed(operator.not_)),
    Function("is null", 1, 1, _any_signature(pa.bool_()), fixed(lambda v: v is None), strict=False),
    Function("in", 2, None, comparison, fixed(_is_in), strict=False),
    Function("like", 2, 3, _like_rule, fixed(_like)),
    Function("case", 2, None, _case_signature, fixed(_case), strict=False),
    Function(
        "coalesce",
        1,
        None,
        lambda arguments: Signature((unify(arguments),) * len(arguments), unify(arguments)),
        fixed(_first_value),
        aliases=("ifnull", "nvl"),
        strict=False,
    ),
    Function("try", 1, 1, _as_given, fixed(lambda value: value)),
    Function("cast", 1, 1, _unreachable, _cast),
    Function("try_cast", 1, 1, _unreachable, _try_cast),
)
