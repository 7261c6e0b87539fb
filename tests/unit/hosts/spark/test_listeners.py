"""A stream that drops late events says so: once, again when they are many, louder with `!B`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent

import outpace as op
from outpace.engine.codec.cell import COUNTERS
from outpace.hosts.spark.listeners import LateListener

SCHEMA = pa.schema({"ts": pa.int64(), "kind": pa.string()})
BASE = op.Query("alarm").order_by("ts").define(B="kind = 'b'").within(5)


def test_a_query_that_loses_events_says_how_many(caplog: pytest.LogCaptureFixture) -> None:
    listener = LateListener()
    listener.expect("outpace:alarm:1", [BASE.pattern("A -> B")])
    for late in (0, 1, 2, 6, 1, 0, 80, 9):
        listener.count("outpace:alarm:1", late)
    listener.count("outpace:other:2", 5)
    assert [message.split(".")[0] for message in caplog.messages] == [
        "query 'alarm': 1 event was late and dropped so far",
        "query 'alarm': 10 events were late and dropped so far",
    ]
    assert ".disorder(...)" in caplog.messages[0]


def test_a_negation_makes_it_worse(caplog: pytest.LogCaptureFixture) -> None:
    listener = LateListener()
    listener.expect("one", [BASE.pattern("A -> !B")])
    listener.count("one", 30)
    (said,) = caplog.messages
    assert "30 events were late" in said
    assert "with !B in the pattern, matches may be FALSE ALARMS" in said


@pytest.mark.parametrize("late", ["side", "pass"])
def test_events_that_are_not_dropped_are_no_news(
    late: str, caplog: pytest.LogCaptureFixture
) -> None:
    listener = LateListener()
    query = BASE.pattern("A -> !B").disorder(op.KSlack(2, late=late))
    listener.expect("one", [query])
    listener.count("one", 30)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("source", "of_files"),
    [("FileStreamSource[file:/events]", True), ("PythonMicroBatchStream", False)],
)
def test_how_files_are_read_is_told_of_files_alone(
    source: str, of_files: bool, caplog: pytest.LogCaptureFixture
) -> None:
    listener = LateListener()
    listener.expect("one", [BASE.pattern("A -> B")])
    report = [0, *(2 if name == "late" else 0 for name in COUNTERS)]
    rates = {"numInputRows": 2, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0}
    offsets = {"startOffset": None, "endOffset": None, "latestOffset": None}
    none = "00000000-0000-0000-0000-000000000000"
    progress: dict[str, Any] = {
        "id": none,
        "runId": none,
        "name": None,
        "timestamp": "",
        "batchId": 0,
        "batchDuration": 1,
        "stateOperators": [],
        "sink": {"description": "", "numOutputRows": 0},
        "sources": [{"description": source, **offsets, **rates}],
        "observedMetrics": {"one": {"pack": [report]}},
    }
    listener.onQueryProgress(QueryProgressEvent.fromJson({"progress": progress}))
    (said,) = caplog.messages
    assert "2 events were late" in said
    assert ("by modification time" in said) is of_files


def test_numbers_of_several_sources_are_told(caplog: pytest.LogCaptureFixture) -> None:
    listener = LateListener()
    query = BASE.pattern("A -> B").disorder(op.Sequence("1 s"))
    for name, columns in (("one", ("ts", "source")), ("named", ())):
        listener.expect(name, [query], columns)
        listener.count(name, 1)
    assert ["name the sources" in said for said in caplog.messages] == [True, False]
