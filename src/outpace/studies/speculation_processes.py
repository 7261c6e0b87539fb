"""Instances in processes: what `outpace.run` does with K-slack, and with speculation."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from outpace.hosts.processes.run import run
from outpace.ingest.source import BATCH_ROWS, Source
from outpace.pattern.disorder import Disorder, KSlack, Speculative
from outpace.studies.report import Row
from outpace.studies.speculation_figures import PROCESSES, counted
from outpace.studies.speculation_runs import K_SLACK, SPECULATION
from outpace.studies.speculation_stream import SLACK, DelayRamp, sequence_query, stream_of

#: Batches that are read while the processes start; the time of a run begins behind them.
_BATCHES_AHEAD: Final = 6


@dataclass(frozen=True)
class ListedEvents(Source):
    """Events that are there, and notes when the first of them were taken.

    Parameters
    ----------
    events
        The events, as they arrive.
    """

    events: pa.Table
    #: When a batch was asked for that the operator has room for.
    begun: list[float] = field(default_factory=list, compare=False)

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the events."""
        for number, batch in enumerate(self.events.to_batches(max_chunksize=rows)):
            if number == _BATCHES_AHEAD:
                self.begun.append(time.perf_counter())
            yield batch


def rate_of_run(disorder: Disorder, events: pa.Table, batch: int, instances: int) -> float:
    """Return the events per second of a run, without its start; so many come at once."""
    source = ListedEvents("stream", events)
    query = sequence_query(10_000, 2000, instances).disorder(disorder)
    with run(query, source, batch_rows=batch) as matches:
        for _ in matches:
            pass
    seconds = time.perf_counter() - source.begun[0]
    return float(events.num_rows - _BATCHES_AHEAD * batch) / seconds


def processes(counts: Sequence[int], events: int, batch: int, repeats: int) -> Iterator[Row]:
    """Measure K-slack and speculation in turns, in order and with late events.

    Parameters
    ----------
    counts
        Numbers of instances.
    events, batch
        How many events a run has, and how many come at once.
    repeats
        How often each is measured; the median counts.
    """
    ramp = DelayRamp(begin=0, end=10 * events, every=10 * events // 18)
    streams = {"in order": stream_of(events), "late events": stream_of(events, ramp)}
    kinds: dict[str, Disorder] = {
        K_SLACK: KSlack(SLACK),
        SPECULATION: Speculative(SLACK, alpha=0.0),
    }
    for count in counts:
        for words, stream in streams.items():
            rates: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(repeats):
                for kind, disorder in kinds.items():
                    rates[kind].append(rate_of_run(disorder, stream, batch, count))
            for kind, found in rates.items():
                setting, curve = f"{counted(count)}, {words}, {kind}", f"{kind}, {words}"
                rate = statistics.median(found)
                yield Row(PROCESSES.name, setting, rate, PROCESSES.unit, None, curve, count)
            turns = zip(rates[SPECULATION], rates[K_SLACK], strict=True)
            ratio = statistics.median(one / other for one, other in turns)
            setting = f"{counted(count)}, {words}, speculation to K-slack"
            yield Row(PROCESSES.name, setting, ratio, "ratio", "almost the same")
