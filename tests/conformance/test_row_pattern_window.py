"""Row patterns in the WINDOW clause in process: public cases, and the frame of each row.

What a window finds of a row is what MATCH_RECOGNIZE finds in a table of that row's frame alone.
"""

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from support.properties import examples
from support.statements import WINDOW, answer, public_cases
from support.strategies import patterns

import outpace as op
from outpace.errors import OutpaceError
from outpace.hosts.local.sql import sql
from outpace.pattern import ast
from outpace.pattern.notation.parse_match_recognize import parse_match_recognize
from outpace.pattern.notation.print_pattern import print_pattern

CONNECTION = duckdb.connect()


@pytest.mark.parametrize("case", public_cases(WINDOW))
def test_case(case: dict[str, Any]) -> None:
    found = sql(CONNECTION, case["sql"], dialect="trino")
    assert answer(found) == answer(sql(CONNECTION, case["expected_sql"], dialect="trino"))


MEASURES = [
    *(
        "CLASSIFIER()",
        "LAST(v)",
        "v",
        "FIRST(v, 1)",
        "LAST(v, 1)",
        "COUNT(*)",
        "SUM(B.v)",
        "count(1)",
    ),
    *("PREV(v)", "NEXT(v)", "PREV(FIRST(v), 1)", "NEXT(LAST(A.v), 2)", "PREV(FINAL LAST(v, 1))"),
    *("COUNT(*) FILTER (WHERE v > 1)", "array_agg(n ORDER BY v DESC)", "RUNNING (v + COUNT(*))"),
    *("PREV(CLASSIFIER())", "array_agg(n)", "LAST(CLASSIFIER(), 1)", "B.v + COUNT(A.*)"),
    *("CASE WHEN MAX(v) > 1 THEN 'high' ELSE CLASSIFIER() END", "COALESCE(NEXT(v, 2), 7)"),
]
CONDITIONS = [
    *("true", "v > PREV(v)", "v < NEXT(v)", "COUNT(*) < 4", "v >= FIRST(v)", "PREV(v, 2) <= v"),
    *("NEXT(FIRST(v), 3) IS NULL OR v > 1", "LAST(v, 1) <= v OR v = 2", "v > 0"),
    *("PREV(LAST(A.v)) IS NULL", "SUM(v) < 6", "PREV(CLASSIFIER()) IS NULL", "PREV(v) IS NULL"),
]
FUNCTIONS = {"max(v)": max, "count(*)": len, "first_value(v)": lambda v: v[0], "sum(v)": sum}
SKIPS = ["PAST LAST ROW", "TO NEXT ROW", "TO LAST B OR NEXT ROW"]


def of_frame(frame: list[dict[str, Any]], clause: str, seek: bool) -> dict[str, Any] | None:
    """Find the match of a frame by MATCH_RECOGNIZE over a table that holds nothing else."""
    tree = parse_match_recognize(clause).tree
    assert tree is not None
    if not seek:
        tree = ast.concat([ast.AtStart(), tree])
    query = parse_match_recognize(f"ORDER BY n {clause}")
    table = pa.Table.from_pylist(frame)
    found = op.match(table, op.Query(**{**fields_of(query), "tree": tree})).to_pylist()
    return found[0] if found else None


def may_stand(pattern: ast.Pattern) -> bool:
    """Whether a pattern has a variable, and no exclusion."""
    excluded = any(isinstance(part, ast.Exclude) for part in ast.walk(pattern))
    return bool(ast.variables(pattern)) and not excluded


def fields_of(query: op.Query) -> dict[str, Any]:
    names = ("order", "definitions", "outputs", "skip")
    return {name: getattr(query, name) for name in names}


@examples(100)
@given(st.data())
def test_a_window_finds_what_a_table_of_each_frame_has(data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=9), "values")
    plain = patterns(links=[ast.Link.STRICT], negation=False, anchors=False)
    tree = data.draw(plain.filter(may_stand), "pattern")
    others = {f"{name}." for name in "ABC" if name not in ast.predicates(tree)}
    known = [text for text in MEASURES if not any(one in text for one in others)]
    measures = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=4, unique=True))
    fitting = [text for text in CONDITIONS if not any(one in text for one in others)]
    defined = {name: data.draw(st.sampled_from(fitting), name) for name in ast.predicates(tree)}
    skip = data.draw(st.sampled_from(SKIPS), "skip")
    seek = data.draw(st.booleans(), "seek")
    after = data.draw(st.none() | st.integers(0, 5), "after")
    function = data.draw(st.sampled_from([*FUNCTIONS]), "function")
    named = ", ".join(f"{text} AS m{number}" for number, text in enumerate(measures))
    define = ", ".join(f"{name} AS {text}" for name, text in defined.items())
    skip = skip if "B" in defined else SKIPS[0]
    pattern = f"PATTERN ({print_pattern(tree)}) DEFINE {define}"
    rows = [{"n": number, "v": value} for number, value in enumerate(values)]
    frame = f"ROWS BETWEEN CURRENT ROW AND {'UNBOUNDED' if after is None else after} FOLLOWING"
    text = f"""SELECT n, {", ".join(f"m{number} OVER w" for number in range(len(measures)))},
        {function} OVER w AS f
        FROM rows WINDOW w AS (ORDER BY n MEASURES {named} {frame}
            AFTER MATCH SKIP {skip} {"SEEK" if seek else "INITIAL"} {pattern}) ORDER BY n"""
    note(text)
    extra = "array_agg(n) AS numbers, array_agg(v) AS taken"
    target = ", LAST(B.n) AS target" if skip == SKIPS[2] else ""
    expected = []
    following = 0
    for row in rows:
        last = len(rows) if after is None else row["n"] + after + 1
        clause = f"MEASURES {named}, {extra}{target} {pattern}"
        found = None
        if row["n"] >= following:
            found = of_frame(rows[row["n"] : last], clause, seek)
        if found is None:
            nothing = 0 if function == "count(*)" else None
            expected.append([row["n"], *(None for _ in measures), nothing])
            continue
        numbers, taken = found["numbers"] or [], found["taken"] or []
        following = row["n"] + 1
        if numbers and skip == SKIPS[0]:
            following = numbers[-1] + 1
        elif target and found["target"] is not None:
            following = max(following, found["target"])
        whole = FUNCTIONS[function](taken) if taken or function == "count(*)" else None
        expected.append([row["n"], *(found[f"m{i}"] for i in range(len(measures))), whole])
    connection = CONNECTION.cursor()
    connection.register("rows", pa.Table.from_pylist(rows))
    table = sql(connection, text)
    assert [list(row.values()) for row in table.to_pylist()] == expected


TICKS = "(VALUES (1, 'a', 5), (2, 'a', 3), (3, 'a', 4), (1, NULL, 3), (2, NULL, 1)) t(n, k, v)"
FRAME = "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"
DIP = f"ORDER BY n MEASURES LAST(v) AS low {FRAME} PATTERN (A B) DEFINE B AS v < PREV(v)"


def rows_of(text: str) -> list[tuple[Any, ...]]:
    table = sql(CONNECTION, text)
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize(
    ("text", "columns", "rows"),
    [
        (
            f"SELECT *, low OVER w FROM {TICKS} WHERE v > 1 WINDOW w AS (PARTITION BY k {DIP}) "
            "ORDER BY k, n",
            ["n", "k", "v", "low"],
            [(1, "a", 5, 3), (2, "a", 3, None), (3, "a", 4, None), (1, None, 3, None)],
        ),
        (
            f"SELECT * EXCLUDE (v), low OVER w + 1 AS more FROM {TICKS} "
            f"WINDOW w AS (PARTITION BY k, length(k) {DIP}) ORDER BY k, n",
            ["n", "k", "more"],
            [(1, "a", 4), (2, "a", None), (3, "a", None), (1, None, 2), (2, None, None)],
        ),
        (
            f"SELECT t.n, count(*) OVER w, max(t.v) OVER w, nth_value(v, 2) OVER w AS b, "
            f"row_number() OVER w AS r, sum(v) OVER u AS s FROM {TICKS} WHERE k = 'a' "
            f"WINDOW u AS (ORDER BY n), w AS ({DIP}), v AS ({DIP}) ORDER BY n",
            ["n", "count", "max", "b", "r", "s"],
            [(1, 2, 5, 3, 1, 5), (2, 0, None, None, 2, 8), (3, 0, None, None, 3, 12)],
        ),
        (
            f"SELECT n, low OVER (w) FROM {TICKS} WINDOW w AS (PARTITION BY k {DIP}) "
            "QUALIFY low OVER w > 0 ORDER BY k",
            ["n", "low"],
            [(1, 3), (1, 1)],
        ),
        (
            f"WITH early AS (SELECT * FROM {TICKS} WHERE k = 'a') SELECT max(low) AS low FROM "
            f"(SELECT low OVER w AS low FROM early WINDOW w AS ({DIP})) x",
            ["low"],
            [(3,)],
        ),
        (
            f"SELECT n, low OVER w, c OVER (k MEASURES CLASSIFIER() AS c {FRAME} SEEK "
            f"PATTERN (X) DEFINE X AS v = 4) FROM {TICKS} WHERE k = 'a' "
            f"WINDOW w AS ({DIP}), k AS (ORDER BY n) ORDER BY n",
            ["n", "low", "c"],
            [(1, 3, "X"), (2, None, None), (3, None, None)],
        ),
    ],
)
def test_statements_with_windows(text: str, columns: list[str], rows: list[Any]) -> None:
    assert sql(CONNECTION, text).column_names == columns
    assert rows_of(text) == rows


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("SELECT lo OVER w FROM {} WINDOW w AS ({})", "has no measure 'lo'", "lo OVER"),
        ("SELECT low OVER w FROM {} JOIN u ON true WINDOW w AS ({})", "one table", "JOIN"),
        ("SELECT low OVER w FROM {} GROUP BY n WINDOW w AS ({})", "groups", "GROUP"),
        ("SELECT low OVER (w {}) FROM {}", "there is no window 'w'", "w ORDER"),
        ("SELECT sum(lw) OVER w FROM {} WINDOW w AS ({})", "unknown column 'lw'", "lw"),
    ],
)
def test_statements_that_are_refused(text: str, message: str, place: str) -> None:
    text = text.format(*((DIP, TICKS) if "(w" in text else (TICKS, DIP)))
    refuse(text, message, place)


@pytest.mark.parametrize(
    ("written", "instead", "message", "place"),
    [
        (FRAME, "", "needs a frame", "(ORDER"),
        (FRAME, "RANGE BETWEEN CURRENT ROW AND 1 FOLLOWING", "a number of rows", "RANGE"),
        (FRAME, "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", "a number of rows", "ROWS"),
        (FRAME, f"{FRAME} EXCLUDE TIES", "EXCLUDE does not go", "EXCLUDE"),
        (FRAME, f"{FRAME} ONE ROW PER MATCH", "does not stand in a window", "ONE"),
        ("DEFINE", "WITHIN 5 DEFINE", "a window has MEASURES", "(ORDER"),
        ("(A B)", "(^ A B)", "the anchor '^'", "^"),
        ("(A B)", "({- A -} B)", "'{- -}'", "{-"),
        ("(A B)", "(A -> B)", "'->'", "A -> B"),
        ("LAST(v)", "MATCH_NUMBER()", "no numbers", "MATCH_NUMBER"),
        ("v < PREV(v)", "w < PREV(v)", "unknown column 'w'", "w < "),
    ],
)
def test_windows_that_are_refused(written: str, instead: str, message: str, place: str) -> None:
    clause = DIP.replace(written, instead)
    refuse(f"SELECT low OVER w FROM {TICKS} WINDOW w AS ({clause})", message, place)


def refuse(text: str, message: str, place: str) -> None:
    with pytest.raises(OutpaceError) as caught:
        sql(CONNECTION, text)
    error = caught.value
    assert message in str(error)
    assert "__outpace" not in str(error)
    assert error.span is not None
    assert text[error.span.start :].startswith(place)


def test_a_frame_that_ends_before_its_row_is_an_error() -> None:
    with pytest.raises(OutpaceError, match="a number of rows, 0 at least"):
        rows_of(
            f"SELECT low OVER w FROM {TICKS} WINDOW w AS ("
            + DIP.replace("UNBOUNDED", "v - 4").replace("PATTERN", "INITIAL PATTERN")
            + ")"
        )
