"""The aggregate functions over the rows of a match: types and plain Python implementations.

NULLs are left out, except that `array_agg` and the map aggregates keep them as values and
`count(*)` counts rows. Over no rows an aggregate is NULL and a count is 0. NaN is greater than all
numbers in `min` and `max`. Statistical aggregates are in `statistics.py`.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from outpace.errors import DataError
from outpace.pattern import types, values
from outpace.pattern.bound import BoundExpression, Constant
from outpace.pattern.functions.function import (
    Aggregator,
    MismatchError,
    Resolve,
    Signature,
    require,
    returns,
)
from outpace.pattern.functions.statistics import STATISTICS, ArgumentRows
from outpace.pattern.types import type_name

Fold = Callable[[ArgumentRows], Any]


def hashable(value: Any) -> Any:
    """Return a value that can be a key, equal where the given ones are equal.

    Examples
    --------
    >>> hashable([1, {"a": [2]}])
    (1, (('a', (2,)),))
    """
    if isinstance(value, list | tuple):
        return tuple(hashable(part) for part in value)
    if isinstance(value, dict):
        return tuple((key, hashable(part)) for key, part in value.items())
    if isinstance(value, float) and value != value:
        return ("not a number",)
    return value


def distinct_rows(rows: ArgumentRows) -> list[tuple[Any, ...]]:
    """Return the rows without repetitions, in the order of their first occurrence.

    Examples
    --------
    >>> distinct_rows([(1,), (2,), (1,)])
    [(1,), (2,)]
    """
    first: dict[Any, tuple[Any, ...]] = {}
    for row in rows:
        first.setdefault(hashable(row), row)
    return list(first.values())


def order_key(value: Any) -> Any:
    """Return a key under which NaN is greater than all other numbers."""
    if isinstance(value, float) and math.isnan(value):
        return (1, 0.0)
    return (0, value) if isinstance(value, float) else value


def summation(arguments: Sequence[BoundExpression]) -> Signature:
    """Rule of `sum`: integers give a bigint, decimals keep their scale, intervals stay."""
    kind = arguments[0].type
    if pa.types.is_duration(kind):
        return Signature((types.INTERVAL,), types.INTERVAL)
    kind = require(arguments[0], "number", 0)
    if types.is_decimal(kind):
        return Signature((kind,), pa.decimal128(types.MAX_PRECISION, kind.scale))
    if kind == pa.uint64():
        return Signature((kind,), kind)
    return Signature((kind,), pa.int64() if types.is_integer(kind) else pa.float64())


def _average(arguments: Sequence[BoundExpression]) -> Signature:
    kind = arguments[0].type
    if pa.types.is_duration(kind):
        return Signature((types.INTERVAL,), types.INTERVAL)
    kind = require(arguments[0], "number", 0)
    return Signature((kind,), kind if types.is_decimal(kind) else pa.float64())


def _sum_fold(signature: Signature) -> Fold:
    result = signature.result

    def fold(rows: ArgumentRows) -> Any:
        if not rows:
            return None
        given = [row[0] for row in rows]
        if types.is_integer(result):
            return values.check_integer(sum(given), result)
        if types.is_decimal(result):
            return values.round_decimal(functools.reduce(values.CONTEXT.add, given), result)
        if pa.types.is_duration(result):
            return sum(given, datetime.timedelta())
        return _float_sum(given)

    return fold


def _float_sum(given: Sequence[float]) -> float:
    """Add from left to right, as an engine that sees one row after the other does."""
    total = 0.0
    for value in given:
        total += value
    return total


def _average_fold(signature: Signature) -> Fold:
    source, result = signature.arguments[0], signature.result

    def fold(rows: ArgumentRows) -> Any:
        if not rows:
            return None
        given = [row[0] for row in rows]
        if types.is_decimal(result):
            total = functools.reduce(values.CONTEXT.add, given)
            return values.round_decimal(
                values.CONTEXT.divide(total, decimal.Decimal(len(given))), result
            )
        if pa.types.is_duration(result):
            return sum(given, datetime.timedelta()) / len(given)
        if types.is_integer(source):
            return sum(given) / len(given)
        return _float_sum(given) / len(given)

    return fold


def _extreme(arguments: Sequence[BoundExpression]) -> Signature:
    kind = arguments[0].type
    if not types.is_ordered(kind):
        raise MismatchError(f"{type_name(kind)} has no order", 0)
    if len(arguments) == 1:
        return Signature((kind,), kind)
    return Signature((kind, _how_many(arguments[1], 1)), pa.list_(kind))


def _how_many(argument: BoundExpression, position: int) -> pa.DataType:
    value = argument.value if isinstance(argument, Constant) else None
    if not isinstance(value, int) or value < 1:
        raise MismatchError("expected how many, an integer literal of at least 1", position)
    return pa.int64()


def _extreme_fold(greatest: bool) -> Callable[[Signature], Fold]:
    pick = max if greatest else min

    def implement(signature: Signature) -> Fold:
        if len(signature.arguments) == 1:
            return lambda rows: pick((r[0] for r in rows), key=order_key, default=None)

        def several(rows: ArgumentRows) -> Any:
            ranked = sorted((row[0] for row in rows), key=order_key, reverse=greatest)
            return ranked[: rows[0][1]] if rows else None

        return several

    return implement


def _extreme_by(arguments: Sequence[BoundExpression]) -> Signature:
    kinds = tuple(argument.type for argument in arguments)
    if not types.is_ordered(kinds[1]):
        raise MismatchError(f"{type_name(kinds[1])} has no order", 1)
    if len(arguments) == 2:
        return Signature(kinds, kinds[0])
    return Signature((*kinds[:2], _how_many(arguments[2], 2)), pa.list_(kinds[0]))


def _extreme_by_fold(greatest: bool) -> Callable[[Signature], Fold]:
    pick = max if greatest else min

    def implement(signature: Signature) -> Fold:
        def fold(rows: ArgumentRows) -> Any:
            known = [row for row in rows if row[1] is not None]
            if not known:
                return None
            if len(signature.arguments) == 2:
                return pick(known, key=lambda row: order_key(row[1]))[0]
            ranked = sorted(known, key=lambda row: order_key(row[1]), reverse=greatest)
            return [row[0] for row in ranked[: known[0][2]]]

        return fold

    return implement


def _first(rows: ArgumentRows) -> Any:
    return rows[0][0] if rows else None


def _gathered(rows: ArgumentRows) -> Any:
    return [row[0] for row in rows] if rows else None


def _gathered_once(rows: ArgumentRows) -> Any:
    return [row[0] for row in distinct_rows(rows)] if rows else None


def _listed(arguments: Sequence[BoundExpression]) -> Signature:
    return Signature((arguments[0].type,), pa.list_(arguments[0].type))


def _same(arguments: Sequence[BoundExpression]) -> Signature:
    return Signature((arguments[0].type,), arguments[0].type)


def _all_true(rows: ArgumentRows) -> Any:
    return all(row[0] for row in rows) if rows else None


def _any_true(rows: ArgumentRows) -> Any:
    return any(row[0] for row in rows) if rows else None


def _string_join(rows: ArgumentRows) -> Any:
    if not rows:
        return None
    separator = rows[0][1] if len(rows[0]) > 1 else ""
    return values.joined_text(separator or "", [row[0] for row in rows])


def key_type(kind: pa.DataType, position: int) -> pa.DataType:
    """Return the type of a map's keys, or raise `MismatchError` where it cannot be one."""
    nested = types.is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind)
    if nested or pa.types.is_null(kind):
        raise MismatchError(f"{type_name(kind)} cannot be the key of a map", position)
    return kind


def _as_key(value: Any) -> Any:
    """Return a value that finds its equal in a dict: all NaNs are one key."""
    return math.nan if value != value else value


def _mapping(arguments: Sequence[BoundExpression]) -> Signature:
    kinds = (key_type(arguments[0].type, 0), arguments[1].type)
    return Signature(kinds, pa.map_(*kinds))


def _multimapping(arguments: Sequence[BoundExpression]) -> Signature:
    kinds = (key_type(arguments[0].type, 0), arguments[1].type)
    return Signature(kinds, pa.map_(kinds[0], pa.list_(kinds[1])))


def _map(rows: ArgumentRows) -> Any:
    gathered: dict[Any, Any] = {}
    for key, value in rows:
        gathered.setdefault(_as_key(key), value)
    return gathered or None


def _multimap(rows: ArgumentRows) -> Any:
    gathered: dict[Any, list[Any]] = {}
    for key, value in rows:
        gathered.setdefault(_as_key(key), []).append(value)
    return gathered or None


def _map_union(rows: ArgumentRows) -> Any:
    if not rows:
        return None
    gathered: dict[Any, Any] = {}
    for (mapping,) in rows:
        for key, value in mapping.items():
            gathered.setdefault(_as_key(key), value)
    return gathered


def _map_rule(arguments: Sequence[BoundExpression]) -> Signature:
    kind = require(arguments[0], "map", 0)
    return Signature((kind,), kind)


def _counted(arguments: Sequence[BoundExpression]) -> Signature:
    kind = key_type(arguments[0].type, 0)
    return Signature((kind,), pa.map_(kind, pa.int64()))


def _histogram(rows: ArgumentRows) -> Any:
    counts: dict[Any, int] = {}
    for (value,) in rows:
        key = _as_key(value)
        counts[key] = counts.get(key, 0) + 1
    return counts or None


def _frequent_rule(arguments: Sequence[BoundExpression]) -> Signature:
    kind = key_type(arguments[1].type, 1)
    many = (_how_many(arguments[0], 0), _how_many(arguments[2], 2))
    return Signature((many[0], kind, many[1]), pa.map_(kind, pa.int64()))


def _most_frequent(rows: ArgumentRows) -> Any:
    """Count exactly, whatever the capacity; of equally frequent values the first seen leads."""
    counts = _histogram([row[1:2] for row in rows if row[1] is not None])
    if counts is None:
        return None
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return dict(ranked[: rows[0][0]])


def _bitwise(join: Callable[[int, int], int]) -> Fold:
    return lambda rows: functools.reduce(join, (row[0] for row in rows)) if rows else None


def _count_rule(arguments: Sequence[BoundExpression]) -> Signature:
    return Signature(tuple(argument.type for argument in arguments), pa.int64())


def _product(rows: ArgumentRows) -> Any:
    return math.prod(row[0] for row in rows) if rows else None


def _percentile(rows: ArgumentRows) -> Any:
    if not rows:
        return None
    share = rows[0][1]
    if not 0 <= share <= 1:
        raise DataError(f"a percentile is between 0 and 1, not {share}")
    ranked = sorted((row[0] for row in rows), key=order_key)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def _percentile_rule(arguments: Sequence[BoundExpression]) -> Signature:
    kind = require(arguments[0], "number", 0)
    return Signature((kind, require(arguments[1], "double", 1)), kind)


def _simple(
    name: str, rule: Resolve, fold: Fold, about: str, *aliases: str,
    count: int = 1, skip_null: bool = True,
) -> Aggregator:  # fmt: skip
    return Aggregator(name, count, count, rule, lambda _: fold, about, aliases, skip_null)


_BOOLEAN = returns(pa.bool_(), "boolean")
_INTEGER = returns(pa.int64(), "integer")

AGGREGATES: tuple[Aggregator, ...] = (
    Aggregator("count", 0, 1, _count_rule, lambda _: len, "rows, or values that are not NULL"),
    Aggregator("sum", 1, 1, summation, _sum_fold, "of all values"),
    Aggregator("avg", 1, 1, _average, _average_fold, "the mean", ("mean",)),
    Aggregator("min", 1, 2, _extreme, _extreme_fold(greatest=False),
               "the smallest, or the n smallest"),
    Aggregator("max", 1, 2, _extreme, _extreme_fold(greatest=True),
               "the largest, or the n largest"),
    Aggregator("min_by", 2, 3, _extreme_by, _extreme_by_fold(False),
               "the value where another is smallest", ("arg_min",), False),
    Aggregator("max_by", 2, 3, _extreme_by, _extreme_by_fold(True),
               "the value where another is largest", ("arg_max",), False),
    _simple("arbitrary", _same, _first, "the first value", "any_value"),
    _simple("array_agg", _listed, _gathered, "all values, NULLs too", skip_null=False),
    _simple("collect_list", _listed, lambda rows: [row[0] for row in rows],
            "all values that are not NULL"),
    _simple("set_agg", _listed, _gathered_once, "each value once", "collect_set", skip_null=False),
    _simple("bool_and", _BOOLEAN, _all_true, "whether all are true", "every"),
    _simple("bool_or", _BOOLEAN, _any_true, "whether one is true", "some"),
    _simple("count_if", returns(pa.int64(), "boolean"),
            lambda rows: sum(1 for row in rows if row[0]), "how many are true", "countif"),
    Aggregator("listagg", 1, 2, returns(pa.string(), "text"), lambda _: _string_join,
               "texts joined, maybe with a separator", ("string_agg", "group_concat")),
    _simple("map_agg", _mapping, _map, "keys to values", count=2),
    _simple("multimap_agg", _multimapping, _multimap, "keys to arrays of values", count=2),
    _simple("map_union", _map_rule, _map_union, "one map of all; of equal keys the first"),
    _simple("histogram", _counted, _histogram, "values to how often"),
    _simple("approx_distinct", _count_rule, lambda rows: len(distinct_rows(rows)),
            "how many different values (exact)"),
    _simple("approx_most_frequent", _frequent_rule, _most_frequent,
            "the n most frequent values to how often (exact)", count=3),
    _simple("bitwise_and_agg", _INTEGER, _bitwise(operator.and_), "the bits that all have",
            "bit_and"),
    _simple("bitwise_or_agg", _INTEGER, _bitwise(operator.or_), "the bits that any has", "bit_or"),
    _simple("bitwise_xor_agg", _INTEGER, _bitwise(operator.xor), "the bits that an odd number have",
            "bit_xor"),
    _simple("product", returns(pa.float64(), "double"), _product, "of all values"),
    _simple("approx_percentile", _percentile_rule, _percentile, "the value at a share of the rows",
            "percentile_disc", count=2),
    *STATISTICS,
)  # fmt: skip

_BY_NAME = {name: a for a in AGGREGATES for name in (a.name, *a.aliases)}


def find_aggregate(name: str) -> Aggregator | None:
    """Return an aggregate by any of its names, or None.

    Examples
    --------
    >>> find_aggregate("every").name
    'bool_and'
    """
    return _BY_NAME.get(name)


def aggregate_names() -> tuple[str, ...]:
    """Return all names under which aggregates can be called."""
    return tuple(_BY_NAME)
