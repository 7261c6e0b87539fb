"""SQL:2016 row patterns through the in-process host, one documented feature at a time."""

import re
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import MatchError, OutpaceError
from outpace.hosts.local.sql import sql

#: id, value: two slopes down and up again.
SLOPES = (
    "(VALUES (1, 90), (2, 80), (3, 70), (4, 80), (5, 90), (6, 50), (7, 40), (8, 60)) t(id, value)"
)
V_SHAPE = "DEFINE B AS value < PREV(value), C AS value > PREV(value)"


CONNECTION = duckdb.connect()


def run(text: str) -> list[tuple[Any, ...]]:
    table = sql(CONNECTION, text, dialect="trino")
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def measure(
    expression: str, rows: str = "ALL ROWS PER MATCH", pattern: str = "A B+ C+"
) -> list[Any]:
    """Return what a measure gives on the first match of the slopes, in the order of rows."""
    found = run(
        f"""SELECT m.x FROM {SLOPES} MATCH_RECOGNIZE (
            ORDER BY id MEASURES {expression} AS x {rows}
            PATTERN (^ ({pattern})) SUBSET U = (A, C), W = (B, C) {V_SHAPE}) AS m"""
    )
    return [value for (value,) in found]


# The first match of A B+ C+ is ids 1 to 5, labelled A B B C C.
NAVIGATION = [
    ("id", [1, 2, 3, 4, 5]),
    ("A.id", [1, 1, 1, 1, 1]),
    ("B.id", [None, 2, 3, 3, 3]),
    ("C.id", [None, None, None, 4, 5]),
    ("U.id", [1, 1, 1, 4, 5]),
    ("W.id", [None, 2, 3, 4, 5]),
    ("LAST(id)", [1, 2, 3, 4, 5]),
    ("LAST(id, 0)", [1, 2, 3, 4, 5]),
    ("LAST(id, 1)", [None, 1, 2, 3, 4]),
    ("LAST(B.id, 1)", [None, None, 2, 2, 2]),
    ("LAST(U.id, 2)", [None, None, None, None, 1]),
    ("RUNNING LAST(B.id)", [None, 2, 3, 3, 3]),
    ("FINAL LAST(B.id)", [3, 3, 3, 3, 3]),
    ("FINAL LAST(id, 1)", [4, 4, 4, 4, 4]),
    ("FINAL LAST(id, 7)", [None] * 5),
    ("FIRST(id)", [1, 1, 1, 1, 1]),
    ("FIRST(id, 2)", [None, None, 3, 3, 3]),
    ("FINAL FIRST(id, 2)", [3, 3, 3, 3, 3]),
    ("FIRST(C.id)", [None, None, None, 4, 4]),
    ("FINAL FIRST(C.id, 1)", [5, 5, 5, 5, 5]),
    ("PREV(id)", [None, 1, 2, 3, 4]),
    ("PREV(id, 2)", [None, None, 1, 2, 3]),
    ("PREV(id, 0)", [1, 2, 3, 4, 5]),
    ("PREV(B.id)", [None, 1, 2, 2, 2]),
    ("NEXT(id)", [2, 3, 4, 5, 6]),
    ("NEXT(id, 4)", [5, 6, 7, 8, None]),
    ("NEXT(C.id)", [None, None, None, 5, 6]),
    ("PREV(FIRST(C.id))", [None, None, None, 3, 3]),
    ("PREV(FIRST(id, 1), 1)", [None, 1, 1, 1, 1]),
    ("NEXT(FIRST(A.id), 2)", [3, 3, 3, 3, 3]),
    ("NEXT(FINAL LAST(id), 3)", [8, 8, 8, 8, 8]),
    ("PREV(LAST(B.id, 1), 1)", [None, None, 1, 1, 1]),
    ("NEXT(RUNNING LAST(id))", [2, 3, 4, 5, 6]),
    ("NEXT(id + value)", [82, 73, 84, 95, 56]),
    ("LAST(B.id * 2 + B.value)", [None, 84, 76, 76, 76]),
    ("FIRST(A.id) + LAST(B.id)", [None, 3, 4, 4, 4]),
    ("CLASSIFIER()", ["A", "B", "B", "C", "C"]),
    ("CLASSIFIER(U)", ["A", "A", "A", "C", "C"]),
    ("CLASSIFIER(W)", [None, "B", "B", "C", "C"]),
    ("PREV(CLASSIFIER())", [None, "A", "B", "B", "C"]),
    ("NEXT(CLASSIFIER())", ["B", "B", "C", "C", None]),
    ("PREV(CLASSIFIER(U), 1)", [None, None, None, "B", "C"]),
    ("FIRST(CLASSIFIER(), 3)", [None, None, None, "C", "C"]),
    ("FINAL LAST(CLASSIFIER())", ["C"] * 5),
    ("FINAL LAST(CLASSIFIER(W), 2)", ["B"] * 5),
    ("LAST(CLASSIFIER() || 'x')", ["Ax", "Bx", "Bx", "Cx", "Cx"]),
    ("MATCH_NUMBER()", [1] * 5),
    ("MATCH_NUMBER() + id", [2, 3, 4, 5, 6]),
    ("CASE WHEN CLASSIFIER() = 'B' THEN value ELSE -1 END", [-1, 80, 70, -1, -1]),
    ("coalesce(PREV(id), 0)", [0, 1, 2, 3, 4]),
]


@pytest.mark.parametrize(("expression", "expected"), NAVIGATION)
def test_navigation(expression: str, expected: list[Any]) -> None:
    assert measure(expression) == expected


@pytest.mark.parametrize(("expression", "expected"), NAVIGATION)
def test_one_row_looks_from_the_last_row(expression: str, expected: list[Any]) -> None:
    assert measure(expression, "ONE ROW PER MATCH") == expected[-1:]


# Values of the rows: 90 80 70 80 90.
AGGREGATES = [
    ("count(*)", [1, 2, 3, 4, 5]),
    ("count()", [1, 2, 3, 4, 5]),
    ("count(1)", [1, 2, 3, 4, 5]),
    ("count(B.*)", [0, 1, 2, 2, 2]),
    ("count(U.*)", [1, 1, 1, 2, 3]),
    ("FINAL count(B.*)", [2] * 5),
    ("count(B.id)", [0, 1, 2, 2, 2]),
    ("count(NULLIF(value, 80))", [1, 1, 2, 2, 3]),
    ("count(DISTINCT value)", [1, 2, 3, 3, 3]),
    ("sum(value)", [90, 170, 240, 320, 410]),
    ("RUNNING sum(B.value)", [None, 80, 150, 150, 150]),
    ("FINAL sum(B.value)", [150] * 5),
    ("sum(U.value)", [90, 90, 90, 170, 260]),
    ("sum(value + MATCH_NUMBER())", [91, 172, 243, 324, 415]),
    ("avg(B.value)", [None, 80.0, 75.0, 75.0, 75.0]),
    ("min(value)", [90, 80, 70, 70, 70]),
    ("max(W.value)", [None, 80, 80, 80, 90]),
    ("arbitrary(B.value)", [None, 80, 80, 80, 80]),
    ("array_agg(id)", [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5]]),
    ("FINAL array_agg(C.id)", [[4, 5]] * 5),
    ("array_agg(B.id)", [None, [2], [2, 3], [2, 3], [2, 3]]),
    ("array_agg(CLASSIFIER(U))", [["A"], ["A"], ["A"], ["A", "C"], ["A", "C", "C"]]),
    ("FINAL array_agg(CLASSIFIER() || lower(CLASSIFIER()))", [["Aa", "Bb", "Bb", "Cc", "Cc"]] * 5),
    ("max_by(id, value)", [1, 1, 1, 1, 1]),
    ("min_by(id, value)", [1, 2, 3, 3, 3]),
    ("max_by(CLASSIFIER(), id)", ["A", "B", "B", "C", "C"]),
    ("min_by(1, B.value)", [None, 1, 1, 1, 1]),
    ("max_by(B.value, 1)", [None, 80, 80, 80, 80]),
    ("bool_and(value > 75)", [True, True, False, False, False]),
    ("bool_or(value < 75)", [False, False, True, True, True]),
    ("every(B.value > 75)", [None, True, False, False, False]),
    ("count_if(value = 80)", [0, 1, 1, 2, 2]),
    ("count(*) + sum(B.id)", [None, 4, 8, 9, 10]),
    ("sum(id) - FINAL sum(id)", [-14, -12, -9, -5, 0]),
    ("avg(value) > LAST(value)", [False, True, True, False, False]),
]


@pytest.mark.parametrize(("expression", "expected"), AGGREGATES)
def test_aggregates(expression: str, expected: list[Any]) -> None:
    assert measure(expression) == expected


@pytest.mark.parametrize(("expression", "expected"), AGGREGATES)
def test_aggregates_of_one_row_take_the_whole_match(expression: str, expected: list[Any]) -> None:
    assert measure(expression, "ONE ROW PER MATCH") == expected[-1:]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("id", None),
        ("LAST(id)", None),
        ("FIRST(A.id)", None),
        ("PREV(id)", None),
        ("NEXT(LAST(id))", None),
        ("CLASSIFIER()", None),
        ("MATCH_NUMBER()", 1),
        ("count(*)", 0),
        ("count(A.*)", 0),
        ("sum(id)", None),
        ("array_agg(id)", None),
        ("max_by(id, value)", None),
        ("coalesce(sum(id), -1)", -1),
        ("5", 5),
    ],
)
def test_measures_of_an_empty_match(expression: str, expected: object) -> None:
    assert measure(expression, "ONE ROW PER MATCH", "() | A B C") == [expected]
    assert measure(expression, pattern="(A B C)??") == [expected]


def test_measures_of_unmatched_rows_are_null() -> None:
    found = run(
        """SELECT * FROM (VALUES (1, 1), (2, 5), (3, 2)) t(id, value) MATCH_RECOGNIZE (
            ORDER BY id MEASURES MATCH_NUMBER() AS n, count(*) AS c, 7 AS k
            ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A) DEFINE A AS value > 3)"""
    )
    assert found == [(1, None, None, None, 1), (2, 1, 1, 7, 5), (3, None, None, None, 2)]


@pytest.mark.parametrize(
    ("mode", "ids"),
    [
        ("", [1, 2, 3, 4]),
        ("SHOW EMPTY MATCHES", [1, 2, 3, 4]),
        ("OMIT EMPTY MATCHES", [2, 3]),
        ("WITH UNMATCHED ROWS", [1, 2, 3, 4]),
    ],
)
def test_empty_matches_are_shown_or_omitted(mode: str, ids: list[int]) -> None:
    found = run(
        f"""SELECT m.id FROM (VALUES (1, 90), (2, 80), (3, 70), (4, 70)) t(id, value)
        MATCH_RECOGNIZE (ORDER BY id ALL ROWS PER MATCH {mode} PATTERN (B*)
            DEFINE B AS value < PREV(value)) m"""
    )
    assert [i for (i,) in found] == ids


@pytest.mark.parametrize(
    ("skip", "starts"),
    [
        ("", [1, 6]),
        ("AFTER MATCH SKIP PAST LAST ROW", [1, 6]),
        ("AFTER MATCH SKIP TO NEXT ROW", [1, 2, 5, 6]),
        ("AFTER MATCH SKIP TO FIRST B", [1, 2, 5, 6]),
        ("AFTER MATCH SKIP TO LAST B", [1, 5]),
        ("AFTER MATCH SKIP TO B", [1, 5]),
        ("AFTER MATCH SKIP TO FIRST C", [1, 5]),
        ("AFTER MATCH SKIP TO LAST C", [1, 5]),
        ("AFTER MATCH SKIP TO c", [1, 5]),
        ("AFTER MATCH SKIP TO U", [1, 5]),
        ("AFTER MATCH SKIP TO FIRST W", [1, 2, 5, 6]),
    ],
)
def test_after_match(skip: str, starts: list[int]) -> None:
    found = run(
        f"""SELECT m.s FROM {SLOPES} MATCH_RECOGNIZE (ORDER BY id MEASURES FIRST(id) AS s {skip}
            PATTERN (A B+ C+) SUBSET U = (A, C), W = (B, C) {V_SHAPE}) AS m"""
    )
    assert [s for (s,) in found] == starts


@pytest.mark.parametrize(
    ("skip", "message"),
    [
        ("TO A", "first row of match"),
        ("TO FIRST U", "first row of match"),
        ("TO D", "pattern variable is not present in match"),
    ],
)
def test_a_skip_that_cannot_go_on_fails(skip: str, message: str) -> None:
    with pytest.raises(MatchError, match=message):
        run(
            f"""SELECT * FROM {SLOPES} MATCH_RECOGNIZE (
                ORDER BY id MEASURES 1 AS one AFTER MATCH SKIP {skip}
                PATTERN (A B+ C+ D?) SUBSET U = (A, C) {V_SHAPE}, D AS false)"""
        )


def test_exclusion_hides_rows_and_nothing_else() -> None:
    found = run(
        f"""SELECT m.id, m.labels, m.before FROM {SLOPES} MATCH_RECOGNIZE (ORDER BY id
            MEASURES array_agg(CLASSIFIER()) AS labels, PREV(id) AS before
            ALL ROWS PER MATCH PATTERN (A {{- B+ -}} C+) {V_SHAPE}) AS m WHERE m.id < 5"""
    )
    assert found == [(1, ["A"], None), (4, ["A", "B", "B", "C"], 3)]


@pytest.mark.parametrize(
    ("pattern", "labels"),
    [
        ("PERMUTE(A, B, C)", ["A", "B", "C"]),
        ("PERMUTE(C, A)", ["C", "A"]),
        ("A | B", ["A"]),
        ("(B | A) A", ["B", "A"]),
        ("(A | B C){2}", ["A", "A"]),
        ("A{2} (B | C)+ $", ["A", "A"] + ["B"] * 6),
        ("(A | B)*? C $", ["A"] * 7 + ["C"]),
        ("^ A", ["A"]),
        ("A?? B", ["B"]),
        (
            "((A B)+ C)?",
            ["A", "B"] * 3 + ["C"],
        ),
    ],
)
def test_preference(pattern: str, labels: list[str]) -> None:
    found = run(
        f"""SELECT m.l FROM {SLOPES} MATCH_RECOGNIZE (ORDER BY id
            MEASURES array_agg(CLASSIFIER()) AS l PATTERN (^ {pattern}) DEFINE A AS true) AS m"""
    )
    assert found[0] == (labels,)


def test_permutation_tries_the_other_orders() -> None:
    found = run(
        """SELECT m.l FROM (VALUES (1, 'c'), (2, 'a'), (3, 'b')) t(id, k)
            MATCH_RECOGNIZE (ORDER BY id
            MEASURES array_agg(CLASSIFIER()) AS l PATTERN (PERMUTE(A, B, C))
            DEFINE A AS k = 'a', B AS k = 'b', C AS k = 'c') AS m"""
    )
    assert found == [(["C", "A", "B"],)]


def test_conditions_on_the_match_so_far() -> None:
    found = run(
        f"""SELECT m.ids, m.n FROM {SLOPES} MATCH_RECOGNIZE (ORDER BY id
            MEASURES array_agg(id) AS ids, MATCH_NUMBER() AS n PATTERN (A B* C)
            DEFINE B AS count(B.*) <= MATCH_NUMBER() AND value <> A.value,
                   C AS sum(value) > 200 OR (CLASSIFIER() = 'C' AND LAST(B.id) > 6)) AS m"""
    )
    assert found == [([1, 2, 3], 1), ([4, 5, 6, 7], 2)]


def test_partitions_and_descending_order() -> None:
    found = run(
        """SELECT m.p, m.ids
            FROM (VALUES ('x', 1), ('y', 4), ('x', 3), ('y', 2), ('x', 2), (NULL, 1))
            t(p, id) MATCH_RECOGNIZE (PARTITION BY p ORDER BY id DESC
            MEASURES array_agg(id) AS ids PATTERN (A+)) AS m"""
    )
    assert sorted(found, key=repr) == [("x", [3, 2, 1]), ("y", [4, 2]), (None, [1])]


@pytest.mark.parametrize(
    ("order", "ids"),
    [
        ("v", [2, 1, 3]),
        ("v ASC NULLS FIRST", [3, 2, 1]),
        ("v DESC", [1, 2, 3]),
        ("v DESC NULLS FIRST", [3, 1, 2]),
        ("w, v DESC", [1, 2, 3]),
    ],
)
def test_nulls_in_the_order(order: str, ids: list[int]) -> None:
    found = run(
        f"""SELECT m.ids FROM (VALUES (1, 9, 1), (2, 5, 1), (3, NULL, 1)) t(id, v, w)
            MATCH_RECOGNIZE (ORDER BY {order} MEASURES array_agg(id) AS ids PATTERN (A+)) AS m"""
    )
    assert found == [(ids,)]


def test_without_order_rows_keep_the_order_of_the_input() -> None:
    found = run(
        """SELECT m.ids FROM (VALUES 3, 1, 2) t(id) MATCH_RECOGNIZE (
            MEASURES array_agg(id) AS ids PATTERN (A+)) AS m"""
    )
    assert found == [([3, 1, 2],)]


def test_quoted_labels_keep_their_case() -> None:
    found = run(
        """SELECT m.id, m.label FROM (VALUES 1, 2, 3) t(id) MATCH_RECOGNIZE (ORDER BY id
            MEASURES CLASSIFIER() AS label ALL ROWS PER MATCH PATTERN (a "a" "B")
            DEFINE A AS a.id = 1, "a" AS "a".id = 2, b AS b.id = 3) AS m"""
    )
    assert found == [(1, "A"), (2, "a"), (3, "B")]


def test_no_rows_give_no_matches() -> None:
    found = run(
        """SELECT * FROM (SELECT 1 AS id WHERE false) MATCH_RECOGNIZE (ORDER BY id
            MEASURES count(*) AS n PATTERN (A*))"""
    )
    assert found == []


ITEM = st.sampled_from(["a", "b", "c"])
PATTERN = st.recursive(
    ITEM,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}{pair[1]})"),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(
            inner, st.sampled_from(["+", "{2}", "{1,2}", "{2,}", "+?", "{1,2}?", "{2,}?"])
        ).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        # What can match nothing is only repeated at the end, where SQL and `re` agree.
        st.tuples(inner, st.sampled_from(["*", "?", "{0,2}", "*?", "??"]), inner).map(
            lambda parts: f"(?:(?:{parts[0]}){parts[1]}{parts[2]})"
        ),
    ),
    max_leaves=5,
)


def as_row_pattern(pattern: str) -> str:
    return re.sub("([abc])", r" \1 ", pattern.replace("?:", "")).replace("  ", " ")


@given(PATTERN, st.text("abc", min_size=1, max_size=12))
def test_strings_match_like_regular_expressions(pattern: str, kinds: str) -> None:
    rows = ", ".join(f"({index}, '{kind}')" for index, kind in enumerate(kinds))
    define = ", ".join(f"{kind} AS k = '{kind}'" for kind in "abc" if kind in pattern)
    found = run(
        f"""SELECT m.s, m.n FROM (VALUES {rows}) t(id, k) MATCH_RECOGNIZE (ORDER BY id
            MEASURES FIRST(id) AS s, count(*) AS n PATTERN ({as_row_pattern(pattern)})
            DEFINE {define}) AS m"""
    )
    assert found == [(hit.start(), len(hit[0])) for hit in re.finditer(pattern, kinds)]


REFUSED = [
    # What DEFINE, MEASURES and PATTERN must not hold, with the place of the mistake.
    ("DEFINE B AS FINAL LAST(value) > 1", "FINAL"),
    ("DEFINE B AS FINAL sum(value) > 1", "FINAL"),
    ("DEFINE B AS LAST(1) > 0", "LAST(1)"),
    ("DEFINE B AS LAST(A.value + B.value) > 0", "B.value"),
    ("DEFINE B AS PREV(A.value + value) > 0", "value)"),
    ("DEFINE B AS FIRST(PREV(value)) > 0", "PREV"),
    ("DEFINE B AS PREV(NEXT(value)) > 0", "NEXT"),
    ("DEFINE B AS LAST(FIRST(value)) > 0", "FIRST"),
    ("DEFINE B AS LAST(value, -1) > 0", "-1"),
    ("DEFINE B AS LAST(value, id) > 0", "id)"),
    ("DEFINE B AS sum(LAST(value)) > 0", "LAST"),
    ("DEFINE B AS LAST(sum(value)) > 0", "sum"),
    ("DEFINE B AS sum(sum(value)) > 0", "sum(value)"),
    ("DEFINE B AS max_by(A.value, value) > 0", "value)"),
    ("DEFINE B AS max_by(A.value, A.id + B.id) > 0", "B.id"),
    ("DEFINE B AS RUNNING PREV(value) > 0", "PREV"),
    ("DEFINE B AS value", "value"),
    ("DEFINE B AS volume > 0", "volume"),
    ("DEFINE B AS X.value > 0", "X"),
    ("DEFINE B AS t.value > 0", "t"),
    ("DEFINE B AS nosuch(value) > 0", "nosuch"),
    ("DEFINE B AS value > 'text'", "'text'"),
    ("DEFINE B AS CLASSIFIER(X) = 'A'", "CLASSIFIER(X)"),
    ("DEFINE B AS MATCH_NUMBER(1) > 0", "1"),
    ("DEFINE X AS true", "X"),
    ("DEFINE B AS true, B AS false", "B AS false"),
    ("SUBSET U = (A, X) DEFINE B AS true", "X"),
    ("SUBSET A = (B) DEFINE B AS true", "A ="),
    ("SUBSET U = (A), U = (B) DEFINE B AS true", "U = (B)"),
]


@pytest.mark.parametrize(("clauses", "place"), REFUSED)
def test_what_is_refused_is_shown(clauses: str, place: str) -> None:
    text = f"SELECT *\nFROM {SLOPES}\nMATCH_RECOGNIZE (\nORDER BY id\nPATTERN (A B)\n{clauses})"
    with pytest.raises(OutpaceError) as caught:
        run(text)
    error = caught.value
    assert error.code in ("syntax", "bind", "unsupported")
    assert error.span is not None
    assert error.text == text
    assert text[error.span.start :].startswith(place)


@pytest.mark.parametrize(
    ("clauses", "place"),
    [
        ("PARTITION BY nosuch PATTERN (A)", "nosuch"),
        ("ORDER BY nosuch PATTERN (A)", "nosuch"),
        ("MEASURES nosuch AS x PATTERN (A)", "nosuch"),
        ("MEASURES id AS x, value AS X PATTERN (A)", "value AS X"),
        ("MEASURES id PATTERN (A)", "PATTERN"),
        ("AFTER MATCH SKIP TO X PATTERN (A)", "X"),
        ("ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN ({- A -} B)", "{- A -}"),
        ("PATTERN (A{3,2})", "{3,2}"),
        ("PATTERN (A{0})", "{0}"),
        ("PATTERN (A", None),
        ("PATTERN (PERMUTE())", ")"),
        ("PATTERN (A) PATTERN (B)", "PATTERN (B)"),
        ("ORDER BY id", None),
    ],
)
def test_clauses_that_are_refused(clauses: str, place: str | None) -> None:
    text = f"SELECT *\nFROM {SLOPES}\nMATCH_RECOGNIZE (\n{clauses})"
    with pytest.raises(OutpaceError) as caught:
        run(text)
    error = caught.value
    assert error.span is not None
    assert error.text == text
    assert place is None or text[error.span.start :].startswith(place)
