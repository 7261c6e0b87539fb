"""Conditions: comparison, IN, IS NULL, and the logic of three values.

Nothing is less than, equal to or greater than NaN, as IEEE 754 has it. Spark takes NaN for the
largest number and for equal to itself, so there comparisons of floats carry a guard.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from outpace.pattern import types
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
    direct,
    fixed,
    infix,
    returns,
    unify,
)
from outpace.pattern.types import type_name


def _comparison(arguments: Sequence[BoundExpression]) -> Signature:
    """Rule of `=` and `<>`: two values of one type."""
    kind = unify(arguments)
    return Signature((kind,) * len(arguments), pa.bool_())


def _ordered(arguments: Sequence[BoundExpression]) -> Signature:
    """Rule of `<` and its like: two values of one type that has an order."""
    signature = _comparison(arguments)
    if not types.is_ordered(signature.arguments[0]):
        raise MismatchError(f"{type_name(signature.arguments[0])} has no order", 0)
    return signature


def _check_comparable(code: Code, node: Apply, left: Term, right: Term) -> None:
    """Leave to the twin what two values as they are held do not tell."""
    kinds = {left.kind, right.kind}
    if CompiledType.BOOLEAN in kinds and len(kinds) > 1:
        raise Uncompilable
    if len(kinds) > 1:
        code.exact((left if left.kind is CompiledType.INTEGER else right).value)
    first, second = (argument.type for argument in node.arguments[:2])
    scaled = (pa.types.is_temporal, types.is_decimal)
    if first != second and any(kind(first) or kind(second) for kind in scaled):
        raise Uncompilable


def _compiled_comparison(sign: str) -> Compile:
    def write(code: Code, node: Apply, terms: Sequence[Term]) -> Term:
        left, right = terms
        _check_comparable(code, node, left, right)
        text = f"{left.value} {sign} {right.value}"
        return code.line(text, all_known(left, right), CompiledType.BOOLEAN)

    return write


def _compiled_distinction(negated: bool) -> Compile:
    def write(code: Code, node: Apply, terms: Sequence[Term]) -> Term:
        left, right = terms
        _check_comparable(code, node, left, right)
        both = f"({all_known(left, right)})"
        same = f"({both} and {left.value} == {right.value})"
        neither = f"(not ({left.known}) and not ({right.known}))"
        text = f"{same} or {neither}" if negated else f"not ({same} or {neither})"
        return code.line(text, "True", CompiledType.BOOLEAN)

    return write


def _compiled_in(code: Code, node: Apply, terms: Sequence[Term]) -> Term:
    item, options = terms[0], terms[1:]
    for option in options:
        _check_comparable(code, node, item, option)
    held = " or ".join(f"({one.known} and {item.value} == {one.value})" for one in options)
    found = code.line(held, "True", CompiledType.BOOLEAN)
    every = " and ".join(f"({option.known})" for option in options)
    known = f"({item.known}) and ({found.value} or ({every}))"
    return code.line(found.value, known, CompiledType.BOOLEAN)


def _guarded(node: Apply, parts: Sequence[str]) -> str:
    """Compare as IEEE 754 does, in Spark SQL."""
    left, right = node.arguments
    first, second = parts
    plain = f"{first} {node.function} {second}"
    if not types.is_floating(left.type):
        return f"({plain})"
    if node.function == "<>":
        either = isinstance(left, Constant) or isinstance(right, Constant)
        return f"({plain})" if either else f"({plain} OR (isnan({first}) AND isnan({second})))"
    # What Spark takes for larger than it is, or for equal to itself, must not be NaN.
    large, other = (1, 0) if node.function in ("<", "<=") else (0, 1)
    if node.function == "=" and isinstance(left, Constant):
        large, other = 1, 0
    fixed_other = isinstance(node.arguments[other], Constant)
    if isinstance(node.arguments[large], Constant) or (node.function == "=" and fixed_other):
        return f"({plain})"
    guard = f"NOT isnan({parts[large]})"
    if not fixed_other:
        # Beside NULL even NaN compares to NULL, which is not FALSE under NOT.
        guard = f"({guard} OR {parts[other]} IS NULL)"
    return f"({plain} AND {guard})"


def _distinct(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return (left is None) != (right is None)
    return bool(left != right)


def _alike(left: ArrowOperand, right: ArrowOperand) -> pa.Array:
    """Return whether two values are equal or both NULL."""
    equal = pc.coalesce(pc.equal(left, right), pa.scalar(False))
    return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


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


def _is_in_columns(_: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
    item, options = operands[0], operands[1:]
    if types.is_floating(item.type) or not all(isinstance(o, pa.Scalar) for o in options):
        return reduce(pc.or_kleene, (pc.equal(item, option) for option in options))
    known = pa.array([o.as_py() for o in options if o.is_valid], type=item.type)
    found = pc.is_in(item, value_set=known)
    if len(known) < len(options):
        found = pc.if_else(found, True, pa.scalar(None, pa.bool_()))
    return pc.if_else(pc.is_valid(item), found, pa.scalar(None, pa.bool_()))


def _in_constants(node: Apply, parts: Sequence[str]) -> str | None:
    if not all(isinstance(option, Constant) for option in node.arguments[1:]):
        return None
    return f"({parts[0]} IN ({', '.join(parts[1:])}))"


def _connective(decisive: bool) -> ValueFunction:
    """AND and OR, which look at no more of their arguments than they need."""

    def build(*parts: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def evaluate(context: Any) -> bool | None:
            result: bool | None = not decisive
            for part in parts:
                value = part(context)
                if value is decisive:
                    return bool(value)
                if value is None:
                    result = None
            return result

        return evaluate

    return build


def _folded(function: Callable[[ArrowOperand, ArrowOperand], pa.Array]) -> ArrowKernel:
    return lambda _, operands: reduce(function, operands)


def _compiled_connective(word: str) -> Compile:
    def write(code: Code, _: Apply, terms: Sequence[Term]) -> Term:
        value = f" {word} ".join(f"({t.known} and {t.value})" for t in terms)
        decided = value
        if word == "and":
            decided = " or ".join(f"({t.known} and not {t.value})" for t in terms)
        every = " and ".join(f"({t.known})" for t in terms)
        return code.line(value, f"({every}) or {decided}", CompiledType.BOOLEAN)

    return write


#: What compares two values in Python, and two columns of numbers in NumPy.
COMPARISONS: dict[str, ValueFunction] = {
    "=": operator.eq, "<>": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def _compare(name: str, arrow: ValueFunction, sign: str, about: str, example: str) -> Function:
    rule = _comparison if name in ("=", "<>") else _ordered
    return Function(
        name, 2, 2, rule, fixed(COMPARISONS[name]), about, example,
        arrow=direct(arrow), numba=_compiled_comparison(sign), catalyst=_guarded, safe=True,
    )  # fmt: skip


_BOOLEAN = returns(pa.bool_(), "boolean")

CONDITIONS: tuple[Function, ...] = (
    _compare("=", pc.equal, "==", "whether both are equal", "1 = 1.0"),
    _compare("<>", pc.not_equal, "!=", "whether they differ", "1 <> 2"),
    _compare("<", pc.less, "<", "whether the first is less", "'a' < 'b'"),
    _compare("<=", pc.less_equal, "<=", "whether it is less or equal", "2 <= 2"),
    _compare(">", pc.greater, ">", "whether the first is greater", "2 > 1"),
    _compare(">=", pc.greater_equal, ">=", "whether it is greater or equal", "2 >= 2"),
    Function("is distinct from", 2, 2, _comparison, fixed(_distinct),
             "whether they differ, where NULL equals NULL", "1 is distinct from null",
             arrow=lambda _, operands: pc.invert(_alike(*operands)),
             numba=_compiled_distinction(negated=False), strict=False, safe=True),
    Function("is not distinct from", 2, 2, _comparison,
             fixed(lambda left, right: not _distinct(left, right)),
             "whether they are equal, where NULL equals NULL", "null is not distinct from null",
             arrow=lambda _, operands: _alike(*operands),
             numba=_compiled_distinction(negated=True), strict=False, safe=True),
    Function("in", 2, None, _comparison, fixed(_is_in),
             "whether it equals one of several", "2 in (1, 2)",
             arrow=_is_in_columns, numba=_compiled_in, catalyst=_in_constants,
             strict=False, safe=True),
    Function("is null", 1, 1, lambda given: Signature((given[0].type,), pa.bool_()),
             fixed(lambda value: value is None),
             "whether there is no value", "null is null",
             arrow=direct(pc.is_null),
             numba=lambda code, _, terms: (
                 code.line(f"not ({terms[0].known})", "True", CompiledType.BOOLEAN)),
             catalyst=lambda _, parts: f"({parts[0]} IS NULL)", strict=False, safe=True),
    Function("not", 1, 1, _BOOLEAN, fixed(operator.not_),
             "whether it is false; NULL of NULL", "not 1 > 2",
             arrow=direct(pc.invert),
             numba=lambda code, _, terms: (
                 code.line(f"not {terms[0].value}", terms[0].known, CompiledType.BOOLEAN)),
             catalyst=lambda _, parts: f"(NOT {parts[0]})", safe=True),
    Function("and", 2, None, _BOOLEAN, fixed(_connective(decisive=False)),
             "whether all are true; NULL where that is unknown", "1 < 2 and 2 < 3",
             arrow=_folded(pc.and_kleene), numba=_compiled_connective("and"),
             catalyst=infix("AND"), strict=False, lazy=True, safe=True),
    Function("or", 2, None, _BOOLEAN, fixed(_connective(decisive=True)),
             "whether one is true; NULL where that is unknown", "1 > 2 or 2 > 1",
             arrow=_folded(pc.or_kleene), numba=_compiled_connective("or"),
             catalyst=infix("OR"), strict=False, lazy=True, safe=True),
)  # fmt: skip
