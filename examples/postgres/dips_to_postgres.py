"""Write the dips of a stream of trades into PostgreSQL, each exactly once.

Run it with `python examples/postgres/dips_to_postgres.py postgresql://user@host/database`. It keeps
an event log and the checkpoint in the folder `dips` and appends trades to the log in every run.
Kill it at any moment and run it again: no dip is missing, and none is there twice.
"""

import sys
from pathlib import Path

import psycopg

import outpace as op
from outpace.ingest.ticks import generate_ticks

FOLDER = Path("dips")
TRADES = 20_000

dip = (
    op.Query("dip")
    .partition_by("symbol")
    .order_by("ts")
    .pattern("STRT DOWN{3,} UP{3,}")
    .define(DOWN="price < PREV(price)", UP="price > PREV(price)")
    .measures(starts="STRT.ts", top="STRT.price", bottom="LAST(DOWN.price)", ends="LAST(UP.ts)")
    .within("10 minutes")
)


def append_trades(path: Path) -> int:
    """Go on with the trades where the log ends, and return how many there are."""
    if not path.exists():
        op.log.create(path, generate_ticks(1).schema)
    with op.log.open(path).writer() as writer:
        writer.append(generate_ticks(writer.stop + TRADES).slice(writer.stop))
        return writer.stop


def main(dsn: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    path = (FOLDER / "trades.log").resolve()
    count = append_trades(path)
    spark = op.spark.session("dips", master="local[2]")
    trades = spark.readStream.format("outpace.log").option("form", "blocks")
    dips = op.match(trades.load(str(path)), dip)
    (
        dips.writeStream.foreachBatch(op.spark.postgres.writer(dsn, "dips"))
        .option("checkpointLocation", str((FOLDER / "checkpoint").resolve()))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT count(*), min(bottom / top) FROM dips").fetchone()
    print(f"{found[0]} dips in {count} trades; the deepest to {found[1]:.1%} of its top")


if __name__ == "__main__":
    main(sys.argv[1])
