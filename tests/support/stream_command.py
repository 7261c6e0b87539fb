"""What tests of `outpace stream` share: a query, and what the command serves and writes."""

from __future__ import annotations

import re
import socket
import urllib.request
from contextlib import suppress
from pathlib import Path

import pyarrow.dataset as ds

CLAUSE = """MATCH_RECOGNIZE (
    PARTITION BY key ORDER BY ts
    MEASURES FIRST(id) AS first, LAST(id) AS last, COUNT(*) AS n
    PATTERN (A -> B -> C) WITHIN 40
    DEFINE A AS kind = 'a', B AS kind = 'b', C AS kind = 'c'
)"""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def events_per_second(port: int) -> float:
    """How many events the metrics at a port tell, 0 before there are any."""
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        text = page.read().decode()
        told = re.search(r'_stage_events_per_second{[^}]*stage="pack"} (\S+)', text)
        return float(told[1]) if told else 0
    return 0


def written(folder: str, format: str = "parquet") -> list[dict[str, object]]:
    """What any reader finds in an output."""
    files = [str(file) for file in Path(folder).glob("batch=*/part-*")]
    return [row for file in files for row in ds.dataset(file, format=format).to_table().to_pylist()]
