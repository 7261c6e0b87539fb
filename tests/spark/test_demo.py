"""`outpace demo` on Spark: it finds what it finds in process, and shows nothing but the demo."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from outpace.cli.demo import MEAN_GAP_MS
from outpace.demo.search import find, local_host, spark_host
from outpace.ingest.ticks import generate_ticks

ROWS = 4_000


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    plain = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return sorted(zip(*(column.to_pylist() for column in plain), strict=True))


def test_spark_finds_what_is_found_in_process(spark: SparkSession, tmp_path: Path) -> None:
    ticks = generate_ticks(ROWS, mean_gap_ms=MEAN_GAP_MS)
    file = tmp_path / "ticks.parquet"
    pa.parquet.write_table(ticks, file, row_group_size=ROWS // 4)
    here = find(ticks, local_host(ticks, nullcontext))
    there = find(ticks, spark_host(spark, file, nullcontext))
    assert len(rows(here.dips)) > 100
    assert len(rows(here.rotations)) > 3
    assert rows(there.dips) == rows(here.dips)
    assert rows(there.rotations) == rows(here.rotations)
    assert there.sell_offs.to_pylist() == here.sell_offs.to_pylist()
    assert "divided by time range" in there.plan
    assert "divided by key" in there.plan


@pytest.mark.soak
@pytest.mark.usefixtures("java")
def test_the_demo_shows_nothing_but_the_demo(tmp_path: Path) -> None:
    script = Path(sysconfig.get_path("scripts")) / "outpace"
    options = ["--rows", str(ROWS), "--master", "local[2]", "--out", str(tmp_path)]
    own = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, str(script), "demo", *options],
        cwd=tmp_path,
        env=own,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    assert any(line.startswith(f"{ROWS:,} trades, searched on Spark ") for line in lines)
    assert last == f"The page: {tmp_path / 'demo.html'}"
    assert "divided by time range" in done.stdout
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"demo.html", "ticks.parquet"}
