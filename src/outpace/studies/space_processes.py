"""What the experiments with processes share: a source, operators, and rates over time.

Everything runs as it does for users: `outpace.run` with instances in processes of their own. A
source lasts for a given time and offers events as fast as they are taken.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Floats
from outpace.hosts.processes.control import RateControl
from outpace.hosts.processes.metrics import Metrics
from outpace.hosts.processes.run import run
from outpace.ingest.source import BATCH_ROWS, SEQUENCE, Source
from outpace.pattern.operator import Operator, OperatorRows, SharedOperator, WindowBlock
from outpace.pattern.query import Query
from outpace.studies.space_stream import events_of

#: Batches that are read while the processes start; the time of a source begins after them.
_BATCHES_AHEAD: Final = 6

#: The share of a run, from its beginning, that does not count.
_WARM: Final = 0.3


@dataclass(frozen=True)
class TimedSource(Source):
    """Events of one kind for a given time; the payload is made once and repeats.

    Parameters
    ----------
    kind
        The paper's kind of events.
    seconds
        How long they come, from when the operator has started on.
    """

    kind: str
    seconds: float

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield batches until the time is over."""
        payload = events_of(self.kind, rows).drop_columns([self.time, SEQUENCE])
        columns = [column.chunk(0) for column in payload.columns]
        names = [self.time, SEQUENCE, *payload.column_names]
        numbers = np.arange(rows, dtype=np.int64)
        began = 0.0
        batch = 0
        while batch < _BATCHES_AHEAD or time.perf_counter() - began < self.seconds:
            yield pa.RecordBatch.from_arrays(
                [pa.array(numbers).view(pa.timestamp("us", tz="UTC")), pa.array(numbers), *columns],
                names,
            )
            numbers = numbers + rows
            batch += 1
            if batch <= _BATCHES_AHEAD:
                began = time.perf_counter()


class Discard(SharedOperator):
    """Takes the events of all windows and does nothing with them."""

    output = pa.schema([("nothing", pa.int64())])

    def process_windows(self, block: WindowBlock) -> None:
        """Forget the events."""


class Busy(Operator):
    """Needs a given time for each event: computing, or waiting for something elsewhere.

    Parameters
    ----------
    rate
        The events per second that one instance can do.
    computes
        Whether it keeps a core busy, or waits.
    """

    output = pa.schema([("nothing", pa.int64())])

    def __init__(self, rate: float, computes: bool) -> None:
        self._rate = rate
        self._computes = computes

    def process(self, events: pa.Table) -> OperatorRows:
        """Spend the time that the events need."""
        seconds = events.num_rows / self._rate
        if self._computes:
            until = time.thread_time() + seconds
            while time.thread_time() < until:
                pass
        else:
            time.sleep(seconds)
        return None


def discarding() -> Query:
    """Return a query whose instances discard what they get."""
    return Query("discard").order_by("ts").apply(Discard)


def busy(rate: float, *, computes: bool) -> Query:
    """Return a query whose instances can do so many events of windows in a second."""
    return Query("busy").order_by("ts").apply(partial(Busy, rate, computes))


def metrics_of(
    query: Query,
    sources: Sequence[Source],
    control: RateControl | None = None,
) -> Metrics:
    """Run a query until its sources end."""
    with run(query, sources, rate_control=control) as matches:
        for _ in matches:
            pass
    return matches.metrics


@dataclass(frozen=True)
class RateProgress:
    """How many events of the stream the instances had done at which time.

    Parameters
    ----------
    seconds, events
        Both rise from sample to sample.
    """

    seconds: Floats
    events: Floats

    @staticmethod
    def of(metrics: Metrics) -> RateProgress:
        """Add up the instances, from the beginning on; an event that several get counts once."""
        table = metrics.over_time("instance", "events").group_by("seconds", use_threads=False)
        summed = table.aggregate([("value", "sum")])
        done = np.asarray(summed["value_sum"], np.float64) / metrics.operator.duplication
        seconds = np.asarray(summed["seconds"], np.float64)
        return RateProgress(np.concatenate([[0.0], seconds]), np.concatenate([[0.0], done]))

    def rate(self) -> float:
        """Return the events per second, without the beginning."""
        first = int(np.searchsorted(self.seconds, _WARM * self.seconds[-1]))
        first = min(first, len(self.seconds) - 2)
        passed = self.seconds[-1] - self.seconds[first]
        return float((self.events[-1] - self.events[first]) / passed)

    def rates(self, interval: float) -> tuple[Floats, Floats]:
        """Return the ends of equal intervals, and the events per second in each."""
        bounds = np.arange(0.0, self.seconds[-1], interval)
        return bounds[1:], np.diff(np.interp(bounds, self.seconds, self.events)) / interval
