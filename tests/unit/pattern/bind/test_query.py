"""Binding: how names are found, which rows are read, how predicates are classed, what comes out."""

import datetime

import pyarrow as pa
import pytest

from outpace import windows
from outpace.errors import BindError
from outpace.pattern.bind.query import bind
from outpace.pattern.bound import (
    Aggregate,
    Apply,
    BoundExpression,
    BoundQuery,
    Constant,
    Label,
    MatchOrdinal,
    PredicateClass,
    Present,
    Read,
    ReadPlace,
    guarded,
    walk,
)
from outpace.pattern.query import Query, Selection

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        ("symbol", pa.dictionary(pa.int32(), pa.string())),
        ("price", pa.float64()),
        ("Volume", pa.int32()),
        ("kind", pa.int8()),
        ("quote", pa.struct([("Bid", pa.float64()), ("inner", pa.struct([("x", pa.int64())]))])),
        ("seq", pa.int64()),
        ("day", pa.date32()),
    ]
)
MANY = "MATCH_RECOGNIZE (ORDER BY ts PATTERN (A B) OVER COUNT (9) INSTANCES 1000000)"
BASE = Query().order_by("ts").pattern("A B+ C")


def definition(text: str, variable: str = "B") -> BoundExpression | None:
    number = {"A": 0, "B": 1, "C": 2}[variable]
    query = BASE.subset(U=("A", "B")).define({variable: text})
    return bind(query, SCHEMA).predicates[number].expression


def kind_of(text: str) -> PredicateClass:
    return bind(BASE.subset(U=("A", "B")).define(B=text), SCHEMA).predicates[1].kind


def measure(text: str, *, all_rows: bool = True) -> BoundExpression:
    query = BASE.subset(U=("A", "B")).measures(value=text)
    query = query.all_rows_per_match() if all_rows else query
    return bind(query, SCHEMA).measures[0].expression


def places(node: BoundExpression | None) -> list[ReadPlace]:
    assert node is not None
    return [part.place for part in walk(node) if isinstance(part, Read | Label)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("price > 1", "local"),
        ("B.price > 1", "local"),
        ("U.price > 1", "local"),
        ("LAST(price) > 1", "local"),
        ("LAST(B.price) > 1", "local"),
        ("RUNNING LAST(B.price) > 1", "local"),
        ("CLASSIFIER() = 'B'", "always"),
        ("CLASSIFIER(U) = 'A'", "local"),
        ("price > PREV(price)", "offset"),
        ("price > PREV(B.price, 2)", "offset"),
        ("price > NEXT(LAST(B.price))", "offset"),
        ("price > A.price", "path"),
        ("price > LAST(B.price, 1)", "path"),
        ("price > FIRST(price)", "path"),
        ("price > FIRST(B.price)", "path"),
        ("price > PREV(LAST(A.price), 2)", "path"),
        ("PREV(CLASSIFIER()) = 'A'", "path"),
        ("CLASSIFIER(A) = 'A'", "path"),
        ("count(*) > 1", "path"),
        ("MATCH_NUMBER() = 1", "path"),
        ("true", "always"),
        ("true or A.price > 1", "always"),
        ("1 > 2", "local"),
        ("LAST(price is null)", "local"),
        ("LAST(B.price is null)", "local"),
        ("PREV(price is null, 0)", "local"),
        ("FIRST(U.price > 1 or true)", "always"),
        ("PREV(price is null)", "offset"),
        ("PREV(price > 1 or true)", "offset"),
        ("NEXT(coalesce(B.price, 0)) = 0", "offset"),
        ("LAST(A.price is null)", "path"),
        ("LAST(A.price > 1 or true)", "path"),
        ("LAST(B.price is null, 1)", "path"),
        ("null", "local"),
    ],
)
def test_class_of_a_definition(text: str, kind: str) -> None:
    assert kind_of(text).value == kind


def test_variables_without_a_definition_fit_always() -> None:
    bound = bind(BASE.define(B="price > 1"), SCHEMA)
    assert [p.name for p in bound.predicates] == ["A", "B", "C"]
    assert [p.kind.value for p in bound.predicates] == ["always", "local", "always"]


def test_negated_and_until_variables_have_predicates() -> None:
    bound = bind(Query().order_by("ts").pattern("A -> !N -> C"), SCHEMA)
    assert [p.name for p in bound.predicates] == ["A", "N", "C"]


def test_a_negated_variable_can_name_itself_in_its_definition() -> None:
    query = Query().order_by("ts").pattern("A -> !N -> C").define(N="N.price > A.price")
    assert bind(query, SCHEMA).predicates[1].kind is PredicateClass.PATH


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price", ReadPlace("last")),
        ("B.price", ReadPlace("last", frozenset({1}))),
        ("U.price", ReadPlace("last", frozenset({0, 1}))),
        ("FIRST(price, 2)", ReadPlace("first", None, 2)),
        ("FINAL LAST(B.price, 1)", ReadPlace("last", frozenset({1}), 1, 0, True)),
        ("PREV(B.price)", ReadPlace("last", frozenset({1}), 0, -1)),
        ("PREV(FIRST(B.price, 3), 2)", ReadPlace("first", frozenset({1}), 3, -2)),
        ("NEXT(FINAL FIRST(price), 4)", ReadPlace("first", None, 0, 4, True)),
        ("CLASSIFIER(U)", ReadPlace("last", frozenset({0, 1}))),
        ("PREV(CLASSIFIER())", ReadPlace("last", None, 0, -1)),
    ],
)
def test_place_of_a_measure(text: str, expected: ReadPlace) -> None:
    assert places(measure(text)) == [expected]


def test_one_row_per_match_sees_the_whole_match() -> None:
    assert places(measure("B.price", all_rows=False)) == [
        ReadPlace("last", frozenset({1}), final=True)
    ]
    assert places(measure("RUNNING LAST(price)", all_rows=False)) == [ReadPlace("last", final=True)]
    count = measure("count(*)", all_rows=False)
    assert isinstance(count, Aggregate)
    assert count.final


def test_navigation_is_pushed_to_every_leaf() -> None:
    place = ReadPlace("last", frozenset({1}), 1, -2)
    assert places(measure("PREV(LAST(B.price + B.quote.bid, 1), 2)")) == [place, place]


@pytest.mark.parametrize(
    "text",
    [
        "PREV(price)",
        "PREV(price * 2 + Volume)",
        "PREV(price between 1 and Volume)",
        "PREV(price in (1, 2, null))",
        "PREV(not price > 1 and Volume > 2)",
        "PREV(coalesce(price, Volume))",
        "PREV(case when price > 1 then price else Volume end)",
        "PREV(nullif(price, 0))",
        "PREV(cast(price as varchar))",
        "PREV(try(price + 1))",
        "PREV(CLASSIFIER())",
        "LAST(A.price + MATCH_NUMBER())",
        "coalesce(PREV(price), 0)",
    ],
)
def test_what_is_null_by_its_reads_has_no_guard(text: str) -> None:
    assert not [part for part in walk(measure(text)) if isinstance(part, Present)]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("PREV(coalesce(price, 0))", ReadPlace("last", shift=-1)),
        ("PREV(price is null, 2)", ReadPlace("last", shift=-2)),
        ("NEXT(price > 1 or true)", ReadPlace("last", shift=1)),
        ("NEXT(1 in (price, 1))", ReadPlace("last", shift=1)),
        ("LAST(case when B.price > 1 then 2 end)", ReadPlace("last", frozenset({1}))),
        (
            "PREV(LAST(U.price is distinct from 1, 1), 2)",
            ReadPlace("last", frozenset({0, 1}), 1, -2),
        ),
        (
            "FINAL FIRST(concat_ws('-', CLASSIFIER(A), 'x'))",
            ReadPlace("first", frozenset({0}), 0, 0, True),
        ),
        ("LAST(array[price])", ReadPlace("last")),
    ],
)
def test_what_has_a_value_without_a_row_is_guarded(text: str, place: ReadPlace) -> None:
    found = guarded(measure(text))
    assert found is not None
    assert found[0] == place


def test_a_guard_keeps_the_type() -> None:
    assert measure("PREV(coalesce(kind, 1))").type == pa.int8()


def test_an_aggregate_cannot_stand_inside_try() -> None:
    with pytest.raises(BindError, match="an aggregate cannot stand inside TRY"):
        measure("1 + try(sum(price) / 2)")


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("histogram(quote)", "quote"),
        ("map_agg(array[price], price)", "array[price]"),
        ("multimap_agg(quote, price)", "quote"),
        ("approx_most_frequent(2, array[price], 10)", "array[price]"),
        ("map(array[array[price]], array[1])", "array[array[price]]"),
    ],
)
def test_keys_of_maps_are_plain_values(text: str, argument: str) -> None:
    with pytest.raises(BindError, match="cannot be the key of a map") as caught:
        measure(text)
    span = caught.value.span
    assert span is not None
    assert text[span.start : span.end] == argument


@pytest.mark.parametrize(
    ("text", "variables", "final"),
    [
        ("sum(price)", None, False),
        ("RUNNING sum(B.price)", {1}, False),
        ("FINAL sum(U.price)", {0, 1}, True),
        ("count(*)", None, False),
        ("count()", None, False),
        ("count(B.*)", {1}, False),
        ("array_agg(CLASSIFIER(U))", {0, 1}, False),
        ("array_agg(lower(CLASSIFIER()))", None, False),
        ("sum(MATCH_NUMBER() * 2)", None, False),
        ("max_by(B.price, CLASSIFIER(B))", {1}, False),
        ("sum(1)", None, False),
    ],
)
def test_rows_of_an_aggregate(text: str, variables: set[int] | None, final: bool) -> None:
    found = measure(text)
    assert isinstance(found, Aggregate)
    assert found.variables == (None if variables is None else frozenset(variables))
    assert found.final is final
    assert all(
        place == ReadPlace("row") for argument in found.arguments for place in places(argument)
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("count(*)", pa.int64()),
        ("sum(kind)", pa.int64()),
        ("sum(price)", pa.float64()),
        ("sum(cast(price as decimal(8, 3)))", pa.decimal128(38, 3)),
        ("avg(volume)", pa.float64()),
        ("avg(cast(price as decimal(8, 3)))", pa.decimal128(8, 3)),
        ("min(symbol)", pa.string()),
        ("max(ts)", pa.timestamp("us")),
        ("min(kind, 2)", pa.list_(pa.int8())),
        ("array_agg(kind)", pa.list_(pa.int8())),
        ("histogram(symbol)", pa.map_(pa.string(), pa.int64())),
        ("kind + 1", pa.int32()),
        ("kind + kind", pa.int8()),
        ("volume / 2", pa.float64()),
        ("volume div 2", pa.int32()),
        ("volume * 1.5", pa.decimal128(12, 1)),
        ("price * 1.5", pa.float64()),
        ("symbol", pa.string()),
        ("quote.inner.x", pa.int64()),
        ("CLASSIFIER()", pa.string()),
        ("MATCH_NUMBER()", pa.int64()),
        ("ts - PREV(ts)", pa.duration("us")),
        ("coalesce(kind, 1000)", pa.int32()),
        ("coalesce(kind, 100)", pa.int8()),
        ("case when price > 1 then 1 else null end", pa.int32()),
        ("array[1, 2.5]", pa.list_(pa.decimal128(11, 1))),
    ],
)
def test_type(text: str, kind: pa.DataType) -> None:
    assert measure(text).type == kind


def test_integer_literals_take_the_type_of_the_column() -> None:
    expression = definition("kind = 3")
    assert isinstance(expression, Apply)
    assert expression.arguments[1] == Constant(pa.int8(), 3)


def test_a_literal_that_does_not_fit_widens_the_column() -> None:
    expression = definition("kind = 3000")
    assert isinstance(expression, Apply)
    assert [argument.type for argument in expression.arguments] == [pa.int32(), pa.int32()]


def test_text_literals_become_timestamps() -> None:
    expression = definition("ts > '2024-01-31'")
    assert isinstance(expression, Apply)
    assert expression.arguments[1] == Constant(pa.timestamp("us"), datetime.datetime(2024, 1, 31))


def test_columns_are_found_exactly_then_regardless_of_case() -> None:
    assert isinstance(found := measure("VOLUME"), Read)
    assert found.column == "Volume"
    both = pa.schema([("x", pa.int64()), ("X", pa.float64())])
    exact = bind(Query().pattern("A").measures(a="x", b="X"), both)
    assert [m.expression.type for m in exact.measures] == [pa.int64(), pa.float64()]
    mixed = pa.schema([("xY", pa.int64()), ("Xy", pa.float64())])
    with pytest.raises(BindError, match="column 'xy' could be 'xY' and 'Xy'"):
        bind(Query().pattern("A").measures(a="xy"), mixed)


def test_struct_paths() -> None:
    found = measure("A.quote.bid")
    assert isinstance(found, Read)
    assert (found.column, found.path) == ("quote", ("Bid",))


def test_a_variable_wins_over_a_column_of_its_name() -> None:
    schema = pa.schema([("A", pa.struct([("x", pa.int64())])), ("x", pa.float64())])
    query = Query().pattern("A").measures(a="A.x", b="A")
    first, second = (m.expression for m in bind(query, schema).measures)
    assert isinstance(first, Read)
    assert first.column == "x"
    assert isinstance(second, Read)
    assert second.column == "A"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 > 2", True),
        ("true or 1 / 0 > 0", True),
        ("1 / 0 > 0 and false", False),
        ("null and null", None),
        ("case when 1 > 2 then false when true then true end", True),
        ("upper('a') = 'A'", True),
    ],
)
def test_constants_are_folded(text: str, value: object) -> None:
    found = measure(text)
    assert isinstance(found, Constant)
    assert found.value is value


def test_neutral_parts_are_dropped() -> None:
    assert definition("true and price > 1") == definition("price > 1")
    assert definition("false or price > 1 or false") == definition("price > 1")


def test_what_fails_is_left_for_later() -> None:
    found = measure("cast('x' as integer)")
    assert isinstance(found, Apply)


def output(query: Query) -> list[str]:
    return bind(query, SCHEMA).output.names


def test_output_of_one_row_per_match() -> None:
    query = BASE.partition_by("symbol", "kind").measures(b="B.price", a="count(*)")
    assert output(query) == ["symbol", "kind", "b", "a"]
    assert bind(query, SCHEMA).output.field("symbol").type == SCHEMA.field("symbol").type


def test_output_of_all_rows_per_match() -> None:
    query = BASE.order_by("seq", "ts").partition_by("symbol").measures(n="count(*)")
    rest = ["price", "Volume", "kind", "quote", "day"]
    assert output(query.all_rows_per_match()) == ["symbol", "seq", "ts", "n", *rest]


def test_columns_read() -> None:
    query = BASE.partition_by("symbol").define(B="kind = 1").measures(n="sum(quote.bid)")
    assert bind(query, SCHEMA).columns == ("symbol", "ts", "kind", "quote")


def within(query: Query) -> int | None:
    return bind(query, SCHEMA).within


def test_within_in_units_of_the_time_column() -> None:
    assert within(BASE.within("2 s")) == 2_000_000
    assert within(BASE.order_by("seq").within(7)) == 7
    assert within(BASE.order_by("day").within("36 hours")) == 36 * 3600 * 1_000_000
    assert within(BASE.order_by("day").within("48 hours")) == 48 * 3600 * 1_000_000
    assert within(BASE) is None


def test_comparison_with_itself_is_warned_about() -> None:
    (warning,) = bind(BASE.define(B="B.price > LAST(B.price)"), SCHEMA).warnings
    assert warning.startswith("define B: a value is compared with itself")
    assert bind(BASE.define(B="B.price > LAST(B.price, 1)"), SCHEMA).warnings == ()


def test_ordering_by_a_partition_column_is_warned_about() -> None:
    bound = bind(BASE.partition_by("symbol").order_by("symbol", "ts"), SCHEMA)
    assert bound.warnings == ("order by symbol: all rows of a partition have the same value there",)


def test_order() -> None:
    bound = bind(BASE.order_by("SEQ desc nulls first", "ts"), SCHEMA)
    assert bound.order_by == ("seq", "ts")
    assert bound.descending == (True, False)
    assert bound.nulls_first == (True, False)
    assert bound.time == "seq"


def bounded(pattern: str) -> BoundQuery:
    return bind(Query().order_by("ts").pattern(pattern).select(Selection.ALL), SCHEMA)


def test_any_is_fine_when_something_bounds_it() -> None:
    pattern = "A ->> B+ ->> C"
    assert bind(Query().order_by("ts").pattern(pattern).within("1 s"), SCHEMA)
    assert bind(Query().order_by("ts").pattern(pattern).limit(5), SCHEMA)
    assert bind(Query().order_by("ts").pattern(pattern).select("preferred"), SCHEMA)
    assert bounded("A ->> B{1,3} ->> C")
    assert bounded("A ->> B ->> C")


def test_match_number_is_a_number() -> None:
    assert measure("MATCH_NUMBER()") == MatchOrdinal(pa.int64())


def test_bound_nodes_are_hashable() -> None:
    for text in ("array_join(array['a', 'b'], ',')", "map(array[1], array[2])", "sum(price) > 1"):
        assert isinstance(hash(measure(text)), int)


def test_conditions_on_the_number_of_a_match_need_one_match_for_each_start() -> None:
    query = BASE.define(B="MATCH_NUMBER() < 3")
    assert bind(query, SCHEMA).predicates[1].kind is PredicateClass.PATH
    with pytest.raises(BindError, match="needs one match for each start"):
        bind(query.select(Selection.ALL).within("1 hour"), SCHEMA)


def test_instances_need_windows() -> None:
    with pytest.raises(BindError, match="instances are given windows"):
        bind(BASE.instances(2), SCHEMA)


def test_instances_are_bounded() -> None:
    windowed = BASE.over(windows.count(9))
    assert bind(windowed.instances(1024), SCHEMA)
    for query in (windowed.instances(1_000_000), Query.from_sql(MANY)):
        with pytest.raises(BindError, match="at most 1024 instances, not 1000000"):
            bind(query, SCHEMA)


def test_a_query_that_asks_for_no_column_says_which_when_and_how_long():
    output = bind(Query().order_by("ts", "seq").pattern("A B"), SCHEMA).output
    assert output == pa.schema(
        [
            ("match_number", pa.int64()),
            ("first_time", pa.timestamp("us")),
            ("last_time", pa.timestamp("us")),
            ("rows", pa.int64()),
        ]
    )
    assert bind(Query().pattern("A B"), SCHEMA).output.names == ["match_number", "rows"]
    keyed = Query().partition_by("symbol").order_by("ts").pattern("A B")
    assert bind(keyed, SCHEMA).output.names == ["symbol"]
    coded = bind(Query().order_by("symbol").pattern("A B"), SCHEMA).output
    assert coded.field("first_time").type == pa.string()
