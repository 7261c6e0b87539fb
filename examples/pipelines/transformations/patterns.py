"""Patterns as flows: trades in, and tables of dips, of double dips and of large trades out.

Spark calls the decorated functions to learn what they read, before any table is there, and does not
say then which columns a table has. So the schema of `ticks` is declared once and told to the match.
"""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import outpace as op

spark = SparkSession.active()
TRADES = Path(__file__).resolve().parents[1] / "data" / "trades.json"

TICKS = StructType(
    [
        StructField("symbol", StringType()),
        StructField("ts", TimestampType()),
        StructField("price", DoubleType()),
        StructField("volume", LongType()),
    ]
)

DIP = (
    op.Query("dip")
    .partition_by("symbol")
    .order_by("ts")
    .pattern("STRT DOWN+ UP+")
    .define(DOWN="price < PREV(price)", UP="price > PREV(price)")
    .measures(starts="STRT.ts", ends="LAST(UP.ts)", bottom="LAST(DOWN.price)", ticks="COUNT(*)")
)

DOUBLE_DIP = (
    op.Query("double dip")
    .partition_by("symbol")
    .order_by("starts")
    .pattern("FIRST_DIP LOWER")
    .define(LOWER="bottom < FIRST_DIP.bottom")
    .measures(starts="FIRST_DIP.starts", ends="LOWER.ends", bottom="LOWER.bottom")
    .within("2 minutes")
)


@dp.materialized_view(schema=TICKS)
def ticks() -> DataFrame:
    """Return the trades as they come."""
    return spark.read.schema(TICKS).json(str(TRADES))


@dp.materialized_view
def dips() -> DataFrame:
    """Return each fall with the rise that follows it."""
    return op.match(op.spark.with_schema(spark.read.table("ticks"), TICKS), DIP)


@dp.materialized_view
def double_dips() -> DataFrame:
    """Return two dips in a row, the second one lower: a pattern over matches."""
    found = op.match(op.spark.with_schema(spark.read.table("ticks"), TICKS), DIP)
    return op.match(found, DOUBLE_DIP)


# A statement has no place for a schema, so it stands outside the function and reads what exists
# before the pipeline runs.
LARGE_TRADES = op.sql(
    spark,
    f"""
    SELECT first_symbol, second_symbol, shares
    FROM (SELECT symbol, CAST(ts AS TIMESTAMP) AS ts, volume FROM json.`{TRADES}`)
    MATCH_RECOGNIZE (
        ORDER BY ts
        MEASURES A.symbol AS first_symbol, B.symbol AS second_symbol, SUM(volume) AS shares
        PATTERN (A -> B) WITHIN INTERVAL '1' MINUTE
        DEFINE A AS volume >= 1900, B AS volume >= 1900 AND symbol <> A.symbol
    )
    """,
)


@dp.materialized_view
def large_trades() -> DataFrame:
    """Return large trades in one symbol and then in another within a minute."""
    return LARGE_TRADES
