"""SQL on a DuckDB connection: what is read, what comes back, and that nothing stays behind."""

import datetime
import decimal
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import outpace as op
from outpace.errors import BindError, DataError, MatchError, OutpaceError, PatternSyntaxError
from outpace.hosts.local.sql import sql

DATA = Path(__file__).resolve().parents[3] / "data"
DIP = """MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY ts
    MEASURES STRT.ts AS start_ts, LAST(UP.ts) AS end_ts, LAST(DOWN.price) AS low
    PATTERN (STRT DOWN+ UP+)
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price))"""


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute(
            """CREATE TABLE ticks AS SELECT * FROM (VALUES
                ('a', 1, 10), ('a', 2, 8), ('a', 3, 9), ('a', 4, 7), ('a', 5, 12),
                ('b', 1, 50), ('b', 2, 40), ('b', 3, 30), ('b', 4, 60)) t(symbol, ts, price)"""
        )
        yield opened


def rows(
    connection: duckdb.DuckDBPyConnection, text: str, dialect: str = "outpace"
) -> list[object]:
    table = sql(connection, text, dialect)
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


def left_behind(connection: duckdb.DuckDBPyConnection) -> list[object]:
    return connection.sql(
        "SELECT view_name FROM duckdb_views() WHERE NOT internal "
        "UNION ALL SELECT table_name FROM duckdb_tables() WHERE table_name <> 'ticks'"
    ).fetchall()


def test_one_row_per_match_gives_partition_columns_and_measures(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    table = sql(connection, f"SELECT * FROM ticks {DIP}")
    assert table.column_names == ["symbol", "start_ts", "end_ts", "low"]
    assert sorted(map(tuple, (row.values() for row in table.to_pylist()))) == [
        ("a", 1, 3, 8),
        ("b", 1, 4, 30),
    ]
    assert table.schema.field("low").type == pa.int32()


def test_all_rows_give_partition_order_measures_and_the_rest(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    table = sql(
        connection,
        """SELECT * FROM (SELECT price, ts, symbol FROM ticks) MATCH_RECOGNIZE (
            PARTITION BY symbol ORDER BY ts MEASURES CLASSIFIER() AS label
            ALL ROWS PER MATCH PATTERN (A) DEFINE A AS price > 50)""",
    )
    assert table.column_names == ["symbol", "ts", "label", "price"]
    assert table.to_pylist() == [{"symbol": "b", "ts": 4, "label": "A", "price": 60}]


def test_names_come_back_as_written(connection: duckdb.DuckDBPyConnection) -> None:
    text = """SELECT m."Low Price", m.SYMBOL AS Sym FROM ticks MATCH_RECOGNIZE (
        PARTITION BY Symbol ORDER BY TS MEASURES MIN(Price) AS "Low Price" PATTERN (a+)) m"""
    table = sql(connection, text)
    assert table.column_names == ["Low Price", "Sym"]
    assert rows(connection, text) == [(30, "b"), (7, "a")]


def test_common_table_expressions(connection: duckdb.DuckDBPyConnection) -> None:
    text = f"""
        WITH fast AS (SELECT * FROM ticks WHERE symbol = 'a'),
             dips AS (SELECT * FROM fast {DIP}),
             again AS (SELECT * FROM fast {DIP})
        SELECT d.symbol, a.low FROM dips d JOIN again a USING (symbol)"""
    assert rows(connection, text) == [("a", 8)]


def test_join_and_group_of_matches(connection: duckdb.DuckDBPyConnection) -> None:
    text = f"""
        SELECT l.symbol, count(*) AS n, sum(r.low) AS lows
        FROM ticks {DIP} AS l JOIN (SELECT symbol, low FROM ticks {DIP}) AS r ON l.low <= r.low
        GROUP BY l.symbol ORDER BY ALL"""
    assert rows(connection, text) == [("a", 2, 38), ("b", 1, 30)]


def test_input_of_a_filtered_subquery(connection: duckdb.DuckDBPyConnection) -> None:
    text = f"SELECT low FROM (SELECT * FROM ticks WHERE symbol = 'b' AND ts > 1) {DIP} m"
    assert rows(connection, text) == [(30,)]


def test_matches_of_matches(connection: duckdb.DuckDBPyConnection) -> None:
    text = f"""
        SELECT n.lows FROM (SELECT symbol, low FROM ticks {DIP} m) MATCH_RECOGNIZE (
            ORDER BY symbol MEASURES array_agg(low) AS lows PATTERN (A+)) n"""
    assert rows(connection, text) == [([8, 30],)]


def test_a_column_list_behind_the_clause(connection: duckdb.DuckDBPyConnection) -> None:
    text = f"SELECT m.c, s FROM ticks {DIP} AS m (s, a, b, c)"
    assert rows(connection, text) == [(30, "b"), (8, "a")]


def test_keys_and_an_order_that_duckdb_computes(connection: duckdb.DuckDBPyConnection) -> None:
    dip = """MEASURES LAST(price) AS low PATTERN (S D+) DEFINE D AS price < PREV(price))"""
    text = f"""SELECT * FROM ticks t MATCH_RECOGNIZE (
        PARTITION BY symbol || '!', t.symbol, [ts, 1] IS NULL
        ORDER BY t.ts % 2 DESC, case when ts > 0 then ts end NULLS LAST, t.ts DESC {dip}"""
    assert rows(connection, text) == [("a", 7), ("a", 9), ("b", 30)]
    text = f"""WITH many AS (SELECT * FROM ticks) SELECT * FROM many MATCH_RECOGNIZE (
        PARTITION BY upper(symbol) ORDER BY row_number() OVER (ORDER BY ts DESC)
        ALL ROWS PER MATCH {dip.replace("D+", "D")}"""
    assert sql(connection, text).column_names == ["low", "symbol", "ts", "price"]
    assert (7, "a", 4, 7) in rows(connection, text)
    text = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY upper(symbol) ORDER BY ts PATTERN (A+))"
    )
    assert rows(connection, text) == [(1, 4), (1, 5)]


def test_arrays_and_rows_are_keys(connection: duckdb.DuckDBPyConnection) -> None:
    text = """SELECT * FROM
        (SELECT [symbol, NULL] AS k, {'s': symbol, 'n': [ts % 2]} AS r, ts FROM ticks)
        MATCH_RECOGNIZE (PARTITION BY K, r ORDER BY ts {} PATTERN (A+))"""
    found = sql(connection, text.replace("{}", "MEASURES FIRST(ts) AS f, COUNT(*) AS n"))
    assert found.column_names == ["k", "r", "f", "n"]
    assert sorted(map(repr, found.to_pylist())) == [
        f"{{'k': ['{key}', None], 'r': {{'s': '{key}', 'n': [{n}]}}, 'f': {2 - n}, 'n': {count}}}"
        for key, n, count in (("a", 0, 2), ("a", 1, 3), ("b", 0, 2), ("b", 1, 2))
    ]
    every = sql(connection, text.replace("{}", "MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH"))
    assert every.column_names == ["k", "r", "ts", "c"]
    assert every["k"].to_pylist().count(["a", None]) == 5
    with pytest.raises(BindError, match="measure 'k' has the name of an output column"):
        sql(connection, text.replace("{}", "MEASURES COUNT(*) AS k"))
    text = """SELECT ts, n OVER w, count(*) FILTER (WHERE price > 9) OVER w FROM ticks
        WINDOW w AS (PARTITION BY [symbol] ORDER BY ts
        MEASURES COUNT(*) FILTER (WHERE price > 9) AS n
        ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING PATTERN (A+))
        ORDER BY symbol, ts LIMIT 1"""
    assert rows(connection, text) == [(1, 2, 2)]


def test_matches_in_a_scalar_subquery(connection: duckdb.DuckDBPyConnection) -> None:
    text = f"""SELECT DISTINCT t.symbol, (SELECT low FROM ticks {DIP} m WHERE m.symbol = t.symbol)
        FROM ticks t"""
    assert rows(connection, text) == [("a", 8), ("b", 30)]


def test_matches_without_columns_still_count(connection: duckdb.DuckDBPyConnection) -> None:
    text = "SELECT count(*) FROM ticks MATCH_RECOGNIZE (ORDER BY ts PATTERN (A))"
    assert rows(connection, text) == [(9,)]


def test_a_statement_without_the_clause_is_duckdbs(connection: duckdb.DuckDBPyConnection) -> None:
    assert rows(connection, "FROM ticks SELECT max(price)") == [(60,)]
    assert rows(connection, "SELECT array_agg(x) FROM (VALUES 1) t(x)", "trino") == [([1],)]


def test_statements_that_store_matches(connection: duckdb.DuckDBPyConnection) -> None:
    sql(connection, f"CREATE TABLE dips AS SELECT low FROM ticks {DIP}")
    sql(connection, f"INSERT INTO dips SELECT low + 1 FROM ticks {DIP}")
    assert rows(connection, "FROM dips") == [(30,), (31,), (8,), (9,)]
    assert sql(connection, "SET threads = 1").num_rows == 0


def test_registered_frames_are_read(connection: duckdb.DuckDBPyConnection) -> None:
    connection.register("frame", pa.table({"v": [3, 1, 2]}))
    text = "SELECT * FROM frame MATCH_RECOGNIZE (ORDER BY v MEASURES FIRST(v) AS f PATTERN (A+))"
    assert rows(connection, text) == [(1,)]


def test_types_survive(connection: duckdb.DuckDBPyConnection) -> None:
    table = sql(
        connection,
        """SELECT * FROM (SELECT
            1::TINYINT AS a, 2::BIGINT AS b, 1.50::DECIMAL(9, 2) AS c, 1.5::FLOAT AS d,
            DATE '2024-01-31' AS e, TIMESTAMP '2024-01-31 10:00:00.25' AS f, true AS g, 'x' AS h,
            TIMESTAMPTZ '2024-01-31 10:00:00+00' AS i, [1, 2] AS j, {'k': 1} AS k,
            'x'::BLOB AS l, 2::HUGEINT AS n, INTERVAL 1 DAY AS o, MAP {'x': 1} AS p, uuid() AS q,
            NULL AS r)
        MATCH_RECOGNIZE (
            ORDER BY a MEASURES LAST(c) AS m, LAST(i) AS mi ALL ROWS PER MATCH PATTERN (A))
        """,
    )
    (row,) = table.to_pylist()
    types = {field.name: field.type for field in table.schema}
    assert types["a"] == pa.int8()
    assert types["m"] == types["c"] == pa.decimal128(9, 2)
    assert types["d"] == pa.float32()
    assert types["f"] == pa.timestamp("us")
    assert (row["m"], row["e"]) == (decimal.Decimal("1.50"), datetime.date(2024, 1, 31))
    assert row["mi"] == datetime.datetime(2024, 1, 31, 10, tzinfo=datetime.UTC)
    assert (row["j"], row["k"], row["n"]) == ([1, 2], {"k": 1}, 2)


SUBQUERIES = [
    ("(SELECT max(price) FROM ticks)", 60),
    ("(SELECT price FROM ticks WHERE false)", None),
    ("(SELECT NULL)", None),
    ("(SELECT 1.50::DECIMAL(5, 2))", decimal.Decimal("1.50")),
    ("(SELECT DATE '2024-01-31')", datetime.date(2024, 1, 31)),
    ("(SELECT 'it''s')", "it's"),
    ("(SELECT 3000000000)", 3_000_000_000),
    ("price + (SELECT 1)", 11),
    ("price IN (SELECT price FROM ticks)", True),
    ("price IN (SELECT 1)", False),
    ("price IN (SELECT 1 UNION ALL SELECT NULL)", None),
    ("price NOT IN (SELECT 1)", True),
    ("price NOT IN (SELECT NULL::INT UNION ALL SELECT 10)", False),
    ("NULL IN (SELECT 1 WHERE false)", False),
    ("NULL NOT IN (SELECT 1 WHERE false)", True),
    ("NULL IN (SELECT 1)", None),
    ("(SELECT 1) IN (SELECT 1)", True),
    ("EXISTS (SELECT 1 FROM ticks WHERE price > 50)", True),
    ("EXISTS (SELECT 1 FROM ticks WHERE price > 500)", False),
    ("NOT EXISTS (SELECT 1 FROM ticks WHERE price > 500)", True),
    ("(WITH w AS (SELECT 7 AS v) SELECT v FROM w)", 7),
    (f"(SELECT min(low) FROM ticks {DIP})", 8),
]


@pytest.mark.parametrize(("expression", "expected"), SUBQUERIES)
def test_subqueries_in_measures(
    connection: duckdb.DuckDBPyConnection, expression: str, expected: object
) -> None:
    text = f"""SELECT m.x FROM (SELECT * FROM ticks WHERE symbol = 'a' AND ts = 1) MATCH_RECOGNIZE (
        ORDER BY ts MEASURES {expression} AS x PATTERN (A)) m"""
    assert rows(connection, text) == [(expected,)]


def test_subqueries_in_define(connection: duckdb.DuckDBPyConnection) -> None:
    text = """WITH big AS (SELECT symbol AS s FROM ticks WHERE price = 60)
        SELECT m.symbol, m.n FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
            MEASURES COUNT(*) AS n PATTERN (A+)
            DEFINE A AS symbol IN (SELECT s FROM big)
                AND price > (SELECT avg(price) FROM ticks)) m"""
    assert rows(connection, text) == [("b", 4)]


@pytest.mark.parametrize(
    ("expression", "kind", "message"),
    [
        ("(SELECT price FROM ticks)", DataError, "the subquery gives more than one row"),
        ("(SELECT 1, 2)", BindError, "a subquery here gives one column, not 2"),
        ("1 IN (SELECT 1, 2)", BindError, "a subquery here gives one column, not 2"),
        ("(SELECT [1])", OutpaceError, "a subquery here cannot give a value of the type list"),
    ],
)
def test_bad_subqueries_show_their_place(
    connection: duckdb.DuckDBPyConnection, expression: str, kind: type[OutpaceError], message: str
) -> None:
    text = f"SELECT *\nFROM ticks MATCH_RECOGNIZE (\n  MEASURES {expression} AS x PATTERN (A))"
    with pytest.raises(kind, match=message) as caught:
        sql(connection, text)
    assert "statement, line 3, column 12" in str(caught.value)


def test_a_subquery_cannot_read_the_match(connection: duckdb.DuckDBPyConnection) -> None:
    text = "SELECT * FROM ticks MATCH_RECOGNIZE (MEASURES (SELECT A.price) AS x PATTERN (A))"
    with pytest.raises(BindError) as caught:
        sql(connection, text)
    assert caught.value.hint == "a subquery cannot read the match's rows"
    assert "line 1, column 47" in str(caught.value)


ERRORS = [
    (
        f"SELECT m.low\nFROM tickz\n{DIP} m",
        BindError,
        ["DuckDB: table with name tickz does not exist", "statement, line 2, column 6"],
    ),
    (
        f"SELECT m.lowest\nFROM ticks\n{DIP} m",
        BindError,
        ["DuckDB:", "lowest", "statement, line 1, column 10"],
    ),
    (f"SELEC m.low\nFROM ticks\n{DIP} m", PatternSyntaxError, ["DuckDB: syntax error", "line 1,"]),
    (
        f"SELECT *\nFROM ticks\n{DIP} m\nWHERE 'x'::INT = low",
        DataError,
        ["DuckDB: could not convert string 'x' to INT32"],
    ),
    (
        "SELECT *\nFROM ticks\nMATCH_RECOGNIZE (\n  ORDER BY ts\n  PATTERN (A)\n"
        "  DEFINE A AS pric > 1)",
        BindError,
        ["pric", "line 6, column 15", "did you mean 'price'?"],
    ),
    (
        "SELECT *\nFROM ticks\nMATCH_RECOGNIZE (\n  ORDER BY ts\n  PATTERN (A B?)\n"
        "  DEFINE A AS price > 1 AND FINAL LAST(price) > 1)",
        OutpaceError,
        ["line 6, column 29"],
    ),
]


@pytest.mark.parametrize(("text", "kind", "parts"), ERRORS)
def test_errors_speak_of_the_users_text(
    connection: duckdb.DuckDBPyConnection, text: str, kind: type[OutpaceError], parts: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        sql(connection, text)
    for part in parts:
        assert part in str(caught.value)
    assert "__outpace" not in str(caught.value)
    assert left_behind(connection) == []


BLOCKS = (DATA / "sql_errors.txt").read_text(encoding="utf-8").split("====\n")[1:]


@pytest.mark.parametrize("block", BLOCKS)
def test_exact_messages(connection: duckdb.DuckDBPyConnection, block: str) -> None:
    text, message = block.split("\n----\n")
    with pytest.raises(OutpaceError) as caught:
        sql(connection, text, "trino")
    assert str(caught.value) == message.rstrip("\n")
    assert left_behind(connection) == []


def test_a_failed_match_is_cleaned_up(connection: duckdb.DuckDBPyConnection) -> None:
    text = f"""SELECT * FROM ticks {DIP} m, ticks MATCH_RECOGNIZE (
        ORDER BY ts MEASURES 1 AS x AFTER MATCH SKIP TO B
        PATTERN (A B?) DEFINE B AS false) n"""
    with pytest.raises(MatchError):
        sql(connection, text)
    assert left_behind(connection) == []


def test_nothing_stays_behind(connection: duckdb.DuckDBPyConnection) -> None:
    settings = connection.sql("SELECT * FROM duckdb_settings()").fetchall()
    sql(connection, f"SELECT * FROM ticks {DIP} m, ticks {DIP} n")
    assert left_behind(connection) == []
    assert connection.sql("SELECT * FROM duckdb_settings()").fetchall() == settings


def test_an_open_transaction_goes_on(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("BEGIN")
    connection.execute("INSERT INTO ticks VALUES ('c', 1, 5), ('c', 2, 4), ('c', 3, 6)").fetchall()
    assert ("c", 4) in rows(connection, f"SELECT symbol, low FROM ticks {DIP}")
    connection.execute("ROLLBACK")
    assert len(rows(connection, f"SELECT symbol, low FROM ticks {DIP}")) == 2
    assert left_behind(connection) == []


def test_an_error_in_a_transaction_leaves_nothing_after_rollback(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    connection.execute("BEGIN")
    with pytest.raises(DataError):
        sql(connection, f"SELECT 'x'::INT FROM ticks {DIP}")
    connection.execute("ROLLBACK")
    assert left_behind(connection) == []


def test_only_duckdb_connections_are_taken() -> None:
    with pytest.raises(DataError, match="expected a DuckDB connection, not an object of type str"):
        sql("duckdb", "SELECT 1")  # type: ignore[arg-type]


def test_variables_of_the_library_are_no_tables(connection: duckdb.DuckDBPyConnection) -> None:
    for name in ("statement", "connection", "query", "found", "cleanup"):
        with pytest.raises(BindError, match=f"table with name {name} does not exist"):
            sql(connection, f"SELECT * FROM {name}")


def test_an_unfinished_result_is_left_alone(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("SELECT * FROM range(3)")
    assert connection.fetchone() == (0,)
    with pytest.raises(DataError, match="unfinished result"):
        sql(connection, f"SELECT * FROM ticks {DIP}")
    assert connection.fetchall() == [(1,), (2,)]
    assert len(rows(connection, f"SELECT * FROM ticks {DIP}")) == 2


def test_a_closed_connection_is_refused() -> None:
    connection = duckdb.connect()
    connection.close()
    with pytest.raises(DataError, match="closed"):
        sql(connection, "SELECT 1")


CLAUSE = """MATCH_RECOGNIZE (ORDER BY ts MEASURES LAST(D.price) AS low PATTERN (A D+)
    DEFINE D AS price < PREV(price)) AS m"""
DIPS = "(VALUES (1, 90), (2, 80), (3, 70), (4, 75)) t(ts, price)"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("$$it's ($$", "it's ("),
        ("$tag$it's $$ ) $tag$", "it's $$ ) "),
        (r"E'it\'s ('", "it's ("),
        (r"e'\\'", "\\"),
        (r"E'a\x41\101\n\q'", "aAA\nq"),
        ("'a\\'", "a\\"),
        ("'-- ' /* ' /* ' */ ' */ ", "-- "),
    ],
)
def test_strings_in_any_notation_of_duckdb(written: str, value: str) -> None:
    found = op.sql(duckdb.connect(), f"SELECT {written} AS s, m.low FROM {DIPS} {CLAUSE}")
    assert found.to_pylist() == [{"s": value, "low": 70}]


def test_strings_of_duckdb_inside_the_clause() -> None:
    rows = "(VALUES (1, 'it''s'), (2, 'no')) t(ts, word)"
    for written in ("$$it's$$", r"E'it\'s'", "$a$it's$a$"):
        clause = f"MATCH_RECOGNIZE (ORDER BY ts PATTERN (A) DEFINE A AS word = {written})"
        assert op.sql(duckdb.connect(), f"SELECT count(*) AS n FROM {rows} {clause}") == pa.table(
            {"n": [1]}
        )


def test_a_dollar_in_a_pattern_is_the_end_of_the_input() -> None:
    clause = CLAUSE.replace("(A D+)", "((A D+$)|(X$A$))").replace("price < PREV", "price <> PREV")
    text = f"SELECT $$it's$$ AS s, m.low FROM {DIPS} {clause}"
    assert op.sql(duckdb.connect(), text).to_pylist() == [{"s": "it's", "low": 75}]


def test_a_dollar_in_a_name_begins_no_string() -> None:
    text = f"SELECT m.low AS a$b$c, 'x' AS d FROM {DIPS} {CLAUSE}"
    assert op.sql(duckdb.connect(), text).to_pylist() == [{"a$b$c": 70, "d": "x"}]


def test_an_unfinished_result_of_the_connection_is_kept_and_told() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE dips AS SELECT * FROM " + DIPS)
    relation = connection.sql("SELECT * FROM dips")
    connection.execute("SELECT * FROM range(3)")
    assert connection.fetchone() == (0,)
    query = op.Query().order_by("ts").pattern("A D+").define(D="price < PREV(price)")
    query = query.measures(low="LAST(D.price)")
    for run in (
        lambda: op.sql(connection, f"SELECT m.low FROM dips {CLAUSE}"),
        lambda: op.match(relation, query),
    ):
        with pytest.raises(DataError, match=r"run its query on connection\.cursor\(\)"):
            run()
    assert connection.fetchall() == [(1,), (2,)]
    assert op.sql(connection, f"SELECT m.low FROM dips {CLAUSE}").to_pylist() == [{"low": 70}]
    assert op.match(relation, query).num_rows == 1
