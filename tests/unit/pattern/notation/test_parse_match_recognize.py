import datetime
import inspect
import re
from pathlib import Path

import pytest

from outpace.errors import PatternSyntaxError
from outpace.pattern.expression import Binary, Call, Classifier, Literal, Name, Navigate, Star
from outpace.pattern.notation import parse_match_recognize as reader
from outpace.pattern.notation.parse_match_recognize import parse_match_recognize
from outpace.pattern.query import (
    AfterMatch,
    Consume,
    Limit,
    OrderItem,
    Per,
    Query,
    RowsPerMatch,
    Selection,
    Skip,
    Within,
    WithinKind,
)


def parse(text, **options):
    return parse_match_recognize(text, **options)


def test_sql_and_fluent_give_the_same_query():
    sql = parse(
        """
        PARTITION BY symbol ORDER BY ts DESC, id NULLS FIRST
        MEASURES LAST(DOWN.price) AS bottom, COUNT(*) AS ticks
        ALL ROWS PER MATCH OMIT EMPTY MATCHES
        AFTER MATCH SKIP TO FIRST UP
        PATTERN (STRT -> DOWN+ UP+) WITHIN INTERVAL '1' HOUR
        SUBSET MOVE = (DOWN, UP)
        DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)
        """,
        name="dip",
    )
    fluent = (
        Query("dip")
        .partition_by("symbol")
        .order_by("ts desc", "id nulls first")
        .pattern("STRT -> DOWN+ UP+")
        .define(DOWN="price < PREV(price)", UP="price > PREV(price)")
        .subset(MOVE=("DOWN", "UP"))
        .measures(bottom="LAST(DOWN.price)", ticks="COUNT(*)")
        .all_rows_per_match(empty="omit")
        .skip_to_first("UP", strict=True)
        .within("1 hour")
    )
    assert sql == fluent


def test_every_word_that_is_read_is_in_the_reference():
    page = Path(__file__).parents[4] / "docs" / "reference" / "sql.md"
    clauses = re.findall(r'"([A-Z][A-Z_ ]+)"', inspect.getsource(reader))
    words = {word for clause in clauses for word in clause.split()}
    assert {"MEASURED", "UNMATCHED"} < words
    assert not words - set(re.findall(r"[A-Z_]+", page.read_text()))


def test_unquoted_variables_are_folded_to_upper_case():
    query = parse(
        """
        MEASURES CLASSIFIER(u) AS label, COUNT(u.*) AS n, SUM(a.price) AS total, a AS col,
          "b".Price AS p, "a".x AS struct_field, c.x AS other
        AFTER MATCH SKIP TO LAST "b"
        PATTERN (a "b"+ UNTIL stop)
        SUBSET u = (a, "b")
        DEFINE "b" AS "b".v > a.v, stop AS true
        """
    )
    assert query.skip == AfterMatch(Skip.TO_LAST, "b", strict=True)
    assert query.subsets == (("U", ("A", "b")),)
    assert query.definitions == (
        ("b", Binary(">", Name(("b", "v")), Name(("A", "v")))),
        ("STOP", Literal(True)),
    )
    assert dict(query.outputs) == {
        "label": Classifier("U"),
        "n": Call("count", (Star("U"),)),
        "total": Call("sum", (Name(("A", "price")),)),
        "col": Name(("a",)),
        "p": Name(("b", "Price")),
        "struct_field": Name(("a", "x")),
        "other": Name(("c", "x")),
    }


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("SKIP PAST LAST ROW", AfterMatch(Skip.PAST_LAST_ROW)),
        ("SKIP TO NEXT ROW", AfterMatch(Skip.TO_NEXT_ROW)),
        ("SKIP TO FIRST a", AfterMatch(Skip.TO_FIRST, "A", True)),
        ("SKIP TO LAST a", AfterMatch(Skip.TO_LAST, "A", True)),
        ("SKIP TO a", AfterMatch(Skip.TO_LAST, "A", True)),
        ("SKIP TO first", AfterMatch(Skip.TO_LAST, "FIRST", True)),
        ("SKIP TO last", AfterMatch(Skip.TO_LAST, "LAST", True)),
        ("SKIP TO FIRST last", AfterMatch(Skip.TO_FIRST, "LAST", True)),
        ("SKIP TO FIRST a OR NEXT ROW", AfterMatch(Skip.TO_FIRST, "A", False)),
        ("SKIP TO a OR NEXT ROW", AfterMatch(Skip.TO_LAST, "A", False)),
        ("NO SKIP", AfterMatch(Skip.NONE)),
    ],
)
def test_after_match(clause, expected):
    assert parse(f"AFTER MATCH {clause} PATTERN (a)").skip == expected


def test_what_is_left_out_is_left_open():
    query = parse("PATTERN (a)")
    assert (query.skip, query.bound, query.selection) == (None, None, None)
    assert (query.rows, query.consumption, query.limits) == (RowsPerMatch.ONE, Consume.NONE, ())


@pytest.mark.parametrize(
    ("clause", "rows"),
    [
        ("ONE ROW PER MATCH", RowsPerMatch.ONE),
        ("ONE ROW PER MATCH SHOW EMPTY MATCHES", RowsPerMatch.ONE),
        ("ALL ROWS PER MATCH", RowsPerMatch.ALL_SHOW_EMPTY),
        ("ALL ROWS PER MATCH SHOW EMPTY MATCHES", RowsPerMatch.ALL_SHOW_EMPTY),
        ("ALL ROWS PER MATCH OMIT EMPTY MATCHES", RowsPerMatch.ALL_OMIT_EMPTY),
        ("ALL ROWS PER MATCH WITH UNMATCHED ROWS", RowsPerMatch.ALL_WITH_UNMATCHED),
    ],
)
def test_rows(clause, rows):
    assert parse(f"{clause} PATTERN (a)").rows is rows


@pytest.mark.parametrize(
    ("clause", "within"),
    [
        ("INTERVAL '5' MINUTE", Within(datetime.timedelta(minutes=5))),
        ("'90 s'", Within(datetime.timedelta(seconds=90))),
        ("1000", Within(1000)),
        ("1000 FIRST TO LAST", Within(1000)),
        ("1000 PREVIOUS TO CURRENT", Within(1000, WithinKind.PREVIOUS_TO_CURRENT)),
    ],
)
def test_within_stands_after_or_before_the_pattern(clause, within):
    assert parse(f"PATTERN (a b) WITHIN {clause} DEFINE a AS true").bound == within
    assert parse(f"WITHIN {clause} PATTERN (a b) DEFINE a AS true").bound == within


def test_selection_consumption_and_limits():
    query = parse("PATTERN (a) SELECT ALL MATCHES CONSUME ALL LIMIT 2 PER START LIMIT 9")
    assert query.selection is Selection.ALL
    assert query.consumption is Consume.ALL
    assert query.limits == (Limit(2, Per.START), Limit(9, Per.PARTITION))


def test_order_items():
    query = parse('ORDER BY a, "B b" DESC, c ASC NULLS LAST, d.e DESC NULLS FIRST PATTERN (a)')
    assert query.order == (
        OrderItem("a"),
        OrderItem("B b", True),
        OrderItem("c", False, False),
        OrderItem("d.e", True, True),
    )


def test_a_variable_may_have_the_name_of_a_function_or_keyword():
    query = parse("PATTERN ((a | b)+ last) DEFINE last AS FIRST(last.x) = LAST(x) AND first = 1")
    assert query.definitions[0] == (
        "LAST",
        Binary(
            "and",
            Binary("=", Navigate("first", Name(("LAST", "x"))), Navigate("last", Name(("x",)))),
            Binary("=", Name(("first",)), Literal(1)),
        ),
    )


def test_places_count_in_the_whole_statement():
    statement = "SELECT * FROM t MATCH_RECOGNIZE (PATTERN (a) DEFINE a AS x >)"
    start = statement.index("(") + 1
    with pytest.raises(PatternSyntaxError) as caught:
        parse(statement[start:-1], offset=start, whole=statement, where="statement")
    assert str(caught.value) == (
        "[syntax] expected an expression, found the end of the text\n"
        "  statement, line 1, column 61\n"
        f"    {statement}\n"
        f"    {' ' * 60}^"
    )


def test_the_words_around_the_clauses_may_be_there():
    assert parse("MATCH_RECOGNIZE (PATTERN (a))") == parse("PATTERN (a)")
