"""Splitting statements: what the database gets, and where errors are shown."""

import pytest

from outpace.errors import OutpaceError, PatternSyntaxError, UnsupportedError
from outpace.pattern.expression import Subquery
from outpace.statement.dialect import translate
from outpace.statement.split import MOST_NESTED, split

CLAUSE = "MATCH_RECOGNIZE (ORDER BY id MEASURES A.id AS x PATTERN (A))"


def sources(text: str, dialect: str = "outpace") -> list[str]:
    return [step.source for step in split(text, dialect).steps]


def outer(text: str, dialect: str = "outpace") -> str:
    return split(text, dialect).outer


@pytest.mark.parametrize(
    ("factor", "alias"),
    [
        ("ticks", ""),
        ("ticks", " AS m"),
        ("ticks", " m"),
        ("ticks", " AS m (a, b)"),
        ("ticks t", " m"),
        ("ticks AS t", " m"),
        ("ticks AS t (a, b)", " m"),
        ("lake.main.ticks", " m"),
        ('"lake"."main"."my ticks" AS "t t"', ' AS "M"'),
        ("(SELECT * FROM ticks WHERE id > 3)", " m"),
        ("(SELECT * FROM ticks, other) AS t(id, value)", " m"),
        ("(VALUES (1, 'a'), (2, 'b')) t(id, value)", " m"),
        ("VALUES (1, 'a'), (2, 'b'), ((3), 'c') AS t(id, value)", " m"),
        ("VALUES (1, 'a') t(id, value)", ""),
        ("(VALUES (1, 'a'), (2, 'b'))t(id, value)", ""),
        ("TABLE(generate(3))", " m"),
        ("range(10) AS t(id)", " m"),
        ("ticks TABLESAMPLE 10%", " m"),
        ("'ticks.parquet'", " m"),
    ],
)
def test_the_factor_before_the_clause_is_the_input(factor: str, alias: str) -> None:
    statement = split(f"SELECT * FROM {factor} {CLAUSE}{alias} WHERE x > 1")
    assert [step.source for step in statement.steps] == [f"SELECT * FROM {factor}"]
    assert statement.outer == f"SELECT * FROM __outpace_1{alias} WHERE x > 1"


@pytest.mark.parametrize(
    ("alias", "name"),
    [(" AS m", "m"), (" m", "m"), (' AS "My M"(a)', "My M"), ("", "query"), (" WHERE x", "query")],
)
def test_the_query_is_named_like_the_matches(alias: str, name: str) -> None:
    assert split(f"SELECT * FROM t {CLAUSE}{alias}").steps[0].query.name == name


def test_factors_in_lists_and_joins() -> None:
    text = f"SELECT * FROM a, b {CLAUSE} m LEFT JOIN c AS n {CLAUSE} o ON m.x = o.x, (d {CLAUSE})"
    assert sources(text) == ["SELECT * FROM b", "SELECT * FROM c AS n", "SELECT * FROM d"]
    assert outer(text) == (
        "SELECT * FROM a, __outpace_1 m LEFT JOIN __outpace_2 o ON m.x = o.x, (__outpace_3)"
    )


def test_inner_clauses_come_first() -> None:
    text = f"SELECT * FROM (SELECT * FROM t {CLAUSE} m WHERE x > 1) {CLAUSE} n"
    assert sources(text) == [
        "SELECT * FROM t",
        "SELECT * FROM (SELECT * FROM __outpace_1 m WHERE x > 1)",
    ]
    assert outer(text) == "SELECT * FROM __outpace_2 n"


def test_clauses_in_subqueries_of_the_rest() -> None:
    text = f"SELECT (SELECT count(*) FROM t {CLAUSE}) FROM u WHERE EXISTS (FROM t {CLAUSE})"
    assert sources(text) == ["SELECT * FROM t"] * 2
    assert outer(text) == (
        "SELECT (SELECT count(*) FROM __outpace_1) FROM u WHERE EXISTS (FROM __outpace_2)"
    )


def test_a_clause_sees_the_tables_of_with() -> None:
    text = f"WITH a AS (SELECT 1 AS id), b(id) AS MATERIALIZED (FROM a) SELECT * FROM b {CLAUSE}"
    assert sources(text) == [
        "WITH a AS (SELECT 1 AS id), b(id) AS MATERIALIZED (FROM a) SELECT * FROM b"
    ]


def test_a_clause_inside_with_sees_only_the_entries_before_it() -> None:
    text = f"WITH a AS (FROM t), b AS (FROM a {CLAUSE}), c AS (FROM b {CLAUSE}) FROM c"
    assert sources(text) == [
        "WITH a AS (FROM t) SELECT * FROM a",
        "WITH a AS (FROM t), b AS (FROM __outpace_1) SELECT * FROM b",
    ]
    assert outer(text) == (
        "WITH a AS (FROM t), b AS (FROM __outpace_1), c AS (FROM __outpace_2) FROM c"
    )


def test_an_inner_with_hides_an_outer_one() -> None:
    text = f"WITH a AS (FROM t) FROM (WITH a AS (FROM a) SELECT * FROM a {CLAUSE})"
    assert sources(text) == [
        "WITH a AS (FROM t) SELECT * FROM (WITH a AS (FROM a) SELECT * FROM a)"
    ]


def test_with_of_a_neighbour_is_not_visible() -> None:
    text = f"SELECT * FROM (WITH a AS (FROM t) FROM a) s, b {CLAUSE}"
    assert sources(text) == ["SELECT * FROM b"]


def test_other_uses_of_with_are_no_tables() -> None:
    text = f"CREATE TABLE n WITH (x = 1) AS SELECT * FROM unnest(y) WITH ORDINALITY, b {CLAUSE}"
    assert sources(text) == ["SELECT * FROM b"]


def test_subqueries_in_the_clause_are_looked_up_in_their_scope() -> None:
    text = (
        "WITH a AS (FROM t) SELECT * FROM b MATCH_RECOGNIZE ("
        "MEASURES (SELECT max(id) FROM a) AS m, (WITH c AS (FROM a) SELECT min(id) FROM c) AS n "
        "PATTERN (A) DEFINE A AS id IN (VALUES (1)) AND EXISTS (SELECT 1 FROM a))"
    )
    (step,) = split(text).steps
    assert [lookup.query for lookup in step.lookups] == [
        "WITH a AS (FROM t) SELECT max(id) FROM a",
        "WITH a AS (FROM t) SELECT * FROM (WITH c AS (FROM a) SELECT min(id) FROM c)",
        "WITH a AS (FROM t) SELECT * FROM (VALUES (1))",
        "WITH a AS (FROM t) SELECT 1 FROM a",
    ]
    assert [lookup.node.kind for lookup in step.lookups] == ["value", "value", "in", "exists"]
    assert all(isinstance(lookup.node, Subquery) for lookup in step.lookups)


def test_a_clause_inside_a_subquery_of_a_clause() -> None:
    text = (
        f"SELECT * FROM a MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS id = (SELECT x FROM b {CLAUSE}))"
    )
    first, second = split(text).steps
    assert (first.source, second.source) == ("SELECT * FROM b", "SELECT * FROM a")
    assert second.lookups[0].query == "SELECT x FROM __outpace_1"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'a MATCH_RECOGNIZE (PATTERN (A))'",
        'SELECT * FROM "match_recognize" (1)',
        "SELECT 1 -- FROM t MATCH_RECOGNIZE (PATTERN (A))\n + 1",
        "SELECT /* FROM t MATCH_RECOGNIZE (PATTERN (A)) */ 1",
        "SELECT match_recognize FROM t",
        "SELECT match_recognize(x) FROM t",
        "SELECT * FROM match_recognize(1, 2)",
        "SELECT s.match_recognize(x) FROM t",
        "SELECT $1, ?, :name, a ->> 'x', [1], {'a': 1}, x::INT",
    ],
)
def test_what_only_looks_like_a_clause_is_left_alone(text: str) -> None:
    statement = split(text)
    assert statement.steps == ()
    assert statement.outer == text


def test_comments_and_space_stay_in_the_rest() -> None:
    text = f"SELECT *\n  -- the dips\n  FROM t {CLAUSE}\n  /* end */ m ; ;"
    assert outer(text) == "SELECT *\n  -- the dips\n  FROM __outpace_1\n  /* end */ m"


def test_names_of_tables_do_not_occur_in_the_statement() -> None:
    assert outer(f"SELECT __OUTPACE_1 FROM t {CLAUSE}") == "SELECT __OUTPACE_1 FROM __outpace__1"


def test_other_dialects_are_translated() -> None:
    text = f"SELECT m.x AS partition FROM (VALUES 1, 2) t(id) {CLAUSE} AS m"
    assert sources(text, "trino") == ['SELECT * FROM (VALUES (1), (2)) AS "t"("id")']
    assert outer(text, "Trino") == 'SELECT "m"."x" AS "partition" FROM "__outpace_1" AS "m"'


def test_spark_and_flink_quote_with_backticks() -> None:
    text = f'SELECT "text" AS `a b` FROM `my ticks` {CLAUSE}'
    assert sources(text, "spark") == ['SELECT * FROM "my ticks"']
    assert outer(text, "spark") == 'SELECT \'text\' AS "a b" FROM "__outpace_1"'
    assert sources(text.replace('"text"', "1"), "flink") == ['SELECT * FROM "my ticks"']


def test_translation_of_what_needs_none_is_exact() -> None:
    text = "FROM  t SELECT a /* all */"
    assert translate(text, "duckdb", "duckdb") == text


BAD = [
    ("SELECT 1; SELECT 2", "only one statement at a time", (1, 11)),
    (" ; ", "there is no statement", (1, 4)),
    ("SELECT (1", "this '(' is never closed", (1, 8)),
    ("SELECT 1)", "there is no '(' for this ')'", (1, 9)),
    ("SELECT 'abc", "a string is never closed", (1, 8)),
    (
        f"SELECT *\nFROM t\nWHERE id = 1\n{CLAUSE}",
        "MATCH_RECOGNIZE stands right after a table or subquery",
        (4, 1),
    ),
    (
        f"SELECT * FROM a JOIN b ON a.x = b.x {CLAUSE}",
        "MATCH_RECOGNIZE stands right after a table or subquery",
        (1, 37),
    ),
    (
        f"SELECT * FROM {CLAUSE}",
        "MATCH_RECOGNIZE stands right after a table or subquery",
        (1, 15),
    ),
    (f"{CLAUSE}", "MATCH_RECOGNIZE stands right after a table or subquery", (1, 1)),
    (
        f"SELECT * FROM a, LATERAL (SELECT a.id) t {CLAUSE}",
        "MATCH_RECOGNIZE does not take the rows of LATERAL",
        (1, 18),
    ),
    (
        f"WITH RECURSIVE a AS (SELECT 1 UNION SELECT x FROM a {CLAUSE}) FROM a",
        "MATCH_RECOGNIZE cannot take part in a recursion",
        (1, 51),
    ),
    (
        f"CREATE OR REPLACE VIEW v AS SELECT * FROM a {CLAUSE}",
        "a view cannot hold MATCH_RECOGNIZE: it would outlive the matches",
        (1, 1),
    ),
    (
        "SELECT *\nFROM a\nMATCH_RECOGNIZE (\n  ORDER BY id\n  PATTERN (A{3,1}))",
        "the quantifier bounds 3 and 1 are in the wrong order",
        (5, 13),
    ),
    ("SELECT *\nFROM a\nMATCH_RECOGNIZE (\n  PATTERN (A)\n  DEFINE A AS 1 +)", None, (5, 18)),
]


@pytest.mark.parametrize(("text", "message", "place"), BAD)
def test_errors_show_their_place(text: str, message: str | None, place: tuple[int, int]) -> None:
    with pytest.raises(OutpaceError) as caught:
        split(text)
    error = caught.value
    assert message is None or error.message == message
    assert f"statement, line {place[0]}, column {place[1]}\n" in str(error)


def test_syntax_errors_of_other_dialects_show_their_place() -> None:
    text = f"SELECT m.x\nFROM (SELECT *\n      FROM a b c) t\n{CLAUSE} m"
    with pytest.raises(PatternSyntaxError) as caught:
        split(text, "trino")
    assert str(caught.value).splitlines()[:4] == [
        "[syntax] this is not trino SQL at 'c'",
        "  statement, line 3, column 16",
        "          FROM a b c) t",
        "                   ^",
    ]


def test_syntax_errors_behind_a_clause_show_their_place() -> None:
    with pytest.raises(PatternSyntaxError, match="not trino SQL") as caught:
        split(f"SELECT m.x\nFROM t\n{CLAUSE} m\nWHERE x = = 1", "trino")
    assert "statement, line 4, column 11" in str(caught.value)


def test_unknown_dialects_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="there is no dialect 'snowflak'"):
        split("SELECT 1", "snowflak")


@pytest.mark.parametrize("levels", [MOST_NESTED + 1, 100_000])
@pytest.mark.parametrize("dialect", ["outpace", "trino"])
def test_deep_nesting_is_refused(levels: int, dialect: str) -> None:
    with pytest.raises(PatternSyntaxError, match="the statement is nested too deeply"):
        split("SELECT " + "(" * levels + "1" + ")" * levels, dialect)


def test_nesting_that_the_translation_cannot_follow_is_refused() -> None:
    text = "SELECT " + "(" * MOST_NESTED + "1" + ")" * MOST_NESTED
    assert split(text).outer == text
    with pytest.raises(PatternSyntaxError, match="the statement is nested too deeply"):
        split(text, "trino")


@pytest.mark.parametrize(
    ("dialect", "written"),
    [
        ("postgres", "$$it's ($$"), ("postgres", r"E'it\'s ('"), ("snowflake", "$$it's ($$"),
        ("snowflake", r"'it\'s ('"), ("oracle", "q'[it's (]'"), ("oracle", "Q'!it's (!'"),
        ("spark", r"r'\'"), ("databricks", r'R"\ ("'), ("bigquery", r"'it\'s ('"),
        ("mysql", r"'it\'s ('"), ("trino", r"'\'"), ("spark", "'a' /* ' /* ' */ ' */"),
        ("trino", "'a' /* ' /* ' */"),
    ],
)  # fmt: skip
def test_strings_of_other_dialects_hide_nothing(dialect: str, written: str) -> None:
    text = f"SELECT {written} AS s FROM t MATCH_RECOGNIZE (ORDER BY ts PATTERN (A)) AS m"
    statement = split(text, dialect, database=dialect)
    assert len(statement.steps) == 1
    assert statement.outer == f"SELECT {written} AS s FROM {statement.steps[0].table} AS m"
