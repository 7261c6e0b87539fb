"""The account of watched queries: what each progress of Spark adds to counters and gauges.

Counters only grow, also over restarts of a query, whose id its Spark checkpoint keeps. A gauge is
what the last batch said; a batch that says nothing of a stage leaves it as it is. There is neither
I/O nor a clock here: times are those of the progress. At most `QUERIES_MAX` queries are kept, those
that ended are forgotten first, and the last `HISTORY` batches of each.
"""

from __future__ import annotations

import datetime
import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from outpace.engine.codec.cell import COUNTERS, Counters, add_count
from outpace.hosts.spark import metrics_names as names
from outpace.hosts.spark.log_source import behind
from outpace.hosts.spark.metrics_names import Metric
from outpace.hosts.spark.metrics_text import Sample

QUERIES_MAX: Final = 64
HISTORY: Final = 60

#: What the name of observed metrics begins with; the query's name and a number follow.
OBSERVED: Final = "outpace"

#: What is observed is named after the stages, in their order, with this between them.
BEHIND: Final = " > "

_SPLIT, _MATCH = "order + split", "match"

BatchProgress = Mapping[str, Any]
_MetricKey = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Moment:
    """What a query did in one batch, for a picture of how it went.

    Parameters
    ----------
    at
        When the batch ended, in seconds since 1970.
    seconds
        How long it took.
    events, matches
        Per second.
    behind
        How long the oldest event has been waiting that was not taken, in seconds.
    """

    at: float
    seconds: float
    events: float
    matches: float
    behind: float


@dataclass
class _WatchedQuery:
    """A query: who it is and what is known of it."""

    id: str
    name: str
    run: str = ""
    error: str | None = None
    ended: float | None = None
    values: dict[_MetricKey, float] = field(default_factory=dict)
    history: deque[Moment] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def add(self, metric: Metric, value: float, **labels: str) -> None:
        key = (metric.name, tuple(labels.items()))
        self.values[key] = self.values.get(key, 0) + max(0, value)

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        self.values[metric.name, tuple(labels.items())] = value

    def get(self, metric: Metric, **labels: str) -> float:
        return self.values.get((metric.name, tuple(labels.items())), 0.0)

    def clear(self, *metrics: Metric) -> None:
        """Let gauges say that nothing happens."""
        for key in self.values:
            if key[0] in {metric.name for metric in metrics}:
                self.values[key] = 0


class Account:
    """What is known of all watched queries; safe to use from several threads.

    Examples
    --------
    >>> account = Account()
    >>> account.progressed({"id": "7", "runId": "1", "name": "dips", "batchDuration": 500,
    ...                     "timestamp": "2024-01-02T09:30:00.000Z", "batchId": 0})
    >>> {sample.name: sample.value for sample in account.samples()}["outpace_batch_seconds"]
    0.5
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, _WatchedQuery] = {}

    def started(self, id: str, run: str, name: str | None) -> None:
        """Note that a query was started."""
        with self._lock:
            self._running(id, run, name)

    def progressed(self, progress: BatchProgress) -> None:
        """Take in a progress, as Spark writes it in JSON."""
        with self._lock:
            query = self._running(progress["id"], progress["runId"], progress.get("name"))
            _take(query, progress)

    def idled(self, id: str) -> None:
        """Note that a query has nothing to do."""
        with self._lock:
            if (query := self._queries.get(id)) is not None:
                query.clear(names.STAGE_EVENT_RATE, names.STAGE_MATCH_RATE)
                query.clear(names.SOURCE_BEHIND_EVENTS, names.SOURCE_BEHIND_BYTES)
                query.clear(names.SOURCE_BEHIND_SECONDS)

    def ended(self, id: str, error: str | None) -> None:
        """Note that a query ended, and why."""
        with self._lock:
            if (query := self._queries.get(id)) is None:
                return
            query.set(names.RUNNING, 0)
            query.clear(names.STAGE_EVENT_RATE, names.STAGE_MATCH_RATE)
            query.error = error
            if error is not None:
                query.add(names.FAILURES, 1)

    def samples(self) -> list[Sample]:
        """Return all values, by query and metric."""
        with self._lock:
            return [sample for query in self._queries.values() for sample in _samples(query)]

    def queries(self) -> list[dict[str, Any]]:
        """Return who the queries are, and how their last batches went."""
        with self._lock:
            return [
                {
                    "id": query.id,
                    "name": query.name,
                    "run": query.run,
                    "running": bool(query.values[names.RUNNING.name, ()]),
                    "error": query.error,
                    "history": [
                        [m.at, m.seconds, m.events, m.matches, m.behind] for m in query.history
                    ],
                }
                for query in self._queries.values()
            ]

    def _running(self, id: str, run: str, name: str | None) -> _WatchedQuery:
        query = self._queries.get(id)
        if query is None:
            query = self._queries[id] = _WatchedQuery(id, name or id)
            query.add(names.FAILURES, 0)
            self._forget()
        if query.run != run:
            query.run, query.error, query.ended = run, None, None
            query.name = name or id
            query.add(names.STARTS, 1)
            query.set(names.RUNNING, 1)
        return query

    def _forget(self) -> None:
        """Drop what is too much, queries that ended before those that run, old before new."""
        while len(self._queries) > QUERIES_MAX:
            over = sorted(
                self._queries,
                key=lambda id: self._queries[id].values.get((names.RUNNING.name, ()), 1),
            )
            del self._queries[over[0]]


def _samples(query: _WatchedQuery) -> Iterator[Sample]:
    about = {"query": query.name, "id": query.id}
    for (name, labels), value in query.values.items():
        yield Sample(name, about | dict(labels), value)


def _take(query: _WatchedQuery, progress: BatchProgress) -> None:
    seconds = progress.get("batchDuration", 0) / 1000
    end = _seconds(progress["timestamp"]) + seconds
    # The time between the ends of two batches is what all of the work between them had.
    since = seconds if query.ended is None else end - query.ended
    query.ended = end
    query.add(names.BATCHES, 1)
    query.set(names.BATCH_NUMBER, progress["batchId"])
    query.set(names.BATCH_END, end)
    query.set(names.BATCH_SECONDS, seconds)
    _take_phases(query, progress.get("durationMs") or {})
    waiting = [
        _take_source(query, str(number), source)
        for number, source in enumerate(progress.get("sources") or ())
    ]
    events = matches = 0.0
    for operator, stages in _observed(progress.get("observedMetrics") or {}):
        _take_stages(query, operator, stages, since)
        first, last = next(iter(stages.values())), list(stages.values())[-1]
        events += first.get("events", 0)
        matches += last.get("matches", 0)
    for number, store in enumerate(progress.get("stateOperators") or ()):
        _take_store(query, str(number), store)
    query.add(names.SINK_ROWS, (progress.get("sink") or {}).get("numOutputRows") or 0)
    rate = 1 / since if since > 0 else 0.0
    query.history.append(
        Moment(end, seconds, events * rate, matches * rate, max(waiting, default=0.0))
    )


def _take_phases(query: _WatchedQuery, phases: Mapping[str, int]) -> None:
    query.clear(names.PHASE_SECONDS)
    for phase, milliseconds in phases.items():
        if phase != "triggerExecution":  # all of them together
            query.add(names.PHASE_TOTAL, milliseconds / 1000, phase=phase)
            query.set(names.PHASE_SECONDS, milliseconds / 1000, phase=phase)


def _take_source(query: _WatchedQuery, number: str, source: Mapping[str, Any]) -> float:
    """Count the rows of a source, and return for how long its oldest event waits."""
    query.add(names.SOURCE_ROWS, source.get("numInputRows") or 0, source=number)
    end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
    if "offset" in end and "offset" in latest:
        left = behind(end, latest)
        query.set(names.SOURCE_BEHIND_EVENTS, left.events, source=number)
        query.set(names.SOURCE_BEHIND_SECONDS, left.seconds, source=number)
        if "bytes" in latest:
            query.set(names.SOURCE_BEHIND_BYTES, left.bytes, source=number)
        if "lost" in latest:
            query.set(names.SOURCE_LOST, latest["lost"], source=number)
        return left.seconds
    if end and latest and (events := _partitions_behind(end, latest)) is not None:
        query.set(names.SOURCE_BEHIND_EVENTS, events, source=number)
    return 0.0


def _offset(written: Any) -> dict[str, Any]:
    """Return an offset that is an object in JSON, else nothing."""
    try:
        read = json.loads(written) if isinstance(written, str) else written
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def _partitions_behind(end: dict[str, Any], latest: dict[str, Any]) -> int | None:
    """Count by topic and partition, as the offsets of Kafka do; None for any other."""
    left = 0
    for topic, partitions in latest.items():
        if not isinstance(partitions, dict) or not isinstance(end.get(topic), dict):
            return None
        for partition, offset in partitions.items():
            taken = end[topic].get(partition, offset)
            if not isinstance(offset, int) or not isinstance(taken, int):
                return None
            left += max(0, offset - taken)
    return left


def _observed(
    metrics: Mapping[str, Mapping[str, Sequence[Sequence[int]] | None] | None],
) -> Iterator[tuple[str, dict[str, dict[str, int]]]]:
    """Yield each operator of a query with what its stages report, those that report anything."""
    found: dict[str, int] = {}
    for name in sorted(metrics, key=_operator_number):
        parts = name.split(":")
        if parts[0] != OBSERVED:
            continue
        operator = ":".join(parts[1:-1]) if len(parts) > 2 else ":".join(parts[1:])
        found[operator] = found.get(operator, 0) + 1
        if found[operator] > 1:
            operator = f"{operator} ({found[operator]})"
        for chain, reports in (metrics[name] or {}).items():
            if reports:
                yield operator, _added(chain.split(BEHIND), reports)


def _added(stages: Sequence[str], reports: Sequence[Sequence[int]]) -> dict[str, dict[str, int]]:
    """Return what the stages report, in their order; a report is a stage's place and counters."""
    added: dict[str, dict[str, int]] = {}
    for place, *counters in sorted(reports, key=lambda report: report[0]):
        known = added.setdefault(stages[place], asdict(Counters()))
        for counter, value in zip(COUNTERS, counters, strict=True):
            known[counter] = add_count(counter, known[counter], value)
    return added


def _operator_number(name: str) -> tuple[int, str]:
    last = name.rpartition(":")[2]
    return (int(last) if last.isdecimal() else 0), name


def _take_stages(
    query: _WatchedQuery, operator: str, stages: Mapping[str, Mapping[str, int]], since: float
) -> None:
    for stage, counters in stages.items():
        labels = {"operator": operator, "stage": stage}
        for counter, metric in names.STAGE_TOTALS.items():
            query.add(metric, counters.get(counter, 0), **labels)
        for counter, metric in names.STAGE_HELD.items():
            query.set(metric, counters.get(counter, 0), **labels)
        if counters.get("unawaited", 0):
            for counter, metric in names.STAGE_UNAWAITED.items():
                query.set(metric, counters[counter], **labels)
        for counter, (matches, metric) in names.STAGE_MATCH_WAITS.items():
            if count := counters.get(matches, 0):
                query.set(metric, counters.get(counter, 0) / count, **labels)
        checkpoints = counters.get("checkpoint_us", 0) / 1e6
        query.add(names.STAGE_CHECKPOINT_SECONDS, checkpoints, **labels)
        query.set(names.STAGE_EARLY, counters.get("early", 0) / 1e6, **labels)
        if tentative := query.get(names.STAGE_TOTALS["tentative"], **labels):
            gone = query.get(names.STAGE_TOTALS["retracted"], **labels)
            query.set(names.STAGE_RETRACTED, gone / tentative, **labels)
        for counter, part in names.STAGE_TIMES.items():
            spent = counters.get(counter, 0) / 1e6
            query.add(names.STAGE_SECONDS, spent, **labels, part=part)
            query.set(names.STAGE_BATCH_SECONDS, spent, **labels, part=part)
        if ordered := counters.get("released", 0):
            wait = counters.get("buffered", 0) * since / ordered
            query.set(names.STAGE_WAIT, wait, **labels)
            query.set(names.STAGE_LATENCY, counters.get("waited", 0) / ordered, **labels)
        if since > 0:
            query.set(names.STAGE_EVENT_RATE, counters.get("events", 0) / since, **labels)
            query.set(names.STAGE_MATCH_RATE, counters.get("matches", 0) / since, **labels)
    if _MATCH in stages and (released := stages.get(_SPLIT, {}).get("released")):
        query.set(names.DUPLICATION, stages[_MATCH].get("events", 0) / released, operator=operator)


def _take_store(query: _WatchedQuery, number: str, metrics: Mapping[str, Any]) -> None:
    query.set(names.STORE_ROWS, metrics.get("numRowsTotal") or 0, store=number)
    query.set(names.STORE_BYTES, metrics.get("memoryUsedBytes") or 0, store=number)
    spent = (metrics.get("allUpdatesTimeMs") or 0) / 1000
    query.add(names.STORE_UPDATE_SECONDS, spent, store=number)
    query.add(names.STORE_COMMIT_SECONDS, (metrics.get("commitTimeMs") or 0) / 1000, store=number)


def _seconds(timestamp: str) -> float:
    return datetime.datetime.fromisoformat(timestamp).timestamp()
