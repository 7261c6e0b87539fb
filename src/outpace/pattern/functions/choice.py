"""Choices and casts: CASE, COALESCE, TRY and CAST, which has the types of Spark too.

CASE and COALESCE look at no more of their arguments than they need, and TRY turns a data error into
NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from outpace.errors import DataError
from outpace.pattern import types
from outpace.pattern.bound import Apply, BoundExpression
from outpace.pattern.functions.function import (
    ZERO,
    ArrowOperand,
    Code,
    CompiledType,
    Function,
    MismatchError,
    Signature,
    Term,
    Uncompilable,
    ValueFunction,
    called,
    converted,
    direct,
    fixed,
    kind_of,
    require,
    same_type,
    unify,
    unsuitable,
)
from outpace.pattern.functions.time import DAY

#: The greatest power of ten that a double holds exactly.
_EXACT_POWER: Final = 22

_RowFunction = Callable[[Any], Any]


def _case_rule(arguments: Sequence[BoundExpression]) -> Signature:
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


def _case(*parts: _RowFunction) -> _RowFunction:
    branches = list(zip(parts[0::2], parts[1::2], strict=False))
    otherwise = parts[-1] if len(parts) % 2 else None

    def evaluate(context: Any) -> Any:
        for condition, outcome in branches:
            if condition(context):
                return outcome(context)
        return None if otherwise is None else otherwise(context)

    return evaluate


def _coalesce(*parts: _RowFunction) -> _RowFunction:
    def evaluate(context: Any) -> Any:
        for part in parts:
            value = part(context)
            if value is not None:
                return value
        return None

    return evaluate


def _try(part: _RowFunction) -> _RowFunction:
    def evaluate(context: Any) -> Any:
        try:
            return part(context)
        except DataError:
            return None

    return evaluate


def _case_columns(node: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
    length = next(len(operand) for operand in operands if isinstance(operand, pa.Array))
    conditions = [_repeated(condition, length) for condition in operands[0 : len(operands) - 1 : 2]]
    outcomes = list(operands[1::2])
    otherwise = operands[-1] if len(operands) % 2 else pa.scalar(None, node.type)
    names = [str(position) for position in range(len(conditions))]
    chosen = pa.StructArray.from_arrays(conditions, names=names)
    return pc.case_when(chosen, *(_repeated(o, length) for o in (*outcomes, otherwise)))


def _repeated(operand: ArrowOperand, length: int) -> pa.Array:
    return pa.repeat(operand, length) if isinstance(operand, pa.Scalar) else operand


def _compiled_case(code: Code, node: Apply, terms: Sequence[Term]) -> Term:
    pairs = zip(terms[0::2], terms[1::2], strict=False)
    branches = [(f"{test.known} and {test.value}", term) for test, term in pairs]
    return _chosen(code, node, branches, terms[-1] if len(terms) % 2 else None)


def _compiled_coalesce(code: Code, node: Apply, terms: Sequence[Term]) -> Term:
    return _chosen(code, node, [(term.known, term) for term in terms], None)


def _chosen(
    code: Code, node: Apply, branches: Sequence[tuple[str, Term]], otherwise: Term | None
) -> Term:
    kind = kind_of(node.type)
    result = otherwise or Term(ZERO[kind], "False", kind)
    for test, term in reversed(branches):
        value, known = _as(term, kind), term.known
        other = _as(result, kind)
        chosen = code.line(test, "True", CompiledType.BOOLEAN).value
        result = code.line(
            f"{value} if {chosen} else {other}",
            f"({known}) if {chosen} else ({result.known})",
            kind,
        )
    return result


def _as(term: Term, kind: CompiledType) -> str:
    if term.known == "False":
        return ZERO[kind]
    if kind is CompiledType.FLOAT and term.kind is CompiledType.INTEGER:
        return f"float({term.value})"
    if term.kind is not kind:
        raise Uncompilable
    return term.value


def _case_spelt(_: Apply, parts: Sequence[str]) -> str:
    branches = [
        f"WHEN {condition} THEN {value}"
        for condition, value in zip(parts[0::2], parts[1::2], strict=False)
    ]
    otherwise = [f"ELSE {parts[-1]}"] if len(parts) % 2 else []
    return "CASE " + " ".join([*branches, *otherwise]) + " END"


def _try_cast(signature: Signature) -> ValueFunction:
    function = converted(signature)

    def attempt(value: Any) -> Any:
        try:
            return function(value)
        except Exception:
            return None

    return attempt


def _unreachable(arguments: Sequence[BoundExpression]) -> Signature:
    raise MismatchError("this operator is bound by its own node")


def _cast_column(node: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
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
    raise unsuitable("Arrow's rules of this cast are not SQL's")


def _compiled_cast(code: Code, node: Apply, terms: Sequence[Term]) -> Term:
    (term,), source, wanted = terms, node.arguments[0].type, node.type
    if wanted == pa.float64() and types.is_numeric(source):
        if term.kind is CompiledType.FLOAT:
            return term
        if not types.is_decimal(source):
            return code.line(f"float({term.value})", term.known, CompiledType.FLOAT)
        if source.scale <= _EXACT_POWER:
            code.exact(term.value)
            text = f"float({term.value}) / {float(10**source.scale)!r}"
            return code.line(text, term.known, CompiledType.FLOAT)
    factor = _units(source, wanted)
    if factor == 1:
        return term
    code.within(term.value, (1 << 63) // factor)
    return code.line(f"{term.value} * {factor}", term.known, CompiledType.INTEGER)


def _units(source: pa.DataType, wanted: pa.DataType) -> int:
    """Return how many units of one type there are in that of another that has all its values."""
    if types.is_integer(source) and wanted in types.SIGNED:
        low, high = types.integer_range(wanted)
        least, greatest = types.integer_range(source)
        if low <= least and greatest <= high:
            return 1
    if types.is_decimal(wanted) and (types.is_integer(source) or types.is_decimal(source)):
        given = types.as_decimal(source)
        power = wanted.scale - given.scale
        if _holds(wanted, given) and power <= _EXACT_POWER // 2:
            return int(10**power)
    if pa.types.is_date(source) and pa.types.is_timestamp(wanted) and wanted.tz is None:
        return DAY
    stamps = pa.types.is_timestamp(source) and pa.types.is_timestamp(wanted)
    if source == wanted or (stamps and (source.tz is None) == (wanted.tz is None)):
        return 1
    raise Uncompilable


def _cast_spelt(node: Apply, parts: Sequence[str]) -> str | None:
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
    name = spark_type(target)
    return f"CAST({parts[0]} AS {name})" if wider and name else None


def _holds(target: pa.DataType, source: pa.DataType) -> bool:
    whole = target.precision - target.scale >= source.precision - source.scale
    return bool(whole and target.scale >= source.scale)


def spark_type(kind: pa.DataType) -> str | None:
    """Return a type as Spark SQL calls it; None for one whose values may mean something else.

    Examples
    --------
    >>> spark_type(pa.decimal128(10, 2)), spark_type(pa.timestamp("us"))
    ('DECIMAL(10, 2)', None)
    """
    if types.is_decimal(kind) and kind.scale >= 0:
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _SPARK_TYPES.get(kind)


_SPARK_TYPES = {
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

CHOICES: tuple[Function, ...] = (
    Function("case", 2, None, _case_rule, fixed(_case),
             "the value behind the first condition that holds, or that of ELSE",
             "case when 1 > 2 then 'a' else 'b' end = 'b'",
             arrow=_case_columns, numba=_compiled_case, catalyst=_case_spelt,
             strict=False, lazy=True, safe=True),
    Function("coalesce", 1, None, same_type, fixed(_coalesce),
             "the first that is not NULL", "coalesce(null, 2, 3) = 2", ("ifnull", "nvl"),
             arrow=direct(pc.coalesce), numba=_compiled_coalesce, catalyst=called("coalesce"),
             strict=False, lazy=True, safe=True),
    Function("try", 1, 1, same_type, fixed(_try),
             "NULL where the value cannot be computed", "try(cast('x' as integer)) is null",
             # Where the argument fails, the caller computes it row by row.
             arrow=lambda _, operands: operands[0], lazy=True),
    Function("cast", 1, 1, _unreachable, converted,
             "the value as one of another type", "cast('7' as integer) = 7",
             arrow=_cast_column, numba=_compiled_cast, catalyst=_cast_spelt),
    Function("try_cast", 1, 1, _unreachable, _try_cast,
             "NULL where it cannot be cast", "try_cast('x' as integer) is null"),
)  # fmt: skip
