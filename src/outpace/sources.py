"""Sources of events: replayed from files or generated, any number of them in one order.

A source is a value with an identifier. `batches()` yields its events as Arrow record batches with a
time (`ts`) and a sequence number (`seq`); `merged` brings the events of many into one order.

Examples
--------
>>> import outpace as op
>>> doors = [op.sources.simple_events(1000, seed=n, id=f"door {n}") for n in range(3)]
>>> sum(table.num_rows for table in op.sources.merged(doors))
3000
"""

from __future__ import annotations

from outpace.ingest.files import csv, json_lines, parquet
from outpace.ingest.generators import building, football, simple_events, stock_events
from outpace.ingest.pace import paced
from outpace.ingest.source import Heartbeat, Source, merged

__all__ = [
    "Heartbeat",
    "Source",
    "building",
    "csv",
    "football",
    "json_lines",
    "merged",
    "paced",
    "parquet",
    "simple_events",
    "stock_events",
]
