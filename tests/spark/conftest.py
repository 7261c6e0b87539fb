"""One Spark session for all tests of the Spark host."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from support.streamed import PROVIDER

from outpace.hosts.spark.session import ROCKSDB, classic_settings

FILES = "spark.sql.streaming.checkpointFileManagerClass"


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """A classic session on two cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("outpace tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.sql.session.timeZone", "UTC")
        # As `op.spark.session()` has it: Spark's own choice starts forty processes in each batch.
        .config(FILES, classic_settings()[FILES])
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def streaming(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the state store that streams need."""
    before = spark.conf.get(PROVIDER, None)
    spark.conf.set(PROVIDER, ROCKSDB)
    yield spark
    if before is None:
        spark.conf.unset(PROVIDER)
