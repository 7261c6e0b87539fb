"""Every function over every type of column: whole columns, tables of values and rows agree."""

import contextlib
import datetime
import itertools
import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outpace.engine.evaluate.columns import evaluate_columns
from outpace.engine.evaluate.frame import PredicateFrame
from outpace.engine.evaluate.row import RowContext, compile_row
from outpace.engine.match.contract import Block
from outpace.engine.match.kernel_masks import BlockMasks
from outpace.errors import BindError, DataError
from outpace.pattern import expression as ex
from outpace.pattern.bind.expression import bind_expression
from outpace.pattern.bind.scope import Scope
from outpace.pattern.bound import (
    Apply,
    BoundExpression,
    Constant,
    Predicate,
    PredicateClass,
    Read,
    walk,
)
from outpace.pattern.functions import FUNCTIONS, function_of
from outpace.pattern.functions.function import Code, Term, Uncompilable, kind_of
from outpace.pattern.values import column_values
from outpace.plan.crossing import catalyst_text

_NOON = datetime.datetime(2024, 2, 29, 12, 30, 15, 250_000)
_1850 = datetime.datetime(1850, 6, 1, 12)
_HOUR = datetime.timedelta(hours=1)
_TEXTS = ["b a", "Äß", "a", None, ""]

#: For each type a few values, a NULL among them.
COLUMNS: dict[str, pa.Array] = {
    "tiny": pa.array([1, -1, None, 127], pa.int8()),
    "small": pa.array([1, -1, None, 300], pa.int16()),
    "whole": pa.array([1, 2, None, -7], pa.int32()),
    "long": pa.array([1, 2, None, -7], pa.int64()),
    "byte": pa.array([1, 0, None, 255], pa.uint8()),
    "unsigned": pa.array([1, 0, None, 2**64 - 1], pa.uint64()),
    "real": pa.array([1.5, -0.0, None, math.nan], pa.float32()),
    "double": pa.array([1.5, -2.5, None, math.inf]),
    "money": pa.array([Decimal("1.50"), Decimal("-0.25"), None, Decimal("99.99")]),
    "text": pa.array(_TEXTS[:4]),
    "large": pa.array(_TEXTS[1:], pa.large_string()),
    "flag": pa.array([True, False, None, True]),
    "bytes": pa.array([b"a", b"", None, b"\xff"]),
    "stamp": pa.array([_NOON, _NOON + _HOUR, None, _NOON - 100 * _HOUR]),
    "coarse": pa.array([_NOON, _NOON + _HOUR, None, _NOON], pa.timestamp("ms")),
    "fine": pa.array([0, 10, None, 1709210000123456789], pa.timestamp("ns")),
    # Before standard time Berlin was 53 minutes and 28 seconds ahead.
    "zoned": pa.array([_NOON, _NOON + _HOUR, None, _1850], pa.timestamp("us", "Europe/Berlin")),
    "date": pa.array([_NOON.date(), datetime.date(2023, 1, 1), None, _NOON.date()]),
    "time": pa.array([_NOON.time(), datetime.time(), None, _NOON.time()]),
    "span": pa.array([_HOUR, -3 * _HOUR, None, 26 * _HOUR]),
    "finespan": pa.array([1, 2001, None, -5], pa.duration("ns")),
    "words": pa.array([["a", None], [], None, ["b", "a"]], pa.list_(pa.string())),
    "numbers": pa.array([[3, None, 1], [], None, [2, 2]], pa.list_(pa.int64())),
    "fixed": pa.array([[3, None], [1, 1], None, [2, 1]], pa.list_(pa.int64(), 2)),
    "instants": pa.array([[10, None], [], None, [2001]], pa.list_(pa.timestamp("ns"))),
    "mapping": pa.array([[("a", 1)], [], None, [("b", None)]], pa.map_(pa.string(), pa.int64())),
    "pair": pa.array([{"a": 1}, {"a": None}, None, {"a": 2}], pa.struct([("a", pa.int64())])),
    "nothing": pa.nulls(4),
}
#: Dictionaries count as their values; most columns of pandas with few values are one.
COLUMNS |= {
    f"coded_{name}": COLUMNS[name].dictionary_encode()
    for name in ("text", "long", "double", "money", "stamp", "fine", "zoned", "date", "flag")
}
_LITERALS = (1, "%a_", "day", "UTC")


def _scope(columns: dict[str, pa.Array]) -> Scope:
    schema = pa.schema([(name, column.type) for name, column in columns.items()])
    return Scope(schema, {"A": frozenset({0})}, ("A",), frozenset(), "define A", defines=0)


def _bound(node: ex.Expression, scope: Scope) -> BoundExpression | None:
    try:
        return bind_expression(node, scope)
    except BindError:
        return None


#: Columns that stand behind the first argument; more of them would only be slower.
_BEHIND = ("text", "long", "stamp", "date", "span", "numbers")


def _calls(
    columns: Iterable[str], behind: Iterable[str], literals: Iterable[object]
) -> Iterator[ex.Call]:
    """Yield calls of every function; most do not bind."""
    names = [ex.Name((name,)) for name in columns]
    others = [*(ex.Name((name,)) for name in behind), *map(ex.Literal, literals)]
    few = [ex.Literal(1), ex.Literal("a"), ex.Name(("text",)), ex.Name(("date",))]
    for function in FUNCTIONS:
        if function.most == 0:
            yield ex.Call(function.name, ())
        for count in range(max(1, function.least), min(function.most or 3, 4) + 1):
            for first in [*names, ex.Literal("day")]:
                pools = [[first], [*others, first] if count == 2 else few, few, few[:1]]
                for arguments in itertools.product(*pools[:count]):
                    yield ex.Call(function.name, arguments)


def _checked(calls: Iterable[ex.Call], columns: dict[str, pa.Array]) -> set[str]:
    """Check all calls that bind, and return the names of their functions."""
    names = set()
    scope = _scope(columns)
    for call in calls:
        expression = _bound(call, scope)
        if expression is None:
            continue
        used = {part.parts[0] for part in call.arguments if isinstance(part, ex.Name)}
        held = {name: columns[name] for name in used or {"long"}}
        _check(expression, held, str(call)[:1000])
        _check(expression, {name: column[:0] for name, column in held.items()}, f"no rows: {call}")
        names.add(call.name)
    return names


def _rows(expression: BoundExpression, columns: dict[str, pa.Array]) -> list[Any]:
    evaluate = compile_row(expression)
    held = {name: column_values(column) for name, column in columns.items()}
    size = len(next(iter(columns.values())))
    context = RowContext(held, size, ["A"], rows=[0], labels=[0], current=0)
    found = []
    for row in range(size):
        context.rows = [row]
        try:
            found.append(evaluate(context))
        except DataError as problem:
            found.append(problem)
    return found


def _alike(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (
            left == right
            or (left != left and right != right)
            or math.isclose(left, right, rel_tol=1e-6)
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_alike, left, right))
    return bool(left == right)


def _check(expression: BoundExpression, columns: dict[str, pa.Array], said: str) -> None:
    rows = _rows(expression, columns)
    failed = any(isinstance(value, DataError) for value in rows)
    frame = PredicateFrame(columns)
    try:
        whole = column_values(evaluate_columns(expression, frame))
    except DataError:
        assert failed, said
    else:
        assert not failed, said
        assert _alike(whole, rows), (said, whole, rows)
    known = Apply(pa.bool_(), "not", (Apply(pa.bool_(), "is null", (expression,)),))
    size = len(rows)
    block = Block(
        columns,
        np.array([0, size]),
        np.zeros(1, np.int64),
        *[np.zeros(0, np.int64)] * 3,
        ended=True,
    )
    masks = BlockMasks((Predicate("A", known, PredicateClass.LOCAL),))
    try:
        holds = masks(block).tolist()
    except DataError:
        assert failed, said
    else:
        assert not failed, said
        assert holds == [int(value is not None) for value in rows], said


def test_every_function_gives_the_same_over_columns_of_every_type() -> None:
    names = _checked(_calls(COLUMNS, _BEHIND, _LITERALS), COLUMNS)
    assert names == {function.name for function in FUNCTIONS} - {"cast", "try_cast", "field"}


_TIMES = [datetime.datetime.min, datetime.datetime.max, None]

#: Values at the ends of what their types hold, and texts that mean harm.
HOSTILE: dict[str, pa.Array] = {
    "tiny": pa.array([-128, 127, 0], pa.int8()),
    "long": pa.array([-(2**63), 2**63 - 1, 0]),
    "unsigned": pa.array([2**64 - 1, 0, 1], pa.uint64()),
    "double": pa.array([math.nan, 1e300, -math.inf]),
    "money": pa.array([Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(0)]),
    "cents": pa.array([Decimal("0." + "9" * 38), Decimal("-0." + "9" * 38), None]),
    "text": pa.array(["9" * 400, "((" + "%_" * 50, "\x00+99:99"]),
    "stamp": pa.array(_TIMES, pa.timestamp("us")),
    "fine": pa.array([-(2**63) + 1, 2**63 - 1, -1], pa.timestamp("ns")),
    "zoned": pa.array(_TIMES, pa.timestamp("us", "Asia/Tokyo")),
    "date": pa.array([datetime.date.min, datetime.date.max, None]),
    "span": pa.array([-(2**62), 2**62, 0], pa.duration("us")),
    "numbers": pa.array([[2**63 - 1, 2**63 - 1], [-(2**63)], None]),
    "digits": pa.array(["9" * 5000, "1e99999999999", "-" + "0" * 5000 + "1"]),
    "coded_text": pa.array(["1e999999", "9999-12-31 23:59:59-23:59", ""]).dictionary_encode(),
}


def test_hostile_values_give_a_value_or_a_data_error() -> None:
    literals = (0, -1, 2**62, 10**37, 1e300, "", "(" * 50, "century", "9" * 400)
    behind = ("text", "long", "double", "stamp", "zoned", "span", "coded_text")
    calls = _calls([name for name in HOSTILE if name != "digits"], behind, literals)
    # Arrow cannot show the last hours of the year 9999 east of Greenwich inside an array.
    calls = (call for call in calls if call.name != "array")
    assert len(_checked(calls, HOSTILE)) > 100


@pytest.mark.parametrize("source", [*COLUMNS, *(f"hostile {name}" for name in HOSTILE)])
def test_every_cast_gives_the_same_over_columns(source: str) -> None:
    hostile, name = source.startswith("hostile"), source.removeprefix("hostile ")
    column = (HOSTILE if hostile else COLUMNS)[name]
    kinds = [other.type for other in COLUMNS.values() if other.type != pa.null()]
    for kind, safe in itertools.product(kinds, (False, True)):
        cast = ex.Cast(ex.Name((name,)), kind, safe)
        expression = _bound(cast, _scope({name: column}))
        if expression is not None:
            _check(expression, {name: column}, str(cast))


def test_each_meaning_of_a_function_is_given_for_some_types() -> None:
    """One that always gives up would stand in the registry, and in the reference, for nothing."""
    given: dict[str, set[str]] = {"arrow": set(), "numba": set(), "catalyst": set()}
    names = ("long", "double", "text", "flag", "stamp", "date", "span")
    cast = ex.Cast(ex.Name(("whole",)), pa.int64(), False)
    scope, frame = _scope(COLUMNS), PredicateFrame(COLUMNS)
    for call in (cast, *_calls(names, names, (1, "a%", 1.5))):
        node = _bound(call, scope)
        if not isinstance(node, Apply) or not any(isinstance(part, Read) for part in walk(node)):
            continue
        function, parts = function_of(node), node.arguments
        with contextlib.suppress(pa.ArrowException, DataError):
            columns = [evaluate_columns(part, frame) for part in parts]
            fixed = [isinstance(part, Constant) for part in parts]
            operands = [c[0] if f else c for c, f in zip(columns, fixed, strict=True)]
            if function.arrow is not None and function.arrow(node, operands) is not None:
                given["arrow"].add(function.name)
        with contextlib.suppress(Uncompilable):
            terms = [Term("x", "True", kind_of(part.type)) for part in parts]
            if function.numba is not None and function.numba(Code(), node, terms) is not None:
                given["numba"].add(function.name)
        if catalyst_text(node) is not None:
            given["catalyst"].add(function.name)
    for meaning, found in given.items():
        assert found == {f.name for f in FUNCTIONS if getattr(f, meaning) is not None}
