"""Join matches with a table, all in SQL, on DuckDB.

Run it with `python examples/sql_on_duckdb.py`.
"""

import duckdb

import outpace as op
from outpace.ingest.ticks import generate_ticks

STATEMENT = """
    WITH dips AS (
        SELECT *
        FROM ticks MATCH_RECOGNIZE (
            PARTITION BY symbol ORDER BY ts
            MEASURES STRT.price AS top, LAST(DOWN.price) AS bottom, COUNT(*) AS trades
            PATTERN (STRT DOWN{4,} UP+)
            WITHIN INTERVAL '10' MINUTE
            DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)
        )
    )
    SELECT name, count(*) AS dips, round(max(top - bottom), 2) AS deepest
    FROM dips JOIN companies USING (symbol)
    GROUP BY name
    ORDER BY dips DESC, name
"""


def main() -> None:
    connection = duckdb.connect()
    connection.register("ticks", generate_ticks(50_000))
    connection.execute("CREATE TABLE companies (symbol TEXT, name TEXT)")
    connection.execute(
        "INSERT INTO companies VALUES ('ACME', 'Acme Anvils'), ('BOLT', 'Bolt & Co')"
    )
    for row in op.sql(connection, STATEMENT).to_pylist():
        print(f"{row['name']}: {row['dips']} dips, the deepest {row['deepest']}")


if __name__ == "__main__":
    main()
