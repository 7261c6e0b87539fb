"""The vectorised evaluator gives what the row evaluator gives, on random expressions and data."""

import datetime
import math
import re
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.evaluate.columns import evaluate_columns, predicate_mask
from outpace.engine.evaluate.frame import MatchFrame, PredicateFrame
from outpace.engine.evaluate.row import RowContext, compile_row
from outpace.errors import DataError, OutpaceError
from outpace.pattern.bind.query import bind
from outpace.pattern.bound import BoundExpression, Predicate, PredicateClass, Read
from outpace.pattern.query import Query
from outpace.pattern.values import column_values

SCHEMA = pa.schema(
    [
        ("t", pa.int8()),
        ("i", pa.int32()),
        ("j", pa.int64()),
        ("u", pa.uint16()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("m", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("g", pa.dictionary(pa.int32(), pa.string())),
        ("l", pa.large_string()),
        ("o", pa.bool_()),
        ("ts", pa.timestamp("us")),
        ("z", pa.timestamp("us", "Europe/Berlin")),
        ("d", pa.date32()),
        ("q", pa.struct([("bid", pa.int64()), ("name", pa.string())])),
        ("a", pa.list_(pa.int64())),
    ]
)
_WORDS = ["", "a", "b", "ab", "Abc", "b_a", "50%", "ä", "ß", "x y"]
_DAY = datetime.date(2024, 2, 28)


def _values(kind: pa.DataType) -> st.SearchStrategy[object]:
    if pa.types.is_integer(kind):
        low, high = (0, 5) if kind == pa.uint16() else (-4, 5)
        edges = {pa.int8(): 127, pa.int32(): 2**31 - 1, pa.int64(): 2**63 - 1}
        return st.integers(low, high) | st.just(edges.get(kind, 65535))
    if pa.types.is_floating(kind):
        return st.sampled_from([-1.5, 0.0, 0.5, 1.0, 2.25, 3.0, math.nan, math.inf])
    if pa.types.is_decimal(kind):
        return st.sampled_from([Decimal(v) for v in ("-1.50", "0.00", "0.25", "3.10", "99.99")])
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_timestamp(kind):
        first = datetime.datetime(2024, 3, 30, 22, tzinfo=datetime.UTC if kind.tz else None)
        return st.integers(0, 8).map(lambda n: first + datetime.timedelta(minutes=47 * n))
    if pa.types.is_date(kind):
        return st.integers(0, 4).map(lambda n: _DAY + datetime.timedelta(days=n))
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries(
            {"bid": st.none() | st.integers(0, 3), "name": st.none() | st.sampled_from(_WORDS)}
        )
    if pa.types.is_list(kind):
        return st.lists(st.none() | st.integers(0, 3), max_size=3)
    return st.sampled_from(_WORDS)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, np.ndarray]:
    """Draw rows and the bounds of the partitions that they form."""
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    size = sum(lengths)
    nulls = draw(st.booleans())
    columns = []
    for field in SCHEMA:
        one = _values(field.type)
        cells = draw(st.lists(st.none() | one if nulls else one, min_size=size, max_size=size))
        if pa.types.is_dictionary(field.type):
            columns.append(pa.array(cells, pa.string()).dictionary_encode())
        else:
            columns.append(pa.array(cells, field.type))
    return pa.table(columns, schema=SCHEMA), np.cumsum([0, *lengths]).astype(np.int64)


def _binary(signs: list[str], left: st.SearchStrategy[str], right: st.SearchStrategy[str]):
    return st.builds("({} {} {})".format, left, st.sampled_from(signs), right)


def _call(name: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda given: f"{name}({', '.join(given)})")


def _moved(plain: list[str]) -> st.SearchStrategy[str]:
    column = st.sampled_from(plain)
    step = st.sampled_from(["PREV({})", "NEXT({})", "PREV({}, 2)", "NEXT({}, 3)"])
    return column | column | st.builds(str.format, step, column)


def _either(value: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.deferred(
        lambda: (
            _call("coalesce", value, value)
            | _call("nullif", value, value)
            | st.builds("case when {} then {} else {} end".format, CONDITIONS, value, value)
            | st.builds("case when {} then {} end".format, CONDITIONS, value)
        )
    )


INTEGERS: st.SearchStrategy[str] = st.deferred(
    lambda: (
        _moved(["t", "i", "j", "u", "q.bid"])
        | st.sampled_from(["0", "1", "2", "-3", "NULL"])
        | _binary(["+", "-", "*", "%", "div"], INTEGERS, INTEGERS)
        | _call("abs", INTEGERS)
        | _call("-", INTEGERS)
        | _call("length", TEXTS)
        | _call("hour", st.sampled_from(["ts", "z"]))
        | _call("day", st.sampled_from(["ts", "z", "d"]))
        | _call("cardinality", st.just("a"))
        | st.builds("a[{}]".format, st.sampled_from(["1", "2", "-1"]))
        | _either(INTEGERS)
    )
)
NUMBERS: st.SearchStrategy[str] = st.deferred(
    lambda: (
        _moved(["x", "f", "m", "x", "i"])
        | st.sampled_from(["0.5", "1e0", "2", "-1.25"])
        | _binary(["+", "-", "*", "/", "%"], NUMBERS, NUMBERS)
        | _call("sqrt", NUMBERS)
        | _call("round", NUMBERS)
        | _call("floor", NUMBERS)
        | st.builds("cast({} as double)".format, NUMBERS)
        | st.builds("cast({} as bigint)".format, NUMBERS)
        | st.builds("cast({} as decimal(12, 3))".format, NUMBERS)
        | _either(NUMBERS)
    )
)
TEXTS: st.SearchStrategy[str] = st.deferred(
    lambda: (
        _moved(["s", "g", "l", "q.name"])
        | st.sampled_from(["'a'", "''", "'ab'", "NULL"])
        | _binary(["||"], TEXTS, TEXTS)
        | _call("upper", TEXTS)
        | _call(
            "substr", TEXTS, st.sampled_from(["1", "2", "-1"]), st.sampled_from(["0", "1", "2"])
        )
        | st.builds("cast({} as varchar)".format, st.sampled_from(["i", "o", "d", "m"]))
        | _either(TEXTS)
    )
)
MOMENTS: st.SearchStrategy[str] = st.deferred(
    lambda: (
        _moved(["ts"])
        | st.sampled_from(["'2024-03-30 23:00:00'", "d"])
        | st.builds("({} {} interval '1' hour)".format, st.just("ts"), st.sampled_from("+-"))
        | _call("date_trunc", st.sampled_from(["'hour'", "'day'"]), st.just("ts"))
    )
)
_COMPARE = ["=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from"]
CONDITIONS: st.SearchStrategy[str] = st.deferred(
    lambda: (
        _moved(["o"])
        | st.sampled_from(["true", "false"])
        | _binary(_COMPARE, INTEGERS, INTEGERS)
        | _binary(_COMPARE, NUMBERS, NUMBERS)
        | _binary(_COMPARE, TEXTS, TEXTS)
        | _binary(_COMPARE, _moved(["ts"]), MOMENTS)
        | _binary(
            ["=", "<>"], _moved(["s", "g", "l"]), st.sampled_from(["'a'", "'ab'", "''", "'ä'"])
        )
        | _binary(["and", "or"], CONDITIONS, CONDITIONS)
        | _call("not", CONDITIONS)
        | st.builds("({} is null)".format, INTEGERS | TEXTS | NUMBERS | _moved(["g", "x", "a"]))
        | st.builds("({} in ({}, {}))".format, INTEGERS, INTEGERS, st.sampled_from(["1", "NULL"]))
        | st.builds("({} not in ('a', {}))".format, TEXTS, st.sampled_from(["'b'", "NULL", "s"]))
        | st.builds("({} between {} and {})".format, INTEGERS, INTEGERS, INTEGERS)
        | st.builds(
            "({} like {})".format,
            TEXTS,
            st.sampled_from(["'a%'", "'%b'", "'%'", "'_b%'", "'50|%' escape '|'", "'%b%'", "''"]),
        )
        | _call("starts_with", TEXTS, st.sampled_from(["'a'", "s"]))
        | _call("contains", st.just("a"), st.sampled_from(["1", "i"]))
    )
)


def bound(text: str) -> BoundExpression:
    """Bind an expression as a definition, or as a value where it is none."""
    base = Query().pattern("A").all_rows_per_match()
    found = bind(base.measures(value=text), SCHEMA).measures[0].expression
    assert not any(isinstance(part, Read) and part.place.final for part in [found])
    return found


def row_by_row(expression: BoundExpression, table: pa.Table, bounds: np.ndarray) -> list[object]:
    """Return what the twin gives: every row is the only row of a match."""
    compute = compile_row(expression)
    result = []
    for low, high in pairwise(bounds):
        columns = {name: column_values(table[name][low:high]) for name in table.column_names}
        for row in range(high - low):
            result.append(compute(RowContext(columns, int(high - low), ["A"], [row], [0], 0)))
    return result


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return left == right and type(left) is type(right)


def check(text: str, table: pa.Table, bounds: np.ndarray) -> None:
    try:
        expression = bound(text)
    except OutpaceError:
        # Not every combination of types is an expression.
        return
    frame = PredicateFrame(dict(zip(table.column_names, table.columns, strict=True)), bounds)
    try:
        expected = row_by_row(expression, table, bounds)
    except DataError:
        with pytest.raises(DataError):
            evaluate_columns(expression, frame)
        return
    found = evaluate_columns(expression, frame)
    assert found.type == expression.type
    values = column_values(found)
    assert len(values) == len(expected)
    for row, (one, other) in enumerate(zip(values, expected, strict=True)):
        assert same(one, other), (text, row, one, other)
    if pa.types.is_boolean(expression.type):
        mask = predicate_mask(
            Predicate("A", expression, PredicateClass.OFFSET), frame.columns, bounds
        )
        assert mask.tolist() == [value is True for value in expected]


@given(tables(), CONDITIONS)
def test_conditions(data: tuple[pa.Table, np.ndarray], text: str) -> None:
    check(text, *data)


@given(tables(), INTEGERS | NUMBERS)
def test_numbers(data: tuple[pa.Table, np.ndarray], text: str) -> None:
    check(text, *data)


@given(tables(), TEXTS | MOMENTS)
def test_texts_and_moments(data: tuple[pa.Table, np.ndarray], text: str) -> None:
    check(text, *data)


def _in_place(text: str) -> str:
    """Take the navigation off the columns, so that a whole expression can be navigated."""
    return re.sub(r"(?:PREV|NEXT)\(([a-z.]+)(?:, \d)?\)", r"\1", text)


#: Expressions that have a value although all columns are NULL, and others.
NAVIGATED = (
    _call("coalesce", _moved(["i", "j"]), st.sampled_from(["0", "7"]))
    | st.builds("({} is null)".format, _moved(["i", "x", "g"]))
    | st.builds("({} or {} is not null or true)".format, CONDITIONS, _moved(["s", "d"]))
    | st.builds("case when {} then {} else 'none' end".format, CONDITIONS, _moved(["s", "g"]))
    | _binary(["is distinct from"], _moved(["t"]), st.sampled_from(["1", "u"]))
    | _call("concat_ws", st.just("'-'"), _moved(["s"]), TEXTS)
    | CONDITIONS
    | INTEGERS
).map(_in_place)


@given(tables(), NAVIGATED, st.sampled_from([-2, -1, 0, 1, 2]))
def test_navigation_is_null_where_there_is_no_row(
    data: tuple[pa.Table, np.ndarray], text: str, shift: int
) -> None:
    """A navigated expression is the expression at the other row, and NULL without one."""
    table, bounds = data
    step = f"PREV({text}, {-shift})" if shift < 0 else f"NEXT({text}, {shift})"
    try:
        navigated, plain = bound(step), bound(text)
        inner = row_by_row(plain, table, bounds)
    except (OutpaceError, DataError):
        # No expression, one without a column, or one that fails on some row.
        return
    expected: list[object] = []
    for low, high in pairwise(bounds.tolist()):
        targets = range(low + shift, high + shift)
        expected += [inner[row] if low <= row < high else None for row in targets]
    found = row_by_row(navigated, table, bounds)
    assert all(same(one, other) for one, other in zip(found, expected, strict=True))
    check(step, table, bounds)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PREV(i is null)", [None, False, None, True]),
        ("PREV(i > 0 or true)", [None, True, None, True]),
        ("NEXT(i is distinct from 5)", [True, None, False, None]),
        ("not NEXT(coalesce(i, 5) = 5)", [False, None, False, None]),
        ("PREV(coalesce(i, 0)) is null", [True, False, True, False]),
    ],
)
def test_guarded_conditions_as_masks(text: str, expected: list[bool | None]) -> None:
    columns = {"i": pa.array([1, None, None, 5], pa.int32())}
    bounds = np.array([0, 2, 4])
    expression = bound(text)
    assert evaluate_columns(expression, PredicateFrame(columns, bounds)).to_pylist() == expected
    mask = predicate_mask(Predicate("A", expression, PredicateClass.OFFSET), columns, bounds)
    assert mask.tolist() == [value is True for value in expected]


def test_try_over_columns_is_null_only_where_a_row_fails() -> None:
    expression = bound("try(cast(s as integer)) + 1")
    frame = PredicateFrame({"s": pa.array(["1", "x", None, "2147483648", "4"])})
    assert evaluate_columns(expression, frame).to_pylist() == [2, None, None, None, 5]


@pytest.mark.parametrize(
    "text", ["i * hour(cast('1.5' as timestamp))", "1 + i * cast(s as integer)"]
)
def test_what_fails_beside_a_null_is_null_as_row_by_row(text: str) -> None:
    expression = bound(text)
    columns = {"i": pa.array([None, None], pa.int32()), "s": pa.array(["x", "1"])}
    assert evaluate_columns(expression, PredicateFrame(columns)).to_pylist() == [None, None]
    with pytest.raises(DataError, match="measure value, line 1, column"):
        evaluate_columns(expression, PredicateFrame({**columns, "i": pa.array([1, None])}))


NANOSECONDS = pa.table(
    {
        "ts": pa.array([1_500, 2_999, None, 86_400_000_000_001], pa.timestamp("ns")),
        "w": pa.array([datetime.timedelta(seconds=n) for n in (1, 2, 3, 4)], pa.duration("s")),
        "v": pa.array(["a", None, "b", "a"], pa.string_view()),
    }
)


@pytest.mark.parametrize(
    "text",
    [
        "ts - PREV(ts)",
        "ts + w",
        "ts - interval '1' second",
        "ts > '1970-01-01 12:00:00'",
        "ts > PREV(ts)",
        "date_trunc('day', ts)",
        "v = 'a'",
        "v <> 'a' or ts is null",
        "v || 'x'",
        "w > interval '2' second",
        "w + w",
    ],
)
def test_units_and_views(text: str) -> None:
    query = Query().pattern("A").all_rows_per_match().measures(value=text)
    expression = bind(query, NANOSECONDS.schema).measures[0].expression
    bounds = np.array([0, 4])
    columns = dict(zip(NANOSECONDS.column_names, NANOSECONDS.columns, strict=True))
    found = evaluate_columns(expression, PredicateFrame(columns, bounds))
    assert found.type == expression.type
    assert column_values(found) == row_by_row(expression, NANOSECONDS, bounds)


def test_rows_of_a_match_frame() -> None:
    """Measures read input rows by number; -1 is no row."""
    query = Query().pattern("A B").measures(v="A.i + LAST(B.j) * count(*)", c="CLASSIFIER(B)")
    first, second = (m.expression for m in bind(query, SCHEMA).measures)
    frame = MatchFrame(
        {"i": pa.array([1, 2, None], pa.int32()), "j": pa.chunked_array([[10], [20, 30]])},
        size=3,
        index=lambda place: np.array([0, 1, 2] if place.variables == {0} else [2, -1, 0]),
        label=lambda place: pa.array(["B", None, "B"]),
        number=lambda: pa.array([1, 2, 3]),
        aggregate=lambda node: pa.array([2, 2, 2]),
    )
    assert evaluate_columns(first, frame).to_pylist() == [61, None, None]
    assert evaluate_columns(second, frame).to_pylist() == ["B", None, "B"]


def test_a_match_frame_knows_where_there_is_no_row() -> None:
    query = Query().pattern("A B").measures(v="LAST(coalesce(B.j, 0) + 1)", c="FIRST(B.j is null)")
    first, second = (m.expression for m in bind(query, SCHEMA).measures)
    frame = MatchFrame(
        {"j": pa.array([10, None])},
        size=3,
        index=lambda place: np.array([0, -1, 1]),
        label=lambda place: pa.nulls(3, pa.string()),
        number=lambda: pa.array([1, 2, 3]),
        aggregate=lambda node: pa.nulls(3),
    )
    assert evaluate_columns(first, frame).to_pylist() == [11, None, 1]
    assert evaluate_columns(second, frame).to_pylist() == [False, None, True]


@given(tables(), st.integers(-3, 3).filter(bool))
def test_missing_rows(data: tuple[pa.Table, np.ndarray], shift: int) -> None:
    table, bounds = data
    expected = [
        row
        for low, high in pairwise(bounds.tolist())
        for row in range(low, high)
        if not low <= row + shift < high
    ]
    assert PredicateFrame({"i": table["i"]}, bounds).missing(shift).tolist() == expected
