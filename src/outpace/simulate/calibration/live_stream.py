"""A streaming query on Spark, the process that feeds it, and what its batches did.

The query runs as users run theirs: events from a log as blocks, state in RocksDB, matches into
Parquet files, exactly once, a batch every trigger interval. One query runs for all rates of a
measurement, as a new one would begin with seconds that say nothing. What it does is read from
outside: the log has the time at which events came, Spark's progress the begin of each batch, and
the sink's own log the time at which rows were to be seen.

Memory: Spark's progress of `PROGRESS_KEPT` batches, and the headers of the log's frames.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.errors import OutpaceError
from outpace.hosts.spark.metrics import watch
from outpace.ingest.log import create
from outpace.ingest.log.reader import Log
from outpace.simulate.calibration.estimates import TimedBatch
from outpace.simulate.metrics import Floats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: How many batches Spark remembers; a setting of the session.
PROGRESS_KEPT: Final = 10_000

#: What the session of a measurement needs: what batches did is read at its end, when Spark would
#: have forgotten the first of them, and deleted what its sink knows of them.
SETTINGS: Final = {
    "spark.sql.streaming.numRecentProgressUpdates": str(PROGRESS_KEPT),
    "spark.sql.streaming.fileSink.log.deletion": "false",
}

#: How often the query is looked at, in seconds; each look takes Spark some time.
_LOOK: Final = 0.25

#: How long appending at full speed may take, in seconds.
_BURST_SECONDS: Final = 600.0

#: How many times as long as it should, a rate may take to get its batches.
_PATIENCE: Final = 30

#: Makes the stream of matches, given the log's path and the most events of a batch.
Matching = Callable[["SparkSession", str, int], "DataFrame"]


@dataclass(frozen=True)
class StreamSetting:
    """What runs.

    Parameters
    ----------
    matching
        What makes the stream of matches.
    events, time
        The events to feed, and the column with their times.
    trigger
        The time between two batches, in seconds.
    events_max
        The most events of a batch.
    """

    matching: Matching
    events: pa.Table
    time: str
    trigger: float
    events_max: int


@dataclass(frozen=True, slots=True)
class RateStretch:
    """A time during which events came at a rate; in seconds since 1970."""

    rate: float
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class RowCounts:
    """What the metrics of a query say: events that came, matches, and what could not be used."""

    events: int
    matches: int
    late: int
    invalid: int


class LiveStream:
    """A query that runs; see `live_stream`."""

    def __init__(
        self,
        query: StreamingQuery,
        feeder: subprocess.Popen[bytes],
        folder: Path,
        setting: StreamSetting,
    ) -> None:
        self._query = query
        self._feeder = feeder
        self._folder = folder
        self._setting = setting

    def at_rate(self, rate: float, seconds: float, batches: int) -> RateStretch:
        """Feed at a rate for a time, or longer until there have been so many batches."""
        first = self._batches_done
        self._tell(rate=rate)
        began = time.time()
        until = began + _PATIENCE * max(seconds, self._setting.trigger)
        while (now := time.time()) < began + seconds or self._batches_done < first + batches:
            self._check(now < until)
            time.sleep(_LOOK)
        return RateStretch(rate, began, time.time())

    def at_full_speed(self, batches: int) -> RateStretch:
        """Append at once what fills so many batches, and wait until it is processed."""
        self.drain()
        events = batches * self._setting.events_max
        log = Log.open(self._log)
        before, began = log.stop, time.time()
        self._tell(burst=events)
        while log.refresh() < before + events:
            self._check(time.time() < began + _BURST_SECONDS)
            time.sleep(_LOOK)
        self._query.processAllAvailable()
        return RateStretch(0.0, began, time.time())

    def drain(self) -> None:
        """Let nothing come any more, and wait until all is processed."""
        self._tell(rate=0)
        # What is being appended is seen by now.
        time.sleep(0.2)
        self._query.processAllAvailable()

    def batches(self) -> list[TimedBatch]:
        """Return the batches so far that had events."""
        firsts, stops, arrivals = self._frames()
        found = []
        for progress in self._query.recentProgress:
            source = progress["sources"][0]
            start, stop = _offset(source["startOffset"]), _offset(source["endOffset"])
            committed = self._committed(int(progress["batchId"]))
            if stop <= start or committed is None:
                continue
            events = np.clip(np.minimum(stops, stop) - np.maximum(firsts, start), 0, None)
            came = float(np.average(arrivals, weights=events))
            cut = float(arrivals[np.flatnonzero(events)[-1]])
            began = datetime.fromisoformat(progress["timestamp"]).timestamp()
            found.append(TimedBatch(stop - start, began, cut, committed, committed - came))
        return found

    def came(self, stretch: RateStretch) -> float:
        """Return how many events a second came during a stretch."""
        firsts, stops, arrivals = self._frames()
        inside = (arrivals >= stretch.began) & (arrivals < stretch.ended)
        return float((stops - firsts)[inside].sum()) / (stretch.ended - stretch.began)

    def _frames(self) -> tuple[Integers, Integers, Floats]:
        """Return where the frames of the log begin and stop, and when they came."""
        log = Log.open(self._log)
        headers = np.concatenate([run.headers for run in log.runs(0, log.stop)])
        firsts = headers["first"].astype(np.int64)
        return firsts, firsts + headers["events"].astype(np.int64), headers["arrival"] / 1e6

    @property
    def _log(self) -> str:
        return str(self._folder / "log")

    @property
    def _batches_done(self) -> int:
        last = self._query.lastProgress
        return 0 if last is None else int(last["batchId"]) + 1

    def _committed(self, number: int) -> float | None:
        """Return when readers of the sink saw the rows of a batch."""
        entries = self._folder / "matches" / "_spark_metadata"
        for name in (str(number), f"{number}.compact"):
            if (entries / name).exists():
                return (entries / name).stat().st_mtime
        return None

    def _tell(self, **command: float) -> None:
        assert self._feeder.stdin is not None
        self._feeder.stdin.write(json.dumps(command).encode() + b"\n")
        self._feeder.stdin.flush()

    def _check(self, in_time: bool) -> None:
        failure = self._query.exception()
        if failure is not None:
            raise failure
        if self._feeder.poll() is not None:
            raise OutpaceError("the process that appends events has ended")
        if not in_time:
            raise OutpaceError(
                "the query is too slow to be measured",
                hint="fewer events in a batch (--max-events) or a longer --trigger",
            )


@contextmanager
def live_stream(session: SparkSession, setting: StreamSetting) -> Iterator[LiveStream]:
    """Start a query and the process that feeds it; both end with the block."""
    with tempfile.TemporaryDirectory(
        # Spark may still be tidying up in it.
        prefix="outpace-calibrate-",
        ignore_cleanup_errors=True,
    ) as name:
        folder = Path(name)
        create(folder / "log", setting.events.schema, time=setting.time)
        _write(setting.events, folder / "events.arrow")
        with _feeding(folder) as feeder:
            query = (
                setting.matching(session, str(folder / "log"), setting.events_max)
                .writeStream.format("parquet")
                .option("path", str(folder / "matches"))
                .option("checkpointLocation", str(folder / "checkpoint"))
                .trigger(processingTime=f"{round(setting.trigger * 1000)} milliseconds")
                .start()
            )
            try:
                yield LiveStream(query, feeder, folder, setting)
            finally:
                query.stop()


@contextmanager
def counting(session: SparkSession) -> Iterator[Callable[[], RowCounts]]:
    """Give what counts the events and matches of the queries that are started in the block."""
    with watch(session, 0) as watched:

        def counts() -> RowCounts:
            return counts_of(watched.values()["samples"])

        yield counts


def counts_of(samples: Iterable[Mapping[str, Any]]) -> RowCounts:
    """Add up metrics of stages, which come in the order in which events pass through them.

    Events are those that the first stage took, matches those that the last one gave.

    Examples
    --------
    >>> said = [("pack", "events", 90), ("pack", "matches", 0), ("match", "events", 70),
    ...         ("match", "matches", 8), ("match", "late", 2), ("merge", "matches", 7)]
    >>> counts_of({"name": f"outpace_stage_{name}_total", "labels": {"stage": stage},
    ...            "value": value} for stage, name, value in said)
    RowCounts(events=90, matches=7, late=2, invalid=0)
    """
    totals = dict.fromkeys(("events", "matches", "late", "invalid"), 0)
    for sample in samples:
        name = str(sample["name"]).removeprefix("outpace_stage_").removesuffix("_total")
        value = int(sample["value"]) if name in totals else 0
        if name == "events":
            totals[name] = totals[name] or value
        elif name == "matches":
            totals[name] = value
        elif name in totals:
            totals[name] += value
    return RowCounts(**totals)


def steady(batches: Sequence[TimedBatch], stretch: RateStretch) -> list[TimedBatch]:
    """Return the batches whose events all came during a stretch.

    One that begins after the end of the stretch does not count: events came for a part of its
    interval only.

    Examples
    --------
    >>> ends = [TimedBatch(10, cut, cut, cut + 0.5, 1.0) for cut in (1.0, 3.0, 5.0, 7.0, 9.0)]
    >>> [batch.cut for batch in steady(ends, RateStretch(5.0, 2.0, 8.0))]
    [5.0, 7.0]
    """
    cuts = [batch.cut for batch in batches]
    befores = [-np.inf, *cuts]
    return [
        batch
        for batch, before in zip(batches, befores, strict=False)
        if before >= stretch.began and max(batch.cut, batch.started) <= stretch.ended
    ]


def latency_of(batches: Sequence[TimedBatch]) -> float:
    """Return how old events were, on average, when their rows were in the sink, in seconds."""
    events = [batch.events for batch in batches]
    return float(np.average([batch.latency for batch in batches], weights=events))


def throughput_of(batches: Sequence[TimedBatch]) -> float:
    """Return the events a second of batches that follow each other; there must be two or more.

    Examples
    --------
    >>> throughput_of([TimedBatch(20, at, at, at + 0.5, 1.0) for at in (0.0, 2.0, 4.0)])
    10.0
    """
    seconds = batches[-1].started - batches[0].started
    return sum(batch.events for batch in batches[1:]) / seconds


def _offset(text: str | None) -> int:
    return 0 if not text or text == "null" else int(json.loads(text)["offset"])


def _write(events: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, events.schema) as writer:
        writer.write_table(events)


@contextmanager
def _feeding(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [str(folder / "log"), str(folder / "events.arrow")]
    module = "outpace.simulate.calibration.feed"
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for this process, which ends the other one
    ) as feeder:
        try:
            yield feeder
        finally:
            feeder.terminate()
