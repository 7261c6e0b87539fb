"""Conditions as Spark SQL, for Catalyst to compute where the rows are.

A condition is written only where Spark means exactly what the engine means, whatever the session's
settings; else it stays in Python. Spark takes NaN for the largest number and for equal to itself,
so comparisons of floats carry a guard. Scans that Spark lets skip rows know neither NaN nor that
zero has two signs, so conditions that such rows may satisfy are written past them. Arithmetic on
integers and decimals stays in Python: what Spark does on overflow depends on its settings. So does
division, which fails there on zero.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from outpace.pattern import types
from outpace.pattern.bound import Apply, BoundExpression, Constant, Read, walk
from outpace.pattern.functions.operator import like_pieces


class _UnlikeSparkError(Exception):
    """A node has no equal in Spark."""


def catalyst_text(condition: BoundExpression) -> str | None:
    """Return a condition on one row as Spark SQL, or None where Spark might not mean the same.

    Examples
    --------
    >>> from outpace.pattern.bound import Place
    >>> price = Read(pa.float64(), "price", (), Place("last"))
    >>> catalyst_text(Apply(pa.bool_(), "<", (price, Constant(pa.float64(), 5.0))))
    '(`price` < 5.0D)'
    >>> catalyst_text(Apply(pa.bool_(), ">", (price, Constant(pa.float64(), 5.0))))
    '(`price` > 5.0D AND NOT isnan(`price`))'
    """
    try:
        text = _text(_past_scans(condition) if _skipped_by_scans(condition) else condition)
    except _UnlikeSparkError:
        return None
    # Spark puts a variable's value in its place, wherever it stands, unless a setting forbids it.
    return None if "${" in text else text


def _skipped_by_scans(condition: BoundExpression) -> bool:
    """Say whether a scan that gets the condition may skip rows that satisfy it.

    A Parquet file's bounds and dictionaries leave NaN out, which satisfies what is negated, and
    order negative zero before zero.
    """
    for node in walk(condition):
        if isinstance(node, Apply) and _reads_floats(node):
            if node.function in ("not", "<>", "case"):
                return True
            zero = any(isinstance(part, Constant) and part.value == 0 for part in node.arguments)
            if zero and node.function in ("=", "<=", ">=", "in"):
                return True
    return False


def _reads_floats(condition: BoundExpression) -> bool:
    return any(isinstance(node, Read) and types.is_floating(node.type) for node in walk(condition))


def _past_scans(node: BoundExpression) -> BoundExpression:
    """Return the same condition on sums with zero, which Spark does not give to a scan."""
    match node:
        case Read(type=kind) if types.is_floating(kind):
            return Apply(kind, "+", (node, Constant(kind, 0.0)))
        case Apply(type=kind, function=function, arguments=arguments):
            return Apply(kind, function, tuple(map(_past_scans, arguments)))
    return node


def quoted(name: str) -> str:
    """Return a column name as Spark SQL reads it, whatever it contains."""
    return "`" + name.replace("`", "``") + "`"


def _text(node: BoundExpression) -> str:
    match node:
        case Read(type=kind, column=column, path=(), place=place) if place.shift == 0:
            _type_text(kind)
            return quoted(column)
        case Constant(type=kind, value=value):
            return _constant(kind, value)
        case Apply(function=function) if function in _FUNCTIONS:
            return _FUNCTIONS[function](node)
        case _:
            raise _UnlikeSparkError


_TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.date32(): "DATE",
}


#: What tells the type of an integer literal.
_SUFFIXES: Final[Mapping[pa.DataType, str]] = {
    pa.int8(): "Y",
    pa.int16(): "S",
    pa.int32(): "",
    pa.int64(): "L",
}


def _type_text(kind: pa.DataType) -> str:
    if types.is_decimal(kind) and kind.scale >= 0:
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if kind not in _TYPES:
        raise _UnlikeSparkError
    return _TYPES[kind]


def _constant(kind: pa.DataType, value: object) -> str:
    name = _type_text(kind)
    match value:
        case None:
            return f"CAST(NULL AS {name})"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() if kind in _SUFFIXES:
            # The least number of a type is too large without its sign.
            least = value == types.integer_range(kind)[0]
            return f"CAST('{value}' AS {name})" if least else f"{value}{_SUFFIXES[kind]}"
        case float() if math.isfinite(value):
            text = f"{value!r}D"
            return text if pa.types.is_float64(kind) else f"CAST({text} AS {name})"
        case decimal.Decimal():
            return f"CAST('{value}' AS {name})"
        case str() if "'" not in value and "\\" not in value:
            # What a quote or a backslash means inside a literal depends on the session.
            return f"'{value}'"
        case datetime.date() if not isinstance(value, datetime.datetime):
            return f"DATE'{value.isoformat()}'"
        case _:
            raise _UnlikeSparkError


def _compare(node: Apply) -> str:
    """Compare as IEEE 754 does: nothing is less than, equal to or greater than NaN."""
    left, right = node.arguments
    first, second = _text(left), _text(right)
    plain = f"{first} {node.function} {second}"
    if not types.is_floating(left.type):
        return f"({plain})"
    if node.function == "<>":
        either = isinstance(left, Constant) or isinstance(right, Constant)
        return f"({plain})" if either else f"({plain} OR (isnan({first}) AND isnan({second})))"
    # What Spark takes for larger than it is, or for equal to itself, must not be NaN.
    large, other = (right, left) if node.function in ("<", "<=") else (left, right)
    if node.function == "=" and isinstance(left, Constant):
        large, other = right, left
    if isinstance(large, Constant) or (node.function == "=" and isinstance(other, Constant)):
        return f"({plain})"
    guard = f"NOT isnan({_text(large)})"
    if not isinstance(other, Constant):
        # Beside NULL even NaN compares to NULL, which is not FALSE under NOT.
        guard = f"({guard} OR {_text(other)} IS NULL)"
    return f"({plain} AND {guard})"


def _joined(word: str) -> Callable[[Apply], str]:
    return lambda node: "(" + f" {word} ".join(_text(part) for part in node.arguments) + ")"


def _is_in(node: Apply) -> str:
    item, *options = node.arguments
    if not all(isinstance(option, Constant) for option in options):
        raise _UnlikeSparkError
    return f"({_text(item)} IN ({', '.join(_text(option) for option in options)}))"


def _like(node: Apply) -> str:
    # Spark's LIKE has a default escape character, the backslash; SQL's has none.
    if len(node.arguments) != 2 or not isinstance(node.arguments[1], Constant):
        raise _UnlikeSparkError
    # Java's regular expressions try all ways of placing several pieces.
    if len([piece for piece in like_pieces(str(node.arguments[1].value)) if piece]) > 1:
        raise _UnlikeSparkError
    return f"({_text(node.arguments[0])} LIKE {_text(node.arguments[1])})"


def _case(node: Apply) -> str:
    parts = [_text(argument) for argument in node.arguments]
    branches = [
        f"WHEN {condition} THEN {value}"
        for condition, value in zip(parts[0::2], parts[1::2], strict=False)
    ]
    otherwise = [f"ELSE {parts[-1]}"] if len(parts) % 2 else []
    return "CASE " + " ".join([*branches, *otherwise]) + " END"


def _cast(node: Apply) -> str:
    """Write the casts that lose nothing, which are those that binding adds between numbers."""
    source, target = node.arguments[0].type, node.type
    wider = (
        types.is_integer(source)
        and (
            pa.types.is_float64(target)
            or (pa.types.is_float32(target) and source.bit_width <= 16)
            or (types.is_integer(target) and target.bit_width >= source.bit_width)
            or (types.is_decimal(target) and _holds(target, types.as_decimal(source)))
        )
    ) or (pa.types.is_float32(source) and pa.types.is_float64(target))
    wider = wider or (
        types.is_decimal(source) and types.is_decimal(target) and _holds(target, source)
    )
    if not wider:
        raise _UnlikeSparkError
    return f"CAST({_text(node.arguments[0])} AS {_type_text(target)})"


def _holds(target: pa.DataType, source: pa.DataType) -> bool:
    whole = target.precision - target.scale >= source.precision - source.scale
    return bool(whole and target.scale >= source.scale)


def _of_floats(write: Callable[[Apply], str]) -> Callable[[Apply], str]:
    def checked(node: Apply) -> str:
        if not types.is_floating(node.type):
            raise _UnlikeSparkError
        return write(node)

    return checked


def _of_text(write: Callable[[Apply], str]) -> Callable[[Apply], str]:
    def checked(node: Apply) -> str:
        if not all(types.is_string(argument.type) for argument in node.arguments):
            raise _UnlikeSparkError
        return write(node)

    return checked


def _called(name: str) -> Callable[[Apply], str]:
    return lambda node: f"{name}({', '.join(_text(part) for part in node.arguments)})"


_FUNCTIONS: Final[Mapping[str, Callable[[Apply], str]]] = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), _compare),
    "and": _joined("AND"),
    "or": _joined("OR"),
    "not": lambda node: f"(NOT {_text(node.arguments[0])})",
    "is null": lambda node: f"({_text(node.arguments[0])} IS NULL)",
    "in": _is_in,
    "like": _of_text(_like),
    "case": _case,
    "coalesce": _called("coalesce"),
    "cast": _cast,
    **{symbol: _of_floats(_joined(symbol)) for symbol in ("+", "-", "*")},
    "negate": _of_floats(lambda node: f"(- {_text(node.arguments[0])})"),
    "abs": _of_floats(_called("abs")),
    "length": _of_text(_called("length")),
    "||": _of_text(_joined("||")),
}
