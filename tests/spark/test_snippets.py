"""The documentation's snippets that need Spark run too, page by page, on the tests' session.

They are marked as not to be run with the reasons "needs a Spark session", "starts Spark" and
"starts streams that go on"; of each such stream a batch has to end well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from docs.test_snippets import PAGES, PROJECT, Snippet, run_console, run_python, snippets
from pyspark.sql import SparkSession

from outpace.hosts.spark.session import ROCKSDB
from outpace.ingest.ticks import generate_ticks

RUN = (
    "no-run needs a Spark session",
    "no-run starts Spark",
    "no-run starts streams that go on",
)

#: Long enough for a machine that does much else.
BATCH_SECONDS_MAX = 600

#: What pages set, for other tests to find it as it was.
SETTINGS = (
    "spark.sql.shuffle.partitions",
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
    "spark.sql.streaming.checkpointFileManagerClass",
)


def on_spark(snippet: Snippet) -> bool:
    return snippet.tags in RUN


def read(page: Path) -> list[Snippet]:
    return list(snippets(str(page.relative_to(PROJECT)), page.read_text(encoding="utf-8")))


@contextmanager
def working_folder(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Let relative paths mean those of a folder in Java too, which never follows `chdir`."""
    hadoop = spark._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.get(spark._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()
    files.setWorkingDirectory(hadoop.Path(str(folder)))
    try:
        yield
    finally:
        files.setWorkingDirectory(before)


@pytest.fixture
def restored(spark: SparkSession) -> Iterator[SparkSession]:
    """The session as `op.spark.session()` would make it; in the end it is what it was."""
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    yield spark
    for query in spark.streams.active:
        query.stop()
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def end_streams(spark: SparkSession) -> None:
    """Let each stream complete a batch, which raises what makes it fail, and stop it."""
    until = time.monotonic() + BATCH_SECONDS_MAX
    for query in spark.streams.active:
        while not query.recentProgress and not query.awaitTermination(1):
            assert time.monotonic() < until, query.status
        query.stop()


SPARK_PAGES = [page for page in PAGES if any(map(on_spark, read(page)))]


@pytest.mark.parametrize("page", SPARK_PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_snippets_of_a_page_run_on_spark(
    page: Path, restored: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(PROJECT / "examples")
    (tmp_path / "out").mkdir()
    pq.write_table(generate_ticks(2_000), tmp_path / "out" / "ticks.parquet", row_group_size=500)
    namespace: dict[str, object] = {"__name__": "__main__"}
    with working_folder(restored, tmp_path):
        for snippet in read(page):
            if snippet.language == "python" and (on_spark(snippet) or not snippet.tags):
                run_python(snippet, namespace)
                end_streams(restored)
            elif snippet.language == "console" and on_spark(snippet):
                run_console(snippet)


def test_there_are_such_pages() -> None:
    assert PROJECT / "README.md" in SPARK_PAGES
    for name in ("run-on-spark.md", "match-a-stream-on-spark.md"):
        assert PROJECT / "docs" / "how-to" / name in SPARK_PAGES
