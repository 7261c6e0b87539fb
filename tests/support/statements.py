"""Statements with MATCH_RECOGNIZE that every host must answer alike, and how answers compare."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import outpace as op

PUBLIC = Path(__file__).resolve().parents[3] / "shared" / "conformance"
#: The files of public cases.
MATCH_RECOGNIZE = "match_recognize.jsonl"
WINDOW = "row_pattern_window.jsonl"

DIP = """MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY ts
    MEASURES STRT.ts AS start_ts, LAST(UP.ts) AS end_ts, LAST(DOWN.price) AS low
    PATTERN (STRT DOWN+ UP+)
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price))"""

#: Over `ticks()`; in words that DuckDB and Spark both understand.
PARITY = {
    "one row per match": f"SELECT * FROM ticks {DIP} m WHERE low < 30",
    "all rows per match": """
        SELECT * FROM (SELECT price, ts, symbol FROM ticks WHERE ts < 30) t MATCH_RECOGNIZE (
            PARTITION BY symbol ORDER BY ts
            MEASURES CLASSIFIER() AS label, MATCH_NUMBER() AS number, SUM(price) AS total
            ALL ROWS PER MATCH WITH UNMATCHED ROWS
            PATTERN (A B*?  C) DEFINE A AS price > 60, C AS price < PREV(price))""",
    "common table expressions and a join": f"""
        WITH early AS (SELECT * FROM ticks WHERE ts < 60), dips AS (SELECT * FROM early {DIP} m)
        SELECT d.symbol, d.low, t.price FROM dips d
        LEFT JOIN early t ON t.symbol = d.symbol AND t.ts = d.end_ts""",
    "groups of matches": f"""
        SELECT symbol, count(*) AS n, sum(low) AS lows, max(end_ts - start_ts) AS longest
        FROM ticks {DIP} m GROUP BY symbol HAVING count(*) > 1 ORDER BY symbol""",
    "two clauses": f"""
        SELECT 'dip' AS kind, count(*) AS n FROM ticks {DIP} m
        UNION ALL
        SELECT 'peak', count(*) FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
            PATTERN (S U+ D+) DEFINE U AS price > PREV(price), D AS price < PREV(price)) p""",
    "matches of matches": f"""
        SELECT * FROM (SELECT symbol, end_ts, low FROM ticks {DIP} m) d MATCH_RECOGNIZE (
            PARTITION BY symbol ORDER BY end_ts
            MEASURES FIRST(low) AS first_low, LAST(low) AS last_low, COUNT(*) AS n
            PATTERN (A LOWER+) DEFINE LOWER AS low < PREV(low)) n""",
    "joins within a time, and a pattern over one": """
        SELECT a.ts AS known, b.symbol, b.price, a.price AS own
        FROM ticks a LEFT JOIN (SELECT ts AS at_ts, symbol AS name, symbol, price FROM ticks
                                WHERE price > 60) b
            ON a.symbol = b.name WITHIN 3 BETWEEN a.ts AND b.at_ts
        WHERE a.price < 30
        UNION ALL
        SELECT known, symbol, price, own FROM ticks c JOIN ticks d USING (symbol) WITHIN 3
            MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
                MEASURES A.ts AS known, A.price_left AS price, A.price_right AS own
                PATTERN (A) DEFINE A AS price_left < 20 AND price_right > 70)""",
    "matches in a scalar subquery": f"""
        SELECT DISTINCT symbol, (SELECT max(low) FROM ticks {DIP} m) AS best FROM ticks""",
    "subqueries inside": """
        SELECT * FROM ticks MATCH_RECOGNIZE (
            PARTITION BY symbol ORDER BY ts
            MEASURES A.ts AS at, (SELECT max(ts) FROM ticks) AS latest,
                     (SELECT ts FROM ticks WHERE ts < 0) AS nothing
            PATTERN (A B)
            DEFINE A AS price > (SELECT avg(price) FROM ticks)
                        AND symbol IN (SELECT symbol FROM ticks WHERE price > 90),
                   B AS EXISTS (SELECT * FROM ticks WHERE ts = 7) AND price < A.price) m""",
    "computed keys, an array as a key, and what aggregates take": """
        SELECT * FROM (SELECT split(symbol, ',') AS tags, ts, price FROM ticks) t MATCH_RECOGNIZE (
            PARTITION BY tags, t.ts % 2 ORDER BY ts % 40 DESC, ts, ts DESC
            MEASURES SUM(price) FILTER (WHERE price > 20) AS high, RUNNING price + 1 AS more,
                     array_agg(price ORDER BY price DESC) AS sorted
            ALL ROWS PER MATCH PATTERN (A B+) DEFINE B AS price > PREV(price)) m""",
    "cut by time range": """
        SELECT * FROM ticks MATCH_RECOGNIZE (
            ORDER BY ts MEASURES FIRST(ts) AS f, LAST(ts) AS l, COUNT(*) AS n
            PATTERN (A -> B -> C) WITHIN 9
            DEFINE A AS symbol = 'a' AND price > 70, B AS symbol = 'b', C AS price > A.price) m""",
    "absence within an interval": """
        SELECT * FROM ticks MATCH_RECOGNIZE (
            PARTITION BY symbol ORDER BY at MEASURES A.at AS since, A.price AS price
            AFTER MATCH SKIP TO NEXT ROW
            PATTERN (A -> !B -> C) WITHIN INTERVAL '12' SECOND
            DEFINE A AS price > 60, B AS price > 40, C AS price < 20) m""",
    "matches without columns": """
        SELECT count(*) AS n FROM ticks MATCH_RECOGNIZE (ORDER BY ts PATTERN (A B)
            DEFINE B AS price < A.price) m""",
    "a column list, a window function and braces": f"""
        SELECT m.s, m.c, '{{x}} {{}}' AS braces, rank() OVER (PARTITION BY m.s ORDER BY m.a) AS r
        FROM ticks {DIP} AS m (s, a, b, c)""",
    "row patterns in windows": """
        SELECT t.*, low OVER w, rows OVER w AS n, max(price) OVER w AS high, label OVER v,
               count(*) OVER w AS c, row_number() OVER w AS number
        FROM (SELECT symbol, price, ts FROM ticks) t WHERE price > 5
        WINDOW w AS (PARTITION BY symbol ORDER BY ts
                MEASURES LAST(D.price) AS low, COUNT(*) AS rows
                ROWS BETWEEN CURRENT ROW AND 5 FOLLOWING
                AFTER MATCH SKIP TO NEXT ROW
                PATTERN (S D+ U) DEFINE D AS price < PREV(price), U AS price > PREV(price)),
            v AS (PARTITION BY split(symbol, ',') ORDER BY ts DESC MEASURES CLASSIFIER() AS label
                ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
                AFTER MATCH SKIP TO NEXT ROW SEEK
                PATTERN (H? L??) DEFINE H AS price > 60, L AS PREV(price) > 70)""",
    "values": """
        SELECT m.low FROM (VALUES (1, 90), (2, 80), (3, 70), (4, 75)) AS t(ts, price)
        MATCH_RECOGNIZE (ORDER BY ts MEASURES LAST(DOWN.price) AS low PATTERN (STRT DOWN+ UP)
            DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)) m""",
}


#: Statements that are refused: the error, what it says, and what it underlines.
ERRORS = [
    (f"SELECT * FROM tiks {DIP} m", op.BindError, "Spark: the table or view", "tiks"),
    (f"SELECT lw FROM ticks {DIP} m", op.BindError, "Spark: a column", "lw"),
    (f"SELECT * FROM ticks {DIP} m HAVIN low", op.PatternSyntaxError, "Spark: syntax", "HAVIN"),
    (
        "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts PATTERN (A) DEFINE A AS pric > 1)",
        op.BindError,
        "unknown column 'pric'",
        "pric",
    ),
    (
        """SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts PATTERN (A)
        DEFINE A AS price > (SELECT ts FROM ticks))""",
        op.DataError,
        "more than one row",
        "(SELECT ts FROM ticks)",
    ),
    (
        """SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts PATTERN (A)
        DEFINE A AS price > (SELECT max(A.prize)))""",
        op.BindError,
        "Spark: a column",
        "prize",
    ),
    (
        f"""SELECT (SELECT max(low) FROM (SELECT * FROM ticks z WHERE z.symbol = outside.symbol)
        {DIP} m) FROM ticks AS outside""",
        op.UnsupportedError,
        "cannot read 'outside' of the query around it",
        "outside",
    ),
    (
        """SELECT * FROM (SELECT a.ts, b.ts, a.price FROM ticks a JOIN ticks b USING (price))
        MATCH_RECOGNIZE (MEASURES MAX(A.ts) AS t PATTERN (A))""",
        op.BindError,
        "column 'ts' is ambiguous: the input has 2 of that name",
        "A.ts",
    ),
    ("CREATE VIEW v AS SELECT * FROM ticks " + DIP, op.UnsupportedError, "view", "CREATE"),
]


def ticks() -> pa.Table:
    """A few hundred rows without equal times: `symbol`, `ts`, `at`, `price`."""
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    size = 240
    return pa.table(
        {
            "symbol": ["abc"[number * 7 % 3] for number in range(size)],
            "ts": list(range(size)),
            "at": [start + datetime.timedelta(seconds=number) for number in range(size)],
            "price": [(number * number * 37 + number * 11) % 101 for number in range(size)],
        }
    )


def public_cases(name: str = MATCH_RECOGNIZE, *, sampled: bool = False) -> list[Any]:
    """The public cases as parameters of a test; one that is skipped where they are missing.

    All but a sample are left to the soak tests where asked for.
    """
    if not (PUBLIC / name).is_file():
        reason = "the folder ../shared is not here"
        return [pytest.param({}, marks=pytest.mark.skip(reason=reason), id="missing")]

    def left_out(number: int) -> bool:
        return sampled and not is_sample(number)

    return [
        pytest.param(case, id=case["id"], marks=pytest.mark.soak if left_out(number) else [])
        for number, case in enumerate(read_public_cases(name))
    ]


def is_sample(number: int) -> bool:
    """Say whether a public case is run on Spark in every test; all of them are run in process."""
    return number % 6 == 0


def read_public_cases(name: str = MATCH_RECOGNIZE) -> Iterator[dict[str, Any]]:
    path = PUBLIC / name
    if path.is_file():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def plain(value: object) -> object:
    """Return a value that can be hashed and compares by what it means, not by its width."""
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, plain(item)) for name, item in value.items())
    if isinstance(value, bool):
        return str(value)  # True equals 1 in Python
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else value.normalize()
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).isoformat()
    return value


def answer(table: pa.Table) -> list[str]:
    """Return the rows of a table as text in an order of their own."""
    columns = [[plain(value) for value in column.to_pylist()] for column in table.columns]
    return sorted(repr(row) for row in zip(*columns, strict=True))
