import datetime

import numpy as np
import pyarrow as pa
import pytest

from outpace.errors import BindError
from outpace.pattern.ast import Link, Mode, Repeat, Var
from outpace.pattern.builder import (
    classifier,
    col,
    first,
    fn,
    last,
    lit,
    match_id,
    match_number,
    next,
    permute,
    prev,
    step,
)
from outpace.pattern.notation.parse_expression import parse_expression
from outpace.pattern.notation.parse_pattern import parse_pattern
from outpace.pattern.query import Query

price, volume = col("price"), col("volume")


@pytest.mark.parametrize(
    ("fluent", "text"),
    [
        (price < prev("price"), "price < PREV(price)"),
        (price <= 1, "price <= 1"),
        (price > -1, "price > -1"),
        (price >= 1.5, "price >= 1.5e0"),
        (price == "a", "price = 'a'"),
        (price + volume - 1, "price + volume - 1"),
        (1 + price, "1 + price"),
        (1 - price, "1 - price"),
        (2 * price / 3, "2 * price / 3"),
        (1 / price, "1 / price"),
        (price // 2 % 3, "price DIV 2 % 3"),
        (-price, "-price"),
        ((price < 1) & (volume > 2) | ~col("halted"), "price < 1 AND volume > 2 OR NOT halted"),
        (price.is_null(), "price IS NULL"),
        (price.is_not_null(), "price IS NOT NULL"),
        (price.between(1, volume), "price BETWEEN 1 AND volume"),
        (price.isin(1, 2), "price IN (1, 2)"),
        (~price.isin("a"), "NOT price IN ('a')"),
        (price.like("a%"), "price LIKE 'a%'"),
        (price.like("a!%", "!"), "price LIKE 'a!%' ESCAPE '!'"),
        (price.cast("bigint"), "CAST(price AS BIGINT)"),
        (price.cast(pa.int64(), safe=True), "TRY_CAST(price AS BIGINT)"),
        (price.concat("x"), "price || 'x'"),
        (price.is_distinct_from(volume), "price IS DISTINCT FROM volume"),
        (price.is_not_distinct_from(True), "price IS TRUE"),
        (col("A.price"), "A.price"),
        (col('A."unit price"'), 'A."unit price"'),
        (first("A.price", 2), "FIRST(A.price, 2)"),
        (prev(last(col("A.price") + 1), 3), "PREV(LAST(A.price + 1), 3)"),
        (next("price"), "NEXT(price)"),
        (last("A.price").final(), "FINAL LAST(A.price)"),
        (fn.sum("A.price").running(), "RUNNING SUM(A.price)"),
        (fn.count("*"), "COUNT(*)"),
        (fn.count("A.*"), "COUNT(A.*)"),
        (fn.count(), "COUNT()"),
        (fn.count("price", distinct=True), "COUNT(DISTINCT price)"),
        (fn.if_(price > 1, lit("a"), "volume"), "IF(price > 1, 'a', volume)"),
        (fn.coalesce("price", 0), "COALESCE(price, 0)"),
        (classifier() == "A", "CLASSIFIER() = 'A'"),
        (classifier("U"), "CLASSIFIER(U)"),
        (match_number(), "MATCH_NUMBER()"),
        (match_id(), "MATCH_ID()"),
        (col("ts") > datetime.date(2026, 1, 31), "ts > DATE '2026-01-31'"),
        (col("ts") + datetime.timedelta(hours=1), "ts + INTERVAL '1' HOUR"),
    ],
)
def test_expressions_equal_their_text(fluent, text):
    assert fluent.tree == parse_expression(text)


def test_an_expression_has_no_truth_value():
    with pytest.raises(BindError, match="no truth value"):
        bool(price < 1)
    with pytest.raises(BindError, match="no truth value"):
        _ = 1 < price < 2


def test_names_and_constants_are_checked():
    with pytest.raises(BindError, match="no column name"):
        col("price + 1")
    with pytest.raises(BindError, match="no constant"):
        lit([1])
    with pytest.raises(BindError, match="at least one value"):
        price.isin()
    with pytest.raises(BindError, match="whole number"):
        prev("price", -1)


@pytest.mark.parametrize("compare", [lambda: price == None, lambda: price != None])  # noqa: E711
def test_a_comparison_with_none_points_at_is_null(compare):
    with pytest.raises(BindError, match="never true") as caught:
        compare()
    assert "is_null()" in caught.value.hint


def test_numbers_of_numpy_are_constants_on_both_sides():
    assert (price > np.float64(1.5)).tree == (price > 1.5).tree
    assert (np.int64(2) * price).tree == (2 * price).tree
    assert (np.int64(2) < price).tree == (price > 2).tree
    assert (True & (price > 1)).tree == parse_expression("TRUE AND price > 1")


def test_a_query_takes_text_and_builders_alike():
    text = Query().pattern("A -> B+").define(B="price > PREV(price)").measures(n="COUNT(*)")
    built = (
        Query()
        .pattern(step("A").followed_by("B").one_or_more())
        .define(B=price > prev("price"))
        .measures({"n": fn.count("*")})
    )
    assert built == text


def test_what_is_no_pattern_or_expression_is_refused():
    with pytest.raises(BindError, match="pattern"):
        Query().pattern(5)
    with pytest.raises(BindError, match="define A"):
        Query().define(A=5)


def test_a_deep_expression_is_refused():
    deep = price
    for _ in range(5_000):
        deep = deep + 1
    with pytest.raises(BindError, match="nested deeper"):
        Query().define(A=deep)


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (step("A"), "A"),
        (step("A").then("B").followed_by("C").followed_by_any("D"), "A B -> C ->> D"),
        (step("A").not_then("B").then("C"), "A !B C"),
        (step("A").not_followed_by("B"), "A -> !B"),
        (step("A").then("B").or_("C"), "A B | C"),
        (step("A").or_("B").or_("C").then("D"), "(A | B | C) D"),
        (step("A").then(step("B").or_("C")), "A (B | C)"),
        (step("A").optional(), "A?"),
        (step("A").followed_by("B").optional(mode="reluctant"), "A -> B??"),
        (step("A").one_or_more(), "A(->)+"),
        (step("A").one_or_more(link="strict"), "A+"),
        (step("A").zero_or_more(mode="possessive", link=Link.ANY), "A(->>)*+"),
        (step("A").followed_by("B").times(2).then("C"), "A -> B{2} C"),
        (step("A").followed_by("B").times(0, 2), "A -> B{,2}"),
        (step("A").followed_by("B").times(1), "A -> B{1}"),
        (step("A").followed_by("B").times_or_more(2), "A -> B{2,}"),
        (step("A").one_or_more().consecutive(), "A+"),
        (step("A").one_or_more().allow_combinations().reluctant(), "A(->>)+?"),
        (step("A").one_or_more().possessive().greedy().until("U"), "A(->)+ UNTIL U"),
        (step("A").one_or_more().optional().possessive(), "A(->)*+"),
        (step("A").times(2).optional(), "(A(->){2})?"),
        (step("A").times(2).optional().consecutive().until("U"), "(A{2} UNTIL U)?"),
        (step("A").times(2, 3).optional().possessive(), "(A(->){2,3}+)?+"),
        (step("A").followed_by(step("B").followed_by("C")).times(2), "A -> (B -> C){2}"),
        (step("A").followed_by(step("B").then("C")).then("D"), "A -> B C D"),
        (step(step("A").then("B")).exclude().then("C"), "{- A B -} C"),
        (step("A").then("B").one_or_more(link="strict").exclude(), "A {- B+ -}"),
        (permute("A", step("B").then("C")).then("D"), "PERMUTE(A, B C) D"),
        (step("middle-first").then("not c"), '"middle-first" "not c"'),
    ],
)
def test_patterns_equal_their_text(built, text):
    assert built.tree == parse_pattern(text)


def test_quantifier_modes_and_bounds():
    built = step("A").times(2, 5, mode=Mode.RELUCTANT, link="any").tree
    assert built == Repeat(Var("A"), 2, 5, Mode.RELUCTANT, Link.ANY)


def test_builders_do_not_change():
    begun = step("A")
    begun.then("B")
    begun.one_or_more()
    assert begun.tree == Var("A")


@pytest.mark.parametrize(
    "build",
    [
        lambda: step("A").times(0),
        lambda: step("A").times(3, 2),
        lambda: step("A").times(-1),
        lambda: step("A").times_or_more(10**9),
        lambda: step("A").consecutive(),
        lambda: step("A").until("U"),
        lambda: step("A").not_then("B").one_or_more(),
        lambda: permute(),
        lambda: step(5),
    ],
)
def test_what_makes_no_pattern_is_refused(build):
    with pytest.raises(BindError):
        build()
