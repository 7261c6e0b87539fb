"""Dialects of whole statements: integer division, and what cannot be told."""

from typing import Any

import duckdb
import pytest

from outpace.errors import UnsupportedError
from outpace.statement.dialect import translate

INPUT = "FROM (VALUES (9, CAST(5 AS double), CAST(7 AS decimal(3, 1)), 9)) t(x, d, c, y)"


def value(expression: str, dialect: str) -> Any:
    text = translate(f"SELECT {expression} AS v {INPUT}", dialect, "duckdb")
    return duckdb.connect().sql(text).fetchall()[0][0]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x / 2", 4),
        ("-x / 2", -4),
        ("x / 2 / 3", 1),
        ("(x / 2 + 1) / 2", 2),
        ("x / y * 5 / 2", 2),
        ("7 / 2", 3),
        ("x / 2.0", 4.5),
        ("d / 2", 2.5),
        ("c / 2", 3.5),
        ("x / d", 1.8),
        ("sum(x) / count(*) / 2", 4),
        ("abs(x / 2)", 4),
        ("CASE WHEN x / 2 = 4 THEN 'whole' END", "whole"),
    ],
)
def test_integers_divide_as_the_dialect_says(expression: str, expected: object) -> None:
    assert value(expression, "trino") == expected
    assert value(expression, "flink") == expected


def test_other_dialects_divide_to_fractions() -> None:
    assert value("x / 2", "spark") == value("x / 2", "snowflake") == 4.5


def test_a_result_keeps_its_name() -> None:
    text = translate(f"SELECT x / 2, abs(x / 2) + 1, x / 2 AS h {INPUT}", "trino", "duckdb")
    assert duckdb.connect().sql(text).columns == ["x / 2", "ABS(x / 2) + 1", "h"]


def test_a_quotient_of_unknown_type_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="cannot tell whether"):
        translate(f"SELECT abs(x / 2) / 2 {INPUT}", "trino", "duckdb")
