"""Files and queries for `outpace run`, and what it must find in them on every host."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import outpace as op
from outpace.ingest.ticks import generate_ticks

CLAUSE = """MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY ts
    MEASURES LAST(DOWN.price) AS bottom, COUNT(*) AS ticks, LAST(ts) AS ends
    PATTERN (STRT DOWN+ UP+)
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)
)"""
STATEMENT = f"SELECT symbol, bottom, ticks, ends FROM ticks {CLAUSE}"
PROGRAM = '''
import outpace as op

DIP = """%s"""
query = op.Query.from_sql(DIP, name="dip")
'''

TICKS = generate_ticks(600)
NAMES = ["symbol", "bottom", "ticks", "ends"]


def write_inputs(folder: Path) -> None:
    """Write the same ticks in every format, and the same query in every form."""
    pq.write_table(TICKS, folder / "ticks.parquet", row_group_size=150, compression="zstd")
    (folder / "many").mkdir()
    for number in range(3):
        pq.write_table(TICKS.slice(number * 200, 200), folder / "many" / f"{number}.parquet")
    text = io.BytesIO()
    pa.csv.write_csv(TICKS, text)
    (folder / "ticks.csv").write_bytes(text.getvalue())
    (folder / "packed.csv.gz").write_bytes(gzip.compress(text.getvalue()))
    lines = [json.dumps(row, default=str) for row in TICKS.to_pylist()]
    (folder / "ticks.jsonl").write_text("\n".join(lines))
    (folder / "statement.sql").write_text(STATEMENT)
    (folder / "clause.sql").write_text(CLAUSE)
    (folder / "program.py").write_text(PROGRAM % CLAUSE)


def bad_csv(folder: Path) -> tuple[list[str], list[str]]:
    lines = (folder / "ticks.csv").read_text().splitlines()
    symbol, at, _, volume = lines[400].split(",")
    lines[400] = f"{symbol},{at},cheap,{volume}"
    (folder / "bad.csv").write_text("\n".join(lines))
    types = ["--schema", "price double"]
    return ["ticks=bad.csv", *types], [
        "'cheap' is not of type double",
        "bad.csv, line 401, column price\n",
    ]


def expected() -> list[tuple[object, ...]]:
    return rows(op.match(TICKS, op.Query.from_sql(CLAUSE)).select(NAMES))


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    if not pa.types.is_timestamp(table.schema.field("ends").type):
        zoned = pa.timestamp("us", "UTC")
        table = table.set_column(3, "ends", table["ends"].cast(zoned))
    plain = table.set_column(3, "ends", table["ends"].cast(pa.timestamp("us", "UTC")))
    return sorted(zip(*(plain[name].to_pylist() for name in NAMES), strict=True))
