"""JOIN … WITHIN in statements: what is joined, what it is called behind it, and what is refused."""

from __future__ import annotations

import duckdb
import pytest

import outpace as op
from outpace.errors import BindError, OutpaceError, PatternSyntaxError, UnsupportedError

JOIN = "orders AS o {} payments p ON o.id = p.oid WITHIN 5 BETWEEN o.ts AND p.paid_at"
INNER, LEFT = JOIN.format("JOIN"), JOIN.format("LEFT JOIN")
PAID = "(SELECT oid AS id, paid_at AS ts, amount AS paid FROM payments) AS p"
#: It has a column of the name that the left side's key has.
OTHER = "(SELECT oid, paid_at, 77 AS id FROM payments) AS p"
CLAUSE = (
    "MATCH_RECOGNIZE (PARTITION BY id ORDER BY ts MEASURES LAST(A.ts) AS known, A.item AS item,"
    " COUNT(A.paid) AS n PATTERN (A+)) AS m"
)
FOUND = [(1, 14, "tea", 2), (2, 25, "jam", 0), (None, 35, "nut", 0)]


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect() as made:
        made.execute(
            "CREATE TABLE orders AS SELECT * FROM (VALUES (1, 10, 'tea', 5), (2, 20, 'jam', 6),"
            " (NULL, 30, 'nut', 7)) t(id, ts, item, amount)"
        )
        made.execute(
            "CREATE TABLE payments AS SELECT * FROM (VALUES (1, 12, 4), (1, 14, 1), (3, 21, 2))"
            " t(oid, paid_at, amount)"
        )
        yield made


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        (
            f"SELECT * FROM {INNER}",
            ["id", "ts", "ts_left", "item", "amount_left", "ts_right", "amount_right"],
            [(1, 12, 10, "tea", 5, 12, 4), (1, 14, 10, "tea", 5, 14, 1)],
        ),
        (
            f"SELECT o.item, p.amount, o.amount + 1 AS more, P.oid FROM {LEFT}"
            " ORDER BY o.ts, p.paid_at",
            ["item", "amount", "more", "oid"],
            [("tea", 4, 6, 1), ("tea", 1, 6, 1), ("jam", None, 7, None), ("nut", None, 8, None)],
        ),
        (f"SELECT item FROM {LEFT} WHERE p.oid IS NULL", ["item"], [("jam",), ("nut",)]),
        (f"SELECT o.* FROM {INNER} WHERE p.amount = 4", ["id", "ts", "item", "amount"],
         [(1, 10, "tea", 5)]),
        (
            f"SELECT n.name, count(*) AS paid FROM {INNER} JOIN (SELECT 1 AS id, 'x' AS name) AS n"
            " ON n.id = o.id GROUP BY n.name",
            ["name", "paid"],
            [("x", 2)],
        ),
        (f"WITH j AS (SELECT o.item, p.amount FROM {INNER}) SELECT item, max(amount) AS m FROM j"
         " GROUP BY item", ["item", "m"], [("tea", 4)]),
        (f"SELECT * FROM orders o LEFT OUTER JOIN {PAID} USING (id) WITHIN 5 {CLAUSE}",
         ["id", "known", "item", "n"], FOUND),
        (f"SELECT m.* FROM (orders o LEFT JOIN {PAID} ON p.id = o.id WITHIN 5 DISORDER SLACK 3)"
         f" {CLAUSE}", ["id", "known", "item", "n"], FOUND),
        (f"SELECT q.item FROM (SELECT o.id, o.ts, o.item FROM {INNER}) AS q JOIN payments AS r"
         " ON q.id = r.oid WITHIN 0 BETWEEN q.ts AND r.paid_at", ["item"], []),
        (f"SELECT p.*, o.id AS of FROM {LEFT.replace('payments p', OTHER)} WHERE o.ts < 30",
         ["oid", "paid_at", "id", "of"], [(1, 12, 77, 1), (1, 14, 77, 1), (None, None, None, 2)]),
        (f"SELECT * FROM {INNER.replace('payments p', OTHER)} WHERE p.paid_at = 12",
         ["id", "ts", "ts_left", "item", "amount", "ts_right", "id_right"],
         [(1, 12, 10, "tea", 5, 12, 77)]),
        (f"SELECT o.* EXCLUDE (ts, Amount), p.* EXCEPT (oid) FROM {LEFT} WHERE o.ts < 30",
         ["id", "item", "paid_at", "amount"],
         [(1, "tea", 12, 4), (1, "tea", 14, 1), (2, "jam", None, None)]),
        (f"SELECT DISTINCT o.* EXCLUDE ts FROM {INNER}", ["id", "item", "amount"],
         [(1, "tea", 5)]),
        (f"SELECT * EXCLUDE (ts_left, ts_right, item) FROM {INNER} WHERE p.amount = 1",
         ["id", "ts", "amount_left", "amount_right"], [(1, 14, 5, 1)]),
        (f"SELECT p.amount, confidence FROM {INNER.replace('WITHIN 5', 'WITHIN 3 UNCERTAIN 1')}",
         ["amount", "confidence"], [(4, "CONFIRMED"), (1, "UNCERTAIN")]),
        ("SELECT within FROM (SELECT 3 AS within)", ["within"], [(3,)]),
    ],
)  # fmt: skip
def test_the_result_is_a_table_of_the_statement(connection, text, names, rows) -> None:
    found = op.sql(connection, text)
    assert found.column_names == names
    assert [tuple(row.values()) for row in found.to_pylist()] == rows


def test_another_dialect_is_translated_around_it(connection) -> None:
    text = f'SELECT "o".item, count(*) AS n FROM {INNER} GROUP BY "o".item'
    assert op.sql(connection, text, dialect="trino").to_pylist() == [{"item": "tea", "n": 2}]


@pytest.mark.parametrize(
    ("text", "error", "says", "place"),
    [
        ("orders o JOIN payments p ON o.id = p.oid WITHIN 5", PatternSyntaxError,
         "times that WITHIN compares are not named", "5"),
        (INNER.replace("= p", "> p"), PatternSyntaxError, "expected '='", ">"),
        (INNER.replace(" WITHIN", " OR true WITHIN"), PatternSyntaxError, "expected AND", "OR"),
        (INNER.replace("o.id", "id"), PatternSyntaxError, "'id' is none of the tables", "id"),
        (INNER.replace("p.paid_at", "o.ts"), PatternSyntaxError, "both are columns of 'o'", "ts"),
        (INNER.replace("o.id", "o.iid"), BindError, "the left side has no column 'iid'", "iid"),
        (INNER.replace("p.oid", "p.id"), BindError,
         "the right side has no column 'id'\n(.*\n)*  hint: did you mean 'oid'", "id"),
        (INNER.replace("p.paid_at", "p.Tz"), BindError,
         "right side has no column 'Tz'\n(.*\n)*  hint: it has oid, paid_at, amount$", "Tz"),
        (f"orders o JOIN {OTHER} USING (id) WITHIN 5 {CLAUSE}", BindError,
         "the right side has no column 'ts'", "ts"),
        (INNER.replace("o.id", "o.item"), BindError, "'item' has varchar", "item"),
        (INNER.replace("WITHIN 5", "WITHIN INTERVAL '5' MINUTE"), BindError,
         "within is a duration", "ts"),
        (INNER.replace("WITHIN 5", "WITHIN 5 UNCERTAIN 6"), BindError,
         "uncertain must not be longer than within", None),
        (f"{INNER} DISORDER SPECULATIVE", UnsupportedError, "op.Speculative does not go", None),
        (JOIN.format("RIGHT JOIN"), UnsupportedError, "RIGHT JOIN has no WITHIN", "RIGHT"),
        (f"{INNER} JOIN payments r ON o.id = r.oid WITHIN 5 BETWEEN o.ts AND r.paid_at",
         UnsupportedError, "takes two tables, not a join", None),
        (f"{INNER} WHERE o.nix > 1", BindError, "the left side has no column 'nix'", "o.nix"),
        (f"{INNER} WHERE 1 < (SELECT max(o.ts) FROM orders o)", UnsupportedError,
         "'o' is a table of the join, and something else here", "o"),
    ],
)  # fmt: skip
def test_what_cannot_be_joined_is_refused_with_its_place(
    connection, text, error, says, place
) -> None:
    with pytest.raises(error, match=says) as caught:
        op.sql(connection, f"SELECT * FROM {text}")
    assert isinstance(caught.value, OutpaceError)
    assert caught.value.span is not None
    assert caught.value.text is not None
    marked = caught.value.text[caught.value.span.start : caught.value.span.end]
    assert place is None or marked == place


@pytest.mark.parametrize(
    ("without", "error", "says", "place"),
    [
        ("(amount, nix)", BindError, "the right side has no column 'nix'", "nix"),
        ("(amount oid)", PatternSyntaxError, "names of columns between commas", "("),
        ("()", PatternSyntaxError, "names of columns between commas", "("),
        ("(oid, paid_at, amount)", BindError, "no column of the right side is left", None),
    ],
)
def test_columns_that_cannot_be_left_out_are_told(connection, without, error, says, place) -> None:
    with pytest.raises(error, match=says) as caught:
        op.sql(connection, f"SELECT o.id, p.* EXCLUDE {without} FROM {INNER}")
    assert caught.value.span is not None
    marked = caught.value.text[caught.value.span.start : caught.value.span.end]
    assert marked == (place or f"p.* EXCLUDE {without}")


@pytest.mark.parametrize("join", [INNER, LEFT])
def test_the_time_counts_in_whatever_case(connection, join) -> None:
    text = f"SELECT o.item, p.PAID_AT AS at, p.oid FROM {join} ORDER BY o.ts, p.paid_at"
    wanted = op.sql(connection, text).to_pylist()
    assert len(wanted) > 1
    assert (
        op.sql(connection, text.replace("o.ts AND p.paid", "o.TS AND p.Paid")).to_pylist() == wanted
    )


def test_names_count_in_whatever_case(connection: duckdb.DuckDBPyConnection) -> None:
    text = (
        "SELECT o.ref AS ours, p.REF AS theirs FROM (SELECT id, ts, 100 AS ref FROM orders) AS o"
        " LEFT JOIN (SELECT oid AS ref, paid_at FROM payments) AS p ON o.id = p.ref"
        " WITHIN 5 BETWEEN o.ts AND p.paid_at ORDER BY o.ts"
    )
    found = op.sql(connection, text).to_pylist()
    assert [(row["ours"], row["theirs"]) for row in found] == [
        (100, 1),
        (100, 1),
        (100, None),
        (100, None),
    ]


def test_columns_make_room_for_each_other(connection: duckdb.DuckDBPyConnection) -> None:
    right = "(SELECT oid, paid_at, 7 AS id, 8 AS id_right FROM payments) AS p"
    text = f"SELECT p.id AS seven, p.id_right AS eight FROM orders AS o JOIN {right}"
    text += " ON o.id = p.oid WITHIN 5 BETWEEN o.ts AND p.paid_at"
    found = op.sql(connection, text).to_pylist()
    assert found == [{"seven": 7, "eight": 8}] * 2


def test_a_column_is_compared_with_one(connection: duckdb.DuckDBPyConnection) -> None:
    text = "SELECT 1 FROM orders AS o JOIN payments p ON o.id = p.oid AND o.amount = p.oid"
    with pytest.raises(OutpaceError, match="'oid' of the right side is compared with two"):
        op.sql(connection, f"{text} WITHIN 5 BETWEEN o.ts AND p.paid_at")
