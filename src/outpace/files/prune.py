"""Which row groups can be left out, told by the bounds that their footers give.

A condition is asked which of TRUE, FALSE and NULL it may have for the rows of a row group, given
the least and greatest value of each column and the number of NULLs. Whatever is not understood may
have all three, so a row group is only left out when no row in it can count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from outpace.engine.match.contract import Task
from outpace.files.parquet import RowGroup, Statistics
from outpace.pattern import types
from outpace.pattern.bound import Apply, BoundExpression, Constant, Predicate, Read, ReadPlace

#: Integers up to here are floating-point numbers exactly.
_EXACT: Final = 1 << 53

_OWN: Final = ReadPlace("last")
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


def may_use(predicates: tuple[Predicate, ...], group: RowGroup) -> bool:
    """Say whether a row of a row group may satisfy any of some predicates."""
    return any(_may_hold(predicate, group) for predicate in predicates)


def may_start(task: Task, group: RowGroup) -> bool:
    """Say whether a match may start in a row group.

    Examples
    --------
    >>> from outpace.engine.match.task import prepare
    >>> from outpace.pattern.query import Query
    >>> query = (Query("q").order_by("ts").pattern("A -> B").define(A="v > 5", B="v < 2")
    ...          .measures(n="COUNT(*)"))
    >>> task = prepare(query, pa.schema([("ts", pa.int64()), ("v", pa.int64())]))
    >>> low = RowGroup("f", 0, 100, {}, {"v": Statistics(0, 5, 0)}, {})
    >>> may_start(task, low), may_use(task.bound.predicates, low)
    (False, True)
    """
    program = task.program
    if program.matches_empty:
        return True
    first = {program.positions[move.target].variable for move in program.initial}
    return may_use(tuple(task.bound.predicates[variable] for variable in first), group)


def _may_hold(predicate: Predicate, group: RowGroup) -> bool:
    if predicate.expression is None:
        return True
    return _truth(predicate.expression, group).true


@dataclass(frozen=True, slots=True)
class _TruthValues:
    """Which truth values a condition may have."""

    true: bool = True
    false: bool = True
    null: bool = True


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The bounds of a value; `empty`: it is always NULL, `nan`: it may be NaN beside the bounds."""

    least: Any
    greatest: Any
    null: bool
    empty: bool = False
    nan: bool = False


_UNKNOWN: Final = _TruthValues()


def _truth(node: BoundExpression, group: RowGroup) -> _TruthValues:
    match node:
        case Constant(value=value) if value is None or isinstance(value, bool):
            return _TruthValues(value is True, value is False, value is None)
        case Apply(function="and" | "or" as function, arguments=arguments):
            parts = [_truth(argument, group) for argument in arguments]
            return _all(parts) if function == "and" else _not(_all([_not(p) for p in parts]))
        case Apply(function="not", arguments=(operand,)):
            return _not(_truth(operand, group))
        case Apply(function="is null", arguments=(operand,)):
            bounds = _bounds(operand, group)
            if bounds is None:
                return _UNKNOWN
            return _TruthValues(bounds.null or bounds.empty, not bounds.empty, null=False)
        case Apply(function="in", arguments=(item, *members)):
            equal = [_compare("=", item, member, group) for member in members]
            return _not(_all([_not(truth) for truth in equal]))
        case Apply(function=function, arguments=(left, right)) if function in _TURNED:
            return _compare(function, left, right, group)
        case _:
            return _UNKNOWN


def _all(parts: list[_TruthValues]) -> _TruthValues:
    return _TruthValues(
        true=all(part.true for part in parts),
        false=any(part.false for part in parts),
        null=any(part.null for part in parts),
    )


def _not(truth: _TruthValues) -> _TruthValues:
    return _TruthValues(truth.false, truth.true, truth.null)


def _compare(
    function: str, left: BoundExpression, right: BoundExpression, group: RowGroup
) -> _TruthValues:
    one, two = _bounds(left, group), _bounds(right, group)
    if one is None or two is None:
        return _UNKNOWN
    if one.empty or two.empty:
        return _TruthValues(true=False, false=False)
    null = one.null or two.null
    try:
        truth = _ordered(function, one, two)
    except TypeError:
        return _UNKNOWN
    if one.nan or two.nan:
        # NaN is not equal to anything, and neither less nor greater.
        return _TruthValues(truth.true or function == "<>", false=True, null=null)
    return _TruthValues(truth.true, truth.false, null)


def _ordered(function: str, one: _Bounds, two: _Bounds) -> _TruthValues:
    """Compare bounds of values that are not NULL."""
    if function in (">", ">="):
        return _ordered(_TURNED[function], two, one)
    if function == "<>":
        return _not(_ordered("=", one, two))
    if function == "=":
        apart = one.greatest < two.least or two.greatest < one.least
        same = one.least == one.greatest == two.least == two.greatest
        return _TruthValues(not apart, not same)
    if function == "<=":
        return _not(_ordered("<", two, one))
    return _TruthValues(one.least < two.greatest, not one.greatest < two.least)


def _bounds(node: BoundExpression, group: RowGroup) -> _Bounds | None:
    """Return the bounds of a value; None where they are not known."""
    match node:
        case Constant(value=None):
            return _Bounds(None, None, null=True, empty=True)
        case Constant(value=value):
            unordered = isinstance(value, float) and math.isnan(value)
            return None if unordered else _Bounds(value, value, null=False)
        case Read(column=column, path=(), place=place) if place == _OWN:
            return _stored(group.statistics.get(column), group.rows, node.type)
        case Apply(function="cast", arguments=(operand,)):
            bounds = _bounds(operand, group)
            return bounds if bounds and _is_exact(operand.type, node.type, bounds) else None
        case _:
            return None


def _stored(known: Statistics | None, rows: int, kind: pa.DataType) -> _Bounds | None:
    if known is None:
        return None
    if known.null_count == rows:
        return _Bounds(None, None, null=True, empty=True)
    if known.least is None or known.greatest is None:
        return None
    if known.least != known.least or known.greatest != known.greatest:
        # Some writers give NaN where there is one, which is no bound of the others.
        return None
    nan = types.is_floating(kind)
    return _Bounds(known.least, known.greatest, null=known.null_count != 0, nan=nan)


def _is_exact(source: pa.DataType, target: pa.DataType, bounds: _Bounds) -> bool:
    """Say whether a cast changes no value within the bounds."""
    if bounds.empty:
        return True
    if types.is_integer(source):
        small = abs(bounds.least) <= _EXACT and abs(bounds.greatest) <= _EXACT
        wider = types.is_integer(target) and target.bit_width >= source.bit_width
        return wider or types.is_decimal(target) or bool(target == pa.float64() and small)
    if types.is_decimal(source):
        return types.is_decimal(target) and target.scale >= source.scale
    return bool(source == pa.float32() and target == pa.float64())
