"""What a function is: a name, how many arguments of which types, and what it does in plain Python.

Guarantees: the implementation gets values of exactly the types in its signature (binding inserts
the casts), and is called with NULL only where `strict` is off.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from outpace.errors import DataError
from outpace.pattern import types, values
from outpace.pattern.bound import BoundExpression, Constant
from outpace.pattern.types import type_name


@dataclass(frozen=True, slots=True)
class Signature:
    """The types that a call works on, after implicit casts, and the type that it gives."""

    arguments: tuple[pa.DataType, ...]
    result: pa.DataType


class MismatchError(Exception):
    """The arguments do not fit; `position` is the one at fault, None where it is all of them."""

    def __init__(self, message: str, position: int | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.hint = hint


Resolve = Callable[[Sequence[BoundExpression]], Signature]
Scalar = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function or operator.

    Parameters
    ----------
    name, aliases
        The canonical name, which `Apply` carries, and the other names that users may write.
    least, most
        How many arguments; `most` None means no bound.
    resolve
        Checks the arguments' types and gives the signature, or raises `MismatchError`.
    implement
        Gives the Python function for a signature.
    strict
        Whether a NULL argument makes the result NULL without a call.
    """

    name: str
    least: int
    most: int | None
    resolve: Resolve
    implement: Callable[[Signature], Scalar]
    aliases: tuple[str, ...] = ()
    strict: bool = True


@dataclass(frozen=True, slots=True)
class Aggregator:
    """An aggregate function; its implementation takes one tuple of arguments for each row.

    `skip_null` leaves out rows whose first argument is NULL before the call.
    """

    name: str
    least: int
    most: int | None
    resolve: Resolve
    implement: Callable[[Signature], Callable[[Sequence[tuple[Any, ...]]], Any]]
    aliases: tuple[str, ...] = ()
    skip_null: bool = True


def fixed(function: Scalar) -> Callable[[Signature], Scalar]:
    """Return an `implement` for a function that works alike for all types."""
    return lambda _: function


def returns(result: pa.DataType, *arguments: str) -> Resolve:
    """Return a rule: each argument is of a named kind, the result has one type.

    The last kind stands for all further arguments. A NULL literal fits every kind.

    Examples
    --------
    >>> rule = returns(pa.int64(), "text")
    >>> rule([Constant(pa.string(), "a")]).result
    DataType(int64)
    """

    def resolve(given: Sequence[BoundExpression]) -> Signature:
        wanted = [arguments[min(index, len(arguments) - 1)] for index in range(len(given))]
        kinds = [
            require(argument, kind, index)
            for index, (argument, kind) in enumerate(zip(given, wanted, strict=True))
        ]
        return Signature(tuple(kinds), result)

    return resolve


def require(argument: BoundExpression, kind: str, position: int) -> pa.DataType:
    """Return the type to which an argument is cast to be of a kind, or raise `MismatchError`."""
    test, title, default = KINDS[kind]
    if pa.types.is_null(argument.type):
        return default
    if test(argument.type):
        # Whole numbers as counts and positions are all alike: one width is enough.
        return pa.int64() if kind == "integer" else argument.type
    if kind == "double" and types.is_numeric(argument.type):
        return pa.float64()
    written = isinstance(argument, Constant) and types.is_string(argument.type)
    if kind in ("timestamp", "instant") and written:
        return default
    if kind == "timestamp" and pa.types.is_date(argument.type):
        return types.TIMESTAMP
    raise MismatchError(f"expected {title}, found {type_name(argument.type)}", position)


_Test = Callable[[pa.DataType], bool]
KINDS: dict[str, tuple[_Test, str, pa.DataType]] = {
    "text": (types.is_string, "text", pa.string()),
    "number": (types.is_numeric, "a number", pa.float64()),
    "double": (lambda kind: bool(pa.types.is_float64(kind)), "a number", pa.float64()),
    "integer": (types.is_integer, "an integer", pa.int64()),
    "boolean": (lambda kind: bool(pa.types.is_boolean(kind)), "a boolean", pa.bool_()),
    "instant": (types.is_instant, "a date or timestamp", types.TIMESTAMP),
    "timestamp": (
        lambda kind: bool(pa.types.is_timestamp(kind)),
        "a timestamp",
        types.TIMESTAMP,
    ),
    "array": (types.is_list, "an array", pa.list_(pa.null())),
    "map": (lambda kind: bool(pa.types.is_map(kind)), "a map", pa.map_(pa.string(), pa.null())),
    "any": (lambda _: True, "a value", pa.null()),
}


def same_type(arguments: Sequence[BoundExpression]) -> Signature:
    """Rule: all arguments are turned into one type, which is the result's."""
    kind = unify(arguments)
    return Signature((kind,) * len(arguments), kind)


def unify(arguments: Sequence[BoundExpression]) -> pa.DataType:
    """Return the type that all arguments can take, or raise `MismatchError`.

    Literals adapt to the other arguments where their value allows: an integer to a narrower integer
    type, a decimal to a float, text to a date or timestamp.

    Examples
    --------
    >>> from outpace.pattern.bound import Number
    >>> unify([Number(pa.int8()), Constant(pa.int32(), 3)])
    DataType(int8)
    """
    found: pa.DataType = pa.null()
    literals = []
    for position, argument in enumerate(arguments):
        if isinstance(argument, Constant) and argument.value is not None:
            literals.append((position, argument))
            continue
        found = _joined(found, argument.type, position)
    # Text adapts to what the other literals are, so it comes last.
    for position, literal in sorted(literals, key=lambda pair: isinstance(pair[1].value, str)):
        if not _adapts(literal, found, position):
            found = _joined(found, literal.type, position)
    return found


def _joined(found: pa.DataType, kind: pa.DataType, position: int) -> pa.DataType:
    joined = types.common_type(found, kind)
    if joined is None:
        target = kind if types.is_string(found) else found
        raise MismatchError(
            f"{type_name(found)} and {type_name(kind)} do not go together",
            position,
            hint=f"cast one side, for example cast(... as {type_name(target)})",
        )
    return joined


def _adapts(literal: Constant, kind: pa.DataType, position: int) -> bool:
    value = literal.value
    if types.is_integer(kind) and isinstance(value, int) and not isinstance(value, bool):
        low, high = types.integer_range(kind)
        return low <= value <= high
    if types.is_floating(kind) and isinstance(value, decimal.Decimal):
        return True
    if types.is_instant(kind) and isinstance(value, str):
        try:
            values.parse_temporal(value, kind)
        except DataError as problem:
            hint = "write it as '2024-01-31' or '2024-01-31 10:00:00'"
            raise MismatchError(problem.message, position, hint) from problem
        return True
    return False
