"""examples/pipelines, run by `spark-pipelines` with a Connect server of its own.

The tables that it stores equal what the same queries find in process.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet
import pytest
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import (
    GraphElementRegistry,
    graph_element_registration_context,
)
from pyspark.pipelines.output import Output
from pyspark.sql import SparkSession

import outpace as op
from outpace.hosts.spark.session import ROCKSDB

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pipelines"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STORAGE = "file:///tmp/outpace-pipeline"

pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("java")]


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """A copy of the example that stores everything in its own folder."""
    copy = tmp_path / "pipelines"
    shutil.copytree(EXAMPLE, copy)
    specification = copy / "spark-pipeline.yml"
    text = specification.read_text(encoding="utf-8")
    assert STORAGE in text
    own = text.replace(STORAGE, (copy / "storage").as_uri())
    specification.write_text(f"{own}  {PROVIDER}: {ROCKSDB}\n", encoding="utf-8")
    return copy


def spark_pipelines(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    # The session of the other tests leaves variables of Spark behind that belong to it alone.
    own = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    script = Path(sysconfig.get_path("scripts")) / "spark-pipelines"
    return subprocess.run(
        [str(script), command],
        cwd=folder,
        # With SPARK_TESTING the server takes a free port, not the one that all servers share.
        env=own | {"PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


class Flows(GraphElementRegistry):
    """Takes what the decorators of a pipeline register, and does nothing with it."""

    def register_output(self, output: Output) -> None: ...
    def register_flow(self, flow: Flow) -> None: ...
    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None: ...
    def register_sql(self, sql_text: str, file_path: Path) -> None: ...


def patterns() -> ModuleType:
    """The example's module, loaded as the pipeline loads it but with the active session."""
    path = EXAMPLE / "transformations" / "patterns.py"
    specification = importlib.util.spec_from_file_location("patterns", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    with graph_element_registration_context(Flows()):
        specification.loader.exec_module(module)
    return module


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    """The rows without an order, with times as numbers whatever zone they are shown in."""
    plain = pa.table(
        {
            name: column.cast(pa.timestamp("us")).cast(pa.int64())
            if pa.types.is_timestamp(column.type)
            else column
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    )
    return sorted(tuple(row.values()) for row in plain.to_pylist())


#: A streaming table of the same pipeline.
STREAMED = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType, StringType, StructType, TimestampType
import outpace as op

spark = SparkSession.active()
TICKS = StructType().add("symbol", StringType()).add("ts", TimestampType())
TICKS = TICKS.add("price", DoubleType())

@dp.table
def falls():
    trades = spark.readStream.schema(TICKS).json({folder!r})
    return op.match(op.spark.with_schema(trades, TICKS), {query})
"""
FALL = (
    op.Query("fall")
    .partition_by("symbol")
    .order_by("ts")
    .pattern("A B")
    .define(B="price < A.price")
    .measures(at="B.ts")
    .within("1 hour")
)


def test_a_pipeline_stores_what_is_found_in_process(pipeline: Path, spark: SparkSession) -> None:
    streamed = STREAMED.format(folder=str(pipeline / "data"), query=FALL.to_python())
    (pipeline / "transformations" / "streamed.py").write_text(streamed, encoding="utf-8")
    done = spark_pipelines("run", pipeline)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Run is COMPLETED" in done.stdout
    # What Spark does not answer inside a flow is not asked.
    assert " ERROR " not in done.stderr
    stored = {
        folder.name: pa.parquet.read_table(folder)
        for folder in (pipeline / "spark-warehouse").iterdir()
    }

    example = patterns()
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC"))])
    options = pa.json.ParseOptions(explicit_schema=schema)
    ticks = pa.json.read_json(EXAMPLE / "data" / "trades.json", parse_options=options)
    dips = op.match(ticks, example.DIP)
    large = (
        op.Query()
        .order_by("ts")
        .pattern("A -> B")
        .define(A="volume >= 1900", B="volume >= 1900 AND symbol <> A.symbol")
        .measures(first_symbol="A.symbol", second_symbol="B.symbol", shares="SUM(volume)")
        .within("1 minute")
    )
    lowest = dips.group_by("symbol").aggregate([("bottom", "count"), ("bottom", "min")])
    expected = {
        "ticks": ticks,
        "dips": dips,
        "double_dips": op.match(dips, example.DOUBLE_DIP),
        "large_trades": op.match(ticks, large),
        "falls": op.match(ticks, FALL),
        "lowest": lowest.rename_columns(["symbol", "dips", "bottom"]),
    }
    assert {name: rows(table) for name, table in stored.items()} == {
        name: rows(table.select(stored[name].column_names)) for name, table in expected.items()
    }
    assert all(table.num_rows > 3 for table in stored.values())


#: A flow that does not tell its schema, and keeps what it is told.
UNTOLD = """
from pathlib import Path
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
import outpace as op

spark = SparkSession.active()

@dp.materialized_view
def untold():
    try:
        return op.match(spark.read.table("ticks"), op.Query().order_by("ts").pattern("A"))
    except op.UnsupportedError as error:
        Path("told.txt").write_text(str(error), encoding="utf-8")
        return spark.read.table("ticks")
"""


def test_a_dry_run_stores_nothing_and_a_flow_without_a_schema_is_told_how(pipeline: Path) -> None:
    (pipeline / "transformations" / "untold.py").write_text(UNTOLD, encoding="utf-8")
    done = spark_pipelines("dry-run", pipeline)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Run is COMPLETED" in done.stdout
    assert not list((pipeline / "spark-warehouse").glob("*"))
    told = (pipeline / "told.txt").read_text(encoding="utf-8")
    assert "Spark does not say which columns there are" in told
    assert "with_schema" in told.split("hint:")[1]
