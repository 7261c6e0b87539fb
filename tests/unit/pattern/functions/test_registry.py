"""Scalar functions: DuckDB says the same where both follow SQL, and exact values elsewhere."""

import datetime
import math
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from outpace.engine.evaluate.row import RowContext, compile_row
from outpace.errors import BindError, DataError
from outpace.pattern.bind.query import bind
from outpace.pattern.functions import FUNCTIONS, find_function, function_names
from outpace.pattern.functions.function import Function
from outpace.pattern.query import Query
from outpace.pattern.values import column_values

UTC = datetime.UTC
ROWS = pa.table(
    {
        "i": pa.array([0, 1, -7, 12, None, 5], pa.int32()),
        "k": pa.array([3, -2, 2, 5, 1, None], pa.int32()),
        "x": pa.array([0.5, -1.25, 2.0, 100.75, None, 3.0], pa.float64()),
        "m": pa.array([Decimal(v) for v in ("0.05", "-1.25", "2.50", "9.99", "0.00")] + [None]),
        "s": pa.array(["", "abc", "Hello World", "a,b,,c", None, "äöü ß"], pa.string()),
        "p": pa.array(["a", "b", "o", ",", "x", "ö"], pa.string()),
        "b": pa.array([True, False, None, True, False, None], pa.bool_()),
        "d": pa.array(
            [datetime.date(2024, 2, 29), datetime.date(1999, 12, 31), None]
            + [datetime.date(2024, 7, day) for day in (1, 14, 21)]
        ),
        "ts": pa.array(
            [datetime.datetime(2024, 2, 29, 23, 59, 59, 999999), None]
            + [datetime.datetime(2023, month, 28, month, 30) for month in (1, 3, 10, 12)],
            pa.timestamp("us"),
        ),
        "a": pa.array([[3, 1, 2], [], None, [1, None, 1], [5], [2, 2]], pa.list_(pa.int64())),
    }
)


def value_of(text: str, table: pa.Table = ROWS) -> list[object]:
    """Return the value of an expression in each row."""
    query = Query().pattern("A").all_rows_per_match().measures(value=text)
    expression = bind(query, table.schema).measures[0].expression
    columns = {name: column_values(table[name]) for name in table.column_names}
    compute = compile_row(expression)
    return [
        compute(RowContext(columns, table.num_rows, ["A"], [row], [0], 0))
        for row in range(table.num_rows)
    ]


def constant(text: str) -> object:
    """Return the value of an expression without columns."""
    return value_of(text, ROWS.slice(0, 1))[0]


SAME_IN_DUCKDB = [
    "i + k", "i - k", "i * k", "i % nullif(k, 0)", "i / nullif(k, 0)", "-i", "x * 2 - i",
    "m + 1.5", "m * m", "m - i", "i = k", "i <> 1", "i < k", "x >= 1", "m > 0.5", "s > p",
    "s = 'abc'",
    "i is null", "not (i > 1)", "b and i > 0", "b or i > 0", "i in (1, 5)", "i in (1, null)",
    "i not in (1, k)", "i between k and 5", "i not between k and 5", "i is distinct from k",
    "i is not distinct from null", "s like 'a%'", "s like '_b_'", "s not like '%o%'",
    "s like '%!%%' escape '!'", "case when i > 0 then 'p' when i < 0 then 'n' else 'z' end",
    "case i when 1 then 10 when 5 then 50 end", "coalesce(i, k, 0)", "nullif(i, 1)",
    "abs(i)", "abs(m)", "ceil(x)", "floor(x)", "round(x)", "round(x, 1)", "round(m, 1)", "sign(i)",
    "sqrt(abs(x))", "power(x, 2)", "exp(x / 10)", "ln(abs(x) + 1)", "log10(abs(x) + 1)",
    "log2(abs(x) + 1)", "cbrt(x)", "sin(x)", "degrees(x)", "radians(x)", "atan2(x, 2)",
    "greatest(coalesce(i, 0), coalesce(k, 0))", "least(coalesce(i, 0), coalesce(k, 0))",
    "lower(s)", "length(s)", "s || p", "substr(s, 2, 3)", "substr(s, 3)", "trim(s)",
    "ltrim(s, 'a')",
    "rtrim(s, 'dl')", "trim(s, 'ad')", "replace(s, 'l', 'L')", "concat_ws('-', s, p)",
    "starts_with(s, p)", "ends_with(s, p)", "contains(s, p)", "strpos(s, p)", "reverse(s)",
    "lpad(s, 5, '*')", "rpad(s, 5, 'xy')", "left(s, 2)", "right(s, 2)", "repeat(p, 3)",
    "split(s, ',')",
    "regexp_matches(s, '[a-c]+')", "chr(65 + abs(i))",
    "translate(s, 'abc', 'xy')",
    "year(d)", "month(d)", "day(d)", "quarter(d)", "week(d)", "isodow(d)", "dayofyear(d)",
    "year(ts)", "hour(ts)", "minute(ts)", "second(ts)", "isoyear(d)", "epoch(ts)", "last_day(d)",
    "date_trunc('hour', ts)", "date_trunc('month', ts)", "date_trunc('week', ts)",
    "date_trunc('quarter', ts)", "date_trunc('year', ts)", "extract(year from ts)",
    "ts + interval '90' minute", "ts - interval '1' day",
    "ts < '2023-06-01'", "d >= date '2024-07-01'", "d + 3",
    "cast(i as varchar)", "cast(i as double)", "cast(x as decimal(8, 1))", "cast('12' as integer)",
    "try(cast(s as integer))", "try(i + k)", "try(cast(s as date)) is null",
    "try_cast(s as integer)", "cast(ts as date)", "cast(d as timestamp)", "cast(d as varchar)",
    "cast(m as double)", "cast(b as integer)", "cast(i as boolean)", "cast(ts as varchar)",
    "a[1]", "a[-1]", "a[7]", "array_contains(a, 1) is true", "list_sort(a)[1]", "array[i, k][2]",
    "array_to_string(a, '-')", "map_keys(map(array[1, 2], array['a', 'b']))",
]  # fmt: skip


@pytest.mark.parametrize("text", SAME_IN_DUCKDB)
def test_duckdb_agrees(text: str) -> None:
    connection = duckdb.connect()
    connection.register("rows", ROWS)
    found = connection.sql(f"select {text} as value from rows").to_arrow_table()
    expected = found.column(0).to_pylist()
    got = value_of(text)
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        if isinstance(ours, float) or isinstance(theirs, float):
            assert ours is not None
            assert theirs is not None
            assert math.isclose(float(ours), float(theirs), rel_tol=1e-12), text  # type: ignore[arg-type]
        else:
            assert ours == theirs, text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 / 0", None),
        ("1 div 0", None),
        ("1 % 0", None),
        ("1e0 / 0", None),
        ("7 / 2", 3.5),
        ("7 div 2", 3),
        ("-7 div 2", -3),
        ("-7 % 3", -1),
        ("7.0 div 2.0", Decimal("3.5")),
        ("1.0 / 3", Decimal("0.333333333333")),
        ("true or 1 / 0 > 0", True),
        ("if(false, 0 / 0, 4)", 4.0),
        ("if(1 > 2, 'a')", None),
        ("greatest(1, null)", None),
        ("least(2.5, 1)", Decimal("1.0")),
        ("round(2.5)", Decimal("3.0")),
        ("round(-2.5e0)", -3.0),
        ("round(1250, -2)", 1300),
        ("truncate(-2.7e0)", -2.0),
        ("sqrt(-1)", math.nan),
        ("ln(0)", -math.inf),
        ("log(2, 8)", 3.0),
        ("power(0, -1)", math.inf),
        ("upper('straße')", "STRAßE"),
        ("split_part('a-b', '-', 2)", "b"),
        ("split_part('a-b', '-', 3)", None),
        ("position('b' in 'abc')", 2),
        ("instr('abc', 'c')", 3),
        ("locate('c', 'abc')", 3),
        ("regexp_replace('a1b2', '([0-9])', '<$1>')", "a<1>b<2>"),
        ("regexp_extract('xaby', '([a-c])([a-c])', 2)", "b"),
        ("regexp_extract('x', '[a-c]')", None),
        ("levenshtein_distance('kitten', 'sitting')", 3),
        ("reverse(array[1, 2])", [2, 1]),
        ("concat('a', 'b', 'c')", "abc"),
        ("concat('a', null)", None),
        ("concat_ws(',', 'a', null, 'b')", "a,b"),
        ("concat_ws('', array['a', null, 'b'])", "ab"),
        ("day_of_week(date '2024-07-07')", 7),
        ("dayofweek(date '2024-07-07')", 1),
        ("weekday(date '2024-07-07')", 6),
        ("date_add('month', 1, date '2024-01-31')", datetime.date(2024, 2, 29)),
        ("date_add(date '2024-01-31', 1)", datetime.date(2024, 2, 1)),
        ("date_diff('day', date '2024-01-31', date '2024-03-01')", 30),
        ("date_diff('month', date '2024-01-31', date '2024-02-29')", 1),
        ("date_diff('month', date '2024-03-01', date '2024-01-31')", -1),
        ("date_diff('hour', timestamp '2024-01-01 10:30:00', timestamp '2024-01-01 12:00:00')", 1),
        ("datediff(date '2024-03-01', date '2024-02-28')", 2),
        (
            "timestamp '2024-03-01 12:00:00' - timestamp '2024-03-01 00:00:00'",
            datetime.timedelta(hours=12),
        ),
        ("date '2024-03-01' - date '2024-02-28'", datetime.timedelta(days=2)),
        ("date '2024-03-01' + interval '2' day", datetime.date(2024, 3, 3)),
        ("date '2024-03-01' + interval '2' hour", datetime.datetime(2024, 3, 1, 2)),
        ("interval '1' hour * 2", datetime.timedelta(hours=2)),
        ("-interval '1' hour", datetime.timedelta(hours=-1)),
        ("from_unixtime(1.5)", datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, UTC)),
        ("to_unixtime(timestamp '1970-01-02 00:00:00')", 86400.0),
        ("hour(timestamp '2024-07-01 12:00:00 UTC' at time zone 'Europe/Berlin')", 14),
        ("cast(2.5e0 as integer)", 3),
        ("cast(-2.5e0 as integer)", -3),
        ("cast('1.005' as decimal(4, 2))", Decimal("1.01")),
        ("try_cast('x' as double)", None),
        ("try(cast('x' as integer))", None),
        ("try(cast('7' as integer))", 7),
        ("coalesce(try(cast(2147483647 as integer) + 1), -1)", -1),
        ("3 between symmetric 5 and 1", True),
        ("3 between symmetric 1 and 5", True),
        ("6 between symmetric 5 and 1", False),
        ("3 not between symmetric 5 and 1", False),
        ("3 between symmetric 5 and null", None),
        ("6 between symmetric 5 and null", None),
        ("3 between asymmetric 5 and 1", False),
        ("try_cast(300 as tinyint)", None),
        ("cast('2024-02-29' as date)", datetime.date(2024, 2, 29)),
        ("cast('yes' as varbinary)", b"yes"),
        ("cardinality(array[1, 2])", 2),
        ("element_at(map(array['a'], array[1]), 'a')", 1),
        ("element_at(map(array['a'], array[1]), 'b')", None),
        ("array_join(array[1, null, 3], '-', '?')", "1-?-3"),
        ("array_max(array[1, null])", None),
        ("array_sort(array[3, null, 1])", [1, 3, None]),
        ("array_distinct(array[1, 2, 1])", [1, 2]),
        ("contains(array[1, null], 2)", None),
        ("array['a'] || array['b']", ["a", "b"]),
        ("9223372036854775807 = 9223372036854775807", True),
        ("1.0 = 1", True),
        ("1.5 > 1e0", True),
        ("'2024-01-01' < date '2024-01-02'", True),
    ],
)
def test_value(text: str, expected: object) -> None:
    got = constant(text)
    if isinstance(expected, float) and math.isnan(expected):
        assert isinstance(got, float)
        assert math.isnan(got)
    else:
        assert got == expected
        assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cast(2147483647 as integer) + 1", "2147483648 is out of range for integer"),
        ("9223372036854775807 + 1", "out of range for bigint"),
        ("-cast(-128 as tinyint)", "128 is out of range for tinyint"),
        ("abs(cast(-128 as tinyint))", "128 is out of range for tinyint"),
        ("cast('x' as integer)", "cannot cast 'x' to integer"),
        ("cast(123.45 as decimal(4, 2))", "does not fit into decimal"),
        ("cast('1_000' as double)", "cannot cast"),
        ("element_at(array[1], 0)", "count from 1"),
        ("map(array[1, 1], array[2, 3])", "the same key twice"),
        ("chr(-1)", "is no character"),
        ("lpad('a', 100000000, 'b')", "cannot be padded"),
        ("split('a', '')", "cannot be split"),
        ("date '9999-12-31' + 1", "out of range"),
        ("date_add('year', 9000, date '2024-01-01')", "out of range"),
        ("regexp_extract('a', 'a', 1)", "has no group 1"),
    ],
)
def test_data_error(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        constant(text)


@pytest.mark.parametrize(
    "text", ["cast(s as integer) > 1", "element_at(a, i) = 1", "i + 2147483647"]
)
def test_try_protects_from_errors(text: str) -> None:
    assert value_of(f"try(({text}) is null) is null").count(True) >= 1


@pytest.mark.parametrize(
    "text", ["cast(s as integer) > 1", "element_at(a, i) = 1", "i + 2147483647"]
)
def test_short_circuits_protect_from_errors(text: str) -> None:
    assert constant(f"false and ({text}) is null") is False
    with pytest.raises(DataError):
        value_of(f"({text}) is null")


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_the_example_of_a_function_is_true(function: Function) -> None:
    if function.name == "field":
        # It has no name to call it by, and there is no constant struct.
        assert not function.example
        return
    assert any(name in function.example for name in (function.name, *function.aliases))
    assert constant(function.example) is True
    assert function.about


def test_names_are_unique_over_all_functions() -> None:
    names = [name for function in FUNCTIONS for name in (function.name, *function.aliases)]
    assert len(names) == len(set(names))
    assert all(find_function(name) is not None for name in function_names())


def test_scalar_functions_refuse_wrong_counts() -> None:
    for function in FUNCTIONS:
        if not function.name.replace("_", "").isalpha() or function.most is None:
            continue
        if function.name in (
            "and",
            "or",
            "not",
            "in",
            "like",
            "div",
            "case",
            "cast",
            "try_cast",
            "position",
        ):
            continue
        arguments = ", ".join(["i"] * (function.most + 1))
        with pytest.raises(BindError, match="takes"):
            value_of(f"{function.name}({arguments})")
