"""What a function is: one entry with its names, its types and what it means to each evaluator.

Python's meaning is the one that counts. Those for Arrow, Numba and Catalyst equal it wherever they
give one; where one has none, or gives up, Python computes value by value. Binding inserts casts, so
every meaning gets exactly the types of the signature.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from outpace.errors import DataError
from outpace.pattern import types, values
from outpace.pattern.bound import Apply, BoundExpression, Constant
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
ValueFunction = Callable[..., Any]
ArrowOperand: TypeAlias = "pa.Array | pa.Scalar"
ArrowKernel = Callable[[Apply, Sequence[ArrowOperand]], pa.Array]
Compile = Callable[["Code", Apply, Sequence["Term"]], "Term"]
Spell = Callable[[Apply, Sequence[str]], str | None]


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
    python
        Gives the Python function for a signature. It is called with NULL only where `strict` is
        off. That of a `lazy` one takes functions of the row and gives a function of the row.
    about, example
        What the reference says of its value, and a condition with a call of it that is true.
    arrow
        Computes whole columns (constants are scalars). An Arrow error or a `DataError` leaves the
        rows to Python, which either succeeds or raises the error that the user sees.
    numba
        Writes the code of a compiled predicate, or raises `Uncompilable`.
    catalyst
        Writes Spark SQL from that of its arguments; None where Spark might mean something else.
    strict
        Whether a NULL argument makes the result NULL without a call.
    lazy
        Whether it decides itself which of its arguments are evaluated.
    safe
        Whether it cannot fail, so that rows that no search asks about can be computed too.
    lengthens
        Whether its text may be longer than what it is given.
    """

    name: str
    least: int
    most: int | None
    resolve: Resolve
    python: Callable[[Signature], ValueFunction]
    about: str
    example: str
    aliases: tuple[str, ...] = ()
    _: KW_ONLY
    arrow: ArrowKernel | None = None
    numba: Compile | None = None
    catalyst: Spell | None = None
    strict: bool = True
    lazy: bool = False
    safe: bool = False
    lengthens: bool = False


@dataclass(frozen=True, slots=True)
class Aggregator:
    """An aggregate function; its Python function takes one tuple of arguments for each row.

    `skip_null` leaves out rows whose first argument is NULL before the call.
    """

    name: str
    least: int
    most: int | None
    resolve: Resolve
    python: Callable[[Signature], Callable[[Sequence[tuple[Any, ...]]], Any]]
    about: str
    aliases: tuple[str, ...] = ()
    skip_null: bool = True


def unsuitable(reason: str) -> pa.ArrowNotImplementedError:
    """Return what a kernel raises where Arrow's meaning is not SQL's."""
    return pa.ArrowNotImplementedError(reason)


def direct(function: Callable[..., pa.Array]) -> ArrowKernel:
    """Return the kernel of a function of Arrow that means the same for all types."""
    return lambda _, operands: function(*operands)


def constants(operands: Sequence[ArrowOperand]) -> list[Any]:
    """Return the values of operands that must be the same for all rows."""
    if not all(isinstance(operand, pa.Scalar) and operand.is_valid for operand in operands):
        raise unsuitable("only constants")
    return [operand.as_py() for operand in operands]


def longest(column: ArrowOperand) -> int:
    """Return the number of characters of the longest text."""
    return pc.max(pc.utf8_length(column)).as_py() or 0


def infix(word: str) -> Spell:
    """Return the Spark SQL of an operator between its arguments."""
    return lambda _, parts: "(" + f" {word} ".join(parts) + ")"


def called(name: str) -> Spell:
    """Return the Spark SQL of a call."""
    return lambda _, parts: f"{name}({', '.join(parts)})"


def of_floats(spell: Spell) -> Spell:
    """Return a meaning only for floats: Spark's settings decide what an overflow does."""
    return lambda node, parts: spell(node, parts) if types.is_floating(node.type) else None


def of_text(spell: Spell) -> Spell:
    """Return a meaning only for arguments that are text."""
    return lambda node, parts: (
        spell(node, parts) if all(types.is_string(part.type) for part in node.arguments) else None
    )


class Uncompilable(Exception):  # noqa: N818 -- an answer, not an error
    """The expression has no compiled form; the twin evaluates it."""


class CompiledType(Enum):
    """How a value is held in compiled code.

    Besides integers of 64 bits there are as such: times and intervals in microseconds, dates in
    days, decimals in units of their last digit, and texts by numbers that compare as they do.
    """

    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"


#: What stands for an unknown value in compiled code.
ZERO = {CompiledType.INTEGER: "0", CompiledType.FLOAT: "0.0", CompiledType.BOOLEAN: "False"}

#: Integers beyond this have no exact double, and comparing the two needs more than a conversion.
_EXACT = 1 << 53

#: A product of two integers that is less fits into 64 bits, also where it was rounded.
_PRODUCT = float(1 << 62)


def kind_of(data_type: pa.DataType) -> CompiledType:
    """Return how values of a type are held; raise `Uncompilable` for those that are not."""
    if pa.types.is_boolean(data_type):
        return CompiledType.BOOLEAN
    if types.is_floating(data_type):
        return CompiledType.FLOAT
    if types.is_integer(data_type) and data_type != pa.uint64():
        return CompiledType.INTEGER
    if any(held(data_type) for held in _HELD_AS_INTEGERS):
        return CompiledType.INTEGER
    raise Uncompilable


_HELD_AS_INTEGERS: tuple[_Test, ...] = (
    types.is_temporal,
    types.is_string,
    types.is_binary,
    lambda kind: types.is_decimal(kind) and kind.scale >= 0,
)


@dataclass(frozen=True)
class Term:
    """A value in compiled code: its text, the text of whether it is known, and its kind."""

    value: str
    known: str
    kind: CompiledType


@dataclass
class Code:
    """The lines of a predicate for Numba; each refers only to earlier ones."""

    lines: list[str] = field(default_factory=list)
    count: int = 0

    def line(self, value: str, known: str, kind: CompiledType) -> Term:
        """Write a value and whether it is known, and return the variables that hold them."""
        self.count += 1
        name = f"v{self.count}"
        self.lines.append(f"{name} = {value}")
        if known in ("True", "False"):
            return Term(name, known, kind)
        self.lines.append(f"k{self.count} = {known}")
        return Term(name, f"k{self.count}", kind)

    def exact(self, value: str) -> None:
        """Leave to the twin an integer that has no exact double."""
        self.within(value, _EXACT + 1)

    def within(self, value: str, limit: int) -> None:
        """Leave to the twin an integer that is not between a limit and its negative."""
        self.lines.append(f"if {value} >= {limit} or {value} <= -{limit}: return -1")

    def product_within(self, left: str, right: str) -> None:
        """Leave to the twin two integers whose product may not fit into 64 bits."""
        self.lines.append(f"if abs(float({left}) * float({right})) >= {_PRODUCT}: return -1")


def all_known(*terms: Term) -> str:
    """Return the text of whether all values are known."""
    known = dict.fromkeys(term.known for term in terms if term.known != "True")
    return " and ".join(known) or "True"


def compiled_as(text: str, kind: CompiledType = CompiledType.FLOAT) -> Compile:
    """Return what writes a text with the values of its arguments, such as `sqrt({0})`."""
    return lambda code, _, terms: code.line(
        text.format(*(term.value for term in terms)), all_known(*terms), kind
    )


def fixed(function: ValueFunction) -> Callable[[Signature], ValueFunction]:
    """Return the meaning of a function that works alike for all types."""
    return lambda _: function


def converted(signature: Signature) -> ValueFunction:
    """The meaning of a cast that binding has let pass."""
    function = values.converter(signature.arguments[0], signature.result)
    assert function is not None
    return function


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
    if kind in ("timestamp", "clock", "instant") and written:
        return default
    if kind in ("timestamp", "clock") and pa.types.is_date(argument.type):
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
    "clock": (
        lambda kind: bool(pa.types.is_timestamp(kind) or pa.types.is_time(kind)),
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
    >>> from outpace.pattern.bound import MatchOrdinal
    >>> unify([MatchOrdinal(pa.int8()), Constant(pa.int32(), 3)])
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
